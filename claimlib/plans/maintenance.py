"""Find the rows of `journal` and the staged rows that a maintenance deletes."""

from __future__ import annotations

from claimlib.engine.relation import Relation
from claimlib.schema import Kind


def old_runs(runs: Relation, before_ms: int) -> Relation:
    """Return one row with the runs at the beginning of the history that ended before an instant.

    Columns: `through`, the last of them, 0 if there is none.  A run without times is not old.

    Args:
        runs: the table.
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
    """Return the SQL condition for journal rows that are deleted: those of runs up to a number.

    The `run` rows stay, because they name the runs.
    """
    return f"run_seq <= {through:d}L AND kind <> '{Kind.RUN}'"


def expired_landings(
    pel_snapshots: Relation, entry_landing: Relation, decisions: Relation, through: int
) -> Relation:
    """Return the readings whose staged rows are deleted, one row per reading: landing, `run_seq`.

    These are readings of runs up to a number, and readings that no run has used; of these `run_seq`
    is null.

    Args:
        pel_snapshots, entry_landing: the tables.
        decisions: the journal rows of kind `run`.
    """
    return pel_snapshots.sql(
        f"""
        WITH staged AS (
            SELECT landing FROM {{this}} AS p UNION SELECT landing FROM {{entry_landing}} AS e
        ), used AS (
            SELECT landing, max(run_seq) AS run_seq FROM {{decisions}} AS d
            WHERE landing IS NOT NULL GROUP BY landing
        )
        SELECT landing, run_seq FROM staged LEFT JOIN used USING (landing)
        WHERE run_seq IS NULL OR run_seq <= {through:d}L
        """,
        entry_landing=entry_landing,
        decisions=decisions,
    )
