"""The survey: what is in each group's PEL, and whether the group must be refused.

One look at `pending`, before anything is decided, which also says how names travel.  Bad data
refuses its group, counted and named, and the other groups go on.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from claimlib.plans.keys import (
    GROUP,
    KeyMode,
    group_key,
    id_at_least,
    id_at_most,
    unsigned,
    unsigned_text,
)
from claimlib.plans.requests import PROVEN_RANGE
from claimlib.semantics import rules


def by_owner(pending: DataFrame, targets: DataFrame, run_seq: int) -> DataFrame:
    """The survey, by owner: one row per (stream, consumer_group, consumer) that has entries.  Of a
    group that gets a page only, the page's rows are looked at (`page_end_ms`).

    Columns: `pending_before` (rows), `invalid` (rows whose time or count is negative), `ahead`
    (rows with a run_seq of `run_seq` or more), `unproven` (examined rows outside the proven range),
    `at_boundary` (examined rows idle for exactly min_idle_ms), `delivered_later` (rows delivered
    after the group's instant), `oldest_delivery_time_ms`, `highest_delivery_count`, `low_ms` and
    `high_ms` (the smallest and the largest BIGINT in id_ms).  One shuffle, of partial sums.

    Args:
        targets: `requests.standing`.
    """
    request = targets.where(F.col("consumer").isNotNull()).select(*GROUP, *_SURVEYED)
    # By the names themselves: whether hashes are exact is not known yet.
    rows = pending.join(F.broadcast(request), on=list(GROUP), how="left")
    examined = within_page(id_at_least("id_ms", "id_seq", F.col("start_ms"), F.col("start_seq")))
    rows = rows.where(F.col("count").isNull() | examined)
    # Only between times that are none could the difference leave 64 bits.
    invalid = is_invalid()
    comparable = examined & ~invalid & (F.col("now_ms") >= 0)
    boundary = rules.at_boundary(F.col("now_ms"), F.col("delivery_time_ms"), F.col("min_idle_ms"))
    return rows.groupBy(*GROUP, "consumer").agg(
        F.count("*").alias("pending_before"),
        F.count_if(invalid).alias("invalid"),
        F.count_if(F.col("run_seq") >= run_seq).alias("ahead"),
        F.count_if(examined & ~is_proven()).alias("unproven"),
        F.count_if(F.when(comparable, boundary)).alias("at_boundary"),
        F.count_if(F.col("delivery_time_ms") > F.col("now_ms")).alias("delivered_later"),
        F.min("delivery_time_ms").alias("oldest_delivery_time_ms"),
        F.max("delivery_count").alias("highest_delivery_count"),
        F.min("id_ms").alias("low_ms"),
        F.max("id_ms").alias("high_ms"),
    )


_COUNTS = ("pending_before", "invalid", "ahead", "unproven", "at_boundary", "delivered_later")


def totals() -> list[Column]:
    """What adds the rows of `by_owner` up, by group."""
    return [
        *(F.sum(name).alias(name) for name in _COUNTS),
        *(F.min(name).alias(name) for name in ("oldest_delivery_time_ms", "low_ms")),
        *(F.max(name).alias(name) for name in ("highest_delivery_count", "high_ms")),
    ]


UNKNOWN_GROUP = "unknown group: it is not in the table groups"
NOT_IN_GROUPS = " (it is not in the table groups)"
"""What is added to the server's own words about a group that nobody knows."""
NO_SNAPSHOT_TIME = (
    "no snapshot time: groups.snapshot_ms is null or negative; set the time with --now"
)
NO_PROOF = "pending ids outside the id range that the table streams marks as complete"
NO_PROOF_REMEDY = (
    "It is unknown whether their entries still exist: take a new snapshot, or import again with"
    " --streams or --entries-complete"
)
TWICE = "duplicate key"
AHEAD = "a run_seq that no run of this store has had (copied from another store?)"


def is_proven() -> Column:
    """Whether a pending id lies in its stream's proven range; without a range none does."""
    in_range = id_at_least(
        "id_ms", "id_seq", F.col("complete_from_ms"), F.col("complete_from_seq")
    ) & id_at_most("id_ms", "id_seq", F.col("complete_to_ms"), F.col("complete_to_seq"))
    return F.coalesce(in_range, F.lit(False))


_SURVEYED = (
    *("start_ms", "start_seq", "page_end_ms", "page_end_seq", "count", "now_ms", "min_idle_ms"),
    *PROVEN_RANGE,
)


def within_page(from_start: Column) -> Column:
    """Whether a row that is (or is not) behind the start is one of the page's rows, too."""
    up_to_end = id_at_most("id_ms", "id_seq", F.col("page_end_ms"), F.col("page_end_seq"))
    return from_start & (F.col("page_end_ms").isNull() | up_to_end)


def judged(targets: DataFrame, sums: DataFrame, unrequested: Column) -> DataFrame:
    """One row per group that is requested, or that has entries, is not among the known groups and
    is in scope: `requests.standing`, the sums (0 where nothing is pending, the rest null), and
    `reason`: why the group is refused (null: it is accepted).

    Args:
        sums: one row per group with entries: the names, and `totals`.
        unrequested: a condition on the names: would the request have meant this group, had the
            table groups known it?
    """
    everything = targets.join(sums, on=list(GROUP), how="full").fillna(0, list(_COUNTS))
    is_requested = F.col("consumer").isNotNull() | (F.col("in_groups").isNull() & unrequested)
    return everything.where(is_requested).withColumn("reason", refusal())


def is_invalid() -> Column:
    """Whether a pending row has a time or a count that none can be."""
    return (F.col("delivery_time_ms") < 0) | (F.col("delivery_count") < 0)


_REPAIR = "claimlib check prints the statement that repairs it"


def ahead() -> Column:
    """Why a group with pending rows of another store's runs is refused."""
    return F.concat(F.lit(f"rows of pending with {AHEAD}: "), "ahead", F.lit(f"; {_REPAIR}"))


def unknown_group() -> Column:
    """Why a group that nobody knows is refused, as the server says it (`words.no_group`); null
    where it is known."""
    stream, group = (F.translate(name, "\r\n", "  ") for name in GROUP)
    said = ("NOGROUP No such key '", stream, "' or consumer group '", group, f"'{NOT_IN_GROUPS}")
    words = (F.lit(part) if isinstance(part, str) else part for part in said)
    return F.when(F.col("in_groups").isNull(), F.concat(*words))


def refusal() -> Column:
    """Why a group is refused, most basic reason first; null where it is not."""
    return (
        unknown_group()
        .when(
            F.col("repeated_in").isNotNull(),
            F.concat(
                F.lit(f"{TWICE} in "), "repeated_in", F.lit(": delete all rows of the key but one")
            ),
        )
        .when(
            F.col("ahead_in").isNotNull(),
            F.concat("ahead_in", F.lit(f" has a row with {AHEAD}; {_REPAIR}")),
        )
        .when(F.col("ahead") > 0, ahead())
        .when(
            F.col("now_ms").isNull() | (F.col("now_ms") < 0),
            F.lit(NO_SNAPSHOT_TIME),
        )
        .when(
            F.col("invalid") > 0,
            F.concat(
                F.lit("rows of pending with a negative delivery_time_ms or delivery_count: "),
                F.col("invalid"),
            ),
        )
        .when(
            F.col("unproven") > 0,
            F.concat(
                F.lit(f"no proof of absence: {NO_PROOF}: "),
                F.col("unproven"),
                F.lit(f". {NO_PROOF_REMEDY}"),
            ),
        )
    )


def without_duplicates(judged: DataFrame, touched: DataFrame, mode: KeyMode) -> DataFrame:
    """`judged`, with the groups refused of which two touched rows have one id; the reason names the
    smallest such id.

    Args:
        touched: the rows that the accepted groups' requests would change, see `sweep.touched`.
    """
    copies = touched.groupBy("group_key", "id_ms", "id_seq").agg(F.count("*").alias("copies"))
    smallest = F.min(F.struct(unsigned("id_ms").alias("ms"), unsigned("id_seq").alias("seq")))
    text = F.format_string(
        f"{TWICE}: ids that occur more than once in pending: %d, the first is %s-%s",
        F.count("*"),
        unsigned_text(unsigned(smallest["ms"])),
        unsigned_text(unsigned(smallest["seq"])),
    )
    twice = copies.where("copies > 1").groupBy("group_key").agg(text.alias("found"))
    return (
        judged.withColumn("group_key", group_key(mode))
        .join(twice, on="group_key", how="left")
        .withColumn("reason", F.coalesce("reason", "found"))
        .drop("group_key", "found")
    )
