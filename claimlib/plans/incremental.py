"""What an incremental sweep looks at: the rows of `pending` that can be claimed, refused or deleted
although an earlier sweep, the base, has looked at all of them.

After the base each row that it left was in its stream.  It still is, unless somebody has written
the row since, or the entry has been deleted since.  So a row is looked at where it is due, or was
written since, or its entry was; and only of the latter two anybody must ask whether the stream
still has the entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from claimlib.plans.keys import GROUP, id_at_least, id_at_most
from claimlib.plans.requests import PROVEN_RANGE
from claimlib.plans.sql_terms import terms
from claimlib.schema import TABLES
from claimlib.semantics import rules

# By the stream's 64-bit key: where two streams share one, more is looked at than need be.
ENTRY = ("stream_key", "id_ms", "id_seq")
CHANGED = "stream_key BIGINT, id_ms BIGINT, id_seq BIGINT, is_changed BOOLEAN"


@dataclass(frozen=True, slots=True)
class Since:
    """What may make a row of `pending` matter that a base has looked at.

    Attributes:
        base_seq: the run_seq of the base.
        due_ms: no request claims what was delivered later, ms since the epoch.
        now_ms: the earliest instant at which a group is judged, ms since the epoch.
        without_base: one row per group that the base proves nothing about, so that all of its
            rows matter: `GROUP` and `is_without_base` (true).
        changed: one row per entry that somebody has deleted or changed since: `ENTRY` and
            `is_changed` (true).

    Both have so few rows that they are in the driver's memory.
    """

    base_seq: int
    due_ms: int
    now_ms: int
    without_base: DataFrame
    changed: DataFrame

    @property
    def _is_new(self) -> str:
        """Whether the base says nothing about a row of `pending`: somebody wrote it since, or its
        group has no base."""
        return f"(run_seq > {self.base_seq:d} OR coalesce(is_without_base, false))"

    @property
    def matters(self) -> str:
        """As SQL: whether a row is looked at: it is not known, or may be claimed, or is counted."""
        return (
            f"{self._is_new} OR {_IS_CHANGED} OR delivery_time_ms <= {self.due_ms:d}"
            f" OR delivery_time_ms > {self.now_ms:d} OR delivery_count < 0"
        )

    @property
    def is_known_present(self) -> str:
        """As SQL: `rules.is_known_present`."""
        known: str = rules.is_known_present(*terms(self._is_new, _IS_CHANGED)).sql
        return f"{known} AS is_known_present"


_IS_CHANGED = "coalesce(is_changed, false)"


def to_look_at(pending: DataFrame, since: Since) -> DataFrame:
    """The rows of `pending` that matter, with `is_known_present`: whether the base tells that the
    stream has the entry.

    One scan.  What it is joined with is broadcast, for it is few rows, whatever the tables hold.
    """
    return (
        pending.select(*_OF_PENDING)
        .join(F.broadcast(since.changed), on=list(ENTRY), how="left")
        .join(F.broadcast(since.without_base), on=list(GROUP), how="left")
        .where(since.matters)
        .selectExpr(*_OF_PENDING, since.is_known_present)
    )


# Not what somebody has added, whose name may be anything.
_OF_PENDING = tuple(column.name for column in TABLES["pending"].columns)


def to_look_at_sql(since: Since) -> str:
    """The same as a query of `t`, the table pending, `changed` and `without_base`, as delta-rs
    reads it."""
    own = ", ".join(_OF_PENDING)
    joins = (
        f"LEFT JOIN {name} ON {' AND '.join(f't.{column} = {name}.{column}' for column in key)}"
        for name, key in (("changed", ENTRY), ("without_base", GROUP))
    )
    selected = ", ".join((*(f"t.{name}" for name in _OF_PENDING), since.is_known_present))
    return (
        f"SELECT {selected} FROM (SELECT {own} FROM t) AS t {' '.join(joins)} WHERE {since.matters}"
    )


def with_ids_of(entries: DataFrame, ids: DataFrame) -> DataFrame:
    """The entries with some ids (`ENTRY`), which are so few that they are broadcast."""
    return entries.join(F.broadcast(ids), on=list(ENTRY), how="left_semi")


def with_ids_of_sql(columns: Sequence[str]) -> str:
    """The same as a query of `t`, the table entries, and `ids`, as delta-rs reads it."""
    selected = ", ".join(f"t.{name}" for name in columns)
    same = " AND ".join(f"t.{name} = ids.{name}" for name in ENTRY)
    return f"SELECT {selected} FROM t LEFT SEMI JOIN ids ON {same}"


def deleted_or_changed(feed: DataFrame) -> DataFrame:
    """One row per entry that the change data feed of `entries` shows as deleted or changed:
    `CHANGED`.  Whether the entry is there again, the feed does not say for sure: the
    table may have held it twice."""
    gone = F.col("_change_type").isin("delete", "update_preimage")
    return feed.where(gone).select(*ENTRY).distinct().withColumn("is_changed", F.lit(True))


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
