"""Report on one run: the state of the store before and after it, and what the run changed.

The engine aggregates all rows, so the report is small for any number of groups, owners and entries.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from claimlib.commands.reply import Reply
from claimlib.commands.run_commands import UNDOABLE
from claimlib.commands.runs import find_run, list_runs, undos_of, writeback_of
from claimlib.commands.server_view import only_in_store
from claimlib.commands.writeback_checks import can_be_written_back
from claimlib.commands.xpending import DEFAULT_STALLED_MS
from claimlib.engine.relation import DESCENDING, Record, Relation
from claimlib.errors import RequestError
from claimlib.plans import run_report_plan as plan
from claimlib.plans.journal_rows import ADDED, REMOVED, applied
from claimlib.plans.keys import GROUP
from claimlib.plans.xpending_plan import idle_entries
from claimlib.runs import Begun, FinishedRun, pinned
from claimlib.runs.journal import rows_of
from claimlib.runs.maintenance import deleted_part_with_run
from claimlib.runs.mirror_rows import NEW
from claimlib.schema import Kind
from claimlib.store.guards import accepted_now
from claimlib.store.lookups import readable_at
from claimlib.store.tables import Store

MOST_GROUPS = MOST_TRANSFERS = 20
"""Limit the numbers of groups, and of pairs of owners, that a report names."""
_REMOVED = (*REMOVED, Kind.PENDING_REMOVED)
_COUNTED_IN_JOURNAL = (*map(str, plan.CHANGES), "changed", str(Kind.LOST), "refused")
"""List the numbers of `totals` that are unknown if the run's journal rows were deleted."""
_REFUSED_FIRST = f"reason IS NOT NULL{DESCENDING}"


@dataclass(frozen=True, slots=True)
class RunReport:
    """Hold the report on one run.

    Attributes:
        where: the location of the store.
        undone_by: the key of the run that has undone it, or None.
        can_be_undone: True if `claimlib undo` accepts the run.
        written_back_by: the key of the writeback of this run.  None if there is none.
        can_be_written_back: True if the run has changes for the server, and the store shows no
            reason to refuse its writeback.
        only_in_store: `claimed`, `restored` and `deleted`, the numbers of entries that runs have
            changed in the store since the snapshot, but not on the server.  All finished runs
            count, not only this one.  None if the store mirrors no server, and in a dry run.
        unfinished: the keys of the runs that are decided, but not finished.
        has_history: False if `maintain` has deleted the journal rows of the run.  Then the report
            has no changes and no transfers.
        stalled_after_ms: the idle time from which an entry counts as stalled.
        totals: by name, the sums and maxima of all groups (see `plans.run_report_plan.totals`).
            The numbers of a time (`before`, `after`) are None if the tables of that time can no
            longer be read.
        balance: the numbers in `before` + `added` - `removed` + `by_others` = `after`, which count
            pending entries.  The run made the changes `added` and `removed`.  Other writers made
            the change `by_others` during the run.  None if `before` or `after` is unknown, or the
            run's journal rows were deleted.
        groups: one row per group, refused groups first, then by stalled entries and by changes.  It
            has at most `MOST_GROUPS` rows.  See `plans.run_report_plan.by_group`.
        transfers: one row per group, earlier and new owner, the most entries first.  It has at most
            `MOST_TRANSFERS` rows.  See `plans.run_report_plan.transfers`.
        transfers_total: `pairs`, the number of transfers without this limit, and `entries`, the
            number of their entries.
        idle_ms, delivery_counts: one row per interval of idle times (ms) and of delivery counts.
            The bounds are `at_least` and `below`.  `below` is exclusive, and None if there is no
            upper bound.  at_least is None in the row of entries whose idle time is unknown, because
            the group has no time or the entry was delivered after it.
            `before` and `after` are the numbers of pending entries before and after the run.  They
            are None if unknown.
        is_dry_run: True for the report on a dry run.  Then `run` has neither a number nor a run id,
            and the numbers after the run are those that the run would lead to.
    """

    where: str
    run: FinishedRun
    undone_by: str | None
    can_be_undone: bool
    written_back_by: str | None
    can_be_written_back: bool
    only_in_store: Mapping[str, int] | None
    unfinished: tuple[str, ...]
    has_history: bool
    stalled_after_ms: int
    totals: Mapping[str, int | None]
    balance: Mapping[str, int] | None
    groups: Sequence[Record]
    transfers: Sequence[Record]
    transfers_total: Mapping[str, int]
    idle_ms: Sequence[Record]
    delivery_counts: Sequence[Record]
    is_dry_run: bool = False

    def knows(self, time: str) -> bool:
        """Return True if the pending entries at a time (`before`, `after`) are known."""
        return self.totals[f"pending_{time}"] is not None

    def left_out(self, name: str) -> int | None:
        """Return the sum of a column over the groups that `groups` does not name.

        None if the sum is unknown.
        """
        total = self.totals[name]
        return None if total is None else total - sum(int(row[name]) for row in self.groups)


def run_report(
    store: Store, run: str | None = None, *, stalled_ms: int = DEFAULT_STALLED_MS
) -> RunReport:
    """Return the report on a finished run.

    Args:
        run: its number, `command:run_id`, or its run id alone.  None means the last finished run.
        stalled_ms: the idle time in ms from which an entry counts as stalled.

    Raises:
        RequestError: no finished run has this name, or no run is finished.
        SchemaError: tables were replaced.

    Examples:
        >>> run_report(open_store("./store"), "nightly-1").totals["claimed"]
        Traceback (most recent call last):
        claimlib.errors.RequestError: ... has no finished run nightly-1: ...
    """
    reported = find_reported(store, run)
    begun, unfinished = pinned(store, ("pending", "groups", "runs"))
    has_history = deleted_part_with_run(store, reported.run_seq) is None
    pending_by_time = _pending_by_time(store, reported)
    undos = undos_of(begun, reported.run_seq)
    writeback = writeback_of(begun, reported.run_seq)
    groups_after = readable_at(store, "groups", reported.output_versions.get("groups"))
    return _build_report(
        store,
        reported,
        _Inputs(
            _changes(store, reported.run_seq).kept(),
            rows_of(store, reported.run_seq, Kind.LOST, Kind.SWEPT, Kind.REFUSED),
            begun.relation("groups") if groups_after is None else groups_after,
            pending_by_time,
        ),
        stalled_ms,
        # Each undo undoes the one before, so an even number of them cancels out.
        undone_by=undos[-1].key if len(undos) % 2 else None,
        can_be_undone=has_history and not undos and reported.command in UNDOABLE,
        written_back_by=None if writeback is None else writeback.key,
        can_be_written_back=can_be_written_back(begun, reported),
        only_in_store=_only_in_store(begun),
        unfinished=tuple(row.key for row in unfinished),
        has_history=has_history,
    )


def dry_run_report(
    store: Store,
    reply: Reply,
    *,
    now_ms: int | None = None,
    stalled_ms: int = DEFAULT_STALLED_MS,
) -> RunReport:
    """Return the report on what a dry run of `xautoclaim` would do.

    Args:
        reply: the reply of the dry run.
        now_ms: the time that the dry run was given.
        stalled_ms: see `run_report`.

    Raises:
        RequestError: the reply is that of a run, and not of a dry run.  Use `run_report` for it.

    Examples:
        >>> store = open_store("./store")
        >>> request = SweepRequest(AutoclaimRequest(b"reclaimer", 900_000))
        >>> dry_run_report(store, xautoclaim(store, request, dry_run=True)).is_dry_run
        True
    """
    if reply.read is None:
        raise RequestError("the reply is of a finished run: use run_report")
    groups = reply.read("groups")
    changes = reply.journal(*plan.CHANGES).kept()
    before = idle_entries(reply.read("pending"), groups, now_ms)
    pending_by_time = {plan.BEFORE: before, plan.AFTER: plan.after_decision(before, changes)}
    return _build_report(
        store,
        _planned_run(reply, now_ms),
        _Inputs(changes, reply.journal(Kind.SWEPT, Kind.REFUSED), groups, pending_by_time),
        stalled_ms,
        undone_by=None,
        can_be_undone=False,
        written_back_by=None,
        can_be_written_back=False,
        only_in_store=None,
        unfinished=(),
        has_history=True,
        is_dry_run=True,
    )


@dataclass(frozen=True, slots=True)
class _Inputs:
    """Hold the rows that a report counts: the arguments of `plans.run_report_plan.facts`.

    Attributes:
        pending_by_time: the pending entries `before` and `after` the run, if they are known.
    """

    changes: Relation
    notes: Relation
    groups: Relation
    pending_by_time: Mapping[str, Relation]


def _build_report(
    store: Store, run: FinishedRun, inputs: _Inputs, stalled_ms: int, **attributes: Any
) -> RunReport:
    """Build the report from the rows that it counts.

    Args:
        attributes: the attributes of the report that do not follow from these rows.
    """
    times = inputs.pending_by_time
    facts = plan.facts(inputs.changes, inputs.notes, inputs.groups, *map(times.get, plan.TIMES))
    by_group = plan.by_group(facts, stalled_ms, times).kept()
    unknown = () if attributes["has_history"] else _COUNTED_IN_JOURNAL
    (totals,) = _with_unknown(plan.totals(by_group, times).collect(), unknown)
    transfers = plan.transfers(inputs.changes).kept()
    sums = ("count(*) AS pairs", "coalesce(sum(entries), 0L) AS entries")
    (transfers_total,) = transfers.select(*sums).collect()
    most_entries_first = (f"entries{DESCENDING}", *GROUP, "from_consumer", "consumer")
    worst_groups = by_group.order_by(*_worst_first(times)).limit(MOST_GROUPS)
    counts = plan.intervals(facts).collect()
    return RunReport(
        where=store.where,
        run=run,
        stalled_after_ms=stalled_ms,
        totals=totals,
        balance=_balance(run, totals),
        groups=_with_unknown(worst_groups.collect(), unknown),
        transfers=transfers.order_by(*most_entries_first).limit(MOST_TRANSFERS).collect(),
        transfers_total=transfers_total,
        idle_ms=_histogram(counts, "idle", plan.IDLE_MS, times),
        # Every entry has a delivery count, so the row of unknown values is left out.
        delivery_counts=_histogram(counts, "deliveries", plan.DELIVERIES, times)[1:],
        **attributes,
    )


def _planned_run(reply: Reply, now_ms: int | None) -> FinishedRun:
    """Return a run that has only the counts of a dry run."""
    return FinishedRun(
        run_seq=0,
        run_id="",
        command="xautoclaim",
        request="null",
        request_hash="",
        now_ms=now_ms,
        source=None,
        server_run_id=None,
        replication_id=None,
        input_versions={},
        output_versions={},
        counts=reply.counts,
        phase_ms={},
        began_ms=None,
        ended_ms=None,
        software_version="",
        engine=None,
    )


def _with_unknown(rows: Sequence[Record], unknown: Collection[str]) -> list[Record]:
    """Return rows with None in the columns that are unknown."""
    return [
        {name: None if name in unknown else value for name, value in row.items()} for row in rows
    ]


def find_reported(store: Store, run: str | None) -> FinishedRun:
    """Return the finished run of a report.

    Raises:
        RequestError: see `run_report`.
    """
    if run is not None:
        return find_run(store, run)
    newest = list_runs(store, 1).runs
    if not newest:
        raise RequestError(
            f"{store.where} has no finished run, so there is nothing to report: take a snapshot or"
            " an import first"
        )
    return newest[0]


def _only_in_store(begun: Begun) -> Mapping[str, int] | None:
    """Return `server_view.only_in_store` as of the last finished run, or None without runs."""
    row = begun.relation("runs").order_by(f"run_seq{DESCENDING}").first()
    if row is None:
        return None
    last = FinishedRun.of(row)
    return only_in_store(begun.store, last.run_seq, last.counts)


def _changes(store: Store, run_seq: int) -> Relation:
    return applied(rows_of(store, run_seq, *plan.CHANGES), rows_of(store, run_seq, Kind.LOST))


def _pending_by_time(store: Store, run: FinishedRun) -> dict[str, Relation]:
    """Return the pending entries before and after a run.

    A time is missing if the tables of that time can no longer be read.
    """
    # After `init` accepted replaced tables, the versions of earlier runs are those of other tables.
    if run.run_seq <= accepted_now(store).after:
        return {}
    versions_by_time = {plan.BEFORE: run.input_versions, plan.AFTER: run.output_versions}
    pending_by_time = {}
    for time, versions in versions_by_time.items():
        pending, groups = (
            readable_at(store, name, versions.get(name)) for name in ("pending", "groups")
        )
        if pending is not None and groups is not None:
            pending_by_time[time] = idle_entries(pending, groups, run.now_ms)
    return pending_by_time


def _worst_first(times: Mapping[str, Relation]) -> tuple[str, ...]:
    time = plan.AFTER if plan.AFTER in times else plan.BEFORE
    worst = (f"stalled_{time}", "changed", f"oldest_idle_ms_{time}", f"pending_{time}")
    return (_REFUSED_FIRST, *(f"{name}{DESCENDING}" for name in worst), *GROUP)


def _balance(run: FinishedRun, totals: Mapping[str, Any]) -> dict[str, int] | None:
    before, after = (totals[f"pending_{time}"] for time in plan.TIMES)
    if before is None or after is None or totals["changed"] is None:
        return None
    added = sum(totals[kind] for kind in ADDED) + run.counts.get(NEW["pending"], 0)
    removed = sum(totals[kind] for kind in _REMOVED)
    return {
        "before": before,
        "added": added,
        "removed": removed,
        "by_others": after - before - added + removed,
        "after": after,
    }


def _histogram(
    counts: Sequence[Record], column: str, bounds: Sequence[int], times: Mapping[str, object]
) -> list[Record]:
    """Return one row per interval.

    The first row is for entries that are in no interval.  Each further row begins at a lower bound.

    Args:
        counts: `plans.run_report_plan.intervals`.
        column: the column of `counts` with the number of the interval.
    """

    def number(time: str, interval: int) -> int | None:
        if time not in times:
            return None
        key = (time, interval)
        return sum(int(row["entries"]) for row in counts if (row["fact"], row[column]) == key)

    edges: list[int | None] = [None, *bounds, None]
    return [
        {"at_least": low, "below": high, **{time: number(time, interval) for time in plan.TIMES}}
        for interval, (low, high) in enumerate(pairwise(edges))
    ]
