"""How a run writes rows so that a repeat changes nothing.

New rows come by an append with the run's token, so that they come once even if a driver returns
late, after a later run removed them again; changes by a MERGE that leaves rows of this and later
runs alone.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from claimlib.runs.journal import APP_ID, RunRow
from claimlib.runs.retry import retried
from claimlib.schema import TABLES
from claimlib.store import Store, Token, arranged


def append_once(store: Store, table: str, rows: DataFrame, row: RunRow) -> None:
    """Append rows under the run's token: a repeat is skipped by Delta."""
    token = Token(APP_ID, row.run_seq)
    retried(lambda: store.append(table, rows, token=token, note=row.note))


def upsert(
    store: Store,
    table: str,
    rows: DataFrame,
    row: RunRow,
    changes: str,
    *,
    differs: str = "true",
    gone: str = "false",
) -> None:
    """Bring rows into a small table with `run_seq`, by its key; what does not differ stays.

    The differences pass through the driver (one row per stream, group or consumer that changed), so
    that each table is read once, however often the differences are used.

    Args:
        changes: the SET list for rows that are there (`t` the table, `s` the rows).
        differs: which of them change.
        gone: which rows of the table are deleted when `rows` has none for them.
    """
    found = store.held(_differences(store, table, rows, row, differs, gone))
    new = found.where("difference = 'new'").select(*rows.columns)
    append_once(store, table, new.withColumn("run_seq", F.lit(row.run_seq)), row)
    others = found.where("difference <> 'new'")
    if others.isEmpty():
        return
    statement = f"""
        MERGE INTO {store.identifier(table)} t USING {{others}} s
        ON {_same_key(table)} AND t.run_seq < {row.run_seq:d}
        WHEN MATCHED AND s.difference = 'gone' THEN DELETE
        WHEN MATCHED THEN UPDATE SET {changes}, run_seq = {row.run_seq:d}"""
    retried(lambda: store.execute(table, statement, others=others))


def _same_key(table: str) -> str:
    return " AND ".join(f"t.{name} = s.{name}" for name in TABLES[table].key)


def _differences(
    store: Store, table: str, rows: DataFrame, row: RunRow, differs: str, gone: str
) -> DataFrame:
    """`rows` that are new or changed, and the keys of those that are gone, with `difference`.

    Each once, also where the table holds a key twice: a MERGE takes one row per key, and a run that
    is decided must come to its end.
    """
    key = TABLES[table].key
    there = store.read(table).withColumn("is_gone", F.expr(gone))
    older = f"t.run_seq < {row.run_seq:d}"
    difference = F.expr(f"""
        CASE WHEN t.{key[0]} IS NULL THEN 'new'
             WHEN s.{key[0]} IS NULL THEN CASE WHEN {older} AND t.is_gone THEN 'gone' END
             WHEN {older} AND ({differs}) THEN 'changed' END""")
    names = [F.coalesce(f"s.{name}", f"t.{name}").alias(name) for name in key]
    others = [f"s.{name}" for name in rows.columns if name not in key]
    both = rows.alias("s").join(there.alias("t"), on=F.expr(_same_key(table)), how="full")
    found = both.select(*names, *others, difference.alias("difference"))
    return found.where("difference IS NOT NULL").distinct()


def append_new(
    store: Store, table: str, rows: DataFrame, row: RunRow, near: Column | None = None
) -> bool:
    """Append the rows whose key the table does not have; whether it was empty before.

    Where there is none to append, the commit still bears the run's token: a driver that returns
    late, after somebody removed a row again, must find that its append was made.

    Args:
        near: where the rows lie, as literals: no other file of the table is read; null: anywhere,
            and nobody else appends to the table.
    """
    key = list(TABLES[table].key)
    found = store.read(table)
    there = (found if near is None else found.where(near)).select(*key)
    was_empty = near is None and there.isEmpty()
    # Delta sees by the join that the append rests on the table, and refuses it where somebody
    # appends the same rows meanwhile.
    new = rows if was_empty else rows.join(there, on=key, how="left_anti")
    numbered = new.withColumn("run_seq", F.lit(row.run_seq))
    append_once(store, table, arranged(TABLES[table], numbered), row)
    return was_empty
