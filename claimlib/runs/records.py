"""What follows from a run besides `pending`: tombstones, and the small tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from claimlib.plans.keys import GROUP, is_group, is_stream
from claimlib.runs.claims import Outcome
from claimlib.runs.journal import Decided, RunRow
from claimlib.runs.retry import retried
from claimlib.runs.writes import append_once, upsert
from claimlib.schema import TABLES, Kind
from claimlib.store.tables import Store
from claimlib.store.threads import concurrently

_ENTRY = [*GROUP, "id_ms", "id_seq"]


# What makes a consumer active: it got an entry, if only for a moment.
_GOT = (Kind.CLAIMED, Kind.FORCED, Kind.SUPERSEDED)
WRITTEN_FOR = {
    "tombstones": (Kind.DELETED,),
    "consumers": (Kind.CONSUMER, Kind.RETIRED, *_GOT),
    "cursors": (Kind.CURSOR,),
    "groups": (Kind.LASTID,),
}
"""For which kinds of journal rows a run that claims writes a table here."""


def apply(store: Store, row: RunRow, decided: Decided, outcome: Outcome) -> dict[str, int]:
    """Write the tombstones of a run's purges, the consumers that it saw or retired, the cursors and
    the groups' last delivered ids.  Returns what of it the run's report counts."""
    writers: dict[str, Callable[[], None]] = {
        "tombstones": partial(_tombstones, store, row, decided, outcome),
        "cursors": partial(_cursors, store, row, decided),
        "groups": partial(_last_ids, store, row, decided),
    }
    if row.staged is None:
        writers["consumers"] = partial(_consumers, store, row, decided, outcome)
    due = [write for table, write in writers.items() if decided.of(*WRITTEN_FOR[table])]
    concurrently(due)
    return {"retired": _retired(store, decided)} if decided.of(Kind.RETIRED) else {}


def _cursors(store: Store, row: RunRow, decided: Decided) -> None:
    """Where the next page begins, for cursors that have a name."""
    placed = decided.rows(Kind.CURSOR).where(F.col("cursor_name").isNotNull())
    if placed.isEmpty():
        return
    kept = placed.select(F.col("cursor_name").alias("name"), *GROUP, "next_ms", "next_seq")
    changes = {"next_ms": "s.next_ms", "next_seq": "s.next_seq"}
    upsert(store, "cursors", kept, row, changes)


def _not_lost(rows: DataFrame, outcome: Outcome) -> DataFrame:
    if outcome.lost is None:
        return rows
    return rows.join(outcome.lost.select(*_ENTRY), on=_ENTRY, how="left_anti")


def _tombstones(store: Store, row: RunRow, decided: Decided, outcome: Outcome) -> None:
    purges = _not_lost(decided.rows(Kind.DELETED), outcome).select(
        *_ENTRY,
        F.col("from_consumer").alias("consumer"),
        F.col("from_delivery_time_ms").alias("delivery_time_ms"),
        F.col("from_delivery_count").alias("delivery_count"),
        F.col("at_ms").alias("purged_at_ms"),
        "run_seq",
    )
    append_once(store, "tombstones", purges, row, are_few=store.is_held(decided.journal))


def _consumers(store: Store, row: RunRow, decided: Decided, outcome: Outcome) -> None:
    """The caller was seen (its `consumer` rows), and was active where it got an entry; a retired
    one is gone."""
    # What was lost is an entry's row: the caller's own rows have no id and stay.
    rows = _not_lost(decided.rows(Kind.CONSUMER, *_GOT), outcome)
    seen = rows.groupBy(*TABLES["consumers"].key).agg(
        F.max("seen_time_ms").alias("seen_time_ms"),
        F.max("active_time_ms").alias("active_time_ms"),
    )
    changes = {
        "seen_time_ms": "s.seen_time_ms",
        "active_time_ms": "coalesce(s.active_time_ms, t.active_time_ms)",
    }
    upsert(store, "consumers", seen, row, changes)
    if decided.of(Kind.RETIRED):
        _retire(store, row, decided)


def _retire(store: Store, row: RunRow, decided: Decided) -> None:
    """Remove retired consumers, but one that got entries after the decision: they are not to be
    without an owner that anybody knows."""
    retired = decided.rows(Kind.RETIRED).select(*TABLES["consumers"].key)
    idle = [consumer for consumer in retired.collect() if _owned(store, consumer).isEmpty()]
    if not idle:
        return
    rows = store.rows("consumers", idle, list(TABLES["consumers"].key))
    statement = f"""
        MERGE INTO {{table}} t USING {{retired}} s
        ON t.stream = s.stream AND t.consumer_group = s.consumer_group
          AND t.consumer = s.consumer AND t.run_seq < {row.run_seq:d}
        WHEN MATCHED THEN DELETE"""
    retried(lambda: store.execute("consumers", statement, retired=rows))


def _retired(store: Store, decided: Decided) -> int:
    """How many of the retired consumers are gone: `consumers` may never have known one that owns
    something."""
    key = list(TABLES["consumers"].key)
    retired = decided.rows(Kind.RETIRED).select(*key)
    unknown = retired.join(store.read("consumers").select(*key), on=key, how="left_anti")
    return sum(_owned(store, consumer).isEmpty() for consumer in unknown.collect())


def _owned(store: Store, consumer: Row) -> DataFrame:
    """What a consumer has pending."""
    stream, group, name = (consumer[column] for column in TABLES["consumers"].key)
    owned = f"{is_stream(stream, store.buckets)} AND {is_group(stream, group)}"
    return store.read("pending").where(owned).where(F.col("consumer") == name)


def _last_ids(store: Store, row: RunRow, decided: Decided) -> None:
    """Raise the last delivered id of groups, never lower it."""
    raised = decided.rows(Kind.LASTID)
    signs = [f"({column} ^ {-(2**63)}L)" for column in _LAST_IDS]
    statement = f"""
        MERGE INTO {{table}} t USING {{raised}} s
        ON t.stream = s.stream AND t.consumer_group = s.consumer_group
          AND t.run_seq < {row.run_seq:d}
        WHEN MATCHED AND ({signs[0]} < {signs[2]} OR ({signs[0]} = {signs[2]}
          AND {signs[1]} < {signs[3]})) THEN UPDATE SET
          last_delivered_ms = s.last_delivered_ms, last_delivered_seq = s.last_delivered_seq,
          run_seq = {row.run_seq:d}"""
    retried(lambda: store.execute("groups", statement, raised=raised))


_LAST_IDS = [f"{side}.last_delivered_{half}" for side in "ts" for half in ("ms", "seq")]
