"""What a run replaces in the small tables, as rows of the journal, so that it can be undone.

A row that did not exist has no row here.  Pending entries need none: their own journal rows have
the earlier owner, time and count.
"""

from __future__ import annotations

from collections.abc import Sequence

from claimlib.engine.relation import Relation
from claimlib.plans.keys import GROUP
from claimlib.schema import Kind

_PLACE = ("stream_key", "group_key", "bucket")


def consumer_rows(named: Relation, consumers: Relation) -> Relation:
    """Return the journal's `consumer_before` rows: one per consumer that is named and stored.

    Args:
        named: stream, consumer_group and consumer, each combination once; the keys of the group and
            its bucket, if they are known.
        consumers: the table as the run found it.
    """
    times = ("max(t.seen_time_ms) AS seen_time_ms", "max(t.active_time_ms) AS active_time_ms")
    return _stored(Kind.CONSUMER_BEFORE, named, consumers, (*GROUP, "consumer"), times)


def cursor_rows(named: Relation, cursors: Relation) -> Relation:
    """Return the journal's `cursor_before` rows: one per cursor that is named and stored.

    Args:
        named: stream, consumer_group and name, each combination once; see `consumer_rows`.
        cursors: the table as the run found it.
    """
    ids = ("any_value(t.next_ms) AS next_ms", "any_value(t.next_seq) AS next_seq")
    rows = _stored(Kind.CURSOR_BEFORE, named, cursors, (*GROUP, "name"), ids)
    names = [name for name in rows.columns if name != "name"]
    return rows.select(*names, "name AS cursor_name")


def group_rows(named: Relation, groups: Relation) -> Relation:
    """Return the journal's `group_before` rows: one per group that is named and stored.

    Args:
        named: stream and consumer_group, each combination once; see `consumer_rows`.
        groups: the table as the run found it.
    """
    ids = (
        "any_value(t.last_delivered_ms) AS last_delivered_ms",
        "any_value(t.last_delivered_seq) AS last_delivered_seq",
    )
    return _stored(Kind.GROUP_BEFORE, named, groups, GROUP, ids)


def _stored(
    kind: Kind, named: Relation, stored: Relation, key: Sequence[str], values: Sequence[str]
) -> Relation:
    """Return one row per named key that is stored: of a key with two rows, the values of one."""
    same = " AND ".join(f"t.{name} = s.{name}" for name in key)
    columns = [f"s.{name}" for name in (*(n for n in _PLACE if n in named.columns), *key)]
    names = [name.removeprefix("s.") for name in columns] + [
        value.rpartition(" AS ")[2] for value in values
    ]
    return named.sql(
        f"SELECT {', '.join((*columns, *values))} FROM {{this}} AS s JOIN {{stored}} AS t ON {same}"
        f" GROUP BY {', '.join(columns)}",
        stored=stored,
    ).select(f"'{kind}' AS kind", *names)
