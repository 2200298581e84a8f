"""Read all rows of a frame in order, part by part, so that they need not fit in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import Column, DataFrame, Row

_PART_ROWS = 50_000


def ordered_rows(rows: DataFrame, order: Sequence[str | Column], total: int) -> Iterator[Row]:
    """Yield the rows in order.  Only one part of about 50,000 rows is in memory at a time.

    Args:
        total: the number of rows, which says how many parts there are.
    """
    if total <= _PART_ROWS:
        yield from rows.orderBy(*order).collect()
        return
    # A global sort alone has as many parts as the session's setting says, whatever their size.
    parts = rows.repartitionByRange(-(-total // _PART_ROWS), *order)
    yield from parts.sortWithinPartitions(*order).toLocalIterator()
