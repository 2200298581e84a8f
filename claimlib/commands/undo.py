"""Undo a run: put back what it changed in the store, unless it has changed again since."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import NamedTuple

from claimlib.commands import reset_cursor, retire, xack, xautoclaim, xclaim
from claimlib.commands.runs import WRITEBACK, find_run, writeback_of
from claimlib.engine.relation import Relation, union_by_name
from claimlib.errors import RequestError
from claimlib.plans import previous
from claimlib.plans import undo as plan
from claimlib.plans.journal_rows import JOURNAL_ROW
from claimlib.plans.keys import GROUP, without
from claimlib.runs import Begun, Decision, FinishedRun, Progress, begin_dry_run, run
from claimlib.runs.journal import Decided, decided_by, of_kinds, rows_of
from claimlib.runs.rollforward import NOT_ABANDONED
from claimlib.schema import Kind
from claimlib.store.guards import check_changeable
from claimlib.store.tables import Store

COMMAND = "undo"
_COMMANDS = (
    *(xautoclaim.COMMAND, xclaim.COMMAND, xack.COMMAND, retire.COMMAND),
    *(reset_cursor.COMMAND, COMMAND),
)
ENTRIES = (Kind.RESTORED, Kind.RETURNED, Kind.WITHDRAWN, Kind.KEPT)
"""The kinds of journal rows that state the outcome for each entry of the run."""
CONSUMERS, CURSORS, GROUPS = "consumers_restored", "cursors_restored", "groups_restored"
"""The names of the counts of rows of small tables whose earlier values were restored."""
_OF_TABLES = {
    CONSUMERS: Kind.CONSUMER_RESTORED,
    CURSORS: Kind.CURSOR_RESTORED,
    GROUPS: Kind.GROUP_RESTORED,
}


@dataclass(frozen=True)
class UndoReply:
    """Hold what an undo put back, or would put back in a dry run.

    Attributes:
        run_seq: the number of the undo, or None in a dry run.
        is_repeat: True if an earlier call with the same run id had done it.
        undone: the key of the run that was undone.
        counts: the numbers of entries: restored (to the earlier owner, time and count), returned
            (pending again), withdrawn (no longer pending), kept (changed since, so left alone),
            lost (another writer changed the row meanwhile), gone (not pending for an unknown
            reason).  Also consumers_restored, cursors_restored and groups_restored.
    """

    run_id: str | None
    run_seq: int | None
    dry_run: bool
    is_repeat: bool
    undone: str
    counts: Mapping[str, int]
    _journal: Callable[..., Relation] = field(repr=False)

    @cached_property
    def groups(self) -> Relation:
        """Return one row per group: stream, consumer_group, restored, returned, withdrawn, kept."""
        return plan.by_group(self._journal(*ENTRIES), ENTRIES)

    @cached_property
    def kept(self) -> Relation:
        """Return one row per entry that was left alone: stream, consumer_group, id (text), id_ms,
        id_seq."""
        return plan.kept_entries(self._journal(Kind.KEPT))


def undo(
    store: Store,
    run_name: str,
    *,
    run_id: str | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> UndoReply:
    """Put back what a finished run changed in the store.

    These are owners, delivery times and counts, deleted and acknowledged entries, consumers,
    cursors and last delivered ids.  What another run or writer has changed since stays as it is.
    An undo is a run, and can be undone, too.

    Args:
        run_name: as `runs.find_run` takes it.
        run_id: the key of the undo together with the command; the same key again changes nothing.
        dry_run: decide and show, and write nothing.
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
    undone = find_undoable(store, run_name)
    decide = partial(_decide, undone=undone)
    if dry_run:
        begun = begin_dry_run(store, progress)
        rows = decide(begun).rows.kept()
        return _reply(None, undone, _counts(rows), lambda *kinds: rows.where(of_kinds(kinds)))
    check_changeable(store, ("tombstones",))
    done = run(
        store,
        command=COMMAND,
        request={"run": undone.key, "run_seq": undone.run_seq},
        decide=decide,
        run_id=run_id,
        progress=progress,
    )
    return _reply(done, undone, done.counts, partial(rows_of, store, done.run_seq))


def _reply(
    done: FinishedRun | None,
    undone: FinishedRun,
    counts: Mapping[str, int],
    journal: Callable[..., Relation],
) -> UndoReply:
    zeros = dict.fromkeys((*map(str, (*ENTRIES, Kind.LOST, Kind.GONE)), *_OF_TABLES), 0)
    return UndoReply(
        run_id=None if done is None else done.run_id,
        run_seq=None if done is None else done.run_seq,
        dry_run=done is None,
        is_repeat=done is not None and done.is_repeat,
        undone=undone.key,
        counts={**zeros, **counts},
        _journal=journal,
    )


def _counts(rows: Relation) -> dict[str, int]:
    """Return how many journal rows there are of each kind that an undo counts."""
    by_kind = rows.sql("SELECT kind, count(*) AS number FROM {this} AS this GROUP BY kind")
    numbers = {row["kind"]: row["number"] for row in by_kind.collect()}
    entries = {str(kind): numbers.get(kind, 0) for kind in ENTRIES}
    return entries | {name: numbers.get(kind, 0) for name, kind in _OF_TABLES.items()}


def find_undoable(store: Store, run_name: str) -> FinishedRun:
    """Return the finished run that is to be undone.

    Raises:
        RequestError: there is no such run, or it cannot be undone.
    """
    undone = find_run(store, run_name)
    if undone.command in _COMMANDS:
        return undone
    remedy = "the next snapshot or import makes the store equal to its source again"
    if undone.command == WRITEBACK:
        written = undone_by(undone).key
        remedy = f"undo the run whose claims it wrote, {written}, and write that undo back"
    raise RequestError(f"run {undone.key} cannot be undone: {remedy}", run=undone.key)


class NamedRun(NamedTuple):
    """Name a run by its number and its key."""

    run_seq: int
    key: str


def undone_by(undo_run: FinishedRun) -> NamedRun:
    """Return the run that an undo has undone, or that a writeback has written back."""
    request = json.loads(undo_run.request)
    return NamedRun(request["run_seq"], request["run"])


def _decide(begun: Begun, undone: FinishedRun) -> Decision:
    _refuse_undone(begun, undone)
    decided = decided_by(begun.store, undone.run_seq)
    sent = writeback_of(begun, undone.run_seq)
    entries = _entry_rows(begun, decided, sent).kept()
    restored = [
        _consumer_rows(begun, decided, sent, entries),
        plan.cursor_rows(
            decided.rows(Kind.CURSOR, Kind.CURSOR_RESTORED).where("cursor_name IS NOT NULL"),
            decided.rows(Kind.CURSOR_BEFORE),
            begun.relation("cursors"),
        ),
        plan.group_rows(
            decided.rows(Kind.LASTID, Kind.GROUP_RESTORED),
            decided.rows(Kind.GROUP_BEFORE),
            begun.relation("groups"),
        ),
    ]
    consumers, cursors, groups = (rows.fetched() for rows in restored)
    named = cursors.select(*GROUP, "cursor_name AS name")
    rows = [
        entries,
        *(consumers, cursors, groups),
        previous.consumer_rows(consumers.select(*GROUP, "consumer"), begun.relation("consumers")),
        previous.cursor_rows(named, begun.relation("cursors")),
        previous.group_rows(groups.select(*GROUP), begun.relation("groups")),
    ]
    counts = {CONSUMERS: consumers.count(), CURSORS: cursors.count(), GROUPS: groups.count()}
    return Decision(union_by_name(rows, JOURNAL_ROW), counts=counts)


def _refuse_undone(begun: Begun, undone: FinishedRun) -> None:
    """Raise RequestError if an undo of the run is in effect."""
    undos = begun.relation("runs").where(f"command = '{COMMAND}' AND {NOT_ABANDONED}")
    by_undone: dict[int, list[FinishedRun]] = {}
    for row in undos.collect():
        done = FinishedRun.of(row)
        by_undone.setdefault(undone_by(done).run_seq, []).append(done)

    def in_effect(run_seq: int) -> FinishedRun | None:
        return next(
            (done for done in by_undone.get(run_seq, ()) if in_effect(done.run_seq) is None), None
        )

    undo_of_it = in_effect(undone.run_seq)
    if undo_of_it is not None:
        seq = undo_of_it.run_seq
        raise RequestError(
            f"run {undone.key} was already undone by run {seq} ({undo_of_it.key}). To do the run"
            f" again, undo that undo: claimlib undo {shlex.quote(begun.store.where)} {seq}",
            run=undone.key,
        )


def _applied(decided: Decided) -> Relation:
    """Return the journal rows of a run without decisions that another writer prevented."""
    rows = decided.journal.where(of_kinds(plan.CHANGES))
    if decided.of(Kind.LOST):
        rows = without(rows, decided.rows(Kind.LOST))
    return rows


def _entry_rows(begun: Begun, decided: Decided, sent: FinishedRun | None) -> Relation:
    changes = _applied(decided)
    if sent is not None:
        moved = rows_of(begun.store, sent.run_seq, Kind.MOVED)
        changes = plan.as_moved(changes, moved)
    journal = begun.store.relation("journal")
    kinds = of_kinds((*plan.CHANGES, Kind.ACKNOWLEDGED, Kind.GROUP, Kind.GROUP_REMOVED))
    later = journal.where(
        f"run_seq > {decided.row.run_seq:d} AND run_seq < {begun.run_seq:d} AND {kinds}"
    )
    return plan.entry_rows(changes, begun.relation("pending").within(decided.pending), later)


def _consumer_rows(
    begun: Begun, decided: Decided, sent: FinishedRun | None, entries: Relation
) -> Relation:
    seen = decided.rows(*plan.SEEN)
    if sent is not None:
        moved = rows_of(begun.store, sent.run_seq, Kind.MOVED)
        seen = union_by_name([seen, moved], JOURNAL_ROW)
    changed = entries.where(of_kinds((Kind.RESTORED, Kind.WITHDRAWN)))
    owned = union_by_name(
        [
            without(begun.relation("pending"), changed),
            entries.where(of_kinds((Kind.RESTORED, Kind.RETURNED))),
        ],
        {name: JOURNAL_ROW[name] for name in (*GROUP, "consumer")},
    )
    return plan.consumer_rows(
        seen, decided.rows(Kind.CONSUMER_BEFORE), begun.relation("consumers"), owned
    )
