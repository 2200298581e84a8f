"""What follows from a run besides `pending`: tombstones, and the small tables.

New rows come by an append with the run's token, so that they come once even if a driver returns
late, after a later run removed them again; changes by a MERGE that leaves rows of this and later
runs alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from claimlib.plans.keys import GROUP
from claimlib.runs.claims import Outcome
from claimlib.runs.journal import APP_ID, Kind, RunRow, Tally, rows_of
from claimlib.runs.retry import retried
from claimlib.schema import TABLES
from claimlib.store import Store, Token, arranged, concurrently

_ENTRY = [*GROUP, "id_ms", "id_seq"]


def apply(store: Store, row: RunRow, decided: Tally, outcome: Outcome) -> None:
    """Write the tombstones of a run's purges, the consumers that it saw, and the cursors."""
    due: list[Callable[[], None]] = []
    if decided.of(Kind.DELETED):
        due.append(partial(_tombstones, store, row, outcome))
    if row.landed is None and decided.of(Kind.CONSUMER) + decided.of(Kind.CLAIMED):
        due.append(partial(_consumers, store, row, outcome))
    if decided.of(Kind.CURSOR):
        due.append(partial(_cursors, store, row))
    concurrently(due)


def _cursors(store: Store, row: RunRow) -> None:
    """Where the next page begins, for cursors that have a name."""
    placed = rows_of(store, row.run_seq, Kind.CURSOR).where(F.col("cursor_name").isNotNull())
    if placed.isEmpty():
        return
    kept = placed.select(F.col("cursor_name").alias("name"), *GROUP, "next_ms", "next_seq")
    changes = "next_ms = s.next_ms, next_seq = s.next_seq"
    upsert(store, "cursors", kept, row, changes)


def _not_lost(rows: DataFrame, outcome: Outcome) -> DataFrame:
    if outcome.lost is None:
        return rows
    return rows.join(outcome.lost.select(*_ENTRY), on=_ENTRY, how="left_anti")


def _tombstones(store: Store, row: RunRow, outcome: Outcome) -> None:
    purges = _not_lost(rows_of(store, row.run_seq, Kind.DELETED), outcome).select(
        *_ENTRY,
        F.col("from_consumer").alias("consumer"),
        F.col("from_delivery_time_ms").alias("delivery_time_ms"),
        F.col("from_delivery_count").alias("delivery_count"),
        F.col("at_ms").alias("purged_at_ms"),
        "run_seq",
    )
    append_once(store, "tombstones", purges, row)


def _consumers(store: Store, row: RunRow, outcome: Outcome) -> None:
    """The caller was seen (its `consumer` rows), and was active where it got an entry
    (`claimed`)."""
    claimed = _not_lost(rows_of(store, row.run_seq, Kind.CLAIMED), outcome)
    seen = (
        rows_of(store, row.run_seq, Kind.CONSUMER)
        .unionByName(claimed)
        .groupBy(*TABLES["consumers"].key)
        .agg(
            F.max("seen_time_ms").alias("seen_time_ms"),
            F.max("active_time_ms").alias("active_time_ms"),
        )
    )
    active = "coalesce(s.active_time_ms, t.active_time_ms)"
    changes = f"seen_time_ms = s.seen_time_ms, active_time_ms = {active}"
    upsert(store, "consumers", seen, row, changes)


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


def append_new(store: Store, table: str, rows: DataFrame, row: RunRow) -> bool:
    """Append the rows whose key the table does not have; whether it was empty before.

    Where there is none to append, the commit still bears the run's token: a driver that returns
    late, after somebody removed a row again, must find that its append was made.
    """
    key = list(TABLES[table].key)
    there = store.read(table).select(*key)
    was_empty = there.isEmpty()
    new = rows if was_empty else rows.join(there, on=key, how="left_anti")
    numbered = new.withColumn("run_seq", F.lit(row.run_seq))
    append_once(store, table, arranged(TABLES[table], numbered), row)
    return was_empty
