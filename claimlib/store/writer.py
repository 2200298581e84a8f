"""Define the writer of a store.  A store has one writer for all its tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from claimlib.engine import limits
from claimlib.engine.changes import Changes
from claimlib.engine.relation import Relation
from claimlib.schema import TABLES, Column, Table
from claimlib.store.local import Condition, StoredFile, Token


@dataclass(frozen=True, slots=True)
class RunCommit:
    """Hold the marks of the commits of one run.

    Attributes:
        token: the transaction token of commits that add rows, so that a repeat is skipped.
        note: the user metadata of these commits.  None means none.
        pinned: the version of the table that the run was decided from.  None if decisions do not
            depend on the table.
    """

    token: Token
    note: str | None
    pinned: int | None


class Writer(Protocol):
    """Write the tables of a store.

    Every method raises CommitConflictError if another writer has committed meanwhile.  Then nothing
    was changed.
    """

    def append(
        self, table: str, rows: Relation, *, token: Token | None = None, note: str | None = None
    ) -> None:
        """Append rows in one commit.

        With a token, rows are appended once: a repeat is skipped without an error.

        Args:
            rows: the rows.  Columns that they lack become null.
            note: the user metadata of the commit.
        """
        ...

    def delete(self, table: str, *conditions: Condition, note: str | None = None) -> None:
        """Delete the rows of a table that meet all conditions, in one commit.

        Args:
            note: the user metadata of the commit, if the writer can set it.
        """
        ...

    def update(self, table: str, values: Mapping[str, str], condition: str) -> None:
        """Set columns of rows of a small table, in one commit.

        Args:
            values: SQL expressions by column.
            condition: the SQL condition for the rows that are changed.
        """
        ...

    def apply(self, changes: Changes, commit: RunCommit) -> int | None:
        """Write the changes of a run into a table.  A repeat changes nothing.

        Returns: the number of rows that a MERGE has changed or deleted, or None if there was no
            MERGE.
        """
        ...

    def files(self, table: str) -> list[StoredFile]:
        """Return the data files of the newest version of a table."""
        ...

    def compact(self, table: str, note: str) -> int:
        """Replace small files of a table by fewer, larger files.  No row changes.

        Args:
            note: the user metadata of the commit, if the writer can set it.  It must not be the
                note of a run's own rows (`RunRow.note`).

        Returns: the number of files that were replaced.
        """
        ...

    def clean_log(self, table: str) -> None:
        """Write a checkpoint of a table's log, and delete log files beyond their retention.

        A writer omits the steps that Delta does by itself.
        """
        ...

    def removable(self, table: str) -> Removed:
        """Count the files that `vacuum` would delete now."""
        ...

    def vacuum(self, table: str) -> Removed:
        """Delete the files that no version within the retention of a table uses."""
        ...


@dataclass(frozen=True, slots=True)
class Removed:
    """Count deleted files.

    Attributes:
        files: the number of files.
        size_bytes: the size of all files, or None if it is unknown.
    """

    files: int
    size_bytes: int | None


def target_bytes(table: str, files: Sequence[StoredFile]) -> int:
    """Return the approximate size of the files that a compaction writes.

    In a partitioned table with a key, the files have at most about `limits.file_rows` rows, because
    a page reads whole files.
    """
    most: int = limits.LIMITS.compacted_bytes
    is_sorted = TABLES[table].partitioned_by is not None and TABLES[table].key
    if not is_sorted or not files:
        return most
    rows = sum(file.rows or 0 for file in files)
    size = sum(file.size_bytes for file in files)
    bytes_of_rows = size * limits.LIMITS.file_rows // rows if rows else most
    return max(_LEAST_BYTES, min(most, bytes_of_rows))


_LEAST_BYTES = 2**20


def to_compact(table: str, files: Sequence[StoredFile]) -> int:
    """Return the approximate number of files that a compaction replaces.

    A compaction replaces the small files of a partition that has more than one of them.
    """
    target = target_bytes(table, files)
    small = Counter(file.partition for file in files if file.size_bytes < target)
    return sum(number for number in small.values() if number > 1)


def in_buckets(buckets: Sequence[int]) -> str:
    """Return the condition for rows of the given buckets."""
    return f"bucket IN ({', '.join(f'{bucket:d}' for bucket in buckets)})"


def completed_rows(table: Table, rows: Relation, buckets: int) -> Relation:
    """Return rows with all columns of a table.

    Columns that Delta generates are computed.  Other columns that the rows lack are null.  Rows of
    a partitioned table are sorted by partition and key.
    """
    known = set(rows.columns)
    completed = rows.select(
        *(
            f"CAST({column.name if column.name in known else 'NULL'} AS {column.type})"
            f" AS {column.name}"
            for column in table.written
        ),
        *(
            _generated(column, buckets, has_it=column.name in known)
            for column in table.columns
            if column.generated_as is not None
        ),
    )
    partition = () if table.partitioned_by is None else (table.partitioned_by,)
    order = (*partition, *table.key_order())
    return completed.order_by(*order) if partition else completed


def _generated(column: Column, buckets: int, *, has_it: bool) -> str:
    expression = (column.generated_as or "").format(buckets=buckets)
    if has_it:
        expression = f"coalesce({column.name}, {expression})"
    return f"{expression} AS {column.name}"


def without_pinned(changes: Changes, pinned: Relation | None) -> Changes:
    """Return the changes without new rows whose key the table had when the run was decided.

    If another writer has removed such a row since, it is not added again.

    Args:
        pinned: the rows of the table when the run was decided.  None if they can no longer be read.
            In this case, all new rows are kept, so such a row is added again.
    """
    return changes if pinned is None else changes.not_in(pinned)


def names_of(table: str) -> tuple[str, ...]:
    """Return the columns of a table, without those that the user has added."""
    return tuple(column.name for column in TABLES[table].columns)
