"""Keep the ids that are pending in one stream while the stream itself is read.

Nothing else is kept in memory for a whole stream.  The ids are packed page by page.  An id takes 2
to 4 bytes per group if a clock made it, and 16 bytes if it is random.
"""

from __future__ import annotations

import heapq
import zlib
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice

from claimlib.semantics.ids import StreamId

Span = tuple[StreamId, StreamId]

_PACKING_LEVEL = 1


class PackedIds:
    """Hold the pending ids of one group, in order and packed page by page."""

    def __init__(self) -> None:
        self._pages: list[bytes] = []
        self.first: StreamId | None = None
        self.last: StreamId | None = None
        self.count = 0

    def add(self, page: Sequence[StreamId]) -> None:
        """Add a page of ids in order.  All of them must be larger than the ids added before."""
        if not page:
            return
        # All times come first, then all sequence numbers.  Similar neighbors pack well.
        numbers = array("Q", [id_.ms for id_ in page])
        numbers.extend([id_.seq for id_ in page])
        self._pages.append(zlib.compress(numbers.tobytes(), _PACKING_LEVEL))
        self.first = self.first or page[0]
        self.last = page[-1]
        self.count += len(page)

    def __iter__(self) -> Iterator[StreamId]:
        for packed in self._pages:
            numbers = array("Q", zlib.decompress(packed))
            half = len(numbers) // 2
            yield from map(StreamId, numbers[:half], numbers[half:])


class Wanted:
    """Hold the distinct pending ids of a stream's groups, and return them in order.

    Attributes:
        span: the smallest span that contains all ids, and the span `also` if one is given.  None if
            there are no ids and no such span.
    """

    def __init__(self, groups: Iterable[PackedIds], also: Span | None = None) -> None:
        not_empty = [group for group in groups if group.count]
        self.span = _span(not_empty, also)
        self._ids = (id_ for id_, _ in groupby(heapq.merge(*not_empty)))
        self._next: deque[StreamId] = deque()

    def upcoming(self, most: int) -> list[StreamId]:
        """Return the next ids, at most `most`.  They are returned again until they are dropped."""
        self._next.extend(islice(self._ids, most - len(self._next)))
        return list(self._next)

    def drop_through(self, last: StreamId) -> None:
        """Drop the ids up to `last` that `upcoming` has returned."""
        while self._next and self._next[0] <= last:
            self._next.popleft()


def _span(groups: Sequence[PackedIds], also: Span | None) -> Span | None:
    """Return the smallest span with all ids and the span `also`, or None if there are neither."""
    spans = [(group.first, group.last) for group in groups if group.first and group.last]
    spans += [also] if also else []
    return (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None
