"""Reconstruct a server's pending entries from a store that runs have changed since the snapshot.

A snapshot makes `pending` equal to the server's pending entries.  Later runs change `pending`, but
not the server.  The journal has each entry as it was before a run changed it.
"""

from __future__ import annotations

from claimlib.engine.relation import Relation
from claimlib.plans.journal_rows import CHANGED
from claimlib.plans.keys import ENTRY_SQL, GROUP_SQL
from claimlib.schema import Kind

CHANGING = tuple(kind for kind in CHANGED if kind != Kind.MOVED)
"""The kinds of journal rows that change or remove a pending entry, or make an entry pending."""
_WRITTEN_BACK = (Kind.MOVED, Kind.ACKNOWLEDGED)
"""The kinds of journal rows of entries that a writeback made equal on the server."""
_IS_UNDONE = " AND ".join(
    f"max_by({name}, run_seq) <=> min_by(from_{name}, run_seq)"
    for name in ("consumer", "delivery_time_ms", "delivery_count")
)
_ROW = f"{ENTRY_SQL}, bucket, consumer, delivery_time_ms, delivery_count"


def group_sources(groups: Relation, sources: Relation, read: Relation) -> Relation:
    """Return one row per group: stream, consumer_group, `source_seq`.

    `source_seq` is the last run that read the group from the source, or 0 if no run did.

    The run_seq of a row of `groups` is that of the run that wrote the row last.  Usually this is a
    run of `sources`.  If a claim has raised the group's last delivered id, it is the run of the
    claim.  Then the source is taken from `read`.

    Args:
        groups: rows of the table.
        sources: one row per snapshot and import to consider: `run_seq`.
        read: the journal rows of kind `group`, at least those of groups that a claim wrote last.
    """
    return groups.sql(
        f"""
        WITH written AS (
            SELECT {GROUP_SQL}, max(s.run_seq) AS source_seq
            FROM {{this}} g LEFT JOIN {{sources}} s ON g.run_seq = s.run_seq
            GROUP BY {GROUP_SQL}
        ), read AS (
            SELECT {GROUP_SQL}, max(r.run_seq) AS source_seq
            FROM {{read}} r JOIN {{sources}} s ON r.run_seq = s.run_seq
            GROUP BY {GROUP_SQL}
        )
        SELECT {GROUP_SQL}, coalesce(written.source_seq, read.source_seq, 0L) AS source_seq
        FROM written LEFT JOIN read USING ({GROUP_SQL})
        """,
        sources=sources,
        read=read,
    )


def changes_since(journal: Relation, read: Relation, last_seq: int) -> Relation:
    """Return one row per entry that runs changed after its group was read from the source.

    An entry that was written back to the server has a row only if a run changed it later.  An entry
    has no row if an undo has restored it as the source had it.

    Columns:

    - stream, consumer_group, id_ms, id_seq, bucket.
    - `kind`: the kind of the last change.
    - `was_pending`, consumer, delivery_time_ms, delivery_count: the entry as the source had it.
      The last three are None if the entry was not pending there.

    Args:
        journal: rows of the table.
        read: `group_sources`.
        last_seq: the last run to consider.
    """
    kinds, written_back = (
        ", ".join(f"'{kind}'" for kind in kinds) for kinds in (CHANGING, _WRITTEN_BACK)
    )
    return journal.sql(
        f"""
        WITH changes AS (
            SELECT j.* FROM {{this}} j JOIN {{read}} AS read USING ({GROUP_SQL})
            WHERE j.kind IN ({kinds}, {written_back}, '{Kind.LOST}') AND j.run_seq > source_seq
                AND j.run_seq <= {last_seq:d}L
        ), written_back AS (
            SELECT {ENTRY_SQL}, max(run_seq) AS back_seq FROM changes
            WHERE kind IN ({written_back}) GROUP BY {ENTRY_SQL}
        ), kept AS (
            SELECT changes.* FROM changes LEFT JOIN written_back USING ({ENTRY_SQL})
            WHERE kind IN ({kinds}) AND run_seq > coalesce(back_seq, 0L)
        )
        SELECT {ENTRY_SQL}, max(bucket) AS bucket, max_by(kind, run_seq) AS kind,
            min_by(from_delivery_time_ms, run_seq) IS NOT NULL AS was_pending,
            min_by(from_consumer, run_seq) AS consumer,
            min_by(from_delivery_time_ms, run_seq) AS delivery_time_ms,
            min_by(from_delivery_count, run_seq) AS delivery_count
        FROM kept LEFT ANTI JOIN (SELECT * FROM changes WHERE kind = '{Kind.LOST}') lost
            USING (run_seq, {ENTRY_SQL})
        GROUP BY {ENTRY_SQL}
        HAVING NOT ({_IS_UNDONE})
        """,
        read=read,
    )


def as_on_server(pending: Relation, changes: Relation) -> Relation:
    """Return the pending entries as the source had them after the last reading or writeback.

    Columns: stream, consumer_group, id_ms, id_seq, bucket, consumer, delivery_time_ms,
    delivery_count.

    Args:
        pending: rows of the store.
        changes: `changes_since` of the same groups.
    """
    return pending.sql(
        f"""
        SELECT {_ROW} FROM {{this}} LEFT ANTI JOIN {{changes}} AS changes USING ({ENTRY_SQL})
        UNION ALL SELECT {_ROW} FROM {{changes}} WHERE was_pending
        """,
        changes=changes,
    )


def number_by_group(changes: Relation) -> Relation:
    """Return one row per group with changes: stream, consumer_group, `changed_by_runs`."""
    number = "count(*) AS changed_by_runs"
    return changes.sql(f"SELECT {GROUP_SQL}, {number} FROM {{this}} AS this GROUP BY {GROUP_SQL}")
