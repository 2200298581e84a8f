"""State the entries of a run that are written back to the server, and their outcomes there."""

from __future__ import annotations

from claimlib.engine.relation import Relation
from claimlib.plans.journal_rows import JOURNAL_ROW
from claimlib.plans.keys import (
    ENTRY,
    ENTRY_SQL,
    GROUP,
    GROUP_SQL,
    ID_ORDER,
    id_text_sql,
    same_entry,
)
from claimlib.schema import Kind

CLAIMING = (Kind.CLAIMED, Kind.FORCED)
WRITTEN = (*CLAIMING, Kind.DELETED, Kind.ACKED, Kind.RESTORED)
"""The kinds of journal rows whose entries are written back."""
JUDGED = (Kind.SWEPT, Kind.REQUESTED)
"""The kinds of journal rows that state the requests of a run."""
DECIDED = "decided"
"""The count of the entries of the run that is written back."""
CONSUMERS_REMOVED, CONSUMERS_KEPT = "consumers_removed", "consumers_kept"
"""The counts of retired consumers that no longer exist on the server, and that still do."""
_IS_CLAIM = " OR ".join(f"kind = '{kind}'" for kind in CLAIMING)
BATCH = (
    *("is_claim", "is_ack", "consumer", "delivery_count", "latest_delivery_ms"),
    *("server_consumer", "server_count"),
)
"""The columns that are equal for all entries of a batch, within a group."""
_IN_GROUP = (*BATCH, *ID_ORDER)
ORDER = ("turn", *GROUP, *_IN_GROUP)
"""The order in which entries are sent: groups take turns, and entries of a batch are adjacent."""

# The millisecond of the snapshot itself counts as after it.  A minimum idle time of 0 is no
# condition, so the time for which the run computed idle times does not matter then.
_LATEST_DELIVERY_MS = (
    "CASE WHEN min_idle_ms > 0 THEN least(snapshot_ms - 1, at_ms - min_idle_ms)"
    " ELSE snapshot_ms - 1 END"
)


def entries(
    decided: Relation,
    requests: Relation,
    groups: Relation,
    pending: Relation,
    changes: Relation,
    per_turn: int,
) -> Relation:
    """Return one row per entry that a run claimed, acknowledged or deleted.

    Columns: stream, consumer_group, id_ms, id_seq, `id` (text), `is_claim`, `is_ack` (false for a
    claim and for a deletion); `consumer`, `delivery_time_ms` and `delivery_count` as the run set
    them (None unless it is a claim); `from_*` (the entry in the store now); `server_consumer` and
    `server_count` (the entry on the server, None if it was not pending); `latest_delivery_ms` (an
    entry that was delivered later is not changed); `is_current` (false if the entry in the store is
    not as the run left it); `turn` (the turn of the group, from 0).

    Args:
        decided: the journal rows of `WRITTEN` kinds that were applied.
        requests: those of `JUDGED` kinds.
        groups: the table, with the snapshot times that the run was decided from.
        pending: the table.
        changes: `server_view.changes_since` up to the run.
        per_turn: the number of entries of a group before another group takes its turn.
    """
    rows = decided.sql(
        f"""
        WITH e AS (
            SELECT *, ({_IS_CLAIM}) AS is_claim FROM {{this}} AS this
        ), r AS (
            SELECT {GROUP_SQL}, request_number,
                CAST(get_json_object(request, '$.min_idle_ms') AS BIGINT) AS min_idle_ms
            FROM {{requests}} AS requests
        ), p AS (
            SELECT DISTINCT {ENTRY_SQL}, consumer AS now_consumer,
                delivery_time_ms AS now_time_ms, delivery_count AS now_count
            FROM {{pending}} AS pending
        ), q AS (
            SELECT DISTINCT {ENTRY_SQL}, true AS is_pending FROM {{pending}} AS pending
        ), c AS (
            SELECT {ENTRY_SQL}, consumer AS server_consumer, delivery_count AS server_count
            FROM {{changes}} AS changes
        ), g AS (
            SELECT {GROUP_SQL}, snapshot_ms FROM {{groups}} AS groups
        )
        SELECT e.stream, e.consumer_group, e.id_ms, e.id_seq,
            {id_text_sql("e.id_ms", "e.id_seq")} AS id, e.is_claim,
            e.kind = '{Kind.ACKED}' AS is_ack,
            e.consumer, e.delivery_time_ms, e.delivery_count,
            CASE WHEN e.is_claim THEN e.consumer ELSE e.from_consumer END AS from_consumer,
            CASE WHEN e.is_claim THEN e.delivery_time_ms ELSE e.from_delivery_time_ms END
                AS from_delivery_time_ms,
            CASE WHEN e.is_claim THEN e.delivery_count ELSE e.from_delivery_count END
                AS from_delivery_count,
            server_consumer, server_count, {_LATEST_DELIVERY_MS} AS latest_delivery_ms,
            CASE WHEN e.is_claim THEN now_count IS NOT NULL ELSE is_pending IS NULL END
                AS is_current
        FROM e
            LEFT JOIN q ON {same_entry("e", "q")}
            LEFT JOIN r ON e.stream = r.stream AND e.consumer_group = r.consumer_group
                AND e.request_number <=> r.request_number
            LEFT JOIN g ON e.stream = g.stream AND e.consumer_group = g.consumer_group
            LEFT JOIN c ON {same_entry("e", "c")}
            LEFT JOIN p ON {same_entry("e", "p")} AND e.consumer = now_consumer
                AND e.delivery_time_ms = now_time_ms AND e.delivery_count = now_count
        """,
        requests=requests,
        groups=groups,
        pending=pending,
        changes=changes,
    )
    return _in_turns(rows, per_turn)


def _in_turns(entries: Relation, per_turn: int) -> Relation:
    in_group = f"row_number() OVER (PARTITION BY {GROUP_SQL} ORDER BY {', '.join(_IN_GROUP)})"
    return entries.select("*", f"({in_group} - 1) DIV {per_turn:d} AS turn")


def undone_entries(restored: Relation, pending: Relation, per_turn: int) -> Relation:
    """Return one row per entry that an undo gave back, with the columns of `entries`.

    The server has the entry as the writeback of the undone run left it.

    Args:
        restored: the journal rows of kind `restored` that were applied.
        pending: the table.
        per_turn: see `entries`.
    """
    state = ("consumer", "delivery_time_ms", "delivery_count")
    now = ", ".join(f"{name} AS now_{name}" for name in state)
    is_now = " AND ".join(f"e.{name} = now_{name}" for name in state)
    rows = restored.sql(
        f"""
        WITH p AS (SELECT DISTINCT {ENTRY_SQL}, {now} FROM {{pending}} AS pending)
        SELECT e.stream, e.consumer_group, e.id_ms, e.id_seq,
            {id_text_sql("e.id_ms", "e.id_seq")} AS id, true AS is_claim,
            false AS is_ack, {", ".join(f"e.{name}" for name in state)},
            {", ".join(f"e.{name} AS from_{name}" for name in state)},
            from_consumer AS server_consumer, from_delivery_count AS server_count,
            from_delivery_time_ms AS latest_delivery_ms, now_consumer IS NOT NULL AS is_current
        FROM {{this}} AS e LEFT JOIN p ON {same_entry("e", "p")} AND {is_now}
        """,
        pending=pending,
    )
    return _in_turns(rows, per_turn)


def outcome_rows(written: Relation, at_ms: int) -> Relation:
    """Return the journal rows of entries that were written back.

    Args:
        written: `entries`, with `outcome`, and `moved_ms`, the time of the claim on the server.
            `moved_ms` is None if the entry was not claimed there.
        at_ms: the server's time, for entries that were not claimed.
    """
    is_moved = f"outcome = '{Kind.MOVED}'"
    made = {
        "kind": "outcome",
        "delivery_time_ms": "moved_ms",
        "delivery_count": f"CASE WHEN {is_moved} THEN delivery_count END",
        "justid": f"CASE WHEN {is_moved} THEN true END",
        "at_ms": f"coalesce(moved_ms, {at_ms:d}L)",
        "seen_time_ms": "moved_ms",
        "active_time_ms": "moved_ms",
    }
    kept = (*ENTRY, "consumer")
    before = ("from_consumer", "from_delivery_time_ms", "from_delivery_count")
    typed = (f"CAST({value} AS {JOURNAL_ROW[name]}) AS {name}" for name, value in made.items())
    return written.select(*kept, *before, *typed)


OUTCOMES = (Kind.MOVED, Kind.ACKNOWLEDGED, Kind.TOUCHED, Kind.GONE)
"""The kinds of journal rows that state the outcome of an entry on the server."""


def planned_by_group(planned: Relation) -> Relation:
    """Return one row per group: stream, consumer_group, `claims`, `deletions`.

    Args:
        planned: `entries`.
    """
    return _by_group(planned, "is_claim", {})


def written_by_group(rows: Relation) -> Relation:
    """Return one row per group: `planned_by_group`, and the number of each of `OUTCOMES`.

    Args:
        rows: journal rows of `OUTCOMES`.
    """
    counts = {str(kind): f"count_if(kind = '{kind}')" for kind in OUTCOMES}
    return _by_group(rows, "consumer IS NOT NULL", counts)


def _by_group(rows: Relation, is_claim: str, counts: dict[str, str]) -> Relation:
    named = {
        "claims": f"count_if({is_claim})",
        "deletions": f"count_if(NOT ({is_claim}))",
        **counts,
    }
    numbers = ", ".join(f"{value} AS {name}" for name, value in named.items())
    return rows.sql(f"SELECT {GROUP_SQL}, {numbers} FROM {{this}} AS this GROUP BY {GROUP_SQL}")
