"""Read a stream's entries over a span: every id, and the payloads of the pending entries.

The span may hold far more than is pending, and entries may be large.  A read-only script (EVAL_RO)
therefore returns all ids, and payloads only for pending ids.  If scripts are not allowed, whole
entries are read and the other payloads are dropped here.  The rows are the same.

The size of a reply is not known before, because XRANGE takes a number of entries, not of bytes.

- The script stops when its budget of bytes is used up, so its reply is larger by one entry at most.
  On the server it requests one entry first, and then more, eight at most.  It requests as many as
  the budget has room for, by the size of the largest entry of its last request.  So it holds eight
  entries at a time at most, and reads no more than the budget and eight entries.
- Without scripts, COUNT begins at 1 for each stream, and doubles at most from one reply to the
  next.  It is the budget divided by the size of the largest entry of the last reply.  If entries
  have similar sizes, a reply is larger than the budget by one entry at most, too.  If large entries
  follow many small ones, one reply has as many large entries as a page may have rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from claimlib.live.batches import EntryRow
from claimlib.live.connection import Source
from claimlib.live.pending_ids import Wanted
from claimlib.live.replies import fields, stream_id
from claimlib.live.scripts import Scripts
from claimlib.semantics.ids import StreamId

# The bytes that an entry takes in a reply besides its texts, and that each text takes besides its
# own bytes.  They are not less than the lengths and line ends of the protocol.
_BYTES_PER_ENTRY = 64
_BYTES_PER_TEXT = 16

# Return entries of a range, up to a number of entries and a number of bytes.  Entries with the
# given ids have id and fields.  The others have the id only.  The first element of the reply is 1
# if the range may have more.
_ENTRIES_OF_RANGE = f"""
local wanted = {{}}
for i = 5, #ARGV do wanted[ARGV[i]] = true end
local start, stop, left, budget = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local entries, count = {{}}, 1
while true do
  local page, largest = redis.call('XRANGE', KEYS[1], start, stop, 'COUNT', count), 0
  for _, entry in ipairs(page) do
    local size = {_BYTES_PER_ENTRY}
    for _, text in ipairs(entry[2]) do size = size + #text + {_BYTES_PER_TEXT} end
    entries[#entries + 1] = wanted[entry[1]] and entry or entry[1]
    start, left, budget, largest = entry[1], left - 1, budget - size, math.max(largest, size)
    if left == 0 or budget <= 0 then return {{1, entries}} end
  end
  if #page < count or start == stop then return {{0, entries}} end
  start = '(' .. start
  count = math.max(1, math.min(2 * count, 8, left, math.floor(budget / largest)))
end
"""


class _Piece(NamedTuple):
    """Hold what one reply has of a range.

    Attributes:
        is_cut: True if the range may have more behind the last row.
    """

    rows: tuple[EntryRow, ...]
    is_cut: bool


@dataclass(slots=True)
class _Count:
    """Hold the number of entries that an XRANGE requests, if nothing else limits its reply."""

    most: int
    budget_bytes: int
    now: int = 1

    def follow(self, largest_bytes: int) -> None:
        """Adapt the number to the largest entry of a reply."""
        room = self.budget_bytes // largest_bytes
        self.now = max(1, min(2 * self.now, self.most, room))


class EntryWalk:
    """Read the entries of one stream after the other.

    Args:
        page_size: the most rows per page, and the most pending ids per command.
        reply_bytes: the bytes per reply and per page.  The module describes its exceptions.
    """

    def __init__(
        self,
        source: Source,
        scripts: Scripts,
        *,
        with_fields: bool,
        page_size: int,
        reply_bytes: int,
    ) -> None:
        self._source = source
        self._scripts = scripts
        self._with_fields = with_fields
        self._page_size = page_size
        self._reply_bytes = reply_bytes

    def pages(self, stream: bytes, wanted: Wanted) -> Iterator[tuple[EntryRow, ...]]:
        """Yield the stream's entries over the span of the wanted ids, in pages.

        No page is empty.

        Raises:
            SourceError: as `Source.call`.
        """
        if wanted.span is None:
            return
        first, end = wanted.span
        start = str(first)
        count = _Count(self._page_size, self._reply_bytes)
        while True:
            wanted_ids = wanted.upcoming(self._page_size) if self._with_fields else []
            # There may be more wanted ids after the last id of this request.
            stop = wanted_ids[-1] if len(wanted_ids) == self._page_size else end
            piece = self._piece(stream, start, stop, wanted_ids, count)
            yield from self._bounded(piece.rows)
            reached = piece.rows[-1].id if piece.is_cut else stop
            if reached == end:
                return
            wanted.drop_through(reached)
            start = f"({reached}"

    def _piece(
        self,
        stream: bytes,
        start: str,
        stop: StreamId,
        wanted_ids: Sequence[StreamId],
        count: _Count,
    ) -> _Piece:
        raw_ids = [str(id_).encode() for id_ in wanted_ids]
        return self._scripts.or_else(
            lambda: self._by_script(stream, start, stop, raw_ids),
            lambda: self._by_range(stream, start, stop, raw_ids, count),
        )

    def _by_script(
        self, stream: bytes, start: str, stop: StreamId, wanted_ids: Sequence[bytes]
    ) -> _Piece:
        limits = (self._page_size, self._reply_bytes)
        is_cut, entries = self._source.call(
            "EVAL_RO", _ENTRIES_OF_RANGE, 1, stream, start, str(stop), *limits, *wanted_ids
        )
        rows = (
            EntryRow(stream_id(entry), None)
            if isinstance(entry, bytes)
            else EntryRow(stream_id(entry[0]), fields(entry[1]))
            for entry in entries
        )
        return _Piece(tuple(rows), bool(is_cut))

    def _by_range(
        self, stream: bytes, start: str, stop: StreamId, wanted_ids: Sequence[bytes], count: _Count
    ) -> _Piece:
        entries = self._source.call("XRANGE", stream, start, str(stop), "COUNT", count.now)
        is_cut = len(entries) == count.now
        if entries:
            count.follow(max(_size(texts) for _, texts in entries))
        kept = set(wanted_ids)
        rows = (EntryRow(stream_id(raw), fields(t) if raw in kept else None) for raw, t in entries)
        return _Piece(tuple(rows), is_cut)

    def _bounded(self, rows: tuple[EntryRow, ...]) -> Iterator[tuple[EntryRow, ...]]:
        """Yield the rows in pages that have the budget's bytes, and one entry more, at most."""
        begin = size = 0
        for end, row in enumerate(rows, start=1):
            size += _size([text for field in row.fields or () for text in field])
            if size >= self._reply_bytes or end == len(rows):
                yield rows[begin:end]
                begin, size = end, 0


def _size(texts: Sequence[bytes]) -> int:
    return _BYTES_PER_ENTRY + sum(len(text) + _BYTES_PER_TEXT for text in texts)
