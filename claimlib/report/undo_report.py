"""Report an undo as a table and as a document."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from claimlib.commands.undo import CONSUMERS, CURSORS, ENTRIES, GROUPS, UndoReply
from claimlib.plans.keys import GROUP, ID_ORDER
from claimlib.report.headings import headings
from claimlib.report.report_model import DEFAULT_LIMIT, Report
from claimlib.report.rows import FetchedRows, fetch_rows
from claimlib.report.text import counted, group_row, groups_text, not_shown, repeated, visible

_NUMBERS = tuple(map(str, ENTRIES))
COLUMNS = headings(*GROUP, *_NUMBERS)
_MOST_KEPT_IN_NOTE = 10


def report_of_undo(reply: UndoReply, where: str, limit: int | None = DEFAULT_LIMIT) -> Report:
    """Return one row per group, and a total.  The groups with the most entries come first.

    Args:
        where: where the store is.  A note has the command that undoes this run.
        limit: the most groups to show, and the most kept entries in the document.  None means all.
    """
    groups = reply.groups.fetched()
    count = groups.count()
    rows = fetch_rows(groups, (f"{' + '.join(_NUMBERS)} DESC", *GROUP), limit, count)
    totals = tuple(reply.counts[name] for name in _NUMBERS)
    number_kept, order = reply.counts["kept"], (*GROUP, *ID_ORDER)
    kept = fetch_rows(reply.kept, order, limit, number_kept, _entry_names)
    first_kept = fetch_rows(reply.kept, order, _MOST_KEPT_IN_NOTE, number_kept, _entry_names)
    return Report(
        title=_title(reply),
        columns=COLUMNS,
        rows=(
            *(group_row(row, _NUMBERS) for row in rows.shown),
            ("total", groups_text(count), *totals),
        ),
        cut_off=tuple(not_shown(rows.hidden, "group", shown=len(rows.shown))),
        notes=(
            *repeated(reply.run_seq, is_repeat=reply.is_repeat),
            *_kept(first_kept),
            *_lost(reply.counts),
            *_restored_values(reply.counts),
            *_on_server(reply, where),
            *_redo(reply, where),
        ),
        document={
            "command": "undo",
            "run_seq": reply.run_seq,
            "run_id": reply.run_id,
            "is_repeat": reply.is_repeat,
            "dry_run": reply.dry_run,
            "run": reply.undone,
            "is_on_server": reply.is_on_server,
            "counts": dict(reply.counts),
            "groups": rows.records,
            "groups_not_shown": rows.hidden,
            "kept": kept.records,
            "kept_not_shown": kept.hidden,
        },
        records=rows.records,
    )


def _title(reply: UndoReply) -> str:
    of_run = f" of {visible(reply.undone)}"
    if reply.dry_run:
        return f"Undo{of_run}, dry run: what it would put back; nothing was written"
    return f"Undo{of_run}, run {reply.run_seq} (undo:{reply.run_id})"


def _entry_names(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in (*GROUP, "id")}


def _kept(rows: FetchedRows) -> Iterable[str]:
    number = rows.hidden + len(rows.shown)
    if not number:
        return
    yield from counted(number, "entry was left alone", "entries were left alone")
    names = ", ".join(" / ".join(str(visible(name)) for name in row.values()) for row in rows.shown)
    more = f", and {rows.hidden:,} more (--output json lists them)" if rows.hidden else ""
    yield f"another run, writer or client changed these since the run: {names}{more}"


def _lost(counts: Mapping[str, int]) -> Iterable[str]:
    if counts["lost"]:
        yield f"{counts['lost']:,} lost: another writer changed the row first"


def _restored_values(counts: Mapping[str, int]) -> Iterable[str]:
    names = {CONSUMERS: "consumer", CURSORS: "cursor", GROUPS: "last delivered id"}
    for count, name in names.items():
        yield from counted(counts[count], f"{name} was restored", f"{name}s were restored")


def _on_server(reply: UndoReply, where: str) -> Iterable[str]:
    if not reply.is_on_server:
        return
    words = shlex.join(("claimlib", "writeback", where, str(reply.run_seq)))
    step = f". To undo its claims there: {words} URL"
    can_be_sent = reply.counts["restored"] and not reply.dry_run
    yield (
        f"{visible(reply.undone)} was written back, so the server still has its changes"
        f"{step if can_be_sent else ''}"
    )
    if not reply.counts["restored"]:
        yield "acknowledgements and deletions on the server cannot be undone"


def _redo(reply: UndoReply, where: str) -> Iterable[str]:
    if not reply.dry_run:
        words = ("claimlib", "undo", where, str(reply.run_seq))
        yield f"To do the run again, undo this: {shlex.join(words)}"
