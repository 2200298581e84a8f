"""What a store holds twice, because a pipeline appended it twice: a run refuses it before anything
is decided, or takes it for one and comes to its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from claimlib.commands.imports import import_tables
from claimlib.commands.reset_cursor import reset_cursor
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.commands.xpending import pending_overview, pending_summary, read_store
from claimlib.errors import StoreExistsError
from claimlib.plans.differences import Scope
from claimlib.schema import TABLES
from claimlib.semantics.ids import MAX_U64, MIN_ID, StreamId
from claimlib.semantics.model import (
    AutoclaimRequest,
    Consumer,
    Group,
    Guards,
    PendingEntry,
    RemovalLimits,
)
from claimlib.semantics.words import Stream
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import read_groups, write_keyspace
from tests.delta.gathered import Gathered
from tests.delta.given_files import entries, pending, request
from tests.delta.pels import NOW_MS, REQUEST, keyspace
from tests.delta.reading import query
from tests.limits import set_limits
from tests.writing import append_rows

MINUTE_MS = 60_000
LEAST_MS = -(2**63)
ANY = RemovalLimits(max_removed_share=1)


def append(store: Store, table: str, *rows: Sequence[object]) -> None:
    names = [column.name for column in TABLES[table].written]
    append_rows(store, table, store.rows(table, [tuple(row) for row in rows], names))


def consumer(name: str, seen_ms: int) -> tuple[object, ...]:
    return ("s", "g", name, seen_ms, None, 0)


def seen(store: Store) -> list[tuple[object, ...]]:
    rows = query(store.where, "consumers", "SELECT consumer, seen_time_ms FROM t")
    return sorted(tuple(row.values()) for row in rows)


@pytest.mark.long
@pytest.mark.parametrize("reader", ["delta-rs", "Spark", "Spark, of many rows"])
def test_a_keyspace_is_not_written_to_a_store_that_has_one_of_its_streams(
    store_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    if reader != "delta-rs":
        monkeypatch.setattr("claimlib.store.definitions.shared_folder", lambda *_: None)
    if reader == "Spark, of many rows":
        set_limits(monkeypatch, session_rows=0)
    store = Store.open(spark, str(store_path))
    write_keyspace(store, keyspace(b"a", b"s\xff"), NOW_MS)
    write_keyspace(store, keyspace(b"b"), NOW_MS)
    before = store.pin().versions
    with pytest.raises(StoreExistsError, match=r"has the stream s\\xff already.*give a new store"):
        write_keyspace(store, keyspace(b"c", b"s\xff"), NOW_MS)
    assert store.pin().versions == before


def test_guards_take_a_consumer_with_two_rows_for_one_and_a_negative_time_for_none(
    store: Store,
) -> None:
    owners = [b"bob"] * 4 + [b"carl"] * 4 + [b"dora"] * 4
    ids = [StreamId(n, 0) for n in range(1, 13)]
    pel = tuple(
        PendingEntry(*pair, NOW_MS - MINUTE_MS, 1) for pair in zip(ids, owners, strict=True)
    )
    stream = Stream(dict.fromkeys(ids, ()), {b"g": Group(MIN_ID, pel, ())})
    write_keyspace(store, {b"s": stream}, NOW_MS)
    for idle_ms in (MINUTE_MS, 10):
        append(store, "consumers", consumer("bob", NOW_MS - idle_ms))
        append(store, "consumers", consumer("carl", NOW_MS - MINUTE_MS - idle_ms))
    append(store, "consumers", consumer("dora", LEAST_MS))
    guards = Guards(only_consumers_idle_ms=1000, max_deleted_share=0)
    page = AutoclaimRequest(b"alice", 1000, StreamId(1, 0), count=5, guards=guards)
    reply = xautoclaim(store, SweepRequest(page))
    assert (reply.counts["claimed"], reply.counts["spared"]) == (4, 8)
    assert sorted(row["id"] for row in reply.claimed.collect()) == ["5-0", "6-0", "7-0", "8-0"]


def test_a_caller_with_two_rows_is_seen_in_both(store: Store) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    append(store, "consumers", consumer("alice", 1), consumer("alice", 2))
    assert xautoclaim(store, SweepRequest(REQUEST)).counts["claimed"] == 5
    assert seen(store)[:2] == [("alice", NOW_MS)] * 2


def test_a_page_is_not_looked_for_between_two_ranges_of_one_stream(store: Store) -> None:
    ids = [StreamId(MAX_U64 - 100, 0), *(StreamId(MAX_U64, n) for n in range(1, 50))]
    pel = tuple(PendingEntry(stream_id, b"bob", 0, 1) for stream_id in ids)
    write_keyspace(store, {b"s": Stream({}, {b"g": Group(MIN_ID, pel, ())})}, NOW_MS)
    append(store, "streams", ("s", None, None, None, -101, 0, -1, -1, None, None, None, 0))
    before = read_groups(store)
    reply = xautoclaim(store, SweepRequest(AutoclaimRequest(b"alice", 0, count=1)))
    (group,) = reply.groups.collect()
    assert group["reason"].startswith("duplicate key in streams")
    assert read_groups(store) == before


def test_a_cursor_that_stands_there_twice_is_set_in_both_rows_and_no_row_is_added(
    each_store: Store,
) -> None:
    write_keyspace(each_store, keyspace(b"s"), NOW_MS)
    names = [column.name for column in TABLES["cursors"].written]
    cursor = {"name": "c", "stream": "s", "consumer_group": "g", "next_ms": 2, "next_seq": 0}
    row = [cursor.get(name, 0) for name in names]
    append(each_store, "cursors", row, row)
    for ms in (3, 4):
        reset_cursor(each_store, "c", Scope("*", "*"), to=StreamId(ms, 0))
        rows = query(each_store.where, "cursors", "SELECT next_ms FROM t")
        assert [row["next_ms"] for row in rows] == [ms, ms]


def test_a_group_that_stands_there_twice_has_each_entry_once(store: Store) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    before = pending_overview(read_store(store)).collect()
    append_rows(store, "groups", store.relation("groups"))
    assert pending_overview(read_store(store)).collect() == before
    assert pending_summary(read_store(store), b"s", b"g").number == before[0]["pending"]


def test_an_import_over_a_key_that_the_store_holds_twice_each_time_otherwise_comes_to_its_end(
    store: Store, tmp_path: Path
) -> None:
    def imported(folder: str, stream_id: str, fields: object) -> Mapping[str, int]:
        tables = {
            "entries": entries([(b"s", stream_id, fields)]),
            "pending": pending([(b"s", b"g", stream_id, b"new", 5, 1)]),
        }
        import_request = request(tmp_path / folder, tables, entries_complete=True, limits=ANY)
        return import_tables(store, import_request).counts

    imported("first", "1-0", None)
    for owner, fields in (("bob", None), ("carol", [(b"f", b"v")]), (None, [(b"f", b"w")])):
        append(store, "pending", *(("s", "g", n, 0, owner, 7, n, 0) for n in (2, 3)))
        append(store, "entries", *(("s", n, 0, fields, 0) for n in (2, 3)))
    counts = imported("second", "2-0", [(b"f", b"new")])
    assert (counts["pending_replaced"], counts["pending_removed"]) == (3, 4)
    assert (counts["entry_filled"], counts["entry_removed"]) == (3, 4)
    rows = query(store.where, "pending", "SELECT DISTINCT id_ms, consumer FROM t")
    assert rows == [{"id_ms": 2, "consumer": "new"}]
    ids = query(store.where, "entries", "SELECT id_ms FROM t")
    assert ids == [{"id_ms": 2}] * 3


def test_an_import_over_repeated_rows_comes_to_its_end(each_store: Store, tmp_path: Path) -> None:
    kept, gone = (PendingEntry(StreamId(n, 0), b"bob", 5, 1) for n in (1, 2))
    group = Group(MIN_ID, (kept, gone), (Consumer(b"bob", 5, None),))
    stream = Stream({kept.id: (), gone.id: ()}, {b"g": group})
    twice = Gathered()
    for instant in (NOW_MS, NOW_MS + 1):
        write_keyspace(twice, {b"s": stream, b"t": stream}, instant)
    twice.write(each_store)
    append(each_store, "consumers", consumer("bob", 7))
    tables = {
        "entries": entries([(b"s", "1-0", None)]),
        "pending": pending([(b"s", b"g", "1-0", b"new", 5, 1)]),
    }
    reply = import_tables(
        each_store, request(tmp_path, tables, entries_complete=True, limits=ANY), run_id="i"
    )
    assert (reply.counts["pending_read"], reply.counts["pending_extra"]) == (1, 1)
    assert seen(each_store) == [("bob", 7)] * 3
    for table in ("entries", "pending", "groups", "streams"):
        rows = query(each_store.where, table, "SELECT DISTINCT stream, run_seq > 0 AS new FROM t")
        assert [tuple(row.values()) for row in rows] == [("s", table != "entries")], table
    ids = query(each_store.where, "entries", "SELECT DISTINCT id_ms FROM t")
    assert ids == [{"id_ms": 1}]


def test_a_group_with_two_rows_of_an_entry_is_refused_alone_in_spark_too(
    spark_store: Store,
) -> None:
    write_keyspace(spark_store, keyspace(b"s", b"t"), NOW_MS)
    twice = spark_store.relation("pending").where("stream = 's' AND id_ms = 3")
    append_rows(spark_store, "pending", twice)
    reply = xautoclaim(spark_store, SweepRequest(AutoclaimRequest(b"alice", 0)))
    reasons = {row["stream"]: row["reason"] for row in reply.groups.collect()}
    assert "more than once in pending: 1, the first is 3-0" in reasons["s"]
    assert reasons["t"] is None
    assert reply.counts["claimed"] > 0
