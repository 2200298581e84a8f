"""Is what stands in a store what the formulas of `bench_result` say?  Table by table, by sums of
hashes: nothing but counts comes to the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from claimlib.schema import TABLES
from claimlib.store.tables import Store
from tests.bench.result import History, expected
from tests.writing import execute_sql

# What a run makes up, or measures, or writes down of its request: no formula says it.
_OWN = (
    *("run_id", "attempt", "request", "request_hash", "inputs"),
    *("input_versions", "output_versions", "phase_ms", "software_version"),
    *("began_ms", "ended_ms"),
)
# Of each table one row, by the smallest value of a column, and a change of it that must be seen.
_SPOILT = {
    "pending": ("id_ms", "delivery_count = delivery_count + 1"),
    "journal": ("id_ms", "from_delivery_count = from_delivery_count + 1"),
    "tombstones": ("id_ms", "delivery_count = delivery_count + 1"),
    "consumers": ("stream", "seen_time_ms = seen_time_ms + 1"),
    "cursors": ("stream", "next_ms = next_ms + 1"),
    "runs": ("run_seq", "counts = transform_values(counts, (name, number) -> number + 1)"),
}
CHECKED = tuple(_SPOILT)


@dataclass(frozen=True, slots=True)
class Result:
    """A store, and what it has been through."""

    store: Store
    history: History


@dataclass(frozen=True, slots=True)
class Measured:
    """What a benchmark gives.

    Attributes:
        document: what it says, as JSON.
        results: what is to be checked, by name.
        differ: what it has found to differ itself, as `differ` says it.
    """

    document: dict[str, object]
    results: Mapping[str, Result]
    differ: Mapping[str, int] = field(default_factory=dict)


def differ(results: Mapping[str, Result]) -> dict[str, int]:
    """By table and name of the result: of how many streams (of `runs`, of how many runs) the rows
    are not what they must be."""
    return {
        f"{table} {name}".strip(): differing(table, rows, _compared(result.store, table))
        for name, result in results.items()
        for table, rows in expected(result.store, result.history).items()
    }


def _compared(store: Store, table: str) -> DataFrame:
    """A table without the journal's previous values, which no formula states: the tests of undo
    compare what is put back from them."""
    rows = store.read(table)
    return rows.where("kind NOT LIKE '%_before'") if table == "journal" else rows


def differing(table: str, wanted: DataFrame, actual: DataFrame) -> int:
    """Of how many streams (of `runs`, of how many runs) two sets of a table's rows are not the
    same: one shuffle, of two sums per stream and partition.

    Two sets of rows whose sums of 64-bit hashes agree are the same, but by a chance of one in 2^64.
    """
    of = "run_seq" if table == "runs" else "stream"
    content = wanted.select(of, F.lit(1).alias("n"), _hash(table, wanted).alias("hash"))
    both = content.union(actual.select(of, F.lit(-1), -_hash(table, actual)))
    sums = both.groupBy(of).agg(F.sum("n").alias("n"), F.sum("hash").alias("hash"))
    return sums.where("n <> 0 OR hash <> 0").count()


def _hash(table: str, rows: DataFrame) -> Column:
    """A row's hash; a column that the rows lack is null."""
    content = []
    for column in TABLES[table].written:
        if column.name not in _OWN:
            known = F.col(column.name) if column.name in rows.columns else F.lit(None)
            value = known.cast(column.type)
            if column.type.startswith("MAP"):
                value = F.array_sort(F.map_entries(value))
            # A hash passes over null, as if the column were not there.
            content += [value, value.isNull()]
    return F.xxhash64(*content).cast("DECIMAL(38)")


def spoil(store: Store, table: str) -> None:
    """Change one row of a table, so that it is not what is expected; where it has none, nothing."""
    by, change = _SPOILT[table]
    first = store.read(table).agg(F.min(by).alias("least")).collect()[0]["least"]
    if first is not None:
        execute_sql(store, table, f"UPDATE {{table}} SET {change} WHERE {by} = {first!r}")
