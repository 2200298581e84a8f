"""Test that commands refuse typing errors before Spark starts, with each engine."""

import re
import shlex

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import Consumer, Group, PendingEntry
from claimlib.semantics.words import Stream
from claimlib.store.local import Condition
from claimlib.testing.keyspace_rows import write_keyspace

NOW_MS = 1_750_000_000_000
NO_COLUMN = "--columns: there is no column 'nosuch'; the columns are "
SWEEP = "xautoclaim {store} --consumer c --min-idle 1m"
CLAIM = "xclaim {store} orders workers c --min-idle 1m"
UNKNOWN_KEY = "NOGROUP No such key 'order' or consumer group 'workers'"
KNOWN = "known groups: orders / workers"
# The command line, in which {store} and {at} are folders, and a part of the error.
REFUSED = [
    *(
        (f"{words} --columns nosuch", f"{NO_COLUMN}{first}")
        for words, first in [
            ("xpending {store}", "stream, consumer_group, pending, stalled"),
            ("xpending {store} --output csv", "stream, consumer_group, is_known"),
            ("xpending {store} orders workers", "consumer, pending"),
            ("xpending {store} orders workers --count 3", "id, consumer"),
            ("xpending {store} --count 3 --fields", "stream, consumer_group, id, consumer"),
            ("xpending {store} --consumer bob --fields --output jsonl", "stream, consumer_group"),
            ("describe {store}", "stream, consumer_group, consumer, pending"),
            ("describe {store} --output csv", "stream, consumer_group, consumer, seen_time_ms"),
            ("check {store}", "table, what, count"),
            ("runs {store}", "run_seq, key"),
            ("runs {store} 1", "what, value, meaning"),
            ("runs {store} 1 --claimed", "stream, consumer_group, id, from_consumer"),
            ("runs {store} 1 --deleted", "stream, consumer_group, id, from_consumer"),
            ("runs {store} 1 --lost", "stream, consumer_group, id, from_consumer"),
            ("runs {store} 1 --refused", "stream, consumer_group, request_number, reason"),
            ("runs {store} 1 --ids", "request, stream"),
            (SWEEP, "stream, consumer_group, pending_before"),
            (f"{SWEEP} --dry-run", "stream, consumer_group, pending_before"),
            (f"{SWEEP} --dry-run --claimed", "stream, consumer_group, id"),
            (f"{SWEEP} --dry-run --deleted", "stream, consumer_group, id"),
            (f"{SWEEP} --explain", "stream, consumer_group, request"),
            (f"{CLAIM} 1-0", "request, stream"),
            ("xack {store} orders workers 1-0", "request, stream"),
            ("retire {store} orders workers bob --to ann", "request, stream"),
            ("reset-cursor {store} nightly", "name, stream"),
            ("abandon {store} 1", "what, value, meaning"),
            ("init {store}", "what, value"),
            ("upgrade {store}", "what, value"),
            ("snapshot redis://127.0.0.1:1 {store}", "what, count"),
            ("import {store} --entries ./e --pending ./p", "what, count"),
        ]
    ),
    # A column of another list of the same command.
    ("xpending {store} --count 3 --columns fields", "--columns: there is no column 'fields'"),
    (f"{SWEEP} --dry-run --deleted --columns payload", "there is no column 'payload'"),
    # Who gets the entries.
    (f"{SWEEP} --consumer d --consumer c", "--consumer names c twice: name each consumer once"),
    (f"{SWEEP} --consumer ''", "the consumer is empty: name who gets the entries"),
    (f"{SWEEP} --assign live", "--consumer and --assign both choose the consumers"),
    ("xautoclaim {store} --min-idle 1m", "--consumer is required: "),
    ("xautoclaim {store} --min-idle 1m --assign dead", "must be live or live:DURATION"),
    # Names.
    ("xpending {store} order workers", f"{UNKNOWN_KEY}; {KNOWN}"),
    ("xpending {store} order workers --count 3 --fields", f"{UNKNOWN_KEY}; {KNOWN}"),
    ("xpending {store} --stream order", f"matches order / * (stream / group); {KNOWN}"),
    ("xpending {store} --group worker --count 3", f"matches * / worker (stream / group); {KNOWN}"),
    ("xpending {store} --consumer bbo", "has a consumer bbo; known consumers: bob"),
    (
        "xpending {store} orders workers --consumer bbo",
        "workers has no consumer bbo; known consumers: bob",
    ),
    ("xpending {store} --as-of 7", "has no finished run 7: "),
    ("describe {store} order", f"matches order / * (stream / group); {KNOWN}"),
    ("describe {store} orders worker", f"matches orders / worker (stream / group); {KNOWN}"),
    *(
        (f"{SWEEP} --stream order {more}", f"matches order / * (stream / group); {KNOWN}")
        for more in ("", "--dry-run", "--dry-run --claimed", "--explain")
    ),
    (f"{SWEEP} --group worker", f"matches * / worker (stream / group); {KNOWN}"),
    ("xautoclaim {store} --policy {at}/policy.toml", "matches nothing / * (stream / group)"),
    ("xclaim {store} order workers c 1-0 --min-idle 1m", f"{UNKNOWN_KEY} (it is not in the"),
    ("xclaim {store} order workers c --ids-from {at}/ids --min-idle 1m", KNOWN),
    ("xack {store} order workers 1-0", f"{UNKNOWN_KEY} (it is not in the table groups); {KNOWN}"),
    ("retire {store} order workers bob --to ann", f"{UNKNOWN_KEY} (it is not in the"),
    ("retire {store} orders workers bbo --to ann", "orders / workers has no consumer bbo;"),
    ("retire {store} orders workers 'bbo*' --to bob", "workers has no consumer matching bbo*;"),
    ("retire {store} orders workers '[b' --to bob", "a [ is not closed in the glob '[b'"),
    ("retire {store} orders workers 'a*' --to bob --idle 5", "'5' has no unit"),
    ("reset-cursor {store} nightly", "has no cursor nightly; the store has no cursors"),
    ("runs {store} xautoclaim:nigth", "(did you mean xautoclaim:night?)"),
    ("abandon {store} nigth", "has no unfinished run nigth: "),
    # Files.
    (f"{CLAIM} --ids-from {{at}}/none", "{at}/none: no such file"),
    (f"{CLAIM} --ids-from none.txt", "/none.txt: no such file, and no table of this name in the"),
    ("xclaim {store} --requests {at}/none", "{at}/none: no such file"),
    ("xack {store} --requests none", "/none: no such file, and no table of this name in the"),
    (f"{CLAIM} --ids-from {{at}}/bad", "{at}/bad, line 2: 'x' is not a valid stream id"),
    ("xack {store} orders workers --ids-from {at}/bad", "{at}/bad, line 2: 'x' is not a valid"),
    (f"{SWEEP} --policy {{at}}/none", "--policy"),
    ("import {store} --entries ./e --pending ./p --map {at}/map", "[pendng]"),
]


@pytest.fixture
def where(store, claimlib, monkeypatch):
    """Fill a store with a group of two owners, and run one sweep on it."""
    owned = tuple(
        PendingEntry(StreamId(n, 0), name, NOW_MS - 90_000, 1)
        for n, name in ((1, b"bob"), (2, b"ann"))
    )
    consumers = (Consumer(b"ann", NOW_MS, None), Consumer(b"bob", NOW_MS, None))
    entries = {entry.id: (b"f", b"v") for entry in owned}
    group = Group(StreamId(9, 0), owned, consumers)
    write_keyspace(store, {b"orders": Stream(entries, {b"workers": group})}, NOW_MS)
    words = ("--consumer", "c", "--min-idle", "1h", "--run-id", "night")
    assert claimlib("xautoclaim", store.where, *words).code == 0

    def starts(*_, **__):
        raise AssertionError("Spark starts")

    monkeypatch.setattr("claimlib.cli.opened_store.session_of", starts)
    return store.where


@pytest.mark.parametrize("engine", ["auto", pytest.param("spark", marks=pytest.mark.long)])
def test_a_typing_error_is_told_before_spark_starts(claimlib, where, tmp_path, engine):
    (tmp_path / "ids").write_text("1-0\n", encoding="utf-8")
    (tmp_path / "bad").write_text("1-0\nx\n", encoding="utf-8")
    (tmp_path / "map").write_text('[pendng]\nstream = "s"\n', encoding="utf-8")
    policy = '[[request]]\nstream = "nothing"\nconsumer = "c"\nmin_idle = "1m"\n'
    (tmp_path / "policy.toml").write_text(policy, encoding="utf-8")
    for line, said in REFUSED:
        words = shlex.split(line.format(store=where, at=tmp_path))
        ended = claimlib(*words, "--engine", engine)
        assert ended.code in {2, 4}, line
        assert ended.out == ""
        (error,) = re.findall("^claimlib: error: .*", ended.err, re.MULTILINE)
        assert said.format(at=tmp_path) in error, line
        assert "starting Spark" not in ended.err
    runs = claimlib("runs", where, "--columns", "run", "--output", "csv")
    assert runs.out == "run_seq\n1\n", "nothing was written"


def test_a_repeated_run_is_shown_also_if_its_group_is_unknown_now(claimlib, store, where):
    claim = ("xclaim", where, "orders", "workers", "c", "1-0", "--min-idle", "1m")
    assert claimlib(*claim, "--run-id", "r").code == 0
    store.writer.delete("groups", Condition("stream", "orders"))
    again = claimlib(*claim, "--run-id", "r")
    assert again.code == 0, again.err
    assert "was already done" in again.err
    assert claimlib(*claim, "--run-id", "s").code == 2


def test_a_table_of_requests_names_no_group_to_look_for(claimlib, where, monkeypatch, tmp_path):
    request = {"request": [1], "stream": ["orders"], "consumer_group": ["workers"]}
    pq.write_table(pa.table({**request, "ids": [["1-0"]]}), tmp_path / "requests.parquet")

    def looks(*_):
        raise AssertionError("the store is looked at")

    monkeypatch.setattr("claimlib.commands.first_look.pinned", looks)
    ended = claimlib("xack", where, "--requests", tmp_path / "requests.parquet")
    assert ended.code == 0, ended.err


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            "xpending absent",
            "or create it with: claimlib init {at}/absent",
        ),
        ("xpending ./sub/../absent", "no store at {at}/absent: "),
        ("xpending link/../absent", "no store at {at}/deep/absent: "),
        ("xpending store --as-of 7", "{at}/store has no finished run 7: claimlib runs {at}/store"),
        ("xpending store --view server", "{at}/store mirrors no server"),
        (
            "xautoclaim store --policy absent.toml",
            "policy file {at}/absent.toml does not exist",
        ),
        ("xautoclaim store --policy bad", "{at}/bad "),
        ("xpending store --config absent.toml", "the config file {at}/absent.toml does not exist"),
        ("xpending store --config bad.toml", "nosuch in {at}/bad.toml: "),
        ("import store --entries ./e --pending ./p --map bad.toml", "{at}/bad.toml, line 1, "),
        ("snapshot redis://127.0.0.1:1 store --password-file absent", "password file {at}/absent "),
        ("snapshot rediss://127.0.0.1:1 store --ca-file absent", "certificate file {at}/absent "),
        ("xack store s g --ids-from absent.txt", "{at}/absent.txt: no such file"),
        ("xack store s g --ids-from bad", "{at}/bad, line 1: "),
    ],
)
def test_paths_in_messages_are_absolute(claimlib, store, monkeypatch, tmp_path, line, shown):
    (tmp_path / "here" / "sub").mkdir(parents=True)
    (tmp_path / "here" / "deep" / "folder").mkdir(parents=True)
    at = tmp_path / "here"
    (at / "link").symlink_to(at / "deep" / "folder")
    (at / "store").symlink_to(store.where)
    (at / "bad").write_text("x\n", encoding="utf-8")
    (at / "bad.toml").write_text("[nosuch]\nnosuch = 1\n", encoding="utf-8")
    monkeypatch.chdir(at)
    ended = claimlib(*shlex.split(line))
    assert ended.code in {2, 4}
    assert shown.format(at=at) in ended.err
