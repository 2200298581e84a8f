"""The embedded engine reads the tables that Spark has written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from claimlib.commands.xpending import pending_overview, read_store
from claimlib.engine.embedded import EmbeddedEngine
from claimlib.engine.relation import Relation, TableScan
from claimlib.engine.spark import SparkEngine
from claimlib.errors import VersionExpiredError
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import Group
from claimlib.semantics.words import Stream
from claimlib.store.opening import open_folder
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace

COLUMNS = ("id", "bucket", "name", "more")
ROWS = "SELECT id, id % 3 AS bucket, concat('n', id) AS name FROM range(0, {}, 1, 1)"


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table of buckets: rows are added, deleted, updated, and get a column."""
    folder = tmp_path_factory.mktemp("tables")
    place = f"delta.`{folder}/t`"
    spark.sql(
        f"CREATE TABLE {place} (id BIGINT, bucket INT, name STRING) USING delta"
        " PARTITIONED BY (bucket) TBLPROPERTIES (delta.enableDeletionVectors = true)"
    )
    spark.sql(f"INSERT INTO {place} (id, bucket, name) {ROWS.format(30)}")  # version 1
    spark.sql(f"DELETE FROM {place} WHERE id IN (4, 7, 29)")
    spark.sql(f"UPDATE {place} SET name = 'new' WHERE id = 5")
    spark.sql(f"ALTER TABLE {place} ADD COLUMN more MAP<STRING, BIGINT>")
    spark.sql(f"INSERT INTO {place} VALUES (100, 1, NULL, map('a', 1L))")  # version 5
    return folder


def rows_of(folder: Path, version: int | None = None) -> list[dict[str, object]]:
    columns = COLUMNS if version is None or version > 3 else COLUMNS[:3]
    scan = Relation(EmbeddedEngine(folder), TableScan("t", version, columns))
    return scan.order_by("id").collect()


def read_by_spark(spark: SparkSession, folder: Path, version: int) -> list[dict[str, object]]:
    text = f"SELECT * FROM delta.`{folder}/t` VERSION AS OF {version} ORDER BY id"
    return [row.asDict() for row in spark.sql(text).collect()]


@pytest.mark.parametrize("version", range(6))
def test_each_version_has_the_rows_that_spark_reads(
    spark: SparkSession, folder: Path, version: int
) -> None:
    rows = rows_of(folder, version)
    assert rows == read_by_spark(spark, folder, version)
    assert len(rows) == (0, 30, 27, 27, 27, 28)[version]


def test_the_files_have_deletion_vectors(folder: Path) -> None:
    assert list((folder / "t").rglob("deletion_vector*.bin"))


@pytest.mark.parametrize("name", ["a [b]*?c", "bucket=7", "it's 100 %", "ö\u00a0x", "a{b,c}"])
def test_a_folder_may_have_any_name(folder: Path, tmp_path: Path, name: str) -> None:
    copy = shutil.copytree(folder, tmp_path / name)
    assert rows_of(copy) == rows_of(folder)


def test_deleted_rows_are_not_read_if_a_folder_is_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    assert rows_of(tmp_path / "link") == rows_of(folder)


def test_a_store_whose_files_have_other_names_for_columns_is_read_by_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    mapping = "spark.databricks.delta.properties.defaults.columnMapping.mode"
    spark.conf.set(mapping, "name")
    try:
        store = Store.init(spark, str(tmp_path / "store"))
    finally:
        spark.conf.unset(mapping)
    write_keyspace(store, {b"s": Stream({}, {b"g": Group(StreamId(9, 0), (), ())})}, 1)
    opened = open_folder(lambda: spark, store.where)
    assert [row["stream"] for row in pending_overview(read_store(opened)).collect()] == ["s"]
    assert isinstance(opened.engine, SparkEngine)


def test_the_newest_rows_are_read_each_time(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    newest = Relation(EmbeddedEngine(copy), TableScan("t", None, COLUMNS))
    before = newest.count()
    spark.sql(f"DELETE FROM delta.`{copy}/t` WHERE id < 10")
    assert newest.count() == before - 8


def test_a_version_whose_files_are_gone_is_refused(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    with pytest.raises(VersionExpiredError, match="version 9 of t can no longer be read"):
        rows_of(copy, 9)
    spark.sql(f"DELETE FROM delta.`{copy}/t`")
    for file in (copy / "t").rglob("part-*.parquet"):
        file.unlink()
    with pytest.raises(VersionExpiredError, match="version 5 of t can no longer be read"):
        rows_of(copy, 5)
    assert rows_of(copy) == []
