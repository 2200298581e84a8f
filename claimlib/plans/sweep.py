"""The sweep: every entry of every accepted group decided, by the kernel over sorted PEL ranges."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from claimlib import kernel, rules
from claimlib.plans.keys import (
    KeyMode,
    consumer_key,
    group_key,
    id_at_least,
    unsigned,
    with_keys,
)
from claimlib.plans.survey import within_page

_KERNEL_SCHEMA = (
    "{key}, id_ms BIGINT, id_seq BIGINT, outcome TINYINT, {consumer}, "
    "from_delivery_time_ms BIGINT, from_delivery_count BIGINT, delivery_count BIGINT"
)


def candidates(
    pending: DataFrame,
    entries: DataFrame,
    accepted: DataFrame,
    owners: DataFrame | None,
    mode: KeyMode,
) -> DataFrame:
    """One row per pending row that the request of its group may get to: from its start on, and of a
    page what lies in the page's window.

    Columns: `kernel.INPUT`, `count`, `is_hit` (is it claimed or deleted, if the request gets to
    it?) and `is_examined` (does it? of pages, only `pages.examined` knows).  `accepted` is
    `survey.judged` without the refused groups; `owners` is `guards.owners`, null where no request
    has guards.  One shuffle, the liveness join; with guards one more.
    """
    request = accepted.select(
        group_key(mode).alias("group_key"),
        *("start_ms", "start_seq", "page_end_ms", "page_end_seq", "count", "now_ms"),
        *("min_idle_ms", "equal_counts", "raise_by", "park_above"),
    )
    from_start = id_at_least("id_ms", "id_seq", F.col("start_ms"), F.col("start_seq"))
    rows = (
        with_keys(pending, mode)
        .select(
            *("stream_key", "group_key", "id_ms", "id_seq", "delivery_time_ms", "delivery_count"),
            consumer_key(mode).alias("consumer_key"),
        )
        .join(F.broadcast(request), on="group_key", how="inner")
        .where(within_page(from_start))
    )
    present = _with_owners(with_presence(rows, with_keys(entries, mode)), owners)
    hit: Column = rules.is_touched(F.col("present"), claimable())
    return present.withColumns({"is_hit": hit, "is_examined": F.lit(True)})


def idle_enough() -> Column:
    """`rules.is_idle_enough` of a candidate."""
    found: Column = rules.is_idle_enough(
        F.col("now_ms"), F.col("delivery_time_ms"), F.col("min_idle_ms"), F.col("equal_counts")
    )
    return found


def exhausted() -> Column:
    """`rules.is_exhausted` of a candidate."""
    found: Column = rules.is_exhausted(F.col("delivery_count"), F.col("park_above"))
    return found


def claimable() -> Column:
    """`rules.is_claimable` of a candidate.  What the rule leaves alone need not travel to
    Python."""
    found: Column = rules.is_claimable(
        idle_enough(), F.col("is_spared"), F.col("is_parking"), exhausted()
    )
    return found


def _with_owners(rows: DataFrame, owners: DataFrame | None) -> DataFrame:
    if owners is None:
        return rows.withColumns({"is_spared": F.lit(False), "is_parking": F.lit(False)})
    joined = rows.join(owners, on=["group_key", "consumer_key"], how="left")
    return joined.fillna(False, ["is_spared", "is_parking"])


def touched(candidates: DataFrame) -> DataFrame:
    """One row per pending row that is claimed or deleted, with `kernel.INPUT`."""
    return candidates.where("is_hit AND is_examined").select(*kernel.INPUT)


def decisions(touched_rows: DataFrame, mode: KeyMode) -> DataFrame:
    """One row per touched row, with `kernel.OUTPUT`.

    One shuffle, into PEL ranges: rows of one key meet in one range, so that a second one is seen.
    """
    ranges = touched_rows.repartition(*kernel.KEY)
    ordered = ranges.sortWithinPartitions("group_key", unsigned("id_ms"), unsigned("id_seq"))
    type_ = "BIGINT" if mode is KeyMode.HASHES else "STRING"
    schema = _KERNEL_SCHEMA.format(key=f"group_key {type_}", consumer=f"from_consumer_key {type_}")
    return ordered.mapInPandas(kernel.decide_range, schema)


def with_presence(rows: DataFrame, entries: DataFrame) -> DataFrame:
    """`rows` with `present`: whether `entries` has the id.  Repeated entries change nothing.

    By sort and merge: files of ids compress so well that Spark takes millions of them for a few
    megabytes, and would broadcast them.  As a join of distinct ids, not as EXISTS, `present` is
    found once, however often the plan asks for it.
    """
    key = ["stream_key", "id_ms", "id_seq"]
    ids = entries.select(*key).distinct().withColumn("present", F.lit(True))
    joined = rows.join(ids.hint("merge"), on=key, how="left")
    return joined.select(*rows.columns, F.col("present").isNotNull().alias("present"))
