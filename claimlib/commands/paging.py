"""Find where the rows of each page end.

Each page has a window of ids, which is widened and narrowed until it holds the rows of the page.
Each step is one query for all pages whose windows are not settled yet.  The query contains the
bounds of the windows as literals, so that it reads only these rows.  So the cost of a page does not
depend on the size of its group.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa

from claimlib.engine.relation import IdBounds, Record, Relation, Rows
from claimlib.plans.keys import GROUP, bigint_intervals
from claimlib.plans.pages import BINS, counted, ends
from claimlib.schema import BUCKET_SQL
from claimlib.semantics.ids import MAX_U64, from_bigint, to_bigint
from claimlib.semantics.model import SCAN_BUDGET_FACTOR

# The first width of a window: a minute, if ids are times of a clock.
_FIRST_MS = 60_000
# The smallest factor by which a window grows.  A wide window grows by the factor by which it has
# grown so far, so that few steps lead from 0 to the ids of a clock.
_LEAST_GROWTH = 64
# A settled window usually holds at most this many times the rows of a page.
_MOST_SURPLUS = 4
# A window of this width or more is widened to all ids.
_WIDEST_MS = 2**62
_WINDOW_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in GROUP),
        ("start_ms", pa.int64()),
        ("start_seq", pa.int64()),
        ("page_rows", pa.int64()),
        ("base_ms", pa.int64()),
        ("far_ms", pa.int64()),
        ("last_ms", pa.int64()),
        ("bin_ms", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Page:
    """Hold the page of one group, and the window of ids that probably holds its rows.

    All ids are unsigned.

    Attributes:
        start_ms, start_seq: the first id of the page.
        proven_to_ms: the last id_ms of the range in which the stream is complete.
        page_rows: the number of rows that the page needs.
        base_ms: the id_ms at which the bins begin.
        last_ms: the last id_ms of the window.
        is_narrowed: True if the page is known to end at `base_ms` or later, because fewer rows than
            it needs are before that.
    """

    stream: str
    consumer_group: str
    bucket: int
    start_ms: int
    start_seq: int
    proven_to_ms: int
    page_rows: int
    base_ms: int
    last_ms: int
    is_narrowed: bool = False

    @classmethod
    def of(cls, row: Record) -> Page:
        """Return the page of a request, which is one row of `requests.targets` with its bucket."""
        start_ms = from_bigint(row["start_ms"])
        proven_from, proven_to = row["complete_from_ms"], row["complete_to_ms"]
        page = cls(
            stream=row["stream"],
            consumer_group=row["consumer_group"],
            bucket=row["bucket"],
            start_ms=start_ms,
            start_seq=row["start_seq"],
            proven_to_ms=MAX_U64 if proven_to is None else from_bigint(proven_to),
            page_rows=row["count"] * SCAN_BUDGET_FACTOR + 1,
            base_ms=max(start_ms, 0 if proven_from is None else from_bigint(proven_from)),
            last_ms=0,
        )
        return page.widened(_FIRST_MS)

    def widened(self, width_ms: int) -> Page:
        """Return the page with a window of a width.

        The window has all ids if it would reach beyond the proven range of the stream, because few
        ids can be beyond that range.
        """
        last_ms = self.base_ms + width_ms
        if width_ms >= _WIDEST_MS or last_ms >= self.proven_to_ms:
            last_ms = MAX_U64
        return replace(self, last_ms=last_ms)

    def unbounded(self) -> Page:
        """Return the page with a window of all ids."""
        return replace(self, last_ms=MAX_U64)

    @property
    def far_ms(self) -> int:
        """Return the last id_ms of the bins.  Later ids of the window are in one more bin."""
        if self.last_ms == MAX_U64 and self.base_ms <= self.proven_to_ms:
            return min(self.proven_to_ms, self.base_ms + _WIDEST_MS)
        return min(self.last_ms, self.base_ms + _WIDEST_MS)

    @property
    def bin_ms(self) -> int:
        """Return the width of a bin."""
        return (self.far_ms - self.base_ms) // BINS + 1

    def bin_ends(self, number: int) -> tuple[int, int]:
        """Return the first and the last id_ms of a bin."""
        if number == BINS:
            return self.far_ms + 1, self.last_ms
        if number == 0 and not self.is_narrowed:
            return self.start_ms, min(self.base_ms + self.bin_ms - 1, self.last_ms)
        first_ms = self.base_ms + number * self.bin_ms
        return first_ms, min(first_ms + self.bin_ms - 1, self.last_ms)

    def bounds(self) -> list[tuple[int, int, int]]:
        """Return the bucket, and the smallest and largest BIGINT, of each half of the window.

        A window has two halves if it has ids on both sides of 2^63, where BIGINTs become negative.
        """
        return [
            (self.bucket, *interval) for interval in bigint_intervals(self.start_ms, self.last_ms)
        ]

    def values(self) -> tuple[object, ...]:
        """Return the window as a row of `_WINDOW_SCHEMA`."""
        ids = (to_bigint(self.start_ms), self.start_seq)
        window = map(to_bigint, (self.base_ms, self.far_ms, self.last_ms))
        return (self.stream, self.consumer_group, *ids, self.page_rows, *window, self.bin_ms)


@dataclass(frozen=True, slots=True)
class Pages:
    """Hold the bounds and the rows of the pages of a run.

    Attributes:
        ends: one row per page that has all its rows, in the driver's memory.  It has stream,
            consumer_group, and the id of the last row, `page_end_ms` and `page_end_seq`.
        bounds: the bounds of the rows of all pages, and of few others.
        pending: the rows within these bounds, and possibly more.  They are in the driver's memory
            if they are few.
    """

    ends: Relation
    bounds: IdBounds
    pending: Relation


def locate(pending: Relation, targets: Relation, buckets: int) -> Pages | None:
    """Return the bounds and rows of the pages among the requests, or None if there is no page.

    Args:
        targets: `requests.targets`.
    """
    bucket = f"{BUCKET_SQL.format(buckets=buckets)} AS bucket"
    requested = [
        Page.of(row) for row in targets.where("count IS NOT NULL").select("*", bucket).collect()
    ]
    if not requested:
        return None
    if pending.is_in_memory:  # no file is read, so windows save nothing
        pages, known = [page.unbounded() for page in requested], pending
    else:
        pages, known = _settled(pending, requested)
    bounds = _bounds(pages)
    near = known.within(bounds).reused()
    page_ends = ends(near, _windows(near, pages)).fetched()
    by_group = _by_group(page_ends.collect())
    cut = [_cut(page, by_group.get(_group(page))) for page in pages]
    return Pages(page_ends, _bounds(cut), near)


def _cut(page: Page, end: Record | None) -> Page:
    """Return the page with a window that ends with its rows, if it has all of them."""
    return page if end is None else replace(page, last_ms=from_bigint(end["page_end_ms"]))


def _settled(pending: Relation, pages: Sequence[Page]) -> tuple[list[Page], Relation]:
    """Return the pages with their final windows, and the rows of these windows.

    Each window holds the rows of its page, or all rows of its group if the page needs more.  Each
    window holds few other rows, or all windows together hold few rows.  The returned rows may
    include rows of wider windows.
    """
    done, unsettled, known = _read_windows(pending, [], pages)
    reached_ms = {_group(page): page.last_ms for page in pages}
    if any(page.last_ms > reached_ms[_group(page)] for page in unsettled):
        # Before windows are widened step by step, test if unbounded windows hold few rows.
        everything = [page.unbounded() for page in pages]
        rows = pending.within(_bounds(everything)).reused()
        if rows.is_in_memory:
            return everything, rows
    while unsettled:
        done, unsettled, known = _read_windows(pending, done, unsettled)
    return done, known


def _group(page: Page) -> tuple[str, str]:
    return page.stream, page.consumer_group


def _by_group(rows: Iterable[Record]) -> dict[tuple[str, str], Record]:
    return {(row[GROUP[0]], row[GROUP[1]]): row for row in rows}


def _read_windows(
    pending: Relation, done: Sequence[Page], unsettled: Sequence[Page]
) -> tuple[list[Page], list[Page], Relation]:
    """Read the windows of pages once.

    Return the settled pages, the other pages with their next windows, and the rows of all windows
    that were read.
    """
    known = pending.within(_bounds([*done, *unsettled])).reused()
    counts = _counted(known, unsettled)
    steps = [_next_window(page, counts.get(_group(page))) for page in unsettled]
    settled = [page for page, is_settled in steps if is_settled]
    return [*done, *settled], [page for page, is_settled in steps if not is_settled], known


def _counted(known: Relation, pages: Sequence[Page]) -> dict[tuple[str, str], Record]:
    rows = counted(known.within(_bounds(pages)), _windows(known, pages))
    return _by_group(rows.collect())


def _windows(pending: Relation, pages: Sequence[Page]) -> Relation:
    columns = zip(*(page.values() for page in pages), strict=True)
    arrays = [
        pa.array(column, field.type) for field, column in zip(_WINDOW_SCHEMA, columns, strict=True)
    ]
    return Relation(pending.engine, Rows(pa.Table.from_arrays(arrays, schema=_WINDOW_SCHEMA)))


def _next_window(page: Page, counts: Record | None) -> tuple[Page, bool]:
    """Return the page with its next window, and True if this window is settled."""
    if counts is None or counts["bin"] is None:
        if page.last_ms == MAX_U64:
            return page, True
        width_ms = page.last_ms - page.base_ms
        return page.widened(width_ms * max(_LEAST_GROWTH, width_ms // _FIRST_MS)), False
    first_ms, last_ms = page.bin_ends(counts["bin"])
    is_settled = counts["up_to_bin"] <= page.page_rows * _MOST_SURPLUS or first_ms >= last_ms
    low_ms = from_bigint(counts["low_ms"])
    if not is_settled and first_ms <= low_ms and page.base_ms < low_ms:
        # No row is before this bin, so the search begins again at the first row.  Otherwise each
        # step would only divide the window by `BINS`, which is slow from 0 to the ids of a clock.
        last_ms = min(last_ms, low_ms + _FIRST_MS)
        return replace(page, base_ms=low_ms, last_ms=last_ms, is_narrowed=True), False
    is_narrowed = page.is_narrowed or counts["bin"] > 0
    narrower = replace(page, base_ms=first_ms, last_ms=last_ms, is_narrowed=is_narrowed)
    return narrower, is_settled


def _bounds(pages: Sequence[Page]) -> IdBounds:
    """Return the bounds of the windows, one interval per bucket and sign."""
    by_half: dict[tuple[int, bool], tuple[int, int]] = {}
    for bucket, low, high in chain.from_iterable(page.bounds() for page in pages):
        half = bucket, low >= 0
        lowest, highest = by_half.get(half, (low, high))
        by_half[half] = (min(lowest, low), max(highest, high))
    return IdBounds(tuple((half[0], *by_half[half]) for half in sorted(by_half)))
