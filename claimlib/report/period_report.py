"""Report the runs of a period as tables for people and as a document for programs."""

from __future__ import annotations

from collections.abc import Iterable

from claimlib.commands.report_period import PeriodReport
from claimlib.engine.relation import Record
from claimlib.plans.keys import GROUP
from claimlib.plans.period_report_plan import COUNTS
from claimlib.report.headings import headings
from claimlib.report.report_model import Cell, Report
from claimlib.report.run_report import SCHEMA_VERSION, Section, table
from claimlib.report.text import duration, entries_text, groups_text, instant, visible
from claimlib.terminal import number_of

COLUMNS = headings("run_seq", "key", "ended_ms", "pending", *COUNTS, "claimed_again")


def report_of_period(report: PeriodReport) -> Report:
    """Return a table with the runs, and the document of the whole report."""
    return Report(
        title=verdict(report),
        columns=COLUMNS,
        rows=tuple(
            (
                row["run_seq"],
                visible(row["key"]),
                instant(row["ended_ms"]),
                *(row[name] for name in tuple(COLUMNS)[3:]),
            )
            for row in report.runs
        ),
        cut_off=tuple(_more(report, "runs", "run")),
        notes=tuple(_remarks(report)),
        document={
            "schema_version": SCHEMA_VERSION,
            "command": "report",
            "store": report.where,
            "verdict": verdict(report),
            "since_ms": report.since_ms,
            "until_ms": report.until_ms,
            "totals": dict(report.totals),
            "runs": report.runs,
            "worse_groups": report.worse_groups,
            "losing_consumers": report.losing_consumers,
            "acknowledged": report.acknowledged,
            "not_shown": dict(report.not_shown),
            "complete_from_run": report.complete_from_run,
        },
        records=report.runs,
    )


_ACKNOWLEDGED = ("median_ms", "slowest_tenth_ms")


def verdict(report: PeriodReport) -> str:
    """Return the sentence with which the report begins."""
    totals = report.totals
    worse = len(report.worse_groups) + report.not_shown["worse_groups"]
    losing = len(report.losing_consumers) + report.not_shown["losing_consumers"]
    return (
        f"{number_of(totals['runs'], 'run')} since {instant(report.since_ms)}:"
        f" {entries_text(totals['claimed'])} claimed ({totals['claimed_again']:,} repeatedly),"
        f" {totals['deleted']:,} deleted, {totals['lost']:,} lost to other writers."
        f" {groups_text(worse)} got more pending entries, and {number_of(losing, 'consumer')} lost"
        " entries in several runs"
    )


def sections(report: PeriodReport) -> tuple[Section, ...]:
    """Return the parts of a report, without those that have no rows."""
    main = report_of_period(report)
    worse = ("pending_first", "pending_last")
    parts = (
        Section(table("Runs", main.columns, main.rows, notes=main.cut_off), ("claimed",)),
        Section(
            table(
                "Groups with more pending entries",
                headings(*GROUP, *worse, "sweeps"),
                _rows(report.worse_groups, GROUP, (*worse, "sweeps")),
                notes=_more(report, "worse_groups", "group"),
            ),
            worse,
        ),
        Section(
            table(
                "Consumers that lost entries in several runs",
                headings(*GROUP, "consumer", "runs", "entries"),
                _rows(report.losing_consumers, (*GROUP, "consumer"), ("runs", "entries")),
                notes=_more(report, "losing_consumers", "consumer"),
            ),
            ("entries",),
        ),
        Section(
            table(
                "Time from the last delivery to the acknowledgement",
                headings(*GROUP, "acknowledged", *_ACKNOWLEDGED),
                (
                    (
                        *(visible(row[name]) for name in GROUP),
                        row["acknowledged"],
                        *(duration(row[name]) for name in _ACKNOWLEDGED),
                    )
                    for row in report.acknowledged
                ),
                notes=(
                    *_more(report, "acknowledged", "group"),
                    "as far as snapshots show it: until the first snapshot that lacks the entry",
                ),
            )
        ),
    )
    return tuple(part for part in parts if part.table.rows)


def _rows(
    records: Iterable[Record], names: Iterable[str], numbers: Iterable[str]
) -> Iterable[tuple[Cell, ...]]:
    shown, counted = tuple(names), tuple(numbers)
    for row in records:
        yield (*(visible(row[name]) for name in shown), *(row[name] for name in counted))


def _more(report: PeriodReport, part: str, noun: str) -> Iterable[str]:
    if report.not_shown[part] > 0:
        yield f"and {number_of(report.not_shown[part], f'more {noun}')}"


def _remarks(report: PeriodReport) -> Iterable[str]:
    if report.complete_from_run > 1:
        yield (
            f"of runs before run {report.complete_from_run} only the counts are known, because"
            " maintain has deleted their journal rows"
        )
