"""What follows from a run besides `pending`: tombstones, and the small tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from claimlib.engine.changes import Changes, lacking
from claimlib.engine.relation import Relation
from claimlib.plans.keys import GROUP, id_at_most, is_stream, without
from claimlib.runs.claims import Outcome
from claimlib.runs.journal import Decided, RunRow
from claimlib.runs.writes import append_once
from claimlib.runs.writes import apply as apply_changes
from claimlib.schema import TABLES, Kind
from claimlib.store.tables import Store
from claimlib.store.threads import concurrently

_ENTRY = [*GROUP, "id_ms", "id_seq"]


# What makes a consumer active: it got an entry, if only for a moment.
_GOT = (Kind.CLAIMED, Kind.MOVED, Kind.FORCED, Kind.SUPERSEDED)
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
    placed = decided.rows(Kind.CURSOR).where("cursor_name IS NOT NULL").reused()
    if placed.is_empty():
        return
    kept = placed.select("cursor_name AS name", *GROUP, "next_ms", "next_seq")
    changes = {name: f"s.{name}" for name in ("next_ms", "next_seq")}
    apply_changes(store, _by_key("cursors", kept, row, changes, new=kept), row)


def _by_key(
    table: str,
    rows: Relation,
    row: RunRow,
    values: Mapping[str, str],
    *,
    is_due: str = "true",
    is_removed: str = "false",
    new: Relation | None = None,
) -> Changes:
    return Changes(
        table,
        row.run_seq,
        rows,
        TABLES[table].key,
        is_due=is_due,
        values=values,
        is_removed=is_removed,
        new=new,
    )


def _not_lost(rows: Relation, outcome: Outcome) -> Relation:
    return rows if outcome.lost is None else without(rows, outcome.lost)


def _tombstones(store: Store, row: RunRow, decided: Decided, outcome: Outcome) -> None:
    purges = _not_lost(decided.rows(Kind.DELETED), outcome).select(
        *_ENTRY,
        "from_consumer AS consumer",
        "from_delivery_time_ms AS delivery_time_ms",
        "from_delivery_count AS delivery_count",
        "at_ms AS purged_at_ms",
    )
    append_once(store, "tombstones", purges, row)


def _consumers(store: Store, row: RunRow, decided: Decided, outcome: Outcome) -> None:
    """The caller was seen (its `consumer` rows), and was active where it got an entry; a retired
    one is gone, unless it got entries after the decision: they are not to be without an owner that
    anybody knows."""
    key = ", ".join(TABLES["consumers"].key)
    # What was lost is an entry's row: the caller's own rows have no id and stay.
    seen = _not_lost(decided.rows(Kind.CONSUMER, *_GOT), outcome).sql(
        f"SELECT {key}, max(seen_time_ms) AS seen_time_ms, max(active_time_ms) AS active_time_ms"
        f" FROM {{this}} AS this GROUP BY {key}"
    )
    changes = {
        "seen_time_ms": "s.seen_time_ms",
        "active_time_ms": "coalesce(s.active_time_ms, t.active_time_ms)",
    }
    if not decided.of(Kind.RETIRED):
        apply_changes(store, _by_key("consumers", seen, row, changes, new=seen), row)
        return
    both = (
        _without_entries(store, decided.rows(Kind.RETIRED).distinct(*TABLES["consumers"].key))
        .sql(
            f"""
        SELECT {key}, CAST(NULL AS BIGINT) AS seen_time_ms, CAST(NULL AS BIGINT) AS active_time_ms,
            true AS is_removed
        FROM {{this}} AS this
        UNION ALL SELECT {key}, seen_time_ms, active_time_ms, false FROM {{seen}} AS seen
        """,
            seen=seen,
        )
        .fetched()
    )
    removal = _by_key("consumers", both, row, changes, is_removed="s.is_removed", new=seen)
    apply_changes(store, removal, row)


def _retired(store: Store, decided: Decided) -> int:
    """How many of the retired consumers are gone: `consumers` may never have known one that owns
    something."""
    retired = decided.rows(Kind.RETIRED).distinct(*TABLES["consumers"].key)
    unknown = lacking("consumers", retired, store.relation("consumers").reused())
    return _without_entries(store, unknown).count()


def _without_entries(store: Store, retired: Relation) -> Relation:
    """Return the retired consumers that have nothing pending."""
    retired = retired.fetched()
    streams = {row["stream"] for row in retired.select("stream").collect()}
    near = " OR ".join(f"({is_stream(stream, store.buckets)})" for stream in streams) or "false"
    return lacking("consumers", retired, store.relation("pending").where(near))


def _last_ids(store: Store, row: RunRow, decided: Decided) -> None:
    """Raise the last delivered id of groups, never lower it."""
    values = {name: f"s.{name}" for name in ("last_delivered_ms", "last_delivered_seq")}
    (ms, own_ms), (seq, own_seq) = ((f"t.{name}", value) for name, value in values.items())
    is_other = f"NOT ({ms} = {own_ms} AND {seq} = {own_seq})"
    is_lower = f"{id_at_most(ms, seq, own_ms, own_seq)} AND {is_other}"
    raised = decided.rows(Kind.LASTID).select(*GROUP, *values)
    apply_changes(store, _by_key("groups", raised, row, values, is_due=is_lower), row)
