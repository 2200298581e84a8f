"""Small Delta tables in a folder of this machine, read by delta-rs: no Spark query at all.

Spark and Delta take some 300 ms to read a table, however few rows it has; delta-rs takes 10 ms.  It
only reads here, and only the newest version of a table.  Whatever it cannot do (it is not
installed, the table is large, or has a feature that it does not know, or a log that cannot be read)
is left to Spark, which does it or says what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, StructField, StructType

# Payloads may be large where rows are few: what is held in memory is at most so many bytes of
# (compressed) files.
_MOST_BYTES = 8 * 2**20
# delta-rs lists all files of a table when it opens it: 100,000 of them in 1.2 s.
_MOST_FILES = 10_000
T = TypeVar("T")
# The types of a store's columns: rows of these are the same whoever reads them.
TYPES = {
    *("bigint", "boolean", "int", "string"),
    *("array<struct<name:binary,value:binary>>", "map<string,bigint>"),
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one column: equal to a value, or (numbers) above it."""

    column: str
    value: int | str
    is_above: bool = False

    def sql(self) -> str:
        """The condition as standard SQL."""
        if isinstance(self.value, str):
            text = self.value.replace("'", "''")
            return f"\"{self.column}\" = '{text}'"
        return f'"{self.column}" {">" if self.is_above else "="} {self.value:d}'


@dataclass(frozen=True, slots=True)
class LocalTable:
    """The newest version of a table, and what its log says.

    Attributes:
        properties: the table's properties.
        struct: its columns.
    """

    version: int
    properties: Mapping[str, str]
    struct: StructType
    _table: Any

    def last_commit(self) -> Mapping[str, Any] | None:
        """What the log says of the newest commit; null: it cannot be read."""
        commits = _or_none(lambda: self._table.history(1))
        return dict(commits[0]) if commits else None

    def rows(self, most: int, *conditions: Condition) -> pa.Table | None:
        """The rows that meet all conditions; null: there may be more than `most`, or they are in
        files that are too large, or cannot be read; or the table has a column of a type that no
        table of a store has, of which it is not known that all readers give it alike."""
        if any(one.dataType.simpleString() not in TYPES for one in self.struct.fields):
            return None
        # Of a table with payloads a few rows may be large.
        is_for_all = not conditions or any(map(_is_nested, self.struct.fields))
        if is_for_all and not self.is_small(most):
            return None
        where = " AND ".join(one.sql() for one in conditions) or "true"
        found = _or_none(lambda: self._queried(f"SELECT * FROM t WHERE {where}", most))
        return None if found is None else _or_none(lambda: _as_spark_has_it(found, self.struct))

    def highest(self, column: str) -> list[int] | None:
        """The highest number in a column; empty: the table has no rows; null: it cannot be read.

        It is looked up in the rows: what a file's statistics say is also of rows that a deletion
        vector hides.
        """
        numbers = _or_none(lambda: self._queried(f'SELECT "{column}" FROM t', None))
        if numbers is None:
            return None
        return [pc.max(numbers[column]).as_py()] if numbers.num_rows else []

    def last(self, column: str, limit: int, most: int) -> tuple[list[dict[str, Any]], int] | None:
        """The rows with the highest numbers in a column, the highest first, and the number of all
        rows; null: see `rows`."""
        numbers = _or_none(lambda: self._queried(f'SELECT "{column}" FROM t', None))
        if numbers is None:
            return None
        highest = sorted(numbers[column].to_pylist(), reverse=True)[:limit]
        if not highest:
            return [], numbers.num_rows
        found = self.rows(most, Condition(column, highest[-1] - 1, is_above=True))
        if found is None:
            return None
        rows = found.sort_by([(column, "descending")]).slice(0, limit)
        return rows.to_pylist(maps_as_pydicts="strict"), numbers.num_rows

    def _queried(self, statement: str, most: int | None) -> pa.Table | None:
        """The rows of a query; null: they are more than `most`.  A LIMIT is not used: it might be
        applied before deletion vectors are."""
        from deltalake import QueryBuilder

        result = QueryBuilder().register("t", self._table).execute(statement)
        reader = pa.RecordBatchReader.from_stream(result)
        batches, number = [], 0
        for batch in reader:
            number += batch.num_rows
            if most is not None and number > most:
                return None
            batches.append(batch)
        return pa.Table.from_batches(batches, reader.schema)

    def is_small(self, most: int) -> bool:
        """Whether there are so few rows, by what the log says of the files (of which deletion
        vectors hide some rows)."""
        files = _or_none(lambda: pa.table(self._table.get_add_actions()))
        if files is None or "num_records" not in files.column_names:
            return False
        number, size = files["num_records"], files["size_bytes"]
        if number.null_count:
            return False
        return (pc.sum(number).as_py() or 0) <= most and (pc.sum(size).as_py() or 0) <= _MOST_BYTES


def newest(folder: Path) -> LocalTable | None:
    """The newest version of the table in a folder; null: delta-rs cannot tell, or not at once."""
    return _or_none(lambda: _opened(folder))


def _opened(folder: Path) -> LocalTable | None:
    from deltalake import DeltaTable

    if _files_at_checkpoint(folder) > _MOST_FILES:
        return None
    # A path as it is might be taken for a URL.
    table = DeltaTable(folder.as_uri())
    properties = dict(table.metadata().configuration)
    if any(name.startswith(_COORDINATED) for name in properties):
        return None
    return LocalTable(table.version(), properties, _struct(table.schema().to_json()), table)


# The newest commits of such a table are not in its folder yet.
_COORDINATED = "delta.coordinatedCommits"


def _or_none(call: Callable[[], T]) -> T | None:
    """What delta-rs gives; null: it cannot, for whatever reason, and Spark will say what is
    wrong."""
    try:
        return call()
    except Exception:  # noqa: BLE001 - delta-rs fails in many ways, and Spark reads the table then
        return None
    except BaseException as error:
        # A panic of Rust is no Exception in Python.
        if type(error).__name__ != "PanicException":
            raise
        return None


def _files_at_checkpoint(folder: Path) -> int:
    """How many files a table had when its log was last summed up; 0: it never was, or does not say
    so."""
    try:
        text = (folder / "_delta_log" / "_last_checkpoint").read_text(encoding="utf-8")
    except FileNotFoundError:
        return 0
    return int(json.loads(text).get("numOfAddFiles", 0))


def _is_nested(column: StructField) -> bool:
    return isinstance(column.dataType, ArrayType)


def _struct(text: str) -> StructType:
    """The columns, without what generates them."""
    struct = StructType()
    for column in StructType.fromJson(json.loads(text)).fields:
        struct = struct.add(column.name, column.dataType, column.nullable)
    return struct


def _as_spark_has_it(found: pa.Table, struct: StructType) -> pa.Table:
    """The rows with the types that Spark gives them, and in one batch at least."""
    schema = to_arrow_schema(struct)
    if not found.num_rows:
        empty = [pa.array([], one.type) for one in schema]
        return pa.Table.from_batches([pa.RecordBatch.from_arrays(empty, schema=schema)])
    return found.cast(schema)
