"""How a run writes rows so that a repeat changes nothing.

New rows come by an append with the run's token, so that they come once even if a driver returns
late, after a later run removed them again; changes by a MERGE that leaves rows of this and later
runs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from claimlib.runs.journal import APP_ID, RunRow
from claimlib.runs.retry import retried
from claimlib.schema import TABLES
from claimlib.store.local import Token
from claimlib.store.tables import Store, arranged


def append_once(
    store: Store, table: str, rows: DataFrame, row: RunRow, *, are_few: bool = False
) -> None:
    """Append rows under the run's token and number: a repeat is skipped."""
    retried(lambda: _append(store, table, rows, row, are_few=are_few))


def upsert(
    store: Store,
    table: str,
    rows: DataFrame,
    row: RunRow,
    changes: Mapping[str, str],
    *,
    differs: str = "true",
    removed: Removed | None = None,
) -> None:
    """Bring rows into a small table with `run_seq`, by its key; what does not differ stays.

    A table of few rows is rewritten by one commit: by one query where it is read and written
    without any, else by seven, where an append and a MERGE, which copies its file as well, are
    thirteen.  Of a larger table the differences pass through the driver (one row per stream, group
    or consumer that changed), so that it is read once, however often they are used.

    Args:
        rows: one per key; columns that they lack are null in a new row.
        changes: what the columns get of rows that are there (`t` the table, `s` the rows).
        differs: which of them change.
        removed: what is removed besides; null: nothing is.
    """
    by_key = _ByKey(table, rows, row, changes, differs)

    def written(there: DataFrame) -> DataFrame:
        return by_key.written(there if removed is None else removed.left(there, table, row))

    if retried(lambda: rewritten(store, table, row, written)):
        return
    _brought_in(store, by_key)
    if removed is not None:
        retried(lambda: removed.delete(store, table, row))


def _brought_in(store: Store, by_key: _ByKey) -> None:
    """`upsert` of a table that is not small, or to which others have written since the decision."""
    table, row = by_key.table, by_key.row
    is_untouched = store.version(table) == row.pins.versions[table]
    there, had_few = _before(store, table, row, is_untouched=is_untouched)
    differences, fetched = store.fetched(_differences(there, by_key))
    is_due = had_few and fetched.num_rows > 0
    if is_due and retried(lambda: _rewritten(store, by_key)) and is_untouched:
        return
    # Somebody may have begun this by an append, which has used up the token.
    new = differences.where("NOT is_there").select(*by_key.rows.columns)
    append_once(store, table, new, row, are_few=store.is_small(table))
    if pc.any(fetched["is_there"]).as_py():
        retried(lambda: _merge(store, by_key, differences.where("is_there")))


@dataclass(frozen=True, slots=True)
class Removed:
    """Rows to be removed from a small table by its key.

    Attributes:
        rows: the key, and what the decision saw; a key may stand there twice.
        as_seen: whether a row is as the decision saw it (`t` the table, `s` the rows).
    """

    rows: DataFrame
    as_seen: str

    def _same(self, table: str, row: RunRow) -> str:
        return f"{same_key(table)} AND t.run_seq < {row.run_seq:d} AND {self.as_seen}"

    def left(self, there: DataFrame, table: str, row: RunRow) -> DataFrame:
        """The table's rows without these."""
        same = F.expr(self._same(table, row))
        return there.alias("t").join(self.rows.alias("s"), on=same, how="left_anti")

    def delete(self, store: Store, table: str, row: RunRow) -> None:
        """Remove them by a MERGE, which takes one row per key."""
        statement = (
            f"MERGE INTO {{table}} t USING {{rows}} s ON {self._same(table, row)}"
            " WHEN MATCHED THEN DELETE"
        )
        store.execute(table, statement, rows=self.rows.distinct())


@dataclass(frozen=True, slots=True)
class _ByKey:
    """Rows to be written by key: the arguments of `upsert`."""

    table: str
    rows: DataFrame
    row: RunRow
    changes: Mapping[str, str]
    differs: str

    @property
    def is_changed(self) -> str:
        """Whether a row that is there changes.  None does twice, whoever asks."""
        return f"t.run_seq < {self.row.run_seq:d} AND ({self.differs})"

    def beside(self, there: DataFrame, how: str) -> DataFrame:
        """The rows as `s` beside the table's as `t`."""
        same = F.expr(same_key(self.table))
        return self.rows.alias("s").join(there.alias("t"), on=same, how=how)

    def written(self, there: DataFrame) -> DataFrame:
        """The table's rows as they are to be: what is new, what is changed, and the rest."""
        first, *_ = TABLES[self.table].key
        is_new = f"t.{first} IS NULL"
        is_changed = f"s.{first} IS NOT NULL AND {self.is_changed}"
        run_seq = f"{self.row.run_seq:d}"
        new = {**{name: f"s.{name}" for name in self.rows.columns}, "run_seq": run_seq}
        changed = {**self.changes, "run_seq": run_seq}
        return self.beside(there, "full").selectExpr(
            *(
                f"CASE WHEN {is_new} THEN {new.get(column.name, 'NULL')}"
                f" WHEN {is_changed} THEN {changed.get(column.name, f't.{column.name}')}"
                f" ELSE t.{column.name} END AS {column.name}"
                for column in TABLES[self.table].written
            )
        )


def _before(store: Store, table: str, row: RunRow, *, is_untouched: bool) -> tuple[DataFrame, bool]:
    """A table's rows, and whether it had few when the run was decided: so whoever does this again
    does the same."""
    pinned = row.pins.versions[table]
    if is_untouched:
        few = store.few(store.read_at(table, pinned))
        return (store.read(table), False) if few is None else (few[0], True)
    then = store.readable_at(table, pinned)
    return store.read(table), then is not None and store.few(then) is not None


def _rewritten(store: Store, by_key: _ByKey) -> bool:
    """Write the whole table, under the run's token: a repeat is skipped.  Whether that was done:
    not where somebody has added a column, which would be emptied.

    The table is read as it is when Delta writes, or at the version after which alone it is written:
    who changes it in between has the commit refused.
    """
    if store.columns_of_others(by_key.table):
        return False
    there, version = to_rewrite(store, by_key.table)
    replace_once(store, by_key.table, by_key.written(there), by_key.row, after=version)
    return True


def to_rewrite(store: Store, table: str) -> tuple[DataFrame, int | None]:
    """The rows of a table that is written again, and their version: few rows as they are now; else
    as they are when Delta writes, with null for the version."""
    return store.few_now(table) or (store.read(table), None)


def replace_once(
    store: Store,
    table: str,
    rows: DataFrame,
    row: RunRow,
    *,
    after: int | None,
    buckets: Sequence[int] | None = None,
) -> None:
    """Write a table, or some of its buckets, again under the run's token: a repeat is skipped.
    `after` is the version of `to_rewrite`."""
    token = Token(APP_ID, row.run_seq)
    store.replace(table, rows, buckets, token=token, note=row.note, after=after)


def _merge(store: Store, by_key: _ByKey, others: DataFrame) -> None:
    changes = ", ".join(f"{name} = {value}" for name, value in by_key.changes.items())
    statement = f"""
        MERGE INTO {{table}} t USING {{others}} s
        ON {same_key(by_key.table)} AND t.run_seq < {by_key.row.run_seq:d}
        WHEN MATCHED THEN UPDATE SET {changes}, run_seq = {by_key.row.run_seq:d}"""
    store.execute(by_key.table, statement, others=others)


def same_key(table: str) -> str:
    """A MERGE's join on a table's key."""
    return " AND ".join(f"t.{name} = s.{name}" for name in TABLES[table].key)


def _differences(there: DataFrame, by_key: _ByKey) -> DataFrame:
    """The rows that are new or changed, with `is_there`: whether `there` has the key.

    Each once, also where the table holds a key twice: a MERGE takes one row per key, and a run that
    is decided must come to its end.
    """
    is_new = f"t.{TABLES[by_key.table].key[0]} IS NULL"
    both = by_key.beside(there, "left")
    differing = both.where(f"{is_new} OR ({by_key.is_changed})")
    return differing.select("s.*", F.expr(f"NOT ({is_new})").alias("is_there")).distinct()


def append_new(
    store: Store,
    table: str,
    rows: DataFrame,
    row: RunRow,
    *,
    near: Column | None = None,
    since_pin: bool = False,
    are_few: bool = False,
) -> None:
    """Append the rows whose key the table does not have.

    Where there is none to append, the commit still bears the run's token: a driver that returns
    late, after somebody removed a row again, must find that its append was made.

    Args:
        near: where the rows lie, as literals: no other file of the table is read; null: anywhere.
        since_pin: whether a row may have been there when the run was decided, so that its owner may
            have removed it since: then what the table held at the pinned version is not new either.
            Where that version cannot be read any more, such a row comes back.
        are_few: whether the rows are expected to be few.
    """

    def append() -> None:
        now, version = to_rewrite(store, table) if are_few else (store.read(table), None)
        there = [now]
        if since_pin and store.version(table) != row.pins.versions[table]:
            pinned = store.readable_at(table, row.pins.versions[table])
            there += [pinned] if pinned is not None else []
        # Delta sees by the join that the append rests on the table, and refuses it where somebody
        # appends the same rows meanwhile; what is made of rows in memory comes right after them.
        new = rows
        for known in there:
            new = _not_there(known if near is None else known.where(near), table, new)
        if version is None:
            new = arranged(TABLES[table], new, store.buckets)
        _append(store, table, new, row, are_few=version is not None, after=version)

    retried(append)


def rewritten(
    store: Store,
    table: str,
    row: RunRow,
    changed: Callable[[DataFrame], DataFrame],
    new: DataFrame | None = None,
) -> bool:
    """Write a table of few rows again, without a query that writes: new rows and changed ones by
    one commit, under the run's token, right after the version that the run was decided from.

    Whether that was done.  Where somebody has written since, rows are appended and merged: what is
    there is to be looked at one by one then.

    Args:
        changed: from the table's rows to what becomes of them.
        new: few rows, of which those are added whose key the table does not have; null: there are
            none.
    """
    few = store.few_now(table)
    if few is None or few[1] != row.pins.versions[table]:
        return False
    there, version = few
    columns = [column.name for column in TABLES[table].written]
    rows = changed(there).select(columns)
    if new is not None:
        rows = rows.union(_numbered(_not_there(there, table, new), row).select(columns))
    replace_once(store, table, rows, row, after=version)
    return True


def _not_there(there: DataFrame, table: str, rows: DataFrame) -> DataFrame:
    """The rows whose key a table (or a part of it) does not have."""
    key = list(TABLES[table].key)
    return rows.join(there.select(*key), on=key, how="left_anti")


def _numbered(rows: DataFrame, row: RunRow) -> DataFrame:
    return rows.withColumn("run_seq", F.lit(row.run_seq))


def _append(
    store: Store,
    table: str,
    rows: DataFrame,
    row: RunRow,
    *,
    are_few: bool,
    after: int | None = None,
) -> None:
    token = Token(APP_ID, row.run_seq)
    numbered = _numbered(rows, row)
    store.append(table, numbered, token=token, note=row.note, are_few=are_few, after=after)
