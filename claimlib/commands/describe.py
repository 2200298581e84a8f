"""What a store knows of consumers and cursors, one row each.  Reads only."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from claimlib.commands.preconditions import check_ms
from claimlib.commands.xpending import Reading
from claimlib.plans import xpending as plan
from claimlib.plans.differences import Scope
from claimlib.plans.keys import GROUP, id_text

TABLES = ("pending", "groups", "consumers", "cursors")
"""What a description is made of."""


@dataclass(frozen=True, slots=True)
class Description:
    """What the tables hold; both frames are in the driver's memory.

    Attributes:
        consumers: one row per (stream, consumer_group, consumer) that the table consumers has, or
            that owns entries: pending, oldest_idle_ms (null: nothing is pending, or the group has
            no instant), highest_delivery_count (null: nothing is pending), seen_time_ms and
            active_time_ms (ms since the epoch; null: not known), now_ms (the instant of the idle
            times; null: none), `is_known` (is it in consumers?).
        cursors: one row per (name, stream, consumer_group): next_id, where the next page begins
            (`0-0`: at the first entry).
        without_owner: how many pending entries no consumer owns.
    """

    consumers: DataFrame
    cursors: DataFrame
    without_owner: int = 0


def describe(at: Reading, scope: Scope, *, now_ms: int | None = None) -> Description:
    """The consumers and the cursors of the groups that two globs match.

    Args:
        at: needs `TABLES`, see `xpending.reading`.
        now_ms: the instant for all groups; null: each group's snapshot instant.
    """
    check_ms(now_ms=now_ms)
    with at.interpreted(TABLES):
        return _described(at, scope, now_ms)


def _described(at: Reading, scope: Scope, now_ms: int | None) -> Description:
    pending, groups, consumers, cursors = (at.read_in(scope, table) for table in TABLES)
    instants = plan.instants(groups, now_ms).select(*GROUP, "now_ms")
    entries = plan.idle_entries(pending, groups, now_ms)
    owned = plan.owners(entries, 0).select(
        *(*GROUP, "consumer", "pending", "oldest_idle_ms", "highest_delivery_count")
    )
    known = consumers.groupBy(*GROUP, "consumer").agg(
        F.max("seen_time_ms").alias("seen_time_ms"),
        F.max("active_time_ms").alias("active_time_ms"),
        F.lit(True).alias("is_known"),
    )
    described = (
        known.join(owned, on=[*GROUP, "consumer"], how="full")
        .join(F.broadcast(instants), on=list(GROUP), how="left")
        .fillna(False, ["is_known"])
        .fillna(0, ["pending"])
    )
    places = cursors.select("name", *GROUP, id_text("next_ms", "next_seq").alias("next_id"))
    held, rows = at.store.fetched(described)
    # No consumer is called null: such a row is of a group's entries without an owner.
    unowned = rows.filter(pc.is_null(rows["consumer"]))
    return Description(
        held.where("consumer IS NOT NULL"),
        at.store.held(places),
        without_owner=pc.sum(unowned["pending"]).as_py() or 0,
    )
