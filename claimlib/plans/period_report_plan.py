"""State the numbers of a report on the runs of a period.  Each function returns aggregates."""

from __future__ import annotations

from claimlib.engine.relation import Relation
from claimlib.plans.keys import ENTRY_SQL, GROUP_SQL

COUNTS = ("claimed", "deleted", "acked", "lost", "refused")
"""The counts of runs that a report on a period adds up."""


def totals(runs: Relation) -> Relation:
    """Return one row with sums over runs.

    Columns: the number of `runs`, the first and the last run number, and the sums of `COUNTS`.

    Args:
        runs: rows of the table `runs`.
    """
    sums = (f"coalesce(sum(counts['{name}']), 0L) AS {name}" for name in COUNTS)
    bounds = ("min(run_seq) AS first_run", "max(run_seq) AS last_run")
    return runs.select("count(*) AS runs", *bounds, *sums)


def by_run(claims: Relation, swept: Relation) -> Relation:
    """Return one row per run: run_seq, `pending` and `claimed_again`.

    `pending` is the number of pending entries before the run, in the groups that the run swept as a
    whole.  It is None if the run swept no whole group.  `claimed_again` is the number of entries of
    the run that an earlier run in `claims` had claimed, too.

    Args:
        claims: the journal rows of kind `claimed` of several runs that were applied.
        swept: the journal rows of kind `swept` of the same runs.
    """
    return claims.sql(
        f"""
        SELECT run_seq, sum(pending) AS pending, coalesce(sum(again), 0L) AS claimed_again
        FROM (
            SELECT run_seq, CAST(NULL AS BIGINT) AS pending, CAST(turn > 1 AS BIGINT) AS again
            FROM (
                SELECT run_seq,
                    row_number() OVER (PARTITION BY {ENTRY_SQL} ORDER BY run_seq) AS turn
                FROM {{this}} AS this
            ) AS turns
            UNION ALL SELECT run_seq, pending_before, 0L FROM {{swept}} AS swept
        ) AS facts
        GROUP BY run_seq
        """,
        swept=swept,
    )


def worse_groups(swept: Relation) -> Relation:
    """Return one row per group that had more pending entries in its last sweep than in its first.

    Columns: stream, consumer_group, `pending_first`, `pending_last`, `sweeps` (the number of
    sweeps).

    Args:
        swept: see `by_run`.
    """
    return swept.where("pending_before IS NOT NULL").sql(
        f"""
        SELECT * FROM (
            SELECT {GROUP_SQL}, min_by(pending_before, run_seq) AS pending_first,
                max_by(pending_before, run_seq) AS pending_last, count(*) AS sweeps
            FROM {{this}} AS this GROUP BY {GROUP_SQL}
        ) AS groups
        WHERE pending_last > pending_first
        """
    )


def losing_consumers(claims: Relation) -> Relation:
    """Return one row per consumer from which several runs took entries.

    Columns: stream, consumer_group, consumer, `runs` (the number of these runs) and `entries` (the
    number of entries that they took).

    Args:
        claims: see `by_run`.
    """
    is_taken = "from_consumer IS NOT NULL AND NOT (from_consumer <=> consumer)"
    return claims.where(is_taken).sql(
        f"""
        SELECT * FROM (
            SELECT {GROUP_SQL}, from_consumer AS consumer, count(DISTINCT run_seq) AS runs,
                count(*) AS entries
            FROM {{this}} AS this GROUP BY {GROUP_SQL}, from_consumer
        ) AS consumers
        WHERE runs > 1
        """
    )
