"""Find the runs of a store, and the rows of `runs` and `journal` that another writer removed.

No run writes a removed row again, because Delta keeps the transaction version of a run and skips a
second append with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from claimlib.errors import MissingRowsError
from claimlib.plans.maintenance_plan import is_deleted
from claimlib.runs.journal import RunRow, run_in_note, run_rows
from claimlib.runs.maintenance import THROUGH, deleted_history
from claimlib.store.lookups import newest_run, numbers
from claimlib.store.replaced_tables import Seen
from claimlib.store.tables import Store


@dataclass(frozen=True, slots=True)
class KnownRuns:
    """Hold the runs of a store at one moment.

    Attributes:
        newest: the newest finished run, or None if no run is finished.
        unfinished: the runs that are decided and not finished.
        last_seq: the number of the last decided run, or 0 if no run was decided.
        is_complete: True if `runs` has the row of each finished run.
    """

    newest: Seen | None
    unfinished: list[RunRow]
    last_seq: int
    is_complete: bool

    @property
    def seen(self) -> list[Seen]:
        """Return the versions that the newest finished run and the unfinished runs have seen."""
        newest = [] if self.newest is None else [self.newest]
        return [*newest, *(row.seen for row in self.unfinished)]


def load_known_runs(store: Store) -> KnownRuns:
    """Return the runs of a store as they are now.

    A decision without a row in `runs` is unfinished, unless the history of `runs` shows that the
    row was written and later removed.  The history is read only if there is such a decision.
    """
    newest, has_gap = newest_run(store)
    newest_seq = 0 if newest is None else newest.run_seq
    decided = unfinished = run_rows(store, newest_seq)
    if decided:
        written = {run_in_note(note) for note in store.logs.notes("runs")}
        # `runs` is read after its history, so a row that is written in between does not count as
        # removed.
        removed = written - _recorded(store)
        unfinished = [row for row in decided if row.run_seq not in removed]
    last_seq = decided[-1].run_seq if decided else newest_seq
    return KnownRuns(newest, unfinished, last_seq, not has_gap and unfinished == decided)


# The end of a SELECT from an earlier version of a table: it keeps the rows that the table ({0})
# lacks now.
_ONLY_LACKING = {
    # {kept} is a WHERE clause that excludes the rows that `maintain` deleted.
    "journal": "{kept} EXCEPT ALL SELECT * FROM {0}",
    # Not EXCEPT, because Spark has no set operations on the maps of `runs`.
    "runs": " WHERE run_seq NOT IN (SELECT run_seq FROM {0})",
}


@dataclass(frozen=True, slots=True)
class MissingRows:
    """Describe the rows of runs that a table had earlier and lacks now.

    Attributes:
        table: `journal` or `runs`.
        runs: the numbers of these runs, ascending.
        example: the number of the first of these runs, with its key if that is known.
        remedy: the SQL statement that puts the rows back.  None if the table's history shows no
            version that has the rows.
    """

    table: str
    runs: list[int]
    example: str
    remedy: str | None


def find_missing_rows(store: Store) -> list[MissingRows]:
    """Return the rows that runs wrote to `journal` and `runs`, and that these tables lack now.

    If neither these tables nor their histories name a run, its missing rows are not found.
    """
    # The histories are read first, so rows that are written in between do not count as missing.
    decided_at, recorded_at = (_versions_by_run(store, table) for table in ("journal", "runs"))
    decided = run_rows(store, 0)
    names = {row.run_seq: f"{row.run_seq} ({row.key})" for row in decided}
    recorded = _recorded(store)
    last = max([*recorded, *recorded_at], default=0)
    through = _deleted_through(store, decided)
    kept = f" WHERE NOT ({is_deleted(through)})" if through else ""
    finished = {run_seq for run_seq in {*names, *recorded_at} if run_seq <= last}
    missing = []
    for table, runs, versions in (
        ("journal", {*decided_at} - {*names}, decided_at),
        ("runs", finished - recorded, recorded_at),
    ):
        if not runs:
            continue
        version = max((versions[run_seq] for run_seq in runs & {*versions}), default=None)
        # BY NAME, because versions before an upgrade of the store have fewer columns.
        insert = (
            f"INSERT INTO {{0}} BY NAME SELECT * FROM {{0}} VERSION AS OF {version}"
            f"{_ONLY_LACKING[table]}"
        )
        remedy = None if version is None else insert.format(store.identifier(table), kept=kept)
        example = names.get(min(runs), f"{min(runs)}")
        missing.append(MissingRows(table, sorted(runs), example, remedy))
    return missing


def _deleted_through(store: Store, decided: Sequence[RunRow]) -> int:
    """Return the last run whose journal rows `maintain` has deleted, or 0.

    `runs` and `journal` are both read, because either may lack the row of the run of `maintain`.
    """
    deleted = deleted_history(store)
    recorded = 0 if deleted is None else deleted.through
    return max(recorded, *(row.counts.get(THROUGH, 0) for row in decided), 0)


def _recorded(store: Store) -> set[int]:
    """Return the numbers of the runs that have a row in `runs`."""
    return {*numbers(store, "runs", "run_seq").to_pylist()}


def _versions_by_run(store: Store, table: str) -> dict[int, int]:
    """Return the newest version of a table that each run wrote, by the number of the run.

    Runs from before the table's oldest known version are missing.
    """
    commits = reversed(store.logs.history(table))
    versions = {run_in_note(commit["userMetadata"]): commit["version"] for commit in commits}
    return {run_seq: version for run_seq, version in versions.items() if run_seq is not None}


def check_no_missing_rows(store: Store) -> None:
    """Raise MissingRowsError if `journal` or `runs` lacks rows that a run wrote there."""
    for missing in find_missing_rows(store):
        raise _error_of(store, missing)


def missing_rows_error(store: Store, table: str, run_seq: int, name: str) -> MissingRowsError:
    """Build the error of a run whose rows were removed from a table.

    Args:
        name: the number of the run, with its key if that is known.
    """
    in_table = (missing for missing in find_missing_rows(store) if missing.table == table)
    return _error_of(store, next(in_table, MissingRows(table, [run_seq], name, None)))


def _error_of(store: Store, missing: MissingRows) -> MissingRowsError:
    others = f" and of {len(missing.runs) - 1:,} more" if len(missing.runs) > 1 else ""
    remedy = (
        "The history of the table shows no version that has them: restore the table from a backup"
        if missing.remedy is None
        else f"To put them back, run: {missing.remedy}"
    )
    return MissingRowsError(
        f"the table {missing.table} of {store.where} lacks the rows of run {missing.example}"
        f"{others}: they were deleted, or the table was restored to an earlier version. No command"
        f" can write to the store until they are back. {remedy}",
        table=missing.table,
        run=missing.example,
    )
