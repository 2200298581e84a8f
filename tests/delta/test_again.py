"""What a run does twice, or late, or finds half done: the second time changes nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from claimlib.commands.snapshot import snapshot
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.engine.changes import Changes
from claimlib.engine.spark import frame_of
from claimlib.errors import CommitConflictError, SourceMismatchError
from claimlib.runs import Phase, claims, writes
from claimlib.runs import mirror_rows as mirror
from claimlib.runs.journal import APP_ID, RunRow, decided_by, run_rows
from claimlib.runs.rollforward import roll_forward
from claimlib.schema import BUCKET_SQL
from claimlib.store import retry
from claimlib.store.local import Condition, Token
from claimlib.store.logs import CommitInfo
from claimlib.store.spark_writer import SparkWriter
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace
from tests.conftest import by_spark_alone
from tests.delta.own_rows import (
    Opener,
    append,
    delete,
    pending_row,
    say_nothing_of_the_newest_commit,
    update,
)
from tests.delta.pels import CLAIMED, DELETED, NOW_MS, REQUEST, keyspace
from tests.delta.reading import count, query
from tests.delta.snapshots import ALL, owners, source, stream
from tests.delta.waiting import Waiting
from tests.limits import set_limits
from tests.writing import append_rows

TABLES = ("pending", "entries", "groups", "consumers", "streams")


def decided(store: Store, run_seq: int) -> RunRow:
    (row,) = (row for row in run_rows(store, 0) if row.run_seq == run_seq)
    return row


def apply_again(store: Store, run_seq: int) -> None:
    row = decided(store, run_seq)
    assert row.staged is not None
    mirror.apply(store, row, row.staged, decided_by(store, run_seq))


def contents(store: Store) -> dict[str, list[str]]:
    return {
        table: sorted(str(row) for row in query(store.where, table, "SELECT * FROM t"))
        for table in TABLES
    }


@pytest.fixture(scope="module")
def twice_read_at(
    open_store: Opener, empty_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Two snapshots of one server: the second changed rows and brought none."""
    where = shutil.copytree(empty_store, tmp_path_factory.mktemp("twice") / "store")
    store = open_store(where)
    first = stream(b"s", {1: b"a", 2: b"a"}, {1, 2}, NOW_MS)
    snapshot(store, ALL, lambda _: source(first))
    second = stream(b"s", {1: b"b", 2: b"b"}, {1, 2}, NOW_MS + 10)
    snapshot(store, ALL, lambda _: source(second))
    return where


@pytest.fixture
def twice_read(
    request: pytest.FixtureRequest,
    open_store: Opener,
    twice_read_at: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Store:
    """A copy of that store.  With the parameter "many rows" Spark takes it for large."""
    where = shutil.copytree(twice_read_at, tmp_path / "store")
    if getattr(request, "param", "") != "many rows":
        return open_store(where)
    by_spark_alone(monkeypatch)
    return Store.open(request.getfixturevalue("spark_if_needed")(), str(where))


def test_a_snapshot_that_is_applied_again_after_its_landing_was_swept_changes_nothing(
    twice_read: Store,
) -> None:
    assert count(twice_read.where, "entry_landing") == 0
    before = contents(twice_read)
    assert [len(before[table]) for table in TABLES] == [2, 2, 1, 1, 1]

    apply_again(twice_read, 2)

    assert contents(twice_read) == before


@pytest.mark.parametrize(
    "twice_read",
    ["few rows", pytest.param("many rows", marks=pytest.mark.long)],
    indirect=True,
)
def test_a_driver_that_applies_a_snapshot_late_does_not_revive_what_was_removed_since(
    twice_read: Store,
) -> None:
    third = stream(b"s", {2: b"b"}, {2}, NOW_MS + 20)
    snapshot(twice_read, ALL, lambda _: source(third))
    before = contents(twice_read)
    assert owners(twice_read) == {(b"s", 2): b"b"}

    apply_again(twice_read, 2)
    apply_again(twice_read, 1)

    assert contents(twice_read) == before


def test_a_driver_that_applies_a_snapshot_late_leaves_what_was_removed_and_came_again(
    twice_read: Store,
) -> None:
    third = stream(b"s", {2: b"b"}, {2}, NOW_MS + 20)
    snapshot(twice_read, ALL, lambda _: source(third))
    fourth = stream(b"s", {1: b"b", 2: b"b"}, {1, 2}, NOW_MS + 30)
    snapshot(twice_read, ALL, lambda _: source(fourth))
    before = contents(twice_read)
    assert [len(before[table]) for table in ("pending", "entries")] == [2, 2]

    apply_again(twice_read, 3)

    assert contents(twice_read) == before


def test_an_append_without_rows_uses_up_its_token(store: Store) -> None:
    rows = store.rows("pending", [("s", "g", 1, 0, None, 5, 1, 1)], PENDING)
    append_rows(store, "pending", rows.where("false"), token=Token(APP_ID, 1))
    append_rows(store, "pending", rows, token=Token(APP_ID, 1))
    assert count(store.where, "pending") == 0
    append_rows(store, "pending", rows, token=Token(APP_ID, 2))
    assert count(store.where, "pending") == 1


@pytest.mark.long
def test_a_run_that_has_appended_to_a_table_goes_on_so_though_the_table_is_small_by_then(
    spark_store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What is rewritten behind an append of the same run would be skipped."""
    by_spark_alone(monkeypatch)
    set_limits(monkeypatch, fetched_rows=2)
    write_keyspace(spark_store, keyspace(b"s", b"t"), NOW_MS)
    xautoclaim(spark_store, SweepRequest(REQUEST))
    write_keyspace(spark_store, keyspace(b"u"), NOW_MS)

    merge = SparkWriter._merge

    def die(writer: SparkWriter, changes: Changes) -> int:
        if changes.table == "consumers":
            raise HaltedError
        return merge(writer, changes)

    with monkeypatch.context() as patched:
        patched.setattr(SparkWriter, "_merge", die)
        with pytest.raises(HaltedError):
            xautoclaim(spark_store, SweepRequest(REQUEST), now_ms=NOW_MS + 7)
    assert seen(spark_store) == {"s": NOW_MS, "t": NOW_MS, "u": NOW_MS + 7}
    delete(spark_store, "consumers", "stream <> 's' OR consumer <> 'alice'")

    for few_rows in (2, 10_000):
        copied = shutil.copytree(spark_store.where, tmp_path / f"few rows are {few_rows}")
        copy = Store.open(spark_store.spark, str(copied))
        set_limits(monkeypatch, fetched_rows=few_rows)
        roll_forward(copy, decided(copy, 2), lambda *_: None)
        assert seen(copy) == {"s": NOW_MS + 7}, few_rows


@pytest.mark.long
def test_a_column_that_somebody_has_added_to_a_small_table_keeps_its_values(
    spark_store: Store,
) -> None:
    store = spark_store
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    name = store.identifier("consumers")
    store.spark.sql(f"ALTER TABLE {name} ADD COLUMNS (team STRING)")
    update(store, "consumers", "true", team="'blue'")
    xautoclaim(store, SweepRequest(REQUEST))
    rows = store.read("consumers").collect()
    assert {row["consumer"]: row["team"] for row in rows} == {"dead": "blue", "alice": None}


def seen(store: Store) -> dict[str, int]:
    rows = store.relation("consumers").where("consumer = 'alice'").collect()
    return {row["stream"]: row["seen_time_ms"] for row in rows}


class HaltedError(Exception):
    """Here a process ends."""


PENDING = (
    *("stream", "consumer_group", "id_ms", "id_seq", "consumer"),
    *("delivery_time_ms", "delivery_count", "run_seq"),
)


def test_a_decision_whose_commit_landed_stands_whatever_the_storage_said_of_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    append = store.writer.append

    def answer_lost(table: str, *args: Any, **options: Any) -> None:
        append(table, *args, **options)
        if table == "journal":
            raise RuntimeError("java.net.SocketTimeoutException")

    monkeypatch.setattr(store.writer, "append", answer_lost)
    reply = xautoclaim(store, SweepRequest(REQUEST))
    assert reply.counts["deleted"] == DELETED
    assert count(store.where, "tombstones") == DELETED
    assert count(store.where, "journal", "kind = 'run'") == 1


def test_purges_that_others_took_are_lost_even_where_the_run_changed_no_row(
    each_store: Store,
) -> None:
    store = each_store
    write_keyspace(store, keyspace(b"s"), NOW_MS)

    def take_all(phase: Phase, _detail: str) -> None:
        if phase is Phase.APPLY:
            delete(store, "pending")

    reply = xautoclaim(store, SweepRequest(REQUEST), progress=take_all)

    assert (reply.counts["gone"], count(store.where, "tombstones")) == (0, 0)
    assert reply.counts["lost"] == reply.counts["claimed"] + reply.counts["deleted"] > DELETED


def halted(phase: Phase) -> Callable[[Phase, str], None]:
    """A process that ends as its run enters a phase."""

    def halt(entered: Phase, _detail: str) -> None:
        if entered is phase:
            raise HaltedError

    return halt


def test_who_commits_between_two_looks_at_a_history_does_not_hide_what_a_run_has_deleted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's own commit is the oldest since its decision, and later ones are more than the first
    look lists."""
    monkeypatch.setattr(claims, "_RECENT", 1)
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    with pytest.raises(HaltedError):
        xautoclaim(store, SweepRequest(REQUEST), run_id="r", progress=halted(Phase.VERIFY))
    append(store, "pending", pending_row("s", 100))
    history, others = store.logs.history, [101]

    def look(table: str, limit: int | None = None) -> Sequence[CommitInfo]:
        commits = history(table, limit)
        if table == "pending" and others:
            append(store, "pending", pending_row("s", others.pop()))
        return commits

    monkeypatch.setattr(store.logs, "history", look)
    again = xautoclaim(store, SweepRequest(REQUEST), run_id="r")

    assert others == []
    assert (again.counts["lost"], again.counts["gone"]) == (0, 0)
    assert (again.claimed.count(), again.deleted.count()) == (CLAIMED, DELETED)
    assert count(store.where, "tombstones") == DELETED


@pytest.mark.long
@pytest.mark.classic
def test_a_run_whose_commit_has_no_numbers_is_finished_by_what_the_table_held_before_and_after(
    spark_store: Store, large_tables: None
) -> None:
    store = spark_store
    del large_tables
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    setting = "spark.databricks.delta.history.metricsEnabled"
    store.spark.conf.set(setting, "false")
    try:
        with pytest.raises(HaltedError):
            xautoclaim(store, SweepRequest(REQUEST), run_id="r", progress=halted(Phase.VERIFY))
    finally:
        store.spark.conf.unset(setting)
    (commit, *_) = store.logs.history("pending", 1)
    assert (commit["operation"], commit["operationMetrics"]) == ("MERGE", None)
    again = xautoclaim(store, SweepRequest(REQUEST), run_id="r")
    assert (again.counts["lost"], again.counts["gone"]) == (0, 0)
    assert count(store.where, "tombstones") == DELETED


@pytest.mark.long
def test_a_run_whose_commit_does_not_say_who_made_it_is_not_said_to_have_lost_what_it_deleted(
    spark_store: Store, large_tables: None
) -> None:
    del large_tables
    write_keyspace(spark_store, keyspace(b"s"), NOW_MS)
    with pytest.raises(HaltedError):
        xautoclaim(spark_store, SweepRequest(REQUEST), run_id="r", progress=halted(Phase.VERIFY))
    say_nothing_of_the_newest_commit(spark_store, "pending")
    again = xautoclaim(spark_store, SweepRequest(REQUEST), run_id="r")
    assert (again.counts["lost"], again.counts["gone"]) == (0, DELETED), "nobody can tell"
    assert count(spark_store.where, "tombstones") == DELETED


def test_a_snapshot_behind_a_commit_that_says_nothing_comes_to_its_end(store: Store) -> None:
    first = stream(b"s", {1: b"a", 2: b"a"}, {1, 2}, NOW_MS)
    snapshot(store, ALL, lambda _: source(first))

    def others(phase: Phase, _detail: str) -> None:
        if phase is Phase.APPLY:
            append(store, "pending", pending_row("s", 3))
            say_nothing_of_the_newest_commit(store, "pending")

    second = stream(b"s", {1: b"b", 2: b"a"}, {1, 2}, NOW_MS + 10)
    reply = snapshot(store, ALL, lambda _: source(second), progress=others)
    assert reply.counts["pending_extra"] == 1
    assert owners(store) == {(b"s", 1): b"b", (b"s", 2): b"a", (b"s", 3): b"own"}


def test_a_store_knows_its_source_when_no_stream_is_left(store: Store) -> None:
    snapshot(store, ALL, lambda _: source())
    other = type(ALL)("other:6379/0")
    with pytest.raises(SourceMismatchError, match="server:6379/0"):
        snapshot(store, other, lambda _: source())


def test_old_landings_of_finished_runs_are_swept_with_the_next(store: Store) -> None:
    batches = stream(b"s", {1: b"a"}, {1}, NOW_MS)
    snapshot(store, ALL, lambda _: source(batches))
    row = decided(store, 1)
    left = store.rows("entry_landing", [(row.staged.uuid, "s", 1, 0, None)], LANDED)
    append_rows(store, "entry_landing", left)

    snapshot(store, ALL, lambda _: source(batches))

    assert count(store.where, "entry_landing") == 0


LANDED = ("landing", "stream", "id_ms", "id_seq", "fields")


def test_a_landing_that_somebody_writes_to_while_it_is_swept_is_left_for_the_next_run(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = store.writer.delete

    def conflicts(table: str, *conditions: Condition) -> None:
        if table == "entry_landing":
            raise CommitConflictError("another writer was first", table=table)
        delete(table, *conditions)

    monkeypatch.setattr(store.writer, "delete", conflicts)
    monkeypatch.setattr(retry, "_FIRST_PAUSE_S", 0)
    batches = stream(b"s", {1: b"a"}, {1}, NOW_MS)
    assert snapshot(store, ALL, lambda _: source(batches)).counts["pending_written"] == 1
    assert count(store.where, "entry_landing") == 1
    monkeypatch.undo()
    snapshot(store, ALL, lambda _: source(batches))
    assert count(store.where, "entry_landing") == 0


@pytest.mark.long
def test_an_append_to_an_empty_table_sees_who_appends_the_same_rows_at_that_moment(
    spark_store: Store, tmp_path: Path
) -> None:
    waiting = Waiting(tmp_path)
    columns = [*PENDING[:-1], "bucket"]
    row = ("s", "g", 1, 0, None, 5, 1)
    rows = frame_of(spark_store.rows("pending", [row], PENDING[:-1]))
    bucket = f"{BUCKET_SQL.format(buckets=spark_store.buckets)} AS bucket"
    slow_rows = waiting.frame(rows.selectExpr("*", bucket)).select(*columns)
    changes = Changes("pending", 1, None, (), new=spark_store.relation_of(slow_rows))
    run = SimpleNamespace(run_seq=1, note="a run", token=Token(APP_ID, 1), pins=spark_store.pin())
    with ThreadPoolExecutor() as threads:
        ours = threads.submit(writes.apply, spark_store, changes, run)
        waiting.until_appending(ours)
        append_rows(spark_store, "pending", spark_store.rows("pending", [(*row, 0)], PENDING))
        waiting.go_on()
        ours.result()
    assert count(spark_store.where, "pending") == 1
    assert count(spark_store.where, "pending", "run_seq = 0") == 1


@pytest.mark.classic
def test_a_commit_on_another_table_does_not_prove_that_nothing_was_lost(store: Store) -> None:
    """A table that was dropped and made again may have a version of the same number."""
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    xautoclaim(store, SweepRequest(REQUEST))
    (row,) = run_rows(store, 0)
    assert claims._is_newest_and_next(store, row)
    store.table_ids = {**store.table_ids, "pending": "another"}
    assert not claims._is_newest_and_next(store, row)
