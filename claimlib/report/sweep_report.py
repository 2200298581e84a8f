"""Report an XAUTOCLAIM, or the requests that a policy gives to groups, to people and programs.

There may be millions of groups.  A report shows the first `limit` rows, the worst first, and the
number of rows that it does not show.  The totals are those of all groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from claimlib.commands.reply import GROUPS_COLUMNS, Reply
from claimlib.commands.xautoclaim import EXPLAINED_COLUMNS
from claimlib.engine.relation import DESCENDING, Relation
from claimlib.plans.keys import GROUP
from claimlib.plans.requests import GUARDS
from claimlib.report.headings import headings
from claimlib.report.losses import Losses
from claimlib.report.report_model import DEFAULT_LIMIT, Cell, Report
from claimlib.report.rows import fetch_rows
from claimlib.report.text import (
    counted,
    groups_text,
    idle,
    not_named,
    not_shown,
    only_in_store_after,
    repeated,
    visible,
)
from claimlib.terminal import number_of
from claimlib.times import format_duration_ms

_SUMMED = ("pending_before", "pending_after", "claimed", "deleted", "lost", "at_boundary")


MAXIMA = ("oldest_idle_ms", "highest_delivery_count")


def report_of_reply(
    reply: Reply,
    limit: int | None = DEFAULT_LIMIT,
    place: str = "",
    unknown_to_server: Mapping[str, int] | None = None,
) -> Report:
    """Return one row per (stream, consumer_group), and a total.

    Refused groups come first.  The others are sorted by the number of claimed and deleted entries,
    and then by the longest idle time.  The relation `groups` of the reply is computed once, or
    twice if there are more groups than are shown.

    Args:
        limit: the most groups to show, or None for all.
        place: where the store is.
        unknown_to_server: see `counts` of `text.only_in_store_after`.
    """
    count = reply.counts.get("swept", 0) + reply.counts.get("refused", 0)
    rows = fetch_rows(reply.groups, _WORST_FIRST, limit, count)
    totals = _totals(rows.shown) if len(rows.shown) == count else _all_totals(reply.groups)
    losses = Losses.of(reply)
    total = ("total", groups_text(count), *_numbers(totals), "")
    return Report(
        title=_title(reply),
        columns=COLUMNS,
        rows=(*map(_group_row, rows.shown), total),
        cut_off=tuple(not_shown(rows.hidden, "group", shown=len(rows.shown))),
        notes=(
            *repeated(reply.run_seq, is_repeat=reply.is_repeat),
            *([] if count else [_NO_GROUP]),
            *losses.notes,
            *_exceptions(reply.counts),
            *_next_pages(reply),
            *only_in_store_after(
                unknown_to_server, reply.counts, place, f"{_COMMAND}:{reply.run_id}"
            ),
        ),
        document={
            "command": _COMMAND,
            "run_seq": reply.run_seq,
            "run_id": reply.run_id,
            "is_repeat": reply.is_repeat,
            "dry_run": reply.dry_run,
            "counts": dict(reply.counts),
            "totals": totals,
            "groups": rows.records,
            "groups_not_shown": rows.hidden,
            **losses.document,
            "only_in_store": unknown_to_server,
        },
        records=rows.records,
        names=GROUPS_COLUMNS,
    )


_COMMAND = "xautoclaim"
_NO_GROUP = (
    "No consumer group of the store matches the request, so nothing was done. claimlib xpending"
    " lists the groups; if it has none, take a snapshot or an import first."
)


COLUMNS = headings(
    *GROUP,
    "pending_before",
    "pending_after",
    "claimed",
    "deleted",
    "oldest_idle_ms",
    "highest_delivery_count",
    "at_boundary",
    "reason",
)


def refusals(reply: Reply, limit: int = 10) -> list[str]:
    """Return one line per refused group with its reason, for stderr.

    If there are more than `limit`, the last line has the number of the others.
    """
    refused = reply.counts.get("refused", 0)
    if not refused:
        return []
    rows = reply.groups.where("status = 'refused'").order_by(*GROUP).limit(limit)
    named = [
        f"refused: {visible(row['stream'])} / {visible(row['consumer_group'])}: {row['reason']}"
        for row in rows.collect()
    ]
    return [*named, *not_named(refused - len(named), of_old_history=not named)]


_WORST_FIRST = (
    f"status = 'refused'{DESCENDING}",
    f"claimed + deleted{DESCENDING}",
    f"oldest_idle_ms{DESCENDING}",
    *GROUP,
)


def _totals(rows: Sequence[Mapping[str, Any]]) -> dict[str, int | None]:
    """Return the sums and maxima of rows, by name.

    Rows of pages lack values, because a page does not read all pending entries of its group.  A sum
    is None if any row lacks the value.  A maximum is None if any row is one of a page.
    """
    known = {
        name: [row[name] for row in rows if row[name] is not None] for name in (*_SUMMED, *MAXIMA)
    }
    sums = {name: sum(known[name]) if len(known[name]) == len(rows) else None for name in _SUMMED}
    has_no_page = sums["pending_before"] is not None
    maxima = {name: max(known[name], default=None) if has_no_page else None for name in MAXIMA}
    return {**sums, **maxima}


def _all_totals(groups: Relation) -> dict[str, int | None]:
    """Return the result of `_totals` for all groups, by one query."""
    sums = {name: f"WHEN count({name}) = count(*) THEN sum({name})" for name in _SUMMED}
    maxima = {name: f"WHEN count(pending_before) = count(*) THEN max({name})" for name in MAXIMA}
    cases = (f"CASE {case} END AS {name}" for name, case in {**sums, **maxima}.items())
    (totals,) = groups.select(*cases).collect()
    return totals


def _group_row(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    return (
        visible(row["stream"]),
        visible(row["consumer_group"]),
        *_numbers(row),
        row["reason"],
    )


def _numbers(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    return (
        *(row[name] for name in ("pending_before", "pending_after", "claimed", "deleted")),
        idle(row["oldest_idle_ms"]),
        row["highest_delivery_count"],
        row["at_boundary"],
    )


def _title(reply: Reply) -> str:
    if reply.dry_run:
        return "XAUTOCLAIM, dry run: what it would do; nothing was written"
    return f"XAUTOCLAIM, run {reply.run_seq} (xautoclaim:{reply.run_id})"


def _next_pages(reply: Reply) -> Iterable[str]:
    """Yield the number of groups with more entries after their page, and how to get the next page.

    Without a stored cursor, the next page would begin at the same id.  So the note asks for one.
    """
    if not reply.counts.get("cursor"):
        return
    by_cursor = reply.cursors.where("next_id <> '0-0'").sql(
        "SELECT name IS NOT NULL AS is_kept, count(*) AS number FROM {this} AS this"
        " GROUP BY name IS NOT NULL"
    )
    for row in by_cursor.order_by("NOT is_kept").collect():
        have = number_of(row["number"], "group has", "groups have")
        how = (
            "run again with another --run-id (the same --run-id returns this run again)"
            if row["is_kept"]
            else "add --cursor NAME, which stores where the next page begins"
        )
        yield f"{have} more entries: for the next page, {how}"


def _exceptions(counts: Mapping[str, int]) -> Iterable[str]:
    """Yield notes on entries with an unusual outcome, and on groups without a request."""
    if counts.get("lost"):
        yield f"{counts['lost']:,} lost: another writer changed the row first"
    if counts.get("spared"):
        yield (
            f"{counts['spared']:,} spared: idle for long enough, but the guards leave them to their"
            " owners"
        )
    if counts.get("parked"):
        yield (
            f"{counts['parked']:,} of the claimed went to the parking consumer, because of their"
            " delivery counts"
        )
    if counts.get("delivered_later"):
        yield (
            number_of(counts["delivered_later"], "entry was", "entries were")
            + " delivered after the time for which idle times are computed (--now is too early, or"
            " the delivery was during the snapshot), and"
            + (" counts" if counts["delivered_later"] == 1 else " count")
            + " as not idle"
        )
    if counts.get("without_request"):
        number = number_of(counts["without_request"], "group matches", "groups match")
        yield f"{number} no request of the policy; --explain lists such groups"
    if counts.get("gone"):
        yield (
            f"{counts['gone']:,} gone: deleted by this run or by another writer (which one is not"
            " known)"
        )


def report_of_policy(explained: Relation, limit: int | None = DEFAULT_LIMIT) -> Report:
    """Return the request that a policy gives to each group.  Groups without a request come first.

    Args:
        explained: see `commands.xautoclaim.explain`.
        limit: the most groups to show, or None for all.
    """
    (counts,) = explained.select("count(*) AS groups", "count(request) AS matched").collect()
    total, matched = counts["groups"], counts["matched"]
    rows = fetch_rows(explained, ("request", *GROUP), limit, total)
    return Report(
        title="Which request each group gets (the first in the file whose globs match)",
        columns=POLICY_COLUMNS,
        rows=tuple(map(_policy_row, rows.shown)),
        cut_off=tuple(not_shown(rows.hidden, "group", shown=len(rows.shown))),
        notes=tuple(
            counted(total - matched, "group matches no request", "groups match no request")
        ),
        document={"groups": rows.records, "groups_not_shown": rows.hidden},
        records=rows.records,
        names=EXPLAINED_COLUMNS,
    )


_PLAIN_COLUMNS = ("count", "cursor", "justid", "idle_rule")
POLICY_COLUMNS = headings(*GROUP, "request", "consumer", "min_idle_ms", *_PLAIN_COLUMNS, "guards")


def _policy_row(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    names = (visible(row[name]) for name in GROUP)
    if row["request"] is None:
        # No value of consumer, min_idle_ms and guards either.
        return (*names, "none", *[None] * (len(_PLAIN_COLUMNS) + 3))
    rest = (row[name] for name in _PLAIN_COLUMNS)
    guards = ", ".join(f"{name} {row[name]}" for name in GUARDS if row[name] is not None)
    first = (row["request"], _recipient(row), format_duration_ms(row["min_idle_ms"]))
    return (*names, *first, *rest, visible(guards) if guards else None)


def _recipient(row: Mapping[str, Any]) -> str | None:
    """Return the names of the consumers that get the entries, or the rule that chooses them."""
    if row["active_within_ms"] is not None:
        return f"active within {format_duration_ms(row['active_within_ms'])}"
    return visible(", ".join(row["consumers"] or [row["consumer"]]))
