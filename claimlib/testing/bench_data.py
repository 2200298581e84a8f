"""What a benchmark runs on: a formula in SQL, and nothing else.

The rows follow from their number alone (by hashes of it), so they are the same whatever the
partitioning.  What must come of them follows from the same formula: `bench_result`.

Row `i`: one pending entry.  A fifth of all are in group 0, the others are spread over the rest, a
stream each.  One in a hundred is dangling.  One in `due_of`, dangling or not, has been idle for an
hour, the rest for a second.
"""

from __future__ import annotations

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
      CASE WHEN pmod(id, 5) = 0 THEN 0
           ELSE 1 + pmod(xxhash64('group', id), {{groups}} - 1) END AS number,
      pmod(xxhash64('gone', id), 100) = 0 AS is_gone,
      pmod(xxhash64('idle', id), {{due_of}}) = 0 AS is_due,
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


def groups_of(rows: int) -> int:
    """How many groups there are: 200 up to a few million rows, 1,000 from ten million on."""
    return 1000 if rows >= 10_000_000 else 200


def pending(spark: SparkSession, rows: int, due_of: int = 2) -> DataFrame:
    """One row per pending entry: the columns that `pending` is written with, is_gone and is_due."""
    return spark.sql(_pending(rows, due_of))


def claims(spark: SparkSession, rows: int, due_of: int) -> DataFrame:
    """The request table of `xclaim` that claims what a sweep claims, one request per group."""
    return spark.sql(_CLAIMS.format(pending=_pending(rows, due_of)))


def _pending(rows: int, due_of: int) -> str:
    return _PENDING.format(rows=_ROWS.format(rows=rows, groups=groups_of(rows), due_of=due_of))
