"""The sweep: every entry of every accepted group decided, by the kernel over sorted PEL ranges."""

from __future__ import annotations

from functools import partial, reduce
from operator import and_

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from claimlib.plans import kernel
from claimlib.plans.keys import CONSUMER_KEY, GROUP_KEY, divided, in_id_order
from claimlib.plans.sql_terms import Term, terms
from claimlib.plans.survey import IS_EXAMINED
from claimlib.semantics import rules

_KERNEL_SCHEMA = (
    "group_key BIGINT, id_ms BIGINT, id_seq BIGINT, outcome TINYINT, from_consumer_key BIGINT,"
    " from_delivery_time_ms BIGINT, from_delivery_count BIGINT, delivery_count BIGINT"
)


def candidates(
    pending: DataFrame,
    entries: DataFrame,
    accepted: DataFrame,
    owners: DataFrame | None,
    *,
    in_one_task: bool,
) -> DataFrame:
    """One row per pending row that the request of its group may get to: from its start on, and of a
    page what lies in the page's window.

    Columns: `kernel.INPUT`, `count`, `is_idle_enough`, `is_exhausted` and `is_claimable` (see
    `rules`), `is_hit` (is it claimed or deleted, if the request gets to it?) and `is_examined`
    (does it? of pages, only `pages.examined` knows).  Rows of one key are in one partition.

    One shuffle of pending at most, the liveness join's; what the rules need of the request is used
    up before it, so that rows are narrow.

    Args:
        accepted: `survey.judged` without the refused groups.
        owners: `guards.owners`; null where no request has guards.
        in_one_task: see `with_presence`.
    """
    request = accepted.selectExpr(
        f"{GROUP_KEY} AS group_key",
        *("start_ms", "start_seq", "page_end_ms", "page_end_seq", "count", "now_ms"),
        *(name for name in kernel.REQUEST if name not in {"now_ms", "raise_by"}),
    )
    rows = (
        pending.selectExpr(*_ENTRY, f"{CONSUMER_KEY} AS consumer_key")
        .join(F.broadcast(request), on="group_key", how="inner")
        .where(IS_EXAMINED)
    )
    told = _with_owners(rows, owners).selectExpr("*", *_TOLD)
    narrow = told.selectExpr(
        *(*_ENTRY, "consumer_key", "is_spared", "is_parking", "count"),
        *("is_idle_enough", "is_exhausted", "is_claimable"),
    )
    present = with_presence(narrow, entries, in_one_task=in_one_task)
    return present.selectExpr("*", f"{_HIT.sql} AS is_hit", "true AS is_examined")


_ENTRY = ("stream_key", "group_key", "id_ms", "id_seq", "delivery_time_ms", "delivery_count")


_IDLE_ENOUGH = rules.is_idle_enough(
    *terms("now_ms", "delivery_time_ms", "min_idle_ms", "equal_counts")
)
_EXHAUSTED = rules.is_exhausted(*terms("delivery_count", "park_above"))
_CLAIMABLE = rules.is_claimable(_IDLE_ENOUGH, Term("is_spared"), Term("is_parking"), _EXHAUSTED)
# What the request says of an entry, whether the stream has it or not; and, where that is known,
# whether it is claimed or deleted.
_TOLD = (
    f"{_IDLE_ENOUGH.sql} AS is_idle_enough",
    f"{_EXHAUSTED.sql} AS is_exhausted",
    f"{_CLAIMABLE.sql} AS is_claimable",
)
_HIT = rules.is_touched(*terms("present", "is_claimable"))


def _with_owners(rows: DataFrame, owners: DataFrame | None) -> DataFrame:
    if owners is None:
        return rows.withColumns({"is_spared": F.lit(False), "is_parking": F.lit(False)})
    joined = rows.join(owners, on=["group_key", "consumer_key"], how="left")
    return joined.fillna(False, ["is_spared", "is_parking"])


def touched(candidates: DataFrame) -> DataFrame:
    """One row per pending row that is claimed or deleted, with `kernel.INPUT`.  What the rule
    leaves alone need not travel to Python."""
    return candidates.where("is_hit AND is_examined").selectExpr(*kernel.INPUT)


def decisions(touched_rows: DataFrame, requests: pd.DataFrame) -> DataFrame:
    """One row per touched row, with `kernel.OUTPUT`.  No shuffle: rows of one key are in one
    partition, so that a second one is seen, and sorted there they are the kernel's range.

    Args:
        requests: those of the accepted groups, as `kernel.decide_range` takes them.
    """
    ordered = touched_rows.sortWithinPartitions("group_key", *in_id_order())
    return ordered.mapInPandas(partial(kernel.decide_range, requests=requests), _KERNEL_SCHEMA)


def with_presence(rows: DataFrame, entries: DataFrame, *, in_one_task: bool) -> DataFrame:
    """`rows` with `present`: whether `entries` has the id.  Repeated entries change nothing.

    By sort and merge: files of ids compress so well that Spark takes millions of them for a few
    megabytes, and would broadcast them.  The rows are divided by the id first, and so stay: a
    division that is requested is not split where AQE finds it skewed, as that of a join is.

    An existence join: of 10 million ids a join with the distinct ones took 9.5 s, this 6.1 s.  It
    is made once for each place in the plan at which EXISTS stands, and a filter of `present` would
    take a copy of it down with it, as filters do.  No filter goes below an expression that is not
    deterministic, which a partition's number is to Spark.

    Args:
        in_one_task: whether rows and entries are few, so that one task may look at all of them.
    """
    key = ("stream_key", "id_ms", "id_seq")
    ids = entries.selectExpr(*(f"{name} AS entry_{name}" for name in key))
    ids = ids.coalesce(1) if in_one_task else ids
    # By the alias: a bare name would be found in `entries`, where it is hidden, before the rows.
    same = (F.col(f"entry_{name}") == F.col(f"row.{name}").outer() for name in key)
    joined = (
        divided(rows, *key, in_one_task=in_one_task)
        .alias("row")
        .select(
            *rows.columns,
            ids.where(reduce(and_, same)).hint("merge").exists().alias("present"),
            F.spark_partition_id().alias("partition"),
        )
    )
    return joined.where("partition >= 0").drop("partition")
