"""A snapshot makes the store what the source says, and writes the differences only."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from claimlib.commands.runs import abandon
from claimlib.commands.snapshot import SnapshotRequest, snapshot
from claimlib.commands.sources import source_of
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.errors import EmptySourceError, SourceMismatchError, VerificationError
from claimlib.live.batches import (
    Batch,
    GroupDone,
    GroupGone,
    PendingPage,
    PendingRow,
    SourceOpened,
    StreamDone,
    StreamGone,
)
from claimlib.runs import Phase
from claimlib.schema import TABLES
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import RemovalLimits
from claimlib.store.opening import open_folder
from claimlib.store.tables import Store
from tests.delta.pels import NOW_MS, REQUEST
from tests.delta.reading import count, query
from tests.delta.snapshots import ALL, ANY, owners, source, stream


def test_a_second_snapshot_writes_what_differs_and_a_third_of_the_same_writes_no_row(
    each_store: Store,
) -> None:
    store = each_store
    first = [
        stream(b"kept", {1: b"a", 2: b"a", 3: b"a"}, {1, 2, 3}, NOW_MS),
        stream(b"gone", {1: b"a"}, {1}, NOW_MS),
    ]
    reply = snapshot(store, ALL, lambda _: source(*first))
    assert owners(store) == {**{(b"kept", n): b"a" for n in (1, 2, 3)}, (b"gone", 1): b"a"}
    assert (reply.counts["pending_read"], reply.counts["pending_written"]) == (4, 4)

    second = [stream(b"kept", {2: b"b", 3: b"a", 4: b"a"}, {2, 4, 7}, NOW_MS + 10)]
    reply = snapshot(store, ANY, lambda _: source(*second))
    assert owners(store) == {(b"kept", 2): b"b", (b"kept", 3): b"a", (b"kept", 4): b"a"}
    assert reply.counts["pending_written"] == 2, "the unchanged row stays as it was written"
    assert [
        row["run_seq"] for row in query(store.where, "pending", "SELECT * FROM t WHERE id_ms = 3")
    ] == [1]
    assert {row["id_ms"] for row in query(store.where, "entries", "SELECT * FROM t")} == {2, 4}
    (proof,) = query(store.where, "streams", "SELECT * FROM t")
    assert (proof["complete_from_ms"], proof["complete_to_ms"]) == (2, 4)
    assert [
        row["consumer"] for row in query(store.where, "consumers", "SELECT * FROM t ORDER BY 1, 3")
    ] == ["a", "b"]
    assert count(store.where, "entry_landing") == 0, "swept once it is applied"
    assert count(store.where, "pel_snapshots") == 4 + 3, "the PELs as read are kept"

    reply = snapshot(store, ALL, lambda _: source(*second))
    assert reply.counts["pending_written"] == 0
    for table in ("pending", "entries", "consumers"):
        assert count(store.where, table, "run_seq = 3") == 0, table

    swept = xautoclaim(store, SweepRequest(REQUEST), dry_run=True)
    assert {row["id"] for row in swept.deleted.collect()} == {"3-0"}


def test_a_snapshot_of_some_groups_leaves_the_others_as_they_are(store: Store) -> None:
    both = [stream(b"a", {1: b"x"}, {1}, NOW_MS), stream(b"b", {1: b"x"}, {1}, NOW_MS)]
    snapshot(store, ALL, lambda _: source(*both))
    only_a = SnapshotRequest("server:6379/0", stream_glob="a")
    snapshot(store, only_a, lambda _: source(stream(b"a", {2: b"y"}, {2}, NOW_MS + 1)))
    assert owners(store) == {(b"a", 2): b"y", (b"b", 1): b"x"}
    other_group = SnapshotRequest("server:6379/0", group_glob="nobody")
    empty = StreamDone(b"a", 1, StreamId(9, 0), None, None, NOW_MS + 2, 0, 0, 0)
    with pytest.raises(EmptySourceError, match=r"matches \* / nobody"):
        snapshot(store, other_group, lambda _: source([empty]))
    allowed = replace(other_group, limits=RemovalLimits(allow_empty=True))
    reply = snapshot(store, allowed, lambda _: source([empty]))
    assert reply.counts["streams"] == 0, "it has none of the groups that were asked for"
    assert owners(store) == {(b"a", 2): b"y", (b"b", 1): b"x"}
    assert count(store.where, "streams", "complete_from_ms IS NOT NULL") == 2


def test_what_vanished_while_it_was_read_counts_for_nothing(store: Store) -> None:
    row = (PendingRow(StreamId(1, 0), b"x", 1000, 1),)
    batches = [
        PendingPage(b"s", b"void", NOW_MS, row),
        GroupGone(b"s", b"void"),
        *stream(b"s", {5: b"x"}, {5}, NOW_MS),
        PendingPage(b"t", b"g", NOW_MS, row),
        GroupDone(b"t", b"g", NOW_MS, StreamId(9, 0), (), 1),
        StreamGone(b"t"),
    ]
    snapshot(store, ALL, lambda _: source(batches))
    assert owners(store) == {(b"s", 5): b"x"}
    assert count(store.where, "pel_snapshots") == 1


def test_a_store_mirrors_one_source_and_refuses_another_naming_both(store: Store) -> None:
    assert source_of(store) is None
    snapshot(store, ALL, lambda _: source(stream(b"s", {1: b"x"}, {1}, NOW_MS)))
    other = SnapshotRequest("elsewhere:6379/0")
    with pytest.raises(SourceMismatchError, match="server:6379/0, and nothing proves that else"):
        snapshot(store, other, lambda _: source())
    assert owners(store) == {(b"s", 1): b"x"}
    assert source_of(store) == "server:6379/0"


def test_a_server_that_proves_nothing_is_refused_before_it_is_read(store: Store) -> None:
    snapshot(store, ALL, lambda _: source([SourceOpened("a", "h")]))

    def opened(*ids: str | None) -> Iterator[Batch]:
        yield SourceOpened(*ids)
        raise AssertionError("the server is read")

    for ids in (("b", "i"), ("h", "a"), ("b", "i", "a"), (None, None)):
        with pytest.raises(SourceMismatchError, match="nothing proves"):
            snapshot(store, replace(ALL, source="new:6379/0"), lambda _, ids=ids: opened(*ids))
    snapshot(store, ALL, lambda _: source())
    unknown = replace(ALL, source="new:6379/0")
    with pytest.raises(SourceMismatchError, match=r"\(at the last snapshot: unknown\)"):
        snapshot(store, unknown, lambda _: source([SourceOpened("a", "h")]))


def test_a_snapshot_that_dies_behind_its_decision_is_finished_by_the_next_run(
    store: Store,
) -> None:
    told = []

    def die(phase: Phase, detail: str) -> None:
        told.append((phase, detail))
        if phase is Phase.APPLY:
            raise KeyboardInterrupt(detail)

    batches = stream(b"s", {1: b"x", 2: b"x"}, {1}, NOW_MS)
    with pytest.raises(KeyboardInterrupt, match="run 1 · 3 rows to write"):
        snapshot(store, ALL, lambda _: source(batches), progress=die)
    assert (Phase.DECIDE, "run 1 · 2 pending, 1 entry") in told
    assert owners(store) == {}
    reply = xautoclaim(store, SweepRequest(REQUEST))
    assert (reply.counts["claimed"], reply.counts["deleted"]) == (1, 1)
    assert owners(store) == {(b"s", 1): b"alice"}


# ------------------------------------------------------------------- on either engine

ENGINES = ("embedded", "spark")
DIFFERS = {
    "landing",
    "attempt",
    "inputs",
    "phase_ms",
    "began_ms",
    "ended_ms",
    "output_versions",
    "engine",
}
NAMES = (b"kept", b"it's \\ \xff", "größe".encode())
FIRST = [stream(name, {1: b"a", 2: b"\xfe'", 3: b"a"}, {1, 2, 3}, NOW_MS) for name in NAMES]
# Rows that are replaced, removed and new, a deleted entry, a deleted stream, and new streams in
# other buckets.
NEW = [b"new:%d" % number for number in range(8)]
SECOND = [
    *(stream(name, {2: b"b", 3: b"a", 4: b"\xfe'"}, {2, 4, 7}, NOW_MS + 10) for name in NAMES[:-1]),
    *(stream(name, {1: b"n"}, {1}, NOW_MS + 10) for name in NEW),
]


def opened(engine: str, spark: SparkSession, where: Path) -> Store:
    if engine == "embedded":
        return open_folder(_no_session, str(where), writes=True)
    return Store.open(spark, str(where))


def _no_session() -> SparkSession:
    raise AssertionError("Spark is not needed")


def contents(where: Path) -> dict[str, list[str]]:
    """Return all rows of all tables, without the values that differ from run to run."""
    return {
        table: sorted(
            str({name: row[name] for name in row if name not in DIFFERS})
            for row in query(where, table, "SELECT * FROM t")
        )
        for table in TABLES
    }


@pytest.fixture(scope="module")
def first_read(
    spark: SparkSession, empty_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Return, by engine, a store with a first snapshot and a sweep."""
    folder = tmp_path_factory.mktemp("read")
    stores = {engine: shutil.copytree(empty_store, folder / engine) for engine in ENGINES}
    for engine, where in stores.items():
        store = opened(engine, spark, where)
        snapshot(store, ALL, lambda _: source(*FIRST), run_id="first")
        xautoclaim(store, SweepRequest(REQUEST), run_id="swept")
    return stores


@pytest.fixture(scope="module")
def both_read(
    spark: SparkSession, first_read: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, list[str]]]:
    """Return, by engine, the rows after a second snapshot."""
    read = {}
    for engine, first in first_read.items():
        where = shutil.copytree(first, tmp_path_factory.mktemp("both") / engine)
        snapshot(opened(engine, spark, where), ANY, lambda _: source(*SECOND), run_id="second")
        read[engine] = contents(where)
    return read


@pytest.mark.long
def test_both_engines_write_the_same_rows(
    first_read: dict[str, Path], both_read: dict[str, dict[str, list[str]]]
) -> None:
    assert contents(first_read["embedded"]) == contents(first_read["spark"])
    assert both_read["embedded"] == both_read["spark"]
    assert len(both_read["embedded"]["pending"]) == 6 + len(NEW)


@pytest.mark.long
@pytest.mark.parametrize(
    "phase",
    [
        Phase.APPLY,
        *(
            pytest.param(phase, marks=pytest.mark.long)
            for phase in (Phase.VERIFY, Phase.RECORD, Phase.FINISH)
        ),
    ],
)
@pytest.mark.parametrize(("first", "then"), [ENGINES, ENGINES[::-1]])
def test_a_run_that_one_engine_began_is_finished_by_the_other(
    spark: SparkSession,
    first_read: dict[str, Path],
    both_read: dict[str, dict[str, list[str]]],
    tmp_path: Path,
    first: str,
    then: str,
    phase: Phase,
) -> None:
    where = shutil.copytree(first_read[first], tmp_path / "store")

    def stop(entered: Phase, detail: str) -> None:
        if entered is phase:
            raise InterruptedError(detail)

    with pytest.raises(InterruptedError):
        snapshot(
            *(opened(first, spark, where), ANY, lambda _: source(*SECOND)),
            run_id="second",
            progress=stop,
        )
    reply = snapshot(
        opened(then, spark, where), ANY, lambda _: pytest.fail("read again"), run_id="second"
    )
    assert not reply.is_repeat
    assert contents(where) == both_read[first]


@pytest.mark.long
def test_a_run_whose_landing_was_changed_is_abandoned_without_spark(
    first_read: dict[str, Path], tmp_path: Path
) -> None:
    where = shutil.copytree(first_read["embedded"], tmp_path / "store")
    store = open_folder(_no_session, str(where), writes=True)

    def stop(entered: Phase, detail: str) -> None:
        if entered is Phase.APPLY:
            DeltaTable(where / "pel_snapshots").delete(f"snapshot_ms = {NOW_MS + 10}")
            raise InterruptedError(detail)

    with pytest.raises(InterruptedError):
        snapshot(store, ANY, lambda _: source(*SECOND), run_id="second", progress=stop)
    with pytest.raises(VerificationError, match="claimlib abandon"):
        xautoclaim(store, SweepRequest(REQUEST), run_id="later")
    assert abandon(store, "snapshot:second").is_abandoned
    assert count(where, "streams", "complete_from_ms IS NOT NULL") == 0
    reply = snapshot(store, ANY, lambda _: source(*SECOND), run_id="third")
    assert reply.counts["pending_new"] == 2 + len(NEW)
    assert count(where, "streams", "complete_from_ms IS NOT NULL") == 2 + len(NEW)
