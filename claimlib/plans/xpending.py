"""XPENDING: what is pending, whose it is, how long it has been idle and how often it was delivered.

One description of the pending entries (`idle_entries`) stands behind three: the rows of a range,
the summary of a group, and the overview of all groups.  They read only.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from claimlib.plans.keys import GROUP, each, id_at_least, id_at_most, in_id_order, unsigned
from claimlib.plans.requests import instant
from claimlib.semantics.ids import to_bigint
from claimlib.semantics.model import PendingRange
from claimlib.semantics.names import spell

# The numbers of deliveries from which on the overview counts an entry; the columns are named after
# them.
OFTEN, VERY_OFTEN = 5, 10
_INT_MAX = 2**31 - 1


def instants(groups: DataFrame, now_ms: int | None) -> DataFrame:
    """One row per (stream, consumer_group) of the table groups, also of one that stands there
    twice: `snapshot_ms` (when it was read; null: not known) and `now_ms`, the instant at which its
    entries are looked at (null: there is none)."""
    now = F.expr(f"min({instant(now_ms)})").alias("now_ms")
    return groups.groupBy(*GROUP).agg(*each("min", "snapshot_ms"), now)


def idle_entries(pending: DataFrame, groups: DataFrame, now_ms: int | None) -> DataFrame:
    """One row per pending entry: stream, consumer_group, id_ms, id_seq, consumer, delivery_count,
    idle_ms (at `now_ms`, else at the group's snapshot instant; null: it has none; negative: it was
    delivered later) and that instant, `now_ms`."""
    known = F.broadcast(instants(groups, now_ms))
    return pending.join(known, on=list(GROUP), how="left").select(
        *(*GROUP, "id_ms", "id_seq", "consumer", "delivery_count", "now_ms"),
        F.try_subtract("now_ms", "delivery_time_ms").alias("idle_ms"),
    )


def in_range(entries: DataFrame, query: PendingRange) -> DataFrame:
    """The rows of `idle_entries` of one group that the range form of XPENDING shows, by id."""
    ordered = matching(entries, query).orderBy(*in_id_order())
    return ordered.limit(min(max(query.count, 0), _INT_MAX))


def matching(entries: DataFrame, query: PendingRange) -> DataFrame:
    """What of `idle_entries` of one group the range form of XPENDING is about: in no order, and
    however many are asked for; idle_ms is 0 where an entry was delivered later."""
    start, end = (
        [f"({to_bigint(half):d}L)" for half in (bound.ms, bound.seq)]
        for bound in (query.start, query.end)
    )
    rows = entries.where(id_at_least("id_ms", "id_seq", *start))
    rows = rows.where(id_at_most("id_ms", "id_seq", *end))
    if query.consumer is not None:
        rows = rows.where(F.col("consumer") == spell(query.consumer))
    if query.min_idle_ms:  # 0 is no test at all
        rows = rows.where(F.col("idle_ms") >= query.min_idle_ms)
    # Not `greatest`, which passes over a null: an unknown idle time is not 0.
    floored = F.when(F.col("idle_ms") < 0, 0).otherwise(F.col("idle_ms"))
    return rows.withColumn("idle_ms", floored)


def shares(entries: DataFrame) -> DataFrame:
    """One row per (stream, consumer_group, consumer) that owns entries (null: nobody): `pending`,
    and `low` and `high`, the smallest and the largest id as structs that sort as ids do (`ms` and
    `seq`, see `keys.unsigned`)."""
    unsigned_id = F.struct(unsigned("id_ms").alias("ms"), unsigned("id_seq").alias("seq"))
    return entries.groupBy(*GROUP, "consumer").agg(
        F.count("*").alias("pending"),
        F.min(unsigned_id).alias("low"),
        F.max(unsigned_id).alias("high"),
    )


def owners(entries: DataFrame, stalled_ms: int) -> DataFrame:
    """One row per (stream, consumer_group, consumer) that owns entries (null: nobody): `pending`,
    oldest_idle_ms (null: not known), highest_delivery_count, `now_ms`, `stalled` (idle for so long,
    or longer; null: not known), `delivered_5_plus` and `delivered_10_plus` (entries that were
    delivered so often, or more).  One shuffle, of partial sums.

    Without the ids of `shares`: a struct among the sums would have Spark sort all entries.
    """
    return entries.groupBy(*GROUP, "consumer").agg(
        F.expr("count(*) AS pending"),
        F.expr("max(idle_ms) AS oldest_idle_ms"),
        F.expr("max(delivery_count) AS highest_delivery_count"),
        F.expr("max(now_ms) AS now_ms"),
        F.expr(f"sum(CAST(idle_ms >= {stalled_ms:d} AS BIGINT)) AS stalled"),
        F.expr(f"count_if(delivery_count >= {OFTEN:d}) AS delivered_5_plus"),
        F.expr(f"count_if(delivery_count >= {VERY_OFTEN:d}) AS delivered_10_plus"),
    )


def overview(
    by_owner: DataFrame,
    groups: DataFrame,
    consumers: DataFrame,
    stalled_ms: int,
    now_ms: int | None,
    changed: DataFrame | None = None,
    *,
    shows_server: bool = False,
) -> DataFrame:
    """One row per (stream, consumer_group) of the table groups, or that has entries.

    Columns: `is_known` (is it in groups?), snapshot_ms (when it was read, ms since the epoch; null:
    not known), now_ms (the instant of the idle times; null: none), pending, the sums and maxima
    of `owners`, `owners` (how many consumers own entries), `idle_owners` (of those, how many were
    active last so long ago, or longer; seen, where it is not known when they were active; null: not
    known), `unknown_owners` (of those, how many `consumers` lacks) and `changed_by_runs` (entries
    that runs have changed since the group was read from the server; null if there is no server).

    Args:
        by_owner: `owners`.
        changed: `server_view.number_by_group`; None if the store mirrors no server.
        shows_server: True if the entries are those of the server's view.  Then the activity of
            consumers is not known in groups that runs have changed since: the table has it as of
            the last run.
    """
    last_ms = F.expr("max(coalesce(active_time_ms, seen_time_ms)) AS last_ms")
    known = consumers.groupBy(*GROUP, "consumer").agg(last_ms)
    is_owner = "consumer IS NOT NULL"
    # The row of entries without an owner says nothing: `false AND null` would be a known false.
    is_idle = f"CASE WHEN {is_owner} THEN try_subtract(now_ms, last_ms) >= {stalled_ms:d} END"
    by_group = (
        by_owner.join(known, on=[*GROUP, "consumer"], how="left")
        .groupBy(*GROUP)
        .agg(
            *each("sum", "pending", *_SUMS),
            *each("max", "oldest_idle_ms", "highest_delivery_count"),
            F.expr(f"count_if({is_owner}) AS owners"),
            F.expr(f"sum(CAST({is_idle} AS BIGINT)) AS idle_owners"),
            F.expr(f"count_if({is_owner} AND last_ms IS NULL) AS unknown_owners"),
        )
    )
    listed = instants(groups, now_ms).withColumn("is_known", F.lit(True))
    rows = listed.join(by_group, on=list(GROUP), how="full")
    if changed is None:
        rows = rows.withColumn(CHANGED, F.lit(None).cast("BIGINT"))
    else:
        rows = rows.join(changed, on=list(GROUP), how="left").fillna(0, [CHANGED])
    if shows_server:
        rows = rows.withColumns({name: F.expr(_if_unchanged(name)) for name in _OF_ACTIVITY})
    return rows.selectExpr(*GROUP, *(_OF_NOTHING.get(name, name) for name in OVERVIEW))


def _if_unchanged(name: str) -> str:
    return f"CASE WHEN {CHANGED} = 0 THEN {name} END"


_OF_ACTIVITY = ("idle_owners", "unknown_owners")
_SUMS = ("stalled", "delivered_5_plus", "delivered_10_plus")
CHANGED = "changed_by_runs"
"""The column of an overview that counts what runs have changed since the snapshot."""
OVERVIEW = (
    *("is_known", "snapshot_ms", "now_ms", "pending", "stalled", "oldest_idle_ms"),
    "highest_delivery_count",
    *("delivered_5_plus", "delivered_10_plus", "owners", "idle_owners", "unknown_owners"),
    CHANGED,
)
# Where there is nothing to count a number is 0; else null says of the last three that they are not
# known.
_OF_NOTHING = {
    "is_known": "coalesce(is_known, false) AS is_known",
    **{
        name: f"coalesce({name}, 0) AS {name}"
        for name in ("pending", "delivered_5_plus", "delivered_10_plus", "owners")
    },
    **{
        name: f"CASE WHEN coalesce({counted}, 0) = 0 THEN 0L ELSE {name} END AS {name}"
        for name, counted in (
            ("stalled", "pending"),
            ("idle_owners", "owners"),
            ("unknown_owners", "owners"),
        )
    },
}
