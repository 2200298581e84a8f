"""State the pending entries with their owners, idle times and delivery counts, as XPENDING does.

Three results are computed from `idle_entries`: the rows of a range, the summary of a group, and the
overview of all groups.  Nothing is changed.
"""

from __future__ import annotations

from claimlib.engine.relation import Relation
from claimlib.plans.keys import GROUP, GROUP_SQL, ID_ORDER, bigint_sql, id_at_least, id_at_most
from claimlib.plans.requests import instant
from claimlib.schema import quote_text
from claimlib.semantics.ids import to_bigint
from claimlib.semantics.model import PendingRange
from claimlib.semantics.names import spell

# The overview counts entries with at least these numbers of deliveries, in the columns
# `delivered_5_plus` and `delivered_10_plus`.
OFTEN, VERY_OFTEN = 5, 10
_INT_MAX = 2**31 - 1


def instants(groups: Relation, now_ms: int | None) -> Relation:
    """Return one row per (stream, consumer_group) of `groups`, even if the table has two rows.

    Columns: stream, consumer_group, `snapshot_ms` (the time of the group's snapshot) and `now_ms`
    (the time for which idle times are computed).  They are None if they are unknown.

    Args:
        now_ms: see `requests.instant`.
    """
    return groups.sql(
        f"SELECT {GROUP_SQL}, min(snapshot_ms) AS snapshot_ms, min({instant(now_ms)}) AS now_ms"
        f" FROM {{this}} AS this GROUP BY {GROUP_SQL}"
    )


def idle_entries(pending: Relation, groups: Relation, now_ms: int | None) -> Relation:
    """Return one row per pending entry.

    Columns: stream, consumer_group, id_ms, id_seq, consumer, delivery_time_ms, delivery_count,
    now_ms, idle_ms.  `now_ms` is the given time, or else the time of the group's snapshot.  idle_ms
    is the idle time at `now_ms`.  It is None if `now_ms` is unknown, and negative if the entry was
    delivered later.
    """
    return pending.sql(
        f"""
        SELECT /*+ BROADCAST(known) */ {GROUP_SQL}, id_ms, id_seq, consumer, delivery_time_ms,
            delivery_count, now_ms, try_subtract(now_ms, delivery_time_ms) AS idle_ms
        FROM {{this}} AS this LEFT JOIN {{known}} AS known USING ({GROUP_SQL})
        """,
        known=instants(groups, now_ms),
    )


def in_range(entries: Relation, query: PendingRange) -> Relation:
    """Return the rows of one group that the range form of XPENDING shows, sorted by id.

    Args:
        entries: the rows of `idle_entries` of the group.
    """
    limit = min(max(query.count, 0), _INT_MAX)
    return matching(entries, query).order_by(*ID_ORDER).limit(limit)


def matching(entries: Relation, query: PendingRange, min_deliveries: int = 0) -> Relation:
    """Return the rows of `idle_entries` that match the range form of XPENDING.

    They are not sorted, and not limited to `query.count`.  idle_ms is 0 if an entry was delivered
    after `now_ms`.

    Args:
        min_deliveries: the smallest delivery count of an entry.  0 means any.
    """
    start, end = (
        [bigint_sql(to_bigint(half)) for half in (bound.ms, bound.seq)]
        for bound in (query.start, query.end)
    )
    conditions = [
        id_at_least("id_ms", "id_seq", *start),
        id_at_most("id_ms", "id_seq", *end),
    ]
    if query.consumer is not None:
        conditions.append(f"consumer = {quote_text(spell(query.consumer))}")
    if query.min_idle_ms:  # with 0, entries delivered in the future match, too
        conditions.append(f"idle_ms >= {query.min_idle_ms:d}")
    if min_deliveries:
        conditions.append(f"delivery_count >= {min_deliveries:d}")
    # `greatest` is not used, because it skips a null, and an unknown idle time is not 0.
    return entries.where(" AND ".join(conditions)).select(
        *GROUP,
        "id_ms",
        "id_seq",
        "consumer",
        "CASE WHEN idle_ms < 0 THEN 0L ELSE idle_ms END AS idle_ms",
        "delivery_time_ms",
        "delivery_count",
    )


def numbers(entries: Relation) -> Relation:
    """Return one row: the number of `entries`, and of their `groups`."""
    return entries.sql(
        f"""
        SELECT coalesce(sum(number), 0L) AS entries, count(*) AS groups
        FROM (SELECT count(*) AS number FROM {{this}} AS this GROUP BY {GROUP_SQL}) AS of_groups
        """
    )


def with_short_fields(rows: Relation, most_bytes: int) -> Relation:
    """Return rows in which each name and value of `fields` is cut to its first bytes.

    The added column `payload_bytes` is the size of all names and values before the cut, or None if
    `fields` is None.  The engine cuts a payload, because it may be larger than the memory of this
    process.

    Args:
        most_bytes: the number of bytes to which a name or value is cut.
    """
    others = (name for name in rows.columns if name != "fields")
    name, value = (f"unhex(left(hex(f.{part}), {2 * most_bytes:d})) AS {part}" for part in _PARTS)
    size = " + ".join(f"CAST(octet_length(f.{part}) AS BIGINT)" for part in _PARTS)
    return rows.select(
        *others,
        f"transform(fields, f -> struct({name}, {value})) AS fields",
        f"aggregate(transform(fields, f -> {size}), 0L, (x, y) -> x + y) AS payload_bytes",
    )


_PARTS = ("name", "value")


def shares(entries: Relation) -> Relation:
    """Return one row per (stream, consumer_group, consumer) that owns entries.

    The consumer of entries without an owner is None.  Columns: stream, consumer_group, consumer,
    `pending` (the number of entries), `low_ms` and `low_seq` (the smallest id), `high_ms` and
    `high_seq` (the largest id).
    """
    return entries.sql(
        f"""
        SELECT {GROUP_SQL}, consumer, pending, low.id_ms AS low_ms, low.id_seq AS low_seq,
            high.id_ms AS high_ms, high.id_seq AS high_seq
        FROM (
            SELECT {GROUP_SQL}, consumer, count(*) AS pending,
                min_by(id, sortable) AS low, max_by(id, sortable) AS high
            FROM (
                SELECT {GROUP_SQL}, consumer, struct(id_ms, id_seq) AS id,
                    struct({ID_ORDER[0]} AS ms, {ID_ORDER[1]} AS seq) AS sortable
                FROM {{this}} AS this
            ) AS entries
            GROUP BY {GROUP_SQL}, consumer
        ) AS shares
        """
    )


def owners(entries: Relation, stalled_ms: int) -> Relation:
    """Return one row per (stream, consumer_group, consumer) that owns entries.

    The consumer of entries without an owner is None.  Columns: stream, consumer_group, consumer,
    `pending` (the number of entries), oldest_idle_ms, oldest_delivery_time_ms,
    highest_delivery_count, `now_ms`, `stalled`, `delivered_5_plus` and `delivered_10_plus`.
    `stalled` is the number of entries that are idle for `stalled_ms` or longer.  `stalled` and
    oldest_idle_ms are None if idle times are unknown.  This takes one shuffle, of partial sums.

    The ids of `shares` are not included, because a struct among the sums would make Spark sort all
    entries.
    """
    return entries.sql(
        f"""
        SELECT {GROUP_SQL}, consumer, count(*) AS pending, max(idle_ms) AS oldest_idle_ms,
            min(delivery_time_ms) AS oldest_delivery_time_ms,
            max(delivery_count) AS highest_delivery_count, max(now_ms) AS now_ms,
            sum(CAST(idle_ms >= {stalled_ms:d} AS BIGINT)) AS stalled,
            count_if(delivery_count >= {OFTEN:d}) AS delivered_5_plus,
            count_if(delivery_count >= {VERY_OFTEN:d}) AS delivered_10_plus
        FROM {{this}} AS this GROUP BY {GROUP_SQL}, consumer
        """
    )


def overview(
    by_owner: Relation,
    groups: Relation,
    consumers: Relation,
    stalled_ms: int,
    now_ms: int | None,
    changed: Relation | None = None,
    *,
    shows_server: bool = False,
) -> Relation:
    """Return one row per (stream, consumer_group) that is in the table groups or has entries.

    Columns:

    - `is_known`: true if the table groups has the group.
    - snapshot_ms and now_ms: see `instants`.
    - pending, and the sums, maxima and minima of the columns of `owners`.
    - `owners`: the number of consumers that own entries.
    - `idle_owners`: the number of owners whose last activity was `stalled_ms` or longer before
      now_ms.  If a consumer has no active time, its seen time counts.  None if no such time is
      known.
    - `unknown_owners`: the number of owners that have no row in `consumers`.
    - `changed_by_runs`: the number of entries that runs have changed since the snapshot.  None if
      the store mirrors no server.

    Args:
        by_owner: `owners`.
        changed: `server_view_plan.number_by_group`.  None if the store mirrors no server.
        shows_server: True if the entries are those of the server (`server_view.as_on_server`).
            Then `idle_owners` and `unknown_owners` are None in groups that runs have changed since
            the snapshot, because `consumers` is in the state after the last run.
    """
    is_owner = "consumer IS NOT NULL"
    # For entries without an owner this is null, and not false, so that `sum` skips them.
    is_idle = f"CASE WHEN {is_owner} THEN try_subtract(now_ms, last_ms) >= {stalled_ms:d} END"
    sums = (f"sum({name}) AS {name}" for name in ("pending", *_SUMS))
    maxima = (f"max({name}) AS {name}" for name in ("oldest_idle_ms", "highest_delivery_count"))
    changed_sql = (
        f"CAST(NULL AS BIGINT) AS {CHANGED}"
        if changed is None
        else f"coalesce({CHANGED}, 0L) AS {CHANGED}"
    )
    others = {} if changed is None else {"changed": changed}
    join = "" if changed is None else f"LEFT JOIN {{changed}} AS changed USING ({GROUP_SQL})"
    rows = by_owner.sql(
        f"""
        WITH known AS (
            SELECT {GROUP_SQL}, consumer, max(coalesce(active_time_ms, seen_time_ms)) AS last_ms
            FROM {{consumers}} AS consumers GROUP BY {GROUP_SQL}, consumer
        ), by_group AS (
            SELECT {GROUP_SQL}, {", ".join((*sums, *maxima))},
                min(oldest_delivery_time_ms) AS oldest_delivery_time_ms,
                count_if({is_owner}) AS owners,
                sum(CAST({is_idle} AS BIGINT)) AS idle_owners,
                count_if({is_owner} AND last_ms IS NULL) AS unknown_owners
            FROM {{this}} AS this LEFT JOIN known USING ({GROUP_SQL}, consumer)
            GROUP BY {GROUP_SQL}
        ), listed AS (
            SELECT *, true AS is_known FROM {{instants}} AS instants
        )
        SELECT {GROUP_SQL}, is_known, snapshot_ms, now_ms, {_REST}, {changed_sql}
        FROM listed FULL JOIN by_group USING ({GROUP_SQL}) {join}
        """,
        consumers=consumers,
        instants=instants(groups, now_ms),
        **others,
    )
    return rows.select(*GROUP, *(_shown(name, shows_server=shows_server) for name in OVERVIEW))


_OF_ACTIVITY = ("idle_owners", "unknown_owners")
_SUMS = ("stalled", "delivered_5_plus", "delivered_10_plus")
_REST = ", ".join(
    (
        "pending",
        "oldest_idle_ms",
        "oldest_delivery_time_ms",
        "highest_delivery_count",
        *_SUMS,
        "owners",
        "idle_owners",
        "unknown_owners",
    )
)
CHANGED = "changed_by_runs"
"""The column of an overview with the number of entries that runs have changed since the snapshot.
"""
OVERVIEW = (
    "is_known",
    "snapshot_ms",
    "now_ms",
    "pending",
    "stalled",
    "oldest_idle_ms",
    "oldest_delivery_time_ms",
    "highest_delivery_count",
    "delivered_5_plus",
    "delivered_10_plus",
    "owners",
    "idle_owners",
    "unknown_owners",
    CHANGED,
)
# Map each number of some entries or owners to the number of all of them.  If there are none at all,
# the number is 0.  Otherwise null means that it is unknown.
_WHOLE = {"stalled": "pending", "idle_owners": "owners", "unknown_owners": "owners"}


def _shown(name: str, *, shows_server: bool) -> str:
    """Return SQL for a column of the overview."""
    if name == "is_known":
        return "coalesce(is_known, false) AS is_known"
    if name in ("pending", "delivered_5_plus", "delivered_10_plus", "owners"):
        return f"coalesce({name}, 0L) AS {name}"
    if name not in _WHOLE:
        return name
    known = (
        f"CASE WHEN {CHANGED} = 0 THEN {name} END"
        if shows_server and name in _OF_ACTIVITY
        else name
    )
    return f"CASE WHEN coalesce({_WHOLE[name]}, 0) = 0 THEN 0L ELSE {known} END AS {name}"
