"""Report a run of `maintain` as a table and as a document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from claimlib.commands.maintain import (
    OLDEST_SOURCE,
    RUNS_DELETED,
    TABLE_COUNTS,
    MaintainReply,
)
from claimlib.report.headings import headings
from claimlib.report.report_model import Cell, Report
from claimlib.report.text import counted, repeated, visible
from claimlib.runs.maintenance import COMMAND, THROUGH
from claimlib.schema import Kind

COLUMNS = headings("table", *TABLE_COUNTS)


def report_of_maintain(reply: MaintainReply) -> Report:
    """Return one row per table, and a row with totals."""
    rows: list[tuple[Cell, ...]] = [tuple(row[name] for name in COLUMNS) for row in reply.tables]
    return Report(
        title=_title(reply),
        columns=COLUMNS,
        rows=(*rows, ("total", *(_total(column) for column in list(zip(*rows, strict=True))[1:]))),
        notes=(
            *repeated(reply.run_seq, is_repeat=reply.is_repeat),
            *_deleted(reply),
        ),
        document={
            "command": COMMAND,
            "run_seq": reply.run_seq,
            "run_id": reply.run_id,
            "is_repeat": reply.is_repeat,
            "dry_run": reply.dry_run,
            "counts": dict(reply.counts),
            "tables": list(reply.tables),
        },
        records=reply.tables,
    )


def _title(reply: MaintainReply) -> str:
    if reply.dry_run:
        return "Maintenance, dry run: what it would do; nothing was written"
    return f"Maintenance, run {reply.run_seq} ({COMMAND}:{visible(reply.run_id)})"


def _total(column: Sequence[Cell]) -> Cell:
    """Return the sum of a column, or None if a number is unknown."""
    numbers = [number for number in column if isinstance(number, int)]
    return sum(numbers) if len(numbers) == len(column) else None


def _deleted(reply: MaintainReply) -> Iterable[str]:
    counts = reply.counts
    would = "would be" if reply.dry_run else "were"
    was = "would be" if reply.dry_run else "was"
    can, begins = ("could", "would begin") if reply.dry_run else ("can", "begins")
    if counts[RUNS_DELETED]:
        through = counts[THROUGH]
        yield (
            f"the journal rows of all runs up to run {through} {would} deleted. These runs"
            f" {can} no longer be undone, written back or listed in detail, and the history of"
            f" entries {begins} with run {through + 1}. Their run ids, requests and counts stay"
        )
    if OLDEST_SOURCE in counts:
        seq = counts[OLDEST_SOURCE]
        yield (
            f"all journal rows from run {seq} on stay, because no later snapshot or import has read"
            " some of the groups that it read"
            if seq
            else "all journal rows stay, because some groups were never read by a snapshot"
        )
    yield from counted(
        counts[str(Kind.EXPIRED)],
        f"old or unused reading {was} deleted from pel_snapshots and entry_landing",
        f"old or unused readings {would} deleted from pel_snapshots and entry_landing",
    )
