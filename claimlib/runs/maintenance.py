"""Maintain the tables of a store, and find the part of the journal that was deleted.

Compaction, checkpoints and the deletion of old files change no row, so these steps can be repeated.
A run deletes only the rows that its decision names: the journal rows up to a run, and the staged
rows of some readings.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from claimlib.errors import RequestError, VerificationError
from claimlib.plans.maintenance_plan import is_deleted
from claimlib.runs.journal import Decided, RunRow, run_rows
from claimlib.schema import TABLES, Kind
from claimlib.store.local import Condition
from claimlib.store.lookups import find, newest_run
from claimlib.store.retry import retried
from claimlib.store.tables import Store
from claimlib.store.writer import to_compact

COMMAND = "maintain"
THROUGH = "deleted_through"
"""Name the count with the number of the last run whose journal rows are deleted."""
SIZES = ("files_before", "bytes_before", "files_after", "bytes_after")
ROWS_DELETED, COMPACTED = "rows_deleted", "files_compacted"
FILES_REMOVED, BYTES_REMOVED = "files_removed", "bytes_removed"
STAGED = ("pel_snapshots", "entry_landing")
_READINGS_PER_COMMIT = 500
# Not `RunRow.note`, because a commit with this note does not show that the run's rows are written.
_NOTE = "claimlib maintenance"


def count_of(table: str, name: str) -> str:
    """Return the name of a run's count that is about one table, such as `pending.files_before`."""
    return f"{table}.{name}"


def sizes(store: Store, *names: str) -> dict[str, int]:
    """Return the numbers of files and of bytes of each table, by `count_of`.  Zeros are omitted.

    Args:
        names: two names, for the number of files and for the number of bytes.
    """
    counts: dict[str, int] = {}
    for table in TABLES:
        files = store.writer.files(table)
        numbers = (len(files), sum(file.size_bytes for file in files))
        named = zip(names, numbers, strict=True)
        counts |= {count_of(table, name): number for name, number in named if number}
    return counts


def tidy(
    store: Store, run_seq: int, *, vacuum: bool, tell: Callable[[str], None]
) -> dict[str, int]:
    """Compact the tables, and delete old files.

    This is done before the decision, because it changes no row.  So if it fails, there is no
    unfinished run that the next command must finish.

    Args:
        vacuum: True if old files are deleted.
        tell: called with a text for the user as each step begins.

    Returns: the counts of files and bytes.
    """
    note = f"{_NOTE} {run_seq}"
    counts: dict[str, int] = {}
    for table in TABLES:
        tell(f"compacting {table}")
        done = {COMPACTED: _compact(store, table, note)}
        store.writer.clean_log(table)
        if vacuum:
            tell(f"deleting old files of {table}")
            removed = retried(partial(store.writer.vacuum, table))
            done |= {FILES_REMOVED: removed.files, BYTES_REMOVED: removed.size_bytes or 0}
        counts |= {count_of(table, name): number for name, number in done.items() if number}
    return counts | sizes(store, *SIZES[2:])


def apply(store: Store, row: RunRow, decided: Decided, tell: Callable[[str], None]) -> None:
    """Delete the rows that the decision names.  A repeat deletes no other rows.

    Args:
        tell: called with a text for the user as each step begins.
    """
    note = f"{_NOTE} {row.run_seq}"
    through = row.counts.get(THROUGH, 0)
    if _has_rows_to_delete(store, through):
        tell("deleting rows of journal")
        old = (
            Condition("run_seq", through, is_above=True, is_negated=True),
            Condition("kind", str(Kind.RUN), is_negated=True),
        )
        retried(partial(store.writer.delete, "journal", *old, note=note))
    expired = {
        reading["landing"] for reading in decided.rows(Kind.EXPIRED).select("landing").collect()
    }
    for table in STAGED if expired else ():
        staged = store.relation(table).distinct("landing").collect()
        landings = sorted(expired.intersection(reading["landing"] for reading in staged))
        if landings:
            tell(f"deleting rows of {table}")
        for first in range(0, len(landings), _READINGS_PER_COMMIT):
            part = tuple(landings[first : first + _READINGS_PER_COMMIT])
            condition = Condition("landing", part)
            retried(partial(store.writer.delete, table, condition, note=note))


def _has_rows_to_delete(store: Store, through: int) -> bool:
    return through > 0 and not store.relation("journal").where(is_deleted(through)).is_empty()


def _compact(store: Store, table: str, note: str) -> int:
    """Compact a table, and return the number of files that were replaced.

    Raises:
        VerificationError: the compaction changed the number of rows.
    """
    if not to_compact(table, store.writer.files(table)):
        return 0
    # The rows are counted before the compaction.  Afterwards Spark may refuse to read this version,
    # because it is neither the newest nor within the retention.
    before = store.version(table)
    rows = store.relation(table, before).count()
    replaced: int = retried(partial(store.writer.compact, table, note))
    # If another writer has committed in between, it may have changed the number of rows.
    if replaced and store.version(table) == before + 1:
        rows_after = store.relation(table, before + 1).count()
        if rows_after != rows:
            raise VerificationError(
                f"the compaction of the table {table} changed its number of rows from"
                f" {rows:,} to {rows_after:,}. Run RESTORE TABLE {store.identifier(table)} TO"
                f" VERSION AS OF {before}, and report this fault",
                table=table,
            )
    return replaced


def verify(store: Store, row: RunRow) -> None:
    """Raise VerificationError if journal rows exist that the run should have deleted."""
    if _has_rows_to_delete(store, row.counts.get(THROUGH, 0)):
        raise VerificationError(
            f"run {row.run_seq} ({row.key}) did not delete all rows of the table journal that it"
            " decided to delete. The run stays unfinished: repeat the command with this run id. If"
            " this happens again, report it",
            run=row.key,
        )


# ------------------------------------------------------------------- the deleted part


@dataclass(frozen=True, slots=True)
class DeletedHistory:
    """Describe the part of the journal that was deleted.

    Attributes:
        through: the last run whose journal rows were deleted.
        run: the number and the key of the run of `maintain` that deleted them.
    """

    through: int
    run: str


def first_complete_run(deleted: DeletedHistory | None) -> int:
    """Return the number of the first run whose journal rows all exist.

    Args:
        deleted: the result of `deleted_history`.
    """
    return 1 if deleted is None else deleted.through + 1


def deleted_history(store: Store) -> DeletedHistory | None:
    """Return the part of the journal that was deleted, or None if all rows exist."""
    names = ("run_seq", "run_id", "counts")
    rows = find(store, "runs", Condition("command", COMMAND), columns=(*names, "command"))
    deleted = [_deleted_by(row["run_seq"], row["run_id"], row["counts"]) for row in rows]
    newest, _ = newest_run(store)
    # An unfinished run of `maintain` may already have deleted rows.
    decided = run_rows(store, 0 if newest is None else newest.run_seq)
    deleted += [
        _deleted_by(row.run_seq, row.run_id, row.counts)
        for row in decided
        if row.command == COMMAND
    ]
    not_empty = [part for part in deleted if part.through]
    return max(not_empty, key=lambda part: part.through, default=None)


def _deleted_by(run_seq: int, run_id: str, counts: Mapping[str, int]) -> DeletedHistory:
    return DeletedHistory(counts.get(THROUGH, 0), f"{run_seq} ({COMMAND}:{run_id})")


def deleted_part_with_run(store: Store, run_seq: int) -> DeletedHistory | None:
    """Return the deleted part of the journal if it contains the rows of a run, or else None."""
    deleted = deleted_history(store)
    return deleted if deleted is not None and run_seq <= deleted.through else None


def check_not_deleted(store: Store, run_seq: int, key: str, what: str) -> None:
    """Raise RequestError if the journal rows of a run were deleted.

    Args:
        what: the action that is not possible, as in `be undone`.
    """
    deleted = deleted_part_with_run(store, run_seq)
    if deleted is not None:
        raise RequestError(
            f"run {key} cannot {what}: run {deleted.run} deleted its journal rows, because they"
            " were older than --keep-history. The journal is complete from run"
            f" {first_complete_run(deleted)} on. To see the request and the counts of run"
            f" {run_seq}: claimlib runs {shlex.quote(store.where)} {run_seq}",
            run=key,
        )
