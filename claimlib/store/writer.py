"""Define the writer of a store.  A store has one writer for all its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from claimlib.engine.changes import Changes
from claimlib.engine.relation import Relation
from claimlib.schema import TABLES, Column, Table
from claimlib.store.local import Condition, Token


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
            rows: columns that they lack are null.
            note: the user metadata of the commit.
        """
        ...

    def delete(self, table: str, *conditions: Condition) -> None:
        """Delete the rows of a table that meet all conditions, in one commit."""
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


def in_buckets(buckets: Sequence[int]) -> str:
    """Return the condition for rows of the given buckets."""
    return f"bucket IN ({', '.join(f'{bucket:d}' for bucket in buckets)})"


def completed_rows(table: Table, rows: Relation, buckets: int) -> Relation:
    """Return rows with all columns of a table, in the order of the table's key.

    Columns that Delta generates are computed.  Columns that the rows lack are null.
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
    made = (column.generated_as or "").format(buckets=buckets)
    return f"{f'coalesce({column.name}, {made})' if has_it else made} AS {column.name}"


def without_pinned(changes: Changes, pinned: Relation | None) -> Changes:
    """Return the changes without the new rows that the table had when the run was decided.

    Args:
        pinned: the rows of the table then.  None if they can no longer be read.  Then a row that
            another writer has removed since is added again.
    """
    return changes if pinned is None else changes.not_in(pinned)


def names_of(table: str) -> tuple[str, ...]:
    """Return the columns of a table, without those that the user has added."""
    return tuple(column.name for column in TABLES[table].columns)
