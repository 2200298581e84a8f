"""What a benchmark runs on, and what must come of it: a formula in SQL, and nothing else.

The rows follow from their number alone (by hashes of it), so they are the same whatever the
partitioning.  The answer follows from the same formula, in plain SQL that knows nothing of
claimlib's rules: it is what the benchmark checks the tables against.

Row `i`: one pending entry.  A fifth of all are in group 0, the others are spread over the rest, a
stream each.  One in a hundred is dangling.  One in `due_of`, dangling or not, has been idle for an
hour, the rest for a second.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

NOW_MS = 1_750_000_000_000
MIN_IDLE_MS = 60_000
CONSUMER = "reclaimer"
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
    SELECT format_string('stream-%05d', number) AS stream, 'workers' AS consumer_group,
      id_ms, 0L AS id_seq, consumer,
      {NOW_MS} - CASE WHEN is_due THEN 3600000 ELSE 1000 END AS delivery_time_ms,
      delivery_count, is_gone, is_due
    FROM ({{rows}})"""

# What stands in pending once a sweep with XAUTOCLAIM's rule is over, or XCLAIMs of what the sweep
# claims, which leave the dangling ones alone.
_LEFT = f"""
    SELECT stream, consumer_group, id_ms, id_seq,
      CASE WHEN {_CLAIMED} THEN '{CONSUMER}' ELSE consumer END AS consumer,
      CASE WHEN {_CLAIMED} THEN {NOW_MS} ELSE delivery_time_ms END AS delivery_time_ms,
      CASE WHEN {_CLAIMED} THEN delivery_count + 1 ELSE delivery_count END AS delivery_count
    FROM ({{pending}}) WHERE NOT is_gone OR {{keeps_gone}}"""

# The requests that claim one by one what a sweep claims: one per group.
_CLAIMS = f"""
    SELECT row_number() OVER (ORDER BY stream) AS request, stream, 'workers' AS consumer_group,
      '{CONSUMER}' AS consumer, {MIN_IDLE_MS}L AS min_idle_ms,
      sort_array(collect_list(concat(id_ms, '-', id_seq))) AS ids, false AS force,
      false AS justid, 'documented' AS idle_rule, 'redis-7.2' AS profile
    FROM ({{pending}}) WHERE {_CLAIMED} GROUP BY stream"""

_DIGEST = f"""
    SELECT stream, count(*) AS pending, count_if(consumer = '{CONSUMER}') AS claimed,
      sum(CAST(xxhash64(stream, consumer_group, id_ms, id_seq, consumer, delivery_time_ms,
        delivery_count) AS DECIMAL(38))) AS digest
    FROM {{rows}} GROUP BY stream"""


def groups_of(rows: int) -> int:
    """How many groups there are: 200 up to a few million rows, 1,000 from ten million on."""
    return 1000 if rows >= 10_000_000 else 200


def pending(spark: SparkSession, rows: int, due_of: int = 2) -> DataFrame:
    """One row per pending entry: the columns that `pending` is written with, is_gone and is_due."""
    return spark.sql(_pending(rows, due_of))


def claims(spark: SparkSession, rows: int, due_of: int) -> DataFrame:
    """The request table of `xclaim` that claims what a sweep claims, one request per group."""
    return spark.sql(_CLAIMS.format(pending=_pending(rows, due_of)))


def expected(
    spark: SparkSession, rows: int, due_of: int = 2, *, keeps_gone: bool = False
) -> DataFrame:
    """The state of each stream afterwards: one row per stream, see `digest`.

    `keeps_gone`: after XCLAIMs of `claims`, which do not meet what is dangling; else after a sweep.
    """
    left = _LEFT.format(pending=_pending(rows, due_of), keeps_gone=str(keeps_gone).lower())
    return digest(spark, spark.sql(left))


def _pending(rows: int, due_of: int) -> str:
    return _PENDING.format(rows=_ROWS.format(rows=rows, groups=groups_of(rows), due_of=due_of))


def digest(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """One row per stream: how many entries are pending, how many are the reclaimer's, and a hash
    over all of them, whatever their order."""
    return spark.sql(_DIGEST, rows=rows)


def differences(spark: SparkSession, expected: DataFrame, found: DataFrame) -> DataFrame:
    """One row per stream whose pending entries are not what they must be (see `expected`)."""
    return spark.sql(
        "SELECT * FROM {expected} e FULL JOIN {found} f ON e.stream = f.stream"
        " WHERE NOT (e.pending <=> f.pending AND e.claimed <=> f.claimed"
        " AND e.digest <=> f.digest)",
        expected=expected,
        found=digest(spark, found),
    )
