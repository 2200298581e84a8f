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
"""The kinds of journal rows that state the accepted requests of a run."""
DECIDED = "decided"
"""The name of the count of entries of the run that is written back."""
CONSUMERS_REMOVED, CONSUMERS_KEPT = "consumers_removed", "consumers_kept"
"""The names of two counts of retired consumers: those removed on the server, and the others."""
_IS_CLAIM = " OR ".join(f"kind = '{kind}'" for kind in CLAIMING)
BATCH = (
    "is_claim",
    "is_ack",
    "consumer",
    "delivery_count",
    "latest_delivery_ms",
    "server_consumer",
    "server_count",
)
"""The columns whose values are equal for all entries of a batch.  A batch is part of one group."""
_IN_GROUP = (*BATCH, *ID_ORDER)
ORDER = ("turn", *GROUP, *_IN_GROUP)
"""The order in which entries are sent.  Groups take turns, and entries of a batch are adjacent."""

# An entry that was delivered in the millisecond of the snapshot may have been delivered after the
# snapshot, so it is not changed.  With a minimum idle time, the entry must also have been idle for
# that long at the time for which the run computed idle times (at_ms).
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

    Columns:

    - stream, consumer_group, id_ms, id_seq, `id` (text).
    - `is_claim`; `is_ack`, which is false for a claim and for a deletion.
    - consumer, delivery_time_ms, delivery_count: as the run set them.  None if this is no claim.
    - from_consumer, from_delivery_time_ms, from_delivery_count: the state of the entry in the
      store after a claim, or else before the run.
    - `server_consumer`, `server_count`: the owner and the delivery count on the server, according
      to the last snapshot.  None if the entry was not pending there.
    - `latest_delivery_ms`: the entry is not changed if the server delivered it later than this.
    - `is_current`: false if the entry in the store is no longer as the run left it.
    - `turn`: the turn of the group in which the entry is sent, from 0.

    Args:
        decided: the journal rows of `WRITTEN` kinds that were applied.
        requests: the run's journal rows of `JUDGED` kinds.
        groups: the table, with the snapshot times that the run was decided from.
        pending: the table.
        changes: `server_view.changes_since` up to the run.
        per_turn: the number of entries that are sent for a group before the next group's turn.
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
        at_ms: the server's time.  It is the time of the rows of entries that were not claimed.
    """
    is_moved = f"outcome = '{Kind.MOVED}'"
    values = {
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
    typed = (f"CAST({value} AS {JOURNAL_ROW[name]}) AS {name}" for name, value in values.items())
    return written.select(*kept, *before, *typed)


OUTCOMES = (Kind.MOVED, Kind.ACKNOWLEDGED, Kind.TOUCHED, Kind.GONE)
"""The kinds of journal rows that state the outcome of an entry on the server."""


def planned_by_group(planned: Relation) -> Relation:
    """Return one row per group: stream, consumer_group, `claims`, `removals`.

    `removals` is the number of the other entries, which were deleted or acknowledged.

    Args:
        planned: `entries`.
    """
    return _by_group(planned, "is_claim", {})


def written_by_group(rows: Relation) -> Relation:
    """Return the columns of `planned_by_group`, and one column per kind of `OUTCOMES`.

    Each of these columns has the number of rows of its kind.

    Args:
        rows: the writeback's journal rows of `OUTCOMES` kinds.
    """
    counts = {str(kind): f"count_if(kind = '{kind}')" for kind in OUTCOMES}
    return _by_group(rows, "consumer IS NOT NULL", counts)


def _by_group(rows: Relation, is_claim: str, counts: dict[str, str]) -> Relation:
    named = {
        "claims": f"count_if({is_claim})",
        "removals": f"count_if(NOT ({is_claim}))",
        **counts,
    }
    numbers = ", ".join(f"{value} AS {name}" for name, value in named.items())
    return rows.sql(f"SELECT {GROUP_SQL}, {numbers} FROM {{this}} AS this GROUP BY {GROUP_SQL}")
