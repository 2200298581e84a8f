"""Carry out a run from its key to its report: recover, begin, decide, and then `rollforward`.

`run_seq` is a compare-and-set token.  First the last run_seq is read, then all runs up to it are
recovered, and then the tables are pinned.  If another process has used the next run_seq meanwhile,
Delta refuses or skips this run's append to the journal.  Delta does not report a skipped append, so
the run reads the `run` row of its run_seq back.  If that row has the uuid of another attempt, the
other attempt has won.  Then this run finishes the other one, and begins again.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from claimlib import process, schema
from claimlib.engine.relation import Relation, union_by_name
from claimlib.errors import (
    CommitConflictError,
    ForeignRunSeqError,
    LostRaceError,
    RunAbandonedError,
    RunKeyConflictError,
    UnfinishedRunError,
    VersionExpiredError,
)
from claimlib.runs.journal import (
    APP_ID,
    Decided,
    RunRow,
    ServerIdentity,
    Staged,
    find_decided,
    run_rows,
)
from claimlib.runs.known import (
    KnownRuns,
    check_no_missing_rows,
    load_known_runs,
    missing_rows_error,
)
from claimlib.runs.maintenance import deleted_part_with_run
from claimlib.runs.request_text import differences
from claimlib.runs.rollforward import (
    CHANGED,
    Clock,
    FinishedRun,
    Phase,
    Progress,
    carry_out,
    find_finished,
    find_finished_seq,
    roll_forward,
    wall_ms,
)
from claimlib.semantics.model import parse_run_id
from claimlib.semantics.names import is_utf8
from claimlib.store.guards import (
    check_changeable,
    check_folder,
    check_not_replaced,
    check_session,
)
from claimlib.store.local import Token
from claimlib.store.tables import Pins, Store

MAX_LOSSES = 5
DRY_RUN = "dry run"
"""Begin the details of the phases of a dry run, which writes nothing."""
NOTHING_DECIDED = "nothing was decided, so the store is unchanged"
"""State that no decision was written."""
CLAIMS_SENT = (
    "the server may have some of the claims: the same command recognizes them, and continues"
)
"""Say that the server may have some claims, because a writeback ended while it sent them."""
INPUTS = ("pending", "entries", "groups", "consumers", "streams", "cursors", "runs")
"""List the tables that a run pins, because its decision reads them."""


_ONLY_COUNTS = "; its journal rows were deleted, so only its counts are shown"


def _ignore_detail(detail: str) -> None:
    del detail


@dataclass(frozen=True)
class Begun:
    """Hold the values from which a run is decided.

    Attributes:
        run_seq: the number of the run.
        pins: the versions of the tables that the decision reads.
        tell_detail: shows the user the size of the decision, or its current step.
    """

    store: Store
    run_seq: int
    pins: Pins
    tell_detail: Callable[[str], None] = _ignore_detail

    def relation(self, table: str) -> Relation:
        """Return a table at its pinned version."""
        return self.store.relation(table, self.pins.versions[table])


@dataclass(frozen=True, slots=True)
class Decision:
    """Hold the result of a decide function: journal rows without run_seq, and values for `run`.

    Attributes:
        rows: rows with some of the journal's columns.  The other columns become null.
        staged: the rows that were staged for this decision.  None if no rows were staged.
        source: the source that was read.  None if no source was read.
        server: the server process that was read.  Its ids are None if no server was read, or if
            they are unknown.
        counts: the counts of the run that the rows do not show.
    """

    rows: Relation
    staged: Staged | None = None
    source: str | None = None
    server: ServerIdentity = field(default_factory=ServerIdentity)
    counts: Mapping[str, int] = field(default_factory=dict)


Decide = Callable[[Begun], Decision]


def run(
    store: Store,
    *,
    command: str,
    request: Mapping[str, object],
    decide: Decide,
    run_id: str | None = None,
    now_ms: int | None = None,
    progress: Progress | None = None,
) -> FinishedRun:
    """Run one command on a store, once.

    Args:
        command: the name of the command.  It and `run_id` form the key of the run.
        request: the request, as JSON values.  It is stored with the run.
        decide: the function that decides the run from pinned versions.  It may be called again.
        run_id: the caller's name for this run.  If it is None, a name is generated.
        now_ms: the time that the caller gave, or None.  It is a part of the request.
        progress: called as each phase begins, with a detail to show, and again with each new
            detail.

    Returns: the run's row of `runs`.  If the key was used before for the same request, it is the
    row of the earlier call.

    Raises:
        RequestError: `run_id` is empty, or is not UTF-8.
        RunKeyConflictError: the key was used before for another request.
        RunAbandonedError: the run with this key was abandoned.
        StoreBusyError: another process still writes to the store after `Store.lock.wait_ms`.
        LostRaceError: this run was decided too late several times, because other runs were first.
        MissingRowsError: another writer has removed rows of earlier runs from `journal` or `runs`.
        ConfigError: Spark may read less than the tables contain.
        StorageError: this user has no permission to write to the store's folder.
        SchemaError: a table that runs change is append-only, or was replaced (see `_pins`).
    """
    check_session(store)
    check_folder(store)
    check_changeable(store, CHANGED)
    tell = progress or silent
    key = (command, uuid.uuid4().hex if run_id is None else parse_run_id(run_id))
    text = _request_text({**request, "now_ms": now_ms})
    with store.lock.held_for(":".join(key), partial(tell, Phase.LOCK)):
        return _run(
            store,
            key,
            text,
            now_ms,
            decide=decide,
            tell=tell,
            may_be_repeat=run_id is not None,
        )


def _run(
    store: Store,
    key: tuple[str, str],
    text: str,
    now_ms: int | None,
    *,
    decide: Decide,
    tell: Progress,
    may_be_repeat: bool,
) -> FinishedRun:
    """Run one command under the lock of its store, once, as in `run`.

    Args:
        text: the request in JSON.
        may_be_repeat: False if the key was generated, so no earlier run can have used it.
    """
    lost_to, recovered = "", set[int]()
    for _ in range(MAX_LOSSES):
        known = _recover(store, tell)
        recovered |= {row.run_seq for row in known.unfinished}
        finished = find_finished(store, *key) if may_be_repeat else None
        if finished is not None:
            _check_same_request(finished, text)
            _check_not_abandoned(finished)
            if finished.run_seq in recovered:
                # An earlier call has decided the run, and this call has finished it.
                return finished
            limitation = (
                "" if deleted_part_with_run(store, finished.run_seq) is None else _ONLY_COUNTS
            )
            tell(
                Phase.FINISH,
                f"run {finished.run_seq} was already done: nothing is changed{limitation}",
            )
            return replace(finished, is_repeat=True)
        clock, began_ms = Clock(tell), wall_ms()
        clock.enter(Phase.BEGIN, "")
        run_seq = known.last_seq + 1
        run_name = f"run {run_seq}"
        begun = Begun(
            store, run_seq, _pins(store, INPUTS, known), _tell_of_decision(tell, run_name)
        )
        clock.enter(Phase.DECIDE, run_name)
        try:
            decision = decide(begun)
        except VersionExpiredError as error:
            # The pinned version was older than the retention, and was readable only as the newest
            # version.  Another writer has just committed a newer one.
            lost_to = f"a writer of {error.table}"
            continue
        except ForeignRunSeqError:
            # The unknown run numbers may be those of runs whose decisions were removed.
            check_no_missing_rows(store)
            raise
        row = replace(_run_row(begun, key, text, now_ms, decision), began_ms=began_ms)
        decided = _commit(store, row, decision)
        del decision  # its rows need not stay in memory
        if decided is None:
            raise missing_rows_error(store, "journal", run_seq, f"{run_seq}")
        if decided.row.attempt == row.attempt:
            finished = carry_out(store, decided, clock)
            _check_not_abandoned(finished)
            return finished
        if find_finished_seq(store, decided.row.run_seq) is None:
            carry_out(store, decided, Clock(tell))
            recovered.add(decided.row.run_seq)
        lost_to = decided.row.key
    raise LostRaceError(
        f"{':'.join(key)} was overtaken by other runs or writers {MAX_LOSSES} times (the last:"
        f" {lost_to}). Start the runs on {store.where} one at a time, from one scheduler, and try"
        " again with the same run id",
        winner=lost_to,
    )


def unfinished_error(run: RunRow) -> UnfinishedRunError:
    """Build the error of a command that must wait for an unfinished run."""
    return UnfinishedRunError(
        f"run {run.run_seq} ({run.key}) is unfinished: its decision was written, but is not yet"
        f" applied. The next run finishes it, for example: claimlib {run.command} … --run-id"
        f" {shlex.quote(run.run_id)}. Until then claimlib xpending shows the store before this run",
        run=run.key,
    )


def pinned(store: Store, tables: Collection[str]) -> tuple[Begun, list[RunRow]]:
    """Return the versions of some tables at one moment, and the runs that were unfinished then.

    The unfinished runs are found first, and then the tables are pinned.  A run that is decided in
    between may be half applied in the pinned versions.  So both steps are repeated until `runs` and
    `journal` did not change during them.

    Raises:
        LostRaceError: `runs` or `journal` changed during each attempt.
        ConfigError: Spark may read less than the tables contain.
        SchemaError: see `_pins`.
    """
    if tables:
        check_session(store)
    before = _versions_of_runs(store)
    for _ in range(MAX_LOSSES):
        known = load_known_runs(store)
        pins = _pins(store, tables, known)
        after = _versions_of_runs(store)
        if after == before:
            return Begun(store, known.last_seq + 1, pins), known.unfinished
        before = after
    raise LostRaceError(
        f"{store.where} is written to again and again, so its tables cannot be read in a consistent"
        " state: try again",
        where=store.where,
    )


def _versions_of_runs(store: Store) -> list[int]:
    """Return the versions of the tables that `load_known_runs` reads.

    Usually this is faster than reading the tables again.
    """
    return [store.version(table) for table in ("runs", "journal")]


def _pins(store: Store, tables: Collection[str], known: KnownRuns) -> Pins:
    """Pin tables, and check that none of them was replaced.

    Raises:
        SchemaError: a table was replaced.
    """
    pins = store.pin(tables)
    check_not_replaced(store, pins.versions, known.seen)
    return pins


def begin_dry_run(store: Store, progress: Progress | None) -> Begun:
    """Pin tables for a dry run, which decides and writes nothing.

    Raises:
        UnfinishedRunError: a run is unfinished.  The message names the command that finishes it.
        LostRaceError, ConfigError, SchemaError: see `pinned`.
    """
    tell = progress or silent
    tell(Phase.DECIDE, DRY_RUN)
    begun, unfinished = pinned(store, INPUTS)
    if unfinished:
        raise unfinished_error(unfinished[0])
    return replace(begun, tell_detail=_tell_of_decision(tell, DRY_RUN))


def _tell_of_decision(tell: Progress, run_name: str) -> Callable[[str], None]:
    """Return a function that shows the user a detail of the phase `decide`."""
    return lambda detail: tell(Phase.DECIDE, f"{run_name} · {detail}")


def _recover(store: Store, tell: Progress) -> KnownRuns:
    """Finish the runs that are decided and not finished.

    Return the runs as they were known before.
    """
    tell(Phase.RECOVER, "")
    known = load_known_runs(store)
    if not known.is_complete:
        check_no_missing_rows(store)
    if known.unfinished:
        # This check comes first, because finishing a run raises the versions of its tables.  Then
        # a replaced table would no longer be noticed by its low version.
        _pins(store, INPUTS, known)
    for row in known.unfinished:
        tell(Phase.RECOVER, f"finishing run {row.run_seq} ({row.key}) of another process")
        roll_forward(store, row, tell)
    return known


def _request_text(request: Mapping[str, object]) -> str:
    """Return the request in JSON.

    If the request contains text that is not valid UTF-8, the JSON is ASCII only.
    """
    text = json.dumps(request, sort_keys=True, ensure_ascii=False)
    return text if is_utf8(text) else json.dumps(request, sort_keys=True)


def _check_same_request(finished: FinishedRun, request: str) -> None:
    changed = differences(json.loads(finished.request), json.loads(request))
    if changed:
        raise RunKeyConflictError(
            f"the run id of {finished.key} was already used for a different request: {changed}."
            " Use another run id",
            run=finished.key,
        )


def _check_not_abandoned(finished: FinishedRun) -> None:
    if finished.is_abandoned:
        raise RunAbandonedError(
            f"run {finished.key} was abandoned (claimlib abandon): it did not do what was"
            " requested. Use another run id for the next one",
            run=finished.key,
        )


def _hash(request: str) -> str:
    return hashlib.sha256(request.encode()).hexdigest()


def _run_row(
    begun: Begun, key: tuple[str, str], request: str, now_ms: int | None, decision: Decision
) -> RunRow:
    return RunRow(
        run_seq=begun.run_seq,
        command=key[0],
        run_id=key[1],
        attempt=uuid.uuid4().hex,
        request=request,
        request_hash=_hash(request),
        staged=decision.staged,
        now_ms=now_ms,
        source=decision.source,
        server=decision.server,
        pins=begun.pins,
        counts=decision.counts,
    )


def _commit(store: Store, row: RunRow, decision: Decision) -> Decided | None:
    """Append a decision to the journal, and return the decision that the journal has.

    Delta may skip the append, so the journal is read back.  The result is the decision that the
    journal has for this run_seq: of this run, or of the run that won.  It is None if the journal
    has none, because rows of this run_seq or of a later one were removed.
    """
    values = row.values()
    own = store.rows("journal", [tuple(values.values())], list(values))
    numbered = decision.rows.select("*", f"{row.run_seq:d}L AS run_seq")
    all_rows = union_by_name([numbered, own], schema.JOURNAL.types)
    process.set_state_text(partial(_state_of_decision, store, row))
    try:
        store.writer.append("journal", all_rows, token=Token(APP_ID, row.run_seq), note=row.note)
    except Exception as error:
        # After a conflict the row of another run exists.  After a storage error this run's own row
        # may exist all the same.
        conflict = isinstance(error, CommitConflictError)
        committed = run_rows(store, row.run_seq - 1)
        if not committed or not (conflict or committed[0].attempt == row.attempt):
            raise
    return find_decided(store, row.run_seq)


def _state_of_decision(store: Store, row: RunRow) -> str:
    """Return the text about a decision for the message of an interruption: is it written?"""
    run = f"run {row.run_seq} ({row.key})"
    remedy = f"the same command with --run-id {shlex.quote(row.run_id)}, or the next run"
    try:
        decided = run_rows(store, row.run_seq - 1)
        is_written = any(other.attempt == row.attempt for other in decided)
        # A missing row proves nothing with Spark, which may still be writing it.
        is_known = is_written or store.is_embedded
    except (Exception, KeyboardInterrupt):  # noqa: BLE001 - Spark may have ended, or Ctrl-C come again
        is_written = is_known = False
    if is_written:
        return f"the decision of {run} was written: {remedy}, finishes it"
    if is_known:
        return NOTHING_DECIDED
    return (
        f"it is unknown whether the decision of {run} was written: claimlib runs"
        f" {shlex.quote(store.where)} shows it. If it lists the run as unfinished, {remedy},"
        " finishes it; if it does not list the run, nothing was changed"
    )


def silent(phase: Phase, detail: str) -> None:
    """Show no progress."""
    del phase, detail
