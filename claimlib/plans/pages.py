"""Pages: what exactly one XAUTOCLAIM with a COUNT examines in each group, and where it ends.

A page examines the first `10 * COUNT` pending entries from its start, and stops behind the COUNT-th
hit (see `scan`).  So only the first `10 * COUNT + 1` of them matter: the page's rows.  Where they
end is not known beforehand.  `counted` counts in a window of ids, in bins, so that whoever asks can
widen or narrow the window until it holds the page's rows and few others; nothing outside is read.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from claimlib.plans.keys import GROUP, id_at_least, in_id_order, unsigned
from claimlib.semantics.model import SCAN_BUDGET_FACTOR

BINS = 64


def counted(pending: DataFrame, windows: DataFrame) -> DataFrame:
    """How far each page's rows reach: one row per group that has entries in its window.

    Columns: stream, consumer_group, `bin` (the first bin up to whose end there are `page_rows`
    rows; null: the window has fewer), `up_to_bin` (the rows up to its end) and `low_ms` (the
    smallest id_ms of all).  Rows are counted where they lie; at most `BINS` numbers per group and
    partition are shuffled.

    Args:
        pending: rows of pending, cut to the files that the windows overlap.
        windows: one row per page: stream, consumer_group, start_ms, start_seq, page_rows; `base_ms`
            and `last_ms`, the window (what lies between the start and `base_ms` is in bin 0);
            `bin_ms`, a bin's width; `far_ms`, behind which all is in bin `BINS`.
    """
    id_ms, base_ms, far_ms = map(unsigned, ("id_ms", "base_ms", "far_ms"))
    above_base = F.when((id_ms > base_ms) & (id_ms <= far_ms), id_ms - base_ms)
    bin_ = (
        F.when(id_ms <= base_ms, 0).when(id_ms > far_ms, BINS).otherwise(F.expr("above div bin_ms"))
    )
    binned = (
        _within(pending, windows)
        .withColumn("above", above_base)
        .groupBy(*GROUP, "page_rows", bin_.alias("bin"))
        .agg(F.count("*").alias("n"), F.min(id_ms).alias("low"))
    )
    up_to = F.sum("n").over(Window.partitionBy(*GROUP).orderBy("bin"))
    enough = F.col("up_to") >= F.col("page_rows")
    return (
        binned.withColumn("up_to", up_to)
        .groupBy(*GROUP)
        .agg(
            F.min(F.when(enough, F.col("bin"))).alias("bin"),
            F.min(F.when(enough, F.col("up_to"))).alias("up_to_bin"),
            unsigned(F.min("low")).alias("low_ms"),
        )
    )


def ends(pending: DataFrame, windows: DataFrame) -> DataFrame:
    """The last of each page's rows: one row per page of which there are as many, with stream,
    consumer_group, `page_end_ms` and `page_end_seq`.  Arguments as those of `counted`."""
    return (
        _within(pending, windows)
        .withColumn("rank", F.row_number().over(_in_order(*GROUP)))
        .where(F.col("rank") == F.col("page_rows"))
        .select(*GROUP, F.col("id_ms").alias("page_end_ms"), F.col("id_seq").alias("page_end_seq"))
    )


def examined(candidates: DataFrame, *, has_sweeps: bool) -> DataFrame:
    """The candidates of a sweep, with `is_examined` as COUNT and the scan budget say, and `rank`
    (null for a sweep's rows, of which all are examined).

    Of each page, `candidates` has the page's rows, or all that there are.  Of two rows of one id
    the request gets to both or to none, so that the kernel meets them.

    Args:
        has_sweeps: whether there are rows of sweeps among them; else their part of the plan, with
            its own scans, is left out.
    """
    in_order = _in_order("group_key")
    rank = F.row_number().over(in_order)
    before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    in_budget = F.col("rank") <= F.col("count") * SCAN_BUDGET_FACTOR
    hits_before = F.count_if(F.col("is_hit")).over(before)
    of_one_id = Window.partitionBy("group_key", "id_ms", "id_seq")
    pages = (
        candidates.where(F.col("count").isNotNull())
        .withColumns({"rank": rank, "hits_before": hits_before})
        .withColumn("is_examined", in_budget & (F.col("hits_before") < F.col("count")))
        .withColumn("is_examined", F.bool_or("is_examined").over(of_one_id))
        .drop("hits_before")
    )
    if not has_sweeps:
        return pages
    sweeps = candidates.where(F.col("count").isNull())
    return sweeps.unionByName(pages, allowMissingColumns=True)


def next_ids(examined_rows: DataFrame) -> DataFrame:
    """One row per page that did not reach the end of its PEL: group_key, next_ms, next_seq, the
    first id that was not examined."""
    first = F.min_by(F.struct("id_ms", "id_seq"), "rank").alias("id")
    behind = examined_rows.where(~F.col("is_examined")).groupBy("group_key").agg(first)
    return behind.select(
        "group_key", F.col("id.id_ms").alias("next_ms"), F.col("id.id_seq").alias("next_seq")
    )


def _within(pending: DataFrame, windows: DataFrame) -> DataFrame:
    """The ids that are pending in each page's window, beside the window."""
    return (
        pending.select(*GROUP, "id_ms", "id_seq")
        .join(F.broadcast(windows), on=list(GROUP), how="inner")
        .where(id_at_least("id_ms", "id_seq", "start_ms", "start_seq"))
        .where(unsigned("id_ms") <= unsigned("last_ms"))
    )


def _in_order(*group: str) -> WindowSpec:
    return Window.partitionBy(*group).orderBy(*in_id_order())
