"""State decisions as rows of the journal, which have names instead of keys."""

from __future__ import annotations

from claimlib.engine.relation import Relation
from claimlib.plans.keys import GROUP, GROUP_SQL, without
from claimlib.plans.requests import ASSIGNMENT, CALLER_IS_SEEN, REQUEST_COLUMNS
from claimlib.schema import JOURNAL, Kind
from claimlib.semantics.model import Outcome

JOURNAL_ROW = {name: type_ for name, type_ in JOURNAL.types.items() if name != "run_seq"}
"""The columns that a decision states, with their types."""
UPDATED = (Kind.CLAIMED, Kind.MOVED, Kind.RESTORED)
REMOVED = (Kind.DELETED, Kind.ACKED, Kind.WITHDRAWN)
ADDED = (Kind.FORCED, Kind.RETURNED)
CHANGED = (*UPDATED, *REMOVED, *ADDED)
"""The kinds of journal rows that state how a run changed a pending entry.

The rows of a snapshot or an import have other kinds.
"""
PLACE = (*GROUP, "stream_key", "group_key", "bucket")
"""The columns that place a row about a group: its names, their keys and its bucket."""


def of_kinds(*kinds: Kind) -> str:
    """Return the SQL condition for journal rows of the given kinds."""
    return f"kind IN ({', '.join(repr(str(kind)) for kind in kinds)})"


def applied(changes: Relation, lost: Relation) -> Relation:
    """Return the journal rows of changes that were applied, without those of kind `lost`.

    Args:
        lost: the journal rows of kind `lost` of the same runs.
    """
    return without(changes, lost, "run_seq")


def decision_rows(decided: Relation, accepted: Relation, owners: Relation) -> Relation:
    """Return the journal's `claimed` and `deleted` rows: the decisions, with names added.

    The joins must find the name of every key.  If one is missing, the statement fails, because the
    entry would be lost otherwise.

    Args:
        decided: `assignment.with_recipient`.
        accepted: `survey.judged` without the refused groups, with the groups' keys.
        owners: `keys.owners_of_keys`.
    """
    owner = "coalesce(recipient, caller)"
    parked = f"outcome = {Outcome.PARKED:d}"
    claimed = f"outcome IN ({Outcome.PARKED:d}, {Outcome.CLAIMED:d})"
    return decided.sql(
        f"""
        WITH groups AS (
            SELECT stream_key, group_key, bucket, {GROUP_SQL}, consumer AS caller,
                parking_consumer, justid, now_ms, profile
            FROM {{accepted}} AS accepted
        )
        SELECT CASE WHEN {claimed} THEN '{Kind.CLAIMED}' ELSE '{Kind.DELETED}' END AS kind,
            {name_or_error("stream", "group_key", "stream IS NOT NULL")} AS stream,
            consumer_group, stream_key, group_key, bucket, id_ms, id_seq,
            {name_or_error("from_consumer", "from_consumer_key", "is_known")} AS from_consumer,
            from_delivery_time_ms, from_delivery_count,
            CASE WHEN {parked} THEN parking_consumer
                WHEN {claimed} THEN {name_or_error(owner, "group_key", f"{owner} IS NOT NULL")}
                END AS consumer,
            CASE WHEN {claimed} THEN now_ms END AS delivery_time_ms,
            CASE WHEN {claimed} THEN delivery_count END AS delivery_count,
            CASE WHEN {claimed} THEN justid OR {parked} END AS justid,
            now_ms AS at_ms,
            CASE WHEN {claimed} THEN now_ms END AS seen_time_ms,
            CASE WHEN {claimed} AND {CALLER_IS_SEEN} THEN now_ms END AS active_time_ms
        FROM {{this}} AS this LEFT JOIN groups USING (group_key)
            LEFT JOIN {{owners}} AS owners USING (from_consumer_key)
        """,
        accepted=accepted,
        owners=owners,
    )


def name_or_error(name: str, key: str, is_known: str) -> str:
    """Return SQL for the column `name`, which fails if the join by `key` found no row."""
    missing = f"CAST(raise_error(concat('claimlib: no name for {key} ', {key})) AS STRING)"
    return f"CASE WHEN {is_known} THEN {name} ELSE {missing} END"


def group_rows(groups: Relation) -> Relation:
    """Return the journal's `swept` and `refused` rows, with the sums of the survey.

    Args:
        groups: `survey.judged` with `spared` and `parked` (`guards.weighed`) and the groups' keys.
            Each group has one row.
    """
    request = ", ".join(name for name in (*REQUEST_COLUMNS, *ASSIGNMENT) if name not in GROUP)
    # This is also true for a group that only `pending` has, and that has no request.
    is_sweep = "count IS NULL"
    return groups.select(
        f"CASE WHEN reason IS NULL THEN '{Kind.SWEPT}' ELSE '{Kind.REFUSED}' END AS kind",
        *PLACE,
        "consumer",
        f"to_json(struct({request})) AS request",
        "now_ms AS at_ms",
        *(f"CASE WHEN {is_sweep} THEN {name} END AS {name}" for name in _OF_WHOLE_PELS),
        "spared",
        "parked",
        "reason",
    )


# A page does not examine the whole PEL, so these columns are null for it.
_OF_WHOLE_PELS = (
    "at_boundary",
    "pending_before",
    "oldest_delivery_time_ms",
    "highest_delivery_count",
)


def cursor_rows(accepted: Relation, next_ids: Relation | None) -> Relation:
    """Return the journal's `cursor` rows.

    There is one row per swept group whose request has a COUNT or names a cursor.  The row has the
    first id that was not examined, or 0-0 if the request reached the end of the PEL.

    Args:
        accepted: see `decision_rows`.
        next_ids: `pages.next_ids`, or None if the run has no pages.
    """
    with_cursor = accepted.where("count IS NOT NULL OR cursor IS NOT NULL")
    if next_ids is None:
        with_cursor = with_cursor.select("*", "0L AS next_ms", "0L AS next_seq")
    else:
        with_cursor = with_cursor.sql(
            "SELECT * FROM {this} AS this LEFT JOIN {next_ids} AS next_ids USING (group_key)",
            next_ids=next_ids,
        )
    return with_cursor.select(
        f"'{Kind.CURSOR}' AS kind",
        *PLACE,
        "cursor AS cursor_name",
        "coalesce(next_ms, 0L) AS next_ms",
        "coalesce(next_seq, 0L) AS next_seq",
        "now_ms AS at_ms",
    )


def consumer_rows(accepted: Relation) -> Relation:
    """Return the journal's `consumer` rows: one per swept group, for the consumer of the request.

    A group has no row in these cases:

    - Several consumers share its claimed entries.
    - Its profile is redis-7.0.  With that profile a consumer exists only after it has received an
      entry, which its `claimed` rows state.
    """
    return accepted.where(f"{CALLER_IS_SEEN} AND consumer IS NOT NULL").select(
        f"'{Kind.CONSUMER}' AS kind",
        *PLACE,
        "consumer",
        "now_ms AS at_ms",
        "now_ms AS seen_time_ms",
    )
