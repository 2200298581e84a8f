"""Fetch the rows of a report: up to a limit, or all of them as a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from claimlib.engine.relation import Relation
from claimlib.report.report_model import MOST_ROWS, Records, Stream

Record = Mapping[str, Any]
_INT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class FetchedRows:
    """Hold the rows of a report.

    Attributes:
        records: the rows to print, as a list or as a stream.
        shown: the rows of the list.  Empty if `records` is a stream.
        hidden: the number of further rows, which are not printed.
    """

    records: Records
    shown: Sequence[Record]
    hidden: int


def fetch_rows(
    rows: Relation,
    order: Sequence[str],
    limit: int | None,
    total: int,
    record: Callable[[dict[str, Any]], Record] = dict,
) -> FetchedRows:
    """Fetch the first rows of a relation.

    If `limit` is None or more than a table can show, the rows are streamed: they are read while
    they are printed.

    Args:
        rows: one row per record.
        order: the SQL expressions by which the rows are sorted, see `engine.relation.Query`.
        limit: the number of rows to fetch, or None for all rows.
        total: the number of rows of `rows`.
        record: the function that builds a record from a row.
    """
    if limit is not None and limit <= MOST_ROWS:
        shown = [record(row) for row in rows.order_by(*order).limit(limit).collect()]
        return FetchedRows(shown, shown, total - len(shown))
    # Spark's limit is an int.  No store has more rows than that, so a larger limit means all rows.
    number = total if limit is None or limit > _INT_MAX else min(limit, total)
    ordered = rows.order_by(*order)
    first = ordered if number == total else ordered.limit(number)

    def stream() -> Iterator[Record]:
        return map(record, first.stream(number))

    return FetchedRows(Stream(stream), (), total - number)
