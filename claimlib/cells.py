"""The cells of a report: how names, durations, instants and rows are shown."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from claimlib.names import spell
from claimlib.terminal import one_line
from claimlib.times import format_duration_ms, format_instant_ms


def visible(name: str | None) -> str | None:
    """A name on a terminal: what would move its cursor is written out; an empty one can be seen."""
    return None if name is None else one_line(name) or "(empty)"


def duration(ms: int | None) -> str | None:
    """The two largest units, and whole seconds: whoever needs more reads the JSON."""
    if ms is None:
        return None
    ms -= ms % 1000 if ms >= 1000 else 0
    return "".join(re.findall(r"^-|[0-9]+[a-z]+", format_duration_ms(ms))[: 2 + (ms < 0)])


def instant(ms: int | None) -> str | None:
    """In UTC."""
    return None if ms is None else format_instant_ms(ms)


def not_shown(count: int, what: str) -> Iterable[str]:
    """A note, where a limit cut something off."""
    if count > 0:
        yield f"{count:,} more {what} not shown; --limit shows more"


def counted(count: int, what: str) -> Iterable[str]:
    """A note, where there is something to count."""
    if count:
        yield f"{count:,} {what}"


def plain_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row for JSON: the id as text only, fields' names and values as the tables spell names."""
    for half in ("id_ms", "id_seq"):
        del row[half]
    fields = row.get("fields")
    if fields is not None:
        row["fields"] = [[spell(bytes(f["name"])), spell(bytes(f["value"]))] for f in fields]
    return row
