"""`claimlib entry` as a user types it."""

from __future__ import annotations

import json

import pytest

from claimlib.testing.keyspace_rows import write_keyspace
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


def test_a_known_name_without_events_is_told(claimlib, store):
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    lists = "claimlib describe STORE lists streams, groups and consumers"
    said = claimlib("entry", store.where, "s", "99-0").out
    assert f"no event of this entry: {lists}\n" in said
    said = claimlib("entry", store.where, "--consumer", "dead").out
    assert f"no event of this consumer: {lists}\n" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("strem", "3-0"), "has no stream strem; known groups: s / g"),
        (("s", "3-0", "gg"), "No such key 's' or consumer group 'gg'"),
        (("--consumer", "daed"), "no consumer group has a consumer daed; known consumers: dead"),
        (("strem", "--consumer", "dead"), "has no stream strem; known groups: s / g"),
    ],
)
def test_an_unknown_name_is_refused_with_similar_names(claimlib, store, words, message):
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    said = claimlib("entry", store.where, *words)
    assert (said.code, said.out) == (2, "")
    assert message in said.err


def test_arguments_that_name_no_entry_are_refused(claimlib, store):
    for words in (("s",), ("s", "1-0", "--consumer", "c"), ("s", "x")):
        said = claimlib("entry", store.where, *words)
        assert (said.code, said.out) == (2, "")
