"""Apply guards, which limit a request beyond what the server does (`model.Guards`).

Two facts about an entry depend only on its owner: whether the guards spare the owner, and whether
the owner is the parking consumer.  There are few owners, so these facts are computed once per owner
and joined to the entries by keys.
"""

from __future__ import annotations

from claimlib.engine.relation import Relation
from claimlib.plans.keys import CONSUMER_KEY, GROUP, GROUP_KEY, GROUP_SQL, bytes_sql
from claimlib.plans.requests import GUARDS
from claimlib.plans.sql_terms import terms
from claimlib.schema import quote_text
from claimlib.semantics import rules

ANY_GUARD = f"({' OR '.join(f'{name} IS NOT NULL' for name in GUARDS)})"
"""The SQL condition that a request has a guard."""


def owners(
    pending: Relation, consumers: Relation, accepted: Relation, patterns: Relation
) -> Relation:
    """Return one row per owner that has entries in a group whose request has guards.

    Columns: group_key, consumer_key, `is_spared` and `is_parking` (see `rules.is_claimable`).

    Args:
        consumers: the table.  A negative time in it counts as unknown.
        accepted: `survey.judged` without the refused groups.
        patterns: one row per value of `only_from`, with the columns only_from (a glob) and pattern
            (`names.glob_pattern`).
    """
    idle_enough = rules.is_idle_enough(
        *terms("now_ms", "last_ms", "only_consumers_idle_ms", "equal_counts")
    )
    matches = f"coalesce({bytes_sql('consumer')} RLIKE pattern, false)"
    # `only_consumers_idle_ms` does not spare entries without an owner, but spares those of a
    # consumer that the table lacks.
    is_spared = (
        f"only_from IS NOT NULL AND NOT {matches}"
        " OR only_consumers_idle_ms IS NOT NULL AND consumer IS NOT NULL"
        f" AND NOT coalesce(last_ms IS NOT NULL AND {idle_enough.sql}, false)"
    )
    newest_ms = "max(coalesce(active_time_ms, seen_time_ms))"
    return pending.sql(
        f"""
        WITH guarded AS (
            SELECT {GROUP_SQL}, only_from, only_consumers_idle_ms, parking_consumer, now_ms,
                equal_counts
            FROM {{accepted}} AS accepted WHERE {ANY_GUARD}
        ), owned AS (
            SELECT /*+ BROADCAST(guarded) */ DISTINCT {GROUP_SQL}, this.consumer, only_from,
                only_consumers_idle_ms, parking_consumer, now_ms, equal_counts
            FROM {{this}} AS this JOIN guarded USING ({GROUP_SQL})
        ), known AS (
            -- A consumer may have two rows.  Both together would double its entries, so the newest
            -- time counts.
            SELECT {GROUP_SQL}, consumer, CASE WHEN {newest_ms} >= 0 THEN {newest_ms} END AS last_ms
            FROM {{consumers}} AS consumers GROUP BY {GROUP_SQL}, consumer
        )
        SELECT /*+ BROADCAST(patterns) */ {GROUP_KEY} AS group_key, {CONSUMER_KEY} AS consumer_key,
            {is_spared} AS is_spared, coalesce(consumer = parking_consumer, false) AS is_parking
        FROM owned LEFT JOIN {{patterns}} AS patterns USING (only_from)
            LEFT JOIN known USING ({GROUP_SQL}, consumer)
        """,
        accepted=accepted,
        consumers=consumers,
        patterns=patterns,
    )


def weighed(judged: Relation, examined: Relation, pending: Relation) -> Relation:
    """Return `judged` with the effect of the guards, and refuse groups that exceed a limit.

    The added columns `spared` and `parked` are numbers of entries.  They are None if the request
    has no guards, or if the group was refused before.

    Args:
        judged: `survey.judged`, with the groups' keys.
        examined: the accepted groups' candidates, see `sweep.candidates`.
        pending: all of pending, because `max_deleted_share` is a share of the group's whole PEL,
            even for a page.
    """
    claimed: str = rules.is_claimed(*terms("present", "is_claimable")).sql
    purged: str = rules.is_deleted(*terms("present")).sql
    others = ", ".join(name for name in judged.columns if name not in (*GROUP, "reason"))
    is_weighed = f"{ANY_GUARD} AND reason IS NULL"
    joined = judged.sql(
        f"""
        WITH guarded AS (
            SELECT {GROUP_SQL}, group_key, max_deleted_share FROM {{this}} AS this
            WHERE {is_weighed}
        ), sums AS (
            SELECT /*+ BROADCAST(guarded) */ group_key, count_if({claimed}) AS claims,
                count_if({claimed} AND is_exhausted) AS parked,
                count_if({purged}) AS purges,
                count_if(NOT {purged} AND is_idle_enough AND is_spared) AS spared
            FROM {{examined}} AS examined
                LEFT SEMI JOIN guarded ON examined.group_key = guarded.group_key
            WHERE is_examined GROUP BY group_key
        ), with_share AS (
            SELECT {GROUP_SQL} FROM guarded WHERE max_deleted_share IS NOT NULL
        ), sizes AS (
            SELECT /*+ BROADCAST(with_share) */ {GROUP_SQL}, count(*) AS size
            FROM {{pending}} AS pending JOIN with_share USING ({GROUP_SQL}) GROUP BY {GROUP_SQL}
        )
        SELECT {GROUP_SQL}, {others}, claims, purges, size, sums.spared AS spared,
            sums.parked AS parked, coalesce(reason, {_REASON}) AS reason
        FROM {{this}} AS this LEFT JOIN sums USING (group_key) LEFT JOIN sizes USING ({GROUP_SQL})
        """,
        examined=examined,
        pending=pending,
    )
    return joined.select(
        *GROUP,
        *(name for name in judged.columns if name not in (*GROUP, "reason")),
        "reason",
        *(
            f"CASE WHEN {is_weighed} THEN coalesce({name}, 0L) END AS {name}"
            for name in ("spared", "parked")
        ),
    )


def without_guards(judged: Relation) -> Relation:
    """Return `judged` with the columns that `weighed` adds, all None, if no request has guards."""
    none = (f"CAST(NULL AS BIGINT) AS {name}" for name in ("spared", "parked"))
    return judged.select("*", *none)


# The reason why a limit refuses a group, in the words of the reference (`semantics.scan`).  Null if
# no limit refuses the group.
_CLAIMS = "guard max_claims: %d entries would be claimed, and it allows %d"
_SHARE = (
    "guard max_deleted_share: %d of %d pending entries would be deleted, more than a share of %.4f"
)
_REASON = f"""
    CASE WHEN claims > max_claims
            THEN format_string({quote_text(_CLAIMS)}, claims, max_claims)
        WHEN try_divide(purges, size) > max_deleted_share
            THEN format_string({quote_text(_SHARE)}, purges, size, max_deleted_share)
    END
"""
