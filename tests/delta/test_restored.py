"""A store whose `runs` or `journal` lacks rows is refused, and the statement that is printed puts
them back."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from claimlib.commands.check import check
from claimlib.commands.runs import abandon, find_run, list_runs
from claimlib.commands.snapshot import snapshot
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.commands.xpending import read_store
from claimlib.errors import MissingRowsError, RequestError
from claimlib.runs import Phase
from claimlib.schema import TABLES
from claimlib.semantics.model import AutoclaimRequest
from claimlib.store.logs import CommitInfo
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import read_groups, write_keyspace
from tests.delta.own_rows import Opener
from tests.delta.pels import NOW_MS, REQUEST, keyspace
from tests.delta.reading import query
from tests.delta.snapshots import ALL, owners, source, stream
from tests.writing import execute_sql

BY_SPARK, BY_DELTA_RS, EMBEDDED = "Spark", "delta-rs", "embedded"
PENDING = (1, 2, 3, 5, 6, 7, 8, 9, 10)


@pytest.fixture(scope="module")
def swept_at(
    open_store: Opener, empty_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A store that has had three sweeps: `first`, `b` and `c`."""
    where = shutil.copytree(empty_store, tmp_path_factory.mktemp("swept") / "store")
    store = open_store(where)
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    xautoclaim(store, SweepRequest(REQUEST), run_id="first")
    assert [claim_all(store, name) for name in (b"b", b"c")] == [2, 3]
    return where


@pytest.fixture
def swept(
    request: pytest.FixtureRequest,
    open_store: Opener,
    swept_at: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Store:
    """A copy of that store, by the reader and writer of its small tables."""
    where = shutil.copytree(swept_at, tmp_path / "store")
    if request.param == EMBEDDED:
        return open_store(where)
    if request.param == BY_SPARK:
        monkeypatch.setattr("claimlib.store.definitions.shared_folder", lambda *_: None)
    return Store.open(request.getfixturevalue("spark_if_needed")(), str(where))


def claim_all(store: Store, consumer: bytes) -> int | None:
    """Claim every pending entry, under the consumer's name as run id; return the run's number."""
    request = SweepRequest(AutoclaimRequest(consumer, 0))
    reply = xautoclaim(store, request, run_id=consumer.decode(), now_ms=NOW_MS + 50)
    assert (reply.counts["claimed"], reply.counts["lost"]) == (len(PENDING), 0)
    return reply.run_seq


def remedies(store: Store) -> list[str]:
    """Return the statements that `check` prints."""
    return [problem.remedy for problem in check(store) if problem.remedy is not None]


def contents(store: Store, table: str) -> list[str]:
    return sorted(str(row) for row in query(store.where, table, "SELECT * FROM t"))


DELETED = "DELETE FROM {table} WHERE run_seq "
RESTORED = "RESTORE TABLE {table} TO VERSION AS OF "


@pytest.mark.parametrize(
    ("swept", "change", "lacks"),
    [
        (BY_DELTA_RS, f"{DELETED}= 3", r"3 \(xautoclaim:c\)"),
        pytest.param(BY_SPARK, f"{DELETED}= 2", r"2 \(xautoclaim:b\)", marks=pytest.mark.long),
        pytest.param(
            BY_SPARK,
            f"{DELETED}> 0",
            r"1 \(xautoclaim:first\) and of 2 more",
            marks=pytest.mark.long,
        ),
        pytest.param(
            BY_DELTA_RS,
            f"{RESTORED}1",
            r"2 \(xautoclaim:b\) and of 1 more",
            marks=pytest.mark.long,
        ),
    ],
    indirect=["swept"],
)
def test_without_a_row_of_runs_writers_refuse_readers_go_on_and_the_printed_statement_repairs_it(
    swept: Store, change: str, lacks: str
) -> None:
    before, groups = contents(swept, "runs"), read_groups(swept)
    execute_sql(swept, "runs", change)
    versions = swept.pin().versions
    says = rf"the table runs of .* lacks the rows of run {lacks}: .*To put them back, run: (.*)$"
    for consumer in (b"b", b"c", b"d"):
        with pytest.raises(MissingRowsError, match=says) as raised:
            claim_all(swept, consumer)
    assert swept.pin().versions == versions, "nothing was written"

    assert read_store(swept).last_seq == 3
    assert xautoclaim(swept, SweepRequest(REQUEST), dry_run=True).counts["refused"] == 0
    assert list_runs(swept, None).unfinished == ()

    (remedy,) = remedies(swept)
    assert re.findall(says, str(raised.value)) == [remedy]
    swept.spark.sql(remedy)
    assert contents(swept, "runs") == before
    assert remedies(swept) == []
    versions = swept.pin().versions
    assert [claim_all(swept, consumer) for consumer in (b"b", b"c")] == [2, 3]
    assert (swept.pin().versions, read_groups(swept)) == (versions, groups), "a repeat does nothing"
    assert claim_all(swept, b"d") == 4
    assert read_groups(swept) != groups


@pytest.mark.long
@pytest.mark.parametrize("swept", [BY_SPARK], indirect=True)
def test_without_the_newest_decisions_writers_refuse_and_the_printed_statements_repair_it(
    swept: Store,
) -> None:
    before = {table: contents(swept, table) for table in TABLES}
    for table in ("journal", "runs"):
        execute_sql(swept, table, f"{DELETED}> 1")
    says = r"the table journal of .* lacks the rows of run 2 and of 1 more: .*INSERT INTO .*journal"
    for consumer in (b"b", b"d"):
        with pytest.raises(MissingRowsError, match=says):
            claim_all(swept, consumer)
    problems = [problem for problem in check(swept) if problem.refuses]
    assert [(problem.table, problem.count, problem.example) for problem in problems] == [
        ("journal", 2, "2"),
        ("runs", 2, "2"),
    ], "rows of these runs are not taken for those of another store"
    for statement in remedies(swept):
        swept.spark.sql(statement)
    assert {table: contents(swept, table) for table in TABLES} == before
    assert [claim_all(swept, consumer) for consumer in (b"b", b"d")] == [2, 4]


@pytest.mark.long
@pytest.mark.parametrize("swept", [BY_DELTA_RS], indirect=True)
def test_after_a_restore_of_the_tables_but_journal_and_runs_the_next_run_changes_what_it_must(
    swept: Store,
) -> None:
    for table, version in find_run(swept, "1").output_versions.items():
        if table != "runs" and swept.version(table) != version:
            execute_sql(swept, table, f"{RESTORED}{version}")
    assert read_groups(swept)[b"s"][b"g"].pending[0].consumer != b"c"
    assert remedies(swept) == []
    assert claim_all(swept, b"d") == 4
    assert {entry.consumer for entry in read_groups(swept)[b"s"][b"g"].pending} == {b"d"}


@pytest.fixture
def twice_read(store: Store) -> Store:
    """A store that has had two snapshots, the second with the run id `b`."""
    for at, run_id in enumerate(("a", "b")):
        batches = stream(b"s", {1: run_id.encode(), 2: b"x"}, {1, 2}, NOW_MS + at)
        snapshot(store, ALL, lambda _, batches=batches: source(batches), run_id=run_id)
    return store


@pytest.mark.parametrize(
    "tables", [("runs",), pytest.param(("journal", "runs"), marks=pytest.mark.long)]
)
def test_a_snapshot_whose_rows_are_missing_is_neither_applied_again_nor_abandoned(
    twice_read: Store, tables: tuple[str, ...]
) -> None:
    before = {table: contents(twice_read, table) for table in TABLES}
    for table in tables:
        execute_sql(twice_read, table, f"{DELETED}= 2")
    third = stream(b"s", {1: b"c", 2: b"x"}, {1, 2}, NOW_MS + 9)
    says = f"the table {tables[0]} of .* lacks the rows of run 2"
    for run_id in ("b", "c"):
        with pytest.raises(MissingRowsError, match=says):
            snapshot(twice_read, ALL, lambda _: source(third), run_id=run_id)
    with pytest.raises(RequestError, match="no unfinished run 2"):
        abandon(twice_read, "2")
    for statement in remedies(twice_read):
        twice_read.spark.sql(statement)
    assert {table: contents(twice_read, table) for table in TABLES} == before
    reply = snapshot(twice_read, ALL, lambda _: source(third), run_id="c")
    assert (reply.run_seq, owners(twice_read)[b"s", 1]) == (3, b"c")


@pytest.mark.long
@pytest.mark.parametrize("swept", [BY_SPARK], indirect=True)
def test_a_row_of_runs_that_no_history_shows_is_an_error_once_nothing_else_is_left_to_do(
    swept: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute_sql(swept, "runs", f"{DELETED}= 3")
    history = swept.logs.history

    def without_runs(table: str, limit: int | None = None) -> Sequence[CommitInfo]:
        return [] if table == "runs" else history(table, limit)

    monkeypatch.setattr(swept.logs, "history", without_runs)
    monkeypatch.setattr(swept.logs, "notes", lambda *_: [])
    before = {table: contents(swept, table) for table in TABLES}
    says = r"lacks the rows of run 3 \(xautoclaim:c\).*restore the table from a backup"
    with pytest.raises(MissingRowsError, match=says):
        claim_all(swept, b"d")
    assert {table: contents(swept, table) for table in TABLES} == before


@pytest.mark.parametrize("swept", [EMBEDDED], indirect=True)
def test_a_run_that_was_killed_before_its_row_of_runs_is_unfinished_and_not_missing(
    swept: Store,
) -> None:
    def die(phase: Phase, _detail: str) -> None:
        if phase is Phase.FINISH:
            raise KeyboardInterrupt

    request = SweepRequest(AutoclaimRequest(b"d", 0))
    with pytest.raises(KeyboardInterrupt):
        xautoclaim(swept, request, run_id="d", now_ms=NOW_MS + 50, progress=die)
    assert list_runs(swept, None).unfinished == ("xautoclaim:d",)
    assert remedies(swept) == []
    assert claim_all(swept, b"e") == 5
    assert [run.run_id for run in list_runs(swept, None).runs] == ["e", "d", "c", "b", "first"]
