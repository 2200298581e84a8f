"""Decide every entry of every accepted group, by the kernel over sorted PEL ranges."""

from __future__ import annotations

from functools import partial

import pandas as pd

from claimlib.engine.relation import Relation
from claimlib.plans import kernel
from claimlib.plans.keys import CONSUMER_KEY, ID_ORDER
from claimlib.plans.sql_terms import Term, terms
from claimlib.plans.survey import IS_EXAMINED
from claimlib.semantics import rules

_KERNEL_COLUMNS = {
    **dict.fromkeys(("group_key", "id_ms", "id_seq"), "BIGINT"),
    "outcome": "TINYINT",
    **dict.fromkeys(
        (
            *("from_consumer_key", "from_delivery_time_ms"),
            *("from_delivery_count", "delivery_count"),
        ),
        "BIGINT",
    ),
}


def candidates(
    pending: Relation, entries: Relation, accepted: Relation, owners: Relation | None
) -> Relation:
    """Return one row per pending row that the request of its group may examine.

    These are the rows from the request's start on, and for a page only those in the page's window.

    Columns: `kernel.INPUT`, `count`, `is_idle_enough`, `is_exhausted`, `is_claimable`, `is_hit` and
    `is_examined`.  See `rules` for the first three conditions.  `is_hit` is true if the row is
    claimed or deleted when the request examines it.  `is_examined` is true here.  For pages, only
    `pages.examined` computes it.  Rows of one key are in one task.

    This takes at most one shuffle of pending, for the liveness join.  The values of the request
    that the rules need are used before it, so that rows are narrow.

    Args:
        accepted: `survey.judged` without the refused groups, with the groups' keys.
        owners: `guards.owners`, or None if no request has guards.
    """
    request = accepted.select(
        "group_key",
        *("start_ms", "start_seq", "page_end_ms", "page_end_seq", "count", "now_ms"),
        *(name for name in kernel.REQUEST if name not in {"now_ms", "raise_by"}),
    )
    rows = pending.sql(
        f"""
        SELECT /*+ BROADCAST(request) */ * FROM
            (SELECT {", ".join(_ENTRY)}, {CONSUMER_KEY} AS consumer_key FROM {{this}} AS this)
            AS rows
        JOIN {{request}} AS request USING (group_key) WHERE {IS_EXAMINED}
        """,
        request=request,
    )
    narrow = (
        _with_owners(rows, owners)
        .select("*", *_TOLD)
        .select(
            *(*_ENTRY, "consumer_key", "is_spared", "is_parking", "count"),
            *("is_idle_enough", "is_exhausted", "is_claimable"),
        )
    )
    present = with_presence(narrow, entries)
    return present.select("*", f"{_HIT.sql} AS is_hit", "true AS is_examined")


_ENTRY = ("stream_key", "group_key", "id_ms", "id_seq", "delivery_time_ms", "delivery_count")


_IDLE_ENOUGH = rules.is_idle_enough(
    *terms("now_ms", "delivery_time_ms", "min_idle_ms", "equal_counts")
)
_EXHAUSTED = rules.is_exhausted(*terms("delivery_count", "park_above"))
_CLAIMABLE = rules.is_claimable(_IDLE_ENOUGH, Term("is_spared"), Term("is_parking"), _EXHAUSTED)
# The conditions that do not depend on the presence of the entry in the stream.  `_HIT` does, and is
# true if the entry is claimed or deleted.
_TOLD = (
    f"{_IDLE_ENOUGH.sql} AS is_idle_enough",
    f"{_EXHAUSTED.sql} AS is_exhausted",
    f"{_CLAIMABLE.sql} AS is_claimable",
)
_HIT = rules.is_touched(*terms("present", "is_claimable"))


def _with_owners(rows: Relation, owners: Relation | None) -> Relation:
    names = ("is_spared", "is_parking")
    if owners is None:
        return rows.select("*", *(f"false AS {name}" for name in names))
    told = ", ".join(f"coalesce(owners.{name}, false) AS {name}" for name in names)
    return rows.sql(
        f"""
        SELECT this.*, {told} FROM {{this}} AS this LEFT JOIN {{owners}} AS owners
            ON this.group_key = owners.group_key AND this.consumer_key = owners.consumer_key
        """,
        owners=owners,
    )


def touched(candidates: Relation) -> Relation:
    """Return one row per pending row that is claimed or deleted, with `kernel.INPUT`.

    Rows that the rule leaves are not sent to Python.
    """
    return candidates.where("is_hit AND is_examined").select(*kernel.INPUT)


def decisions(touched_rows: Relation, requests: pd.DataFrame) -> Relation:
    """Return one row per touched row, with `kernel.OUTPUT`.

    This takes no shuffle.  Rows of one key are in one task, so that a repeated row is found.  The
    sorted rows of a task are the kernel's range.

    Args:
        requests: the requests of the accepted groups, as `kernel.decide_range` takes them.
    """
    decide = partial(kernel.decide_range, requests=requests)
    return touched_rows.mapped(decide, _KERNEL_COLUMNS, ("group_key", *ID_ORDER))


def with_presence(rows: Relation, entries: Relation) -> Relation:
    """Return `rows` with `present`, which is true if `entries` has the id.

    Repeated entries change nothing.

    The join is by sort and merge.  Files of ids compress so well that Spark estimates millions of
    ids as a few megabytes, and would broadcast them.  The rows are divided by the id first, and
    stay so.  AQE splits a skewed division that a join makes, but not one that is requested.

    An existence join is faster than a join with the distinct ids (docs/decisions/008).  Spark
    executes it once for each EXISTS in the plan.  A filter on `present` would be pushed down with a
    copy of the EXISTS.  Spark pushes no filter below an expression that is not deterministic, and
    the number of a partition is such an expression.
    """
    key = ("stream_key", "id_ms", "id_seq")
    same = " AND ".join(f"e.{name} = this.{name}" for name in key)
    joined = rows.divided(*key).sql(
        f"""
        SELECT *, EXISTS (SELECT /*+ MERGE(e) */ 1 FROM {{entries}} AS e WHERE {same}) AS present,
            spark_partition_id() AS partition
        FROM {{this}} AS this
        """,
        entries=entries.select(*key),
    )
    return joined.where("partition >= 0").select(*rows.columns, "present")
