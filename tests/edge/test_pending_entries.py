"""Pending entries, as `claimlib xpending` lists them for people and for programs."""

import csv
import io
import json

import pytest

from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import Consumer, Group, PendingEntry
from claimlib.semantics.words import Stream
from claimlib.testing.tables import write_keyspace

NOW_MS = 1_750_000_000_000
DELIVERED_MS = NOW_MS - 3 * 3_600_000 - 55_000
DELIVERED = "2025-06-15T12:05:45.000Z"


def group_of(*owned):
    """A group whose entries 1-0, 2-0, … have these owners, delivery times and delivery counts."""
    pending = (
        PendingEntry(StreamId(n, 0), name, time_ms, count)
        for n, (name, time_ms, count) in enumerate(owned, 1)
    )
    return Group(StreamId(9, 0), tuple(pending), (Consumer(b"bob", NOW_MS, None),))


@pytest.fixture
def where(store):
    """Groups of two streams: bob owns three of the six entries, and two of five deliveries or more
    are his."""
    orders = group_of((b"bob", DELIVERED_MS, 7), (b"ann", NOW_MS - 5, 1), (b"bob", NOW_MS - 5, 2))
    mails = group_of((b"bob", NOW_MS - 90_000, 5), (b"ann", NOW_MS - 90_000, 9), (None, 5, 1))
    keyspace = {b"orders": Stream({}, {b"g\n": orders}), b"mails": Stream({}, {b"h": mails})}
    write_keyspace(store, keyspace, NOW_MS)
    return store.where


def records(said, output):
    assert (said.code, said.err) == (0, "")
    if output == "jsonl":
        return [json.loads(line) for line in said.out.splitlines()]
    return list(csv.DictReader(io.StringIO(said.out)))


def test_an_entry_for_programs_names_its_stream_its_group_and_when_it_was_delivered(
    claimlib, where
):
    words = ("xpending", where, "orders", r"g\u000a", "--count", "1", "--quiet", "--output")
    (listed,) = json.loads(claimlib(*words, "json").out)["rows"]
    assert listed == {
        "stream": "orders",
        "consumer_group": "g\n",
        "id": "1-0",
        "consumer": "bob",
        "idle_ms": 10_855_000,
        "delivery_time_ms": DELIVERED_MS,
        "delivery_time": DELIVERED,
        "delivery_count": 7,
    }
    for output in ("jsonl", "csv"):
        said = claimlib(*words, output)
        cut = "claimlib: 1 of 3 entries shown; --start '(1-0' shows the next\n"
        assert said.err == cut
        (record,) = records(type(said)(said.code, said.out, ""), output)
        assert record == (listed if output == "jsonl" else {k: str(v) for k, v in listed.items()})


def test_delivery_times_can_be_chosen_for_the_table_as_text_and_as_a_number(claimlib, where):
    words = ("xpending", where, "orders", r"g\u000a", "--count", "9")
    assert "3h0m" in claimlib(*words).out
    chosen = claimlib(*words, "--columns", "id,idle,delivery_time,delivery_time_ms").out
    assert chosen.splitlines()[3].split() == ["1-0", "3h0m", DELIVERED, str(DELIVERED_MS)]
