"""`claimlib entry` as a user types it."""

from __future__ import annotations

import json

import pytest

from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.runs import Phase
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import AutoclaimRequest
from claimlib.semantics.words import Stream
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.own_rows import append
from tests.delta.pels import NOW_MS, keyspace


def test_an_entry_is_shown_with_its_events_and_its_state(claimlib, store):
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    where = store.where
    sweep = ("xautoclaim", where, "--consumer", "alice", "--min-idle", "1s", "--run-id", "r")
    assert claimlib(*sweep).code == 0

    said = claimlib("entry", where, "s", "3-0")
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[0] == "Entry 3-0 of s"
    assert lines[-2].startswith("now pending in g: consumer alice, since 2025-06-15T")
    assert lines[-2].endswith("deliveries 2")
    assert lines[-1] == "payload: field=3"
    assert any("claimed" in line and "xautoclaim:r" in line and "dead" in line for line in lines)

    read = json.loads(claimlib("entry", where, "s", "3-0", "g", "--output", "json").out)
    assert read["fields"] == [["field", "3"]]
    (event,) = read["events"]
    assert (event["event"], event["from_consumer"], event["consumer"]) == (
        "claimed",
        "dead",
        "alice",
    )
    assert json.loads(event["request"])["min_idle_ms"] == 1000
    gone = claimlib("entry", where, "s", "4-0").out
    assert "now not pending\nno payload: the store does not have this stream entry\n" in gone


def test_a_consumer_is_shown_with_what_it_lost_and_received(claimlib, store):
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    where = store.where
    assert claimlib("xautoclaim", where, "--consumer", "alice", "--min-idle", "1s").code == 0
    said = claimlib("entry", where, "--consumer", "dead", "--limit", "2")
    assert said.code == 0
    assert said.out.startswith("Consumer dead\n")
    assert "6 lost, 0 received by runs of this store\n" in said.out
    assert "4 more entries not shown; use --limit to show more\n" in said.out
    assert (
        len(claimlib("entry", where, "--consumer", "alice", "--output", "csv").out.splitlines())
        == 6
    )


def test_a_known_name_without_events_gets_a_note(claimlib, store):
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    said = claimlib("entry", store.where, "s", "99-0").out
    assert "no event of this entry: no finished run changed it, and no snapshot" in said
    said = claimlib("entry", store.where, "--consumer", "dead").out
    assert (
        "no event of this consumer: no finished run took an entry from it, or gave one to it"
        in said
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("orders:ue", "3-0"), "has no stream orders:ue; known streams: orders:eu and 11 more"),
        (("orders:eu", "3-0", "gg"), "NOGROUP No such key 'orders:eu' or consumer group 'gg'"),
        (("--consumer", "daed"), "no consumer group has a consumer daed; known consumers: dead"),
        (("lonley", "--consumer", "dead"), "has no stream lonley; known streams: lonely and 11 mo"),
    ],
)
def test_an_unknown_name_is_refused_with_similar_names(claimlib, store, words, message):
    streams = keyspace(b"orders:eu", *(b"%c" % (97 + n) for n in range(10)))
    write_keyspace(
        store, {**streams, b"lonely": Stream({StreamId(1, 0): (b"f", b"v")}, {})}, NOW_MS
    )
    said = claimlib("entry", store.where, *words)
    assert (said.code, said.out) == (2, "")
    assert message in said.err


def test_a_name_that_only_one_table_has_is_known(claimlib, store):
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    id_ = {"id_ms": 1, "id_seq": 0, "run_seq": 0}
    state = {"consumer_group": "g", "delivery_time_ms": 0, "delivery_count": 1, "consumer": "zed"}
    append(store, "pending", {**id_, **state, "stream": "only-pending"})
    append(store, "entries", {**id_, "stream": "only-entry"})
    for words in (
        ("only-pending", "99-0"),
        ("only-pending", "99-0", "g"),
        ("only-pending", "--consumer", "zed"),
        ("only-entry", "99-0"),
    ):
        assert claimlib("entry", store.where, *words).code == 0, words


def test_an_unknown_name_is_accepted_while_a_run_is_unfinished(claimlib, store):
    write_keyspace(store, keyspace(b"s"), NOW_MS)

    def stop(phase, detail):
        if phase == Phase.APPLY:
            raise InterruptedError(detail)

    with pytest.raises(InterruptedError):
        xautoclaim(store, SweepRequest(AutoclaimRequest(b"c", 1)), run_id="r", progress=stop)
    assert claimlib("entry", store.where, "new", "99-0").code == 0


def test_arguments_that_name_no_entry_are_refused(claimlib, store):
    for words in (("s",), ("s", "1-0", "--consumer", "c"), ("s", "x")):
        said = claimlib("entry", store.where, *words)
        assert (said.code, said.out) == (2, "")
