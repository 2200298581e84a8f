"""Report the result of `reset-cursor`, for people and for programs."""

from __future__ import annotations

from claimlib.engine.relation import Relation
from claimlib.plans.keys import GROUP
from claimlib.report.headings import headings
from claimlib.report.report_model import DEFAULT_LIMIT, Report
from claimlib.report.rows import fetch_rows
from claimlib.report.runs_report import run_document
from claimlib.report.text import not_shown, repeated, visible
from claimlib.runs import FinishedRun

COLUMNS = headings("name", *GROUP, "next_id")


def report_of_reset(
    finished: FinishedRun, cursors: Relation, limit: int | None = DEFAULT_LIMIT
) -> Report:
    """Return one row per group for which a run has set a cursor, sorted by stream and group.

    Args:
        cursors: see `commands.reply.Reply.cursors`.
        limit: the number of groups to show at most, or None for all.
    """
    rows = fetch_rows(cursors.select(*COLUMNS), GROUP, limit, cursors.count())
    shown, hidden = rows.shown, rows.hidden
    return Report(
        title=f"reset-cursor, run {finished.run_seq} ({finished.key}): where the next page begins",
        columns=COLUMNS,
        rows=tuple(tuple(visible(row[name]) for name in COLUMNS) for row in shown),
        cut_off=tuple(not_shown(hidden, "cursor", shown=len(shown))),
        notes=tuple(repeated(finished.run_seq, is_repeat=finished.is_repeat)),
        document={
            **run_document(finished),
            "is_repeat": finished.is_repeat,
            "cursors": rows.records,
            "cursors_not_shown": hidden,
        },
        records=rows.records,
    )
