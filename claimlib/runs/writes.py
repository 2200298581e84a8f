"""How a run writes rows so that a repeat changes nothing.

New rows come by an append with the run's token, so that they come once even if a driver returns
late, after a later run removed them again; changes by a MERGE that leaves rows of this and later
runs alone.
"""

from __future__ import annotations

import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from claimlib.runs.journal import APP_ID, RunRow
from claimlib.runs.retry import retried
from claimlib.schema import TABLES
from claimlib.store import Store, Token, arranged


def append_once(store: Store, table: str, rows: DataFrame, row: RunRow) -> None:
    """Append rows under the run's token and number: a repeat is skipped by Delta."""
    retried(lambda: _append(store, table, rows, row))


def upsert(
    store: Store,
    table: str,
    rows: DataFrame,
    row: RunRow,
    changes: str,
    *,
    differs: str = "true",
) -> None:
    """Bring rows into a small table with `run_seq`, by its key; what does not differ stays.

    The differences pass through the driver (one row per stream, group or consumer that changed), so
    that each table is read once, however often the differences are used.

    Args:
        changes: the SET list for rows that are there (`t` the table, `s` the rows).
        differs: which of them change.
    """
    found, table_rows = store.fetched(_differences(store, table, rows, row, differs))
    new = found.where("NOT is_there").select(*rows.columns)
    append_once(store, table, new, row)
    others = found.where("is_there")
    if not pc.any(table_rows["is_there"]).as_py():
        return
    statement = f"""
        MERGE INTO {{table}} t USING {{others}} s
        ON {same_key(table)} AND t.run_seq < {row.run_seq:d}
        WHEN MATCHED THEN UPDATE SET {changes}, run_seq = {row.run_seq:d}"""
    retried(lambda: store.execute(table, statement, others=others))


def same_key(table: str) -> str:
    """A MERGE's join on a table's key."""
    return " AND ".join(f"t.{name} = s.{name}" for name in TABLES[table].key)


def _differences(store: Store, table: str, rows: DataFrame, row: RunRow, differs: str) -> DataFrame:
    """`rows` that are new or changed, with `is_there`.

    Each once, also where the table holds a key twice: a MERGE takes one row per key, and a run that
    is decided must come to its end.
    """
    key = TABLES[table].key
    is_new = f"t.{key[0]} IS NULL"
    is_changed = f"t.run_seq < {row.run_seq:d} AND ({differs})"
    both = rows.alias("s").join(
        store.read(table).alias("t"), on=F.expr(same_key(table)), how="left"
    )
    found = both.where(f"{is_new} OR ({is_changed})")
    return found.select("s.*", F.expr(f"NOT ({is_new})").alias("is_there")).distinct()


def append_new(
    store: Store,
    table: str,
    rows: DataFrame,
    row: RunRow,
    *,
    near: Column | None = None,
    since_pin: bool = False,
) -> None:
    """Append the rows whose key the table does not have.

    Where there is none to append, the commit still bears the run's token: a driver that returns
    late, after somebody removed a row again, must find that its append was made.

    Args:
        near: where the rows lie, as literals: no other file of the table is read; null: anywhere.
        since_pin: whether a row may have been there when the run was decided, so that its owner may
            have removed it since: then what the table held at the pinned version is not new either.
            Where that version cannot be read any more, such a row comes back.
    """
    key = list(TABLES[table].key)

    def append() -> None:
        there = [store.read(table)]
        if since_pin and store.version(table) != row.pins.versions[table]:
            pinned = store.readable_at(table, row.pins.versions[table])
            there += [pinned] if pinned is not None else []
        # Delta sees by the join that the append rests on the table, and refuses it where somebody
        # appends the same rows meanwhile.
        new = rows
        for known in there:
            lies_near = known if near is None else known.where(near)
            new = new.join(lies_near.select(*key), on=key, how="left_anti")
        _append(store, table, arranged(TABLES[table], new), row)

    retried(append)


def _append(store: Store, table: str, rows: DataFrame, row: RunRow) -> None:
    numbered = rows.withColumn("run_seq", F.lit(row.run_seq))
    store.append(table, numbered, token=Token(APP_ID, row.run_seq), note=row.note)
