"""Report XCLAIMs, XACKs and retirements to people and to programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from claimlib.commands.bulk_reply import BulkReply
from claimlib.engine.relation import Record, Relation
from claimlib.report.headings import headings
from claimlib.report.losses import Losses
from claimlib.report.report_model import DEFAULT_LIMIT, Cell, Report
from claimlib.report.rows import fetch_rows
from claimlib.report.text import (
    counted,
    idle,
    instant,
    not_named,
    not_shown,
    only_in_store_after,
    plain_row,
    repeated,
    visible,
)
from claimlib.terminal import listed

_MOST_NAMED = 20
"""The number of retired consumers that a note names at most."""
# The counts in notes, with the words for them.
_COUNTS = {
    "claimed": "claimed",
    "forced": "forced: not pending before, and pending now",
    "superseded": "superseded: claimed, and claimed again later in this run",
    "deleted": "deleted: no longer in the stream",
    "acked": "acknowledged",
    "left": "left: not idle for long enough",
    "not_pending": "not pending",
    "lost": "of these lost: another writer changed the entry first, so it was left as it is",
    "gone": "of these gone: removed by this run or by another writer (which one is not known)",
}


def report_of_bulk(
    command: str,
    reply: BulkReply,
    limit: int | None = DEFAULT_LIMIT,
    place: str = "",
    unknown_to_server: Mapping[str, int] | None = None,
    chosen: Relation | None = None,
) -> Report:
    """Return one row per id, in the order of the requests.

    The counts include ids that are not shown.

    Args:
        limit: the number of ids to show at most, or None for all.
        place, unknown_to_server: see `text.only_in_store_after`.
        chosen: the rows of `reply.ids` from which the rows to show are taken, or None for all.
    """
    names = [name for name in _COUNTS if name not in {"lost", "gone"}]
    of_run = sum(reply.counts.get(name, 0) for name in names)
    total = of_run if chosen is None else chosen.count()
    ids = fetch_rows(
        reply.ids if chosen is None else chosen,
        ("request", "position"),
        limit,
        total,
        plain_row,
    )
    shown = ids.shown
    refused, losses = _refused(reply, limit), Losses.of(reply)
    # If all rows are shown and are of one request, the title names its group, and the three columns
    # about the request are left out.
    is_single = len({row["request"] for row in shown}) == 1 and total == len(shown)
    return Report(
        title=_title(command, reply) + (_group_of(shown[0]) if is_single else ""),
        columns=dict(list(COLUMNS.items())[3 if is_single else 0 :]),
        rows=tuple(_row(row)[3 if is_single else 0 :] for row in shown),
        cut_off=tuple(not_shown(ids.hidden, "id", shown=len(shown))),
        notes=(
            *repeated(reply.run_seq, is_repeat=reply.is_repeat),
            *_notes(command, reply.counts),
            *losses.notes,
            *(_retirement_notes(reply) if command == "retire" else ()),
            *only_in_store_after(
                unknown_to_server, reply.counts, place, f"{command}:{reply.run_id}"
            ),
        ),
        document={
            "command": command,
            "run_seq": reply.run_seq,
            "run_id": reply.run_id,
            "is_repeat": reply.is_repeat,
            "dry_run": reply.dry_run,
            "counts": dict(reply.counts),
            "ids": ids.records,
            "ids_not_shown": ids.hidden,
            **losses.document,
            "refused": refused,
            "refused_not_shown": reply.counts.get("refused", 0) - len(refused),
            "only_in_store": unknown_to_server,
        },
        records=ids.records,
        names=NAMES,
    )


COLUMNS = headings(
    "request",
    "stream",
    "consumer_group",
    "id",
    "status",
    "from_consumer",
    "from_delivery_time_ms",
    "from_idle_ms",
    "from_delivery_count",
    "consumer",
    "delivery_count",
)
"""The headings by column.  The first three columns may be left out."""
NAMES = (
    "request",
    "position",
    "stream",
    "consumer_group",
    "id",
    "status",
    "consumer",
    "delivery_time_ms",
    "delivery_count",
    "from_consumer",
    "from_delivery_time_ms",
    "from_delivery_count",
    "at_ms",
    "from_idle_ms",
    "payload",
    "fields",
)


def refused_requests(reply: BulkReply, limit: int = 10) -> list[str]:
    """Return the refused requests with the reasons, for stderr.

    The last line has the number of refused requests that are not named.

    Args:
        limit: the number of requests to name at most.
    """
    refused = reply.counts.get("refused", 0)
    named = [
        f"refused: request {row['request']}: {visible(row['stream'])} /"
        f" {visible(row['consumer_group'])}: {row['reason']}"
        for row in _refused(reply, limit)
    ]
    return [*named, *not_named(refused - len(named), of_old_history=not named)]


def _refused(reply: BulkReply, limit: int | None) -> list[Record]:
    if not reply.counts.get("refused", 0):
        return []  # `requests` need not be computed
    refused = reply.requests.where("status = 'refused'").order_by("request")
    return (refused if limit is None else refused.limit(limit)).collect()


def _title(command: str, reply: BulkReply) -> str:
    if reply.dry_run:
        return f"{command}, dry run: what it would do; nothing was written"
    return f"{command}, run {reply.run_seq} ({command}:{reply.run_id})"


def _group_of(row: Mapping[str, Any]) -> str:
    return f": {visible(row['stream'])} / {visible(row['consumer_group'])}"


def _row(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    return (
        row["request"],
        visible(row["stream"]),
        visible(row["consumer_group"]),
        row["id"],
        row["status"].replace("_", " "),
        visible(row["from_consumer"]),
        instant(row["from_delivery_time_ms"]),
        idle(row["from_idle_ms"]),
        row["from_delivery_count"],
        visible(row["consumer"]),
        row["delivery_count"],
    )


def _notes(command: str, counts: Mapping[str, int]) -> Iterable[str]:
    notes = [
        note
        for name, status in _COUNTS.items()
        for note in counted(counts.get(name, 0), status, status)
    ]
    if not notes and counts.get("refused"):
        return ["nothing was done: all requests were refused"]
    none = "nothing was pending" if command == "retire" else "no id was requested"
    return notes or [none]


def _retirement_notes(reply: BulkReply) -> Iterable[str]:
    """Yield notes on removed consumers, and on matching consumers that stay.

    In a dry run the notes are on consumers that would be removed.
    """
    number = reply.retired.count()
    rows = reply.retired.order_by("consumer").limit(_MOST_NAMED).collect()
    names = listed([f"{visible(row['consumer'])}" for row in rows], number)
    removed = reply.counts["retired"]
    named = f": {names}" if removed == number else ""
    was, were = ("would be", "would be") if reply.dry_run else ("was", "were")
    only = "only a writeback removes"
    yield from counted(
        removed,
        f"consumer {was} removed from the store{named}; {only} it on a server",
        f"consumers {were} removed from the store{named}; {only} them on a server",
    )
    yield from counted(
        number - removed,
        "consumer was not removed, because it received entries during the run: retire it again"
        " (with a new --run-id, if you give one)",
        "consumers were not removed, because they received entries during the run: retire them"
        " again (with a new --run-id, if you give one)",
    )
    yield from counted(
        reply.counts.get("not_idle", 0),
        "consumer matches, and stays because it was not idle for long enough",
        "consumers match, and stay because they were not idle for long enough",
    )
