"""Describe the consumers and the cursors of a store, one row each.  Nothing is written."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.compute as pc

from claimlib.commands.preconditions import check_ms
from claimlib.commands.xpending import Reading
from claimlib.engine.relation import Relation
from claimlib.plans import xpending_plan as plan
from claimlib.plans.differences import EVERYTHING, Scope
from claimlib.plans.keys import GROUP, GROUP_SQL, id_text_sql

TABLES = ("pending", "groups", "consumers", "cursors")
"""List the tables that a description reads."""
CONSUMER_COLUMNS = (
    *GROUP,
    "consumer",
    "seen_time_ms",
    "active_time_ms",
    "is_known",
    "pending",
    "oldest_idle_ms",
    "oldest_delivery_time_ms",
    "highest_delivery_count",
    "now_ms",
)
"""List the columns of `Description.consumers`, in order."""


@dataclass(frozen=True, slots=True)
class Description:
    """Hold the consumers and the cursors of a store, all in memory.

    Attributes:
        consumers: one row per (stream, consumer_group, consumer) that the table consumers has, or
            that owns entries.  Columns:
            - pending: the number of its entries.
            - oldest_delivery_time_ms, highest_delivery_count: None if the consumer has no entries.
            - oldest_idle_ms: None if the consumer has no entries, or now_ms is None.
            - now_ms: the time for which idle times are computed.  None if it is not given and the
              group has no snapshot time.
            - seen_time_ms, active_time_ms: ms since the epoch, or None if unknown.
            - is_known: true if the table consumers has the consumer.
        cursors: one row per (name, stream, consumer_group).  next_id is the id at which the next
            page begins.  `0-0` means the first entry.
        without_owner: the number of pending entries that no consumer owns.
    """

    consumers: Relation
    cursors: Relation
    without_owner: int = 0


def describe(at: Reading, scope: Scope = EVERYTHING, *, now_ms: int | None = None) -> Description:
    """Return the consumers and the cursors of the groups that a scope matches.

    Args:
        at: a reading with `TABLES`, see `xpending.read_store`.
        now_ms: the time for all groups.  None means the time of each group's snapshot.

    Examples:
        >>> describe(read_store(open_store("./store")), Scope("orders")).consumers.count()
        2
    """
    check_ms(now_ms=now_ms)
    pending, groups, consumers, cursors = (at.read_in(scope, table) for table in TABLES)
    described = consumers.sql(
        f"""
        WITH known AS (
            SELECT {GROUP_SQL}, consumer, max(seen_time_ms) AS seen_time_ms,
                max(active_time_ms) AS active_time_ms, true AS is_known
            FROM {{this}} AS this GROUP BY {GROUP_SQL}, consumer
        ), described AS (
            SELECT {GROUP_SQL}, consumer, coalesce(pending, 0L) AS pending, oldest_idle_ms,
                oldest_delivery_time_ms, highest_delivery_count, seen_time_ms, active_time_ms,
                coalesce(is_known, false) AS is_known
            FROM known FULL JOIN
                (SELECT {GROUP_SQL}, consumer, pending, oldest_idle_ms, oldest_delivery_time_ms,
                    highest_delivery_count FROM {{owned}} AS owned) AS owned
                USING ({GROUP_SQL}, consumer)
        )
        SELECT /*+ BROADCAST(instants) */ {", ".join(CONSUMER_COLUMNS)}
        FROM described LEFT JOIN {{instants}} AS instants USING ({GROUP_SQL})
        """,
        owned=plan.owners(plan.idle_entries(pending, groups, now_ms), 0),
        instants=plan.instants(groups, now_ms).select(*GROUP, "now_ms"),
    ).fetched()
    # A row without a consumer counts the entries of a group that have no owner.
    rows = described.arrow()
    unowned = rows.filter(pc.is_null(rows["consumer"]))
    cursor_rows = cursors.select("name", *GROUP, f"{id_text_sql('next_ms', 'next_seq')} AS next_id")
    return Description(
        described.where("consumer IS NOT NULL"),
        cursor_rows.fetched(),
        without_owner=pc.sum(unowned["pending"]).as_py() or 0,
    )
