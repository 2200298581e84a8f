"""Convert rows of this process to frames of Spark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, StructType

# Databricks' serverless compute accepts frames with at most 128 MB of local data.
LOCAL_DATA_BYTES = 128_000_000
# `_relation` passes `_MANY_ROWS` or more as lists, if they have at most `LISTS_BYTES`.  Fewer rows
# stay a local relation.  If a query has only local relations, Spark computes it while it plans,
# without a job.
_MANY_ROWS, _ROWS_PER_LIST, LISTS_BYTES = 500, 10_000, 48 * 2**20
# Spark sends each task the rows of its partition.  A task with too many rows exceeds the memory of
# the driver.
_TASK_ROWS, _TASK_BYTES = 50_000, 16 * 2**20


def divided_frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Return an Arrow table as a frame with a suitable number of partitions.

    Few rows become one partition, because a plan that reads only such frames needs no shuffle.
    Very many rows become a few large partitions.  Otherwise Spark would make many small partitions,
    and the task of each partition would write a file per bucket.
    """
    frame = local_frame(spark, rows)
    if rows.num_rows <= _TASK_ROWS and rows.nbytes <= _TASK_BYTES:
        return frame.coalesce(1)
    if rows.nbytes > LISTS_BYTES:
        return frame.coalesce(math.ceil(rows.nbytes / _TASK_BYTES))
    return frame


def local_frame(spark: SparkSession, rows: pa.Table, struct: StructType | None = None) -> DataFrame:
    """Return an Arrow table as a frame.

    The frame has as many local relations as it needs.  Each has at most `LOCAL_DATA_BYTES`, unless
    a single row is larger.
    """
    if rows.nbytes <= LOCAL_DATA_BYTES or rows.num_rows < 2:
        return _relation(spark, rows, struct)
    half = rows.num_rows // 2
    # `take` copies the rows, because pyarrow cannot cast maps and lists with nulls in a view.
    ends = (range(half), range(half, rows.num_rows))
    parts = (rows.take(pa.array(numbers)) for numbers in ends)
    first, second = (local_frame(spark, part, struct) for part in parts)
    return first.unionAll(second)


def _relation(spark: SparkSession, rows: pa.Table, struct: StructType | None) -> DataFrame:
    """Return an Arrow table as one local relation.

    Many rows are passed as a few lists of rows, which Spark unfolds as it runs.  Otherwise each
    rule of Spark's optimizer would walk over all rows of the local relation (docs/decisions/016).

    Spark estimates the size of such lists as a few kilobytes, and so may broadcast them.  Therefore
    at most `LISTS_BYTES` are passed as lists.  For more bytes, lists are not needed, because Spark
    itself makes no local relation.

    All batches are combined into one, because `createDataFrame` omits the rows after an empty
    batch.  A filter leaves empty batches.  delta-rs leaves them if a deletion vector hides
    thousands of consecutive rows.  A table without rows gets a batch, because `createDataFrame`
    does not accept a column of maps or lists that has no batch.  Its types are passed, too, because
    Spark Connect does not accept a table that has neither rows nor types.
    """
    if not rows.num_rows:
        types = struct or from_arrow_schema(rows.schema)
        return spark.createDataFrame(rows.schema.empty_table(), types)
    rows = rows.combine_chunks()
    if rows.num_rows < _MANY_ROWS or rows.nbytes > LISTS_BYTES:
        return spark.createDataFrame(rows, struct)
    row_type = struct or from_arrow_schema(rows.schema)
    columns = [column.combine_chunks() for column in rows.columns]  # one array each
    ends = pa.array([*range(0, rows.num_rows, _ROWS_PER_LIST), rows.num_rows], pa.int32())
    all_rows = pa.StructArray.from_arrays(columns, fields=list(rows.schema))
    lists = pa.table({"rows": pa.ListArray.from_arrays(ends, all_rows)})
    nested = StructType().add("rows", ArrayType(row_type, containsNull=False), nullable=False)
    return spark.createDataFrame(lists, nested).selectExpr("inline(rows)")


def arrow_table(values: Sequence[Sequence[object]], schema: pa.Schema) -> pa.Table:
    """Return Python values as an Arrow table."""
    by_column = zip(*values, strict=True) if values else ([] for _ in schema)
    arrays = [
        pa.array(map(_entries_of_map, column), field.type)
        for field, column in zip(schema, by_column, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _entries_of_map(value: object) -> object:
    """Return a value unchanged, but a mapping as the list of its items."""
    return list(value.items()) if isinstance(value, Mapping) else value
