"""Report consumers and cursors, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from claimlib.commands.describe import CONSUMER_COLUMNS, Description
from claimlib.engine.relation import DESCENDING
from claimlib.plans.keys import GROUP
from claimlib.report.headings import headings
from claimlib.report.report_model import DEFAULT_LIMIT, Cell, Report
from claimlib.report.rows import fetch_rows
from claimlib.report.text import counted, duration, idle, not_shown, unowned, visible, with_times


def report_of_description(
    where: str, description: Description, at_ms: int, limit: int | None = DEFAULT_LIMIT
) -> Report:
    """Return one row per consumer.  The notes have the cursors.

    The consumer with the longest idle entry comes first.

    Args:
        at_ms: the time to which "seen ago" and "active ago" refer in groups without a snapshot
            time.  In other groups they refer to the snapshot time.
        limit: the number of consumers, and of cursors, to show at most, or None for all.
    """
    order = (f"oldest_idle_ms{DESCENDING}", f"pending{DESCENDING}")
    total = description.consumers.count()
    sorted_by = (*order, *GROUP, "consumer")
    rows = fetch_rows(description.consumers, sorted_by, limit, total, with_times)
    shown = rows.shown
    unknown = description.consumers.where("NOT is_known").count()
    number_of_cursors = description.cursors.count()
    cursors = fetch_rows(description.cursors, ("name", *GROUP), limit, number_of_cursors)
    return Report(
        title=f"Consumers of {where}",
        columns=COLUMNS,
        rows=tuple(_row(row, at_ms) for row in shown),
        cut_off=(
            *not_shown(rows.hidden, "consumer", shown=len(shown)),
            *not_shown(cursors.hidden, "cursor", shown=len(cursors.shown)),
        ),
        notes=(
            *counted(
                unknown,
                "consumer owns entries but is missing from the table consumers",
                "consumers own entries but are missing from the table consumers",
            ),
            *unowned(description.without_owner),
            *([] if total else ["no consumer matches"]),
            *map(_cursor, cursors.shown),
        ),
        document={
            "command": "describe",
            "at_ms": at_ms,
            "consumers": rows.records,
            "consumers_not_shown": rows.hidden,
            "pending_without_owner": description.without_owner,
            "cursors": cursors.records,
            "cursors_not_shown": cursors.hidden,
        },
        records=rows.records,
        names=NAMES,
    )


COLUMNS = headings(
    *GROUP,
    "consumer",
    "pending",
    "oldest_idle_ms",
    "highest_delivery_count",
    "active_time_ms",
    "seen_time_ms",
)
NAMES = (*CONSUMER_COLUMNS, "oldest_delivery_time", "active_time", "seen_time")


def _row(row: Mapping[str, Any], at_ms: int) -> tuple[Cell, ...]:
    # These times refer to the snapshot, as idle times do.  The time since the snapshot says nothing
    # about the consumer.
    at = at_ms if row["now_ms"] is None else row["now_ms"]
    return (
        *(visible(row[name]) for name in (*GROUP, "consumer")),
        row["pending"],
        idle(row["oldest_idle_ms"]),
        row["highest_delivery_count"],
        *(_ago(row[name], at) for name in ("active_time_ms", "seen_time_ms")),
    )


def _ago(ms: int | None, at_ms: int) -> str | None:
    return None if ms is None else duration(max(at_ms - ms, 0))


def _cursor(row: Mapping[str, Any]) -> str:
    where = f"{visible(row['stream'])} / {visible(row['consumer_group'])}"
    at = "at the first entry" if row["next_id"] == "0-0" else f"at {row['next_id']}"
    return f"cursor {visible(row['name'])}: the next page of {where} begins {at}"
