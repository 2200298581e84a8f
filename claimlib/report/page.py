"""Render HTML pages that need no network and no script: tables, plots, links and one form.

The template escapes every text for HTML.  Characters that cannot be printed are shown as escapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template

from claimlib.report.report_model import Report, cell_text, is_numeric
from claimlib.report.run_report import Section
from claimlib.terminal import one_line

_LONGEST, _LONGEST_LABEL = 200, 34
"""The largest number of characters of a text, and of a label of a plot.  Longer ones are cut."""
_LEFT, _WIDEST = 250, 420
"""The position at which the bars of a plot begin, and the width of the longest bar, in pixels."""
_BAR, _GAP, _TOP = 13, 7, 26
"""The height of a bar, of the gap between rows, and of the legend above the bars, in pixels."""


@dataclass(frozen=True, slots=True)
class Link:
    """Hold a link to another page.

    Attributes:
        href: the other page, relative to this one.  None means this page itself.
    """

    text: str
    href: str | None


@dataclass(frozen=True, slots=True)
class Field:
    """Hold one input of a form."""

    name: str
    label: str
    value: str


@dataclass(frozen=True, slots=True)
class Form:
    """Hold a form that opens another page, with the inputs as the query.

    Attributes:
        action: the page, relative to this one.
        hidden: further names and values of the query.
    """

    action: str
    fields: Sequence[Field]
    button: str
    hidden: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """Hold the contents of a page, from top to bottom."""

    heading: str
    verdict: str
    about: str = ""
    notes: Sequence[str] = ()
    sections: Sequence[Section] = ()
    links: Sequence[Link] = ()
    form: Form | None = None


def render(page: Page) -> str:
    """Return a page as an HTML document."""
    return _template().render(
        heading=_short(page.heading),
        verdict=_short(page.verdict, 2 * _LONGEST),
        about=_short(page.about, 2 * _LONGEST),
        notes=[_short(note, 2 * _LONGEST) for note in page.notes],
        parts=[_part(section) for section in page.sections],
        links=page.links,
        form=None if page.form is None else _printable(page.form),
    )


def _printable(form: Form) -> Form:
    """Return a form with escapes for line breaks in its values, because browsers change them."""
    return replace(
        form,
        fields=[replace(field, value=one_line(field.value)) for field in form.fields],
        hidden=[(name, one_line(value)) for name, value in form.hidden],
    )


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    text = files("claimlib.report").joinpath("page.html.jinja").read_text("utf-8")
    return environment.from_string(text)


@dataclass(frozen=True, slots=True)
class _Plot:
    """Hold the parts of a plot, with sizes and positions in pixels."""

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
        "links": list(section.links),
        "plot": _plot(table, [name for name in section.bars if name in table.columns]),
    }


def _plot(table: Report, names: Sequence[str]) -> _Plot | None:
    """Return a plot with one horizontal bar per row and name, or None if all bars would be empty.

    The label of a row is its first cells.

    Args:
        names: the columns with the values of the bars.
    """
    columns = list(table.columns)
    values = [[row[columns.index(name)] for name in names] for row in table.rows]
    most = max((number for row in values for number in row if isinstance(number, int)), default=0)
    if not most:
        return None
    height = _BAR * len(names) + _GAP
    label_cells = columns.index(names[0])  # the cells before the first bar
    bars: list[dict[str, object]] = []
    labels: list[dict[str, object]] = []
    for number, (row, row_values) in enumerate(zip(table.rows, values, strict=True)):
        top = _TOP + number * height
        text = " / ".join(cell_text(cell) for cell in row[:label_cells])
        labels.append({"y": top + height // 2 + 2, "text": _short(text, _LONGEST_LABEL)})
        bars += [
            {
                "series": series,
                "y": top + series * _BAR,
                "width": max(round(_WIDEST * value / most), 1 if value else 0),
                "text": f"{value:,}",
            }
            for series, value in enumerate(row_values)
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
