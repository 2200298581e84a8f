"""State journal rows that undo the changes of a run, except changes that are followed by others.

An undo can be undone by the same statements, because its rows have the form of other runs' rows.  A
`restored` row is like a claim.  A `returned` row is like an added entry, and a `withdrawn` row is
like a deletion.
"""

from __future__ import annotations

from collections.abc import Sequence

from claimlib.engine.relation import Relation
from claimlib.plans.journal_rows import ADDED, PLACE, REMOVED, UPDATED, of_kinds
from claimlib.plans.keys import ENTRY_SQL, GROUP, GROUP_SQL, id_text_sql, same_entry
from claimlib.schema import Kind

SEEN = (Kind.CONSUMER, Kind.RETIRED, Kind.SUPERSEDED, *UPDATED, *ADDED, Kind.CONSUMER_RESTORED)
"""The kinds of journal rows that may state how a run changed a consumer."""
_STATE = ("consumer", "delivery_time_ms", "delivery_count")
_PLACE = ", ".join(PLACE)
_CONSUMER = ", ".join((*GROUP, "consumer"))


def entry_rows(changes: Relation, pending: Relation, later: Relation) -> Relation:
    """Return one journal row per entry that a run changed.

    The kind of the row is

    - `kept` if the entry is not as the run left it, if a later run changed it, or if
      the run removed it and a later run read its group.  The undo does not change it.
    - `restored` if the run updated the entry.
    - `returned` if the run removed the entry.
    - `withdrawn` if the run made the entry pending.

    `at_ms` is the time of the entry's tombstone, or None if the entry has no tombstone.

    Args:
        changes: the journal rows of `journal_rows.CHANGED` kinds that were applied, at most one per
            entry.
        pending: the table, or the part of it that has these entries.
        later: journal rows of later runs: one per entry that such a run changed, and one per group
            that such a run read from the source or removed.  The rows of groups have no id.
    """
    is_left = " AND ".join(f"now_{name} <=> {name}" for name in _STATE)
    now = ", ".join(f"any_value({name}) AS now_{name}" for name in _STATE)
    before = ", ".join(
        f"CASE WHEN new_kind IN ('{Kind.RESTORED}', '{Kind.RETURNED}') THEN from_{name} END"
        f" AS {name}"
        for name in _STATE
    )
    left = ", ".join(
        f"CASE WHEN new_kind <> '{Kind.RETURNED}' THEN {name} END AS from_{name}" for name in _STATE
    )
    has_tombstone = of_kinds(Kind.DELETED, Kind.WITHDRAWN, Kind.RETURNED)
    return changes.sql(
        f"""
        WITH present AS (
            SELECT {ENTRY_SQL}, count(*) AS number, {now}
            FROM {{pending}} AS pending GROUP BY {ENTRY_SQL}
        ), changed_later AS (
            SELECT DISTINCT {ENTRY_SQL}, true AS is_later
            FROM {{later}} AS l WHERE id_ms IS NOT NULL
        ), read_later AS (
            SELECT DISTINCT {GROUP_SQL}, true AS is_read FROM {{later}} AS l WHERE id_ms IS NULL
        ), with_kind AS (
            SELECT c.*, CASE
                WHEN {of_kinds(*REMOVED)} THEN CASE
                    WHEN number IS NULL AND is_later IS NULL AND is_read IS NULL
                        THEN '{Kind.RETURNED}'
                    ELSE '{Kind.KEPT}' END
                WHEN is_later IS NOT NULL OR coalesce(number, 0) <> 1 OR NOT ({is_left})
                    THEN '{Kind.KEPT}'
                WHEN {of_kinds(*UPDATED)} THEN '{Kind.RESTORED}'
                ELSE '{Kind.WITHDRAWN}' END AS new_kind
            FROM {{this}} AS c LEFT JOIN present USING ({ENTRY_SQL})
                LEFT JOIN changed_later USING ({ENTRY_SQL}) LEFT JOIN read_later USING ({GROUP_SQL})
        )
        SELECT new_kind AS kind, {_PLACE}, id_ms, id_seq, {left}, {before},
            CASE WHEN {has_tombstone} THEN at_ms END AS at_ms
        FROM with_kind
        """,
        pending=pending,
        later=later,
    )


def consumer_rows(
    seen: Relation, before: Relation, consumers: Relation, owned: Relation
) -> Relation:
    """Return the journal's `consumer_restored` rows: one per consumer that is as a run left it.

    The row has the times before the run.  If the consumer did not exist, `seen_time_ms` is None.
    Then the row removes the consumer.

    Args:
        seen: the run's journal rows of `SEEN` kinds that were applied.
        before: the run's `consumer_before` rows.
        consumers: the table.
        owned: the consumers that will own pending entries after the undo: stream, consumer_group,
            consumer.  Such a consumer is not removed.
    """
    is_restored = of_kinds(Kind.CONSUMER_RESTORED)
    is_removed = f"{of_kinds(Kind.RETIRED)} OR {is_restored} AND seen_time_ms IS NULL"
    times = "max(seen_time_ms) AS seen_time_ms, max(active_time_ms) AS active_time_ms"
    return seen.sql(
        f"""
        WITH was AS (
            SELECT {_CONSUMER}, bool_or({is_removed}) AS was_removed,
                bool_or({is_restored}) AS is_exact,
                max(seen_time_ms) AS left_seen_ms, max(active_time_ms) AS left_active_ms
            FROM {{this}} AS this WHERE consumer IS NOT NULL GROUP BY {_CONSUMER}
        ), before AS (
            SELECT {_CONSUMER}, {times} FROM {{before}} AS b GROUP BY {_CONSUMER}
        ), present AS (
            SELECT {_CONSUMER}, max(seen_time_ms) AS now_seen_ms,
                max(active_time_ms) AS now_active_ms
            FROM {{consumers}} AS c GROUP BY {_CONSUMER}
        ), owned AS (
            SELECT DISTINCT {_CONSUMER}, true AS is_owner FROM {{owned}} AS o
        )
        SELECT '{Kind.CONSUMER_RESTORED}' AS kind, {_CONSUMER}, seen_time_ms, active_time_ms
        FROM was LEFT JOIN before USING ({_CONSUMER}) LEFT JOIN present USING ({_CONSUMER})
            LEFT JOIN owned USING ({_CONSUMER})
        WHERE CASE
            WHEN was_removed THEN now_seen_ms IS NULL AND seen_time_ms IS NOT NULL
            ELSE now_seen_ms IS NOT NULL AND now_seen_ms <=> left_seen_ms
                AND now_active_ms <=> CASE WHEN is_exact
                    THEN left_active_ms ELSE coalesce(left_active_ms, active_time_ms) END
                AND NOT (seen_time_ms IS NULL AND is_owner IS NOT NULL) END
        """,
        before=before,
        consumers=consumers,
        owned=owned,
    )


def missing_owners(
    entries: Relation, consumers: Relation, restored: Relation, removed: Relation
) -> Relation:
    """Return the journal's `consumer_restored` rows of owners that a later run removed.

    Their times are the last delivery times of the entries that they get back.

    Args:
        entries: the `restored` and `returned` rows of `entry_rows`.
        consumers: the table.
        restored: `consumer_rows`.
        removed: the consumers that a later run removed: stream, consumer_group, consumer.
    """
    return entries.sql(
        f"""
        SELECT '{Kind.CONSUMER_RESTORED}' AS kind, {_CONSUMER},
            max(delivery_time_ms) AS seen_time_ms, max(delivery_time_ms) AS active_time_ms
        FROM {{this}} AS g LEFT SEMI JOIN {{removed}} AS r USING ({_CONSUMER})
            LEFT ANTI JOIN {{consumers}} AS c USING ({_CONSUMER})
            LEFT ANTI JOIN {{restored}} AS d USING ({_CONSUMER})
        GROUP BY {_CONSUMER}
        """,
        consumers=consumers,
        restored=restored,
        removed=removed,
    )


def unchanged(rows: Relation, later: Relation, key: Sequence[str]) -> Relation:
    """Return the rows whose key is not in `later`, the rows of later runs."""
    same = " AND ".join(f"s.{name} = t.{name}" for name in key)
    return rows.lacking(later, same)


def cursor_rows(left: Relation, before: Relation, cursors: Relation) -> Relation:
    """Return the journal's `cursor_restored` rows: one per cursor that is as a run left it.

    The row has the position before the run.  If the cursor did not exist, `next_ms` is None.  Then
    the row removes the cursor.

    Args:
        left: the run's `cursor` and `cursor_restored` rows that have a name.
        before: the run's `cursor_before` rows.
        cursors: the table.
    """
    named = cursors.select(*GROUP, "name AS cursor_name", "next_ms", "next_seq")
    key, values = (*GROUP, "cursor_name"), ("next_ms", "next_seq")
    return _restored(Kind.CURSOR_RESTORED, key, values, left, before, named)


def group_rows(left: Relation, before: Relation, groups: Relation) -> Relation:
    """Return the journal's `group_restored` rows.

    There is one per group whose last delivered id is as the run left it.

    Args:
        left: the run's `lastid` and `group_restored` rows.
        before: the run's `group_before` rows.
        groups: the table.
    """
    values = ("last_delivered_ms", "last_delivered_seq")
    rows = _restored(Kind.GROUP_RESTORED, GROUP, values, left, before, groups)
    return rows.where(f"{values[0]} IS NOT NULL")


def _restored(
    kind: Kind,
    key: tuple[str, ...],
    values: tuple[str, ...],
    left: Relation,
    before: Relation,
    table: Relation,
) -> Relation:
    names = ", ".join(key)
    left_values = ", ".join(f"max({name}) AS left_{name}" for name in values)
    now_values = ", ".join(f"max({name}) AS now_{name}" for name in values)
    earlier = ", ".join(f"max({name}) AS {name}" for name in values)
    is_left = " AND ".join(f"now_{name} <=> left_{name}" for name in values)
    return left.sql(
        f"""
        WITH was AS (
            SELECT {names}, {left_values} FROM {{this}} AS this GROUP BY {names}
        ), before AS (
            SELECT {names}, {earlier} FROM {{before}} AS b GROUP BY {names}
        ), present AS (
            SELECT {names}, {now_values} FROM {{table}} AS t GROUP BY {names}
        )
        SELECT '{kind}' AS kind, {names}, {", ".join(values)}
        FROM was LEFT JOIN before USING ({names}) LEFT JOIN present USING ({names})
        WHERE {is_left}
        """,
        before=before,
        table=table,
    )


def as_moved(changes: Relation, moved: Relation) -> Relation:
    """Return the changes of a run, with the owners, times and counts that its writeback set.

    Args:
        changes: see `entry_rows`.
        moved: the `moved` rows of the writeback.
    """
    state = ", ".join(f"coalesce(m.{name}, c.{name}) AS {name}" for name in _STATE)
    return changes.sql(
        f"""
        SELECT c.kind, {", ".join(f"c.{name}" for name in PLACE)}, c.id_ms, c.id_seq,
            {", ".join(f"c.from_{name}" for name in _STATE)}, {state}, c.at_ms
        FROM {{this}} AS c LEFT JOIN {{moved}} AS m ON {same_entry("c", "m")}
        """,
        moved=moved,
    )


def by_group(rows: Relation, kinds: tuple[Kind, ...]) -> Relation:
    """Return one row per group: stream, consumer_group, and one column per kind with its number."""
    numbers = ", ".join(f"count_if(kind = '{kind}') AS {kind}" for kind in kinds)
    return rows.sql(f"SELECT {GROUP_SQL}, {numbers} FROM {{this}} AS this GROUP BY {GROUP_SQL}")


def kept_entries(rows: Relation) -> Relation:
    """Return the entries of `kept` rows: stream, consumer_group, id (text), id_ms, id_seq."""
    return rows.select(*GROUP, f"{id_text_sql()} AS id", "id_ms", "id_seq")
