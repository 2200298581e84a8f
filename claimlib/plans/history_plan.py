"""State the history of one pending entry, or of the entries of one consumer."""

from __future__ import annotations

from claimlib.engine.relation import Relation, union_all
from claimlib.plans.journal_rows import CHANGED, applied, of_kinds
from claimlib.plans.keys import GROUP
from claimlib.schema import Kind

_CHANGED = (*CHANGED, Kind.PENDING_REPLACED, Kind.PENDING_REMOVED)
EVENTS = (
    *_CHANGED,
    Kind.ACKNOWLEDGED,
    Kind.TOUCHED,
    Kind.GONE,
    Kind.LOST,
    Kind.KEPT,
)
"""The kinds of journal rows that state how a run changed or found a pending entry."""
# In `returned` and `withdrawn` rows `at_ms` is the time of the tombstone, not of the event.
_AT_MS = f"CASE WHEN e.kind NOT IN ('{Kind.RETURNED}', '{Kind.WITHDRAWN}') THEN e.at_ms END"
READ = "read"
"""The `event` of an entry that a snapshot or an import read from its source."""
_STATE = ("consumer", "delivery_time_ms", "delivery_count")
COLUMNS = (
    "run_seq",
    "command",
    "run_id",
    "event",
    "at_ms",
    *GROUP,
    "id_ms",
    "id_seq",
    *(f"from_{name}" for name in _STATE),
    *_STATE,
)


def entry_events(changes: Relation, read: Relation, decisions: Relation) -> Relation:
    """Return one row per event of an entry, with `COLUMNS` and the `request` of the run in JSON.

    `at_ms` is the time of the event, or None if it is unknown.  For a claim it is the time for
    which idle times were computed.  For a reading it is the snapshot time.

    Args:
        changes: journal rows of `EVENTS` kinds.
        read: rows of `pel_snapshots`.
        decisions: the journal rows of kind `run`.
    """
    of_changes = changes.sql(
        f"""
        SELECT {_columns("e", event="e.kind", at_ms=_AT_MS)}, d.request
        FROM {{this}} AS e JOIN {{decisions}} AS d ON e.run_seq = d.run_seq
        """,
        decisions=decisions,
    )
    no_earlier_state = {f"from_{name}": "NULL" for name in _STATE}
    of_read = read.sql(
        f"""
        SELECT {
            _columns(
                "e",
                event=f"'{READ}'",
                run_seq="d.run_seq",
                at_ms="e.snapshot_ms",
                **no_earlier_state,
            )
        }, d.request
        FROM {{this}} AS e JOIN {{decisions}} AS d ON e.landing = d.landing
        """,
        decisions=decisions,
    )
    return union_all([of_changes, of_read])


def _columns(alias: str, **replaced: str) -> str:
    """Return SQL for `COLUMNS`: those of a table, except the `replaced` ones."""
    values = {name: f"{alias}.{name}" for name in COLUMNS}
    values |= {"command": "d.command", "run_id": "d.run_id", **replaced}
    types = {f"from_{name}": type_ for name, type_ in zip(_STATE, _TYPES, strict=True)}
    return ", ".join(
        f"CAST({value} AS {types[name]}) AS {name}" if name in types else f"{value} AS {name}"
        for name, value in values.items()
    )


_TYPES = ("STRING", "BIGINT", "BIGINT")


def consumer_events(changes: Relation, decisions: Relation, consumer: str) -> Relation:
    """Return one row per entry that a run took from a consumer, or gave to it.

    Columns: `COLUMNS`, `request`, and `change`, which is `lost` or `received`.  An entry whose
    owner the run did not change has no row.  An entry has one row per such run.

    Args:
        changes: journal rows of `EVENTS` kinds in which the consumer is an owner.
        decisions: the journal rows of kind `run`.
        consumer: the spelled name of the consumer, as a SQL expression.
    """
    moved = changes.where(f"NOT (from_consumer <=> consumer) AND {of_kinds(*_CHANGED)}")
    return applied(moved, changes.where(of_kinds(Kind.LOST))).sql(
        f"""
        SELECT {_columns("e", event="e.kind", at_ms=_AT_MS)}, d.request,
            CASE WHEN e.from_consumer <=> {consumer} THEN 'lost' ELSE 'received' END AS change
        FROM {{this}} AS e JOIN {{decisions}} AS d ON e.run_seq = d.run_seq
        """,
        decisions=decisions,
    )
