"""docs/troubleshooting.md has all exit codes and error classes, and quotes messages exactly."""

import ast
import re

import pytest

from claimlib import process
from tests.edge.documents import ROOT, rows, section, text_of
from tests.edge.error_reference import ENTRIES, FILE, error_classes, with_errors

DOCUMENT = "docs/troubleshooting.md"
CODES = "## Exit codes"
# Where a value stands in a message.
GAP = "\0"
# A piece of a message that several texts of the source make up.
SHORTEST = 8
FIELD = re.compile(r"\{[^{}]*\}")


def test_each_error_class_has_an_entry():
    assert ENTRIES.keys() == error_classes().keys()


def test_the_table_of_errors_is_what_the_classes_say():
    written = FILE.read_text(encoding="utf-8")
    assert written == with_errors(written), "run: python -m tests.edge.error_reference"


def test_the_table_has_every_exit_code():
    codes = [int(row[0]) for row in rows(section(DOCUMENT, CODES))]
    assert codes == list(process.MEANINGS)


def templates():
    """The texts in the source, with a gap for each value."""
    for path in (ROOT / "claimlib").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (getattr(part, "value", GAP) for part in node.values)
                yield "".join(part if isinstance(part, str) else GAP for part in parts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield FIELD.sub(GAP, node.value)


def quoted_messages():
    """The messages in the first cells of the tables under `## Messages`."""
    for row in rows(section(DOCUMENT, "## Messages")):
        yield from re.findall(r"`([^`]+)`", row[0])


def is_made_of(source, part):
    """Whether one text has the part, or one has its beginning and others the rest."""
    if any(part in text for text in source):
        return True
    seams = (at for at in range(SHORTEST, len(part) - SHORTEST + 1) if not part[at].isalnum())
    return any(
        any(part[:at] in text for text in source) and is_made_of(source, part[at:].strip(" :;,"))
        for at in reversed(list(seams))
    )


@pytest.fixture(scope="module")
def source():
    return list(templates())


@pytest.mark.parametrize("message", list(quoted_messages()))
def test_a_message_is_quoted_as_the_source_has_it(source, message):
    parts = list(filter(None, (part.strip(" :;,") for part in message.split("…"))))
    assert parts
    assert [part for part in parts if not is_made_of(source, part)] == []


def test_the_test_finds_a_message_that_does_not_exist(source):
    assert is_made_of(source, "the certificate of")
    assert not is_made_of(source, "the store is nowhere to be found")
    assert len(list(quoted_messages())) > 50
    assert text_of(DOCUMENT).count("### ") >= 6
