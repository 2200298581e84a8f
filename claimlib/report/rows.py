"""Fetch the rows of a report: up to a limit, or all of them as a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, Row

from claimlib.report.model import Records, Stream

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FetchedRows:
    """Hold the rows of a report.

    Attributes:
        records: the rows to print.
        shown: the same rows if a limit is given; empty if they are streamed.
        is_complete: True if no limit is given.
    """

    records: Records
    shown: Sequence[Record]
    is_complete: bool

    def hidden(self, total: int) -> int:
        """Return how many of all rows are not shown."""
        return 0 if self.is_complete else total - len(self.shown)


def fetch_rows(
    ordered: DataFrame, limit: int | None, record: Callable[[Row], Record] = Row.asDict
) -> FetchedRows:
    """Fetch the first rows of a frame, or stream all of them.

    Args:
        ordered: one row per record.
        limit: the number of rows to fetch, or None for all rows, which are read while they are
            printed.
        record: makes a record of a row.
    """
    if limit is not None:
        shown = list(map(record, ordered.limit(limit).collect()))
        return FetchedRows(shown, shown, is_complete=False)

    def stream() -> Iterator[Record]:
        return map(record, ordered.toLocalIterator(prefetchPartitions=True))

    return FetchedRows(Stream(stream), (), is_complete=True)
