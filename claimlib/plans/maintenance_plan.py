"""Find the rows of `journal` and the staged rows that `maintain` deletes."""

from __future__ import annotations

from claimlib.engine.relation import Relation
from claimlib.schema import Kind


def old_runs(runs: Relation, before_ms: int) -> Relation:
    """Return the last run before the first run that is not old.

    A run is old if it ended before a time.  A run without times is not old.  The result is one row
    with the column `through`: the number of that last run, or 0 if there is no such run.

    Args:
        runs: the table.
        before_ms: the time.
    """
    return runs.sql(
        f"""
        SELECT coalesce(
            min(CASE WHEN NOT coalesce(ended_ms < {before_ms:d}L, false) THEN run_seq END) - 1L,
            max(run_seq),
            0L
        ) AS through
        FROM {{this}} AS this
        """
    )


def is_deleted(through: int) -> str:
    """Return the SQL condition for the journal rows that are deleted.

    These are rows of the runs up to the number `through`.  The `run` rows stay, because they name
    the runs.
    """
    return f"run_seq <= {through:d}L AND kind <> '{Kind.RUN}'"


def expired_landings(
    staged: Relation, ended: Relation, decisions: Relation, through: int
) -> Relation:
    """Return the readings whose staged rows are deleted, one row per reading.

    The only column is landing.  These are the readings of the runs up to a number, and the ended
    readings that no run has used.

    Args:
        staged: the readings with staged rows, in a column landing.
        ended: those readings of `staged` to which no process still adds rows.
        decisions: the journal rows of kind `run`.
        through: the number of the last of these runs.
    """
    return staged.sql(
        f"""
        WITH used AS (
            SELECT landing, max(run_seq) AS run_seq FROM {{decisions}} AS d
            WHERE landing IS NOT NULL GROUP BY landing
        ), complete AS (
            SELECT landing, true AS has_ended FROM {{ended}} AS e GROUP BY landing
        )
        SELECT DISTINCT landing
        FROM {{this}} AS s LEFT JOIN used USING (landing) LEFT JOIN complete USING (landing)
        WHERE CASE WHEN run_seq IS NULL THEN has_ended ELSE run_seq <= {through:d}L END
        """,
        ended=ended,
        decisions=decisions,
    )
