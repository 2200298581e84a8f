"""Survey each group's PEL, and decide if the group must be refused.

The survey is one pass over `pending` before anything is decided.  A group with invalid rows is
refused, with a reason that has their number.  The other groups continue.
"""

from __future__ import annotations

from claimlib.engine.relation import Relation
from claimlib.plans.keys import GROUP, GROUP_SQL, ID_ORDER, id_at_least, id_at_most, id_text_sql
from claimlib.plans.requests import IS_REQUESTED, PROVEN_RANGE
from claimlib.plans.sql_terms import terms
from claimlib.schema import quote_text
from claimlib.semantics import rules


def by_group(pending: Relation, surveyed: Relation, run_seq: int) -> Relation:
    """Return the survey: one row per (stream, consumer_group) that has entries.

    For a request of a page, only the page's rows are surveyed.

    Columns:

    - stream, consumer_group.
    - `pending_before`: the number of surveyed rows.
    - `invalid`: the number of rows with a negative time or count.
    - `ahead`: the number of rows with a run_seq of `run_seq` or more.
    - `unproven`: the number of examined rows outside the proven range.
    - `at_boundary`: the number of examined rows that are idle for exactly min_idle_ms.
    - `delivered_later`: the number of rows delivered after the time of the request (`now_ms`).
    - `oldest_delivery_time_ms`, `highest_delivery_count`.
    - `low_ms`, `high_ms`: the smallest and the largest BIGINT in id_ms.

    This takes one shuffle, of partial sums.

    Args:
        surveyed: `surveyed_of`.
        run_seq: the number of the run.
    """
    return pending.sql(
        f"""
        SELECT /*+ BROADCAST(surveyed) */ {GROUP_SQL}, {", ".join(_sums(run_seq))}
        FROM {{this}} AS this LEFT JOIN {{surveyed}} AS surveyed USING ({GROUP_SQL})
        WHERE {_IS_COUNTED} GROUP BY {GROUP_SQL}
        """,
        surveyed=surveyed,
    )


def surveyed_of(targets: Relation) -> Relation:
    """Return the columns of `requests.standing` that `by_group` needs, one row per request."""
    return targets.where(IS_REQUESTED).select(*GROUP, *_SURVEYED)


def _sums(run_seq: int) -> list[str]:
    # Rows with invalid times are excluded, because their difference could exceed 64 bits.
    comparable = f"{IS_EXAMINED} AND NOT {IS_INVALID} AND now_ms >= 0"
    boundary = rules.at_boundary(*terms("now_ms", "delivery_time_ms", "min_idle_ms")).sql
    conditions = {
        "pending_before": "true",
        "invalid": IS_INVALID,
        "ahead": f"run_seq >= {run_seq:d}L",
        "unproven": f"{IS_EXAMINED} AND NOT {IS_PROVEN}",
        "delivered_later": "delivery_time_ms > now_ms",
        "at_boundary": f"CASE WHEN {comparable} THEN {boundary} END",
    }
    return [
        *(
            f"count(*) FILTER (WHERE {condition}) AS {name}"
            for name, condition in conditions.items()
        ),
        "min(delivery_time_ms) AS oldest_delivery_time_ms",
        "max(delivery_count) AS highest_delivery_count",
        "min(id_ms) AS low_ms",
        "max(id_ms) AS high_ms",
    ]


_COUNTS = ("pending_before", "invalid", "ahead", "unproven", "at_boundary", "delivered_later")

UNKNOWN_GROUP = "unknown group: it is not in the table groups"
NOT_IN_GROUPS = " (it is not in the table groups)"
"""The words that are added to the server's message about a group that the table groups lacks."""
NO_SNAPSHOT_TIME = "the group has no snapshot time: give --now, or import it with snapshot_ms"
NO_PROOF = (
    "pending ids whose entries may have been deleted, because the store does not have the whole"
    " stream"
)
NO_PROOF_REMEDY = "Take a new snapshot, or import again with --streams or --entries-complete"
TWICE = "duplicate key"
AHEAD = "a run_seq that no run of this store has had (copied from another store?)"


_AT_LEAST_FROM = id_at_least("id_ms", "id_seq", "complete_from_ms", "complete_from_seq")
_AT_MOST_TO = id_at_most("id_ms", "id_seq", "complete_to_ms", "complete_to_seq")
IS_PROVEN = f"coalesce({_AT_LEAST_FROM} AND {_AT_MOST_TO}, false)"
"""The SQL condition that a pending id is in its stream's proven range.

The condition is false if the stream has no proven range.
"""

_FROM_START = id_at_least("id_ms", "id_seq", "start_ms", "start_seq")
_UP_TO_END = id_at_most("id_ms", "id_seq", "page_end_ms", "page_end_seq")
IS_EXAMINED = f"({_FROM_START} AND (page_end_ms IS NULL OR {_UP_TO_END}))"
"""The SQL condition that a pending row is at or after the request's start, and in its page."""

_IS_COUNTED = f"count IS NULL OR {IS_EXAMINED}"

IS_INVALID = "(delivery_time_ms < 0 OR delivery_count < 0)"
"""The SQL condition that a pending row has an impossible time or count."""

_SURVEYED = (
    "start_ms",
    "start_seq",
    "page_end_ms",
    "page_end_seq",
    "count",
    "now_ms",
    "min_idle_ms",
    *PROVEN_RANGE,
)


def judged(targets: Relation, sums: Relation, unrequested: str) -> Relation:
    """Return one row per requested group, and one per unknown group that would be requested.

    An unknown group has pending entries, but the table groups lacks it.  A row has the columns of
    `targets`, those of `by_group`, and `reason`.  This is the reason why the group is refused, or
    None if the group is accepted.  If no entry is pending, the counts are 0, and the other columns
    of `by_group` are None.

    Args:
        targets: `requests.standing` with `assignment.counted`.
        sums: `by_group`.
        unrequested: the SQL condition that a group of this name would be requested if the table
            groups had it.
    """
    of_targets = (name for name in targets.columns if name not in GROUP)
    counts = (f"coalesce({name}, 0L) AS {name}" for name in _COUNTS)
    with_sums = targets.sql(
        f"""
        SELECT {GROUP_SQL}, {", ".join((*of_targets, *counts, *_OTHER_SUMS))}
        FROM {{this}} AS this FULL JOIN {{sums}} AS sums USING ({GROUP_SQL})
        """,
        sums=sums,
    )
    is_requested = f"{IS_REQUESTED} OR (in_groups IS NULL AND {unrequested})"
    none_live = ("consumer IS NULL AND recipients IS NULL AND pending_before > 0", NONE_LIVE)
    reason = _first_reason(_UNKNOWN, *_UNUSABLE, none_live)
    return with_sums.where(is_requested).select("*", f"{reason} AS reason")


_OTHER_SUMS = ("oldest_delivery_time_ms", "highest_delivery_count", "low_ms", "high_ms")
_REPAIR = "claimlib check prints the statement that repairs it"


def _formatted(text: str, *values: str) -> str:
    """Return SQL for a text in which each `%s` is replaced by one of the values, which are SQL."""
    texts = (f"CAST({value} AS STRING)" for value in values)
    return f"format_string({', '.join((quote_text(text), *texts))})"


_BREAKS = quote_text("\r\n")
_UNKNOWN = (
    "in_groups IS NULL",
    # In the words of the server (`semantics.words.no_group`).
    _formatted(
        f"NOGROUP No such key '%s' or consumer group '%s'{NOT_IN_GROUPS}",
        *(f"translate({name}, {_BREAKS}, '  ')" for name in GROUP),
    ),
)
_AHEAD = ("ahead > 0", _formatted(f"rows of pending with {AHEAD}: %s; {_REPAIR}", "ahead"))
_UNUSABLE = (
    (
        "repeated_in IS NOT NULL",
        _formatted(f"{TWICE} in %s: delete all rows of the key but one", "repeated_in"),
    ),
    ("ahead_in IS NOT NULL", _formatted(f"%s has a row with {AHEAD}; {_REPAIR}", "ahead_in")),
    _AHEAD,
    ("now_ms IS NULL OR now_ms < 0", quote_text(NO_SNAPSHOT_TIME)),
    (
        "invalid > 0",
        _formatted(
            "rows of pending with a negative delivery_time_ms or delivery_count: %s", "invalid"
        ),
    ),
    (
        "unproven > 0",
        _formatted(f"{NO_PROOF}: %s. {NO_PROOF_REMEDY}", "unproven"),
    ),
)

NONE_LIVE = _formatted(
    "no live consumer: none of the group received an entry in the %s ms before its snapshot"
    " (or --now). Type a longer time (--assign live:DURATION), or name consumers (--consumer)",
    "active_within_ms",
)
"""SQL for the reason why a group is refused if its request finds no live consumer."""


def refusal() -> str:
    """Return SQL for the first reason why a group is refused, or for null if it is accepted."""
    return _first_reason(_UNKNOWN, *_UNUSABLE)


def refusal_of_named_entries() -> str:
    """Return SQL for the reason why a group is refused by a request that only names entries.

    Such a request needs no time, no proof, and no sound delivery times and counts.  The SQL is null
    if the group is accepted.
    """
    return _first_reason(_UNKNOWN, _AHEAD)


def _first_reason(*reasons: tuple[str, str]) -> str:
    cases = " ".join(f"WHEN {condition} THEN {reason}" for condition, reason in reasons)
    return f"CASE {cases} END"


def without_duplicates(judged: Relation, touched: Relation) -> Relation:
    """Return `judged`, in which groups are refused if two of their touched rows have the same id.

    The reason names the smallest such id.

    Args:
        touched: `sweep.touched`, the rows that the requests of the accepted groups would change.
    """
    text = quote_text(f"{TWICE}: ids that occur more than once in pending: %s, the first is %s")
    sortable = ", ".join(ID_ORDER)
    others = ", ".join(f"this.{name} AS {name}" for name in judged.columns if name != "reason")
    return judged.sql(
        f"""
        WITH copies AS (
            SELECT group_key, id_ms, id_seq FROM {{touched}} AS touched
            GROUP BY group_key, id_ms, id_seq HAVING count(*) > 1
        ), twice AS (
            SELECT group_key, format_string({text}, CAST(count(*) AS STRING),
                min_by({id_text_sql()}, struct({sortable}))) AS repeated
            FROM copies GROUP BY group_key
        )
        SELECT {others}, coalesce(this.reason, twice.repeated) AS reason
        FROM {{this}} AS this LEFT JOIN twice ON {_KEY_OF_THIS} = twice.group_key
        """,
        touched=touched,
    )


_KEY_OF_THIS = "xxhash64(this.stream, this.consumer_group)"
