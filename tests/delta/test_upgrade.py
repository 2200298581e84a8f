"""A store of the earlier schema version is upgraded, and used by both engines."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from claimlib.commands.check import check
from claimlib.commands.runs import find_run, list_runs
from claimlib.commands.upgrade import upgrade
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.engine.spark import frame_of
from claimlib.errors import (
    CommitConflictError,
    SchemaVersionError,
    StoreNotFoundError,
    UnfinishedRunError,
)
from claimlib.report.store import report_of_upgrade
from claimlib.schema import FIRST_SCHEMA_VERSION, SCHEMA_VERSION, TABLES
from claimlib.semantics.model import AutoclaimRequest
from claimlib.store import lock
from claimlib.store.commits import change_table
from claimlib.store.creation import create
from claimlib.store.definitions import Definitions, FolderDefinitions, SparkDefinitions
from claimlib.store.local import newest
from claimlib.store.opening import open_folder
from claimlib.store.tables import Store
from tests.delta.pels import NOW_MS

EMBEDDED, BY_SPARK = "embedded", "spark"
SWEEP = SweepRequest(AutoclaimRequest(b"carol", 60_000))
ENGINES = pytest.mark.parametrize("engine", [EMBEDDED, BY_SPARK])
SPARK_LATER = pytest.mark.parametrize(
    "engine", [EMBEDDED, pytest.param(BY_SPARK, marks=pytest.mark.long)]
)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Return the folder of a store of schema version 2 with one run, `xautoclaim:first`.

    claimlib 0.1.0 created it before schema version 3, by `init` in Spark, with one bucket.  The
    embedded engine did the sweep.
    """
    with tarfile.open(Path(__file__).with_name("store_of_schema_2.tar.xz")) as archive:
        # Python before 3.11.4 has no filters.
        safe: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(tmp_path, **safe)
    return tmp_path / "store"


def no_session() -> SparkSession:
    raise AssertionError("Spark was started")


def definitions_of(spark: SparkSession, where: Path, engine: str) -> Definitions:
    if engine == BY_SPARK:
        return SparkDefinitions(spark, str(where))
    definitions = FolderDefinitions.find(no_session, str(where))
    assert definitions is not None
    return definitions


def opened(spark: SparkSession, where: Path, engine: str) -> Store:
    if engine == BY_SPARK:
        return Store.open(spark, str(where))
    return open_folder(no_session, str(where), writes=True)


def files_of(where: Path) -> dict[Path, int]:
    """Return the files of a store and when each was written, without the file of the lock."""
    files = (path for path in where.rglob("*") if path.is_file() and path.name != lock.FILE)
    return {path: path.stat().st_mtime_ns for path in files}


def sweep(store: Store, run_id: str) -> int | None:
    return xautoclaim(store, SWEEP, run_id=run_id, now_ms=NOW_MS + 600_000).run_seq


@ENGINES
def test_an_old_store_is_refused_until_it_is_upgraded(
    spark: SparkSession, old: Path, engine: str
) -> None:
    before = files_of(old)
    says = f"has schema version 2; this claimlib works with version 3: run claimlib upgrade {old}"
    with pytest.raises(SchemaVersionError, match=says):
        opened(spark, old, engine)
    with pytest.raises(SchemaVersionError, match=says):
        create(definitions_of(spark, old, engine))
    assert files_of(old) == before


@SPARK_LATER
def test_after_an_upgrade_both_engines_work_on_the_store_and_list_old_and_new_runs(
    spark: SparkSession, old: Path, engine: str
) -> None:
    upgraded = upgrade(definitions_of(spark, old, engine))
    assert (upgraded.tables, upgraded.columns) == (tuple(TABLES), ("runs.engine",))
    assert report_of_upgrade(upgraded).notes[0].endswith("rows of earlier runs: runs.engine")
    other = BY_SPARK if engine == EMBEDDED else EMBEDDED
    assert sweep(opened(spark, old, engine), "second") == 2
    assert sweep(opened(spark, old, other), "third") == 3
    for by in (EMBEDDED, BY_SPARK):
        runs = list_runs(opened(spark, old, by), None).runs
        assert [(run.run_id, run.engine) for run in runs] == [
            ("third", other),
            ("second", engine),
            ("first", None),
        ]
        assert sweep(opened(spark, old, by), "second") == 2, "a repeat"
    assert find_run(opened(spark, old, EMBEDDED), "1").counts["claimed"] == 1

    before = files_of(old)
    again = upgrade(definitions_of(spark, old, engine))
    assert (again.tables, files_of(old)) == ((), before)
    assert report_of_upgrade(again).notes == ("the store is up to date: nothing was changed",)


def test_a_version_from_before_the_upgrade_has_nulls_in_the_columns_that_were_added(
    spark: SparkSession, old: Path
) -> None:
    table = newest(old / "runs")
    assert table is not None
    upgrade(definitions_of(spark, old, EMBEDDED))
    columns = ("run_id", "engine")
    embedded = opened(spark, old, EMBEDDED).relation("runs", table.version).select(*columns)
    assert embedded.collect() == [{"run_id": "first", "engine": None}]
    by_spark = opened(spark, old, BY_SPARK).relation("runs", table.version).select(*columns)
    assert frame_of(by_spark).collect() == [("first", None)]


@SPARK_LATER
def test_the_tables_of_an_upgraded_store_are_defined_as_those_of_a_new_store(
    spark: SparkSession, old: Path, tmp_path: Path, engine: str
) -> None:
    upgrade(definitions_of(spark, old, engine))
    create(definitions_of(spark, tmp_path / "new", EMBEDDED), buckets=1, source="lake")
    for table in TABLES:
        assert definition(old / table) == definition(tmp_path / "new" / table), table


def definition(folder: Path) -> Mapping[str, Any]:
    table = newest(folder)
    assert table is not None
    stated = table.metadata()
    protocol = table._table.protocol()
    return {
        "schema": json.loads(stated["schemaString"]),
        "partition": stated["partitionColumns"],
        "properties": {
            name: value
            for name, value in stated["configuration"].items()
            if name not in {"claimlib.tableId", "claimlib.entriesTableId"}
        },
        "writer": (protocol.min_writer_version, sorted(protocol.writer_features or ())),
        "reader": (protocol.min_reader_version, sorted(protocol.reader_features or ())),
    }


def set_version_of(table: str) -> Callable[[SparkSession, Path], None]:
    def set_version(spark: SparkSession, where: Path) -> None:
        spark.sql(
            f"ALTER TABLE delta.`{where}/{table}`"
            f" SET TBLPROPERTIES ('claimlib.schemaVersion' = '{SCHEMA_VERSION}')"
        )

    return set_version


def add_column(spark: SparkSession, where: Path) -> None:
    spark.sql(f"ALTER TABLE delta.`{where}/runs` ADD COLUMNS (engine STRING)")


@SPARK_LATER
@pytest.mark.parametrize(
    "begin", [set_version_of("streams"), add_column], ids=["a table", "a column"]
)
def test_an_upgrade_that_was_interrupted_is_completed_by_a_repeat(
    spark: SparkSession,
    old: Path,
    engine: str,
    begin: Callable[[SparkSession, Path], None],
) -> None:
    begin(spark, old)
    with pytest.raises(SchemaVersionError, match="run claimlib upgrade"):
        opened(spark, old, engine)
    upgrade(definitions_of(spark, old, engine))
    assert sweep(opened(spark, old, engine), "second") == 2


def forget_the_row_of_runs(where: Path) -> None:
    """Delete the row of `runs`, as if the run was killed before it wrote the row."""
    (where / "runs" / "_delta_log" / f"{1:020d}.json").unlink()


@SPARK_LATER
def test_an_upgrade_is_refused_while_a_run_is_unfinished(
    spark: SparkSession, old: Path, engine: str
) -> None:
    forget_the_row_of_runs(old)
    before = files_of(old)
    says = (
        r"run 1 \(xautoclaim:first\) is unfinished, so nothing was upgraded\. Finish it with the"
        r" version of claimlib that has decided it: claimlib xautoclaim … --run-id first\. Then run"
        f" claimlib upgrade {old} again"
    )
    with pytest.raises(UnfinishedRunError, match=says):
        upgrade(definitions_of(spark, old, engine))
    assert files_of(old) == before


def test_an_upgrade_that_has_begun_is_completed_and_the_next_run_finishes_an_unfinished_run(
    spark: SparkSession, old: Path
) -> None:
    forget_the_row_of_runs(old)
    set_version_of("streams")(spark, old)
    upgrade(definitions_of(spark, old, EMBEDDED))
    store = opened(spark, old, EMBEDDED)
    assert list_runs(store, None).unfinished == ("xautoclaim:first",)
    assert sweep(store, "second") == 2
    assert [run.engine for run in list_runs(store, None).runs] == [EMBEDDED, EMBEDDED]


def test_of_two_writers_of_a_definition_at_once_one_is_refused(old: Path) -> None:
    runs = newest(old / "runs")
    assert runs is not None
    change_table(old / "runs", runs, [], {"claimlib.schemaVersion": "3"})
    before = files_of(old)
    with pytest.raises(CommitConflictError, match="another writer changed runs"):
        change_table(old / "runs", runs, [], {"claimlib.schemaVersion": "4"})
    assert files_of(old) == before


@pytest.mark.long
def test_rows_of_runs_that_an_earlier_version_wrote_are_put_back_by_the_printed_statement(
    spark: SparkSession, old: Path
) -> None:
    upgrade(definitions_of(spark, old, BY_SPARK))
    spark.sql(f"DELETE FROM delta.`{old}/runs` WHERE run_seq = 1")
    store = opened(spark, old, BY_SPARK)
    (remedy,) = [problem.remedy for problem in check(store) if problem.remedy is not None]
    spark.sql(remedy)
    assert [(run.run_id, run.engine) for run in list_runs(store, None).runs] == [("first", None)]


@ENGINES
def test_a_missing_store_and_one_of_another_version_are_refused(
    spark: SparkSession, old: Path, tmp_path: Path, engine: str
) -> None:
    with pytest.raises(StoreNotFoundError, match="create it with: claimlib init"):
        upgrade(definitions_of(spark, tmp_path / "none", engine))
    assert not (tmp_path / "none").exists()
    spark.sql(f"ALTER TABLE delta.`{old}/runs` SET TBLPROPERTIES ('claimlib.schemaVersion' = '1')")
    with pytest.raises(SchemaVersionError, match=r"runs of .* version 1; .*use the"):
        upgrade(definitions_of(spark, old, engine))


def test_a_column_that_was_added_may_hold_null_and_stands_last() -> None:
    for table in TABLES.values():
        added = table.added_since(FIRST_SCHEMA_VERSION)
        assert all(column.nullable and column.generated_as is None for column in added)
        assert list(table.columns[len(table.columns) - len(added) :]) == added
