"""Undo a run: put back what it changed in the store, if nothing has changed it since."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from claimlib.commands.run_commands import UNDO, UNDOABLE, WRITEBACK
from claimlib.commands.runs import (
    find_run,
    run_in_request,
    undos_of,
    writeback_of,
)
from claimlib.engine.relation import Relation, union_all, union_by_name
from claimlib.errors import RequestError
from claimlib.plans import previous
from claimlib.plans import undo_plan as plan
from claimlib.plans.journal_rows import CHANGED, JOURNAL_ROW, of_kinds
from claimlib.plans.keys import GROUP, without
from claimlib.runs import Begun, Decision, FinishedRun, Progress, begin_dry_run, run
from claimlib.runs.journal import Decided, decided_by, rows_of
from claimlib.runs.maintenance import COMMAND as MAINTAIN
from claimlib.runs.maintenance import check_not_deleted
from claimlib.runs.rollforward import find_finished
from claimlib.schema import Kind
from claimlib.store.guards import check_changeable
from claimlib.store.tables import Store
from claimlib.store.writer import in_buckets

COMMAND = UNDO
ENTRIES = (Kind.RESTORED, Kind.RETURNED, Kind.WITHDRAWN, Kind.KEPT)
"""List the kinds of journal rows that state the outcomes of the entries of the run."""
CONSUMERS, CURSORS, GROUPS = "consumers_restored", "cursors_restored", "groups_restored"
"""Name the counts of rows of the small tables that got their earlier values."""
_KIND_BY_COUNT = {
    CONSUMERS: Kind.CONSUMER_RESTORED,
    CURSORS: Kind.CURSOR_RESTORED,
    GROUPS: Kind.GROUP_RESTORED,
}


@dataclass(frozen=True)
class UndoReply:
    """Hold the result of an undo, or of its dry run.

    Attributes:
        run_seq: the number of the undo, or None in a dry run.
        is_repeat: True if an earlier call with the same run id did the undo.
        undone: the key of the run that was undone.
        is_on_server: True if the server still has changes of the undone run.  Then that run was
            written back, and the undo was not.
        counts: numbers of entries and rows.
            restored: entries that got their earlier owner, time and count.
            returned: entries that are pending again.
            withdrawn: entries that are no longer pending.
            kept: entries that stay as they are.  They were changed since; or the run removed them,
            and a snapshot or import has read their group since; or they are no longer pending on
            the server to which the run was written back.
            lost: entries whose row another writer changed meanwhile.
            gone: entries whose row is missing.  It is unknown which writer removed it.
            consumers_restored, cursors_restored, groups_restored: rows of these tables.
    """

    run_id: str | None
    run_seq: int | None
    dry_run: bool
    is_repeat: bool
    undone: str
    is_on_server: bool
    counts: Mapping[str, int]
    _journal: Callable[..., Relation] = field(repr=False)

    @cached_property
    def groups(self) -> Relation:
        """Return one row per group: stream, consumer_group, restored, returned, withdrawn, kept."""
        return plan.by_group(self._journal(*ENTRIES), ENTRIES)

    @cached_property
    def kept(self) -> Relation:
        """Return one row per entry that the undo did not change.

        Columns: stream, consumer_group, id (text), id_ms, id_seq.
        """
        return plan.kept_entries(self._journal(Kind.KEPT))


def undo(
    store: Store,
    run_name: str,
    *,
    run_id: str | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> UndoReply:
    """Put back what a finished run changed.

    This includes owners, delivery times and counts, deleted and acknowledged entries, consumers,
    cursors and last delivered ids.  Rows that another run or writer has changed since stay as they
    are.  An undo is a run, and can be undone, too.

    Args:
        run_name: the number, the key or the run id of the run, see `runs.find_run`.
        run_id: identifies the undo, together with the command.  A repeat with the same run id
            changes nothing.
        dry_run: True to decide, but write nothing.
        progress: called as each phase begins, and again with each new detail.

    Raises:
        RequestError: there is no such run, it cannot be undone, or it was already undone.
        RunKeyConflictError, LostRaceError: see `runs.run`.
        UnfinishedRunError: in a dry run, an earlier run is not yet applied.

    Examples:
        >>> undo(open_store("./store"), "xautoclaim:nightly-1")
        Traceback (most recent call last):
        claimlib.errors.RequestError: ... has no finished run xautoclaim:nightly-1: ...
    """
    undone = find_undoable(store, run_name, run_id)
    decide = partial(_decide, undone=undone)
    if dry_run:
        begun = begin_dry_run(store, progress)
        rows = decide(begun).rows.kept()
        return _reply(
            store, None, undone, _counts(rows), lambda *kinds: rows.where(of_kinds(*kinds))
        )
    # An undo also removes tombstones.  `run` checks the tables that every run changes.
    check_changeable(store, ("tombstones",))
    done = run(
        store,
        command=COMMAND,
        request={"run": undone.key, "run_seq": undone.run_seq},
        decide=decide,
        run_id=run_id,
        progress=progress,
    )
    return _reply(store, done, undone, done.counts, partial(rows_of, store, done.run_seq))


def _reply(
    store: Store,
    done: FinishedRun | None,
    undone: FinishedRun,
    counts: Mapping[str, int],
    journal: Callable[..., Relation],
) -> UndoReply:
    zeros = dict.fromkeys((*map(str, (*ENTRIES, Kind.LOST, Kind.GONE)), *_KIND_BY_COUNT), 0)
    return UndoReply(
        run_id=None if done is None else done.run_id,
        run_seq=None if done is None else done.run_seq,
        dry_run=done is None,
        is_repeat=done is not None and done.is_repeat,
        undone=undone.key,
        is_on_server=_is_on_server(store, undone, done),
        counts={**zeros, **counts},
        _journal=journal,
    )


def _is_on_server(store: Store, undone: FinishedRun, undo: FinishedRun | None) -> bool:
    written = writeback_of(store, undone.run_seq)
    if written is None or not any(map(written.counts.get, (Kind.MOVED, Kind.ACKNOWLEDGED))):
        return False
    return undo is None or writeback_of(store, undo.run_seq) is None


def _counts(rows: Relation) -> dict[str, int]:
    """Return the number of journal rows of each kind that an undo counts."""
    by_kind = rows.sql("SELECT kind, count(*) AS number FROM {this} AS this GROUP BY kind")
    numbers = {row["kind"]: row["number"] for row in by_kind.collect()}
    entries = {str(kind): numbers.get(kind, 0) for kind in ENTRIES}
    return entries | {name: numbers.get(kind, 0) for name, kind in _KIND_BY_COUNT.items()}


def find_undoable(store: Store, run_name: str, run_id: str | None = None) -> FinishedRun:
    """Return the finished run that is to be undone.

    Args:
        run_id: the run id of the undo, or None.  If this undo was already done, and several runs
            have the run id `run_name`, the result is the run that this undo has undone.

    Raises:
        RequestError: no finished run has this name, or runs of its command cannot be undone.
    """
    earlier_undo = None if run_id is None else find_finished(store, COMMAND, run_id)
    undone_earlier = None if earlier_undo is None else run_in_request(earlier_undo)
    if undone_earlier is not None and run_name == undone_earlier.key.partition(":")[2]:
        run_name = undone_earlier.key
    undone = find_run(store, run_name, UNDOABLE)
    if undone.command in UNDOABLE:
        if earlier_undo is None:  # a repeat does not need the rows of the undone run
            check_not_deleted(store, undone.run_seq, undone.key, "be undone")
        return undone
    remedy = "the next snapshot or import makes the store equal to its source again"
    if undone.command == MAINTAIN:
        remedy = "it changed no pending entries, and rows that it deleted cannot be restored"
    if undone.command == WRITEBACK:
        written = run_in_request(undone).key
        remedy = f"undo the run whose claims it wrote, {written}, and write that undo back"
    raise RequestError(f"run {undone.key} cannot be undone: {remedy}", run=undone.key)


def _decide(begun: Begun, undone: FinishedRun) -> Decision:
    _refuse_undone(begun, undone)
    check_not_deleted(begun.store, undone.run_seq, undone.key, "be undone")
    decided = decided_by(begun.store, undone.run_seq)
    _refuse_without_previous(decided)
    writeback = writeback_of(begun, undone.run_seq)
    writeback_seq = 0 if writeback is None else writeback.run_seq
    restoring = _RestoringRows(begun, decided, writeback_seq, _buckets(decided))
    entries = restoring.entry_rows().kept()
    consumers = restoring.consumer_rows(entries).fetched()
    cursors = restoring.cursor_rows().fetched()
    groups = restoring.group_rows().fetched()
    named = cursors.select(*GROUP, "cursor_name AS name")
    rows = [
        entries,
        consumers,
        cursors,
        groups,
        previous.consumer_rows(consumers.select(*GROUP, "consumer"), begun.relation("consumers")),
        previous.cursor_rows(named, begun.relation("cursors")),
        previous.group_rows(groups.select(*GROUP), begun.relation("groups")),
    ]
    counts = {CONSUMERS: consumers.count(), CURSORS: cursors.count(), GROUPS: groups.count()}
    return Decision(union_by_name(rows, JOURNAL_ROW), counts=counts)


def _buckets(decided: Decided) -> Sequence[int]:
    """Return the buckets of the streams that a run changed, and -1.

    No stream has the bucket -1.  Because of it, the result is never empty.
    """
    rows = decided.journal.where("bucket IS NOT NULL").distinct("bucket").collect()
    return [-1, *sorted(row["bucket"] for row in rows)]


@dataclass(frozen=True, slots=True)
class _RestoringRows:
    """Build the journal rows that undo a run, from its changes and the later changes.

    Attributes:
        decided: the run that is undone.
        writeback_seq: the number of its writeback, or 0 if it was not written back.
        buckets: see `_buckets`.
    """

    begun: Begun
    decided: Decided
    writeback_seq: int
    buckets: Sequence[int]

    def entry_rows(self) -> Relation:
        """Return `plans.undo_plan.entry_rows`."""
        changes = self._of_run(*CHANGED)
        pending = self.begun.relation("pending").within(self.decided.pending)
        later = self._later(*CHANGED, Kind.GROUP, Kind.GROUP_REMOVED)
        # Rows without a consumer are of entries that the run deleted or acknowledged.  These are no
        # longer pending on the server, and cannot become so again.
        removed = self._of_writeback(Kind.ACKNOWLEDGED, Kind.GONE).where("consumer IS NULL")
        return plan.entry_rows(
            plan.as_moved(changes, self._of_writeback(Kind.MOVED)),
            pending,
            union_by_name([later, removed], JOURNAL_ROW),
        )

    def consumer_rows(self, entries: Relation) -> Relation:
        """Return `plans.undo_plan.consumer_rows` and `plans.undo_plan.missing_owners`.

        Args:
            entries: `entry_rows`.
        """
        seen = union_by_name(
            [self._of_run(*plan.SEEN), self._of_writeback(Kind.MOVED)], JOURNAL_ROW
        )
        consumers = self.begun.relation("consumers")
        later = self._later(*plan.SEEN, Kind.CONSUMER_REMOVED)
        restored = plan.consumer_rows(
            plan.unchanged(seen.where("consumer IS NOT NULL"), later, (*GROUP, "consumer")),
            self.decided.rows(Kind.CONSUMER_BEFORE),
            consumers,
            self._owners(entries),
        ).fetched()
        given_back = entries.where(of_kinds(Kind.RESTORED, Kind.RETURNED))
        removed = later.where(of_kinds(Kind.RETIRED, Kind.CONSUMER_REMOVED))
        missing = plan.missing_owners(given_back, consumers, restored, removed)
        return union_all([restored, missing])

    def _owners(self, entries: Relation) -> Relation:
        """Return the owners of entries that will be pending: stream, consumer_group, consumer."""
        changed = entries.where(of_kinds(Kind.RESTORED, Kind.WITHDRAWN))
        pending = self.begun.relation("pending").where(in_buckets(self.buckets))
        owned = [
            without(pending, changed),
            entries.where(of_kinds(Kind.RESTORED, Kind.RETURNED)),
        ]
        return union_by_name(owned, {name: JOURNAL_ROW[name] for name in (*GROUP, "consumer")})

    def cursor_rows(self) -> Relation:
        """Return `plans.undo_plan.cursor_rows`."""
        kinds, key = (Kind.CURSOR, Kind.CURSOR_RESTORED), (*GROUP, "cursor_name")
        set_by_run = self._of_run(*kinds).where("cursor_name IS NOT NULL")
        return plan.cursor_rows(
            plan.unchanged(set_by_run, self._later(*kinds), key),
            self.decided.rows(Kind.CURSOR_BEFORE),
            self.begun.relation("cursors"),
        )

    def group_rows(self) -> Relation:
        """Return `plans.undo_plan.group_rows`."""
        kinds = (Kind.LASTID, Kind.GROUP_RESTORED)
        return plan.group_rows(
            plan.unchanged(self._of_run(*kinds), self._later(*kinds), GROUP),
            self.decided.rows(Kind.GROUP_BEFORE),
            self.begun.relation("groups"),
        )

    def _of_run(self, *kinds: Kind) -> Relation:
        """Return the run's journal rows that were applied."""
        rows = self.decided.rows(*kinds)
        return without(rows, self.decided.rows(Kind.LOST)) if self.decided.of(Kind.LOST) else rows

    def _of_writeback(self, *kinds: Kind) -> Relation:
        """Return the journal rows of the writeback of the run."""
        return rows_of(self.begun.store, self.writeback_seq, *kinds)

    def _later(self, *kinds: Kind) -> Relation:
        """Return the journal rows of later runs, except those of the writeback of the run."""
        first, last = self.decided.row.run_seq + 1, self.begun.run_seq - 1
        return (
            self.begun.store.relation("journal")
            .of_runs(first, last)
            .where(
                f"run_seq <> {self.writeback_seq:d}L"
                f" AND {of_kinds(*kinds)} AND {in_buckets(self.buckets)}"
            )
        )


def _refuse_undone(begun: Begun, undone: FinishedRun) -> None:
    """Raise RequestError if the run was undone before, even if that undo was undone."""
    chain = undos_of(begun, undone.run_seq)
    if not chain:
        return
    first, last = chain[0], chain[-1]
    command = f"claimlib undo {shlex.quote(begun.store.where)} {last.run_seq}"
    is_done_again = len(chain) % 2 == 0
    state = (
        f"was undone by run {first.run_seq}, and done again by run {last.run_seq} ({last.key})."
        f" To undo it again, undo run {last.run_seq}: {command}"
        if is_done_again
        else f"was already undone by run {last.run_seq} ({last.key}). To do it again, undo run"
        f" {last.run_seq}: {command}"
    )
    raise RequestError(f"run {undone.key} {state}", run=undone.key)


def _refuse_without_previous(decided: Decided) -> None:
    """Raise RequestError if the journal does not have the earlier values of a run."""
    if not decided.row.has_previous:
        raise RequestError(
            f"run {decided.row.key} cannot be undone: an earlier version of claimlib did it, and"
            " its journal lacks the earlier values of consumers, cursors and groups",
            run=decided.row.key,
        )
