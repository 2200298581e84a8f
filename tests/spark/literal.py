"""A sweep's plan on literal frames: what a run decides, without its files and its protocol.

The frames are what a store's tables hold: `schema` says their columns, generated ones included.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from claimlib import schema
from claimlib.commands import sweep_decision
from claimlib.engine.embedded import EmbeddedEngine
from claimlib.engine.relation import Record, Relation, Rows
from claimlib.engine.spark import SparkEngine
from claimlib.local_rows import arrow_table
from claimlib.runs import Begun
from claimlib.schema import TABLES
from claimlib.semantics.ids import END_OF_SCAN, StreamId, from_bigint
from claimlib.semantics.model import Consumer, Group, Guards, PendingEntry
from claimlib.semantics.names import unspell
from claimlib.store.tables import Pins, Store
from claimlib.store.writer import completed_rows
from claimlib.testing.keyspace_rows import request_table, write_keyspace
from tests.batches import Batch, Case, Names, batch_of, simpler, size
from tests.shrinking import Difference, assert_same

Ids = tuple[StreamId, ...]
Swept = tuple[Group, Ids, Ids, StreamId]
"""A group afterwards, what was claimed, what was deleted, the cursor."""


class LiteralStore(Store):
    """A store whose tables are rows in memory; it takes appends, and it has one version."""

    def __init__(self, spark: SparkSession, engine: str = "spark") -> None:
        # No details: there are no files.
        self.spark = spark
        self.engine = EmbeddedEngine() if engine == "embedded" else SparkEngine(spark, self)
        self.is_embedded = engine == "embedded"
        self.buckets = schema.DEFAULT_BUCKETS
        self._buckets_of = {}
        self._tables = {
            name: arrow_table([], table.arrow_schema([c.name for c in table.written]))
            for name, table in TABLES.items()
        }
        self._tables = {
            name: self._completed_rows(name, rows) for name, rows in self._tables.items()
        }

    def _completed_rows(self, table: str, rows: pa.Table) -> pa.Table:
        inside = Relation(EmbeddedEngine(), Rows(rows))
        return completed_rows(TABLES[table], inside, self.buckets).arrow()

    def version(self, table: str) -> int:
        del table
        return 0

    @property
    def writer(self) -> LiteralStore:
        """What takes appends."""
        return self

    def append(self, table: str, rows: Relation, **how: object) -> None:
        del how
        arrow = rows.arrow()
        self._tables[table] = self._completed_rows(table, arrow)

    def relation(self, table: str, version: int | None = None) -> Relation:
        del version
        return Relation(self.engine, Rows(self._tables[table]))


def with_values(rows: Relation, **values: str) -> Relation:
    """Rows with other values in some columns, or with further columns: each value is SQL."""
    columns = {name: name for name in rows.columns} | values
    return rows.select(*(f"{value} AS {name}" for name, value in columns.items()))


def literal_store(spark: SparkSession, batch: Batch, engine: str = "spark") -> LiteralStore:
    """A store that holds a batch."""
    store = LiteralStore(spark, engine)
    write_keyspace(store, batch.keyspace, batch.instants)
    return store


def decide(store: LiteralStore, batch: Batch) -> list[Record]:
    """The journal rows of a sweep over a batch."""
    begun = Begun(store, 1, Pins(versions=dict.fromkeys(TABLES, 0), table_ids={}))
    requests = request_table(store.engine, batch.requests)
    return sweep_decision.decide(begun, requests, None, refuse_duplicates=False).rows.collect()


def differences(batch: Batch, rows: Iterable[Record]) -> list[Difference[Case]]:
    """Where the journal rows of a sweep say something else than the reference; empty: nowhere."""
    by_group = rows_by_group(rows)
    assert by_group.keys() <= batch.requests.keys(), "nobody asked"
    compared = [
        Difference(case, _as_swept(case), said_by(_swept, case, by_group[names]))
        for names, case in batch.cases().items()
    ]
    return [difference for difference in compared if difference.expected != difference.actual]


def assert_swept_as_the_reference(spark: SparkSession, batch: Batch) -> None:
    """Fail, with the smallest example to be had, where a sweep over a batch decides something else
    than the reference."""
    differing = differences(batch, decide(literal_store(spark, batch), batch))
    assert_same(differing, simpler, size, partial(swept_differences, spark))


def swept_differences(spark: SparkSession, cases: Sequence[Case]) -> list[Difference[Case]]:
    """Of some groups those of which a sweep says something else than the reference."""
    batch = batch_of(cases)
    return differences(batch, decide(literal_store(spark, batch), batch))


def rows_by_group(rows: Iterable[Record]) -> dict[Names, list[Record]]:
    by_group: dict[Names, list[Record]] = defaultdict(list)
    for row in rows:
        by_group[unspell(row["stream"]), unspell(row["consumer_group"])].append(row)
    return by_group


def said_by(read: Callable[[Case, list[Record]], object], case: Any, rows: list[Record]) -> object:
    """What journal rows say of a group; of rows that cannot be right the rows themselves."""
    try:
        return read(case, rows)
    except (AssertionError, KeyError, ValueError) as error:
        known = [{k: v for k, v in row.items() if v is not None} for row in rows]
        return f"rows that cannot be right ({error!r}): {known}"


def _as_swept(case: Case) -> Swept:
    group, reply = case.expected()
    return group, reply.claimed, reply.deleted, reply.cursor


def _swept(case: Case, rows: list[Record]) -> Swept:
    """A group with its journal rows applied to it; the rows must say what they found."""
    kinds: dict[str, list[Record]] = defaultdict(list)
    for row in rows:
        kinds[row["kind"]].append(row)
    if case.refusal is not None:
        assert [(row["kind"], row["reason"]) for row in rows] == [("refused", case.refusal)]
        return case.group, (), (), END_OF_SCAN
    assert [row["reason"] for row in kinds["refused"]] == []
    _check_swept(case, kinds["swept"])
    pending = {entry.id: entry for entry in case.group.pending}
    for row in kinds["deleted"]:
        assert pending.pop(_id(row)) == _before(row)
    for row in kinds["claimed"]:
        assert pending[_id(row)] == _before(row)
        pending[_id(row)] = _claimed(row)
    group = replace(
        case.group,
        pending=tuple(pending[stream_id] for stream_id in sorted(pending)),
        consumers=_seen(case.group.consumers, kinds["consumer"] + kinds["claimed"]),
    )
    _check_before(case, kinds.pop("consumer_before", []))
    assert set(kinds) <= {"swept", "refused", "claimed", "deleted", "consumer", "cursor"}
    cursor = END_OF_SCAN
    if case.request.count is not None:
        (row,) = kinds["cursor"]
        cursor = StreamId(from_bigint(row["next_ms"]), from_bigint(row["next_seq"]))
    return group, _ids(kinds["claimed"]), _ids(kinds["deleted"]), cursor


def _check_before(case: Case, rows: list[Record]) -> None:
    """The consumers that the request may change stand there as they were."""
    changeable = {case.request.consumer, case.request.guards.parking_consumer}
    before = {
        (unspell(row["consumer"]), row["seen_time_ms"], row["active_time_ms"]) for row in rows
    }
    assert len(before) == len(rows)
    assert before == {
        (consumer.name, consumer.seen_time_ms, consumer.active_time_ms)
        for consumer in case.group.consumers
        if consumer.name in changeable
    }


def _check_swept(case: Case, rows: list[Record]) -> None:
    """The one row about the group itself says what stood there, and at which instant."""
    (row,) = rows
    min_idle_ms, pending = case.request.min_idle_ms, case.group.pending
    equal = [
        entry
        for entry in case.examined
        if case.now_ms - entry.delivery_time_ms == min_idle_ms and min_idle_ms > 0
    ]
    assert (row["at_ms"], row["reason"]) == (case.now_ms, None)
    did = Counter(branch.split(",")[0] for branch in case.branches_of_guards())
    weighed = case.request.guards != Guards()
    expected = (did["spared"], did["parked"]) if weighed else (None, None)
    assert (row["spared"], row["parked"]) == expected
    if case.request.count is not None:
        assert row["pending_before"] is row["at_boundary"] is None
        assert row["oldest_delivery_time_ms"] is row["highest_delivery_count"] is None
        return
    assert (row["pending_before"], row["at_boundary"]) == (len(pending), len(equal))
    oldest = min((entry.delivery_time_ms for entry in pending), default=None)
    highest = max((entry.delivery_count for entry in pending), default=None)
    assert (row["oldest_delivery_time_ms"], row["highest_delivery_count"]) == (oldest, highest)


def _seen(consumers: tuple[Consumer, ...], rows: list[Record]) -> tuple[Consumer, ...]:
    """The consumers after the journal's rows: seen, and active where they say so."""
    known: Mapping[bytes, Consumer] = {consumer.name: consumer for consumer in consumers}
    after = dict(known)
    for row in rows:
        name = unspell(row["consumer"])
        before = after.get(name, Consumer(name, row["seen_time_ms"], None))
        active_time_ms = row["active_time_ms"]
        if active_time_ms is None:
            active_time_ms = before.active_time_ms
        after[name] = Consumer(name, row["seen_time_ms"], active_time_ms)
    return tuple(after[name] for name in sorted(after))


def _ids(rows: list[Record]) -> Ids:
    return tuple(sorted(map(_id, rows)))


def _id(row: Record) -> StreamId:
    return StreamId(from_bigint(row["id_ms"]), from_bigint(row["id_seq"]))


def _before(row: Record) -> PendingEntry:
    return PendingEntry(
        _id(row),
        _name(row["from_consumer"]),
        row["from_delivery_time_ms"],
        row["from_delivery_count"],
    )


def _claimed(row: Record) -> PendingEntry:
    return PendingEntry(
        _id(row), _name(row["consumer"]), row["delivery_time_ms"], row["delivery_count"]
    )


def _name(spelled: str | None) -> bytes | None:
    return None if spelled is None else unspell(spelled)
