"""What a benchmark runs on: a formula in SQL, and nothing else.

The rows follow from their number alone (by hashes of it), so they are the same whatever the
partitioning.  What must come of them follows from the same formula: `bench_result`.

Row `i`: one pending entry, in the stream of one of the groups (see `Shape`).  One in a hundred is
dangling.  Some, dangling or not, have been idle for an hour, the rest for a second.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

NOW_MS = 1_750_000_000_000
MIN_IDLE_MS = 60_000
CONSUMER = "reclaimer"
# A page, of the group of the largest stream, and the cursor that it keeps.
COUNT = 100
CURSOR = "bench"
LARGEST = "stream-00000"
GROUP = "workers"
_FIRST_MS = NOW_MS - 10**9
_CLAIMED = "(is_due AND NOT is_gone)"

_ROWS = f"""
    SELECT
      id AS i,
      {_FIRST_MS} + id AS id_ms,
      CASE WHEN pmod(id, {{first_of}}) = 0 THEN 0
           ELSE 1 + pmod(xxhash64('group', id), {{groups}} - 1) END AS number,
      pmod(xxhash64('gone', id), 100) = 0 AS is_gone,
      {{is_due}} AS is_due,
      concat('consumer-', pmod(xxhash64('owner', id), 20)) AS consumer,
      1 + pmod(xxhash64('count', id), 3) AS delivery_count
    FROM range({{rows}})"""

_PENDING = f"""
    SELECT format_string('stream-%05d', number) AS stream, '{GROUP}' AS consumer_group,
      id_ms, 0L AS id_seq, consumer,
      {NOW_MS} - CASE WHEN is_due THEN 3600000 ELSE 1000 END AS delivery_time_ms,
      delivery_count, is_gone, is_due
    FROM ({{rows}})"""

# The requests that claim one by one what a sweep claims: one per group.
_CLAIMS = f"""
    SELECT row_number() OVER (ORDER BY stream) AS request, stream, '{GROUP}' AS consumer_group,
      '{CONSUMER}' AS consumer, {MIN_IDLE_MS}L AS min_idle_ms,
      sort_array(collect_list(concat(id_ms, '-', id_seq))) AS ids, false AS force,
      false AS justid, 'documented' AS idle_rule, 'redis-7.2' AS profile
    FROM ({{pending}}) WHERE {_CLAIMED} GROUP BY stream"""


@dataclass(frozen=True, slots=True)
class Shape:
    """How the rows are spread.

    Attributes:
        groups: how many there are; null: 200 up to a few million rows, 1,000 from ten million on.
        first_of: one row in so many is of group 0; the others are spread over the rest.
        due_of: one row in so many has been idle for an hour.
        by_age: whether these are the first ones: the delivery time follows the id.
        entries_of: how many entries a stream has for each that is pending.
    """

    groups: int | None = None
    first_of: int = 5
    due_of: int = 2
    by_age: bool = False
    entries_of: int = 1

    def groups_of(self, rows: int) -> int:
        """How many groups so many rows have."""
        return self.groups or (1000 if rows >= 10_000_000 else 200)

    def sql(self, rows: int) -> str:
        """The rows that `pending` gives."""
        any_of = f"pmod(xxhash64('idle', id), {self.due_of}) = 0"
        is_due = f"id < {rows // self.due_of}" if self.by_age else any_of
        groups = self.groups_of(rows)
        made = _ROWS.format(rows=rows, groups=groups, first_of=self.first_of, is_due=is_due)
        return _PENDING.format(rows=made)


SHAPES = {
    "half": Shape(),
    "one": Shape(groups=2, first_of=1),
    "wide": Shape(groups=200_000, first_of=200_000),
    "wider": Shape(groups=1_000_000, first_of=1_000_000),
    "quiet": Shape(due_of=100),
    "old": Shape(due_of=100, by_age=True),
    "big-stream": Shape(entries_of=20),
}
"""Half of the rows due, in some hundred groups; all in one group; in 200,000 groups, and in
a million; one row in a hundred due; the first hundredth due; streams with many more entries than
are pending."""
HALF = SHAPES["half"]


def pending(spark: SparkSession, rows: int, shape: Shape = HALF) -> DataFrame:
    """One row per pending entry: the columns that `pending` is written with, is_gone and is_due."""
    return spark.sql(shape.sql(rows))


def claims(spark: SparkSession, rows: int, shape: Shape) -> DataFrame:
    """The request table of `xclaim` that claims what a sweep claims, one request per group."""
    return spark.sql(_CLAIMS.format(pending=shape.sql(rows)))
