"""Report one run as one HTML file that needs no network and no script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from claimlib.commands.period_report import PeriodReport
from claimlib.commands.run_report import RunReport
from claimlib.report import period_report
from claimlib.report.model import Report, cell_text, is_numeric
from claimlib.report.run_report import Section, full_report_of_run, name_of, sections
from claimlib.report.text import instant
from claimlib.terminal import one_line

_LONGEST = 200
"""The most characters of a text.  A longer text is cut, because a name may have any length."""
_LONGEST_LABEL = 34
_LEFT, _WIDEST = 250, 420
"""The pixel at which the bars of a plot begin, and the width of the longest bar in pixels."""
_BAR, _GAP, _TOP = 13, 7, 26


def as_html(report: RunReport) -> str:
    """Return the HTML document.

    The template escapes every text.  Characters that cannot be printed are shown as escapes.
    """
    return _page(
        f"claimlib report: {name_of(report)}",
        _times(report),
        full_report_of_run(report),
        sections(report),
    )


def period_as_html(report: PeriodReport) -> str:
    """Return the HTML document of a report on a period, see `as_html`."""
    return _page(
        "claimlib report: runs of a period",
        f"From {instant(report.since_ms)} to {instant(report.until_ms)}, store {report.where}.",
        period_report.report_of_period(report),
        period_report.sections(report),
    )


def _page(heading: str, times: str, main: Report, parts: Sequence[Section]) -> str:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    template = files("claimlib.report").joinpath("run_report.html.jinja").read_text("utf-8")
    return environment.from_string(template).render(
        heading=_short(heading),
        verdict=_short(main.title, 2 * _LONGEST),
        times=_short(times),
        notes=[_short(note, 2 * _LONGEST) for note in main.notes],
        parts=[_part(section) for section in parts],
    )


def _times(report: RunReport) -> str:
    run = report.run
    when = [
        f"{what} {instant(ms)}"
        for what, ms in (("Began", run.began_ms), ("ended", run.ended_ms))
        if ms is not None
    ]
    return f"{', '.join([*when, f'store {report.where}'])}."


@dataclass(frozen=True, slots=True)
class _Plot:
    """Hold what a plot shows, in pixels."""

    title: str
    width: int
    height: int
    left: int
    legend: Sequence[dict[str, object]]
    labels: Sequence[dict[str, object]]
    bars: Sequence[dict[str, object]]


def _part(section: Section) -> dict[str, object]:
    table = section.table
    numeric = [is_numeric(table, at) for at in range(len(table.columns))]
    return {
        "title": table.title,
        "columns": [
            {"text": _short(heading), "is_number": is_number}
            for heading, is_number in zip(table.headings, numeric, strict=True)
        ],
        "rows": [
            [_short(cell_text(cell, name)) for cell, name in zip(row, table.columns, strict=True)]
            for row in table.rows
        ],
        "notes": [_short(note, 2 * _LONGEST) for note in table.below],
        "plot": _plot(table, [name for name in section.bars if name in table.columns]),
    }


def _plot(table: Report, names: Sequence[str]) -> _Plot | None:
    """Return horizontal bars: one per row and name, labelled by the first columns of the row."""
    columns = list(table.columns)
    values = [[row[columns.index(name)] for name in names] for row in table.rows]
    most = max((number for row in values for number in row if isinstance(number, int)), default=0)
    if not most:
        return None
    height = _BAR * len(names) + _GAP
    labelled = columns.index(names[0])
    bars: list[dict[str, object]] = []
    labels: list[dict[str, object]] = []
    for number, (row, of_row) in enumerate(zip(table.rows, values, strict=True)):
        top = _TOP + number * height
        text = " / ".join(cell_text(cell) for cell in row[:labelled])
        labels.append({"y": top + height // 2 + 2, "text": _short(text, _LONGEST_LABEL)})
        bars += [
            {
                "series": series,
                "y": top + series * _BAR,
                "width": max(round(_WIDEST * value / most), 1 if value else 0),
                "text": f"{value:,}",
            }
            for series, value in enumerate(of_row)
            if isinstance(value, int)
        ]
    headings = [table.columns[name] for name in names]
    return _Plot(
        title=f"{table.title}: {' and '.join(headings)}, as bars",
        width=_LEFT + _WIDEST + 100,
        height=_TOP + height * len(table.rows),
        left=_LEFT,
        legend=[{"x": _LEFT + 170 * at, "text": heading} for at, heading in enumerate(headings)],
        labels=labels,
        bars=bars,
    )


def _short(text: str, most: int = _LONGEST) -> str:
    shown = one_line(text)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"
