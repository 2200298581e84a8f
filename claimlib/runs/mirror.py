"""The decision of a snapshot or an import: the store becomes what its source said, by writing the
differences only.

The decision names a landing: the rows of `pel_snapshots` and `entry_landing` that were read for it.
Rows of the store that equal what was read stay untouched; those in scope that the source no longer
has are deleted.  The scope is the globs of the run's request: what was not asked for is left alone.
Every change is guarded by run_seq alone, for here the source is right whatever the store says.
"""

from __future__ import annotations

import json
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from claimlib.plans.keys import KeyMode, glob_sql
from claimlib.runs.journal import Kind, Landed, RunRow, rows_of
from claimlib.runs.retry import retried
from claimlib.runs.writes import append_new, upsert
from claimlib.schema import FIELDS_TYPE, TABLES, quote_text
from claimlib.store import Store, concurrently

_SMALL_TABLES = {
    "groups": ("last_delivered_ms", "last_delivered_seq", "snapshot_ms"),
    "consumers": ("seen_time_ms", "active_time_ms"),
    "streams": (
        "length",
        "last_generated_ms",
        "last_generated_seq",
        "complete_from_ms",
        "complete_from_seq",
        "complete_to_ms",
        "complete_to_seq",
        "read_ms",
        "source",
    ),
}


def apply(store: Store, row: RunRow, landed: Landed) -> None:
    """Write the differences between a landing and the store."""
    groups = rows_of(store, row.run_seq, Kind.GROUP).withColumn("snapshot_ms", F.col("at_ms"))
    consumers = rows_of(store, row.run_seq, Kind.CONSUMER)
    streams = rows_of(store, row.run_seq, Kind.STREAM).withColumn("read_ms", F.col("at_ms"))
    concurrently(
        [
            partial(_pending, store, row, landed),
            partial(_entries, store, row, landed),
            partial(_small, store, row, "groups", groups, _groups_in_scope(row)),
            partial(_small, store, row, "consumers", consumers, _groups_in_scope(row)),
            partial(_small, store, row, "streams", streams, _streams_in_scope(row)),
        ]
    )


def verify(store: Store, row: RunRow, landed: Landed) -> dict[str, int]:
    """Read the store back: what was read, what was written, and what does not fit (0,
    unless somebody else wrote to the store between the decision and now)."""
    pel, pending = landed_pending(store, landed), store.read("pending")
    in_scope = pending.where(_groups_in_scope(row))
    entries = landed_entries(store, landed)
    written = pending.where(F.col("run_seq") == row.run_seq)
    frames = (pel, in_scope, written, entries)
    read, shown, pending_written, entries_read = concurrently(frame.count for frame in frames)
    counts = {
        "pending_read": read,
        "pending_written": pending_written,
        "entries_read": entries_read,
        "pending_missing": 0,
        "pending_extra": 0,
    }
    if read != shown:
        key = list(TABLES["pending"].key)
        counts["pending_missing"] = pel.join(pending.select(*key), key, "left_anti").count()
        counts["pending_extra"] = shown - (read - counts["pending_missing"])
    return counts


def sweep_landing(store: Store, row: RunRow) -> None:
    """Drop the entries landed for this and earlier finished runs; the PELs as read are kept as
    history."""
    landed = store.read("entry_landing").select("landing").distinct()
    done = store.read("journal").where(
        (F.col("kind") == Kind.RUN) & (F.col("run_seq") <= row.run_seq)
    )
    swept = landed.join(done.select("landing"), on="landing", how="left_semi").collect()
    if swept:
        landings = ", ".join(quote_text(found["landing"]) for found in swept)
        statement = f"DELETE FROM {store.identifier('entry_landing')} WHERE landing IN ({landings})"
        retried(lambda: store.execute("entry_landing", statement))


def landed_pending(store: Store, landed: Landed) -> DataFrame:
    """The pending entries that were landed."""
    return store.read("pel_snapshots").where(F.col("landing") == F.lit(landed.uuid))


def landed_entries(store: Store, landed: Landed) -> DataFrame:
    """What was landed, at the version that the decision names: a finished run's is swept, and an
    empty landing would say that every entry is gone."""
    rows = store.read_at("entry_landing", landed.version)
    return rows.where(F.col("landing") == F.lit(landed.uuid))


def _globs(row: RunRow) -> tuple[str, str]:
    request = json.loads(row.request)
    return request["stream_glob"], request["group_glob"]


def _groups_in_scope(row: RunRow) -> str:
    """A condition on stream and consumer_group: was this group asked for?"""
    streams, groups = _globs(row)
    return f"{glob_sql('stream', streams)} AND {glob_sql('consumer_group', groups)}"


def _streams_in_scope(row: RunRow) -> str:
    """A condition on stream: would this stream have been read, if the server still had it?

    Where only some groups were asked for, a stream without such a group is not read, and that it
    was not seen says nothing.
    """
    streams, groups = _globs(row)
    return glob_sql("stream", streams) if groups == "*" else "false"


def _join_sql(key: tuple[str, ...], row: RunRow) -> str:
    """The MERGE's join on a table's key: by 64-bit keys, and by names too where those collide."""
    hashed = {"stream": "stream_key", "consumer_group": "group_key"}
    columns = [hashed.get(name, name) for name in key]
    if row.key_mode is KeyMode.NAMES:
        columns += [name for name in key if name in hashed]
    return " AND ".join(f"t.{name} = s.{name}" for name in columns)


def _pending(store: Store, row: RunRow, landed: Landed) -> None:
    pel = landed_pending(store, landed)
    key = TABLES["pending"].key
    if append_new(store, "pending", pel, row):
        return
    same = (
        "t.consumer <=> s.consumer AND t.delivery_time_ms = s.delivery_time_ms"
        " AND t.delivery_count = s.delivery_count"
    )
    statement = f"""
        MERGE INTO {store.identifier("pending")} t USING {{pel}} s ON {_join_sql(key, row)}
        WHEN MATCHED AND t.run_seq < {row.run_seq:d} AND NOT ({same}) THEN UPDATE SET
          consumer = s.consumer, delivery_time_ms = s.delivery_time_ms,
          delivery_count = s.delivery_count, run_seq = {row.run_seq:d}
        WHEN NOT MATCHED BY SOURCE AND t.run_seq < {row.run_seq:d} AND {_groups_in_scope(row)}
          THEN DELETE"""
    retried(lambda: store.execute("pending", statement, pel=pel))


def _entries(store: Store, row: RunRow, landed: Landed) -> None:
    """Entries of the streams that were read; a stored payload stays where only the id was read."""
    read = landed_entries(store, landed)
    key = TABLES["entries"].key
    if append_new(store, "entries", read, row):
        return
    rows = read.select("stream_key", *key, "fields", F.lit(False).alias("is_gone")).unionByName(
        _gone_entries(store, row, read)
    )
    statement = f"""
        MERGE INTO {store.identifier("entries")} t USING {{rows}} s ON {_join_sql(key, row)}
        WHEN MATCHED AND t.run_seq < {row.run_seq:d} AND s.is_gone THEN DELETE
        WHEN MATCHED AND t.run_seq < {row.run_seq:d} AND s.fields IS NOT NULL
          AND NOT (t.fields <=> s.fields) THEN UPDATE SET
          fields = s.fields, run_seq = {row.run_seq:d}"""
    retried(lambda: store.execute("entries", statement, rows=rows))


def _gone_entries(store: Store, row: RunRow, read: DataFrame) -> DataFrame:
    """Stored entries of a stream that was read (or is away) which are not among what was read, each
    once: a MERGE takes one row per key."""
    key = list(TABLES["entries"].key)
    seen = rows_of(store, row.run_seq, Kind.STREAM).select("stream", F.lit(True).alias("was_read"))
    stored = store.read("entries").select("stream_key", *key).join(seen, on="stream", how="left")
    in_scope = F.coalesce("was_read", F.expr(_streams_in_scope(row)))
    gone = stored.where(in_scope).join(read.select(*key), on=key, how="left_anti")
    return gone.dropDuplicates(key).select(
        "stream_key",
        *key,
        F.lit(None).cast(FIELDS_TYPE).alias("fields"),
        F.lit(True).alias("is_gone"),
    )


def _small(store: Store, row: RunRow, table: str, rows: DataFrame, in_scope: str) -> None:
    columns = _SMALL_TABLES[table]
    changes = ", ".join(f"{name} = s.{name}" for name in columns)
    same = " AND ".join(f"t.{name} <=> s.{name}" for name in columns)
    kept = rows.select(*TABLES[table].key, *columns)
    upsert(store, table, kept, row, changes, differs=f"NOT ({same})", gone=in_scope)
