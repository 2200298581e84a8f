"""List the finished runs of a store, find a run by its name, and abandon an unfinished run."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import NamedTuple

from claimlib.commands.run_commands import UNDO, WRITEBACK
from claimlib.engine.relation import DESCENDING, Relation
from claimlib.errors import RequestError
from claimlib.plans.differences import EVERYTHING, Scope
from claimlib.plans.keys import bigint_sql, id_at_least, id_at_most
from claimlib.runs import Begun, FinishedRun, Phase, Progress, pinned, silent
from claimlib.runs.journal import RunRow
from claimlib.runs.known import load_known_runs
from claimlib.runs.protocol import INPUTS
from claimlib.runs.rollforward import (
    NOT_ABANDONED,
    abandon_run,
    find_finished,
    find_finished_by_run_id,
    find_finished_seq,
)
from claimlib.semantics.ids import StreamId, to_bigint
from claimlib.semantics.names import is_utf8
from claimlib.store.lookups import last
from claimlib.store.tables import Store
from claimlib.terminal import one_line

_INT_MAX = 2**31 - 1  # the largest number of rows in a LIMIT of Spark


@dataclass(frozen=True, slots=True)
class RunList:
    """Hold the newest finished runs, newest first.

    Attributes:
        total: the number of all finished runs.
        unfinished: the keys of the runs that are decided, but not finished.  The next run finishes
            them.
    """

    runs: tuple[FinishedRun, ...]
    total: int
    unfinished: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """Choose entries by the globs of their stream and group, and by the range of their ids.

    Attributes:
        start, end: the first and the last id.  None means no bound.

    Examples:
        >>> EntryFilter(Scope("orders"), start=parse_id("5-0")).end is None
        True
    """

    scope: Scope = EVERYTHING
    start: StreamId | None = None
    end: StreamId | None = None

    def of(self, rows: Relation) -> Relation:
        """Return the chosen rows of a relation with stream, consumer_group, id_ms and id_seq."""
        chosen = rows.where(self.scope.has_group())
        if self.start is not None:
            chosen = chosen.where(id_at_least("id_ms", "id_seq", *_bigints(self.start)))
        if self.end is not None:
            chosen = chosen.where(id_at_most("id_ms", "id_seq", *_bigints(self.end)))
        return chosen


def _bigints(id_: StreamId) -> list[str]:
    return [bigint_sql(to_bigint(half)) for half in id_]


def writeback_of(at: Begun | Store, run_seq: int) -> FinishedRun | None:
    """Return the finished writeback of a run, or None if it was not written back."""
    seq = "CAST(get_json_object(request, '$.run_seq') AS BIGINT)"
    done = at.relation("runs").where(f"command = '{WRITEBACK}' AND {NOT_ABANDONED}")
    row = done.where(f"{seq} = {run_seq:d}").first()
    return None if row is None else FinishedRun.of(row)


class NamedRun(NamedTuple):
    """Name a run by its number and its key."""

    run_seq: int
    key: str


def run_in_request(run: FinishedRun) -> NamedRun:
    """Return the run that an undo has undone, or that a writeback has written back."""
    request = json.loads(run.request)
    return NamedRun(request["run_seq"], request["run"])


def undos_of(at: Begun | Store, run_seq: int) -> list[FinishedRun]:
    """Return the undo of a run, the undo of that undo, and so on.  Empty if there is none.

    A run can be undone only once.  To do the run again, the user undoes the undo.
    """
    by_undone = _undos(at)
    chain: list[FinishedRun] = []
    while (undone_by := by_undone.get(chain[-1].run_seq if chain else run_seq)) is not None:
        chain.append(undone_by)
    return chain


def last_undo_of(at: Begun | Store, run_seq: int) -> FinishedRun | None:
    """Return the undo because of which a run is undone now, or None if it is not undone."""
    chain = undos_of(at, run_seq)
    return chain[-1] if len(chain) % 2 else None


def claiming_undos(at: Begun | Store) -> list[int]:
    """Return the numbers of the undos that claim entries again, because they undo another undo.

    An undo of such an undo gives the entries back again, so it does not count.
    """
    undone_by = {undo.run_seq: run_seq for run_seq, undo in _undos(at).items()}

    def depth(run_seq: int) -> int:
        return 1 + depth(undone_by[run_seq]) if run_seq in undone_by else 0

    return [run_seq for run_seq in undone_by if depth(run_seq) % 2 == 0]


def _undos(at: Begun | Store) -> dict[int, FinishedRun]:
    """Return the undo of each undone run, by the number of the undone run."""
    rows = at.relation("runs").where(f"command = '{UNDO}' AND {NOT_ABANDONED}").collect()
    return {run_in_request(run).run_seq: run for run in map(FinishedRun.of, rows)}


def list_runs(store: Store, limit: int | None = None) -> RunList:
    """Return the newest finished runs, at most `limit`, and the unfinished runs.

    All finished runs are returned if `limit` is None.

    Examples:
        >>> list_runs(open_store("./store"))
        RunList(runs=(), total=0, unfinished=())
    """
    newest, total = last(store, "runs", "run_seq", _INT_MAX if limit is None else limit)
    unfinished = tuple(row.key for row in load_known_runs(store).unfinished)
    return RunList(tuple(map(FinishedRun.of, newest)), total, unfinished)


def find_run(store: Store, name: str, preferred: Collection[str] = ()) -> FinishedRun:
    """Return a finished run by its number, its key, or its run id alone.

    For example, `7` is a number, `xautoclaim:nightly-1` is a key, and `nightly-1` is a run id.  If
    a run has the name as its number or key, runs that have it as their run id are ignored.

    Args:
        preferred: if runs of several commands have this run id, the runs of other commands than
            these are ignored.

    Raises:
        RequestError: no finished run has this name, or runs of several commands have this run id.
    """
    if not name.strip():
        raise RequestError.of_empty("the name of the run", "name one", run=name)
    runs = _runs_named(store, name) if is_utf8(name) else []
    runs = [run for run in runs if run.command in preferred] or runs
    if len(runs) > 1:
        keys = ", ".join(f"{run.key} (run {run.run_seq})" for run in runs)
        raise RequestError(
            f"{name} is the run id of {len(runs)} runs: {keys}. Name one of them by its number or"
            " by command:run_id",
            run=name,
        )
    if not runs:
        raise RequestError(
            f"{store.where} has no finished run {name}{_similar_runs(store, name)}: claimlib runs"
            f" {shlex.quote(store.where)} lists the runs",
            run=name,
        )
    return runs[0]


def _runs_named(store: Store, name: str) -> list[FinishedRun]:
    command, colon, run_id = name.partition(":")
    run = None
    if re.fullmatch("[0-9]{1,18}", name):  # 18 digits always fit the BIGINT run_seq
        run = find_finished_seq(store, int(name))
    elif colon:
        run = find_finished(store, command, run_id)
    return find_finished_by_run_id(store, name) if run is None else [run]


_MOST_COMPARED = 1_000


def _similar_runs(store: Store, name: str) -> str:
    """Return a hint for the message: the run is unfinished, or other runs have similar names.

    Empty if neither is the case.
    """
    unfinished = [run.key for run in load_known_runs(store).unfinished if _is_run(run, name)]
    if unfinished:
        return f" ({unfinished[0]} is unfinished: the next run finishes it)"
    newest = store.relation("runs").order_by(f"run_seq{DESCENDING}").limit(_MOST_COMPARED)
    rows = newest.select("command", "run_id").collect()
    keys = [f"{row['command']}:{row['run_id']}" for row in rows]
    key_by_name = {row["run_id"]: key for row, key in zip(rows, keys, strict=True)}
    key_by_name |= {key: key for key in keys}
    near = get_close_matches(name, key_by_name, n=3)
    similar = dict.fromkeys(one_line(key_by_name[name]) for name in near)
    return f" (did you mean {' or '.join(similar)}?)" if similar else ""


def _is_run(run: RunRow, name: str) -> bool:
    """Return True if a name is the number, the key or the run id of a run."""
    return name in {run.key, str(run.run_seq), run.run_id}


def abandon(store: Store, name: str, *, progress: Progress | None = None) -> FinishedRun:
    """Abandon an unfinished snapshot or import whose staged rows were deleted.

    The changes that the run has already applied stay.  The completeness ranges of its streams are
    invalidated, so sweeps refuse their groups.  The next snapshot or import updates the store from
    the source.

    Before the call, make sure that no process still carries out the run.  Such a process would
    continue it.  A run that claims, acknowledges or retires cannot be abandoned, because the next
    run finishes it from the journal.

    Args:
        progress: called if this has to wait for another process.  If it is None, no progress is
            shown.

    Raises:
        RequestError: no unfinished run has this name, the run is not a snapshot or an import, or an
            older run is unfinished, too.
        StoreBusyError: another process still writes to the store after `Store.lock.wait_ms`.

    Examples:
        >>> abandon(open_store("./store"), "snapshot:nightly-1")
        Traceback (most recent call last):
        claimlib.errors.RequestError: ... has no unfinished run snapshot:nightly-1 ...
    """
    with store.lock.held_for(f"abandon {name}", partial(progress or silent, Phase.LOCK)):
        return abandon_run(store, find_unfinished(store, name))


def find_unfinished(store: Store, name: str) -> RunRow:
    """Return an unfinished run that can be abandoned.

    Raises:
        RequestError: see `abandon`.
    """
    _, unfinished = pinned(store, INPUTS)
    row = next((run for run in unfinished if _is_run(run, name)), None)
    if row is None:
        raise RequestError(
            f"{store.where} has no unfinished run {name}: claimlib runs {shlex.quote(store.where)}"
            " lists the runs",
            run=name,
        )
    if not row.is_mirror:
        raise RequestError(
            f"run {row.key} can still be finished, so it is not abandoned: the next run on"
            f" {store.where} finishes it",
            run=row.key,
        )
    if row != unfinished[0]:
        raise RequestError(
            f"run {unfinished[0].key} is older than {row.key}, and unfinished, too: finish or"
            " abandon it first",
            run=unfinished[0].key,
        )
    return row
