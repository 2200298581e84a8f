"""A small table in a local folder is read without Spark, and to the row as Spark reads it."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from claimlib.commands.runs import find_run
from claimlib.commands.xack import NamedAck, xack
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.engine.relation import IdBounds
from claimlib.schema import TABLE_ID_PROPERTY, TABLES
from claimlib.semantics.ids import StreamId
from claimlib.store import local as local_delta
from claimlib.store.local import Condition
from claimlib.store.logs import Logs
from claimlib.store.lookups import find, numbers
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.own_rows import append, pending_row
from tests.delta.pels import CLAIMED, NOW_MS, REQUEST, keyspace
from tests.delta.queries import last_query
from tests.limits import set_limits
from tests.writing import append_rows, execute_sql

# Over Spark Connect a path may be on another machine: there Spark reads all.
pytestmark = pytest.mark.classic

HOSTILE = "a b#c'd é;x=1"


@pytest.fixture
def store(spark_store: Store) -> Store:
    """A new store, open in Spark."""
    return spark_store


def swept(spark: SparkSession, where: Path) -> Store:
    store = Store.init(spark, str(where))
    write_keyspace(store, keyspace(b"s", b"it's \\ 'quoted'"), NOW_MS)
    xautoclaim(store, SweepRequest(REQUEST), run_id="it's the first")
    return store


@pytest.fixture(scope="module")
def module_store(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Store:
    return swept(spark, tmp_path_factory.mktemp("local") / HOSTILE)


def by_spark(store: Store, table: str) -> DataFrame:
    return store.spark.read.format("delta").load(f"{store.where}/{table}")


@pytest.mark.parametrize("table", TABLES)
def test_each_table_has_the_rows_types_and_nulls_that_spark_reads_even_in_a_hostile_path(
    module_store: Store, table: str
) -> None:
    before = last_query(module_store.spark)
    by_files = find(module_store, table)
    relation = module_store.relation(table)
    stated, types = relation.collect(), relation.types
    assert last_query(module_store.spark) == before, "it was not read by Spark"
    expected = by_spark(module_store, table)
    assert types == dict(expected.dtypes)
    rows = as_texts(row.asDict(recursive=True) for row in expected.collect())
    for records in (by_files, stated):
        assert as_texts(records) == rows


def as_texts(records: Iterable[dict[str, Any]]) -> list[str]:
    """Return rows as sorted texts, with maps in the order of their keys."""
    return sorted(json.dumps(record, sort_keys=True, default=repr) for record in records)


@pytest.mark.long
@pytest.mark.parametrize("name", ["a%20b", pytest.param("a[b]{c}", marks=pytest.mark.long)])
def test_a_path_that_one_of_the_readers_takes_for_another_is_left_to_spark(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    swept(spark, tmp_path / "a b")
    store = Store.init(spark, str(tmp_path / name))
    assert numbers(store, "runs", "run_seq").to_pylist() == []
    assert not store.logs.is_small("runs")
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    assert xautoclaim(store, SweepRequest(REQUEST)).counts["claimed"] == CLAIMED


def test_opening_a_store_and_looking_at_its_runs_takes_no_query(module_store: Store) -> None:
    before = last_query(module_store.spark)
    store = Store.open(module_store.spark, module_store.where)
    pins = store.pin()
    assert numbers(store, "runs", "run_seq").to_pylist() == [1]
    (run,) = find(store, "runs", Condition("run_id", "it's the first"))
    assert run["counts"]["claimed"] == 2 * CLAIMED
    assert not find(store, "runs", Condition("run_seq", 1, is_above=True))
    journal = store.relation("journal").where("run_seq = 1")
    number = journal.count()
    # One, because the folder of this store has a name that is not ASCII.
    assert last_query(module_store.spark) <= before + 1
    assert number == by_spark(store, "journal").count()
    assert pins.versions == {
        table: int(store.logs.history(table, 1)[0]["version"]) for table in TABLES
    }


def pending_ids(store: Store) -> list[int]:
    return sorted(row["id_ms"] for row in find(store, "pending"))


def test_a_table_is_opened_again_only_after_a_commit(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    opened: list[Path] = []
    open_anew = local_delta._opened
    monkeypatch.setattr(
        local_delta, "_opened", lambda folder: opened.append(folder) or open_anew(folder)
    )
    first = [find(store, "pending") for _ in range(2)]
    assert [folder.name for folder in opened] == ["pending"]
    append(store, "pending", pending_row("t", id_ms=77))
    assert len(find(store, "pending")) == len(first[0]) + 1
    assert [folder.name for folder in opened] == ["pending", "pending"]


@pytest.mark.parametrize("writer", ["delta-rs", "Spark", "another store"])
def test_who_has_looked_at_a_table_sees_each_commit_of_others_at_once(
    store: Store, writer: str
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    before = store.version("pending"), pending_ids(store)
    if writer == "delta-rs":
        DeltaTable(Path(store.where, "pending")).delete("id_ms = 3")
    elif writer == "Spark":
        execute_sql(store, "pending", "DELETE FROM {table} WHERE id_ms = 3")
    else:
        other = Store.open(store.spark, store.where)
        other.writer.delete("pending", Condition("id_ms", 3))
    assert store.version("pending") == before[0] + 1
    assert pending_ids(store) == [id_ms for id_ms in before[1] if id_ms != 3]


def test_a_table_that_was_made_again_is_not_taken_for_the_one_that_was_looked_at(
    store: Store, tmp_path: Path
) -> None:
    """It has as many versions, the same properties, and other rows."""
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    folder = Path(store.where, "pending")
    aside = shutil.copytree(folder, tmp_path / "aside")
    append(store, "pending", pending_row("s", id_ms=77))
    version = store.version("pending")
    assert 77 in pending_ids(store)
    shutil.rmtree(folder)
    shutil.move(aside, folder)
    append(Store.open(store.spark, store.where), "pending", pending_row("s", id_ms=78))
    assert store.version("pending") == version
    assert 78 in pending_ids(store)
    assert 77 not in pending_ids(store)


def test_a_table_that_is_made_again_while_it_is_opened_is_opened_once_more(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    other = shutil.copytree(store.where, tmp_path / "other")
    append(store, "pending", pending_row("s", id_ms=77))
    rows = (pending_row("s", id_ms) for id_ms in (78, 79))
    append(Store.open(store.spark, str(other)), "pending", *rows)
    number = len(pending_ids(store))
    store = Store.open(store.spark, store.where)
    open_anew = local_delta._opened

    def opened(folder: Path) -> local_delta.LocalTable | None:
        local = open_anew(folder)
        monkeypatch.undo()
        shutil.rmtree(folder)
        shutil.move(Path(other, "pending"), folder)
        return local

    def small(most: int) -> bool:
        local = store.logs.local("pending")
        assert local is not None
        return local.is_small(most)

    monkeypatch.setattr(local_delta, "_opened", opened)
    assert [small(number), small(number)] == [True, False]
    assert 78 in pending_ids(store)
    assert 77 not in pending_ids(store)


def test_rows_that_a_deletion_vector_hides_are_not_read(store: Store) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    execute_sql(store, "entries", "DELETE FROM {table} WHERE id_ms IN (1, 2)")
    (file,) = Path(store.where, "entries").rglob("deletion_vector*.bin")
    assert file.is_file()
    for rows in (find(store, "entries"), store.relation("entries").collect()):
        assert sorted(row["id_ms"] for row in rows) == [3, 5, 6, 7, 8, 9, 10]


def test_rows_behind_a_stretch_that_a_deletion_vector_hides_are_read_and_kept(
    store: Store,
) -> None:
    """Of the stretch delta-rs gives batches without rows, and Spark's `createDataFrame` takes no
    row of an Arrow table that is behind an empty batch."""
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    (row,) = store.read("pending").where("id_ms = 1").collect()
    state = {name: value for name, value in row.asDict().items() if name != "id_ms"}
    execute_sql(store, "pending", "DELETE FROM {table}")
    numbers = store.spark.range(1, 30_001, 1, 1).withColumnRenamed("id", "id_ms")
    same = {name: F.lit(state[name]) for name in state if not name.endswith("_key")}
    append_rows(store, "pending", numbers.withColumns(same).drop("bucket"))
    execute_sql(store, "pending", "DELETE FROM {table} WHERE id_ms BETWEEN 51 AND 29950")
    left = {*range(1, 51), *range(29_951, 30_001)}
    assert {row["id_ms"] for row in find(store, "pending")} == left
    acked = xack(store, [NamedAck(b"s", b"g", (StreamId(1, 0), StreamId(30_000, 0)))])
    assert acked.counts["acked"] == 2
    kept = {row["id_ms"] for row in store.read("pending").select("id_ms").collect()}
    assert kept == left - {1, 30_000}


@pytest.mark.long
def test_a_limit_of_rows_counts_those_that_no_deletion_vector_hides(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    set_limits(monkeypatch, session_rows=5)
    of_nobody = Condition("run_seq", 0)
    for ids, left in (((1, 2, 3), 7), ((4, 5), 5)):
        execute_sql(store, "pending", f"DELETE FROM {{table}} WHERE id_ms IN {ids}")
        assert [*Path(store.where, "pending").rglob("deletion_vector*.bin")]
        local = local_delta.newest(Path(store.where, "pending"))
        assert local is not None
        assert (local.rows(5, of_nobody) is not None) == (left <= 5)
        assert len(find(store, "pending", of_nobody)) == left
    execute_sql(store, "pending", "DELETE FROM {table} WHERE id_ms = 10")
    assert sorted(numbers(store, "pending", "id_ms").to_pylist()) == [6, 7, 8, 9]


@pytest.mark.long
def test_of_a_large_table_the_rows_within_bounds_are_those_that_spark_reads(store: Store) -> None:
    """Files of many row groups, of which some are skipped, and rows that deletion vectors hide,
    which know a row by its place in the file."""
    hadoop, size = store.spark._jsc.hadoopConfiguration(), "parquet.block.size"
    hadoop.setInt(size, 20_000)
    numbers = store.spark.range(0, 60_000, 1, 1)
    state = {"delivery_time_ms": NOW_MS, "delivery_count": 1, "id_seq": 0, "run_seq": 0}
    rows = numbers.selectExpr(
        *("'s' AS stream", "'g' AS consumer_group", "id AS id_ms", "concat('c', id) AS consumer"),
        *(f"{value}L AS {name}" for name, value in state.items()),
    )
    try:
        append_rows(store, "pending", rows.sortWithinPartitions("id_ms"))
    finally:
        hadoop.unset(size)
    hidden = "id_ms % 7 = 0 OR id_ms BETWEEN 30000 AND 31000"
    execute_sql(store, "pending", f"DELETE FROM {{table}} WHERE {hidden}")
    assert [*Path(store.where, "pending").rglob("deletion_vector*.bin")]
    (file,) = Path(store.where, "pending").rglob("*.parquet")
    assert pq.ParquetFile(file).num_row_groups > 10
    pinned = store.version("pending")
    pending, by_us = store.read("pending"), store.relation("pending", pinned)
    (number,) = {row["bucket"] for row in pending.select("bucket").distinct().collect()}
    ranges = [(0, 9), (5, 4_000), (29_990, 31_010), (41_000, 59_999), (60_000, 70_000)]
    bounds = {ends: IdBounds(((number, *ends),)) for ends in ranges}
    before = last_query(store.spark)
    fetched = {ends: by_us.within(bounds[ends]).order_by("id_ms").collect() for ends in ranges}
    assert last_query(store.spark) == before
    for (low, high), rows in fetched.items():
        within = pending.where(f"id_ms BETWEEN {low} AND {high}").orderBy("id_ms")
        assert rows == [row.asDict() for row in within.collect()]
    # What was pinned stays what it was, whoever has written since.
    execute_sql(store, "pending", "DELETE FROM {table} WHERE id_ms < 5")
    assert by_us.within(bounds[0, 9]).count() == 8


@pytest.mark.parametrize("panic", ["PanicException", "KeyboardInterrupt"])
def test_a_panic_of_delta_rs_is_left_to_spark_and_an_interrupt_is_not(
    store: Store, monkeypatch: pytest.MonkeyPatch, panic: str
) -> None:
    raised = type(panic, (BaseException,), {})

    def break_down(*_arguments: object) -> None:
        raise raised

    monkeypatch.setattr("deltalake.DeltaTable.get_add_actions", break_down)
    if panic == "PanicException":
        assert not store.logs.is_small("pending")
        assert store.read("pending").count() == 0
    else:
        with pytest.raises(raised):
            store.logs.is_small("pending")


@pytest.mark.long
def test_a_table_of_many_rows_or_bytes_is_left_to_spark(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    assert store.logs.is_small("pending")
    set_limits(monkeypatch, session_rows=9)
    assert not store.logs.is_small("pending")
    monkeypatch.undo()
    set_limits(monkeypatch, table_bytes=100)
    assert not store.logs.is_small("pending")
    monkeypatch.undo()
    set_limits(monkeypatch, unpacked_bytes=100)
    local = local_delta.newest(Path(store.where, "pending"))
    assert local is not None
    assert local.rows(100) is None
    assert len(find(store, "pending")) == 10


@pytest.mark.long
def test_a_table_of_many_files_is_left_to_spark(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    statement = "ALTER TABLE {} SET TBLPROPERTIES ('delta.checkpointInterval' = '2')"
    store.spark.sql(statement.format(store.identifier("pending")))
    for id_ms in range(1, 5):
        append(store, "pending", pending_row("s", id_ms))
    assert store.logs.is_small("pending")
    set_limits(monkeypatch, table_files=1)
    again = Store.open(store.spark, store.where)
    assert not again.logs.is_small("pending")
    assert again.version("pending") == 5
    assert len(find(again, "pending")) == 4


def test_the_types_that_are_read_so_are_those_of_a_store(module_store: Store) -> None:
    structs = (module_store.read(table).schema for table in TABLES)
    types = {column.dataType.simpleString() for struct in structs for column in struct.fields}
    assert types == local_delta.TYPES
    for table in TABLES.values():
        for column in table.columns:
            assert column.simple_type == DataType.fromDDL(column.type).simpleString()


@pytest.mark.long
def test_a_table_with_a_column_of_a_user_s_own_type_is_left_to_spark(store: Store) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    for column in ("note STRING", "seen TIMESTAMP"):
        store.spark.sql(f"ALTER TABLE {store.identifier('consumers')} ADD COLUMNS ({column})")
        (consumer,) = find(store, "consumers")
        assert consumer["consumer"]
    assert xautoclaim(store, SweepRequest(REQUEST)).counts["claimed"] == CLAIMED
    assert store.read("consumers").count() == 2


def test_another_table_in_the_place_of_one_that_was_opened_is_left_to_spark(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    other = Store.init(spark, str(tmp_path / "other"))
    append(other, "pending", pending_row("s", 1))
    place = Path(store.where, "pending")
    place.rename(tmp_path / "kept")
    Path(other.where, "pending").rename(place)
    properties = DeltaTable(str(place)).metadata().configuration
    assert properties[TABLE_ID_PROPERTY] != store.pin(["streams"]).table_ids["pending"]
    assert not store.logs.is_small("pending")
    assert len(find(store, "pending")) == 1


@pytest.mark.long
@pytest.mark.parametrize("broken", ["not installed", "cannot be read"])
def test_without_delta_rs_spark_reads_all(
    store: Store, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    if broken == "not installed":
        monkeypatch.setitem(sys.modules, "deltalake", None)
    else:
        monkeypatch.setattr("deltalake.DeltaTable.__init__", _raise)
    opened = Store.open(store.spark, store.where)
    assert not opened.logs.is_small("pending")
    assert max(numbers(opened, "pending", "id_ms").to_pylist()) == 10
    assert [row["id_ms"] for row in find(opened, "pending", Condition("id_ms", 9, True))] == [10]


@pytest.mark.long
def test_a_sweep_decides_the_same_whoever_reads_small_tables(
    module_store: Store, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Logs, "local", lambda _self, _table: None)
    write_keyspace(store, keyspace(b"s", b"it's \\ 'quoted'"), NOW_MS)
    by_spark = xautoclaim(store, SweepRequest(REQUEST))
    monkeypatch.undo()
    expected = find_run(module_store, "1").counts
    assert {name: expected[name] for name in by_spark.counts} == by_spark.counts
    for table in ("pending", "tombstones", "consumers"):
        rows, others = (
            sorted(map(str, either.read(table).collect())) for either in (store, module_store)
        )
        assert rows == others


def _raise(*_arguments: object, **_options: object) -> None:
    raise OSError("the log cannot be read")
