"""Small Delta tables in a folder of this machine, read by delta-rs: no Spark query at all.

Spark and Delta take some 300 ms to read a table, however few rows it has; delta-rs takes 10 ms.  It
only reads here, and only the newest version of a table.  Whatever it cannot do (it is not
installed, the table is large, or has a feature that it does not know, or a log that cannot be read)
is left to Spark, which does it or says what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, StructField, StructType

# Payloads may be large where rows are few: what is held in memory is at most so many bytes of
# (compressed) files.
_MOST_BYTES = 8 * 2**20
# delta-rs lists all files of a table when it opens it: 100,000 of them in 1.2 s.
_MOST_FILES = 10_000


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
        try:
            (commit,) = self._table.history(1)
        except Exception:  # noqa: BLE001 - Spark reads it, or says what is wrong
            return None
        return dict(commit)

    def rows(self, most: int, *conditions: Condition) -> pa.Table | None:
        """The rows that meet all conditions; null: there may be more than `most`, or they are in
        files that are too large, or cannot be read."""
        # Of a table with payloads a few rows may be large.
        is_for_all = not conditions or any(map(_is_nested, self.struct.fields))
        if is_for_all and not self.is_small(most):
            return None
        where = " AND ".join(one.sql() for one in conditions) or "true"
        found = self._query(f"SELECT * FROM t WHERE {where} LIMIT {most + 1:d}")
        if found is None or found.num_rows > most:
            return None
        return _as_spark_has_it(found, self.struct)

    def highest(self, column: str) -> pa.Table | None:
        """One row: the highest number in a column (null: the table has no rows); no table: it
        cannot be read."""
        return self._query(f'SELECT max("{column}") FROM t')

    def _query(self, statement: str) -> pa.Table | None:
        try:
            from deltalake import QueryBuilder

            return pa.table(QueryBuilder().register("t", self._table).execute(statement))
        except Exception:  # noqa: BLE001 - Spark reads it, or says what is wrong
            return None

    def is_small(self, most: int) -> bool:
        """Whether there are so few rows, by what the log says of the files (of which deletion
        vectors hide some rows)."""
        files = pa.table(self._table.get_add_actions())
        number = files["num_records"]
        if number.null_count:
            return False
        size = pc.sum(files["size_bytes"]).as_py() or 0
        return (pc.sum(number).as_py() or 0) <= most and size <= _MOST_BYTES


def newest(folder: Path) -> LocalTable | None:
    """The newest version of the table in a folder; null: delta-rs cannot tell, or not at once."""
    try:
        if _files_at_checkpoint(folder) > _MOST_FILES:
            return None
        from deltalake import DeltaTable

        # A path as it is might be taken for a URL.
        table = DeltaTable(folder.as_uri())
        properties = dict(table.metadata().configuration)
        struct = _struct(table.schema().to_json())
    except Exception:  # noqa: BLE001 - Spark reads it, or says what is wrong
        return None
    return LocalTable(table.version(), properties, struct, table)


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
