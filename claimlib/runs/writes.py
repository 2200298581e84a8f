"""How a run writes rows so that a repeat changes nothing.

New rows come by an append with the run's token, so that they come once even if a driver returns
late, after a later run removed them again; changes by a MERGE that leaves rows of this and later
runs alone.  Or both come by one commit with the token, which writes the table's rows again.
"""

from __future__ import annotations

from claimlib.engine.changes import Changes
from claimlib.engine.relation import Relation
from claimlib.engine.spark import frame_of
from claimlib.runs.journal import RunRow
from claimlib.runs.retry import retried
from claimlib.schema import TABLES
from claimlib.store.tables import FEW_ROWS, Store, arranged, in_buckets


def append_once(store: Store, table: str, rows: Relation, row: RunRow) -> None:
    """Append rows under the run's token and number: a repeat is skipped."""
    names = [name for name in rows.columns if name != "run_seq"]
    numbered = rows.select(*names, f"{row.run_seq:d}L AS run_seq")
    retried(lambda: store.append(table, numbered, token=row.token, note=row.note))


def apply(store: Store, changes: Changes, row: RunRow) -> int | None:
    """Write the changes of a run into a table.  A repeat changes nothing.

    Few rows, and all rows of the embedded engine, are written by one commit.  Spark else appends
    new rows and brings the others in by a MERGE, or writes rows again of which much changes.

    Returns: how many rows a MERGE has changed or deleted; None if there was none.
    """
    if changes.rows is None and changes.new is None:
        return 0
    if store.is_embedded:
        retried(lambda: _by_files(store, changes, row))
        return None
    if changes.rows is not None and retried(lambda: _at_once(store, changes, row)):
        return None
    if TABLES[changes.table].partitioned_by is None:
        return _bring_in(store, changes, row)
    if changes.new is not None:
        retried(lambda: _append_new(store, changes, row))
    if changes.rows is None:
        return 0
    return retried(lambda: _change(store, changes, row))


def _by_files(store: Store, changes: Changes, row: RunRow) -> None:
    """Write new and changed rows by one commit of the embedded engine, right after the version that
    they are made from.

    Spark may have begun this by an append, which has used up the token.  Then the other rows are
    written without it.
    """
    table = changes.table
    version, is_used = store.version_and_use(table, row.token)
    there = store.relation(table, version)
    if is_used:
        changes = changes.due(there)
        if changes.rows is None or changes.rows.is_empty():
            return
    token = None if is_used else row.token
    changes = _since_pin(store, changes, row)
    if changes.rows is None:
        added = changes.added(there)
        if added is not None:
            store.append(table, added, token=token, note=row.note, after=version)
        return
    rows = changes.after(there)
    store.replace(table, rows, changes.buckets, token=token, note=row.note, after=version)


def _at_once(store: Store, changes: Changes, row: RunRow) -> bool:
    """Write new and changed rows by one commit under the run's token, without a query of Spark's.

    Returns: whether that was done.  Spark writes many rows.  It also writes few rows if somebody
    else has written since the decision, because what is there is to be looked at one by one then.
    """
    few = store.few_now(changes.table)
    if few is None or few[1] != row.pins.versions[changes.table]:
        return False
    there, version = few
    in_memory = changes.in_memory(FEW_ROWS)
    if in_memory is None:
        return False
    _replace_once(store, in_memory, there, row, after=version)
    return True


def _replace_once(
    store: Store, changes: Changes, there: Relation, row: RunRow, *, after: int | None
) -> None:
    """Write a table, or some of its buckets, again under the run's token: a repeat is skipped.

    Args:
        there: the rows of the table.
        after: the version of `there` if its rows are in memory; None if Delta reads the rows as it
            writes.
    """
    rows = changes.after(there)
    if after is None:
        rows = store.relation_of(arranged(TABLES[changes.table], frame_of(rows), store.buckets))
    store.replace(changes.table, rows, changes.buckets, token=row.token, note=row.note, after=after)


def _append_new(store: Store, changes: Changes, row: RunRow) -> None:
    """Append the rows whose key the table does not have.

    If there is none to append, the commit still bears the run's token: a driver that returns late,
    after somebody removed a row again, must find that its append was made.
    """
    # Delta sees by the join that the append rests on the table, and refuses it where somebody
    # appends the same rows meanwhile; what is made of rows in memory comes right after them.
    there, version = store.to_rewrite(changes.table)
    new = _since_pin(store, changes, row).added(there)
    if new is None:
        return
    if version is None:
        new = store.relation_of(arranged(TABLES[changes.table], frame_of(new), store.buckets))
    store.append(changes.table, new, token=row.token, note=row.note, after=version)


def _since_pin(store: Store, changes: Changes, row: RunRow) -> Changes:
    """The changes without the rows that were there when the run was decided.  Where that version
    cannot be read any more, such a row comes back if its owner has removed it."""
    pinned = row.pins.versions[changes.table]
    if not changes.since_pin or store.version(changes.table) == pinned:
        return changes
    there = store.readable_at(changes.table, pinned)
    return changes if there is None else changes.not_in(there)


# From so many rows on, and where one in so many of the buckets' rows changes, writing the buckets
# again is quicker than a MERGE, which finds the rows, copies them and marks the old ones: of 10
# million rows half took 24 to 32 s, not 53 to 65 s.  So it is where the whole table is small: one
# join and one commit are four queries, a MERGE is fifteen.
_MANY_ROWS = 100_000
_ROWS_PER_CHANGE = 4


def _change(store: Store, changes: Changes, row: RunRow) -> int | None:
    """One try of it: somebody may have added a column to the table since the last one."""
    if _is_rewritten(store, changes):
        there, version = store.to_rewrite(changes.table)
        _replace_once(store, changes, there, row, after=version)
        return None
    return _merge(store, changes)


def _is_rewritten(store: Store, changes: Changes) -> bool:
    """Whether buckets are written again: they are small, or much of them changes.

    Not where rows have been appended under the run's token: what bears it a second time is skipped.
    """
    if changes.new is not None or changes.rows is None or changes.buckets is None:
        return False
    is_small = store.is_small(changes.table)
    if not is_small and changes.number_of_rows < _MANY_ROWS:
        return False
    if store.columns_of_others(changes.table):  # they would be emptied
        return False
    if is_small:
        return True
    there = store.read(changes.table).where(in_buckets(changes.buckets))
    return there.count() <= _ROWS_PER_CHANGE * changes.number_of_rows


def _merge(store: Store, changes: Changes) -> int:
    if changes.rows is None:
        return 0
    said = store.execute(changes.table, changes.merge_statement(), rows=frame_of(changes.rows))
    return int(said["num_affected_rows"])


def _bring_in(store: Store, changes: Changes, row: RunRow) -> int | None:
    """Bring rows into a table without buckets that is not small, or to which others have written
    since the decision.

    The differences pass through the driver (one row per stream, group or consumer that changed), so
    that the table is read once, however often they are used.  A table that had few rows when the
    run was decided is written again by one commit, of seven queries, where an append and a MERGE,
    which copies its file as well, are thirteen.
    """
    table = changes.table
    is_untouched = store.version(table) == row.pins.versions[table]
    there, had_few = _before(store, table, row, is_untouched=is_untouched)
    due, added = changes.due(there), changes.added(there)
    new = None if added is None else added.fetched()
    has_due = due.rows is not None and not due.rows.is_empty()
    is_due = has_due or (new is not None and not new.is_empty())
    if had_few and is_due and retried(lambda: _rewritten(store, changes, row)) and is_untouched:
        return None
    # Somebody may have begun this by an append, which has used up the token.
    if new is not None:
        append_once(store, table, new, row)
    return retried(lambda: _merge(store, due)) if has_due else 0


def _before(store: Store, table: str, row: RunRow, *, is_untouched: bool) -> tuple[Relation, bool]:
    """A table's rows, and whether it had few when the run was decided: so whoever does this again
    does the same."""
    pinned = row.pins.versions[table]
    now = store.relation(table)
    if is_untouched:
        few = store.relation(table, pinned).reused()
        return (few, True) if few.is_in_memory else (now, False)
    then = store.readable_at(table, pinned)
    return now, then is not None and then.reused().is_in_memory


def _rewritten(store: Store, changes: Changes, row: RunRow) -> bool:
    """Write a whole table, under the run's token: a repeat is skipped.  Whether that was done: not
    where somebody has added a column, which would be emptied.

    The table is read as it is when Delta writes, or at the version after which alone it is written:
    who changes it in between has the commit refused.
    """
    if store.columns_of_others(changes.table):
        return False
    there, version = store.to_rewrite(changes.table)
    _replace_once(store, changes, there, row, after=version)
    return True
