"""Check the plans of the series of snapshots on literal rows, and the sample on real snapshots."""

from __future__ import annotations

import math
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from claimlib.commands.advise import COUNTS, advise
from claimlib.commands.report_period import period_report
from claimlib.commands.series import claims_by_min_idle, compare_min_idles, pending_over_time
from claimlib.commands.snapshot import SnapshotRequest, snapshot
from claimlib.demo.demo_series import instants, keyspace_at, write_series
from claimlib.engine.embedded import EmbeddedEngine
from claimlib.engine.relation import Relation, Rows
from claimlib.engine.spark import frame_of
from claimlib.errors import RequestError
from claimlib.live.batches import (
    Batch,
    ConsumerRow,
    Counts,
    EntryPage,
    EntryRow,
    GroupDone,
    PendingPage,
    PendingRow,
    SourceDone,
    SourceOpened,
    StreamDone,
)
from claimlib.local_rows import arrow_table
from claimlib.plans.differences import Scope
from claimlib.plans.keys import GROUP
from claimlib.plans.snapshots import (
    OUTCOMES,
    acknowledged,
    choices,
    choices_by_group,
    claiming_readings,
    claims,
    deletions,
    moves,
    over_time,
    readings,
)
from claimlib.plans.xpending_plan import idle_entries
from claimlib.report.advise_report import sections, verdict
from claimlib.runs.rollforward import ABANDONED
from claimlib.schema import TABLES, Kind
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import PendingEntry, RemovalLimits
from claimlib.semantics.words import Keyspace
from claimlib.store.tables import Store
from tests.delta.own_rows import Opener

MINUTE = 60_000
HOUR = 60 * MINUTE
NOW_MS = 1_767_268_800_000
PEL = [
    *("landing", "stream", "consumer_group", "id_ms", "id_seq"),
    *("consumer", "delivery_time_ms", "delivery_count"),
]
READ = ["run_seq", "kind", "stream", "consumer_group", "at_ms"]
OF_STREAM = ["entries_added", "reason"]
LAST = ["last_delivered_ms", "last_delivered_seq"]


def relation(table: str, columns: list[str], rows: list[tuple]) -> Relation:
    return Relation(EmbeddedEngine(), Rows(arrow_table(rows, TABLES[table].arrow_schema(columns))))


def moved_rows(*rows: tuple[str, int, int, str]) -> Relation:
    """The claims of writebacks: group, entry, minute, the new owner."""
    columns = [*("run_seq", "kind", "stream", "consumer_group"), "id_ms", "id_seq"]
    journal = [
        (9, str(Kind.MOVED), "s", group, entry, 0, "before", owner, at * MINUTE)
        for group, entry, at, owner in rows
    ]
    columns += ["from_consumer", "consumer", "delivery_time_ms"]
    return moves(relation("journal", columns, journal))


NO_MOVES = moved_rows()


def group_row(run_seq: int, at: int, *, group: str = "g", last: tuple[int, int] = (99, 0)) -> tuple:
    """That a run read a group, at so many minutes."""
    return (run_seq, str(Kind.GROUP), "s", group, at * MINUTE, *last, None, None, None)


def run_row(run_seq: int, landing: str | None) -> tuple:
    return (run_seq, str(Kind.RUN), None, None, None, None, None, landing, None, None)


def stream_row(run_seq: int, added: int, reason: str | None = None) -> tuple:
    return (run_seq, str(Kind.STREAM), "s", None, None, None, None, None, added, reason)


@pytest.fixture(scope="module")
def read() -> Relation:
    """Four readings of group g at 0, 10, 20 and 30 minutes; of group h the first two, and at 20
    another one of the same name.  Run 5 was given up, 6 is not finished, 7 is a sweep."""
    journal = [
        *(run_row(n, f"l{n}") for n in (1, 2, 3, 4, 5, 6)),
        run_row(7, None),
        *(group_row(n, 10 * (n - 1)) for n in (1, 2, 3, 4, 5, 6, 7)),
        *(group_row(n, 10 * (n - 1) + 1, group="h") for n in (1, 2)),
        group_row(3, 21, group="h", last=(3, 0)),
        (4, str(Kind.GROUP), "s", "unknown", None, 9, 9, None, None, None),
        *(stream_row(n, 100 + n) for n in (1, 2, 3, 4)),
    ]
    runs = [(n, {ABANDONED: 1} if n == 5 else {"groups": 2}) for n in (1, 2, 3, 4, 5, 7)]
    return readings(
        relation("journal", [*READ, *LAST, "landing", *OF_STREAM], journal),
        relation("runs", ["run_seq", "counts"], runs),
    )


def test_a_reading_knows_the_next_one_of_its_group_and_only_finished_runs_count(read):
    rows = read.order_by("consumer_group", "at_ms").collect()
    in_minutes = lambda ms: None if ms is None else ms // MINUTE  # noqa: E731
    assert [
        (
            *(row["consumer_group"], row["landing"], in_minutes(row["landing_ms"])),
            *(in_minutes(row["at_ms"]), in_minutes(row["next_at_ms"])),
            row["next_last_delivered_ms"],
        )
        for row in rows
    ] == [
        ("g", "l1", 0, 0, 10, 99),
        ("g", "l2", 10, 10, 20, 99),
        ("g", "l3", 20, 20, 30, 99),
        ("g", "l4", 30, 30, None, None),
        ("h", "l1", 0, 1, 11, 99),
        ("h", "l2", 10, 11, 21, 3),
        ("h", "l3", 20, 21, None, None),
    ]


def seen(entry: int, landings: str, *owners: str | None, since: int = 0, group: str = "g") -> list:
    """An entry in some readings, with its owner in each, delivered at so many minutes."""
    return [
        (f"l{landing}", "s", group, entry, 0, owner, since * MINUTE, 1)
        for landing, owner in zip(landings, owners, strict=True)
    ]


@pytest.fixture(scope="module")
def pel() -> Relation:
    rows = [
        *seen(1, "123", "slow", "slow", "slow"),  # acknowledged between 20 and 30
        *seen(2, "1234", "dead", "dead", "dead", "dead"),
        *seen(3, "123", "dead", "dead", "heir"),  # the heir acknowledged it
        *seen(4, "4", "quick", since=29),
        *seen(5, "12", "dead", "dead", group="h"),  # and the group was made again
        *seen(6, "34", None, None, since=11),
        *seen(100, "2", "slow", since=1),  # the group is behind it: nobody acknowledged that
        *seen(7, "123", "slow", "slow", "slow"),  # a sweep removed it: its stream had deleted it
        *seen(1, "5", "given up"),
        *seen(1, "6", "not finished"),
    ]
    return relation("pel_snapshots", PEL, rows)


@pytest.fixture(scope="module")
def gone() -> Relation:
    """Entry 7 was deleted by a run, as the journal says, and 70 as a tombstone says; the deletion
    of entry 1 was lost to another writer."""
    key = ["run_seq", "kind", "stream", "consumer_group", "id_ms", "id_seq"]
    rows = [(7, "deleted", 7), (8, "deleted", 1), (8, "lost", 1), (9, "lost", 7)]
    journal = [(run, kind, "s", "g", id_, 0) for run, kind, id_ in rows]
    tombstone = ["run_seq", "stream", "consumer_group", "id_ms", "id_seq"]
    return deletions(
        relation("journal", key, journal),
        relation("tombstones", tombstone, [(3, "s", "g", 70, 0)]),
    )


def test_after_a_writeback_the_owner_that_acknowledges_is_the_new_one(pel, read, gone):
    """Entry 1 was claimed on the server after the last snapshot that had it, entry 2 before."""
    moved = moved_rows(("g", 1, 22, "rescuer"), ("g", 2, 15, "rescuer"))
    rows = claims(pel, read, gone, moved, [15 * MINUTE]).where("consumer_group = 'g'").collect()
    outcomes = {row["id_ms"]: row["outcome"] for row in rows}
    assert (outcomes[1], outcomes[2]) == ("taken_over", "still_pending")
    (row,) = acknowledged(pel, read, gone, moved).collect()
    (without,) = acknowledged(pel, read, gone, NO_MOVES).collect()
    assert row["acknowledged"] == without["acknowledged"]
    assert row["median_ms"] < without["median_ms"]


def test_what_a_run_deleted_is_told_by_the_journal_and_the_tombstones(gone):
    assert {row["id_ms"] for row in gone.collect()} == {7, 70}


@pytest.mark.parametrize("by", ["reason", "fewer entries added"])
def test_of_a_stream_that_was_created_again_nobody_knows_who_acknowledged(by):
    reason, added = ("made again", 150) if by == "reason" else (None, 50)
    journal = [
        *(run_row(n, f"l{n}") for n in (1, 2, 3)),
        *(group_row(n, 10 * (n - 1)) for n in (1, 2, 3)),
        *(stream_row(n, 100) for n in (1, 2)),
        stream_row(3, added, reason),
    ]
    read = readings(
        relation("journal", [*READ, *LAST, "landing", *OF_STREAM], journal),
        relation("runs", ["run_seq", "counts"], [(n, {"groups": 1}) for n in (1, 2, 3)]),
    )
    rows = [*seen(1, "12", "slow", "slow"), *seen(2, "1", "slow")]
    none = relation("tombstones", ["stream", "consumer_group", "id_ms", "id_seq"], [])
    claimed = claims(relation("pel_snapshots", PEL, rows), read, none, NO_MOVES, [5 * MINUTE])
    assert [(row["id_ms"], row["outcome"]) for row in claimed.collect()] == [(1, "unknown")]


@pytest.mark.parametrize("removed_by", [2, 3])
def test_of_a_group_that_was_removed_nobody_knows_who_acknowledged(removed_by):
    """Also if it was made again with a larger last id, or was never read again."""
    removed = (removed_by, str(Kind.GROUP_REMOVED), "s", "g", *[None] * 6)
    readings_of = (1, 3) if removed_by == 2 else (1, 2)
    journal = [
        *(run_row(n, f"l{n}") for n in readings_of),
        *(group_row(n, 10 * (n - 1)) for n in readings_of),
        removed,
    ]
    read = readings(
        relation("journal", [*READ, *LAST, "landing", *OF_STREAM], journal),
        relation("runs", ["run_seq", "counts"], [(n, {"groups": 1}) for n in (1, 2, 3)]),
    )
    landings = "1" if removed_by == 2 else "12"
    rows = seen(1, landings, *["slow" for _ in landings], since=-10)
    none = relation("tombstones", ["stream", "consumer_group", "id_ms", "id_seq"], [])
    claimed = claims(relation("pel_snapshots", PEL, rows), read, none, NO_MOVES, [5 * MINUTE])
    assert [(row["id_ms"], row["outcome"]) for row in claimed.collect()] == [(1, "unknown")]


def test_the_first_reading_at_which_an_entry_was_idle_for_longer_claims_it(pel, read, gone):
    rows = claims(pel, read, gone, NO_MOVES, [5 * MINUTE, 15 * MINUTE]).collect()
    assert {
        (row["min_idle_ms"] // MINUTE, row["consumer_group"], row["id_ms"]): (
            *(row["from_consumer"], row["claimed_ms"] // MINUTE, row["idle_ms"] // MINUTE),
            row["outcome"],
        )
        for row in rows
    } == {
        (5, "g", 1): ("slow", 10, 10, "acknowledged"),
        (5, "g", 2): ("dead", 10, 10, "still_pending"),
        (5, "g", 3): ("dead", 10, 10, "taken_over"),
        (5, "g", 6): (None, 20, 9, "still_pending"),
        (5, "g", 7): ("slow", 10, 10, "deleted"),
        (5, "g", 100): ("slow", 10, 9, "unknown"),
        (5, "h", 5): ("dead", 11, 11, "unknown"),
        (15, "g", 1): ("slow", 20, 20, "acknowledged"),
        (15, "g", 2): ("dead", 20, 20, "still_pending"),
        (15, "g", 3): ("heir", 20, 20, "acknowledged"),
        (15, "g", 6): (None, 30, 19, "still_pending"),
        (15, "g", 7): ("slow", 20, 20, "deleted"),
    }
    assert len(rows) == 12


def test_an_entry_that_was_idle_for_exactly_min_idle_is_left(pel, read, gone):
    rows = claims(pel, read, gone, NO_MOVES, [10 * MINUTE]).where("id_ms IN (1, 6)").collect()
    assert {(row["id_ms"], row["claimed_ms"] // MINUTE) for row in rows} == {(1, 20), (6, 30)}


def test_each_value_has_a_row_that_counts_what_it_would_have_claimed(pel, read, gone):
    values = [15 * MINUTE, 60 * MINUTE, 5 * MINUTE]
    rows = choices(claims(pel, read, gone, NO_MOVES, values), values).collect()
    columns = ("claimed", *OUTCOMES, "wait_ms")
    assert [(row["min_idle_ms"] // MINUTE, *(row[name] for name in columns)) for row in rows] == [
        (5, 7, 1, 1, 1, 2, 2, 10 * MINUTE),
        (15, 5, 2, 1, 0, 2, 0, 19 * MINUTE),
        (60, 0, 0, 0, 0, 0, 0, None),
    ]


def test_over_time_each_owner_of_each_landing_is_counted_and_a_group_without_any_is_there(
    pel, read
):
    rows = over_time(pel, read, 10 * MINUTE).where("landing_ms >= 1200000").collect()
    assert {
        (row["landing_ms"] // MINUTE, row["consumer_group"], row["consumer"]): (
            *(row["pending"], row["stalled"]),
        )
        for row in rows
    } == {
        (20, "g", "slow"): (2, 2),
        (20, "g", "dead"): (1, 1),
        (20, "g", "heir"): (1, 1),
        (20, "g", None): (1, 0),
        (20, "h", None): (0, 0),
        (30, "g", "dead"): (1, 1),
        (30, "g", "quick"): (1, 0),
        (30, "g", None): (1, 1),
    }


# ------------------------------------------------------------------- the sample series


def batches(keyspace: Keyspace, at_ms: int) -> Iterator[Batch]:
    """What a server in this state says."""
    yield SourceOpened(None, None)
    for key, stream in keyspace.items():
        for name, group in stream.groups.items():
            rows = tuple(
                PendingRow(entry.id, entry.consumer, entry.delivery_time_ms, entry.delivery_count)
                for entry in group.pending
            )
            consumers = tuple(
                ConsumerRow(consumer.name, consumer.seen_time_ms, consumer.active_time_ms)
                for consumer in group.consumers
            )
            if rows:
                yield PendingPage(key, name, at_ms, rows)
            yield GroupDone(key, name, at_ms, group.last_delivered_id, consumers, len(rows))
        ids = [entry.id for group in stream.groups.values() for entry in group.pending]
        span = (min(ids), max(ids)) if ids else (None, None)
        entries = tuple(
            EntryRow(stream_id, None)
            for stream_id in stream.entries
            if ids and span[0] <= stream_id <= span[1]
        )
        if entries:
            yield EntryPage(key, entries)
        last = max(stream.entries, default=StreamId(0, 0))
        counts = (1, len(ids), len(entries), None)
        yield StreamDone(key, len(stream.entries), last, *span, at_ms, *counts)
    yield SourceDone(Counts(streams=len(keyspace)))


def content(rows: Relation, *columns: str) -> set[tuple]:
    return {tuple(row.values()) for row in rows.select(*columns).collect()}


@pytest.fixture(scope="module")
def sample_folder(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(empty_store, tmp_path_factory.mktemp("sample") / "store")


@pytest.fixture(scope="module")
def sample(open_store: Opener, sample_folder: Path) -> Store:
    """A store with the sample series."""
    made = open_store(sample_folder)
    write_series(made, NOW_MS)
    return made


def test_the_sample_series_is_what_snapshots_of_the_same_groups_leave(sample, store):
    chosen = instants(NOW_MS)[-2:]
    request = SnapshotRequest("sample:6379/0", limits=RemovalLimits(max_removed_share=1))
    for at_ms in chosen:
        snapshot(store, request, lambda _, at_ms=at_ms: batches(keyspace_at(NOW_MS, at_ms), at_ms))
    pel_columns = [*PEL[1:], "snapshot_ms"]
    later = f"snapshot_ms >= {chosen[0]}"
    real = content(store.relation("pel_snapshots"), *pel_columns)
    assert content(sample.relation("pel_snapshots").where(later), *pel_columns) == real
    columns = ("stream", "consumer_group", "at_ms", "next_at_ms", "next_last_delivered_ms")
    series = [
        readings(either.relation("journal"), either.relation("runs")) for either in (sample, store)
    ]
    last = f"at_ms >= {chosen[0]}"
    assert content(series[0].where(last), *columns) == content(series[1], *columns)
    for table in ("pending", "groups", "consumers"):
        columns = [column.name for column in TABLES[table].written if column.name != "run_seq"]
        assert content(sample.relation(table), *columns) == content(
            store.relation(table), *columns
        ), table


@pytest.mark.long
def test_spark_computes_the_same_rows(sample, sample_folder, spark):
    values = [15 * MINUTE, 90 * MINUTE]

    def relations(store):
        claimed = claims_by_min_idle(store, values)
        tables = map(store.relation, ("journal", "runs", "tombstones"))
        journal, runs, tombstones = tables
        gone = deletions(journal, tombstones)
        left = acknowledged(
            store.relation("pel_snapshots"), readings(journal, runs), gone, moves(journal)
        )
        compared = compare_min_idles(claimed, values)
        pel = store.relation("pel_snapshots")
        read = readings(journal, runs)
        claiming = claiming_readings(pel, read, gone, moves(journal), values)
        by_group = choices_by_group(claiming, read, values)
        return claimed, by_group, compared, pending_over_time(store), left

    opened = Store.open(spark, str(sample_folder))
    for embedded, by_spark in zip(relations(sample), relations(opened), strict=True):
        # What the engine of the session would compute itself, it leaves to DuckDB in a folder.
        rows = [row.asDict(recursive=True) for row in frame_of(by_spark).collect()]
        assert sorted(map(repr, rows)) == sorted(map(repr, embedded.collect()))
        assert rows


def chosen_by_hand(min_idle_ms: int) -> Counter[str]:
    """What `choices` counts of the sample series, in plain Python."""
    seen: dict[tuple, list[tuple[int, PendingEntry]]] = defaultdict(list)
    for at_ms in instants(NOW_MS):
        for key, stream in keyspace_at(NOW_MS, at_ms).items():
            for entry in stream.groups[next(iter(stream.groups))].pending:
                seen[key, entry.id].append((at_ms, entry))
    counted: Counter[str] = Counter()
    for states in seen.values():
        claimed = [entry for at, entry in states if at - entry.delivery_time_ms > min_idle_ms]
        if not claimed:
            continue
        last_ms, last = states[-1]
        is_there = last_ms == NOW_MS
        outcome = "still_pending" if is_there else "acknowledged"
        counted["taken_over" if last.consumer != claimed[0].consumer else outcome] += 1
    return counted


def test_of_the_sample_each_value_claims_what_plain_python_says(sample):
    values = [minutes * MINUTE for minutes in (1, 15, 90, 240)]
    read = readings(sample.relation("journal"), sample.relation("runs"))
    gone = deletions(sample.relation("journal"), sample.relation("tombstones"))
    rows = choices(
        claims(sample.relation("pel_snapshots"), read, gone, NO_MOVES, values), values
    ).collect()
    chosen = {
        row["min_idle_ms"]: {outcome: row[outcome] for outcome in OUTCOMES if row[outcome]}
        for row in rows
    }
    assert chosen == {value: dict(chosen_by_hand(value)) for value in values}
    # What notebook 3 tells of it.
    assert chosen[15 * MINUTE] == {"acknowledged": 127, "taken_over": 34, "still_pending": 54}
    assert chosen[90 * MINUTE] == {"acknowledged": 5, "taken_over": 34, "still_pending": 27}


def test_of_the_sample_what_notebook_2_tells_is_so(sample):
    """The twelve hours begin at midnight: an hour of them is the clock's."""
    read = readings(sample.relation("journal"), sample.relation("runs"))
    rows = over_time(sample.relation("pel_snapshots"), read, HOUR).collect()
    pending: dict[str, dict[float, int]] = defaultdict(dict)
    for row in rows:
        pending[row["consumer"]][(row["landing_ms"] - NOW_MS) / HOUR + 12] = row["pending"]
    assert NOW_MS % (24 * HOUR) == 12 * HOUR

    # erin's line rises from eight to nine o'clock, and lies flat since.
    rising = [pending["erin"][quarter / 4] for quarter in range(8 * 4, 9 * 4 + 1)]
    assert rising == [7, 11, 16, 20, 25]
    assert {number for hour, number in pending["erin"].items() if hour >= 9} == {25}
    # bob's from two to three; at six alice was given his entries.
    assert [pending["bob"][hour] for hour in (2, 2.5, 3)] == [4, 19, 34]
    assert {number for hour, number in pending["bob"].items() if hour >= 3} == {34}
    assert max(pending["bob"]) == 5.75
    assert (pending["alice"][5.75], pending["alice"][6]) == (12, 45)

    idle: dict[str, list[float]] = defaultdict(list)
    deliveries: Counter[str] = Counter()
    entries = idle_entries(*map(sample.relation, ("pending", "groups")), None)
    for row in entries.collect():
        idle[row["consumer"]].append(row["idle_ms"] / HOUR)
        deliveries[row["consumer"]] = max(deliveries[row["consumer"]], row["delivery_count"])
    assert 3 < min(idle["erin"]) < max(idle["erin"]) < 4.55
    # The others work: hardly anything of theirs is right of the red line, at one hour.
    assert idle.keys() == {"erin", "alice", "carol", "dave"}
    names = ("alice", "carol", "dave")
    assert [sum(hours >= 1 for hours in idle[name]) for name in names] == [1, 0, 1]
    assert [deliveries[name] for name in names] == [15, 13, 8]


# ------------------------------------------------------------------- advice


def test_the_smallest_value_with_a_small_share_done_twice_is_recommended(sample):
    advice = advise(sample)
    assert advice.snapshots == len(instants(NOW_MS))
    chosen = {of.stream: of.recommended["min_idle_ms"] for of in advice.groups}
    assert chosen == {"orders": 2 * HOUR, "emails": 1.5 * HOUR}
    for of in (*advice.groups, advice.all_groups):
        fits = [row["acknowledged"] <= 0.1 * row["claimed"] for row in of.choices]
        assert of.recommended == of.choices[fits.index(True)]


def test_the_choices_of_all_groups_are_those_of_plain_python(sample):
    advice = advise(sample, [240 * MINUTE, 15 * MINUTE])
    for row in advice.all_groups.choices:
        counted = {name: row[name] for name in OUTCOMES if row[name]}
        assert counted == dict(chosen_by_hand(row["min_idle_ms"]))
        choices = [choice for of in advice.groups for choice in of.choices]
        parts = [of["claimed"] for of in choices if of["min_idle_ms"] == row["min_idle_ms"]]
        assert len(parts) == 2
        assert sum(parts) == row["claimed"]
    assert [row["min_idle_ms"] for row in advice.all_groups.choices] == [15 * MINUTE, 4 * HOUR]


def test_one_snapshot_recommends_nothing(sample):
    last_ms = advise(sample).last_ms
    advice = advise(sample, since_ms=last_ms)
    assert (advice.snapshots, advice.all_groups.choices[0]["claimed"] > 0) == (1, True)
    assert [of.recommended for of in (advice.all_groups, *advice.groups)] == [None] * (
        1 + len(advice.groups)
    )
    assert verdict(advice).startswith("No min-idle is recommended, because one snapshot does not")
    _, all_groups = sections(advice)
    assert {row[1] for row in all_groups.table.rows} != {0}
    assert {value for row in all_groups.table.rows for value in row[2:]} == {None}


def test_a_value_that_claims_nothing_has_a_row_and_is_not_recommended(sample):
    (nothing,) = advise(sample, [9 * 24 * HOUR]).all_groups.choices
    assert nothing == dict.fromkeys(COUNTS, 0) | {"min_idle_ms": 9 * 24 * HOUR, "wait_ms": None}
    for advice in (advise(sample, [9 * 24 * HOUR]), advise(sample, [15 * MINUTE])):
        assert advice.all_groups.recommended is None
    assert not advise(sample, [9 * 24 * HOUR]).groups


def test_the_advice_is_of_the_chosen_groups_and_of_the_chosen_time(sample):
    of_emails = advise(sample, scope=Scope("emails"))
    assert [of.stream for of in of_emails.groups] == ["emails"]
    assert of_emails.all_groups.choices == of_emails.groups[0].choices
    late = advise(sample, since_ms=NOW_MS - HOUR)
    assert (late.snapshots, late.first_ms) == (5, NOW_MS - HOUR)
    short = advise(sample, most_groups=1)
    assert ([of.stream for of in short.groups], short.not_shown) == (["orders"], 1)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"scope": Scope("emailz")}, "known groups: emails / sender"),
        ({"since_ms": NOW_MS + 1}, "has no snapshot or import of these groups"),
        ({"min_idles_ms": []}, "at least one minimum idle time"),
        ({"min_idles_ms": [-1]}, "must be between 0"),
        ({"max_done_twice": 1.5}, "give a share from 0 to 1"),
    ],
)
def test_advice_without_data_or_with_bad_values_is_refused(sample, options, text):
    with pytest.raises(RequestError, match=text):
        advise(sample, **options)


# ------------------------------------------------------------------- acknowledgements


def test_what_its_next_reading_lacks_was_acknowledged_and_took_until_then(pel, read, gone):
    """Entries 1 and 3 left before the reading at 30 minutes; 7 was deleted, of 5 and 100 the
    reason is unknown, and the others are still pending."""
    (row,) = acknowledged(pel, read, gone, NO_MOVES).collect()
    assert (row["consumer_group"], row["acknowledged"]) == ("g", 2)
    assert (row["median_ms"], row["slowest_tenth_ms"]) == (30 * MINUTE, 30 * MINUTE)
    nothing = acknowledged(pel, read.where("next_at_ms < 1800000"), gone, NO_MOVES)
    assert nothing.collect() == []


def test_of_the_sample_a_period_knows_how_long_acknowledged_entries_were_pending(sample):
    last_seen: dict[tuple, PendingEntry] = {}
    times = instants(NOW_MS)
    took = defaultdict(list)
    for at_ms in times:
        now = {}
        for key, stream in keyspace_at(NOW_MS, at_ms).items():
            for entry in stream.groups[next(iter(stream.groups))].pending:
                now[key, entry.id] = entry
        for (key, _), entry in last_seen.items():
            if (key, entry.id) not in now:
                took[key.decode()].append(at_ms - entry.delivery_time_ms)
        last_seen = now
    report = period_report(sample, 0, NOW_MS)
    assert {row["stream"]: row["acknowledged"] for row in report.acknowledged} == {
        stream: len(of) for stream, of in took.items()
    }
    for row in report.acknowledged:
        assert set(row) == {*GROUP, "acknowledged", "median_ms", "slowest_tenth_ms"}
        of = sorted(took[row["stream"]])
        for name, share in (("median_ms", 0.5), ("slowest_tenth_ms", 0.9)):
            assert row[name] == of[math.ceil(share * len(of)) - 1], name


def test_values_that_cannot_be_compared_are_refused(sample):
    for values, text in (([], "at least one"), ([-1], "must be between 0")):
        with pytest.raises(RequestError, match=text):
            claims_by_min_idle(sample, values)
