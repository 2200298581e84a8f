"""Report one run as tables for people and as a document for programs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from claimlib.commands.report_run import RunReport
from claimlib.commands.run_commands import RUN_COMMANDS, WRITEBACK
from claimlib.engine.relation import Record
from claimlib.plans.keys import GROUP
from claimlib.plans.run_report_plan import AFTER, BEFORE, CHANGES, COLUMNS, PENDING, TIMES
from claimlib.report.counts import MEANINGS
from claimlib.report.headings import headings
from claimlib.report.report_model import Cell, Report
from claimlib.report.runs_report import run_document
from claimlib.report.text import (
    duration,
    entries_text,
    group_row,
    groups_text,
    only_in_store,
    visible,
)
from claimlib.runs import Phase
from claimlib.runs.mirror_rows import NEW
from claimlib.schema import Kind
from claimlib.terminal import number_of
from claimlib.times import format_duration_ms

SCHEMA_VERSION = 1
"""The version of the JSON document.  It rises when a field changes its meaning or is removed."""
_WORDS = {
    Kind.CLAIMED: "claimed",
    Kind.FORCED: "made pending",
    Kind.DELETED: "deleted",
    Kind.ACKED: "acknowledged",
    Kind.MOVED: "claimed on the server",
    Kind.RESTORED: "given back to earlier owners",
    Kind.RETURNED: "made pending again",
    Kind.WITHDRAWN: "no longer pending",
    Kind.PENDING_REPLACED: "changed by the source",
    Kind.PENDING_REMOVED: "removed by the source",
}


@dataclass(frozen=True, slots=True)
class Section:
    """Show one part of a report.

    Attributes:
        table: the rows.  Its title is the heading.
        bars: the names of the columns that a plot shows as bars, one group of bars per row.
        links: per row the address to which its first cell links, or None for no link.  Empty if no
            row has a link.
    """

    table: Report
    bars: tuple[str, ...] = ()
    links: tuple[str | None, ...] = ()


def verdict(report: RunReport) -> str:
    """Return the sentence with which a report begins."""
    changed = ", ".join(_changes(report))
    return f"{name_of(report)}: {_stalled(report)}{changed[:1].upper() + changed[1:]}"


def name_of(report: RunReport) -> str:
    """Return the name that people read for the run of a report."""
    if report.is_dry_run:
        return f"Dry run of {report.run.command}, which changed nothing"
    return f"Run {report.run.run_seq} ({visible(report.run.key)})"


def _stalled(report: RunReport) -> str:
    times = [time for time in TIMES if report.knows(time)]
    numbers = {time: report.totals[f"stalled_groups_{time}"] or 0 for time in times}
    if not numbers:
        return ""
    if report.run.command == WRITEBACK:  # its changes of the store are those on the server
        return ""
    (first, number), *rest = numbers.items()
    was = "was" if number == 1 or report.totals["groups"] == 1 else "were"
    then = "".join(f", {count:,} {time} it" for time, count in rest)
    of_all = groups_text(report.totals["groups"] or 0)
    return f"{number:,} of {of_all} {was} stalled {first} the run{then}. "


def _changes(report: RunReport) -> Iterable[str]:
    """Yield the parts of the sentence on changed entries.  Only the first contains "entries"."""
    counts = report.run.counts
    if report.run.is_abandoned:
        yield "the run was abandoned: it did not do all that was requested"
        return
    numbers = {kind: _number(report, kind) for kind in CHANGES}
    command = RUN_COMMANDS.get(report.run.command)
    expected = () if command is None else command.reported
    parts = [
        (number, _WORDS[kind]) for kind, number in numbers.items() if number or kind in expected
    ]
    if counts.get(NEW["pending"]):
        parts.insert(0, (counts[NEW["pending"]], "new"))
    if counts.get(Kind.ACKNOWLEDGED):
        parts.append((counts[Kind.ACKNOWLEDGED], "acknowledged there"))
    if expected or counts.get(Kind.LOST):
        parts.append((counts.get(Kind.LOST, 0), "lost to other writers"))
    if not parts:
        yield "no pending entry was changed"
        return
    (number, word), *others = parts
    yield f"{entries_text(number)} {word}"
    yield from (f"{number:,} {word}" for number, word in others)
    if counts.get(Kind.REFUSED):
        yield f"{counts[Kind.REFUSED]:,} refused"


def _number(report: RunReport, kind: Kind) -> int:
    """Return the number of changes of a kind.

    If the journal rows of the run were deleted, it is the number that the run has counted.
    """
    if not report.has_history:
        return report.run.counts.get(kind, 0)
    return report.totals[kind] or 0


def full_report_of_run(report: RunReport) -> Report:
    """Return the verdict with the worst groups, and the document of the whole report."""
    columns = _group_columns(report)
    return Report(
        title=verdict(report),
        columns=columns,
        rows=tuple(_group_cells(row, tuple(columns)) for row in report.groups),
        cut_off=tuple(_groups_left_out(report)),
        notes=(*_remarks(report), *_next_steps(report)),
        document=document(report),
        records=report.groups,
        names=tuple(map(str, COLUMNS)),
    )


_GROUP_VALUES = ("pending", "stalled", "oldest_idle_ms", "highest_delivery_count")
_LABELS = {
    "pending": "pending",
    "stalled": "stalled",
    "oldest_idle_ms": "oldest idle",
    "highest_delivery_count": "most deliveries",
    "delivered_5_plus": "delivered 5 times or more",
    "delivered_10_plus": "delivered 10 times or more",
}


def _group_columns(report: RunReport) -> dict[str, str]:
    """Return the headings of the table of the worst groups, by column.

    The columns before (or after) the run are omitted if they are unknown.  A kind of change is
    omitted if no group has such a change.
    """
    times = [time for time in TIMES if report.knows(time)]
    headings_by_value = {
        f"{name}_{time}": f"{_LABELS[name]} {time}"
        for name in _GROUP_VALUES
        for time in (times if name in {"pending", "stalled"} else times[-1:])
    }
    changes = [kind for kind in (*CHANGES, Kind.LOST) if any(row[kind] for row in report.groups)]
    reason = ["reason"] if any(row["reason"] is not None for row in report.groups) else []
    return headings(*GROUP, *headings_by_value, *map(str, changes), *reason, **headings_by_value)


def _group_cells(row: Mapping[str, Any], columns: Sequence[str]) -> tuple[Cell, ...]:
    oldest = {name: duration(row[name]) for name in columns if name.startswith("oldest")}
    return group_row({**row, **oldest}, columns[len(GROUP) :])


def _groups_left_out(report: RunReport) -> Iterable[str]:
    hidden = (report.totals["groups"] or 0) - len(report.groups)
    if hidden > 0:
        time = AFTER if report.knows(AFTER) else BEFORE
        parts = {
            "pending": report.left_out(f"pending_{time}"),
            "changed": report.left_out("changed"),
        }
        numbers = (f"{number:,} {what}" for what, number in parts.items() if number is not None)
        yield f"and {number_of(hidden, 'more group')}: {', '.join(numbers)}"


def _remarks(report: RunReport) -> Iterable[str]:
    if not report.totals["groups"]:
        yield "The store has no consumer group."
    if not report.has_history:
        yield (
            "maintain has deleted the journal rows of this run, so the changes are only those that"
            " the run counted"
        )
    unknown = [time for time in TIMES if not report.knows(time)]
    if unknown:
        yield (
            f"the pending entries {' and '.join(unknown)} the run are unknown: these versions of"
            " the tables can no longer be read"
        )
    if report.undone_by is not None:
        yield f"{visible(report.undone_by)} has undone the run"
    if report.written_back_by is not None:
        yield f"{visible(report.written_back_by)} has written the run back to the server"
    yield from only_in_store(report.only_in_store)
    if report.unfinished:
        yield f"unfinished: {', '.join(map(str, map(visible, report.unfinished)))}"


def _next_steps(report: RunReport) -> Iterable[str]:
    for step, words in _commands(report).items():
        yield f"{_STEPS[step]}: {words}"


_STEPS = {
    "as_of": "the store as this run left it (for 7 days)",
    "runs": "the request of this run",
    "undo": "undo this run",
    "writeback": "make the changes of this run on the server",
}


def _commands(report: RunReport) -> dict[str, str]:
    """Return the next commands that a user may type, by purpose (see `_STEPS`)."""
    if report.is_dry_run:
        return {}
    where, seq = shlex.quote(report.where), report.run.run_seq
    commands = {"runs": f"claimlib runs {where} {seq}"}
    if report.knows(AFTER):
        commands["as_of"] = f"claimlib xpending {where} --as-of {seq}"
    if report.can_be_undone:
        commands["undo"] = f"claimlib undo {where} {seq}"
    if report.can_be_written_back:
        commands["writeback"] = f"claimlib writeback {where} {seq} URL"
    return commands


def sections(report: RunReport) -> tuple[Section, ...]:
    """Return the parts of a report that have something to show."""
    main = full_report_of_run(report)
    groups = table("Worst groups", main.columns, main.rows, notes=main.cut_off)
    bars = tuple(f"pending_{time}" for time in TIMES)
    return tuple(
        section
        for section in (
            Section(groups, bars),
            Section(_balance(report)),
            Section(_intervals("Idle times", "idle time", report.idle_ms, _idle_label), TIMES),
            Section(
                _intervals("Delivery counts", "deliveries", report.delivery_counts, _count_label),
                TIMES,
            ),
            Section(_transfers(report), ("entries",)),
            Section(_counts(report)),
            Section(_phases(report), ("phase_ms",)),
        )
        if section.table.rows
    )


def table(
    title: str,
    columns: Mapping[str, str],
    rows: Iterable[tuple[Cell, ...]],
    *,
    notes: Iterable[str] = (),
) -> Report:
    """Return a report that is only the table of a section, without a document and records."""
    return Report(title, columns, tuple(rows), tuple(notes), {}, [])


def _balance(report: RunReport) -> Report:
    """Return the pending entries before and after the run, and how their numbers add up."""
    times = [time for time in TIMES if report.knows(time)]
    names = PENDING if times else ()
    rows = [
        (_label(report, name), *(_pending_cell(report, name, time) for time in times))
        for name in names
    ]
    sums = report.balance
    notes = []
    if sums is not None:
        parts = [
            f"{sums['before']:,} before + {sums['added']:,} added - {sums['removed']:,} removed",
            *([f"{sums['by_others']:+,} by other writers"] if sums["by_others"] else []),
        ]
        notes.append(f"{' '.join(parts)} = {sums['after']:,} after")
    columns = headings("what", *times)
    return Report(
        "Pending entries before and after the run", columns, tuple(rows), tuple(notes), {}, []
    )


def _label(report: RunReport, name: str) -> str:
    limit = format_duration_ms(report.stalled_after_ms)
    return f"stalled (idle for {limit} or longer)" if name == "stalled" else _LABELS[name]


def _pending_cell(report: RunReport, name: str, time: str) -> Cell:
    value = report.totals[f"{name}_{time}"]
    return duration(value) if name == "oldest_idle_ms" else value


def _intervals(
    title: str, heading: str, intervals: Sequence[Record], label: Callable[[Record], str]
) -> Report:
    times = [time for time in TIMES if any(interval[time] for interval in intervals)]
    rows = (
        (label(interval), *(interval[time] for time in times))
        for interval in intervals
        # The interval of unknown idle times is shown only if it has entries.
        if interval["at_least"] is not None or interval["before"] or interval["after"]
    )
    return table(title, headings("interval", *times, interval=heading), rows if times else ())


def _idle_label(interval: Record) -> str:
    low, high = interval["at_least"], interval["below"]
    if low is None:
        return "unknown"
    if high is None:
        return f"{format_duration_ms(low)} or longer"
    return (
        f"{format_duration_ms(low)} to {format_duration_ms(high)}"
        if low
        else f"below {format_duration_ms(high)}"
    )


def _count_label(interval: Record) -> str:
    low, high = interval["at_least"], interval["below"]
    if low is None or high is None:
        return f"{low} or more"
    return str(low) if high == low + 1 else f"{low} to {high - 1}"


def _transfers(report: RunReport) -> Report:
    names = (*GROUP, "from_consumer", "consumer")
    shown = sum(row["entries"] for row in report.transfers)
    hidden = report.transfers_total["pairs"] - len(report.transfers)
    rest = report.transfers_total["entries"] - shown
    return table(
        "Changes of owner",
        headings(*names, "entries"),
        ((*(visible(row[name]) for name in names), row["entries"]) for row in report.transfers),
        notes=[f"and {number_of(hidden, 'more pair')} of owners: {entries_text(rest)}"]
        if hidden > 0
        else [],
    )


def _counts(report: RunReport) -> Report:
    counts = {name: count for name, count in sorted(report.run.counts.items()) if count}
    return table(
        "Counts of the run",
        headings("what", "number", "meaning", what="count"),
        ((name.replace("_", " "), count, MEANINGS.get(name, "")) for name, count in counts.items()),
    )


def _phases(report: RunReport) -> Report:
    phase_ms = report.run.phase_ms
    return table(
        "Phases of the run",
        headings("phase", "phase_ms", phase_ms="duration (ms)"),
        ((str(phase), phase_ms[phase]) for phase in Phase if phase in phase_ms),
    )


# A dry run has no values of these fields.
_ONLY_OF_FINISHED_RUNS = ("run_seq", "run_id", "software_version")


def document(report: RunReport) -> dict[str, object]:
    """Return the report for programs.  docs/reports.md explains each field."""
    run = run_document(report.run)
    if report.is_dry_run:
        run |= dict.fromkeys(_ONLY_OF_FINISHED_RUNS)
    hidden = (report.totals["groups"] or 0) - len(report.groups)
    return {
        "schema_version": SCHEMA_VERSION,
        "command": "report",
        "store": report.where,
        "verdict": verdict(report),
        "run": {name: value for name, value in run.items() if name != "request"},
        "undone_by": report.undone_by,
        "written_back_by": report.written_back_by,
        "only_in_store": report.only_in_store,
        "unfinished": list(report.unfinished),
        "has_history": report.has_history,
        "dry_run": report.is_dry_run,
        "stalled_after_ms": report.stalled_after_ms,
        "totals": dict(report.totals),
        "balance": report.balance,
        "groups": report.groups,
        "groups_not_shown": {
            "groups": hidden,
            **{
                name: report.left_out(name)
                for name in ("changed", *map("pending_{}".format, TIMES))
            },
        },
        "transfers": report.transfers,
        "transfers_total": dict(report.transfers_total),
        "idle_ms": report.idle_ms,
        "delivery_counts": report.delivery_counts,
        "next_steps": _commands(report),
    }
