"""A report of one content as a table, as JSON, as CSV and as JSON lines; none needs a library."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from claimlib.errors import RequestError
from claimlib.terminal import harmless_json, one_line

Cell = int | str | None


class Stream:
    """Provide records that may not fit in memory.  Each iteration reads them again."""

    def __init__(self, read: Callable[[], Iterator[Mapping[str, Any]]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return self._read()


Records = Sequence[Mapping[str, Any]] | Stream
DEFAULT_LIMIT = 50
"""How many rows of a table are shown."""
MOST_ROWS = 100_000
"""The most rows that a table shows.  They must fit in memory, because their columns are aligned."""
DEFAULT_PAYLOAD_BYTES = 512
"""The bytes of each name and value of a payload that are shown by default."""
_WIDEST_PADDED = 60
"""Characters: no column of plain text is padded any wider."""


@dataclass(frozen=True, slots=True)
class Report:
    """A result, ready to be printed.

    Attributes:
        title: what it is about.
        columns: the table's: by the name that programs know a column by, its heading.
        rows: for people: durations and instants as text, numbers as numbers, null where there is
            nothing to say.  Those of the records come first, totals behind them.
        notes: what else belongs below the table.
        document: the same for programs: milliseconds and numbers as they are.
        records: the rows of the document, by name, without totals.  If it is a Stream, `rows` has
            only the totals.
        names: what a record has, in order; empty: the names of `columns`.
        cut_off: what a limit has cut off, which is said whoever reads the rows.
    """

    title: str
    columns: Mapping[str, str]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...]
    document: Mapping[str, object]
    records: Records
    names: tuple[str, ...] = ()
    cut_off: tuple[str, ...] = ()

    @property
    def below(self) -> tuple[str, ...]:
        """The lines below the table."""
        return (*self.cut_off, *self.notes)

    @property
    def headings(self) -> tuple[str, ...]:
        """The headings, from left to right."""
        return tuple(self.columns.values())


# ------------------------------------------------------------------- for programs


def json_chunks(document: Mapping[str, object]) -> Iterator[str]:
    """Yield a document as JSON in pieces.  A Stream in it is read while it is printed."""
    yield "{"
    for number, (name, value) in enumerate(document.items()):
        yield f"{',' if number else ''}\n  {_json(name)}: "
        yield from _array_chunks(value) if isinstance(value, Stream) else [_indented(value, 2)]
    yield "\n}"


def _array_chunks(records: Stream) -> Iterator[str]:
    is_empty = True
    for record in records:
        yield f"{'[' if is_empty else ','}\n    {_indented(record, 4)}"
        is_empty = False
    yield "[]" if is_empty else "\n  ]"


def _indented(value: object, columns: int) -> str:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return harmless_json(text.replace("\n", "\n" + " " * columns))


def json_lines(report: Report) -> Iterator[str]:
    """Yield one JSON object per record, without a line end."""
    names = report.names or tuple(report.columns)
    return (_json({name: row[name] for name in names}) for row in report.records)


def csv_lines(report: Report) -> Iterator[str]:
    """Yield the names and the records as RFC 4180 lines without line ends.

    The caller adds the line ends of this system.

    Null is an empty field (so is an empty text: JSON tells them apart), lists and objects are JSON.
    A text is as the store's tables hold it, quoted where it has a line break.
    """
    names = report.names or tuple(report.columns)
    yield _csv_line(names)
    for row in report.records:
        yield _csv_line([_field(row[name]) for name in names])


def _csv_line(fields: Iterable[str]) -> str:
    """A record without its end; a field is quoted for any line break, a carriage return too."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(fields)
    return text.getvalue().removesuffix("\r\n")


def _field(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return _json(value)
    # Of a glob of bytes that are not UTF-8; no file of text can hold such a character.
    return _SURROGATE.sub(lambda match: one_line(match[0]), value)


_SURROGATE = re.compile("[\ud800-\udfff]")


def _json(value: object) -> str:
    return harmless_json(json.dumps(value, ensure_ascii=False))


# ------------------------------------------------------------------- for people


def as_text(report: Report) -> str:
    """The table in plain text: aligned columns, numbers to the right; behind a cell that is wider
    than any column is padded, the rest of its line moves on."""
    texts = [tuple(map(cell_text, row, report.columns)) for row in report.rows]
    columns = zip(report.headings, *texts, strict=True)
    widths = [max(_padded_widths(column)) for column in columns]
    right = [is_numeric(report, at) for at in range(len(report.columns))]
    lines = [_line(row, widths, right) for row in (report.headings, *texts)]
    rule = "  ".join("-" * width for width in widths)
    around = [one_line(text) for text in (report.title, *report.below)]
    return "\n".join([around[0], lines[0], rule, *lines[1:], *around[1:]])


def is_numeric(report: Report, column: int) -> bool:
    """Return True if a column holds numbers (and gaps) only."""
    return all(row[column] is None or isinstance(row[column], int) for row in report.rows)


# A user who gives one of these to a command copies it, and commands take no commas.
_COPIED_NUMBERS = frozenset(
    {
        "run_seq",
        "request",
        "request_number",
        "now_ms",
        "delivery_time_ms",
        "oldest_delivery_time_ms",
    }
)


def cell_text(cell: Cell, name: str = "") -> str:
    """Return a cell for people, in one line.

    Args:
        name: the column's.
    """
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return str(cell) if name in _COPIED_NUMBERS else f"{cell:,}"
    return one_line(cell)


def _padded_widths(column: Iterable[str]) -> Iterable[int]:
    """Return the widths, in characters, of a heading and of the cells that it is padded for."""
    heading, *widths = map(len, column)
    return (heading, *(width for width in widths if width <= _WIDEST_PADDED))


def _line(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [
        cell.rjust(width) if is_right else cell.ljust(width)
        for cell, width, is_right in zip(texts, widths, right, strict=True)
    ]
    return "  ".join(padded).rstrip()


# ------------------------------------------------------------------- columns that are chosen


def resolved(
    wanted: Sequence[str], columns: Mapping[str, str], names: Iterable[str]
) -> tuple[str, ...]:
    """Return the names that somebody means who names columns by their names, or by their headings.

    Args:
        columns: of the table, as in a report.
        names: all that can be chosen.

    Raises:
        RequestError: there is no such column, or one is named twice.
    """
    known = dict.fromkeys(names)
    by_heading = {heading: name for name, heading in columns.items() if name in known}
    chosen = tuple(by_heading.get(name, name) if name not in known else name for name in wanted)
    for name, said in zip(chosen, wanted, strict=True):
        if name not in known:
            raise RequestError(
                f"--columns: there is no column {said!r}; the columns are {', '.join(known)}",
                option="columns",
            )
        if chosen.count(name) > 1:
            raise RequestError(f"--columns: {said!r} is named twice", option="columns")
    return chosen


def choosable(columns: Mapping[str, str], names: Iterable[str]) -> tuple[str, ...]:
    """Return what can be chosen for a table: its columns, and what else a record has."""
    return tuple(dict.fromkeys((*columns, *names)))


def with_columns(report: Report, wanted: Sequence[str]) -> Report:
    """Return the report whose table has these columns only, in this order.

    What only the records have is shown as it is in them.

    Raises:
        RequestError: see `resolved`.
    """
    chosen = resolved(wanted, report.columns, choosable(report.columns, report.names))
    at = {name: number for number, name in enumerate(report.columns)}
    of_totals: list[Mapping[str, object]] = [{}] * len(report.rows)
    pairs = zip(report.rows, (*report.records, *of_totals), strict=False)
    return replace(
        report,
        columns={name: report.columns.get(name, name) for name in chosen},
        rows=tuple(
            tuple(row[at[name]] if name in at else _cell_of(record.get(name)) for name in chosen)
            for row, record in pairs
        ),
    )


def with_names(report: Report, wanted: Sequence[str]) -> Report:
    """Return the report whose records have these names only, in this order.

    Raises:
        RequestError: see `resolved`.
    """
    names = report.names or tuple(report.columns)
    return replace(report, names=resolved(wanted, report.columns, names))


def _cell_of(value: object) -> Cell:
    """Return a value of a record, for people."""
    return value if value is None or isinstance(value, int | str) else _json(value)
