"""Fetch the rows of a report: up to a limit, or all of them as a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Row

from claimlib.report.model import MOST_ROWS, Records, Stream
from claimlib.store.ordered_rows import ordered_rows

Record = Mapping[str, Any]
_INT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class FetchedRows:
    """Hold the rows of a report.

    Attributes:
        records: the rows to print.
        shown: the same rows; empty if they are streamed.
        hidden: the number of further rows, which are not printed.
    """

    records: Records
    shown: Sequence[Record]
    hidden: int


def fetch_rows(
    rows: DataFrame,
    order: Sequence[str | Column],
    limit: int | None,
    total: int,
    record: Callable[[Row], Record] = Row.asDict,
) -> FetchedRows:
    """Fetch the first rows of a frame.

    If they are too many for a table, or all are requested, they are read while they are printed.

    Args:
        rows: one row per record.
        order: the columns to sort by.
        limit: the number of rows to fetch, or None for all rows.
        total: the number of rows.
        record: makes a record of a row.
    """
    if limit is not None and limit <= MOST_ROWS:
        shown = [record(row) for row in rows.orderBy(*order).limit(limit).collect()]
        return FetchedRows(shown, shown, total - len(shown))
    # Spark's limit is an int.  No store has so many rows that a larger one cuts anything off.
    number = total if limit is None or limit > _INT_MAX else min(limit, total)
    first = rows if number == total else rows.orderBy(*order).limit(number)

    def stream() -> Iterator[Record]:
        return map(record, ordered_rows(first, order, number))

    return FetchedRows(Stream(stream), (), total - number)
