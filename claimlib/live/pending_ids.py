"""The ids that are pending in one stream, kept while the stream itself is read.

They are all that is held for a whole stream, packed page by page: 2 to 4 bytes per pending id of
each group for ids that a clock makes, 16 for ids at random.
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
    """The pending ids of one group, by id, as they came in pages."""

    def __init__(self) -> None:
        self._pages: list[bytes] = []
        self.first: StreamId | None = None
        self.last: StreamId | None = None
        self.count = 0

    def add(self, page: Sequence[StreamId]) -> None:
        """Adds a page of ids, ordered, all of them above those that are there."""
        if not page:
            return
        # All times, then all sequence numbers: neighbors resemble each other and pack well.
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
    """The distinct ids over a stream's groups, taken in order as the stream is walked.

    `span` is from the first to the last of them, `also` included if one is given; null where there
    is neither.
    """

    def __init__(self, groups: Iterable[PackedIds], also: Span | None = None) -> None:
        held = [group for group in groups if group.count]
        self.span = _span(held, also)
        self._ids = (id_ for id_, _ in groupby(heapq.merge(*held)))
        self._next: deque[StreamId] = deque()

    def upcoming(self, most: int) -> list[StreamId]:
        """Return the next ids, so many at most; they stay until they are dropped."""
        self._next.extend(islice(self._ids, most - len(self._next)))
        return list(self._next)

    def drop_through(self, last: StreamId) -> None:
        """Drops the ids that are not above `last`, as far as they came up."""
        while self._next and self._next[0] <= last:
            self._next.popleft()


def _span(groups: Sequence[PackedIds], also: Span | None) -> Span | None:
    """Return the one span that holds all pending ids and another span."""
    spans = [(group.first, group.last) for group in groups if group.first and group.last]
    spans += [also] if also else []
    return (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None
