"""Describe tables that a user gives, such as those of an import, for both engines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from claimlib.engine.relation import External
from claimlib.errors import InputError

_NAME = re.compile(r"[\w-]+(\.[\w-]+){0,2}")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://?")
NOT_IN_CATALOG = "the catalog has no such table"
NOTHING_THERE = "no such file or folder"
NO_TABLE = "it is neither a Delta table nor a folder with Parquet files"
NANOSECONDS = (
    "a column has a type that Spark does not read. If these are timestamps in nanoseconds, as"
    " pandas writes them, write them in microseconds: to_parquet(..., coerce_timestamps='us')"
)


@dataclass(frozen=True, slots=True)
class Input:
    """Hold a given table that an engine has opened.

    Attributes:
        node: the rows.
        is_fixed: True if every computation returns the same rows.
    """

    node: External
    is_fixed: bool


def is_name(place: str) -> bool:
    """Return True if a place is a catalog name: `catalog.schema.table`, `schema.table`, `table`."""
    return _NAME.fullmatch(place) is not None


def is_path(place: str) -> bool:
    """Return True if a place is neither a catalog name nor a URL."""
    return not is_name(place) and _URL.match(place) is None


def unreadable(place: str, why: str) -> InputError:
    """Build the error for a place without a readable table.

    Args:
        why: the reason, for example `NOT_IN_CATALOG` or `NOTHING_THERE`.
    """
    if why == NOT_IN_CATALOG and not Path(place).exists():
        message = (
            f"{Path(place).absolute()}: no such file, and no table of this name in the catalog"
        )
        return InputError(message, table=place)
    if why == NOTHING_THERE:
        return InputError(f"{place}: {why}", table=place)
    hint = f" (taken as a catalog name; write a path as ./{place})" if is_name(place) else ""
    return InputError(f"{place}{hint} cannot be read as a table: {why}", table=place)


def mixed_types_error(place: str, types: str) -> InputError:
    """Build the error for files in which a column has different types.

    Args:
        types: the types in brackets, after a blank.  Empty if they are unknown.
    """
    return unreadable(
        place,
        "its files have columns of the same name but of different"
        f" types{types}: write all of them with the same types",
    )
