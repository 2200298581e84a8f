"""Define a report, and write it as a table, JSON, CSV or JSON lines.  This needs no library."""

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
"""The number of rows of a table that are shown at most by default."""
MOST_ROWS = 100_000
"""The largest number of rows of a table.  They must fit in memory, because columns are aligned."""
DEFAULT_PAYLOAD_BYTES = 512
"""The number of bytes of each payload that are shown at most by default."""
_WIDEST_PADDED = 60
"""The largest width, in characters, to which a column of plain text is padded."""


@dataclass(frozen=True, slots=True)
class Report:
    """Hold a result that is ready to be printed.

    Attributes:
        title: the subject.
        columns: the headings of the table, by the column's name for programs.
        rows: the cells for people.  Durations and times are texts, and numbers are ints.  A cell
            without a value is None.  The rows of the records come first, and totals follow.
        notes: the other lines below the table.
        document: the result for programs, with times in milliseconds and plain numbers.
        records: the rows for programs, with values by name, without totals.  If it is a Stream,
            `rows` has only the totals.
        names: the names of a record's values, in order.  If it is empty, the names of `columns`
            are used.
        cut_off: notes on rows that a limit has cut off.  They are shown with tables, CSV and JSON
            lines, even with --quiet.
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
        """Return the lines below the table."""
        return (*self.cut_off, *self.notes)

    @property
    def headings(self) -> tuple[str, ...]:
        """Return the headings, from left to right."""
        return tuple(self.columns.values())


# ------------------------------------------------------------------- for programs


def json_chunks(document: Mapping[str, object]) -> Iterator[str]:
    """Yield a document as JSON in pieces.  A Stream in the document is read piece by piece."""
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

    None and an empty text are both written as an empty field.  Only JSON shows the difference.
    Lists and objects are written as JSON.  A text is written as it is in the store's tables, and is
    quoted if it has a line break.
    """
    names = report.names or tuple(report.columns)
    yield _csv_line(names)
    for row in report.records:
        yield _csv_line([_field(row[name]) for name in names])


def _csv_line(fields: Iterable[str]) -> str:
    """Return a record without its line end.

    With the line terminator CRLF, the writer quotes a field even for a single carriage return.
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(fields)
    return text.getvalue().removesuffix("\r\n")


def _field(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return _json(value)
    # A glob with bytes that are not UTF-8 has surrogates, which a text file cannot hold.
    return _SURROGATE.sub(lambda match: one_line(match[0]), value)


_SURROGATE = re.compile("[\ud800-\udfff]")


def _json(value: object) -> str:
    return harmless_json(json.dumps(value, ensure_ascii=False))


# ------------------------------------------------------------------- for people


def as_text(report: Report) -> str:
    """Return the table in plain text, with aligned columns and numbers to the right.

    Columns are padded to a limited width.  A wider cell shifts the rest of its line to the right.
    """
    texts = [tuple(map(cell_text, row, report.columns)) for row in report.rows]
    columns = zip(report.headings, *texts, strict=True)
    widths = [max(_padded_widths(column)) for column in columns]
    right = [is_numeric(report, at) for at in range(len(report.columns))]
    lines = [_line(row, widths, right) for row in (report.headings, *texts)]
    rule = "  ".join("-" * width for width in widths)
    title, *below = (one_line(text) for text in (report.title, *report.below))
    return "\n".join([title, lines[0], rule, *lines[1:], *below])


def is_numeric(report: Report, column: int) -> bool:
    """Return True if all cells of a column are numbers or None."""
    return all(row[column] is None or isinstance(row[column], int) for row in report.rows)


# These numbers are written without commas, because users copy them to commands, which take none.
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
        name: the name of its column.
    """
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return str(cell) if name in _COPIED_NUMBERS else f"{cell:,}"
    return one_line(cell)


def _padded_widths(column: Iterable[str]) -> Iterable[int]:
    """Return the widths of a heading and of the cells that are not too wide for padding."""
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
    """Return the names of the columns that a user has chosen by names or by headings.

    Args:
        wanted: the names or headings.
        columns: the headings by name, as in a report.
        names: the names of all columns that can be chosen.

    Raises:
        RequestError: the user has chosen an unknown column, or a column twice.
    """
    known = dict.fromkeys(names)
    by_heading = {heading: name for name, heading in columns.items() if name in known}
    chosen = tuple(by_heading.get(name, name) if name not in known else name for name in wanted)
    for name, typed in zip(chosen, wanted, strict=True):
        if name not in known:
            raise RequestError(
                f"--columns: there is no column {typed!r}; the columns are {', '.join(known)}",
                option="columns",
            )
        if chosen.count(name) > 1:
            raise RequestError(f"--columns: {typed!r} is named twice", option="columns")
    return chosen


def choosable(columns: Mapping[str, str], names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that can be chosen for a table: those of its columns and of its records."""
    return tuple(dict.fromkeys((*columns, *names)))


def with_columns(report: Report, wanted: Sequence[str]) -> Report:
    """Return a report whose table has only these columns, in this order.

    The table may get columns that only the records have, with the values of the records.

    Raises:
        RequestError: see `resolved`.
    """
    chosen = resolved(wanted, report.columns, choosable(report.columns, report.names))
    at = {name: number for number, name in enumerate(report.columns)}
    # Rows of totals have no record.  There are at most as many as rows.
    empty_records: list[Mapping[str, object]] = [{}] * len(report.rows)
    pairs = zip(report.rows, (*report.records, *empty_records), strict=False)
    return replace(
        report,
        columns={name: report.columns.get(name, name) for name in chosen},
        rows=tuple(
            tuple(row[at[name]] if name in at else _cell_of(record.get(name)) for name in chosen)
            for row, record in pairs
        ),
    )


def with_names(report: Report, wanted: Sequence[str]) -> Report:
    """Return a report whose records have only these names, in this order.

    Raises:
        RequestError: see `resolved`.
    """
    names = report.names or tuple(report.columns)
    return replace(report, names=resolved(wanted, report.columns, names))


def _cell_of(value: object) -> Cell:
    """Return the cell for a value of a record."""
    return value if value is None or isinstance(value, int | str) else _json(value)
