"""Compare a store with the state that follows from its journal and its last snapshots or imports.

The state of a pending entry follows from the last reading of its group (`pel_snapshots`) and from
the journal rows of later runs.  A group that was never read from a source has no such base.  In
such a group, only the entries that a run changed are compared.

Except for `incomplete_sources`, each function returns one row per kind of difference, with the
columns of `plans.check_plan.problems`.
"""

from __future__ import annotations

from collections.abc import Collection

from claimlib.engine.relation import Relation
from claimlib.plans.journal_rows import REMOVED, of_kinds
from claimlib.plans.keys import ENTRY, ENTRY_SQL, GROUP_SQL, key_json_sql, same_entry
from claimlib.schema import TABLES, Kind, quote_text

_STATE = ("consumer", "delivery_time_ms", "delivery_count")
# The rank of all differences among the problems of a store (`plans.check_plan`).
_RANK = 9
_ADDED = "entries that another writer added, or that a run did not remove"
_REMOVED = "entries that another writer removed, or that a run did not add"
_CHANGED = "entries that another writer changed, or that a run did not change"
_NO_TOMBSTONE = "deleted entries without a tombstone"
_NO_DELETION = "tombstones of entries that no run deleted"
_COUNTS = "counts of runs that differ from the number of their journal rows"
_GENERATED = "rows in another bucket, or with another key, than their names give"


def _problems(differences: Relation, table: str, key: str) -> Relation:
    """Return one row per value of `what`, with the number of its rows and the smallest `key`."""
    return differences.sql(
        f"""
        SELECT {_RANK} AS rank, '{table}' AS `table`, what, false AS refuses, count(*) AS count,
            min({key}) AS example
        FROM {{this}} AS this GROUP BY what
        """
    )


def incomplete_sources(runs: Relation, sources: Relation, staged: Relation) -> Relation:
    """Return the runs that are the source of a group, and whose staged rows are not complete.

    Args:
        runs: the rows of snapshots and imports.
        sources: see `pending_entries`.
        staged: rows of `pel_snapshots` with `source_seq`, the number of the run that staged them.
    """
    return runs.sql(
        """
        WITH used AS (
            SELECT DISTINCT source_seq FROM {sources} AS s
        ), numbers AS (
            SELECT source_seq, count(*) AS number FROM {staged} AS p GROUP BY source_seq
        )
        SELECT r.* FROM {this} AS r JOIN used AS u ON r.run_seq = u.source_seq
            LEFT JOIN numbers AS n ON r.run_seq = n.source_seq
        WHERE coalesce(n.number, 0L) <> r.counts['pending_read']
        """,
        sources=sources,
        staged=staged,
    ).order_by("run_seq")


def pending_entries(
    pending: Relation, base: Relation, changes: Relation, sources: Relation
) -> Relation:
    """Compare `pending` with the last state of each entry.

    Args:
        pending: the table.
        base: the rows of `pel_snapshots` that the last reading of each group staged.
        changes: the applied journal rows of `journal_rows.CHANGED` kinds.
        sources: one row per group to compare: stream, consumer_group, `source_seq` (the number of
            the run that last read the group, or 0 if no run did).
    """
    last = ", ".join(f"max_by({name}, run_seq) AS {name}" for name in _STATE)
    is_same = " AND ".join(f"p.{name} <=> e.{name}" for name in _STATE)
    key = ", ".join(f"coalesce(e.{name}, p.{name}) AS {name}" for name in ENTRY)
    differences = pending.sql(
        f"""
        WITH events AS (
            SELECT {ENTRY_SQL}, {", ".join(_STATE)}, 0L AS run_seq, true AS is_pending
            FROM {{base}} AS b
            UNION ALL
            SELECT {ENTRY_SQL}, {", ".join(_STATE)}, run_seq, NOT {of_kinds(*REMOVED)} AS is_pending
            FROM {{changes}} AS c JOIN {{sources}} AS s USING ({GROUP_SQL})
            WHERE c.run_seq > s.source_seq
        ), expected AS (
            SELECT {ENTRY_SQL}, {last}, max_by(is_pending, run_seq) AS is_pending
            FROM events GROUP BY {ENTRY_SQL}
        ), present AS (
            SELECT {ENTRY_SQL}, {", ".join(_STATE)}, source_seq > 0 AS has_base
            FROM {{this}} AS p JOIN {{sources}} AS s USING ({GROUP_SQL})
        )
        SELECT {key}, CASE
            WHEN p.stream IS NULL THEN {quote_text(_REMOVED)}
            WHEN e.stream IS NULL OR NOT e.is_pending THEN {quote_text(_ADDED)}
            ELSE {quote_text(_CHANGED)} END AS what
        FROM expected AS e FULL OUTER JOIN present AS p ON {same_entry("e", "p")}
        WHERE CASE
            WHEN p.stream IS NULL THEN e.is_pending
            WHEN e.stream IS NULL THEN p.has_base
            ELSE NOT (e.is_pending AND {is_same}) END
        """,
        base=base,
        changes=changes,
        sources=sources,
    )
    return _problems(differences, "pending", key_json_sql("pending"))


def tombstones(changes: Relation, tombstones: Relation) -> Relation:
    """Compare `tombstones` with the deletions of runs.

    A deletion needs a tombstone, unless a later run returned the entry.

    Args:
        changes: see `pending_entries`.
        tombstones: rows of the table.
    """
    deletes = f"kind = '{Kind.DELETED}' OR kind = '{Kind.WITHDRAWN}' AND at_ms IS NOT NULL"
    differences = changes.sql(
        f"""
        WITH events AS (
            SELECT {ENTRY_SQL}, run_seq, kind, lead(kind) OVER (
                PARTITION BY {ENTRY_SQL} ORDER BY run_seq
            ) AS next_kind
            FROM {{this}} AS c
            WHERE ({deletes}) OR kind = '{Kind.RETURNED}' AND at_ms IS NOT NULL
        ), deleted AS (
            SELECT {ENTRY_SQL}, run_seq, true AS is_deleted, false AS is_tombstone
            FROM events
            WHERE kind <> '{Kind.RETURNED}' AND NOT (next_kind <=> '{Kind.RETURNED}')
            UNION ALL
            SELECT {ENTRY_SQL}, run_seq, false, true FROM {{tombstones}} AS t
        ), both AS (
            SELECT {ENTRY_SQL}, run_seq, bool_or(is_deleted) AS is_deleted,
                bool_or(is_tombstone) AS is_tombstone
            FROM deleted GROUP BY {ENTRY_SQL}, run_seq
        )
        SELECT {ENTRY_SQL}, run_seq, CASE WHEN is_deleted THEN {quote_text(_NO_TOMBSTONE)}
            ELSE {quote_text(_NO_DELETION)} END AS what
        FROM both WHERE is_deleted <> is_tombstone
        """,
        tombstones=tombstones,
    )
    return _problems(differences, "tombstones", key_json_sql("tombstones"))


def counts(journal: Relation, runs: Relation, kinds: Collection[Kind]) -> Relation:
    """Compare the counts of finished runs with the numbers of their journal rows.

    Args:
        journal: rows of the table.
        runs: the rows of the table `runs` that were not abandoned.
        kinds: the kinds of journal rows that a run counts.
    """
    differences = journal.sql(
        f"""
        WITH numbers AS (
            SELECT run_seq, kind, count(*) AS number FROM {{this}} AS j
            WHERE {of_kinds(*kinds)} GROUP BY run_seq, kind
        )
        SELECT run_seq, kind, {quote_text(_COUNTS)} AS what
        FROM numbers JOIN {{runs}} AS r USING (run_seq)
        WHERE coalesce(r.counts[kind], 0L) <> number
        """,
        runs=runs,
    )
    return _problems(differences, "runs", "to_json(struct(run_seq, kind))")


def generated_columns(table: str, rows: Relation, buckets: int) -> Relation:
    """Compare the generated columns of a table with the names from which they are computed."""
    columns = [column for column in TABLES[table].columns if column.generated_as is not None]
    is_different = " OR ".join(
        f"NOT ({column.name} <=> {(column.generated_as or '').format(buckets=buckets)})"
        for column in columns
    )
    differences = rows.where(is_different).select("*", f"{quote_text(_GENERATED)} AS what")
    return _problems(differences, table, key_json_sql(table))
