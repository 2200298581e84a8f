"""Write the tombstones of a run, and its changes to consumers, cursors and groups."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial

from claimlib.engine.changes import Changes, lacking
from claimlib.engine.relation import Relation, union_all
from claimlib.plans.keys import GROUP, id_at_most, is_stream, without
from claimlib.runs.claims import Outcome
from claimlib.runs.journal import Decided, RunRow
from claimlib.runs.writes import append_once
from claimlib.runs.writes import apply as apply_changes
from claimlib.schema import TABLES, Kind
from claimlib.store.tables import Store
from claimlib.store.threads import concurrently

_ENTRY = [*GROUP, "id_ms", "id_seq"]


# The rows by which a consumer got an entry, so it was active.  A superseded claim counts, too.
_RECEIVED = (Kind.CLAIMED, Kind.MOVED, Kind.FORCED, Kind.SUPERSEDED)
KINDS_BY_TABLE = {
    "tombstones": (Kind.DELETED, Kind.RETURNED, Kind.WITHDRAWN),
    "consumers": (Kind.CONSUMER, Kind.RETIRED, Kind.CONSUMER_RESTORED, *_RECEIVED),
    "cursors": (Kind.CURSOR, Kind.CURSOR_RESTORED),
    "groups": (Kind.LASTID, Kind.GROUP_RESTORED),
}
"""Map each table to the kinds of journal rows from which this module writes it."""


def apply(store: Store, row: RunRow, decided: Decided, outcome: Outcome) -> dict[str, int]:
    """Write the tombstones, consumers, cursors and last delivered ids of a run.

    Return the counts for the run's report.
    """
    writers: dict[str, Callable[[], None]] = {
        "tombstones": partial(_tombstones, store, row, decided, outcome),
        "cursors": partial(_cursors, store, row, decided),
        "groups": partial(_last_ids, store, row, decided),
    }
    if not row.is_mirror:  # `mirror` writes the consumers of a snapshot or an import
        writers["consumers"] = partial(_consumers, store, row, decided, outcome)
    due = [write for table, write in writers.items() if decided.of(*KINDS_BY_TABLE[table])]
    concurrently(due)
    return {"retired": _retired(store, decided)} if decided.of(Kind.RETIRED) else {}


def _cursors(store: Store, row: RunRow, decided: Decided) -> None:
    """Write the first id of the next page for cursors that have a name."""
    named = decided.rows(*KINDS_BY_TABLE["cursors"]).where("cursor_name IS NOT NULL").reused()
    if named.is_empty():
        return
    rows = named.select("cursor_name AS name", *GROUP, "next_ms", "next_seq")
    values = {name: f"s.{name}" for name in ("next_ms", "next_seq")}
    changes = _by_key(
        "cursors",
        rows,
        row,
        values,
        is_removed="s.next_ms IS NULL",  # the cursor did not exist before the undone run
        new=rows.where("next_ms IS NOT NULL"),
    )
    apply_changes(store, changes, row)


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
    """Append tombstones of deleted entries, and remove those of entries that an undo returned."""
    # Undone acknowledgements and forced claims have no tombstone.  Their at_ms is null.
    has_tombstone = f"kind = '{Kind.DELETED}' OR at_ms IS NOT NULL"
    rows = _not_lost(decided.rows(*KINDS_BY_TABLE["tombstones"]), outcome).where(has_tombstone)
    returned = rows.where(f"kind = '{Kind.RETURNED}'").reused()
    if not returned.is_empty():  # this is an undo of deletions, which adds no tombstones
        tombstones = returned.select(*_ENTRY, f"{_undone_seq(row):d}L AS run_seq")
        removal = _by_key("tombstones", tombstones, row, {}, is_removed="true")
        apply_changes(store, removal, row)
        return
    added = rows.where(f"kind <> '{Kind.RETURNED}'").select(
        *_ENTRY,
        "from_consumer AS consumer",
        "from_delivery_time_ms AS delivery_time_ms",
        "from_delivery_count AS delivery_count",
        "at_ms AS purged_at_ms",
    )
    append_once(store, "tombstones", added, row)


def _undone_seq(row: RunRow) -> int:
    """Return the number of the run that an undo has undone."""
    return int(json.loads(row.request)["run_seq"])


def _consumers(store: Store, row: RunRow, decided: Decided, outcome: Outcome) -> None:
    """Write the seen and active times of consumers, and delete retired consumers.

    Rows of kind `consumer` have the seen times, and rows of `_RECEIVED` kinds the active times.  A
    retired consumer stays if it got entries after the decision, so that these entries have a known
    owner.
    """
    key = ", ".join(TABLES["consumers"].key)
    # Lost entries are left out.  Rows of kind `consumer` have no id, so they all stay.
    seen = _not_lost(decided.rows(Kind.CONSUMER, *_RECEIVED), outcome).sql(
        f"SELECT {key}, max(seen_time_ms) AS seen_time_ms, max(active_time_ms) AS active_time_ms"
        f" FROM {{this}} AS this GROUP BY {key}"
    )
    values = {
        "seen_time_ms": "s.seen_time_ms",
        "active_time_ms": "coalesce(s.active_time_ms, t.active_time_ms)",
    }
    if decided.of(Kind.CONSUMER_RESTORED):
        _restore_consumers(store, row, decided.rows(Kind.CONSUMER_RESTORED))
        return
    if not decided.of(Kind.RETIRED):
        apply_changes(store, _by_key("consumers", seen, row, values, new=seen), row)
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
    changes = _by_key("consumers", both, row, values, is_removed="s.is_removed", new=seen)
    apply_changes(store, changes, row)


def _restore_consumers(store: Store, row: RunRow, restored: Relation) -> None:
    """Restore the times of consumers, and remove consumers that the undone run created.

    A consumer that owns pending entries is not removed.
    """
    times = ("seen_time_ms", "active_time_ms")
    rows = restored.select(*TABLES["consumers"].key, *times)
    existed = rows.where("seen_time_ms IS NOT NULL")
    removed = _without_entries(store, rows.where("seen_time_ms IS NULL"))
    rows = union_all([existed, removed])
    changes = _by_key(
        "consumers",
        rows,
        row,
        {name: f"s.{name}" for name in times},
        is_removed="s.seen_time_ms IS NULL",
        new=existed,
    )
    apply_changes(store, changes, row)


def _retired(store: Store, decided: Decided) -> int:
    """Return the number of retired consumers that `consumers` no longer has.

    Consumers that own pending entries are not counted, because they were not deleted.  `consumers`
    may never have had them.
    """
    retired = decided.rows(Kind.RETIRED).distinct(*TABLES["consumers"].key)
    missing = lacking("consumers", retired, store.relation("consumers").reused())
    return _without_entries(store, missing).count()


def _without_entries(store: Store, consumers: Relation) -> Relation:
    """Return the consumers that own no pending entries."""
    consumers = consumers.fetched()
    streams = {row["stream"] for row in consumers.select("stream").collect()}
    in_streams = (
        " OR ".join(f"({is_stream(stream, store.buckets)})" for stream in streams) or "false"
    )
    return lacking("consumers", consumers, store.relation("pending").where(in_streams))


def _last_ids(store: Store, row: RunRow, decided: Decided) -> None:
    """Write the last delivered ids of groups.  Only an undo can lower such an id."""
    values = {name: f"s.{name}" for name in ("last_delivered_ms", "last_delivered_seq")}
    (ms, new_ms), (seq, new_seq) = ((f"t.{name}", value) for name, value in values.items())
    is_other = f"NOT ({ms} = {new_ms} AND {seq} = {new_seq})"
    is_lower = f"{id_at_most(ms, seq, new_ms, new_seq)} AND {is_other}"
    if decided.of(Kind.LASTID):
        raised = decided.rows(Kind.LASTID).select(*GROUP, *values)
        apply_changes(store, _by_key("groups", raised, row, values, is_due=is_lower), row)
    if decided.of(Kind.GROUP_RESTORED):
        restored = decided.rows(Kind.GROUP_RESTORED).select(*GROUP, *values)
        apply_changes(store, _by_key("groups", restored, row, values), row)
