"""XPENDING on both engines shows of random groups what the reference shows, and an overview of
all."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from claimlib.commands.xpending import (
    Reading,
    matching_entries,
    pending_entries,
    pending_overview,
    pending_range,
    pending_summary,
    with_payloads,
)
from claimlib.engine.relation import Relation
from claimlib.plans.differences import EVERYTHING
from claimlib.plans.keys import ID_ORDER, is_group
from claimlib.report.xpending_report import report_of_range
from claimlib.schema import TABLES
from claimlib.semantics import scan
from claimlib.semantics.ids import MAX_ID, MIN_ID, StreamId, from_bigint, parse_range_start
from claimlib.semantics.model import MAX_I64, PendingRange
from claimlib.semantics.names import spell, unspell
from tests.batches import NOW_MS, OTHER, Batch, random_batch
from tests.limits import set_limits
from tests.spark.literal import literal_store

STALLED_MS = 60_000
MIDDLE = StreamId(2**63, 0)
QUERIES = [
    PendingRange(MIN_ID, MAX_ID, 100),
    PendingRange(MIN_ID, MAX_ID, 2),
    PendingRange(MIN_ID, MAX_ID, 0),
    PendingRange(MIN_ID, MAX_ID, -1),
    PendingRange(MIN_ID, MAX_ID, MAX_I64),
    PendingRange(StreamId(5, 4), MIDDLE, 100),
    PendingRange(MIDDLE, MAX_ID, 100),
    PendingRange(MIDDLE, MIN_ID, 100),
    PendingRange(MIN_ID, MAX_ID, 100, min_idle_ms=STALLED_MS),
    PendingRange(MIN_ID, MAX_ID, 100, min_idle_ms=-1),
    PendingRange(MIN_ID, MAX_ID, 100, consumer=OTHER),
    PendingRange(MIN_ID, StreamId(NOW_MS, 0), 3, 1, OTHER),
]


@pytest.fixture(scope="module")
def batch() -> Batch:
    """Nothing is random: by seed 1 the 40 groups are always the same."""
    return random_batch(40, seed=1)


@pytest.fixture(scope="module", params=["spark", "embedded"])
def at(request, spark, batch) -> Reading:
    store = literal_store(spark, batch, engine=request.param)
    return Reading(store, dict.fromkeys(TABLES, 0), last_seq=0)


def test_the_overview_counts_what_stands_in_each_group(at, batch):
    rows = pending_overview(at, stalled_ms=STALLED_MS).collect()
    by_group = {(unspell(row["stream"]), unspell(row["consumer_group"])): row for row in rows}
    cases = batch.cases()
    assert by_group.keys() == cases.keys()
    for names, case in cases.items():
        pending, known = (
            case.group.pending,
            {consumer.name: consumer for consumer in case.group.consumers},
        )
        idles = [case.now_ms - entry.delivery_time_ms for entry in pending]
        owners = Counter(entry.consumer for entry in pending if entry.consumer is not None)
        last = {name: known[name].active_time_ms or known[name].seen_time_ms for name in known}
        knowns = [name for name in owners if name in known]
        dead = [name for name in knowns if case.now_ms - last[name] >= STALLED_MS]
        assert by_group[names] | {"stream": None, "consumer_group": None} == {
            "stream": None,
            "consumer_group": None,
            "is_known": True,
            "snapshot_ms": case.now_ms,
            "now_ms": case.now_ms,
            "pending": len(pending),
            "stalled": sum(idle >= STALLED_MS for idle in idles),
            "oldest_idle_ms": max(idles, default=None),
            "oldest_delivery_time_ms": min(
                (entry.delivery_time_ms for entry in pending), default=None
            ),
            "highest_delivery_count": max(
                (entry.delivery_count for entry in pending), default=None
            ),
            "delivered_5_plus": sum(entry.delivery_count >= 5 for entry in pending),
            "delivered_10_plus": sum(entry.delivery_count >= 10 for entry in pending),
            "owners": len(owners),
            # Whether owners are dead that nobody knows cannot be told.
            "idle_owners": len(dead) if knowns or not owners else None,
            "unknown_owners": len(owners) - len(knowns),
            "changed_by_runs": None,  # the store mirrors no server
        }
    assert sum(row["stalled"] for row in rows) > 20
    assert sum(row["idle_owners"] or 0 for row in rows) > 5
    assert sum(row["unknown_owners"] for row in rows) > 5


def test_a_group_is_shown_as_the_reference_shows_it(at, batch):
    shown = 0
    for number, ((stream, group), case) in enumerate(batch.cases().items()):
        if number < 3:
            assert pending_summary(at, stream, group) == scan.xpending_summary(case.group)
        if number >= len(QUERIES):
            break
        query = QUERIES[number]
        expected = scan.xpending_range(case.group, query, case.now_ms)
        rows = pending_range(at, stream, group, query).collect()
        assert [_row(row) for row in rows] == [_row_of(entry, case.now_ms) for entry in expected]
        shown += len(rows)
    assert shown > 20


def test_what_is_printed_of_a_group_is_bounded_and_goes_on_behind_its_last_entry(at, batch):
    """A count of millions brings no more rows to the driver than are printed."""
    (stream, group), case = max(
        batch.cases().items(), key=lambda item: (len(item[1].group.pending), item[0])
    )
    everything = len(case.group.pending)
    expected = scan.xpending_range(case.group, QUERIES[4], case.now_ms)
    assert everything > 5
    query, seen = QUERIES[4], []
    while True:
        page = report_of_range(
            stream, group, matching_entries(at, stream, group, query), everything // 2
        )
        document = page.document
        seen += [row["id"] for row in document["rows"]]
        assert document["rows_not_shown"] == everything - len(seen)
        if document["next_start"] is None:
            break
        assert len(document["rows"]) == everything // 2
        query = replace(query, start=parse_range_start(document["next_start"]))
    assert seen == [str(entry.id) for entry in expected]
    matching = matching_entries(at, stream, group, replace(query, start=MIN_ID, count=0))
    assert matching.total == everything
    streamed = report_of_range(stream, group, matching, 2**31)
    assert [row["id"] for row in streamed.records] == seen
    assert (streamed.document["rows_not_shown"], streamed.document["next_start"]) == (0, None)


def test_a_streamed_part_of_a_group_says_where_the_next_one_begins(at, batch, monkeypatch):
    (stream, group), case = max(
        batch.cases().items(), key=lambda item: (len(item[1].group.pending), item[0])
    )
    monkeypatch.setattr("claimlib.report.rows.MOST_ROWS", 2)
    set_limits(monkeypatch, stream_rows=1)
    matching = matching_entries(at, stream, group, QUERIES[4])
    page = report_of_range(stream, group, matching, 3)
    shown = [row["id"] for row in page.records]
    expected = scan.xpending_range(case.group, QUERIES[4], case.now_ms)
    assert shown == [str(entry.id) for entry in expected[:3]]
    assert page.rows == ()
    assert page.document["next_start"] == f"({shown[-1]}"
    assert page.document["rows_not_shown"] == matching.total - 3 > 0


def test_entries_of_all_groups_are_those_that_the_reference_shows_of_each(at, batch):
    query = PendingRange(MIN_ID, MAX_ID, MAX_I64, min_idle_ms=STALLED_MS)
    expected = [
        (spell(stream), spell(group), *_row_of(entry, case.now_ms))
        for (stream, group), case in batch.cases().items()
        for entry in scan.xpending_range(case.group, query, case.now_ms)
        if entry.delivery_count >= 2
    ]
    entries = pending_entries(at, EVERYTHING, query, min_deliveries=2)
    rows = entries.rows.order_by(*entries.order).collect()
    shown = [(row["stream"], row["consumer_group"], *_row(row)) for row in rows]
    assert sorted(map(str, shown)) == sorted(map(str, expected))
    assert (entries.total, entries.groups) == (len(rows), len({row[:2] for row in expected}))
    assert entries.total > entries.groups > 5
    worst = [(-row["delivery_count"], -row["idle_ms"]) for row in rows]
    assert worst == sorted(worst)


def test_payloads_are_read_of_the_first_entries_alone_and_cut_by_the_engine(at, batch):
    streams = batch.keyspace
    states = set()
    for (stream, group), case in batch.cases().items():
        expected = scan.xpending_range(case.group, replace(QUERIES[4], count=3), case.now_ms)
        matching = matching_entries(at, stream, group, QUERIES[4])
        rows = with_payloads(at, matching, 3, 2).rows.order_by(*ID_ORDER).collect()
        assert [_row(row) for row in rows] == [_row_of(entry, case.now_ms) for entry in expected]
        for entry, row in zip(expected, rows, strict=True):
            fields = streams[stream].entries.get(entry.id)
            states.add(row["payload"])
            assert row["payload"] == ("gone" if fields is None else "present")
            cut = [(bytes(field["name"]), bytes(field["value"])) for field in row["fields"] or ()]
            assert cut == [(n[:2], v[:2]) for n, v in batched_pairs(fields or ())]
            assert row["payload_bytes"] == (None if fields is None else sum(map(len, fields)))
        if len(states) == 2 and len(rows) == 3:
            break
    assert states == {"gone", "present"}


def batched_pairs(fields):
    return zip(fields[::2], fields[1::2], strict=True)


def _row(row):
    owner = None if row["consumer"] is None else unspell(row["consumer"])
    stream_id = StreamId(from_bigint(row["id_ms"]), from_bigint(row["id_seq"]))
    return stream_id, owner, row["idle_ms"], row["delivery_count"]


def _row_of(entry, now_ms):
    idle_ms = max(0, now_ms - entry.delivery_time_ms)
    return entry.id, entry.consumer, idle_ms, entry.delivery_count


def test_what_is_not_known_is_not_0(at, batch):
    """Without an instant nobody knows how long; with one of `--now`, all do."""
    groups = with_null(at.read("groups"), "snapshot_ms", "BIGINT")
    lacking = at.with_tables(groups=groups)
    full = [row for row in pending_overview(lacking).collect() if row["pending"]]
    assert {(row["now_ms"], row["stalled"], row["oldest_idle_ms"]) for row in full} == {(None,) * 3}
    # Entries without an owner, which some groups have besides, say nothing of owners.
    assert {row["idle_owners"] for row in full if row["owners"]} == {None}
    nobody = with_null(at.read("pending"), "consumer", "STRING")
    unowned = pending_overview(at.with_tables(groups=groups, pending=nobody)).collect()
    assert {(row["owners"], row["idle_owners"]) for row in unowned} == {(0, 0)}
    empty = [row for row in pending_overview(lacking).collect() if not row["pending"]]
    assert {(row["stalled"], row["idle_owners"]) for row in empty} <= {(0, 0)}
    given_now = pending_overview(lacking, now_ms=MAX_I64).collect()
    assert {row["now_ms"] for row in given_now} == {MAX_I64}
    assert all(row["stalled"] is not None for row in given_now)
    (stream, group), _ = next(item for item in batch.cases().items() if item[1].group.pending)
    rows = pending_range(lacking, stream, group, QUERIES[0]).collect()
    assert {row["idle_ms"] for row in rows} == {None}


def test_a_group_that_only_pending_knows_is_shown_as_unknown(at, batch):
    (stream, group), _ = next(item for item in batch.cases().items() if item[1].group.pending)
    others = at.read("groups").where(f"NOT ({is_group(spell(stream), spell(group))})")
    lacking = at.with_tables(groups=others)
    unknown = pending_overview(lacking).where("NOT is_known").collect()
    assert [(row["stream"], row["consumer_group"], row["now_ms"]) for row in unknown] == [
        (spell(stream), spell(group), None)
    ]


def with_null(rows: Relation, column: str, type_: str) -> Relation:
    """Return the rows with null in a column."""
    others = (name for name in rows.columns if name != column)
    return rows.select(*others, f"CAST(NULL AS {type_}) AS {column}")
