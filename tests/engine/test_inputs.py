"""Test that both engines read given tables alike, and which tables only Spark reads."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from claimlib.engine.embedded import EmbeddedEngine
from claimlib.engine.embedded_inputs import why_spark
from claimlib.engine.relation import Executor, Relation, union_all
from claimlib.errors import InputError, RequestError

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def opened(engine: Executor, place: Path) -> Relation:
    return Relation(engine, engine.open_input(str(place)).node)


def written(file: Path, **columns: pa.Array | list[object]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), file)


# The folders, and the types and the values of their partition columns.
FOLDERS: Mapping[str, tuple[list[str], list[str], list[tuple[object, ...]]]] = {
    "numbers": (["n=7", "n=-05", f"n={NO_VALUE}"], ["int"], [(7,), (-5,), (None,)]),
    "large numbers": (["n=7", f"n={2**40}"], ["bigint"], [(7,), (2**40,)]),
    "days": (
        ["n=2026-01-31", "n=1969-12-31"],
        ["date"],
        [(date(2026, 1, 31),), (date(1969, 12, 31),)],
    ),
    "names": (["n=x%3Ay", "n=é b", f"n={NO_VALUE}"], ["string"], [("x:y",), ("é b",), (None,)]),
    "names and numbers": (["n=7", "n=x"], ["string"], [("7",), ("x",)]),
    "no values": ([f"n={NO_VALUE}"], ["void"], [(None,)]),
    "two columns": (["n=1/m=a", "n=1/m=b"], ["int", "string"], [(1, "a"), (1, "b")]),
    "other folders in them": (["n=1/x", "n=2/y"], ["int"], [(1,), (2,)]),
    "a folder above": (["top/n=1", "top/n=2"], ["int"], [(1,), (2,)]),
    "a folder between": (["a=1/x/n=2"], ["int"], [(2,)]),
    "letters in both cases": (["N=1", "n=2"], ["int"], [(1,), (2,)]),
}
FOLDERS_OF_SPARK = (
    "n=1.5",
    "n=2026-02-31x",
    "n=2026-01",
    "n=1e3",
    "n=NaN",
    f"n={10**20}",
    "n=1/n=2",
    "n=+",
)


@pytest.mark.parametrize("what", FOLDERS)
def test_folders_stand_for_columns_of_the_same_types(
    engine: Executor, tmp_path: Path, what: str
) -> None:
    folders, types, values = FOLDERS[what]
    for number, folder in enumerate(folders):
        written(tmp_path / "t" / folder / "f.parquet", at=[number])
    table = opened(engine, tmp_path / "t")
    assert list(table.types.values()) == ["bigint", *types]
    rows = [tuple(row.values()) for row in table.order_by("at").collect()]
    assert rows == [(at, *of) for at, of in enumerate(values)]


def test_a_column_of_the_files_and_the_folders_has_the_values_of_the_folders(
    engine: Executor, tmp_path: Path
) -> None:
    written(tmp_path / "n=1" / "f.parquet", a=["x"], N=["own"], b=["y"])
    rows = opened(engine, tmp_path)
    assert [name.lower() for name in rows.types] == ["a", "n", "b"]
    assert [tuple(row.values()) for row in rows.collect()] == [("x", 1, "y")]


@pytest.mark.parametrize("folder", FOLDERS_OF_SPARK)
def test_folders_whose_type_is_not_certain_are_left_to_spark(tmp_path: Path, folder: str) -> None:
    written(tmp_path / "t" / folder / "f.parquet", at=[1])
    assert why_spark(str(tmp_path / "t")) is not None
    with pytest.raises(RequestError, match="Use --engine auto or --engine spark"):
        EmbeddedEngine().open_input(str(tmp_path / "t"))


def test_a_folder_of_files_in_one_other_folder_is_no_table(
    engine: Executor, tmp_path: Path
) -> None:
    written(tmp_path / "t" / "sub" / "f.parquet", at=[1])
    with pytest.raises(InputError, match="neither a Delta table nor a folder with Parquet files"):
        opened(engine, tmp_path / "t")
    written(tmp_path / "t" / "f.parquet", at=[1])
    (tmp_path / "t" / "sub" / "f.parquet").rename(tmp_path / "t" / ".hidden.parquet")
    written(tmp_path / "t" / "_temporary" / "f.parquet", at=[2])
    assert opened(engine, tmp_path / "t").collect() == [{"at": 1}]


def test_columns_have_the_types_that_spark_gives_them(engine: Executor, tmp_path: Path) -> None:
    columns = {
        "tiny": pa.array([-1], pa.int8()),
        "u8": pa.array([255], pa.uint8()),
        "u16": pa.array([2**16 - 1], pa.uint16()),
        "u32": pa.array([2**32 - 1], pa.uint32()),
        "u64": pa.array([2**64 - 1], pa.uint64()),
        "nothing": pa.nulls(1),
        "repeated": pa.array(["a"]).dictionary_encode(),
        "large": pa.array(["a"], pa.large_string()),
        "fixed": pa.array([b"ab"], pa.binary(2)),
        "d": pa.array([Decimal("1.50")], pa.decimal128(9, 2)),
        "utc": pa.array([-1], pa.timestamp("us", "Europe/Berlin")),
        "none": pa.array([-1], pa.timestamp("ms")),
        "m": pa.array([[("a", b"b")]], pa.map_(pa.string(), pa.binary())),
        "l": pa.array([[{"name": "a", "value": b"b"}]]),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    types = opened(engine, tmp_path / "t.parquet").types
    assert dict(types) == {
        "tiny": "tinyint",
        "u8": "smallint",
        "u16": "int",
        "u32": "bigint",
        "u64": "decimal(20,0)",
        "nothing": "int",
        "repeated": "string",
        "large": "string",
        "fixed": "binary",
        "d": "decimal(9,2)",
        "utc": "timestamp",
        "none": "timestamp_ntz",
        "m": "map<string,binary>",
        "l": "array<struct<name:string,value:binary>>",
    }
    old = {name: columns[name] for name in ("utc", "none")}
    file = tmp_path / "old.parquet"
    pq.write_table(pa.table(old), file, use_deprecated_int96_timestamps=True)
    (row,) = (
        opened(engine, file).select(*(f"unix_micros({name}) AS {name}" for name in old)).collect()
    )
    assert row == {"utc": -1, "none": -1000}


def test_a_delta_table_is_read_with_its_partitions(engine: Executor, tmp_path: Path) -> None:
    rows = {
        "day": pa.array([date(2026, 1, 1), None]),
        "at": pa.array([5, 6], pa.timestamp("us", "UTC")),
        "k": ["a/b", "c=%"],
        "v": [1, 2],
    }
    write_deltalake(tmp_path / "t é", pa.table(rows), partition_by=["day", "k"])
    table = opened(engine, tmp_path / "t é")
    assert dict(table.types) == {"day": "date", "at": "timestamp", "k": "string", "v": "bigint"}
    wanted = table.select("day", "unix_micros(at) AS at", "k", "v").order_by("v").collect()
    assert [tuple(row.values()) for row in wanted] == [
        (date(2026, 1, 1), 5, "a/b", 1),
        (None, 6, "c=%", 2),
    ]


def test_deleted_rows_of_a_delta_table_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    name = f"delta.`{tmp_path / 't'}`"
    spark.sql(
        f"CREATE TABLE {name} (n BIGINT, at TIMESTAMP_NTZ) USING delta"
        " TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    spark.sql(f"INSERT INTO {name} SELECT id, TIMESTAMP_NTZ'2026-01-01' FROM range(0, 9, 1, 1)")
    spark.sql(f"DELETE FROM {name} WHERE n % 2 = 0")
    rows = opened(EmbeddedEngine(), tmp_path / "t")
    assert rows.types["at"] == "timestamp_ntz"
    assert [row["n"] for row in rows.order_by("n").collect()] == [1, 3, 5, 7]
    (tmp_path / "link").symlink_to(tmp_path / "t")
    for place in (tmp_path / "link", tmp_path / "t" / ".." / "t"):
        rows = opened(EmbeddedEngine(), place)
        assert [row["n"] for row in rows.order_by("n").collect()] == [1, 3, 5, 7], place
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    why = "it uses a feature that the engine lacks, such as column mapping"
    assert why_spark(str(tmp_path / "t")) == why


def test_a_delta_table_that_delta_rs_takes_for_another_one_is_left_to_spark(
    tmp_path: Path,
) -> None:
    for name in ("a b", "a%20b"):
        write_deltalake(tmp_path / "t", pa.table({"name": [name]}))
        (tmp_path / "t").rename(tmp_path / name)
    assert opened(EmbeddedEngine(), tmp_path / "a b").collect() == [{"name": "a b"}]
    assert "encoded character" in (why_spark(str(tmp_path / "a%20b")) or "")


def test_a_part_of_a_delta_table_is_left_to_spark(tmp_path: Path) -> None:
    table = pa.table({"day": ["a", "b"], "n": [1, 2]})
    for _ in range(2):  # the files of the first time are deleted rows
        write_deltalake(tmp_path / "t", table, partition_by=["day"], mode="overwrite")
    day = tmp_path / "t" / "day=a"
    for place in (day, next(day.iterdir())):
        assert "part of a Delta table" in (why_spark(str(place)) or "")


def test_a_file_that_is_not_parquet_is_named(tmp_path: Path) -> None:
    """`tests/edge/test_faults.py` has what a command in Spark says."""
    engine = EmbeddedEngine()
    file = tmp_path / "t.parquet"
    file.write_text("no Parquet at all", encoding="utf-8")
    with pytest.raises(InputError, match=f"{file} is not a Parquet file: give a Delta or Parquet"):
        opened(engine, file)


def test_a_text_that_is_not_utf_8_is_refused_with_what_names_it(tmp_path: Path) -> None:
    text = pa.array([b"\xff"], pa.binary()).view(pa.string())
    written(tmp_path / "t.parquet", stream=text)
    with pytest.raises(InputError, match=r"a text in .*t\.parquet is not UTF-8.* --engine spark"):
        opened(EmbeddedEngine(), tmp_path / "t.parquet").arrow()


def test_of_two_tables_the_one_with_a_text_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    engine = EmbeddedEngine()
    written(tmp_path / "sound.parquet", stream=["s"])
    written(tmp_path / "bad.parquet", stream=pa.array([b"\xff"], pa.binary()).view(pa.string()))
    tables = [opened(engine, tmp_path / f"{name}.parquet") for name in ("sound", "bad")]
    with pytest.raises(InputError, match=r"a text in \S*/bad\.parquet is not UTF-8"):
        union_all(tables).arrow()


def test_a_file_that_was_deleted_meanwhile_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "t" / "f.parquet", stream=["s"])
    rows = opened(EmbeddedEngine(), tmp_path / "t")
    (tmp_path / "t" / "f.parquet").unlink()
    with pytest.raises(InputError, match="changed while it was read"):
        rows.arrow()


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("lake.raw.pending", "it is a name in a catalog"),
        ("ids.parquet", "write a path as ./ids.parquet"),
        ("s3a://bucket/t", "it is not in a folder of this machine"),
    ],
)
def test_what_is_not_in_a_folder_here_is_left_to_spark(place: str, why: str) -> None:
    assert why in (why_spark(place) or "")


def test_a_missing_file_does_not_start_spark(tmp_path: Path) -> None:
    assert why_spark(str(tmp_path / "none")) is None
    with pytest.raises(InputError, match="no such file or folder"):
        EmbeddedEngine().open_input(str(tmp_path / "none"))
