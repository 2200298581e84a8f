"""A store is opened only if it is what this version works with, and says what is wrong."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from claimlib.commands import stores
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.errors import (
    ConfigError,
    SchemaError,
    SchemaVersionError,
    StoreExistsError,
    StoreIncompleteError,
    StoreNotFoundError,
)
from claimlib.local_rows import divided_frame, local_frame
from claimlib.report.sweep_report import report_of_reply
from claimlib.schema import ENTRIES_ID_PROPERTY, TABLES
from claimlib.store.creation import Creation, create, init_sql
from claimlib.store.definitions import SparkDefinitions
from claimlib.store.location import Location
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.pels import NOW_MS, REQUEST, keyspace
from tests.delta.reading import count
from tests.writing import append_rows, execute_sql


@pytest.fixture
def store(spark_store: Store) -> Store:
    """A new store, open in Spark."""
    return spark_store


def create_by_spark(spark: SparkSession, where: str, *, accept_replaced: bool = False) -> Creation:
    return create(SparkDefinitions(spark, where), accept_replaced=accept_replaced)


def test_a_store_that_is_not_there_is_named_with_the_command_that_makes_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(StoreNotFoundError, match="claimlib init /"):
        Store.open(spark, f"{tmp_path}/none")
    with pytest.raises(StoreNotFoundError, match=r"nobody\.nothing"):
        Store.open(spark, "nobody.nothing")


def test_a_store_that_lacks_a_table_names_it_and_init_completes_it(
    spark: SparkSession, store_path: Path
) -> None:
    shutil.rmtree(store_path / "tombstones")
    with pytest.raises(StoreIncompleteError, match="tombstones") as raised:
        Store.open(spark, str(store_path))
    assert raised.value.missing == ["tombstones"]
    assert Store.init(spark, str(store_path)).version("tombstones") == 0
    with pytest.raises(StoreExistsError, match="8 buckets"):
        Store.init(spark, str(store_path), buckets=4)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (
            "ALTER TABLE {tombstones} SET TBLPROPERTIES ('claimlib.schemaVersion' = '1')",
            SchemaVersionError,
            "tombstones .* has schema version 1",
        ),
        (
            "ALTER TABLE {streams} SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
            SchemaError,
            "table streams .* is append-only",
        ),
    ],
)
def test_init_refuses_a_store_before_it_changes_it(
    spark: SparkSession, store: Store, change: str, error: type[Exception], says: str
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    spark.sql(change.format(**{name: store.identifier(name) for name in TABLES}))
    shutil.rmtree(Path(store.where, "entries"))
    before = store.read("streams").collect()
    with pytest.raises(error, match=says):
        Store.init(spark, store.where, buckets=store.buckets)
    assert store.read("streams").collect() == before
    assert not Path(store.where, "entries").exists()


@pytest.mark.long
def test_a_store_whose_streams_do_not_say_which_entries_they_are_about_is_opened(
    spark: SparkSession, store: Store
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    name = store.identifier("streams")
    spark.sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES ('{ENTRIES_ID_PROPERTY}')")
    again = Store.open(spark, store.where)
    assert xautoclaim(again, SweepRequest(REQUEST), dry_run=True).counts["refused"] == 0
    bound = Store.init(spark, store.where, buckets=store.buckets)
    rows = spark.sql(f"SHOW TBLPROPERTIES {name} ('{ENTRIES_ID_PROPERTY}')").collect()
    assert [row["value"] for row in rows] == [bound.table_ids["entries"]], "init has them say it"
    spark.sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES ('{ENTRIES_ID_PROPERTY}')")
    shutil.rmtree(Path(store.where, "entries"))
    without = Store.init(spark, store.where, buckets=store.buckets)
    assert xautoclaim(without, SweepRequest(REQUEST), dry_run=True).counts["refused"] == 1


def test_a_table_tells_its_version_also_where_no_error_says_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = [column.name for column in TABLES["cursors"].written]
    append_rows(store, "cursors", store.rows("cursors", [("c", "s", "g", 0, 0, 0)], columns))
    newest = store.logs.history("cursors")[0]["version"]
    assert newest > 0
    assert store.version("cursors") == newest
    monkeypatch.setattr("claimlib.store.delta_errors._LATEST", re.compile("nothing says so"))
    assert store.version("cursors") == newest


def test_a_store_of_another_schema_version_is_refused(
    spark: SparkSession, store_path: Path
) -> None:
    table = Location.parse(str(store_path)).identifier("runs")
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('claimlib.schemaVersion' = '99')")
    with pytest.raises(SchemaVersionError, match="schema version 99"):
        Store.open(spark, str(store_path))


@pytest.mark.parametrize(
    ("change", "column", "says"),
    [
        ("delivery_count INT NOT NULL", "delivery_count", "is int, but must be bigint: change"),
        ("delivery_count BIGINT", "delivery_count", "may hold null"),
        ("", "delivery_count", "has no column delivery_count"),
    ],
)
def test_a_column_that_is_missing_mistyped_or_may_be_null_is_named(
    spark: SparkSession, store_path: Path, change: str, column: str, says: str
) -> None:
    shutil.rmtree(store_path / "pending")
    statement = dict(zip(TABLES, init_sql(str(store_path), buckets=8), strict=True))["pending"]
    own = "delivery_count BIGINT NOT NULL,\n"
    assert own in statement
    changed = statement.replace(own, f"{change},\n" if change else "")
    spark.sql(changed.replace(",delivery_count,", ",") if not change else changed)
    with pytest.raises(SchemaError, match=says) as raised:
        Store.open(spark, str(store_path))
    assert (raised.value.table, raised.value.column) == ("pending", column)


def test_a_sweep_of_an_empty_store_does_nothing_and_is_a_run(store: Store) -> None:
    reply = xautoclaim(store, SweepRequest(REQUEST))
    assert reply.counts == dict.fromkeys(reply.counts, 0)
    assert count(store.where, "runs") == 1
    assert (
        report_of_reply(reply)
        .notes[0]
        .startswith("No consumer group of the store matches the request")
    )


def test_a_statement_that_delta_passes_over_by_a_setting_of_the_session_is_an_error(
    store: Store,
) -> None:
    row = ("c", "s", "g", 1, 0, 0)
    append_rows(store, "cursors", store.rows("cursors", [row], TABLES["cursors"].struct.names))
    settings = {f"spark.databricks.delta.write.txn{name}": "1" for name in ("AppId", "Version")}
    raised = "UPDATE {table} SET next_ms = next_ms + 1"
    for name, value in settings.items():
        store.spark.conf.set(name, value)
    try:
        assert execute_sql(store, "cursors", raised)["num_affected_rows"] == 1
        with pytest.raises(ConfigError, match=r"passed over a statement on cursors.*Unset both"):
            execute_sql(store, "cursors", raised)
    finally:
        for name in settings:
            store.spark.conf.unset(name)
    assert [cursor["next_ms"] for cursor in store.read("cursors").collect()] == [2]


def test_no_local_relation_has_more_bytes_than_serverless_compute_takes(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["x" * 20] * 90 + ["x" * 200] * 10  # the last ones weigh more
    rows = pa.table({"id": list(range(100)), "text": texts})
    monkeypatch.setattr("claimlib.local_rows.LOCAL_DATA_BYTES", 500)
    sizes = []
    make = type(spark).createDataFrame

    def weighed(self: SparkSession, part: pa.Table, struct: object) -> DataFrame:
        sizes.append(part.nbytes)
        return make(self, part, struct)

    monkeypatch.setattr(type(spark), "createDataFrame", weighed)
    frame = local_frame(spark, rows)
    assert frame.toArrow().sort_by("id").to_pylist() == rows.to_pylist()
    assert max(sizes) <= 500
    assert len(sizes) > 5
    assert local_frame(spark, rows.slice(0, 0), frame.schema).toArrow().num_rows == 0
    monkeypatch.setattr("claimlib.local_rows.LOCAL_DATA_BYTES", 1)  # less than a row
    assert local_frame(spark, rows.slice(0, 3)).count() == 3


@pytest.mark.parametrize("way", ["rows", "lists", "its own way"])
def test_rows_behind_a_batch_without_rows_are_not_lost(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """As a filter leaves one, and delta-rs where a deletion vector hides it."""
    monkeypatch.setattr("claimlib.local_rows._MANY_ROWS", 10 if way == "rows" else 1)
    if way == "its own way":
        monkeypatch.setattr("claimlib.local_rows.LISTS_BYTES", 0)
    parts = [[], [1, 2], [], [], [3], [4], []]
    batches = [pa.record_batch([pa.array(ids, pa.int64())], ["id"]) for ids in parts]
    frame = local_frame(spark, pa.Table.from_batches(batches))
    assert sorted(row["id"] for row in frame.collect()) == [1, 2, 3, 4]
    assert frame.count() == 4


@pytest.mark.parametrize("number", [499, 500, 501, 20_000, 20_001])
def test_many_rows_of_this_process_are_the_same_rows_and_few_for_the_optimizer(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: int,
) -> None:
    """Each of its rules walks over all rows of a local relation."""

    def explained(frame: DataFrame) -> str:
        capsys.readouterr()
        frame.explain(extended=True)
        return capsys.readouterr().out

    ids = range(number)
    rows = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "text": [None if id_ % 3 == 0 else f"text {id_}" for id_ in ids],
            "fields": pa.array(
                [None if id_ % 5 == 0 else [{"name": b"\xff", "value": None}] for id_ in ids],
                pa.list_(pa.struct([("name", pa.binary()), ("value", pa.binary())])),
            ),
            "counts": pa.array(
                [None if id_ % 7 == 0 else [("lost", id_)] for id_ in ids],
                pa.map_(pa.string(), pa.int64()),
            ),
        }
    )
    frame = local_frame(spark, rows)
    read = frame.toArrow().sort_by("id")
    assert read.to_pylist() == rows.to_pylist()
    assert frame.columns == rows.column_names
    assert local_frame(spark, rows, frame.schema).schema == frame.schema
    assert ("inline" in explained(frame)) == (number >= 500)
    monkeypatch.setattr("claimlib.local_rows.LOCAL_DATA_BYTES", rows.nbytes // 3)
    assert local_frame(spark, rows).toArrow().sort_by("id").to_pylist() == rows.to_pylist()
    monkeypatch.setattr("claimlib.local_rows.LISTS_BYTES", 1_000)
    assert "inline" not in explained(local_frame(spark, rows))


@pytest.mark.classic
@pytest.mark.parametrize(("name", "most"), [("_TASK_ROWS", 24_999), ("_TASK_BYTES", 1_000)])
def test_one_task_is_sent_the_rows_of_the_driver_only_where_they_are_few(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str, most: int
) -> None:
    """Those of a million groups in one task took more memory than 4 GiB, and the command hung."""
    rows = pa.table({"id": list(range(25_000))})
    assert divided_frame(spark, rows).rdd.getNumPartitions() == 1
    monkeypatch.setattr(f"claimlib.local_rows.{name}", most)
    frame = divided_frame(spark, rows)
    assert frame.rdd.getNumPartitions() > 1
    assert frame.count() == 25_000


def test_fewer_rows_are_fetched_if_spark_reads_them(store: Store) -> None:
    """Spark has to be sent them again with each plan that is made of them."""
    for number, are_few in ((10_001, False), (10_000, True)):
        rows = store.relation_of(store.spark.range(number))
        assert rows.reused().is_in_memory == are_few


def test_a_store_is_made_opened_and_upgraded_by_a_path_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "reads_paths_as_local_folders", lambda *_: True)
    where = tmp_path / "store"
    assert stores.init(where).where == stores.open_store(where).where == str(where)
    assert stores.upgrade(where).columns == ()
