"""What a claiming run did, as frames to read on with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from claimlib.commands.preconditions import where_ids_lie
from claimlib.plans.keys import GROUP, id_text
from claimlib.runs import Finished
from claimlib.runs.journal import Kind, rows_of
from claimlib.store.tables import Store

_ENTRY = [*GROUP, "id_ms", "id_seq"]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a sweep did (or, in a dry run, would do).  The frames are lazy, and follow from the
    journal, so they are the same whenever they are requested; but for payloads, which are those of
    `entries` as it is when a frame is run.

    Attributes:
        run_seq: the run's number; null in a dry run.
        is_repeat: whether an earlier call with the same run id had done it.
        counts: claimed, deleted, lost, gone (entries), swept, refused (groups), cursor (groups that
            got a page, or whose cursor is kept), delivered_later (entries delivered after the
            instant of their group: that instant is too early), spared and parked (see `groups`),
            base_run (of an incremental sweep the run_seq of its base), without_request (groups that
            match no request of a policy; missing: none).
        claimed: one row per claimed entry: stream, consumer_group, id (text), id_ms, id_seq,
        consumer,
            delivery_time_ms, delivery_count, from_consumer, from_delivery_time_ms,
            from_delivery_count, at_ms, payload (`present`; `not_kept`: the store never had it;
            `gone`: the store no longer has the entry; null with JUSTID) and fields (null unless the
            payload is present).
        deleted: one row per purged entry: the same key, the from_* columns, at_ms.
        lost: one row per decision that somebody else forestalled: the key, the from_* columns.
        cursors: one row per group that got a page, or whose cursor is kept: stream, consumer_group,
            name (null: it is not kept), next_id (text; 0-0: the page reached the end), next_ms,
            next_seq.
        groups: one row per (stream, consumer_group): status (`swept` or `refused`), reason (null
            unless refused), pending_before, claimed, deleted, lost, pending_after (what was
            pending, without what this run deleted), at_boundary
            (idle for exactly min_idle_ms), oldest_idle_ms and highest_delivery_count as found (null
            where nothing was pending; these, pending_* and at_boundary are null for a page,
            which does not look at the whole PEL; so they are, but for at_boundary, for a group of
            an incremental sweep), spared (idle enough, and left to its owner by a
            guard) and parked (of the claimed, as decided; both null: no guards, or refused),
            now_ms (the instant that the group was judged at), next_id (the cursor; null: there is
            none).
    """

    run_id: str | None
    run_seq: int | None
    dry_run: bool
    is_repeat: bool
    counts: Mapping[str, int]
    claimed: DataFrame
    deleted: DataFrame
    lost: DataFrame
    cursors: DataFrame
    groups: DataFrame


def of_finished(store: Store, finished: Finished) -> Reply:
    """The reply of a finished run, from its journal rows: the same whenever it is requested."""
    claimed, deleted, lost, cursors, groups = (
        rows_of(store, finished.run_seq, *kinds)
        for kinds in (
            *((Kind.CLAIMED, Kind.FORCED), (Kind.DELETED, Kind.ACKED), (Kind.LOST,)),
            (Kind.CURSOR,),
            (Kind.SWEPT, Kind.REFUSED),
        )
    )
    has_claims = finished.counts.get(Kind.CLAIMED) or finished.counts.get(Kind.FORCED)
    entries = (
        near_claims(store, store.read("entries"), claimed)
        if has_claims
        else store.read("entries").where(F.lit(False))
    )
    kept_claims = claimed.join(lost.select(*_ENTRY), on=_ENTRY, how="left_anti")
    kept_deletes = deleted.join(lost.select(*_ENTRY), on=_ENTRY, how="left_anti")
    shown_cursors = _cursors(cursors)
    return Reply(
        run_id=finished.run_id,
        run_seq=finished.run_seq,
        dry_run=False,
        is_repeat=finished.is_repeat,
        counts=dict(finished.counts),
        claimed=_claimed(kept_claims, entries),
        deleted=_entries(kept_deletes),
        lost=_entries(lost),
        cursors=shown_cursors,
        groups=_groups(groups, kept_claims, kept_deletes, lost, shown_cursors),
    )


def of_plan(journal_rows: DataFrame, entries: DataFrame, found: Mapping[str, int]) -> Reply:
    """The reply of a dry run, from journal rows that nobody writes.  Runs the plan once, to
    count."""
    claimed, deleted, lost, cursors = (
        journal_rows.where(F.col("kind") == kind)
        for kind in (Kind.CLAIMED, Kind.DELETED, Kind.LOST, Kind.CURSOR)
    )
    groups = journal_rows.where(F.col("kind").isin(str(Kind.SWEPT), str(Kind.REFUSED)))
    counted = {row["kind"]: row["count"] for row in journal_rows.groupBy("kind").count().collect()}
    shown = (Kind.CLAIMED, Kind.DELETED, Kind.SWEPT, Kind.REFUSED, Kind.CURSOR)
    shown_cursors = _cursors(cursors)
    return Reply(
        run_id=None,
        run_seq=None,
        dry_run=True,
        is_repeat=False,
        counts={
            **found,
            **{str(kind): counted.get(kind, 0) for kind in shown},
            "lost": 0,
            "gone": 0,
        },
        claimed=_claimed(claimed, entries),
        deleted=_entries(deleted),
        lost=_entries(lost),
        cursors=shown_cursors,
        groups=_groups(groups, claimed, deleted, lost, shown_cursors),
    )


def _cursors(rows: DataFrame) -> DataFrame:
    next_id = id_text("next_ms", "next_seq").alias("next_id")
    return rows.select(*GROUP, F.col("cursor_name").alias("name"), next_id, "next_ms", "next_seq")


def _entries(rows: DataFrame) -> DataFrame:
    found = ("from_consumer", "from_delivery_time_ms", "from_delivery_count", "at_ms")
    return rows.select(*GROUP, id_text().alias("id"), "id_ms", "id_seq", *found)


def _claimed(rows: DataFrame, entries: DataFrame) -> DataFrame:
    """Claimed entries with their payload, joined back after the claim; none with JUSTID."""
    new = ("consumer", "delivery_time_ms", "delivery_count")
    found = ("from_consumer", "from_delivery_time_ms", "from_delivery_count", "at_ms")
    kept = rows.select(*GROUP, id_text().alias("id"), "id_ms", "id_seq", *new, *found, "justid")
    return with_fields(kept, entries)


def near_claims(store: Store, entries: DataFrame, claimed: DataFrame) -> DataFrame:
    """The part of `entries` in which the payload of what a run claimed lies: no other file is read
    when a reply is shown.  One query, of the run's journal rows, unless the table is small."""
    if store.is_small("entries"):
        return entries
    return entries.where(where_ids_lie(claimed.where(~F.col("justid"))))


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
        *("reason", "pending_before", "at_boundary", "oldest_delivery_time_ms", "at_ms"),
        *("highest_delivery_count", "spared", "parked"),
    )
    for rows, name in ((claimed, "claimed"), (deleted, "deleted"), (lost, "lost")):
        counted = counted.join(_number(rows, name), on=list(GROUP), how="left")
    counted = counted.fillna(0, ["claimed", "deleted", "lost"])
    pending_after = F.col("pending_before") - F.col("deleted")
    counted = counted.withColumn("pending_after", pending_after)
    counted = counted.join(cursors.select(*GROUP, "next_id"), on=list(GROUP), how="left")
    return counted.select(
        *(*GROUP, "status", "reason", "pending_before", "claimed", "deleted", "lost"),
        *("pending_after", "at_boundary"),
        F.try_subtract("at_ms", "oldest_delivery_time_ms").alias("oldest_idle_ms"),
        *("highest_delivery_count", "spared", "parked"),
        F.col("at_ms").alias("now_ms"),
        "next_id",
    )
