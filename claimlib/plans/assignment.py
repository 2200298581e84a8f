"""Assign claimed entries to consumers, if several consumers share them.

Entries are distributed in turn.  They are numbered from 0 in the order of their ids.  Entry n goes
to recipient n modulo the number of recipients.
"""

from __future__ import annotations

from collections.abc import Sequence

from claimlib.engine.relation import Relation, union_all
from claimlib.plans.keys import GROUP, GROUP_KEY, GROUP_SQL, ID_ORDER, bigint_sql
from claimlib.schema import quote_text


def turn_sql(partition: str, recipients: str) -> str:
    """Return SQL for the number (from 0) of the recipient that gets an entry.

    One task counts the entries that are distributed together.  Rows with equal ids get the same
    number.

    Args:
        partition: the columns that are equal for entries that are distributed together.
        recipients: the number of recipients, as SQL.
    """
    by_id = f"dense_rank() OVER (PARTITION BY {partition} ORDER BY {', '.join(ID_ORDER)})"
    return f"CAST(({by_id} - 1) % {recipients} AS BIGINT)"


def shared(groups: Relation, consumers: Sequence[str], active_within_ms: int | None) -> Relation:
    """Return groups with the columns that `recipients` reads.  All groups get the same values.

    Args:
        groups: the groups, with the columns stream, consumer_group and now_ms.
        consumers: the spelled names of the recipients.  Empty if active_within_ms is given.
        active_within_ms: the time within which a consumer must have been active to be a recipient.
            None if consumers are given.
    """
    names = f"array({', '.join(map(quote_text, consumers))})" if consumers else "NULL"
    within = "NULL" if active_within_ms is None else bigint_sql(active_within_ms)
    return groups.select(
        *GROUP,
        "now_ms",
        f"CAST({names} AS ARRAY<STRING>) AS consumers",
        f"CAST({within} AS BIGINT) AS active_within_ms",
        "CAST(NULL AS STRING) AS parking_consumer",
    )


def recipients(targets: Relation, consumers: Relation, pending: Relation) -> Relation:
    """Return one row per consumer that shares the claimed entries of its group.

    Columns: stream, consumer_group, `turn` (from 0) and consumer.  If the request of a group names
    a single consumer, the group has no rows.

    Args:
        targets: the rows of `requests.standing` or `shared`.
        consumers, pending: the tables before the run.
    """
    named = targets.where("consumers IS NOT NULL").select(
        *GROUP, "posexplode(consumers) AS (turn, consumer)"
    )
    columns = (*GROUP, "CAST(turn AS BIGINT) AS turn", "consumer")
    return union_all([named.select(*columns), _live(targets, consumers, pending).select(*columns)])


def _live(targets: Relation, consumers: Relation, pending: Relation) -> Relation:
    """Return the recipients of the requests with active_within_ms.

    They are the consumers of the group that were active within this time.  The parking consumer is
    excluded, and so are consumers that were never active.  Consumers with fewer pending entries
    come first.  Consumers with equal numbers of entries are ordered by name.
    """
    return consumers.sql(
        f"""
        WITH wanted AS (
            SELECT {GROUP_SQL}, try_subtract(now_ms, active_within_ms) AS since_ms, parking_consumer
            FROM {{targets}} AS targets WHERE active_within_ms IS NOT NULL
        ), live AS (
            SELECT /*+ BROADCAST(wanted) */ DISTINCT {GROUP_SQL}, consumer
            FROM {{this}} AS this JOIN wanted USING ({GROUP_SQL})
            WHERE active_time_ms >= since_ms AND NOT consumer <=> parking_consumer
        ), loads AS (
            SELECT {GROUP_SQL}, consumer, count(*) AS load
            FROM {{pending}} AS pending LEFT SEMI JOIN live USING ({GROUP_SQL}, consumer)
            GROUP BY {GROUP_SQL}, consumer
        )
        SELECT {GROUP_SQL}, consumer,
            row_number() OVER (PARTITION BY {GROUP_SQL} ORDER BY coalesce(load, 0L), consumer) - 1
                AS turn
        FROM live LEFT JOIN loads USING ({GROUP_SQL}, consumer)
        """,
        targets=targets,
        pending=pending,
    )


def counted(targets: Relation, recipients: Relation | None) -> Relation:
    """Return `targets` with the column `recipients`: the number of recipients of the group.

    The number is None if the group has no recipients.
    """
    if recipients is None:
        return targets.select("*", "CAST(NULL AS BIGINT) AS recipients")
    return targets.sql(
        f"SELECT * FROM {{this}} AS this LEFT JOIN (SELECT {GROUP_SQL}, count(*) AS recipients"
        f" FROM {{shared}} AS shared GROUP BY {GROUP_SQL}) AS numbers USING ({GROUP_SQL})",
        shared=recipients,
    )


def with_recipient(
    decided: Relation, recipients: Relation | None, together: str = "outcome"
) -> Relation:
    """Return decisions about entries with the column `recipient`: the consumer that gets the entry.

    The recipient is None if the request of the group names a single consumer, which gets all
    entries.  Entries are numbered separately for each value of `together`.  So parked entries, for
    example, do not use up the turns of claimed entries.

    Args:
        decided: the rows of `sweep.decisions` or `bulk.decisions`.
        recipients: the rows of `recipients`, or None if each request names a single consumer.
        together: SQL that is equal for the entries of a group that are distributed together.
    """
    if recipients is None:
        return decided.select("*", "CAST(NULL AS STRING) AS recipient")
    return decided.sql(
        f"""
        WITH sharing AS (
            SELECT {GROUP_KEY} AS group_key, turn, consumer AS recipient
            FROM {{recipients}} AS recipients
        ), numbers AS (
            SELECT group_key, count(*) AS number FROM sharing GROUP BY group_key
        ), numbered AS (
            SELECT this.*, {turn_sql(f"this.group_key, {together}", "number")} AS turn
            FROM {{this}} AS this LEFT JOIN numbers ON this.group_key = numbers.group_key
        )
        SELECT * FROM numbered LEFT JOIN sharing USING (group_key, turn)
        """,
        recipients=recipients,
    )
