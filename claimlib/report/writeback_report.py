"""Report a writeback to people and to programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from claimlib.commands.writeback import WritebackReply
from claimlib.plans.keys import GROUP
from claimlib.plans.writeback_plan import CONSUMERS_KEPT, CONSUMERS_REMOVED, DECIDED, OUTCOMES
from claimlib.report.headings import headings
from claimlib.report.report_model import DEFAULT_LIMIT, Report
from claimlib.report.rows import fetch_rows
from claimlib.report.text import counted, group_row, groups_text, not_shown, repeated, visible

_PLANNED = ("claims", "removals")
_NUMBERS = (*_PLANNED, *map(str, OUTCOMES))
COLUMNS = headings(*GROUP, *_NUMBERS)


def report_of_writeback(reply: WritebackReply, limit: int | None = DEFAULT_LIMIT) -> Report:
    """Return one row per group, and a total.  The groups with the most entries come first.

    Args:
        limit: the most groups to show, or None for all.
    """
    groups = reply.groups.fetched()
    if reply.dry_run:  # nothing was sent, so there are no outcomes
        groups = groups.select("*", *(f"CAST(NULL AS BIGINT) AS {kind}" for kind in OUTCOMES))
    count = groups.count()
    (totals,) = groups.select(*(f"sum({name}) AS {name}" for name in _NUMBERS)).collect()
    totals = {name: number if count else 0 for name, number in totals.items()}
    rows = fetch_rows(groups, ("claims + removals DESC", *GROUP), limit, count)
    return Report(
        title=_title(reply),
        columns=COLUMNS,
        rows=(
            *(group_row(row, _NUMBERS) for row in rows.shown),
            ("total", groups_text(count), *(totals[name] for name in _NUMBERS)),
        ),
        cut_off=tuple(not_shown(rows.hidden, "group", shown=len(rows.shown))),
        notes=(*repeated(reply.run_seq, is_repeat=reply.is_repeat), *_notes(reply.counts)),
        document={
            "command": "writeback",
            "run_seq": reply.run_seq,
            "run_id": reply.run_id,
            "is_repeat": reply.is_repeat,
            "dry_run": reply.dry_run,
            "run": reply.written,
            DECIDED: reply.counts[DECIDED],
            "counts": dict(reply.counts),
            "groups": rows.records,
            "groups_not_shown": rows.hidden,
        },
        records=rows.records,
    )


def with_writeback(report: Report, reply: WritebackReply | None) -> Report:
    """Return the report of a run, with the writeback that followed it.

    Args:
        reply: None if the run was not written back.
    """
    if reply is None:
        return report
    numbers = ", ".join(f"{reply.counts[str(kind)]:,} {kind}" for kind in OUTCOMES)
    note = (
        f"written back to the server by run {reply.run_seq} (writeback:{reply.run_id}): {numbers}"
    )
    run = {"run_seq": reply.run_seq, "run_id": reply.run_id, "is_repeat": reply.is_repeat}
    return replace(
        report,
        notes=(*report.notes, note, *_notes(reply.counts)),
        document={**report.document, "writeback": {**run, "counts": dict(reply.counts)}},
    )


def _notes(counts: Mapping[str, int]) -> Iterable[str]:
    yield from _left_alone(counts)
    yield from _lost(counts)
    yield from _consumers(counts)


def _title(reply: WritebackReply) -> str:
    of_run = f" of {visible(reply.written)}"
    if reply.dry_run:
        return f"Writeback{of_run}, dry run: what it would send; nothing was sent"
    return f"Writeback{of_run}, run {reply.run_seq} (writeback:{reply.run_id})"


def _left_alone(counts: Mapping[str, int]) -> Iterable[str]:
    number = counts.get("touched", 0) + counts.get("gone", 0)
    if number:
        yield from counted(number, "entry was left alone", "entries were left alone")
        yield (
            "touched: another client changed the entry since the snapshot. gone: it is no longer"
            " pending. The store keeps these rows; the next snapshot corrects them"
        )


def _lost(counts: Mapping[str, int]) -> Iterable[str]:
    if counts.get("lost"):
        yield f"{counts['lost']:,} lost: another writer changed the row in the store first"


def _consumers(counts: Mapping[str, int]) -> Iterable[str]:
    yield from counted(
        counts.get(CONSUMERS_REMOVED, 0),
        "retired consumer was removed on the server",
        "retired consumers were removed on the server",
    )
    yield from counted(
        counts.get(CONSUMERS_KEPT, 0),
        "retired consumer stays on the server, because it has pending entries",
        "retired consumers stay on the server, because they have pending entries",
    )
