"""State journal rows with the values that a run replaces in the small tables.

With them a run can be undone.  A row that did not exist has no journal row here.  Pending entries
need none, because their own journal rows have the earlier owner, time and count.
"""

from __future__ import annotations

from collections.abc import Sequence

from claimlib.engine.relation import Relation
from claimlib.plans.keys import GROUP
from claimlib.schema import Kind

_PLACE = ("stream_key", "group_key", "bucket")


def consumer_rows(wanted: Relation, consumers: Relation) -> Relation:
    """Return the journal's `consumer_before` rows: one per consumer that exists.

    Args:
        wanted: one row per stream, consumer_group and consumer; also stream_key, group_key and
            bucket, if they are known.
        consumers: the table before the run.
    """
    times = ("max(t.seen_time_ms) AS seen_time_ms", "max(t.active_time_ms) AS active_time_ms")
    return _existing_rows(Kind.CONSUMER_BEFORE, wanted, consumers, (*GROUP, "consumer"), times)


def cursor_rows(wanted: Relation, cursors: Relation) -> Relation:
    """Return the journal's `cursor_before` rows: one per cursor that exists.

    Args:
        wanted: one row per stream, consumer_group and name; see `consumer_rows`.
        cursors: the table before the run.
    """
    ids = ("any_value(t.next_ms) AS next_ms", "any_value(t.next_seq) AS next_seq")
    rows = _existing_rows(Kind.CURSOR_BEFORE, wanted, cursors, (*GROUP, "name"), ids)
    names = [name for name in rows.columns if name != "name"]
    return rows.select(*names, "name AS cursor_name")


def group_rows(wanted: Relation, groups: Relation) -> Relation:
    """Return the journal's `group_before` rows: one per group that exists.

    Args:
        wanted: one row per stream and consumer_group; see `consumer_rows`.
        groups: the table before the run.
    """
    ids = (
        "any_value(t.last_delivered_ms) AS last_delivered_ms",
        "any_value(t.last_delivered_seq) AS last_delivered_seq",
    )
    return _existing_rows(Kind.GROUP_BEFORE, wanted, groups, GROUP, ids)


def _existing_rows(
    kind: Kind, wanted: Relation, table: Relation, key: Sequence[str], values: Sequence[str]
) -> Relation:
    """Return one row per wanted key that exists in the table.

    If a key has two rows, an aggregate of their values is returned.
    """
    same = " AND ".join(f"t.{name} = s.{name}" for name in key)
    columns = [f"s.{name}" for name in (*(n for n in _PLACE if n in wanted.columns), *key)]
    names = [name.removeprefix("s.") for name in columns] + [
        value.rpartition(" AS ")[2] for value in values
    ]
    return wanted.sql(
        f"SELECT {', '.join((*columns, *values))} FROM {{this}} AS s JOIN {{table}} AS t ON {same}"
        f" GROUP BY {', '.join(columns)}",
        table=table,
    ).select(f"'{kind}' AS kind", *names)
