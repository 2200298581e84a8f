"""Decide what happens to each id that requests name, such as requests of XCLAIM and XACK.

All requests of a run are decided at once.  The decision about one id depends only on that id and
the requests that name it, in their order.  So the ids are divided among all tasks, and each id is
folded over its requests (`kernel.fold_range`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from claimlib.engine.relation import Relation
from claimlib.plans import kernel
from claimlib.plans.assignment import counted, turn_sql, with_recipient
from claimlib.plans.column_readers import id_bits_sql
from claimlib.plans.journal_rows import name_or_error
from claimlib.plans.keys import (
    CONSUMER_KEY,
    GROUP,
    GROUP_KEY,
    GROUP_SQL,
    ID_ORDER,
    STREAM_KEY,
    each_sql,
    unsigned_sql,
)
from claimlib.plans.request_table import RequestTable, is_beyond, is_none_of
from claimlib.plans.requests import (
    CALLER_IS_SEEN,
    FOR_RULES,
    PROVEN_RANGE,
    instant,
    is_no_spelling,
)
from claimlib.plans.survey import (
    IS_INVALID,
    IS_PROVEN,
    NONE_LIVE,
    refusal,
    refusal_of_named_entries,
)
from claimlib.plans.sweep_plan import with_presence
from claimlib.schema import Kind
from claimlib.semantics.model import MAX_I64, IdleRule, Outcome, Profile

_ID = ("id_ms", "id_seq")
_KEY_SQL = ", ".join((*GROUP, *_ID))


def _is_not_an_id(name: str) -> str:
    return f"{name} IS NOT NULL AND {id_bits_sql(name)[0]} IS NULL"


def _has_invalid_id(name: str) -> str:
    return f"size(filter({name}, id -> {id_bits_sql('id')[0]} IS NULL)) > 0"


def _is_given_with_idle(name: str) -> str:
    """Return the condition that both IDLE and another option (TIME) are given."""
    return f"raw_idle_ms IS NOT NULL AND raw_{name} IS NOT NULL"


_ROW_SQL = (
    "concat_ws('', 'request ', CAST(request AS STRING), ' (', stream, '/', consumer_group, ')')"
)
_REPEATED_HINT = "each request needs its own number"
_IDS_HINT = "ids is a list (which may be empty) of ids ms-seq, none of them null"

CLAIM_COLUMNS = MappingProxyType(
    {
        "request": "BIGINT",
        "stream": "STRING",
        "consumer_group": "STRING",
        "consumer": "STRING",
        "min_idle_ms": "BIGINT",
        "ids": "ARRAY<STRING>",
        "idle_ms": "BIGINT",
        "time_ms": "BIGINT",
        "retrycount": "BIGINT",
        "force": "BOOLEAN",
        "justid": "BOOLEAN",
        "last_id": "STRING",
        "idle_rule": "STRING",
        "profile": "STRING",
    }
)
_CLAIM_OPTIONAL = ("idle_ms", "time_ms", "retrycount", "last_id")

CLAIMS = RequestTable(
    columns=CLAIM_COLUMNS,
    key=("request",),
    row_sql=_ROW_SQL,
    repeated_hint=_REPEATED_HINT,
    optional=_CLAIM_OPTIONAL,
    nullable=_CLAIM_OPTIONAL,
    hint=(
        f"{_IDS_HINT}, last_id is an id, at most one of idle_ms and time_ms is given, retrycount"
        f" is at least 0, idle_rule is one of {', '.join(IdleRule)}, profile one of"
        f" {', '.join(Profile)}, consumer is a name spelled as in the tables"
    ),
    refusals={
        "consumer": is_no_spelling,
        "ids": _has_invalid_id,
        "last_id": _is_not_an_id,
        "time_ms": _is_given_with_idle,
        "retrycount": is_beyond(0, MAX_I64),
        "idle_rule": is_none_of(IdleRule),
        "profile": is_none_of(Profile),
    },
)
"""The request table of `xclaim`: one row per XCLAIM, in the order of `request`."""

ACK_COLUMNS = MappingProxyType({name: CLAIM_COLUMNS[name] for name in ("request", *GROUP, "ids")})

ACKS = RequestTable(
    columns=ACK_COLUMNS,
    key=("request",),
    row_sql=_ROW_SQL,
    repeated_hint=_REPEATED_HINT,
    optional=(),
    nullable=(),
    hint=_IDS_HINT,
    refusals={"ids": _has_invalid_id},
)
"""The request table of `xack`: one row per XACK."""


# ------------------------------------------------------------------- requests


def claims(checked: Relation, known: Relation, now_ms: int | None) -> Relation:
    """Return one row per XCLAIM of a checked table.

    The columns are:

    - `request_number`, `stream`, `consumer_group`, `consumer`, `justid`, `profile` and `ids`;
    - `last_ms` and `last_seq`, which are None without LASTID;
    - `request`, which has the number of ids and the other options in JSON;
    - columns of `known_groups`;
    - the columns that the kernel needs: `now_ms`, `min_idle_ms` (0 if negative), `equal_counts`,
      `force`, `raise_by`, `retrycount` (-1 if not given) and `new_delivery_time_ms`.

    Args:
        now_ms: the time of the claims.  None means the time of each group's snapshot.  If a group
            has none, the column `now_ms` is None.
    """
    return _for_kernel(_of_groups(checked, CLAIM_COLUMNS, known, now_ms))


def acks(checked: Relation, known: Relation, now_ms: int | None) -> Relation:
    """Return one row per XACK, with the columns of `claims`.

    An acknowledged id leaves the PEL, whatever its idle time is.  So the kernel gets the id as if
    the stream no longer had it.
    """
    values = {"idle_rule": f"'{IdleRule.SERVER}'", "min_idle_ms": "0L"}
    constants = (
        f"CAST({values.get(name, 'false' if type_ == 'BOOLEAN' else 'NULL')} AS {type_}) AS {name}"
        for name, type_ in CLAIM_COLUMNS.items()
        if name not in ACK_COLUMNS
    )
    return _for_kernel(_of_groups(checked, ACK_COLUMNS, known, now_ms).select("*", *constants))


def _for_kernel(requests: Relation) -> Relation:
    last_ms, last_seq = id_bits_sql("last_id")
    computed = {
        "last_ms": last_ms,
        "last_seq": last_seq,
        "min_idle_ms": "greatest(min_idle_ms, 0L)",
        "retrycount": "coalesce(retrycount, -1L)",
        "new_delivery_time_ms": _NEW_DELIVERY_TIME_MS,
    }
    columns = (
        f"{computed[name]} AS {name}" if name in computed else name for name in _COMMON_COLUMNS
    )
    return requests.select(*columns, *FOR_RULES, "ids")


_COMMON_COLUMNS = (
    "request_number",
    *GROUP,
    "consumer",
    "justid",
    "profile",
    "last_ms",
    "last_seq",
    "request",
    "in_groups",
    "repeated_in",
    "ahead_in",
    *PROVEN_RANGE,
    "now_ms",
    "min_idle_ms",
    "force",
    "retrycount",
    "new_delivery_time_ms",
)
REQUEST = (*_COMMON_COLUMNS, "equal_counts", "raise_by")
"""The columns of `claims` and `acks` without `ids`."""


def _of_groups(
    checked: Relation, columns: Mapping[str, str], known: Relation, now_ms: int | None
) -> Relation:
    options = [name for name in columns if name not in {"request", *GROUP, "ids"}]
    return checked.sql(
        f"""
        SELECT /*+ BROADCAST(known) */ request AS request_number,
            {", ".join((*GROUP, "ids", *options))},
            to_json(struct({", ".join(("size(ids) AS ids", *options))})) AS request, in_groups,
            repeated_in, ahead_in, {", ".join(PROVEN_RANGE)},
            {instant(now_ms)} AS now_ms
        FROM {{this}} AS this LEFT JOIN {{known}} AS known USING ({GROUP_SQL})
        """,
        known=known,
    )


# The time of IDLE or TIME, or now if this time is before 1970 or in the future.  A negative IDLE
# means now, because its time would be in the future.  So the difference exceeds 64 bits only if
# now is before 1970, and such a group is refused.
_DATED_BACK = "CASE WHEN idle_ms >= 0 THEN try_subtract(now_ms, idle_ms) ELSE time_ms END"
_NEW_DELIVERY_TIME_MS = (
    f"CASE WHEN {_DATED_BACK} BETWEEN 0 AND now_ms THEN {_DATED_BACK} ELSE now_ms END"
)


def named_ids(requests: Relation) -> Relation:
    """Return one row per id that a request names.

    A request without ids has one row, in which the id is None.  The columns are `REQUEST`,
    `position` (from 0), id_ms and id_seq.
    """
    ids = "CASE WHEN size(ids) = 0 THEN array(CAST(NULL AS STRING)) ELSE ids END"
    exploded = requests.select(*REQUEST, f"posexplode({ids}) AS (position, id)")
    ms, seq = id_bits_sql("id")
    return exploded.select(*REQUEST, "position", f"{ms} AS id_ms", f"{seq} AS id_seq")


def handover_ids(owned: Relation, entries: Relation, claims: Relation, recipients: int) -> Relation:
    """Return the pending entries of consumers in the form of `named_ids`, named by new requests.

    There is one request per recipient.  Entries that the stream still has are distributed in turn.
    The request of the first recipient names all other entries.

    Args:
        owned: the rows of `pending` that belong to the consumers.
        entries: the rows of `entries` of their stream only, so that equal hashes of two streams do
            not matter.
        claims: the rows of `claims`, numbered from 1, one per recipient.
        recipients: the number of recipients.
    """
    by_id = ", ".join(ID_ORDER)
    return claims.sql(
        f"""
        WITH counted AS (
            SELECT id_ms, id_seq, present, {turn_sql("present", str(recipients))} AS turn
            FROM {{ids}} AS ids
        ), assigned AS (
            SELECT id_ms, id_seq, present,
                CASE WHEN present THEN turn ELSE 0L END + 1 AS request_number
            FROM counted
        ), numbered AS (
            SELECT id_ms, id_seq, request_number,
                row_number() OVER (PARTITION BY request_number ORDER BY present DESC, {by_id}) - 1
                    AS position
            FROM assigned
        )
        SELECT {", ".join(REQUEST)}, position, id_ms, id_seq
        FROM {{this}} AS this LEFT JOIN numbered USING (request_number)
        """,
        ids=with_presence(owned.select("stream_key", *_ID), entries),
    )


# ------------------------------------------------------------------- groups


_IS_OUTSIDE = f"id_ms IS NOT NULL AND NOT {IS_PROVEN}"


def groups(ids: Relation) -> Relation:
    """Return one row per (stream, consumer_group) that a request names.

    The columns are:

    - `now_ms`, and columns of `known_groups`;
    - `number_of_ids`, the number of named ids;
    - `outside`, the number of named ids outside the proven range;
    - `low_ms` and `high_ms`, the smallest and the largest BIGINT in id_ms, or None if no id is
      named.

    This takes one shuffle, of partial sums.
    """
    return ids.sql(
        f"""
        SELECT {GROUP_SQL}, {each_sql("max", "now_ms", "in_groups", "repeated_in", "ahead_in")},
            count(id_ms) AS number_of_ids, count_if({_IS_OUTSIDE}) AS outside,
            min(id_ms) AS low_ms, max(id_ms) AS high_ms
        FROM {{this}} AS this GROUP BY {GROUP_SQL}
        """
    )


def judged(
    groups: Relation, ids: Relation, pending: Relation, run_seq: int, *, any_outside: bool
) -> Relation:
    """Return `groups` with `reason`, the reason why the group is refused.  None means accepted.

    If an id is outside the proven range, its entry might be deleted.  So the group is refused if
    the id is pending, or if a request with FORCE names it.  Otherwise nothing depends on the id.

    Args:
        any_outside: False if no id is outside the proven range.
    """
    counted = _with_unusable(groups, ids, pending, run_seq)
    if not any_outside:
        return counted.select("*", "0L AS unproven").select("*", f"{refusal()} AS reason")
    unproven = ids.sql(
        f"""
        WITH outside AS (
            SELECT {_KEY_SQL}, force FROM {{this}} AS this WHERE {_IS_OUTSIDE}
        ), needed AS (
            SELECT {_KEY_SQL} FROM outside WHERE force
            UNION SELECT {_KEY_SQL} FROM outside
                LEFT SEMI JOIN {{pending}} AS pending USING ({_KEY_SQL})
        )
        SELECT {GROUP_SQL}, count(*) AS unproven FROM needed GROUP BY {GROUP_SQL}
        """,
        pending=pending,
    )
    return _joined(counted, unproven, "unproven").select("*", f"{refusal()} AS reason")


def with_refusal_by_name(
    groups: Relation, ids: Relation, pending: Relation, run_seq: int
) -> Relation:
    """Return `judged` for requests that name the entries that they remove.

    Fewer reasons refuse a group, see `survey.refusal_of_named_entries`.
    """
    counted = _with_unusable(groups, ids, pending, run_seq)
    return counted.select("*", f"{refusal_of_named_entries()} AS reason")


def with_refusal_by_recipients(
    judged: Relation, targets: Relation, recipients: Relation
) -> Relation:
    """Return `judged`.  Also refuse each group in which no consumer can receive the entries.

    Args:
        targets: the rows of `assignment.shared`.
        recipients: the rows of `assignment.recipients` for the targets.
    """
    columns = (f"this.{name}" for name in judged.columns if name != "reason")
    return judged.sql(
        f"""
        SELECT {", ".join(columns)},
            CASE WHEN reason IS NULL AND recipients IS NULL THEN {NONE_LIVE} ELSE reason END
                AS reason
        FROM {{this}} AS this LEFT JOIN {{numbers}} AS numbers USING ({GROUP_SQL})
        """,
        numbers=counted(targets, recipients).select(*GROUP, "active_within_ms", "recipients"),
    )


def distributed(decided: Relation, recipients: Relation | None) -> Relation:
    """Return `assignment.with_recipient` with one sequence of turns for all received entries."""
    return with_recipient(decided, recipients, _is_of(*_RECEIVED))


def _with_unusable(groups: Relation, ids: Relation, pending: Relation, run_seq: int) -> Relation:
    """Return `groups` with the numbers of requested rows of `pending` that cannot be used.

    The columns are `invalid` and `ahead`, see `survey.by_group`.
    """
    is_ahead = f"run_seq >= {run_seq:d}L"
    unusable = pending.where(f"{IS_INVALID} OR {is_ahead}").sql(
        f"""
        SELECT {GROUP_SQL}, count_if({IS_INVALID}) AS invalid, count_if({is_ahead}) AS ahead
        FROM {{this}} AS this LEFT SEMI JOIN {{ids}} AS ids USING ({_KEY_SQL}) GROUP BY {GROUP_SQL}
        """,
        ids=ids,
    )
    return _joined(groups, unusable, "invalid", "ahead")


def _joined(groups: Relation, counted: Relation, *counts: str) -> Relation:
    """Return the rows of groups with their counts, which are 0 for a group without counted rows."""
    numbers = ", ".join(f"coalesce(counted.{name}, 0L) AS {name}" for name in counts)
    return groups.sql(
        f"SELECT this.*, {numbers} FROM {{this}} AS this"
        f" LEFT JOIN {{counted}} AS counted USING ({GROUP_SQL})",
        counted=counted,
    )


def rows_of_accepted_groups(rows: Relation, judged: Relation) -> Relation:
    """Return the rows (of requests, or of ids) whose group is not refused."""
    return rows.sql(
        "SELECT /*+ BROADCAST(accepted) */ this.* FROM {this} AS this"
        f" LEFT SEMI JOIN {{accepted}} AS accepted USING ({GROUP_SQL})",
        accepted=judged.where("reason IS NULL").select(*GROUP),
    )


# ------------------------------------------------------------------- ids


def with_pending(ids: Relation, pending: Relation, entries: Relation | None) -> Relation:
    """Return one row per id that a request names, with the columns `kernel.BULK_INPUT`.

    Rows of one key are in one task.

    Args:
        entries: the table `entries`.  None means that it does not matter if the streams have the
            ids.  The kernel then gets the ids as if the streams did not have them.
    """
    request = (
        "request_number, position, now_ms, min_idle_ms, equal_counts, force, raise_by, retrycount,"
        " new_delivery_time_ms"
    )
    key = ", ".join(kernel.KEY)
    # Join by sort and merge, whatever size Spark estimates for `pending`, as in `with_presence`.
    rows = ids.sql(
        f"""
        WITH wanted AS (
            SELECT {request}, id_ms, id_seq, {GROUP_KEY} AS group_key, {STREAM_KEY} AS stream_key
            FROM {{this}} AS this WHERE id_ms IS NOT NULL
        ), state AS (
            SELECT {key}, {CONSUMER_KEY} AS consumer_key, consumer IS NOT NULL AS is_owned,
                true AS is_pending, delivery_time_ms, delivery_count
            FROM {{pending}} AS pending
        )
        SELECT /*+ MERGE(state) */ {key}, stream_key, {request},
            coalesce(is_pending, false) AS is_pending, coalesce(is_owned, false) AS is_owned,
            coalesce(consumer_key, 0L) AS consumer_key,
            coalesce(delivery_time_ms, 0L) AS delivery_time_ms,
            coalesce(delivery_count, 0L) AS delivery_count
        FROM wanted LEFT JOIN state USING ({key})
        """,
        pending=pending,
    )
    if entries is None:
        rows = rows.select("*", "false AS present").divided(*kernel.KEY)
    else:
        rows = with_presence(rows, entries)
    return rows.select(*kernel.BULK_INPUT)


def pending_of(ids: Relation, pending: Relation) -> Relation:
    """Return the key (`kernel.KEY`) of each row of `pending` whose id a request names.

    If several rows have the same key, it is returned several times.
    """
    key = ", ".join(kernel.KEY)
    return pending.select(*kernel.KEY).sql(
        f"SELECT this.* FROM {{this}} AS this LEFT SEMI JOIN {{wanted}} AS wanted USING ({key})",
        wanted=ids.where("id_ms IS NOT NULL").select(f"{GROUP_KEY} AS group_key", *_ID),
    )


def decisions(rows: Relation) -> Relation:
    """Return one row per row of `with_pending`, with the columns `kernel.BULK_OUTPUT`.

    This takes no shuffle.
    """
    order = ("group_key", *ID_ORDER, "request_number", "position")
    return rows.mapped(kernel.fold_range, _DECISION_TYPES, order)


_DECISION_TYPES = dict.fromkeys(kernel.BULK_OUTPUT, "BIGINT") | {
    "outcome": "TINYINT",
    "is_pending": "BOOLEAN",
}


# ------------------------------------------------------------------- journal rows

KINDS: Mapping[Outcome, Kind] = MappingProxyType(
    {
        Outcome.CLAIMED: Kind.CLAIMED,
        Outcome.FORCED: Kind.FORCED,
        Outcome.SUPERSEDED: Kind.SUPERSEDED,
        Outcome.DELETED: Kind.DELETED,
        Outcome.LEFT: Kind.LEFT,
        Outcome.NOT_PENDING: Kind.NOT_PENDING,
    }
)
ACK_KINDS = MappingProxyType({**KINDS, Outcome.DELETED: Kind.ACKED})
_RECEIVED = (Outcome.CLAIMED, Outcome.FORCED, Outcome.SUPERSEDED)
"""The outcomes with which a consumer received the entry."""


def _is_of(*outcomes: Outcome) -> str:
    """Return the condition for decisions with one of these outcomes."""
    return f"outcome IN ({', '.join(f'{outcome:d}' for outcome in outcomes)})"


def entry_rows(
    decided: Relation, accepted: Relation, owners: Relation, kinds: Mapping[Outcome, Kind]
) -> Relation:
    """Return the journal's rows about ids, one per id that a request names, with names added.

    Args:
        decided: the rows of `distributed`.
        accepted: the requests of the groups that are not refused.
        owners: the rows of `keys.owners_of_keys`.
        kinds: the kind of journal row for each outcome.
    """
    received = _is_of(*_RECEIVED)
    kind_cases = " ".join(f"WHEN {outcome:d} THEN '{kind}'" for outcome, kind in kinds.items())
    from_consumer = name_or_error("from_consumer", "from_consumer_key", "is_known")
    recipient = "coalesce(recipient, caller)"
    consumer = name_or_error(recipient, "request_number", f"{recipient} IS NOT NULL")
    # The join also compares the group.  So if the request table returns other rows the second time,
    # no request of another group is joined.
    return decided.sql(
        f"""
        WITH requests AS (
            SELECT request_number, {GROUP_KEY} AS group_key, {GROUP_SQL}, consumer AS caller,
                justid, now_ms, profile
            FROM {{accepted}} AS accepted
        )
        SELECT CASE outcome {kind_cases} END AS kind,
            {name_or_error("stream", "request_number", "stream IS NOT NULL")} AS stream,
            consumer_group, id_ms, id_seq, request_number, position,
            CASE WHEN is_pending THEN {from_consumer} END AS from_consumer,
            CASE WHEN is_pending THEN from_delivery_time_ms END AS from_delivery_time_ms,
            CASE WHEN is_pending THEN from_delivery_count END AS from_delivery_count,
            CASE WHEN {received} THEN {consumer} END AS consumer,
            CASE WHEN {received} THEN delivery_time_ms END AS delivery_time_ms,
            CASE WHEN {received} THEN delivery_count END AS delivery_count,
            CASE WHEN {received} THEN justid END AS justid,
            now_ms AS at_ms,
            CASE WHEN {received} THEN now_ms END AS seen_time_ms,
            CASE WHEN {received} AND {CALLER_IS_SEEN} THEN now_ms END AS active_time_ms
        FROM {{this}} AS this LEFT JOIN requests USING (request_number, group_key)
            LEFT JOIN {{owners}} AS owners USING (from_consumer_key)
        """,
        accepted=accepted,
        owners=owners,
    )


def request_rows(requests: Relation, judged: Relation) -> Relation:
    """Return the journal's `requested` and `refused` rows, one per request."""
    return requests.sql(
        f"""
        SELECT /*+ BROADCAST(judged) */
            CASE WHEN reason IS NULL THEN '{Kind.REQUESTED}' ELSE '{Kind.REFUSED}' END AS kind,
            {name_or_error("stream", "request_number", "is_judged IS NOT NULL")} AS stream,
            request_number, consumer_group, consumer, request, reason, now_ms AS at_ms
        FROM {{this}} AS this LEFT JOIN {{judged}} AS judged USING ({GROUP_SQL})
        """,
        judged=judged.select(*GROUP, "reason", "true AS is_judged"),
    )


def consumer_rows(accepted: Relation) -> Relation:
    """Return the journal's `consumer` rows: each caller, seen at the time of the group.

    A caller whose request names no id has a row, too.  Two kinds of requests have no row:

    - requests with the profile redis-7.0, because it creates a consumer only with its first entry;
    - requests whose entries several consumers share, because they name no caller.
    """
    return accepted.where(f"{CALLER_IS_SEEN} AND consumer IS NOT NULL").distinct(
        f"'{Kind.CONSUMER}' AS kind",
        *GROUP,
        "consumer",
        "now_ms AS at_ms",
        "now_ms AS seen_time_ms",
    )


def last_id_rows(accepted: Relation) -> Relation:
    """Return the journal's `lastid` rows: the largest LASTID of each group that has one."""
    id_order = f"struct({unsigned_sql('last_ms')}, {unsigned_sql('last_seq')})"
    return accepted.where("last_ms IS NOT NULL").sql(
        f"""
        SELECT '{Kind.LASTID}' AS kind, {GROUP_SQL}, max(now_ms) AS at_ms,
            max_by(last_ms, {id_order}) AS last_delivered_ms,
            max_by(last_seq, {id_order}) AS last_delivered_seq
        FROM {{this}} AS this GROUP BY {GROUP_SQL}
        """
    )
