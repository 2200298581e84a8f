"""A maintenance changes files, and no row but those of history that it is told to delete."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from claimlib.commands import staging
from claimlib.commands.check import check
from claimlib.commands.entry import entry_history
from claimlib.commands.maintain import MaintainReply, maintain
from claimlib.commands.server_view import changes_since_snapshot
from claimlib.commands.snapshot import snapshot
from claimlib.commands.sweep_request import SweepRequest
from claimlib.commands.undo import undo
from claimlib.commands.xautoclaim import xautoclaim
from claimlib.commands.xpending import read_store
from claimlib.errors import RequestError, UnfinishedRunError, VerificationError
from claimlib.live.batches import Batch
from claimlib.runs import Phase
from claimlib.runs.journal import rows_of
from claimlib.runs.known import find_missing_rows
from claimlib.runs.maintenance import check_not_deleted
from claimlib.schema import TABLES, Kind
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import AutoclaimRequest
from claimlib.store.commits import change_table
from claimlib.store.local import Condition
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.deletion_vectors import hide_rows
from tests.delta.own_rows import Opener, append, pending_row
from tests.delta.pels import NOW_MS, REQUEST, keyspace
from tests.delta.snapshots import ANY, source, stream
from tests.writing import execute_sql

Tables = dict[str, list[str]]
_RETENTION = "delta.deletedFileRetentionDuration"


def contents(store: Store) -> Tables:
    """Return the rows of each table, sorted."""
    return {
        table: sorted(repr(sorted(row.items())) for row in store.relation(table).collect())
        for table in TABLES
    }


def state(store: Store) -> Tables:
    """Return the rows of each table without those that each maintenance adds."""
    tables = contents(store)
    journal, runs = (store.relation(table).collect() for table in ("journal", "runs"))
    own = {row["run_seq"] for row in runs if row["command"] == "maintain"}
    tables["journal"] = sorted(repr(row) for row in journal if row["run_seq"] not in own)
    tables["runs"] = sorted(repr(row) for row in runs if row["run_seq"] not in own)
    return tables


def sweep(store: Store, consumer: bytes = b"alice", run_id: str | None = None) -> int:
    """Claim a page of all groups for one consumer, and return the number of the run."""
    request = SweepRequest(AutoclaimRequest(consumer, 0, count=3), cursor="page")
    done = xautoclaim(store, request, run_id=run_id).run_seq
    assert done is not None
    return done


@pytest.fixture(scope="module")
def lived_path(
    open_store: Opener, empty_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return the folder of a store with four runs.  The fourth is the undo of the third."""
    where = shutil.copytree(empty_store, tmp_path_factory.mktemp("lived") / "store")
    store = open_store(where)
    write_keyspace(store, keyspace(b"s", b"t"), NOW_MS)
    for number in range(3):
        sweep(store, b"alice" if number % 2 else b"bob", f"sweep-{number + 1}")
    undo(store, "3")
    return where


@pytest.fixture
def lived(open_store: Opener, lived_path: Path, tmp_path: Path) -> Store:
    """A copy of that store."""
    return open_store(shutil.copytree(lived_path, tmp_path / "lived"))


def of_table(reply: MaintainReply, table: str) -> dict[str, Any]:
    """Return the numbers of one table."""
    return next(dict(row) for row in reply.tables if row["table"] == table)


def files_on_disk(store: Store, table: str = "") -> set[Path]:
    """Return the data files of a table, or of all tables."""
    return {*Path(store.where, table).rglob("*.parquet")} - {
        *Path(store.where, table).rglob("*.checkpoint.parquet")
    }


def keep_nothing_longer(store: Store, *tables: str) -> None:
    """Set the retention of tables to nothing, so that each file of an earlier version is old."""
    for table in tables:
        local = store.logs.readable(table)
        change_table(Path(store.where, table), local, (), {_RETENTION: "interval 0 seconds"})


def test_rows_are_equal_and_files_are_fewer(lived: Store) -> None:
    before, pinned = state(lived), lived.pin().versions
    reply = maintain(lived, run_id="m")
    assert state(lived) == before
    for table in ("journal", "runs"):
        numbers = of_table(reply, table)
        assert numbers["files_after"] < numbers["files_before"]
        # The run's own row comes after that.
        assert numbers["files_after"] == len(lived.writer.files(table)) - 1
        assert numbers["bytes_after"] < numbers["bytes_before"]
    # Earlier versions can be read: their files are not older than the retention.
    assert all(lived.relation(table, pinned[table]).count() >= 0 for table in TABLES)
    assert check(lived, replay=True) == ()
    assert find_missing_rows(lived) == []


def test_a_second_maintenance_finds_nothing_but_its_own_files(lived: Store) -> None:
    maintain(lived)
    files = {name: lived.writer.files(name) for name in TABLES}
    reply = maintain(lived)
    changed = {name for name in TABLES if lived.writer.files(name) != files[name]}
    assert changed == {"journal", "runs"}
    assert of_table(reply, "pending")["files_compacted"] == 0


def test_runs_go_on_after_it_and_an_undo_of_an_earlier_run_is_possible(lived: Store) -> None:
    before = state(lived)
    maintain(lived)
    # The first undo has put back what the third run did, so this does it again.
    undo(lived, "4")
    undo(lived, str(6))
    after = state(lived)
    assert after["tombstones"] == before["tombstones"]
    assert check(lived, replay=True) == ()


def test_a_commit_of_a_compaction_is_no_commit_of_the_runs_rows(lived: Store) -> None:
    """A run that is killed after its compaction of `runs` is unfinished, not missing."""
    stop = halted_at("compacting pel_snapshots")
    with pytest.raises(HaltedError):
        maintain(lived, run_id="m", progress=stop)
    assert find_missing_rows(lived) == []
    reply = maintain(lived, run_id="m")
    assert not reply.is_repeat
    assert reply.run_seq == 5
    assert maintain(lived, run_id="m").is_repeat
    assert lived.relation("runs").count() == 5


def test_a_compaction_that_fails_leaves_no_unfinished_run(
    lived: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(type(lived.writer), "compact", full)
        with pytest.raises(OSError, match="No space"):
            maintain(lived, run_id="m", keep_history_ms=0)
    assert maintain(lived, dry_run=True).counts["runs_deleted"] == 0, "nothing is unfinished"
    assert sweep(lived, b"carol", "next") == 5


def test_a_repeat_by_run_id_changes_nothing_and_says_the_same(lived: Store) -> None:
    first = maintain(lived, run_id="m", keep_history_ms=0)
    before = contents(lived)
    again = maintain(lived, run_id="m", keep_history_ms=0)
    assert again.is_repeat
    assert (again.counts, again.tables) == (first.counts, first.tables)
    assert contents(lived) == before


@pytest.mark.classic  # it reads the log as files
def test_a_dry_run_writes_nothing_and_says_what_would_be_done(lived: Store) -> None:
    keep_nothing_longer(lived, "pending")
    before = {path: path.stat().st_mtime_ns for path in Path(lived.where).rglob("*")}
    shown = maintain(lived, keep_history_ms=0, dry_run=True)
    assert {path: path.stat().st_mtime_ns for path in Path(lived.where).rglob("*")} == before
    done = maintain(lived, keep_history_ms=0)
    assert shown.run_seq is None
    assert shown.counts == {name: of for name, of in done.counts.items() if name in shown.counts}
    for name in ("files_before", "bytes_before", "rows_deleted"):
        assert [row[name] for row in shown.tables] == [row[name] for row in done.tables]
    for name in ("files_removed", "bytes_removed"):
        assert of_table(shown, "pending")[name] == of_table(done, "pending")[name] > 0
    assert of_table(shown, "runs")["files_compacted"] == 4
    assert of_table(shown, "runs")["files_after"] is None


# ------------------------------------------------------------------- vacuum


@pytest.mark.classic  # it reads the log as files
def test_only_files_beyond_the_retention_are_removed(lived: Store) -> None:
    before, rows = files_on_disk(lived), state(lived)
    maintain(lived, run_id="kept")
    assert before <= files_on_disk(lived)
    keep_nothing_longer(lived, "pending")
    assert before <= files_on_disk(lived) | before
    maintain(lived, vacuum=False)
    assert files_on_disk(lived, "pending") >= {path for path in before if "pending" in path.parts}
    earlier = files_on_disk(lived, "pending")
    checksums = [path.with_name(f".{path.name}.crc") for path in earlier]
    if lived.is_embedded:
        for path in checksums:
            path.touch()  # Spark leaves checksums beside data files
    reply = maintain(lived)
    assert len(files_on_disk(lived, "pending")) == len(lived.writer.files("pending"))
    numbers = of_table(reply, "pending")
    assert numbers["files_removed"] == len(gone(earlier)) > 0
    assert [path.exists() for path in checksums] == [path.exists() for path in earlier]
    assert numbers["bytes_removed"] > 0
    assert of_table(reply, "consumers")["files_removed"] == 0
    assert state(lived) == rows


def gone(paths: set[Path]) -> set[Path]:
    return {path for path in paths if not path.exists()}


@pytest.mark.classic  # it reads the log as files
def test_rows_that_a_deletion_vector_hides_stay_hidden(store: Store) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    vector = hide_rows(store, "pending", [0, 3])
    hidden = state(store)
    assert len(hidden["pending"]) == 8
    # While it is in use, it is not removed, however old it is.
    keep_nothing_longer(store, "pending")
    maintain(store)
    assert vector.exists()
    assert state(store) == hidden
    append(store, "pending", pending_row("s", 77))
    expected = state(store)
    reply = maintain(store)
    assert of_table(reply, "pending")["files_compacted"] == 2
    assert state(store) == expected
    vectors = pa.table(DeltaTable(f"{store.where}/pending").deletion_vectors())
    assert vectors.num_rows == 0


def test_the_log_is_summed_up_in_a_checkpoint_that_says_the_same(lived: Store) -> None:
    for _ in range(8):
        sweep(lived)
    before = state(lived)
    maintain(lived)
    log = Path(lived.where, "journal", "_delta_log")
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    for commit in log.glob("*.json"):
        if int(commit.stem) < int(checkpoint.name[:20]):
            commit.unlink()
    lived.logs.forget("journal")
    assert state(lived) == before


# ------------------------------------------------------------------- kills


class HaltedError(Exception):
    """The process ends here."""


def halted_at(where: str) -> Any:
    """Return a callback that ends a run at a phase, or at a step."""

    def stop(phase: Phase, detail: str) -> None:
        if where in {phase.value, detail.partition(" · ")[2]}:
            raise HaltedError

    return stop


_BEFORE_THE_DECISION = (
    *(Phase.DECIDE, "compacting streams", "compacting runs", "deleting old files of pending"),
)
_STEPS = (
    *_BEFORE_THE_DECISION,
    *(Phase.APPLY, "deleting rows of journal", "deleting rows of entry_landing"),
    *(Phase.VERIFY, Phase.FINISH),
)
_QUICK_STEPS = (Phase.DECIDE, "deleting rows of journal")  # test_steps.py kills it elsewhere


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(str(step), marks=() if step in _QUICK_STEPS else pytest.mark.long)
        for step in _STEPS
    ],
)
@pytest.mark.classic  # it reads the log as files
def test_the_next_run_finishes_what_was_killed(
    lived: Store, open_store: Opener, tmp_path: Path, step: str
) -> None:
    append(lived, "entry_landing", {"landing": "lost", "stream": "s", "id_ms": 1, "id_seq": 0})
    keep_nothing_longer(lived, "pending")
    other = open_store(shutil.copytree(lived.where, tmp_path / "other"))
    maintain(other, run_id="m", keep_history_ms=0)
    with pytest.raises(HaltedError):
        maintain(lived, run_id="m", keep_history_ms=0, progress=halted_at(step))
    assert not lived.relation("pending").is_empty()
    if step in _BEFORE_THE_DECISION:
        maintain(lived, run_id="m", keep_history_ms=0)
    else:
        with pytest.raises(UnfinishedRunError, match="maintain:m"):
            maintain(lived, dry_run=True)
        # Whatever an entry's history lacks, it says so.
        assert entry_history(lived, b"s", StreamId(1, 0)).complete_from_run == 5
    for store in (lived, other):
        sweep(store, b"carol", "next")
    for table in TABLES:
        mine, theirs = (rows_without_process(store, table) for store in (lived, other))
        assert mine == theirs, table
    assert check(lived, replay=True) == ()


def rows_without_process(store: Store, table: str) -> list[str]:
    """Return the rows of a table without what is different in each process."""
    own = {"attempt", "inputs", "began_ms", "ended_ms", "phase_ms", "input_versions"}
    own |= {"output_versions", "counts"}
    return sorted(
        repr([(name, value) for name, value in row.items() if name not in own])
        for row in store.relation(table).collect()
    )


# ------------------------------------------------------------------- history


def end_after(store: Store, run_seq: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the clock so that the runs up to one have ended a minute ago, and no later run."""
    ended = {row["run_seq"]: row["ended_ms"] for row in store.relation("runs").collect()}
    monkeypatch.setattr("claimlib.commands.maintain.wall_ms", lambda: ended[run_seq] + 60_001)


def test_old_history_is_deleted_and_later_history_stays(
    lived: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, kinds = state(lived), ("claimed", "swept", "consumer_before", "restored")
    end_after(lived, 2, monkeypatch)
    reply = maintain(lived, run_id="m", keep_history_ms=60_000)
    after = state(lived)
    assert {name for name in TABLES if after[name] != before[name]} == {"journal"}
    assert reply.counts["deleted_through"] == 2
    assert reply.counts["runs_deleted"] == 2
    lost = len(before["journal"]) - len(after["journal"])
    assert of_table(reply, "journal")["rows_deleted"] == lost > 0
    journal = lived.relation("journal").collect()
    assert {row["kind"] for row in journal if row["run_seq"] <= 2} == {"run"}
    assert {row["kind"] for row in journal if row["run_seq"] in {3, 4}} >= {*kinds}
    assert check(lived, replay=True) == ()
    assert find_missing_rows(lived) == []
    monkeypatch.undo()

    # What is needed for an undo of a later run is there.
    assert undo(lived, "4", run_id="again").counts["kept"] == 0
    with pytest.raises(RequestError, match=r"xautoclaim:sweep-2 cannot be undone: run 5 \(maint"):
        undo(lived, "sweep-2")
    with pytest.raises(RequestError, match="complete from run 3 on"):
        check_not_deleted(lived, 1, "xautoclaim:sweep-1", "be written back")
    check_not_deleted(lived, 3, "xautoclaim:sweep-3", "be written back")
    history = entry_history(lived, b"s", StreamId(1, 0))
    assert (history.complete_from_run, history.deleted_by) == (3, "5 (maintain:m)")
    assert {row["run_seq"] for row in history.events.collect()} <= {3, 4, 6}
    # A repeat is recognized, and has the counts.
    details: list[str] = []
    request = SweepRequest(AutoclaimRequest(b"bob", 0, count=3), cursor="page")
    again = xautoclaim(
        lived, request, run_id="sweep-1", progress=lambda _, detail: details.append(detail)
    )
    assert again.is_repeat
    assert again.counts["claimed"] > 0
    assert "only its counts are shown" in details[-1]


def test_tombstones_of_runs_without_journal_rows_are_no_difference(store: Store) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    xautoclaim(store, SweepRequest(REQUEST))
    maintain(store, keep_history_ms=0)
    assert store.relation("tombstones").count() == 1
    assert check(store, replay=True) == ()


def test_without_a_limit_all_history_stays(lived: Store) -> None:
    reply = maintain(lived)
    assert of_table(reply, "journal")["rows_deleted"] == 0
    assert "deleted_through" not in reply.counts
    history = entry_history(lived, b"s", StreamId(1, 0))
    assert (history.complete_from_run, history.deleted_by) == (1, None)


def test_a_later_maintenance_with_a_longer_limit_knows_what_was_deleted(
    lived: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_after(lived, 3, monkeypatch)
    maintain(lived, keep_history_ms=60_000)
    end_after(lived, 1, monkeypatch)
    maintain(lived, keep_history_ms=60_000)
    maintain(lived)
    history = entry_history(lived, b"s", StreamId(1, 0))
    assert history.complete_from_run == 4


def test_a_run_that_was_killed_is_finished_before_its_rows_are_deleted(lived: Store) -> None:
    before = sorted(repr(row) for row in lived.relation("pending").collect())
    request = SweepRequest(AutoclaimRequest(b"dora", 0))
    with pytest.raises(HaltedError):
        xautoclaim(lived, request, run_id="killed", progress=halted_at(Phase.APPLY))
    assert sorted(repr(row) for row in lived.relation("pending").collect()) == before
    reply = maintain(lived, keep_history_ms=0)
    assert reply.counts["deleted_through"] == 5
    owners = {row["consumer"] for row in lived.relation("pending").collect()}
    assert owners == {"dora"}
    assert xautoclaim(lived, request, run_id="killed").is_repeat


# ------------------------------------------------------------------- snapshots


def read(*owners: bytes) -> Iterator[Batch]:
    """Return what a server shows: one stream with an entry of each owner."""
    pending = dict(enumerate(owners, 1))
    return source(stream(b"s", pending, {*pending}, NOW_MS + len(owners), added=len(owners)))


def test_rows_since_the_last_snapshot_of_each_group_stay(store: Store) -> None:
    for number in range(1, 4):
        snapshot(store, ANY, lambda _, number=number: read(*[b"bob"] * number))
        sweep(store)
    reply = maintain(store, keep_history_ms=0)
    assert reply.counts["deleted_through"] == 4
    assert reply.counts["oldest_source"] == 5
    assert reply.counts["expired"] == 2
    assert of_table(reply, "pel_snapshots")["rows_deleted"] == 3
    assert store.relation("pel_snapshots").count() == 3
    assert check(store, replay=True) == ()
    now = read_store(store, as_of=None)
    changes = changes_since_snapshot(now)
    assert changes is not None
    assert changes.count() == 3
    with pytest.raises(RequestError, match="cannot be compared with the server"):
        changes_since_snapshot(read_store(store, as_of="4"))
    assert not rows_of(store, 6, Kind.CLAIMED).is_empty()


@pytest.mark.classic  # a store over Connect has no lock
def test_staged_rows_that_no_run_names_are_deleted(store: Store) -> None:
    snapshot(store, ANY, lambda _: read(b"bob", b"bob"))
    key = {"landing": "lost", "stream": "s", "id_ms": 1, "id_seq": 0}
    append(store, "entry_landing", key)
    own = {"consumer": "own", "delivery_time_ms": 1, "delivery_count": 1}
    append(store, "pel_snapshots", {**key, **own, "consumer_group": "g"})
    reply = maintain(store)
    assert reply.counts["expired"] == 1
    assert store.relation("entry_landing").is_empty()
    assert store.relation("pel_snapshots").count() == 2
    assert store.relation("pel_snapshots").where("landing = 'lost'").is_empty()


def test_a_snapshot_whose_staged_rows_were_deleted_changes_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads of one process share the lock."""
    monkeypatch.setattr(staging, "MAX_ROWS", 1)
    readings = []

    def reading(_: object) -> Iterator[Batch]:
        readings.append(len(readings))
        for batch in read(b"bob", b"bob"):
            yield batch
            if len(readings) == 1 and not store.relation("pel_snapshots").is_empty():
                maintain(store)

    with pytest.raises(VerificationError, match="Nothing was changed; try again"):
        snapshot(store, ANY, reading)
    assert snapshot(store, ANY, reading).counts["pending_new"] == 2
    assert check(store, replay=True) == ()


def test_without_a_lock_staged_rows_are_deleted_by_the_second_maintenance(store: Store) -> None:
    """Elsewhere a snapshot may be reading the server while the maintenance runs."""
    store.lock.folder = None
    key = {"landing": "lost", "stream": "s", "id_ms": 1, "id_seq": 0}
    append(store, "entry_landing", key)
    assert maintain(store).counts["expired"] == 0
    append(store, "entry_landing", {**key, "landing": "now"})
    assert maintain(store).counts["expired"] == 1
    assert [row["landing"] for row in store.relation("entry_landing").collect()] == ["now"]


# ------------------------------------------------------------------- Spark


@pytest.mark.long
def test_spark_compacts_and_vacuums_the_same(spark_store: Store) -> None:
    write_keyspace(spark_store, keyspace(b"s", b"t"), NOW_MS)
    for _ in range(3):
        sweep(spark_store)
    undo(spark_store, "3")
    before = state(spark_store)
    shown = maintain(spark_store, keep_history_ms=0, dry_run=True)
    assert state(spark_store) == before
    reply = maintain(spark_store)
    assert state(spark_store) == before
    for table in ("journal", "runs"):
        numbers = of_table(reply, table)
        assert numbers["files_after"] < numbers["files_before"]
        assert numbers["files_before"] == of_table(shown, table)["files_before"]
    rows = of_table(shown, "journal")["rows_deleted"]
    done = maintain(spark_store, keep_history_ms=0)
    assert of_table(done, "journal")["rows_deleted"] == rows
    assert check(spark_store, replay=True) == ()


@pytest.mark.long
def test_the_statement_for_missing_rows_does_not_put_deleted_history_back(
    spark_store: Store,
) -> None:
    write_keyspace(spark_store, keyspace(b"s"), NOW_MS)
    for number in (1, 2):
        sweep(spark_store, run_id=f"sweep-{number}")
    maintain(spark_store, keep_history_ms=0, vacuum=False)
    before = contents(spark_store)["journal"]
    execute_sql(spark_store, "journal", "DELETE FROM {table} WHERE run_seq = 2")
    (missing,) = find_missing_rows(spark_store)
    assert missing.remedy is not None
    spark_store.spark.sql(missing.remedy)
    assert contents(spark_store)["journal"] == before


def test_conditions_are_read_the_same_by_both_engines() -> None:
    one_of = Condition("landing", ("a'b", "c"))
    assert one_of.sql() == "landing IN ('a''b', 'c')"
    assert one_of.spark_sql().startswith("landing IN (decode(unhex('612762')")
    below = Condition("run_seq", 4, is_above=True, is_negated=True)
    assert below.sql() == below.spark_sql() == "NOT (run_seq > 4)"
    assert Condition("kind", "run", is_negated=True).sql() == "NOT (kind = 'run')"
