"""Decide the entries of all accepted groups.  The kernel decides them in sorted ranges of PELs."""

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
            "from_consumer_key",
            "from_delivery_time_ms",
            "from_delivery_count",
            "delivery_count",
        ),
        "BIGINT",
    ),
}


def candidates(
    pending: Relation, entries: Relation, accepted: Relation, owners: Relation | None
) -> Relation:
    """Return one row per pending row that the request of its group may examine.

    These are the rows from the request's start on.  For a page they end at the page's last row.

    Columns: `kernel.INPUT`, `count`, `is_idle_enough`, `is_exhausted`, `is_claimable`, `is_hit` and
    `is_examined`.  The first three conditions are those of `semantics.rules`.  `is_hit` is true if
    the row is claimed or deleted as soon as the request examines it.  `is_examined` is always true.
    For pages, `pages.examined` replaces it.  Rows with the same key are in the same task.

    This takes at most one shuffle of pending, for the join with `entries`.  The conditions that
    depend on the request are computed before the shuffle, so that rows are narrow.

    Args:
        accepted: `survey.judged` without the refused groups, with the groups' keys.
        owners: `guards.owners`, or None if no request has guards.
    """
    request = accepted.select(
        "group_key",
        "start_ms",
        "start_seq",
        "page_end_ms",
        "page_end_seq",
        "count",
        "now_ms",
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
        .select("*", *_CONDITIONS)
        .select(
            *_ENTRY,
            "consumer_key",
            "is_spared",
            "is_parking",
            "count",
            "is_idle_enough",
            "is_exhausted",
            "is_claimable",
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
# The conditions that do not depend on whether the stream has the entry.
_CONDITIONS = (
    f"{_IDLE_ENOUGH.sql} AS is_idle_enough",
    f"{_EXHAUSTED.sql} AS is_exhausted",
    f"{_CLAIMABLE.sql} AS is_claimable",
)
# True if the entry is claimed or deleted.  This depends on whether the stream has the entry.
_HIT = rules.is_touched(*terms("present", "is_claimable"))


def _with_owners(rows: Relation, owners: Relation | None) -> Relation:
    names = ("is_spared", "is_parking")
    if owners is None:
        return rows.select("*", *(f"false AS {name}" for name in names))
    owner_conditions = ", ".join(f"coalesce(owners.{name}, false) AS {name}" for name in names)
    return rows.sql(
        f"""
        SELECT this.*, {owner_conditions} FROM {{this}} AS this LEFT JOIN {{owners}} AS owners
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

    This takes no shuffle.  Rows with the same key are in the same task, so the kernel finds
    repeated rows.  The sorted rows of a task are one range of the kernel.

    Args:
        touched_rows: `touched`.
        requests: the requests of the accepted groups, see `kernel.decide_range`.
    """
    decide = partial(kernel.decide_range, requests=requests)
    return touched_rows.mapped(decide, _KERNEL_COLUMNS, ("group_key", *ID_ORDER))


def with_presence(rows: Relation, entries: Relation) -> Relation:
    """Return `rows` with `present`, which is true if `entries` has the id.

    An entry that `entries` has twice does not repeat a row.

    The join is by sort and merge.  Without the hint Spark would broadcast the ids, because files of
    ids compress so well that Spark estimates millions of ids as a few megabytes.

    The rows are divided by the id before the join, and keep this division.  If the join divided
    them itself, AQE could split a skewed partition, and rows with the same key could be in
    different tasks.

    EXISTS is faster than a join with the distinct ids (docs/decisions/008).  Spark executes each
    EXISTS in the plan separately.  A later filter on `present` would be pushed down with a copy of
    the EXISTS.  The column `partition` prevents this, because Spark pushes no filter below an
    expression that is not deterministic.
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
