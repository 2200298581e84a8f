"""What a claiming run did, as frames to read on with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import ClassVar, Self

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from claimlib.commands.preconditions import where_ids_lie
from claimlib.plans.keys import GROUP, id_text
from claimlib.runs import Begun, Decision, Finished
from claimlib.runs.journal import rows_of
from claimlib.schema import Kind
from claimlib.store.delta_errors import errors_mapped
from claimlib.store.tables import Store

_ENTRY = [*GROUP, "id_ms", "id_seq"]


# Instances have a __dict__, in which what is computed once is kept.
@dataclass(frozen=True)
class RunReply:
    """What a run did, or in a dry run would do: its numbers, and what its frames are made from.

    Attributes:
        run_seq: the run's number; null in a dry run.
        is_repeat: whether an earlier call with the same run id had done it.
        journal: of some kinds: the journal rows of the run.
        near: of rows of the journal: the part of `entries` in which their payload lies.
    """

    ZEROS: ClassVar[Mapping[str, int]]
    """The counts of a run that did nothing."""

    run_id: str | None
    run_seq: int | None
    dry_run: bool
    is_repeat: bool
    counts: Mapping[str, int]
    journal: Callable[..., DataFrame] = field(repr=False)
    near: Callable[[DataFrame], DataFrame] = field(repr=False)

    @classmethod
    def of_finished(cls, store: Store, finished: Finished) -> Self:
        """The reply of a finished run, from its journal rows: the same whenever it is requested."""
        return cls(
            run_id=finished.run_id,
            run_seq=finished.run_seq,
            dry_run=False,
            is_repeat=finished.is_repeat,
            counts={**cls.ZEROS, **finished.counts},
            journal=partial(rows_of, store, finished.run_seq),
            near=partial(_near, store),
        )

    @classmethod
    def of_decision(cls, begun: Begun, decision: Decision) -> Self:
        """The reply of a dry run, from journal rows that nobody writes: counted by one query, which
        keeps them in memory where they are few.

        Raises:
            DuplicateRowsError: `pending` has two rows of one entry that the run would change.
        """
        with (
            errors_mapped("pending"),
            begun.interpreted(*decision.made_of, are_few=decision.are_few),
        ):
            rows, counted = _counted(begun.store, decision)
        return cls(
            run_id=None,
            run_seq=None,
            dry_run=True,
            is_repeat=False,
            # The journal also has rows about consumers, which are not counted.
            counts={**decision.counts, **{name: counted.get(name, 0) for name in cls.ZEROS}},
            journal=lambda *kinds: rows.where(F.col("kind").isin(list(map(str, kinds)))),
            near=lambda _: begun.read("entries"),
        )

    def _lost(self) -> DataFrame | None:
        """The rows that another writer changed first; null: there are none."""
        return self.journal(Kind.LOST) if self.counts["lost"] else None


GROUPS_COLUMNS = (
    *(*GROUP, "status", "reason", "pending_before", "claimed", "deleted", "lost", "pending_after"),
    *("at_boundary", "oldest_idle_ms", "highest_delivery_count", "spared", "parked", "now_ms"),
    "next_id",
)
"""Of `Reply.groups`, in this order."""


@dataclass(frozen=True)
class Reply(RunReply):
    """What a sweep did (or, in a dry run, would do).  The frames are made when they are requested,
    and follow from the journal, so they are the same whenever that is; but for payloads, which are
    those of `entries` as it is when a frame is run.

    Attributes:
        counts: claimed, deleted, lost, gone (entries), swept, refused (groups), cursor (groups that
            got a page, or whose cursor is kept), delivered_later (entries delivered after the
            instant of their group: that instant is too early), spared and parked (see `groups`),
            without_request (groups that match no request of a policy; missing: none).
    """

    ZEROS = dict.fromkeys(
        (
            *map(str, (Kind.CLAIMED, Kind.DELETED, Kind.SWEPT, Kind.REFUSED, Kind.CURSOR)),
            *("lost", "gone"),
        ),
        0,
    )

    @cached_property
    def claimed(self) -> DataFrame:
        """One row per claimed entry: stream, consumer_group, id (text), id_ms, id_seq, consumer,
        delivery_time_ms, delivery_count, from_consumer, from_delivery_time_ms, from_delivery_count,
        at_ms, payload (`present`; `not_kept`: the store never had it; `gone`: the store no longer
        has the entry; null with JUSTID) and fields (null unless the payload is present)."""
        rows = self.journal(*_CLAIMED)
        has_claims = self.dry_run or any(self.counts.get(kind) for kind in _CLAIMED)
        # Without claims nobody needs to look where their payloads lie.
        entries = self.near(rows if has_claims else rows.limit(0))
        return _claimed(self._kept(rows), entries)

    @cached_property
    def deleted(self) -> DataFrame:
        """One row per deleted entry: the same key, the from_* columns, at_ms."""
        return _entries(self._kept(self.journal(*_DELETED)))

    @cached_property
    def lost(self) -> DataFrame:
        """One row per decision that was not applied because another writer changed the row
        first: the key, the from_* columns."""
        return _entries(self.journal(Kind.LOST))

    @cached_property
    def cursors(self) -> DataFrame:
        """One row per group that got a page, or whose cursor is kept: stream, consumer_group, name
        (null: it is not kept), next_id (text; 0-0: the page reached the end), next_ms, next_seq."""
        return _cursors(self.journal(Kind.CURSOR))

    @cached_property
    def groups(self) -> DataFrame:
        """One row per (stream, consumer_group): status (`swept` or `refused`), reason (null unless
        refused), pending_before, claimed, deleted, lost, pending_after (what was pending, without
        what this run deleted), at_boundary (idle for exactly min_idle_ms), oldest_idle_ms and
        highest_delivery_count as found (null where nothing was pending; these, pending_* and
        at_boundary are null for a page, which does not look at the whole PEL), spared (idle enough,
        and left to its owner by a guard) and parked (of the claimed, as decided; both null: no
        guards, or refused), now_ms (the instant that the group was judged at), next_id (the cursor;
        null: there is none)."""
        return _groups(
            self.journal(Kind.SWEPT, Kind.REFUSED),
            self._kept(self.journal(*_CLAIMED)),
            self._kept(self.journal(*_DELETED)),
            self.journal(Kind.LOST),
            self.cursors,
        )

    def _kept(self, rows: DataFrame) -> DataFrame:
        """Decisions, without those that were lost."""
        lost = self._lost()
        if lost is None:
            return rows
        return rows.join(lost.select(*_ENTRY), on=_ENTRY, how="left_anti")


_CLAIMED = (Kind.CLAIMED, Kind.FORCED)
_DELETED = (Kind.DELETED, Kind.ACKED)


def _counted(store: Store, decision: Decision) -> tuple[DataFrame, Mapping[str, int]]:
    """The rows of a decision, in memory where they are few, and how many of each kind there are."""
    if not decision.are_few:
        counted = decision.rows.groupBy("kind").count().collect()
        return decision.rows, {row["kind"]: row["count"] for row in counted}
    rows, fetched = store.fetched(decision.rows)
    return rows, dict(Counter(fetched["kind"].to_pylist()))


def _near(store: Store, claimed: DataFrame) -> DataFrame:
    """The part of `entries` in which the payload of what a run claimed lies: no other file is read
    when a reply is shown.  One query, of the run's journal rows, unless the table is small."""
    entries = store.read("entries")
    if store.is_small("entries"):
        return entries
    return entries.where(where_ids_lie(claimed.where(~F.col("justid"))))


def _cursors(rows: DataFrame) -> DataFrame:
    next_id = id_text("next_ms", "next_seq").alias("next_id")
    return rows.select(*GROUP, F.col("cursor_name").alias("name"), next_id, "next_ms", "next_seq")


PREVIOUS = ("from_consumer", "from_delivery_time_ms", "from_delivery_count", "at_ms")
"""What an entry was before the decision, and the instant of that."""


def _entries(rows: DataFrame) -> DataFrame:
    return rows.select(*GROUP, id_text().alias("id"), "id_ms", "id_seq", *PREVIOUS)


def _claimed(rows: DataFrame, entries: DataFrame) -> DataFrame:
    """Claimed entries with their payload, joined back after the claim; none with JUSTID."""
    new = ("consumer", "delivery_time_ms", "delivery_count")
    kept = rows.select(*GROUP, id_text().alias("id"), "id_ms", "id_seq", *new, *PREVIOUS, "justid")
    return with_fields(kept, entries)


def with_fields(rows: DataFrame, entries: DataFrame) -> DataFrame:
    """Rows with `payload` and `fields` (see `Reply.claimed`) for `justid`."""
    key = ["stream", "id_ms", "id_seq"]
    stored = entries.select(*key, "fields", F.lit(True).alias("is_there")).dropDuplicates(key)
    payload = (
        F.when(F.col("is_there").isNull(), "gone")
        .when(F.col("fields").isNull(), "not_kept")
        .otherwise("present")
    )
    return rows.join(stored, on=key, how="left").select(
        *(name for name in rows.columns if name != "justid"),
        F.when(~F.col("justid"), payload).alias("payload"),
        F.when(~F.col("justid"), F.col("fields")).alias("fields"),
    )


def _number(rows: DataFrame, name: str) -> DataFrame:
    return rows.groupBy(*GROUP).agg(F.count("*").alias(name))


def _groups(
    groups: DataFrame,
    claimed: DataFrame,
    deleted: DataFrame,
    lost: DataFrame,
    cursors: DataFrame,
) -> DataFrame:
    counted = groups.select(
        *GROUP,
        F.col("kind").alias("status"),
        *("reason", "pending_before", "at_boundary", "highest_delivery_count", "spared", "parked"),
        F.try_subtract("at_ms", "oldest_delivery_time_ms").alias("oldest_idle_ms"),
        F.col("at_ms").alias("now_ms"),
    )
    for rows, name in ((claimed, "claimed"), (deleted, "deleted"), (lost, "lost")):
        counted = counted.join(_number(rows, name), on=list(GROUP), how="left")
    counted = counted.fillna(0, ["claimed", "deleted", "lost"])
    pending_after = F.col("pending_before") - F.col("deleted")
    counted = counted.withColumn("pending_after", pending_after)
    counted = counted.join(cursors.select(*GROUP, "next_id"), on=list(GROUP), how="left")
    return counted.select(*GROUPS_COLUMNS)
