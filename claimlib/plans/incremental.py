"""What an incremental sweep looks at: the rows of `pending` that can be claimed, refused or deleted
although an earlier sweep, the base, has looked at all of them.

After the base each row that it left was in its stream.  It still is, unless somebody has written
the row since, or the entry has been deleted since.  So a row is looked at where it is due, or was
written since, or its entry was; and only of the latter two anybody must ask whether the stream
still has the entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from claimlib.plans.keys import GROUP, id_at_least, id_at_most, is_group
from claimlib.plans.requests import PROVEN_RANGE
from claimlib.semantics import rules

# By the stream's 64-bit key: where two streams share one, more is looked at than need be.
ENTRY = ("stream_key", "id_ms", "id_seq")


@dataclass(frozen=True, slots=True)
class Since:
    """What may make a row of `pending` matter that a base has looked at.

    Attributes:
        base_seq: the run_seq of the base.
        due_ms: no request claims what was delivered later, ms since the epoch.
        now_ms: the earliest instant at which a group is judged, ms since the epoch.
        without_base: the groups that the base proves nothing about: all of their rows matter.
        changed: one row per entry that somebody has deleted or changed since: `ENTRY`; so few that
            they are in the driver's memory; null: there is none.
    """

    base_seq: int
    due_ms: int
    now_ms: int
    without_base: tuple[tuple[str, str], ...]
    changed: DataFrame | None

    def is_new(self) -> Column:
        """Whether the base says nothing about a row of `pending`: somebody wrote it since, or its
        group has no base."""
        groups = (is_group(*names) for names in self.without_base)
        return reduce(or_, groups, F.col("run_seq") > self.base_seq)

    def is_special(self) -> Column:
        """Whether a row may be claimed, or is counted."""
        time_ms = F.col("delivery_time_ms")
        return (time_ms <= self.due_ms) | (time_ms > self.now_ms) | (F.col("delivery_count") < 0)


def to_look_at(pending: DataFrame, since: Since) -> DataFrame:
    """The rows of `pending` that matter, with `is_known_present`: whether the base tells that the
    stream has the entry.

    One scan.  The changed entries are broadcast: they are few, whatever the tables hold.
    """
    is_changed = F.lit(False)
    if since.changed is not None:
        changed = F.broadcast(since.changed.withColumn("is_changed", F.lit(True)))
        pending = pending.join(changed, on=list(ENTRY), how="left")
        is_changed = F.col("is_changed").isNotNull()
    rows = pending.where(since.is_new() | since.is_special() | is_changed)
    is_known = rules.is_known_present(since.is_new(), is_changed)
    return rows.withColumn("is_known_present", is_known).drop("is_changed")


def with_ids_of(entries: DataFrame, ids: DataFrame) -> DataFrame:
    """The entries with some ids (`ENTRY`), which are so few that they are broadcast."""
    return entries.join(F.broadcast(ids), on=list(ENTRY), how="left_semi")


def deleted_or_changed(feed: DataFrame) -> DataFrame:
    """One row per entry that the change data feed of `entries` shows as deleted or changed:
    `ENTRY`.  Whether the entry is there again, the feed does not say for sure: the
    table may have held it twice."""
    gone = F.col("_change_type").isin("delete", "update_preimage")
    return feed.where(gone).select(*ENTRY).distinct()


def with_less_proof(then: DataFrame, now: DataFrame) -> DataFrame:
    """The names of the streams (rows of `streams`) whose proven range does not hold any more all of
    what it held then.  Where it held nothing, nothing was pending, or it was refused."""
    before = then.selectExpr("stream", *(f"{name} AS then_{name}" for name in PROVEN_RANGE))
    from_ms, from_seq, to_ms, to_seq = PROVEN_RANGE
    begins = id_at_most(from_ms, from_seq, f"then_{from_ms}", f"then_{from_seq}")
    ends = id_at_least(to_ms, to_seq, f"then_{to_ms}", f"then_{to_seq}")
    both = before.where(f"then_{from_ms} IS NOT NULL").join(now, on="stream", how="left")
    return both.where(f"NOT coalesce({begins} AND {ends}, false)").select("stream").distinct()


def unlike(groups: DataFrame, others: DataFrame) -> DataFrame:
    """The groups (by their names) that are not among others."""
    return groups.select(*GROUP).distinct().join(others, on=list(GROUP), how="left_anti")
