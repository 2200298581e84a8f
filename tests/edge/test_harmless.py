"""What servers, tables and users wrote cannot move a terminal's cursor, whatever prints it."""

import json
import re

import pytest

from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import Consumer, Group, PendingEntry
from claimlib.semantics.words import Stream
from claimlib.testing.keyspace_rows import write_keyspace
from claimlib.testing.server_process import valkey_server

NOW_MS = 1_750_000_000_000
EVIL = b"\x1b]0;owned\x07\x1b[2J"
WRITTEN_OUT = r"\u001b]0;owned\u0007\u001b[2J"
# A C1 control, a bidirectional override, a tag character, a paragraph separator, a line break.
OTHERS = "\x9b31m\u202e\U000e0041\u2029\n"
OTHERS_WRITTEN_OUT = r"\u009b31m\u202e\U000e0041\u2029\u000a"


def is_harmless(text):
    return all(line.isprintable() for line in text.split("\n"))


@pytest.fixture
def server(monkeypatch):
    """A server with a key that moves the cursor, which its user `reader` may not read."""
    user = "reader on >sesame %R~sound* -@all +scan +time +multi +exec +xinfo +xpending +xrange"
    with valkey_server(users=[user]) as valkey:
        with valkey.client() as client:
            for key in (b"sound", EVIL):
                client.xadd(key, {"f": "v"}, id="1-0")
                client.xgroup_create(key, "g", id="0")
                client.xreadgroup("g", "c", {key: ">"})
        monkeypatch.setenv("REDIS_PASSWORD", "sesame")
        yield valkey.url.replace("//", "//reader@")


def test_a_key_that_an_acl_forbids_is_named_and_does_nothing_to_the_terminal(
    claimlib, job, server, store
):
    command = claimlib("snapshot", server, store.where, "--debug")
    assert "Traceback" in command.err
    for said in (command, job("snapshot", server, store.where)):
        assert (said.code, said.out) == (2, "")
        assert is_harmless(said.err)
        *_, error = said.err.splitlines()
        assert error.startswith("claimlib: error: ")
        assert f"on key {WRITTEN_OUT}: grant read access to the key" in error


@pytest.fixture
def evil_store(store):
    """A store whose names move the cursor; one of its groups is refused."""
    name = OTHERS.encode()
    pel = (PendingEntry(StreamId(1, 0), name, NOW_MS - 90_000, 3),)
    group = Group(StreamId(9, 0), pel, (Consumer(name, NOW_MS, None),))
    entries = {StreamId(1, 0): (b"f", name)}
    write_keyspace(store, {EVIL: Stream(entries, {name: group})}, NOW_MS)
    write_keyspace(store, {EVIL + b"2": Stream({}, {name: group})}, NOW_MS, proven=None)
    return store.where


def test_reports_notes_and_json_show_names_and_leave_the_terminal_alone(claimlib, job, evil_store):
    sweep = ("xautoclaim", evil_store, "--consumer", OTHERS, "--min-idle", "1m", "--stream", "*")
    table = claimlib(*sweep, "--run-id", EVIL.decode(), "--group", f"*{OTHERS}")
    assert table.code == 6
    run = f"xautoclaim:{EVIL.decode()}"
    shown, pending = job("runs", evil_store, run), claimlib("xpending", evil_store)
    for said in (table, shown, pending):
        assert is_harmless(said.out + said.err), (said.out, said.err)
        assert WRITTEN_OUT in said.out
        assert OTHERS_WRITTEN_OUT in said.out
    assert f"refused: {WRITTEN_OUT}2 / {OTHERS_WRITTEN_OUT}: " in table.err
    (request,) = re.findall("request: group glob .*", shown.out)
    assert request.endswith(f"*{OTHERS_WRITTEN_OUT}")
    document = claimlib("runs", evil_store, run, "--claimed", "--output", "json").out
    assert is_harmless(document)
    (claimed,) = json.loads(document)["claimed"]
    assert claimed["stream"] == EVIL.decode()
    assert claimed["consumer"] == OTHERS
    assert claimed["fields"] == [["f", OTHERS]]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("runs", "store", f"--{OTHERS}"), r"\u202e"),
        ((f"{OTHERS}",), r"\u202e"),
        (("runs", "store", "run", OTHERS), "too many arguments"),
        (("runs", "store", "--limit", OTHERS), "--limit"),
        (("xautoclaim", "store", "--config", f"no{OTHERS}.toml"), r"\u202e"),
        (("xautoclaim", "store", "--min-idle", OTHERS), r"\u202e"),
        (("init", f"store{OTHERS}", "--print-sql"), r"\u202e"),
    ],
)
def test_what_was_typed_is_harmless_too_whoever_complains_of_it(claimlib, words, shown):
    said = claimlib(*words)
    assert is_harmless(said.out + said.err)
    assert shown in said.out + said.err


@pytest.mark.parametrize(
    "words",
    [("store", "--run", OTHERS), ("store", "--limit", OTHERS), ("store", f"--{OTHERS}")],
)
def test_what_a_job_was_given_is_harmless_too(job, words):
    said = job("runs", *words)
    assert (said.code, said.out) == (2, "")
    assert is_harmless(said.err)
