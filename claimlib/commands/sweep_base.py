"""The base of an incremental sweep: an earlier sweep that proves of all rows of `pending` but some
that their streams have them.

What the base found stands, where nobody but runs has written to `pending` since (a run's rows bear
its number), and `entries` tells what was deleted.  Whatever cannot be proven is no base: then
everything is looked at, and the run says why.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from claimlib.commands.preconditions import where_ids_lie
from claimlib.local_rows import frame_of
from claimlib.plans import incremental
from claimlib.plans.incremental import ENTRY, Since
from claimlib.plans.keys import GROUP
from claimlib.runs import Begun, Finished, RunRow
from claimlib.runs.claims import commits_since, is_housekeeping, run_of
from claimlib.runs.journal import decisions_of, rows_of
from claimlib.schema import Kind
from claimlib.store.tables import Store

Scope = frozenset[tuple[str, str]]
"""The globs (stream, group) of a run's requests."""

EVERYTHING = ("*", "*")
# Among so many of the newest sweeps a base is looked for: policies take turns.
_NEWEST = 20
# So many ids are held in the driver's memory, and broadcast (some 100 bytes each), and so many
# groups.
MOST_CHANGED = 100_000
MOST_HELD = 200_000
MOST_WITHOUT_BASE = 100
# So many rows go into a temporary file (9 to 64 bytes each were seen), which may lie in memory.
MOST_SAVED = 10_000_000


@dataclass(frozen=True, slots=True)
class Base:
    """An earlier sweep, and what has happened since.

    Attributes:
        groups: one row per group of which it proves something: stream, consumer_group; in the
            driver's memory.
        since: which rows are to be looked at all the same.
    """

    groups: DataFrame
    since: Since


@dataclass(frozen=True, slots=True)
class LookedAt:
    """What a sweep looks at.

    Attributes:
        pending: the rows of `pending` that matter, of an incremental sweep with
            `is_known_present`.
        entries: those among which the others' entries are looked for.
        targets: `requests.standing`, with `has_base`: whether only some rows of the group are
            looked at.
        counts: `base_run`, the run_seq of the base; of a full sweep nothing.
        remark: which of the two it is, and why; null: no incremental sweep was asked for, or it is
            all one, for the store is small, or there are pages.
    """

    pending: DataFrame
    entries: DataFrame
    targets: DataFrame
    counts: Mapping[str, int] = field(default_factory=dict)
    remark: str | None = None


def everything(
    pending: DataFrame, entries: DataFrame, targets: DataFrame, remark: str | None = None
) -> LookedAt:
    """What a full sweep, or a page, looks at."""
    return LookedAt(pending, entries, targets.withColumn("has_base", F.lit(False)), remark=remark)


def since_base(
    begun: Begun, pending: DataFrame, entries: DataFrame, targets: DataFrame, scope: Scope | None
) -> LookedAt:
    """What an incremental sweep looks at, or all, where it has no base.

    Args:
        targets, scope: see `find`.
    """
    try:
        base = find(begun, targets, scope)
    except NoBaseError as reason:
        return everything(pending, entries, targets, f"full sweep: {reason}")
    has_base = base.groups.withColumn("has_base", F.lit(True))
    reached = _to_look_at(begun.store, pending, base.since)
    return LookedAt(
        pending=reached,
        entries=_looked_for(begun.store, reached, entries),
        targets=targets.join(has_base, on=list(GROUP), how="left").fillna(False, ["has_base"]),
        counts={"base_run": base.since.base_seq},
        remark=f"incremental sweep, based on run {base.since.base_seq}",
    )


def _to_look_at(store: Store, pending: DataFrame, since: Since) -> DataFrame:
    """`incremental.to_look_at`: few rows from the driver's memory, and many, where delta-rs finds
    them, from a file.  They are read several times; of 50 million rows of `pending` that took 23 s
    of 30 while each time was a scan of the table."""
    statement = incremental.to_look_at_sql(since)
    frames = {"changed": since.changed, "without_base": since.without_base}
    few = store.queried(pending, statement, MOST_HELD, **frames)
    if few is not None:
        return store.in_memory(few)
    many = store.saved(pending, statement, MOST_SAVED, **frames)
    if many is not None:
        return many
    return store.few_or_all(incremental.to_look_at(pending, since), MOST_HELD)


def _looked_for(store: Store, pending: DataFrame, entries: DataFrame) -> DataFrame:
    """The part of `entries` in which an incremental sweep must look for what it does not know.  If
    the rows are in memory, this takes no further scan of `pending`.

    Args:
        pending: `incremental.to_look_at`.
    """
    unknown = pending.where("NOT is_known_present")
    ids, rows = store.fetched(unknown.select(*ENTRY).distinct().limit(MOST_CHANGED + 1))
    if rows.num_rows > MOST_CHANGED:
        return entries.where(where_ids_lie(unknown))
    if rows.num_rows == 0:
        return store.held(entries.limit(0))
    statement = incremental.with_ids_of_sql(entries.columns)
    few = store.queried(entries, statement, MOST_HELD, ids=ids)
    if few is not None:
        return store.in_memory(few)
    return store.few_or_all(incremental.with_ids_of(entries, ids), MOST_HELD)


def whole_scope(request: str) -> Scope | None:
    """The scope of a run's request (JSON) that looks at whole PELs; null: some request is a page,
    or begins later, or the requests were a table."""
    document = json.loads(request)
    policy = document.get("policy", [document])
    if any(rule.get("start") != "0-0" or "count" in rule for rule in policy):
        return None
    return frozenset((rule["stream_glob"], rule["group_glob"]) for rule in policy)


class NoBaseError(Exception):
    """There is no base; the message says why, in words.  Never leaves this module."""


def find(begun: Begun, targets: DataFrame, scope: Scope | None) -> Base:
    """The base for a sweep.

    Args:
        targets: `requests.standing`, in the driver's memory; sweeps only.
        scope: that of the run; null: its requests are a table, which means no group but those that
            it names.

    Raises:
        NoBaseError: there is none.
    """
    store = begun.store
    due_ms, now_ms = _instants(targets)
    decision = _newest_whole(begun, scope)
    _check_tables(begun, decision)
    _check_writers(begun, decision)
    changed = _changed(begun, decision)
    judged = store.held(rows_of(store, decision.run_seq, *_JUDGED).select("kind", *GROUP))
    groups = store.held(_with_base(targets, judged, _shrunk(begun, decision)))
    requested = targets.where(F.col("consumer").isNotNull()).select(*GROUP)
    others = incremental.unlike(requested.union(judged.select(*GROUP)), groups)
    is_without = others.limit(MOST_WITHOUT_BASE + 1).withColumn("is_without_base", F.lit(True))
    without_base, rows = store.fetched(is_without)
    if rows.num_rows > MOST_WITHOUT_BASE:
        raise NoBaseError(
            f"more than {MOST_WITHOUT_BASE} groups are new, or were not examined by run"
            f" {decision.run_seq}, or the id range that is known to be complete has become smaller"
            " for their streams"
        )
    since = Since(decision.run_seq, due_ms, now_ms, without_base, changed)
    return Base(groups, since)


_JUDGED = (Kind.SWEPT, Kind.REFUSED)


def _instants(targets: DataFrame) -> tuple[int, int]:
    """The latest delivery that is due, and the earliest instant."""
    requested = targets.where(F.col("consumer").isNotNull() & (F.col("now_ms") >= 0))
    row = requested.agg(
        F.min("min_idle_ms").alias("min_idle_ms"),
        F.max(F.col("now_ms") - F.col("min_idle_ms")).alias("due_ms"),
        F.min("now_ms").alias("now_ms"),
    ).first()
    if row is None or row["min_idle_ms"] is None:
        raise NoBaseError("no group that has a snapshot time matches a request")
    if row["min_idle_ms"] == 0:
        raise NoBaseError("a request has no minimum idle time, so every entry may be due")
    return row["due_ms"], row["now_ms"]


def _newest_whole(begun: Begun, scope: Scope | None) -> RunRow:
    """The newest sweep that could be a base."""
    runs = begun.read("runs").where(F.col("command") == "xautoclaim")
    newest = runs.orderBy(F.col("run_seq").desc()).limit(_NEWEST).collect()
    finished = (Finished.of(row.asDict()) for row in newest)
    fitting = (run.run_seq for run in finished if _may_be_base(run, scope))
    run_seq = next(fitting, None)
    if run_seq is None:
        raise NoBaseError(f"none of the last {_NEWEST} sweeps examined all entries of these groups")
    decisions = decisions_of(begun.store, run_seq)
    if len(decisions) != 1:
        raise NoBaseError(f"the journal does not say how run {run_seq} was decided")
    return RunRow.of(decisions[0])


def _may_be_base(run: Finished, scope: Scope | None) -> bool:
    # A decision that was lost to somebody else may have left a row whose entry is gone.
    if run.is_abandoned or any(run.counts.get(name) for name in ("lost", "gone")):
        return False
    its = whole_scope(run.request)
    return its is not None and (scope is None or its == scope or EVERYTHING in its)


def _check_tables(begun: Begun, base: RunRow) -> None:
    needed = ("pending", "entries", "streams")
    others = [name for name in needed if not begun.store.is_same_table(name, base.pins)]
    if others:
        raise NoBaseError(f"the table {others[0]} was replaced after run {base.run_seq}")
    after = begun.store.accepted_now().after
    if base.run_seq <= after:
        raise NoBaseError(f"tables have gone back after run {after}, and were accepted by init")


def _check_writers(begun: Begun, base: RunRow) -> None:
    """The numbers that the rows of `pending` bear tell who wrote them, where only runs have."""
    commits, all_known = commits_since(begun.store, base, "pending")
    if not all_known:
        raise NoBaseError(
            f"the history of the table pending does not reach back to run {base.run_seq}"
        )
    runs = range(base.run_seq, begun.run_seq)
    foreign = [
        commit for commit in commits if not is_housekeeping(commit) and run_of(commit) not in runs
    ]
    if foreign:
        first = foreign[-1]
        operation = first["operation"] or "which does not say what was done"
        raise NoBaseError(
            f"version {first['version']} of pending ({operation}) was not written by a claimlib run"
        )


def _changed(begun: Begun, base: RunRow) -> DataFrame:
    """The entries that were deleted or changed since the base (`Since.changed`)."""
    store, then, now = begun.store, base.pins.versions["entries"], begun.pins.versions["entries"]
    if then == now:  # of which no feed can be asked
        return frame_of(store.spark, [], incremental.CHANGED)
    try:
        feed = store.changes("entries", then, now)
        rows = incremental.deleted_or_changed(feed).limit(MOST_CHANGED + 1)
        entries, changed = store.fetched(rows)
    except Exception as error:
        # A feed that was switched off, or is not kept any more: there are many ways to say it, and
        # nothing is decided yet.
        condition = error.getCondition() if isinstance(error, PySparkException) else None
        condition = condition or type(error).__name__
        raise NoBaseError(
            f"the change data feed of entries since run {base.run_seq} cannot be read ({condition})"
        ) from error
    if changed.num_rows > MOST_CHANGED:
        raise NoBaseError(
            f"more than {MOST_CHANGED:,} entries were deleted or changed since run {base.run_seq}"
        )
    return entries


def _shrunk(begun: Begun, base: RunRow) -> DataFrame:
    """The streams whose proof of absence does not reach as far as it did."""
    version, now = base.pins.versions["streams"], begun.read("streams")
    then = begun.store.readable_at("streams", version)
    if then is None:
        raise NoBaseError(
            f"the table streams as it was at run {base.run_seq} can no longer be read"
        )
    return incremental.with_less_proof(then, now)


def _with_base(targets: DataFrame, judged: DataFrame, shrunk: DataFrame) -> DataFrame:
    """The groups that the base has looked at, that are known, and whose proof stands."""
    usable = targets.where("in_groups AND repeated_in IS NULL AND now_ms IS NOT NULL")
    swept = judged.where(F.col("kind") == Kind.SWEPT).select(*GROUP)
    known = swept.join(usable.select(*GROUP), on=list(GROUP), how="left_semi")
    return known.join(shrunk, on="stream", how="left_anti")
