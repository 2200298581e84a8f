"""The rows of a report: some of them for people, all of them for programs."""

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
        records: all of them that are shown.
        shown: the same if a limit says how many they are at most; empty if they are streamed.
        is_complete: whether there is no limit.
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
        limit: the number of rows to fetch; None means all, which are read as they are printed.
        record: makes a record of a row.
    """
    if limit is not None:
        shown = list(map(record, ordered.limit(limit).collect()))
        return FetchedRows(shown, shown, is_complete=False)

    def stream() -> Iterator[Record]:
        return map(record, ordered.toLocalIterator(prefetchPartitions=True))

    return FetchedRows(Stream(stream), (), is_complete=True)
