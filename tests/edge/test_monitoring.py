"""docs/monitoring.md uses only fields that the commands print, and metrics that it makes."""

import json
import re

import pytest

from claimlib.report.counts import MEANINGS
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import Consumer, Group, PendingEntry
from claimlib.semantics.words import Stream
from claimlib.testing.keyspace_rows import write_keyspace
from tests.edge.documents import examples_of, rows, section, text_of

DOCUMENT = "docs/monitoring.md"
NOW_MS = 1_750_000_000_000
COMMANDS = ("xpending", "describe", "runs", "check")
FIELD = re.compile(r"(?<![\w.$])\.([a-z]\w*)")
METRIC = re.compile(r"\bclaimlib_([a-z_]+)")


def names_in(value):
    """The names of a JSON document, at any depth."""
    if isinstance(value, dict):
        return value.keys() | names_in(list(value.values()))
    return set().union(*map(names_in, value)) if isinstance(value, list) else set()


@pytest.fixture
def printed(claimlib, store, store_path):
    """The names that each command prints of a store with an unproven stream and one run."""
    pel = (PendingEntry(StreamId(1, 0), b"dead", NOW_MS - 90_000, 3),)
    group = Group(StreamId(9, 0), pel, (Consumer(b"dead", NOW_MS, None),))
    write_keyspace(store, {b"s": Stream({}, {b"g": group})}, NOW_MS, proven=None)
    sweep = ("--consumer", "c", "--min-idle", "1m", "--run-id", "r")
    assert claimlib("xautoclaim", store_path, *sweep).code == 6
    said = {name: claimlib(name, store_path, "--output", "json").out for name in COMMANDS}
    names = {name: names_in(json.loads(document)) for name, document in said.items()}
    names["runs"] |= MEANINGS.keys()
    return names


def test_the_fields_that_are_listed_are_printed(printed):
    command = ""
    listed = rows(section(DOCUMENT, "## JSON"))
    assert len(listed) > 10
    for first, fields, _ in listed:
        command = first or command
        for name in re.findall(r"`(\w+)`", command):
            for field in re.findall(r"`(\w+)`", fields):
                assert field in printed[name], (name, field)


def programs():
    """Each program of jq in the document, by the command whose document it reads."""
    (metrics,) = [e.text for e in examples_of(DOCUMENT) if e.text.startswith("# metrics.jq")]
    yield "xpending", metrics.partition("\n")[2]
    indented = r"^    \$ claimlib (\w+) .*?\n +jq -\w '(.*?)'$"
    yield from re.findall(indented, text_of(DOCUMENT), re.MULTILINE | re.DOTALL)


def test_the_fields_that_jq_reads_are_printed(printed):
    read = list(programs())
    assert [command for command, _ in read] == ["xpending", "runs", "describe", "check", "runs"]
    for command, program in read:
        fields = set(FIELD.findall(program))
        assert fields
        assert fields <= printed[command], command


def test_rules_use_metrics_that_are_made():
    made, used = set(), set()
    for example in examples_of(DOCUMENT):
        made |= set(re.findall(r'family\("(\w+)"', example.text))
        made |= set(re.findall(r'^"claimlib_(\w+) ', example.text, re.MULTILINE))
        made |= set(re.findall(r'echo "claimlib_(\w+)\{', example.text))
        if example.text.startswith("groups:"):
            used |= set(METRIC.findall(example.text))
    assert len(used) >= 5
    assert used <= made
