"""The ids that are pending in one stream, kept while the stream itself is read.

They are all that is held for a whole stream, packed page by page: 2 to 4 bytes per pending id of
each group for ids that a clock makes (measured), 16 for ids at random.  Ten million pending
entries in one stream take 20 to 40 MB.
"""

from __future__ import annotations

import heapq
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence

from claimlib.ids import StreamId

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
        # All times, then all sequence numbers: neighbours resemble each other and pack well.
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
    """The distinct ids over a stream's groups, taken in order as the stream is walked."""

    def __init__(self, groups: Iterable[PackedIds]) -> None:
        held = [group for group in groups if group.count]
        self.span = _span(held)
        self._ids = heapq.merge(*held)
        self._next = next(self._ids, None)

    def among(self, page: Sequence[StreamId]) -> set[StreamId]:
        """Those of a page of the stream that are pending; pages are given in order, each once."""
        found = set()
        here = set(page)
        while self._next is not None and page and self._next <= page[-1]:
            if self._next in here:
                found.add(self._next)
            self._next = next(self._ids, None)
        return found


def _span(groups: Sequence[PackedIds]) -> tuple[StreamId, StreamId] | None:
    """The first and the last pending id; null where nothing is pending."""
    firsts = [group.first for group in groups if group.first is not None]
    lasts = [group.last for group in groups if group.last is not None]
    return (min(firsts), max(lasts)) if firsts and lasts else None
