"""Fit a table into a terminal of a given width.  If it does not fit, show its rows as records.

Widths are numbers of character cells of a terminal, as `measure` returns them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from claimlib.report.report_model import Report, cell_text, is_numeric

Measure = Callable[[str], int]

_ELLIPSIS = "…"
_LEAST_OF_A_NAME = 12
"""The smallest width of a shortened name.  A shorter name could not be recognized."""
_LEAST_OF_A_TEXT = 16
"""The smallest width of a wrapped text.  In a narrower column each line would be a single word."""
_INDENT = "  "
_GAP = cell_text(None)
"""The text of a cell without a value."""


class Kind(Enum):
    """State how a cell that is too wide is changed.

    EXACT: it is not changed.  It is a number, an id, an instant, a duration or a run's key.
    NAME: its middle is left out.
    TEXT: it is wrapped at spaces.
    """

    EXACT = auto()
    NAME = auto()
    TEXT = auto()


@dataclass(frozen=True, slots=True)
class Column:
    """Hold a column of a table.

    Each text is one line, until a width is known.  Then a text may have several lines.

    Attributes:
        right: True if the cells are aligned to the right.
        is_needed: True if the column is shown at any width.
        minor: the position in the order in which minor columns are left out, from 1.  0 if the
            column is not minor.
        width: the width of the column, or 0 if it is not known yet.
    """

    heading: str
    texts: tuple[str, ...]
    kind: Kind
    right: bool
    is_needed: bool = False
    minor: int = 0
    width: int = 0


@dataclass(frozen=True, slots=True)
class Shown:
    """Hold a table that fits.

    Attributes:
        columns: the columns with their widths.
        is_open: True if the table has no borders.
        left_out: the headings of minor columns that were left out.
    """

    columns: tuple[Column, ...]
    is_open: bool = False
    left_out: tuple[str, ...] = ()


# The columns of the kinds NAME and TEXT, by their names for programs.  Others are EXACT.
_NAMES = frozenset({"stream", "consumer_group", "consumer", "from_consumer", "cursor"})
_TEXTS = frozenset({"what", "value", "reason", "example", "guards", "remedy", "fields", "meaning"})
# The columns that can be left out, in this order.  The reason of a refusal is also on stderr.
_MINOR = (
    "at_boundary",
    "unknown_owners",
    "delivered_10_plus",
    "delivered_5_plus",
    "owners",
    "now_ms",
    "took_ms",
    "began_ms",
    "seen_time_ms",
    "snapshot_ms",
    "changed_by_runs",
    "from_delivery_time_ms",
    "from_delivery_count",
    "highest_delivery_count",
    "reason",
)


def columns_of(report: Report, *, has_all: bool = False) -> tuple[Column, ...]:
    """Return the columns of a report's table.

    Args:
        has_all: True if the user has chosen these columns, so that all of them are needed.
    """
    return tuple(
        Column(
            heading=heading,
            texts=tuple(cell_text(row[at], name) for row in report.rows),
            kind=Kind.NAME if name in _NAMES else Kind.TEXT if name in _TEXTS else Kind.EXACT,
            right=is_numeric(report, at),
            is_needed=has_all,
            minor=0 if has_all or name not in _MINOR else _MINOR.index(name) + 1,
        )
        for at, (name, heading) in enumerate(report.columns.items())
    )


def table_of(columns: Sequence[Column], width: int, measure: Measure) -> Shown | None:
    """Return the table that is shown, or None if the columns do not fit.

    If there is room, the columns are unchanged.  Otherwise columns without values are left out,
    names are shortened, and texts and headings are wrapped.  If this is not enough, the borders are
    left out, too, and then the minor columns, one after the other.  Columns in which two different
    cells would look the same do not fit.
    """
    if sum(_natural(column, measure) for column in columns) <= width - border(len(columns)):
        return Shown(_with_widths(columns, width - border(len(columns)), measure) or ())
    kept = [column for column in columns if column.is_needed or _has_values(column)]
    kept = kept or list(columns)
    left_out: list[str] = []
    while True:
        for is_open in (False, True):
            room = width - border(len(kept), is_open=is_open)
            shown = _with_widths(kept, room, measure)
            if shown is not None:
                return Shown(shown, is_open, tuple(left_out))
        minor = min((column for column in kept if column.minor), key=_minor, default=None)
        if minor is None:
            return None
        kept.remove(minor)
        left_out.append(minor.heading)


def border(columns: int, *, is_open: bool = False) -> int:
    """Return the width of a table's borders, besides the widths of its columns.

    Borders are lines, and a space on each side of a cell.  An open table has two spaces between
    cells instead.
    """
    return 2 * (columns - 1) if is_open else 3 * columns + 1


def record_lines(columns: Sequence[Column], width: int, measure: Measure) -> Iterator[str]:
    """Yield all rows as lines `heading: value`, with an empty line between two rows.

    A cell without a value has no line.  A value that does not fit is on the line below its heading.
    Nothing is cut.
    """
    for number, row in enumerate(zip(*(column.texts for column in columns), strict=True)):
        if number:
            yield ""
        for column, cell in zip(columns, row, strict=True):
            if cell not in {"", _GAP}:
                yield from _record_line(column, cell, width, measure)


def wrapped(text: str, width: int, measure: Measure) -> Iterator[str]:
    """Yield the text in lines of this width, broken only at spaces.  A wider word is one line."""
    line: str | None = None
    for word in text.split(" "):
        longer = word if line is None else f"{line} {word}"
        if line is None or measure(longer) <= width:
            line = longer
        else:
            yield line
            line = word
    yield line or ""


def shortened(name: str, width: int, measure: Measure) -> str:
    """Return the name without its middle, no wider than `width`.

    Most of the width goes to the end of the name, because similar names differ there.
    """
    if measure(name) <= width:
        return name
    head = (width - 1) // 3
    begin, end = 0, len(name)
    while measure(name[: begin + 1]) <= head:
        begin += 1
    while end > begin and measure(f"{name[:begin]}{_ELLIPSIS}{name[end - 1 :]}") <= width:
        end -= 1
    return f"{name[:begin]}{_ELLIPSIS}{name[end:]}"


# ------------------------------------------------------------------- widths of a column


def _natural(column: Column, measure: Measure) -> int:
    """Return the width at which the heading and each cell are one line."""
    return max(measure(column.heading), _widest(column.texts, measure))


def _least(column: Column, measure: Measure) -> int:
    """Return the smallest width at which the column can be shown."""
    width = _widest(column.texts, measure)
    match column.kind:
        case Kind.NAME:
            width = min(width, _LEAST_OF_A_NAME)
        case Kind.TEXT:
            words = (word for cell in column.texts for word in cell.split(" "))
            width = max(min(width, _LEAST_OF_A_TEXT), _widest(words, measure))
        case Kind.EXACT:
            pass
    return max(width, _widest(column.heading.split(" "), measure))


def _wanted(column: Column, measure: Measure) -> int:
    """Return the width at which each cell is one line.  The heading may be wrapped."""
    return _widest((*column.heading.split(" "), *column.texts), measure)


def _widest(texts: Sequence[str] | Iterator[str], measure: Measure) -> int:
    return max(map(measure, texts), default=0)


def _widen(widths: list[int], wanted: Sequence[int], room: int) -> None:
    """Distribute the remaining room among the columns that want more, the narrowest first."""
    for _ in range(room - sum(widths)):
        growing = [at for at, width in enumerate(widths) if width < wanted[at]]
        if not growing:
            return
        widths[min(growing, key=widths.__getitem__)] += 1


# ------------------------------------------------------------------- contents of a column


def _with_widths(
    columns: Sequence[Column], room: int, measure: Measure
) -> tuple[Column, ...] | None:
    """Return the columns with widths that fit in the room, or None if they do not fit."""
    widths = [_least(column, measure) for column in columns]
    if sum(widths) > room:
        return None
    _widen(widths, [_wanted(column, measure) for column in columns], room)
    _widen(widths, [_natural(column, measure) for column in columns], room)
    shown = tuple(
        _with_width(column, width, measure) for column, width in zip(columns, widths, strict=True)
    )
    return shown if all(map(_keeps_differences, columns, shown)) else None


def _with_width(column: Column, width: int, measure: Measure) -> Column:
    def lines(text: str) -> str:
        return "\n".join(wrapped(text, width, measure))

    texts = column.texts
    if column.kind is Kind.NAME:
        texts = tuple(shortened(cell, width, measure) for cell in texts)
    elif column.kind is Kind.TEXT:
        texts = tuple(map(lines, texts))
    return replace(column, heading=lines(column.heading), texts=texts, width=width)


def _keeps_differences(whole: Column, shown: Column) -> bool:
    """Return True if different cells still look different."""
    return len(set(whole.texts)) == len(set(shown.texts))


def _has_values(column: Column) -> bool:
    return not set(column.texts) <= {"", _GAP}


def _minor(column: Column) -> int:
    return column.minor


def _record_line(column: Column, cell: str, width: int, measure: Measure) -> Iterator[str]:
    line = f"{column.heading}: {cell}"
    if measure(line) <= width:
        yield line
        return
    yield from wrapped(f"{column.heading}:", width, measure)
    indent = _INDENT if measure(cell) + len(_INDENT) <= width or column.kind is Kind.TEXT else ""
    lines = [cell] if column.kind is not Kind.TEXT else wrapped(cell, width - len(indent), measure)
    for part in lines:
        yield f"{indent}{part}" if measure(part) + len(indent) <= width else part
