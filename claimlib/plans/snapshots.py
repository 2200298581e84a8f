"""The series of snapshots: who had what pending when, and what a claim would have taken.

A snapshot keeps the PELs as it read them (`pel_snapshots`), and the journal keeps which groups it
read, when, and how far each had been delivered.  An entry that a later snapshot of its group no
longer has, although the group was delivered beyond it, has left the PEL.  It counts as deleted if a
run of the store removed it, because its stream entry no longer existed.  It counts as unknown if
another stream replaced its stream.  Else it was acknowledged.  Two other things look the same and
are rare: a claim on the server that found the entry deleted from its stream, and a group that was
destroyed and made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from claimlib.plans.keys import ENTRY, GROUP, id_at_most

OUTCOMES = ("acknowledged", "deleted", "taken_over", "still_pending", "unknown")
"""What became of a claimed entry: see `claims`."""
_LAST_IDS = ("last_delivered_ms", "last_delivered_seq")


def readings(journal: DataFrame, runs: DataFrame) -> DataFrame:
    """Return one row per group of each finished snapshot or import that read it: `landing`, stream,
    consumer_group, `landing_ms` (the instant of the first group of that landing), `at_ms` (that of
    this group), and of the group's next reading `next_at_ms`, `next_last_delivered_ms` and
    `next_last_delivered_seq` (null if it has none) and `next_is_replaced` (whether the group or its
    stream was removed or made again after this reading).

    What nobody finished, or gave up, is left out, and so is a group without an instant.
    """
    finished = runs.where(F.col("counts")["abandoned"].isNull()).select("run_seq")
    landings = (
        journal.where("kind = 'run' AND landing IS NOT NULL")
        .select("run_seq", "landing")
        .join(finished, on="run_seq", how="left_semi")
    )
    is_reading = "kind = 'group' AND at_ms IS NOT NULL"
    seen = journal.where(f"{is_reading} OR kind = 'group_removed'")
    later = Window.partitionBy(*GROUP).orderBy("run_seq").rowsBetween(1, Window.unboundedFollowing)
    removed_by = F.min(F.expr("CASE WHEN kind = 'group_removed' THEN run_seq END")).over(later)
    groups = (
        seen.withColumn("removed_by", removed_by)
        .where(is_reading)
        .select("run_seq", *GROUP, "at_ms", *_LAST_IDS, "removed_by")
    )
    streams = journal.where("kind = 'stream'").select(
        "run_seq", "stream", "entries_added", F.col("reason").isNotNull().alias("is_replaced")
    )
    in_time = Window.partitionBy(*GROUP).orderBy("at_ms", "run_seq")
    # Snapshots of earlier versions of claimlib did not compare the counters, so fewer added entries
    # also count as a replacement.
    has_fewer = F.lead("entries_added").over(in_time) < F.col("entries_added")
    was_removed = F.col("removed_by") <= F.coalesce(
        F.lead("run_seq").over(in_time), F.col("removed_by")
    )
    signs = (F.lead("is_replaced").over(in_time), has_fewer, was_removed)
    is_replaced = reduce(or_, (F.coalesce(sign, F.lit(False)) for sign in signs))
    with_streams = groups.join(streams, on=["run_seq", "stream"], how="left")
    return with_streams.join(landings, on="run_seq").select(
        "landing",
        *GROUP,
        F.min("at_ms").over(Window.partitionBy("landing")).alias("landing_ms"),
        "at_ms",
        *(F.lead(name).over(in_time).alias(f"next_{name}") for name in ("at_ms", *_LAST_IDS)),
        is_replaced.alias("next_is_replaced"),
    )


def deletions(journal: DataFrame, tombstones: DataFrame) -> DataFrame:
    """Return one row per entry that a run removed from a PEL because its stream no longer had it:
    stream, consumer_group, id_ms, id_seq.

    Args:
        journal, tombstones: the tables.  Old rows of either may have been deleted.
    """
    key = ["run_seq", *ENTRY]
    decided = journal.where("kind = 'deleted'").select(*key)
    lost = journal.where("kind = 'lost'").select(*key)
    kept = decided.join(lost, on=key, how="left_anti")
    return kept.union(tombstones.select(*key)).select(*ENTRY).distinct()


def over_time(pel: DataFrame, read: DataFrame, stalled_ms: int) -> DataFrame:
    """Return one row per landing, group and consumer that owns entries of it (a group that has none
    pending has one row, of no consumer): landing_ms, stream, consumer_group, consumer, `pending`,
    `stalled` (idle for so long, or longer).

    Args:
        pel: rows of `pel_snapshots`.
        read: `readings`.
    """
    rows = pel.select("landing", *ENTRY, "consumer", "delivery_time_ms")
    idle_ms = F.try_subtract("at_ms", "delivery_time_ms")
    return (
        read.join(rows, on=["landing", *GROUP], how="left")
        .groupBy("landing_ms", *GROUP, "consumer")
        .agg(
            F.count("id_ms").alias("pending"),
            F.count_if(idle_ms >= stalled_ms).alias("stalled"),
        )
    )


def claims(
    pel: DataFrame, read: DataFrame, deleted: DataFrame, min_idles_ms: Sequence[int]
) -> DataFrame:
    """Return what a sweep right after each snapshot would have claimed, had it been the first one
    to touch the entry: one row per min-idle and entry that was idle for longer at some reading of
    its group.

    Columns: `min_idle_ms`, the entry's key, `from_consumer` (its owner then), `claimed_ms` (the
    instant of that reading), `idle_ms` (how long it had been idle then) and `outcome`, what
    really became of it: `acknowledged` (it left the PEL, and was never seen with another owner:
    the claim would have had its work done twice), `deleted` (a run removed it, because its stream
    no longer had it), `taken_over` (another consumer owned it when it was seen last: a claim would
    have come sooner), `still_pending` (as often as the group was read) or `unknown` (it is gone,
    and either the group's last delivered id was smaller when it was read again, or the group or its
    stream was removed or made again).

    Args:
        pel: rows of `pel_snapshots`.
        read: `readings`.
        deleted: `deletions`.
        min_idles_ms: the values to compare.
    """
    rows = pel.select("landing", *ENTRY, "consumer", "delivery_time_ms").join(
        read, on=["landing", *GROUP]
    )
    rows = rows.withColumn("idle_ms", F.try_subtract("at_ms", "delivery_time_ms"))
    after = [f"next_{name}" for name in ("at_ms", *_LAST_IDS, "is_replaced")]
    last = rows.groupBy(*ENTRY).agg(
        F.max_by(F.struct(F.col("consumer").alias("last_consumer"), *after), "at_ms").alias("last")
    )
    firsts = (
        rows.select("*", _each(min_idles_ms))
        .where(F.col("idle_ms") > F.col("min_idle_ms"))
        .groupBy("min_idle_ms", *ENTRY)
        .agg(F.min_by(F.struct("consumer", "at_ms", "idle_ms"), "at_ms").alias("first"))
    )
    was_delivered = F.expr(
        id_at_most("id_ms", "id_seq", "next_last_delivered_ms", "next_last_delivered_seq")
    )
    outcome = (
        F.when(~F.col("last_consumer").eqNullSafe(F.col("from_consumer")), "taken_over")
        .when(F.col("next_at_ms").isNull() & ~F.col("next_is_replaced"), "still_pending")
        .when(F.col("is_deleted"), "deleted")
        .when(F.col("next_is_replaced"), "unknown")
        .when(was_delivered, "acknowledged")
        .otherwise("unknown")
    )
    return (
        firsts.join(last.select(*ENTRY, "last.*"), on=list(ENTRY))
        .join(deleted.withColumn("is_deleted", F.lit(True)), on=list(ENTRY), how="left")
        .select(
            "min_idle_ms",
            *ENTRY,
            *(*after, "last_consumer", "is_deleted"),
            F.col("first.consumer").alias("from_consumer"),
            F.col("first.at_ms").alias("claimed_ms"),
            F.col("first.idle_ms").alias("idle_ms"),
        )
        .withColumn("outcome", outcome)
        .drop(*after, "last_consumer", "is_deleted")
    )


def choices(claimed: DataFrame, min_idles_ms: Sequence[int]) -> DataFrame:
    """Return one row per min-idle, the smallest first: `claimed`, how many of these had each of the
    `OUTCOMES`, and `wait_ms`, how long those that were neither acknowledged nor deleted had been
    idle when they were claimed (the median; null: there are none).

    Args:
        claimed: `claims`.
        min_idles_ms: the values, with a row also where nothing would have been claimed.
    """
    values = claimed.sparkSession.range(1).select(_each(min_idles_ms))
    waited = F.when(~F.col("outcome").isin("acknowledged", "deleted"), F.col("idle_ms"))
    counted = claimed.groupBy("min_idle_ms").agg(
        F.count("*").alias("claimed"),
        *(F.count_if(F.col("outcome") == outcome).alias(outcome) for outcome in OUTCOMES),
        F.percentile_approx(waited, 0.5).alias("wait_ms"),
    )
    joined = values.join(counted, on="min_idle_ms", how="left")
    return joined.fillna(0, ["claimed", *OUTCOMES]).orderBy("min_idle_ms")


def _each(min_idles_ms: Sequence[int]) -> Column:
    """Return a row for each value."""
    values = (F.lit(min_idle_ms).cast("BIGINT") for min_idle_ms in min_idles_ms)
    return F.explode(F.array(*values)).alias("min_idle_ms")
