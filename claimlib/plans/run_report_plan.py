"""State the numbers of a report on a run: per group, per owner, and in fixed intervals.

A caller fetches only aggregates, so the number of its rows does not grow with the number of
entries.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from claimlib.engine.relation import Relation, union_all
from claimlib.plans.journal_rows import ADDED, CHANGED, of_kinds
from claimlib.plans.keys import GROUP, GROUP_SQL, without
from claimlib.plans.xpending_plan import OFTEN, VERY_OFTEN
from claimlib.schema import Kind

CHANGES = (*CHANGED, Kind.PENDING_REPLACED, Kind.PENDING_REMOVED)
"""The kinds of journal rows that state how a run changed a pending entry."""
IDLE_MS = (0, *(s * 1000 for s in (1, 10, 60, 600, 3600, 36_000, 345_600, 2_419_200)))
"""The lower bounds of the intervals of idle times: 0, 1s, 10s, 1m, 10m, 1h, 10h, 4d, 4w."""
DELIVERIES = (0, 1, 2, 3, OFTEN, VERY_OFTEN, 20, 50, 100)
"""The lower bounds of the intervals of delivery counts."""
BEFORE, AFTER = "before", "after"
"""The values of `fact` for an entry that was pending before the run, or after it."""
_FACT = {"reason": "STRING", "idle_ms": "BIGINT", "delivery_count": "BIGINT"}
PENDING = (
    "pending",
    "stalled",
    "oldest_idle_ms",
    "highest_delivery_count",
    "delivered_5_plus",
    "delivered_10_plus",
)
"""The columns about the pending entries at one time, without the ending `_before` or `_after`."""
TIMES = (BEFORE, AFTER)
_OF_TIMES = tuple(f"{name}_{time}" for name in PENDING for time in TIMES)
_MAXIMA = ("oldest_idle_ms", "highest_delivery_count")
COLUMNS = (*GROUP, "reason", *_OF_TIMES, *CHANGES, "changed", Kind.LOST)
"""The columns of `by_group`, in order."""


def facts(
    changes: Relation,
    notes: Relation,
    groups: Relation,
    before: Relation | None,
    after: Relation | None,
) -> Relation:
    """Return one row per fact: stream, consumer_group, fact, reason, idle_ms, delivery_count.

    `fact` is `before` or `after` for a pending entry, the kind for a journal row, and `group` for a
    row of the table groups.  The last makes `by_group` return groups without entries and changes.

    Args:
        changes: the run's journal rows of `CHANGES` kinds that were applied.
        notes: the run's journal rows of kind `lost`, `swept` and `refused`.
        groups: the table.
        before, after: `xpending.idle_entries` before and after the run, or None if unknown.
    """
    null_columns = {name: f"CAST(NULL AS {type_}) AS {name}" for name, type_ in _FACT.items()}
    pending = [
        rows.select(
            *GROUP,
            f"'{name}' AS fact",
            null_columns["reason"],
            "CASE WHEN idle_ms >= 0 THEN idle_ms END AS idle_ms",
            "delivery_count",
        )
        for name, rows in ((BEFORE, before), (AFTER, after))
        if rows is not None
    ]
    without_times = (null_columns["idle_ms"], null_columns["delivery_count"])
    return union_all(
        [
            changes.select(*GROUP, "kind AS fact", null_columns["reason"], *without_times),
            notes.select(*GROUP, "kind AS fact", "reason", *without_times),
            groups.select(*GROUP, "'group' AS fact", null_columns["reason"], *without_times),
            *pending,
        ]
    )


def after_decision(before: Relation, changes: Relation) -> Relation:
    """Return the pending entries as they would be after the changes of a dry run.

    There is one row per pending entry: stream, consumer_group, idle_ms, delivery_count.

    Args:
        before: `xpending.idle_entries`.
        changes: journal rows of kind `claimed` and `deleted`.
    """
    claimed = changes.where(of_kinds(Kind.CLAIMED)).select(
        *GROUP, "try_subtract(at_ms, delivery_time_ms) AS idle_ms", "delivery_count"
    )
    unchanged = without(before, changes)
    return union_all([unchanged.select(*GROUP, "idle_ms", "delivery_count"), claimed])


def by_group(known: Relation, stalled_ms: int, times: Collection[str]) -> Relation:
    """Return one row per (stream, consumer_group), with `COLUMNS`.

    `reason` is the reason why the run refused the group.  It is None if the run did not refuse the
    group.  There is a count for each of `CHANGES`, and `changed` is their sum.

    Args:
        known: `facts`.
        stalled_ms: the idle time in ms from which an entry is stalled.
        times: the times at which the pending entries are known: `before`, `after`, both or none.
            The columns of another time are None.
    """
    sums: dict[str, str] = {
        **{str(kind): _count(kind) for kind in (*CHANGES, Kind.LOST)},
        "changed": f"count_if(fact IN ({_listed(CHANGES)}))",
        "reason": "max(reason)",
    }
    for time in TIMES:
        unknown = dict.fromkeys(PENDING, "CAST(NULL AS BIGINT)")
        of_time = _pending(time, stalled_ms) if time in times else unknown
        sums |= {f"{name}_{time}": value for name, value in of_time.items()}
    values = (f"{sums[name]} AS {name}" for name in COLUMNS[len(GROUP) :])
    return known.sql(
        f"SELECT {GROUP_SQL}, {', '.join(values)} FROM {{this}} AS this GROUP BY {GROUP_SQL}"
    )


def _listed(kinds: Sequence[str]) -> str:
    return ", ".join(f"'{kind}'" for kind in kinds)


def _count(fact: str, condition: str = "true") -> str:
    return f"count_if(fact = '{fact}' AND {condition})"


def _pending(time: str, stalled_ms: int) -> dict[str, str]:
    of_time = f"CASE WHEN fact = '{time}' THEN"
    return {
        "pending": _count(time),
        "stalled": _count(time, f"idle_ms >= {stalled_ms:d}"),
        "oldest_idle_ms": f"max({of_time} idle_ms END)",
        "highest_delivery_count": f"max({of_time} delivery_count END)",
        "delivered_5_plus": _count(time, f"delivery_count >= {OFTEN:d}"),
        "delivered_10_plus": _count(time, f"delivery_count >= {VERY_OFTEN:d}"),
    }


def totals(groups: Relation, times: Collection[str]) -> Relation:
    """Return one row with the sums and maxima of the columns of `by_group`.

    `groups` is the number of groups, and `refused` the number of refused groups.
    `stalled_groups_before` and `stalled_groups_after` are the numbers of groups with stalled
    entries.

    Args:
        times: see `by_group`.
    """

    def total(name: str, time: str) -> str:
        column = f"{name}_{time}"
        if name in _MAXIMA:
            return f"max({column}) AS {column}"
        # Without coalesce, the sum of an unknown column is null.
        return f"{_sum(column) if time in times else f'sum({column})'} AS {column}"

    def stalled(time: str) -> str:
        number = f"count_if(stalled_{time} > 0)" if time in times else "CAST(NULL AS BIGINT)"
        return f"{number} AS stalled_groups_{time}"

    return groups.select(
        "count(*) AS groups",
        "count_if(reason IS NOT NULL) AS refused",
        *map(stalled, TIMES),
        *(total(name, time) for name in PENDING for time in TIMES),
        *(f"{_sum(name)} AS {name}" for name in (*CHANGES, "changed", Kind.LOST)),
    )


def _sum(name: str) -> str:
    return f"coalesce(sum({name}), 0L)"


def intervals(known: Relation) -> Relation:
    """Return the number of `entries` by `fact` (`before` or `after`), `idle` and `deliveries`.

    `idle` and `deliveries` number the intervals of `IDLE_MS` and `DELIVERIES` from 1.  `idle` is 0
    if the idle time is unknown, or if the entry was delivered after the time of the run.
    """
    idle, deliveries = _number("idle_ms", IDLE_MS), _number("delivery_count", DELIVERIES)
    return known.where(f"fact IN ({_listed(TIMES)})").sql(
        f"""
        SELECT fact, idle, deliveries, count(*) AS entries
        FROM (SELECT fact, {idle} AS idle, {deliveries} AS deliveries FROM {{this}} AS this) AS each
        GROUP BY fact, idle, deliveries
        """
    )


def _number(value: str, bounds: Sequence[int]) -> str:
    """Return SQL for the number of lower bounds that a value reaches, or 0 if it is null."""
    reached = " ".join(
        f"WHEN {value} >= {bound:d} THEN {number:d}"
        for number, bound in reversed(list(enumerate(bounds, 1)))
    )
    return f"CASE {reached} ELSE 0 END"


def transfers(changes: Relation) -> Relation:
    """Return one row per group, earlier owner and new owner.

    Columns: stream, consumer_group, from_consumer, consumer, `entries`.  from_consumer is None if
    an entry had no owner.  Entries that the run made pending are excluded.

    Args:
        changes: see `facts`.
    """
    is_moved = "consumer IS NOT NULL AND NOT (from_consumer <=> consumer)"
    return changes.where(f"{is_moved} AND NOT {of_kinds(*ADDED)}").sql(
        f"""
        SELECT {GROUP_SQL}, from_consumer, consumer, count(*) AS entries
        FROM {{this}} AS this GROUP BY {GROUP_SQL}, from_consumer, consumer
        """
    )
