"""Finish a decided run: apply, verify, record, finish.

Each step follows from the journal rows of the decision and from its staged rows.  So the steps can
be done by the run itself, by the next run after a crash, or by two runs at once.  They can be done
at any time, and repeated any number of times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from claimlib import __version__
from claimlib.errors import VerificationError
from claimlib.plans.journal_rows import ADDED
from claimlib.runs import claims, maintenance, records
from claimlib.runs import mirror_rows as mirror
from claimlib.runs.journal import (
    COUNTED,
    TOUCHING,
    Decided,
    RunRow,
    decided_by,
)
from claimlib.runs.known import missing_rows_error
from claimlib.schema import TABLES, Kind
from claimlib.store.guards import check_not_replaced
from claimlib.store.local import Condition
from claimlib.store.lookups import find
from claimlib.store.replaced_tables import PROVING
from claimlib.store.retry import retried
from claimlib.store.tables import Store
from claimlib.terminal import number_of

CHANGED = ("pending", *(table for table in records.KINDS_BY_TABLE if table != "tombstones"))
"""List the tables in which a run that claims may change rows.  To the others it only adds rows."""
ABANDONED = "abandoned"
"""Name the count that is 1 in the report of an abandoned run."""
NOT_ABANDONED = f"counts['{ABANDONED}'] IS NULL"
"""Hold the SQL condition for rows of `runs` whose run was not abandoned."""


class Phase(StrEnum):
    """Name the phases of a run, in their order.

    Examples:
        >>> [phase.value for phase in Phase][:5]
        ['lock', 'recover', 'begin', 'read', 'decide']
    """

    LOCK = "lock"
    RECOVER = "recover"
    BEGIN = "begin"
    READ = "read"
    DECIDE = "decide"
    SEND = "send"
    APPLY = "apply"
    VERIFY = "verify"
    RECORD = "record"
    FINISH = "finish"


Progress = Callable[[Phase, str], None]
"""Type a function that is called as each phase begins, and again with each new detail of it.

The detail is empty if there is none.
"""


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """Hold the row of `runs` of a finished run.

    Attributes:
        phase_ms: the duration of each phase, in ms, in the processes that decided and finished it.
        began_ms: the time when the run began, in ms since the epoch, by the clock of the process
            that decided it.  None if unknown.
        ended_ms: the time when the run ended, in ms since the epoch, by the clock of the process
            that finished it.  None if unknown.
        engine: the engine that finished the run, `spark` or `embedded`.  None if an earlier version
            of claimlib finished it.
        is_repeat: True if an earlier call with the same key has already done the run.  It is not a
            column of `runs`.
    """

    run_seq: int
    run_id: str
    command: str
    request: str
    request_hash: str
    now_ms: int | None
    source: str | None
    server_run_id: str | None
    replication_id: str | None
    input_versions: Mapping[str, int]
    output_versions: Mapping[str, int]
    counts: Mapping[str, int]
    phase_ms: Mapping[str, int]
    began_ms: int | None
    ended_ms: int | None
    software_version: str
    engine: str | None
    is_repeat: bool = False

    @property
    def key(self) -> str:
        """Return the name of the run in messages."""
        return f"{self.command}:{self.run_id}"

    @property
    def is_abandoned(self) -> bool:
        """Return True if the run was abandoned."""
        return bool(self.counts.get(ABANDONED))

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> FinishedRun:
        """Return the run of a row of `runs`."""
        return cls(**row)


def wall_ms() -> int:
    """Return the time by the clock of this process, in ms since the epoch.

    It is only shown.  No decision depends on it.
    """
    return time.time_ns() // 1_000_000


@dataclass
class Clock:
    """Measure how long each phase of a run takes in this process.

    The caller is notified as each phase begins.
    """

    tell: Progress
    phase_ms: dict[str, int] = field(default_factory=dict)
    _running: tuple[Phase, float] | None = None

    def enter(self, phase: Phase, detail: str) -> None:
        """End the current phase, and begin another one."""
        self.stop()
        self._running = (phase, time.monotonic())
        self.tell(phase, detail)

    def stop(self) -> None:
        """End the current phase, if there is one."""
        if self._running is not None:
            phase, since = self._running
            self.phase_ms[phase] = round((time.monotonic() - since) * 1000)


def find_finished(store: Store, command: str, run_id: str) -> FinishedRun | None:
    """Return the finished run with this key, or None if there is none."""
    return _first(find(store, "runs", Condition("command", command), Condition("run_id", run_id)))


def find_finished_seq(store: Store, run_seq: int) -> FinishedRun | None:
    """Return the finished run with this number, or None if there is none."""
    return _first(find(store, "runs", Condition("run_seq", run_seq)))


def find_finished_by_run_id(store: Store, run_id: str) -> list[FinishedRun]:
    """Return the finished runs with this run id, in the order of their numbers.

    Each command has at most one such run.
    """
    rows = find(store, "runs", Condition("run_id", run_id))
    return sorted(map(FinishedRun.of, rows), key=lambda run: run.run_seq)


def _first(rows: Sequence[Mapping[str, Any]]) -> FinishedRun | None:
    return FinishedRun.of(rows[0]) if rows else None


def roll_forward(store: Store, row: RunRow, tell: Progress) -> FinishedRun:
    """Finish a decided run, unless it is already finished, and return its row of `runs`."""
    finished = find_finished_seq(store, row.run_seq)
    if finished is not None:
        return finished
    return carry_out(store, decided_by(store, row.run_seq), Clock(tell))


def carry_out(store: Store, decided: Decided, clock: Clock) -> FinishedRun:
    """Finish a decided run that another process may be finishing at the same time.

    Args:
        clock: the clock of this process.  If this process decided the run, the clock has the
            durations of the earlier phases.
    """
    try:
        return _apply_and_finish(store, decided, clock)
    except VerificationError:
        # Another process may have finished the run meanwhile, and deleted its staged rows.
        finished = find_finished_seq(store, decided.row.run_seq)
        if finished is None:
            raise
        return finished


def _apply_and_finish(store: Store, decided: Decided, clock: Clock) -> FinishedRun:
    row = decided.row
    if row.command == maintenance.COMMAND:
        return _finish_maintenance(store, decided, clock)
    run = f"run {row.run_seq}"
    clock.enter(Phase.APPLY, f"{run} · {number_of(_number_to_write(decided), 'row')} to write")
    mirror_counts: dict[str, int] = {}
    if row.staged is None:
        changed = claims.apply(store, row, decided)
        clock.enter(Phase.VERIFY, run)
        outcome = claims.verify(store, row, decided, changed=changed)
    else:
        mirror.check_landing(store, row, row.staged, decided)
        mirror.apply(store, row, row.staged, decided)
        clock.enter(Phase.VERIFY, run)
        outcome, mirror_counts = mirror.verify(store, row, row.staged, decided)
    counts = {**row.counts, **_decided_counts(decided), **mirror_counts}
    for name, number in outcome.counts().items():  # a count may exist, such as a decided `gone`
        counts[name] = counts.get(name, 0) + number
    clock.enter(Phase.RECORD, run)
    counts |= records.apply(store, row, decided, outcome)
    clock.enter(Phase.FINISH, run)
    known = {} if outcome.version is None else {"pending": outcome.version}
    return _finish(store, row, counts, _tables_written(row, decided), clock, known)


def _finish_maintenance(store: Store, decided: Decided, clock: Clock) -> FinishedRun:
    row = decided.row
    run = f"run {row.run_seq}"
    clock.enter(Phase.APPLY, run)
    maintenance.apply(store, row, decided, lambda step: clock.tell(Phase.APPLY, f"{run} · {step}"))
    clock.enter(Phase.VERIFY, run)
    maintenance.verify(store, row)
    clock.enter(Phase.FINISH, run)
    counts = {**row.counts, **_decided_counts(decided)}
    return _finish(store, row, counts, {*TABLES} - {"journal", "runs"}, clock, {})


def _number_to_write(decided: Decided) -> int:
    """Return the number of rows of `pending` and `entries` to write or remove."""
    new = sum(decided.row.counts.get(name, 0) for name in mirror.NEW.values())
    return new + decided.of(*TOUCHING, *ADDED, Kind.ENTRY_FILLED, Kind.ENTRY_REMOVED)


def _tables_written(row: RunRow, decided: Decided) -> set[str]:
    """Return the tables that a run may have written, besides `journal` and `runs`."""
    if row.staged is not None:
        return set(mirror.TABLES_WRITTEN)
    kinds_by_table = {"pending": (*TOUCHING, *ADDED), **records.KINDS_BY_TABLE}
    return {table for table, kinds in kinds_by_table.items() if decided.of(*kinds)}


def abandon_run(store: Store, row: RunRow) -> FinishedRun:
    """Abandon a decided run of a snapshot or an import.

    No further step of the run is applied.  Its row of `runs` has the count `abandoned`.  The
    completeness ranges of its streams are invalidated.
    """
    clock = Clock(lambda _phase, _detail: None)
    mirror.withdraw(store, row)
    return _finish(store, row, {ABANDONED: 1}, mirror.TABLES_WRITTEN, clock, {})


def _decided_counts(decided: Decided) -> dict[str, int]:
    """Return the numbers of journal rows that a run's report counts, without zeros."""
    return {str(kind): decided.of(kind) for kind in COUNTED if decided.of(kind)}


def _finish(
    store: Store,
    row: RunRow,
    counts: Mapping[str, int],
    written: Collection[str],
    clock: Clock,
    known: Mapping[str, int],
) -> FinishedRun:
    """Write the run's row of `runs` once, and then delete its staged entries.

    For a table that the run has not written, the output version is the version that it pinned.

    Args:
        written: the tables that the run may have written.
        known: the versions of tables right after the run, if the caller knows them.

    Raises:
        SchemaError: `entries` or `streams` was replaced since the run was decided.
        MissingRowsError: another writer has deleted the run's row of `runs`.
    """
    check_not_replaced(store, store.pin(PROVING).versions, [row.seen])
    unknown = [table for table in written if table not in known]
    outputs = {**row.pins.versions, **store.pin(unknown).versions, **known}
    clock.stop()
    values = {
        "run_seq": row.run_seq,
        "run_id": row.run_id,
        "command": row.command,
        "request": row.request,
        "request_hash": row.request_hash,
        "now_ms": row.now_ms,
        "source": row.source,
        "server_run_id": row.server.run_id,
        "replication_id": row.server.replication_id,
        "input_versions": dict(row.pins.versions),
        "output_versions": outputs,
        "counts": dict(counts),
        "phase_ms": dict(clock.phase_ms),
        "began_ms": row.began_ms,
        "ended_ms": wall_ms(),
        "software_version": __version__,
        "engine": store.engine.name,
    }
    own = store.rows("runs", [tuple(values.values())], list(values))
    retried(lambda: store.writer.append("runs", own, token=row.token, note=row.note))
    finished = find_finished_seq(store, row.run_seq)
    if finished is None:
        raise missing_rows_error(store, "runs", row.run_seq, f"{row.run_seq} ({row.key})")
    if row.staged is not None:
        mirror.delete_finished_landings(store, row)
    return finished
