"""State journal rows with the values that a run replaces in the small tables.

They make it possible to undo the run.  A row of a small table that did not exist before the run has
no such journal row.  Pending entries need none, because their other journal rows have the earlier
owner, time and count.
"""

from __future__ import annotations

from collections.abc import Sequence

from claimlib.engine.relation import Relation
from claimlib.plans.journal_rows import PLACE
from claimlib.plans.keys import GROUP, each_sql
from claimlib.schema import Kind


def consumer_rows(wanted: Relation, consumers: Relation) -> Relation:
    """Return the journal's `consumer_before` rows: one per consumer that exists.

    Args:
        wanted: one row per consumer that the run changes: stream, consumer_group and consumer.  It
            may have the other columns of `journal_rows.PLACE`.
        consumers: the table before the run.
    """
    times = ("seen_time_ms", "active_time_ms")
    return _existing_rows(Kind.CONSUMER_BEFORE, wanted, consumers, (*GROUP, "consumer"), times)


def cursor_rows(wanted: Relation, cursors: Relation) -> Relation:
    """Return the journal's `cursor_before` rows: one per cursor that exists.

    Args:
        wanted: one row per cursor: stream, consumer_group and name, see `consumer_rows`.
        cursors: the table before the run.
    """
    ids = ("next_ms", "next_seq")
    rows = _existing_rows(Kind.CURSOR_BEFORE, wanted, cursors, (*GROUP, "name"), ids)
    return rows.select(*(name for name in rows.columns if name != "name"), "name AS cursor_name")


def group_rows(wanted: Relation, groups: Relation) -> Relation:
    """Return the journal's `group_before` rows: one per group that exists.

    Args:
        wanted: one row per group: stream and consumer_group, see `consumer_rows`.
        groups: the table before the run.
    """
    ids = ("last_delivered_ms", "last_delivered_seq")
    return _existing_rows(Kind.GROUP_BEFORE, wanted, groups, GROUP, ids)


def _existing_rows(
    kind: Kind, wanted: Relation, table: Relation, key: Sequence[str], values: Sequence[str]
) -> Relation:
    """Return one row per wanted key that exists in the table.

    If a key has two rows, each value is the largest, so that every engine returns the same.
    """
    # `PLACE` begins with `GROUP`, so only the rest of the key is added.
    place = ", ".join([*(name for name in PLACE if name in wanted.columns), *key[len(GROUP) :]])
    return wanted.sql(
        f"SELECT '{kind}' AS kind, {place}, {each_sql('max', *values)}"
        f" FROM {{this}} AS this JOIN {{table}} AS t USING ({', '.join(key)}) GROUP BY {place}",
        table=table,
    )
