"""Write the rows of a run so that a repeat changes nothing."""

from __future__ import annotations

from claimlib.engine.changes import Changes
from claimlib.engine.relation import Relation
from claimlib.runs.journal import RunRow
from claimlib.store.retry import retried
from claimlib.store.tables import Store
from claimlib.store.writer import RunCommit


def append_once(store: Store, table: str, rows: Relation, row: RunRow) -> None:
    """Append rows with the number and the token of a run, so Delta skips a repeat."""
    names = [name for name in rows.columns if name != "run_seq"]
    numbered = rows.select(*names, f"{row.run_seq:d}L AS run_seq")
    retried(lambda: store.writer.append(table, numbered, token=row.token, note=row.note))


def apply(store: Store, changes: Changes, row: RunRow) -> int | None:
    """Write the changes of a run into a table.  A repeat changes nothing.

    Returns: the number of rows that a MERGE has changed or deleted, or None if there was no MERGE.
    """
    commit = RunCommit(row.token, row.note, row.pins.versions.get(changes.table))
    return retried(lambda: store.writer.apply(changes, commit))
