"""Check from the store alone if a run can be written back."""

from __future__ import annotations

import shlex

from claimlib.commands.mirror import IMPORT, SNAPSHOT
from claimlib.commands.run_commands import UNDO, WRITTEN_BACK
from claimlib.commands.runs import last_undo_of, run_in_request, writeback_of
from claimlib.commands.sources import LastSnapshot, last_snapshot
from claimlib.engine.relation import Relation
from claimlib.errors import ClaimlibError, GuardError, NotAMirrorError, RequestError
from claimlib.plans.keys import GROUP
from claimlib.plans.writeback_plan import WRITTEN
from claimlib.runs import Begun, FinishedRun
from claimlib.runs.journal import rows_of
from claimlib.runs.maintenance import check_not_deleted
from claimlib.runs.rollforward import NOT_ABANDONED
from claimlib.schema import Kind


def can_be_written_back(begun: Begun, finished: FinishedRun) -> bool:
    """Return True if a run has changes for the server, and no check of this module refuses it.

    The age of the snapshot and the server itself are not checked.

    Args:
        begun: it pins the table `runs`.
    """
    kinds = (*WRITTEN, Kind.RETIRED)
    if finished.command not in WRITTEN_BACK or not any(map(finished.counts.get, map(str, kinds))):
        return False
    try:
        checked_snapshot(begun)
        check_unsent(begun, finished)
        changed = rows_of(begun.store, finished.run_seq, *kinds)
        check_no_newer_snapshot(begun, finished, changed.distinct(*GROUP))
    except ClaimlibError:
        return False
    return True


def checked_snapshot(begun: Begun) -> LastSnapshot:
    """Return the last snapshot of a store, or raise NotAMirrorError if there is none."""
    last = last_snapshot(begun.relation("runs"))
    if last is None:
        raise NotAMirrorError(
            f"the store {begun.store.where} mirrors no server: only claims of a store that claimlib"
            " snapshot has filled can be written back",
            where=begun.store.where,
        )
    return last


def check_unsent(begun: Begun, finished: FinishedRun) -> None:
    """Raise RequestError if the changes of a run were sent, undone, or deleted from the journal.

    Also raise it if the run is the undo of a run that was not written back.
    """
    done = writeback_of(begun, finished.run_seq)
    if done is not None:
        raise RequestError(
            f"run {finished.key} was already written back by run {done.run_seq}"
            f" ({done.key}). Nothing was sent. To show what became of its entries, run:"
            f" claimlib runs {shlex.quote(begun.store.where)} {done.run_seq}",
            run=finished.key,
        )
    check_not_deleted(begun.store, finished.run_seq, finished.key, "be written back")
    undo = last_undo_of(begun, finished.run_seq)
    if undo is not None:
        raise RequestError(
            f"run {finished.key} was undone by run {undo.run_seq} ({undo.key}). Nothing was sent",
            run=finished.key,
        )
    if finished.command != UNDO:
        return
    undone = run_in_request(finished)
    if writeback_of(begun, undone.run_seq) is None:
        raise RequestError(
            f"run {finished.key} has undone {undone.key}, and no writeback of that run is"
            " finished. Nothing was sent. To see what the server has, take a new snapshot",
            run=finished.key,
        )


def check_no_newer_snapshot(begun: Begun, finished: FinishedRun, groups_of_run: Relation) -> None:
    """Raise GuardError if a group of a run was read from the server again after the run.

    Args:
        groups_of_run: one row per group in which the run changed something.
    """
    seq = finished.run_seq
    is_reading = f"command IN ('{SNAPSHOT}', '{IMPORT}') AND {NOT_ABANDONED}"
    if begun.relation("runs").where(f"run_seq > {seq:d}L AND {is_reading}").is_empty():
        return
    kinds = f"kind IN ('{Kind.GROUP}', '{Kind.GROUP_REMOVED}')"
    journal = begun.store.relation("journal").of_runs(seq + 1).where(kinds)
    newer = journal.sql(
        "SELECT j.run_seq, j.stream, j.consumer_group FROM {this} AS j"
        f" LEFT SEMI JOIN {{groups_of_run}} AS g USING ({', '.join(GROUP)})",
        groups_of_run=groups_of_run,
    )
    row = newer.order_by("run_seq", *GROUP).first()
    if row is not None:
        raise GuardError(
            f"run {row['run_seq']} has read {row['stream']} / {row['consumer_group']} from the"
            f" server after run {finished.key}, and replaced its claims in the store."
            f" Nothing was sent. Run the {finished.command} again, and write that back",
            run=finished.key,
        )
