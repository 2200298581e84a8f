"""What is written to a store, gathered first, so that a test can spoil rows of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from claimlib.store.tables import Store
from tests.writing import append_rows

Rows = list[dict[str, Any]]


class Gathered:
    """Takes what `write_keyspace` writes; then each table is appended to once."""

    def __init__(self) -> None:
        self.tables: dict[str, Rows] = defaultdict(list)

    @property
    def writer(self) -> Gathered:
        """Return the writer, which takes the rows."""
        return self

    def version(self, table: str) -> int:
        """As of a new store, so that a test can gather a stream twice."""
        del table
        return 0

    def rows(
        self, table: str, values: Sequence[tuple[object, ...]], columns: Sequence[str]
    ) -> Rows:
        del table
        return [dict(zip(columns, value, strict=True)) for value in values]

    def append(self, table: str, rows: Rows) -> None:
        self.tables[table] += rows

    def write(self, store: Store) -> None:
        for table, rows in self.tables.items():
            columns = list(rows[0])
            values = [tuple(row[column] for column in columns) for row in rows]
            append_rows(store, table, store.rows(table, values, columns))
