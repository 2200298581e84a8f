"""A report of one content as a table and as JSON; in plain text it needs no library."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from claimlib.terminal import harmless_json, one_line

Cell = int | str | None
DEFAULT_LIMIT = 50
"""How many rows of a table are shown."""
MOST_ROWS = 100_000
"""How many can be: they pass through the driver's memory."""


@dataclass(frozen=True, slots=True)
class Report:
    """A result, ready to be printed.

    Attributes:
        title: what it is about.
        columns: the table's headings.
        rows: for people: durations and instants as text, numbers as numbers, null where there is
            nothing to say.
        notes: what belongs below the table.
        document: the same for programs: milliseconds and numbers as they are.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...]
    document: Mapping[str, object]


def as_json(report: Report) -> str:
    """The document, as JSON."""
    return harmless_json(json.dumps(report.document, indent=2, ensure_ascii=False))


def as_text(report: Report) -> str:
    """The table in plain text: aligned columns, numbers to the right."""
    cells = [tuple(map(cell_text, row)) for row in report.rows]
    widths = [max(map(len, column)) for column in zip(report.columns, *cells, strict=True)]
    right = [is_numeric(report, at) for at in range(len(report.columns))]
    lines = [_line(row, widths, right) for row in (report.columns, *cells)]
    rule = "  ".join("-" * width for width in widths)
    around = [one_line(text) for text in (report.title, *report.notes)]
    return "\n".join([around[0], lines[0], rule, *lines[1:], *around[1:]])


def is_numeric(report: Report, column: int) -> bool:
    """Whether a column holds numbers (and gaps) only."""
    return all(row[column] is None or isinstance(row[column], int) for row in report.rows)


def cell_text(cell: Cell) -> str:
    """A cell for people, in one line."""
    if cell is None:
        return "-"
    return f"{cell:,}" if isinstance(cell, int) else one_line(cell)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [
        cell.rjust(width) if is_right else cell.ljust(width)
        for cell, width, is_right in zip(cells, widths, right, strict=True)
    ]
    return "  ".join(padded).rstrip()
