"""Read a stream's entries over a span: every id, and the payloads of the pending entries.

The span may contain many entries that are not pending, and entries may be large.  A read-only
script (EVAL_RO) therefore returns all ids, but payloads only for pending ids.  If scripts are not
allowed, whole entries are read, and the payloads that are not needed are dropped here.  The rows
are the same.

The size of a reply is not known in advance, because XRANGE limits the number of entries, not of
bytes.  So COUNT is chosen such that the reply has about as many bytes as allowed, the budget:

- The script calls XRANGE several times, and stops when its budget is used up.  So its reply exceeds
  the budget by one entry at most.  Its first COUNT is 1.  A later COUNT is at most 8, and at most
  the rest of the budget divided by the size of the largest entry of the last call.  So the script
  holds eight entries at a time at most, and reads at most eight entries more than the budget.
- Without scripts, COUNT begins at 1 for each stream, and at most doubles from one reply to the
  next.  It is at most the budget divided by the size of the largest entry of the last reply.  If
  entries have similar sizes, a reply exceeds the budget by one entry at most, too.  If large
  entries follow many small ones, one reply may have as many large entries as a page may have rows.
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

# The bytes of an entry in a reply besides its texts, and of each text besides the text itself.  The
# protocol's lengths and line ends do not take more.
_BYTES_PER_ENTRY = 64
_BYTES_PER_TEXT = 16

# Return entries of a range, up to a number of entries and a number of bytes.  ARGV: first id, last
# id, number of entries, number of bytes, wanted ids.  Wanted entries have id and fields.  Other
# entries have only the id.  The first element of the reply is 1 if the range may have more entries.
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
    """Hold the rows of a range that one reply has.

    Attributes:
        is_cut: True if the range may have more rows after the last one.
    """

    rows: tuple[EntryRow, ...]
    is_cut: bool


@dataclass(slots=True)
class _Count:
    """Choose COUNT of XRANGE, because nothing else limits the reply without a script.

    Attributes:
        most: the most entries of a reply.
        budget_bytes: the number of bytes that a reply should not exceed.
        now: COUNT of the next XRANGE.
    """

    most: int
    budget_bytes: int
    now: int = 1

    def follow(self, largest_bytes: int) -> None:
        """Adapt COUNT to the size of the largest entry of a reply."""
        room = self.budget_bytes // largest_bytes
        self.now = max(1, min(2 * self.now, self.most, room))


class EntryWalk:
    """Read the entries of streams, one stream at a time.

    Args:
        page_size: the most rows per page, and the most pending ids per command.
        reply_bytes: the most bytes per reply and per page.  The module describes the exceptions.
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
            SourceError: see `Source.call`.
        """
        if wanted.span is None:
            return
        first, end = wanted.span
        start = str(first)
        count = _Count(self._page_size, self._reply_bytes)
        while True:
            wanted_ids = wanted.upcoming(self._page_size) if self._with_fields else []
            # If there may be more wanted ids than fit in this request, it ends at its last one.
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
        wanted = set(wanted_ids)
        rows = (
            EntryRow(stream_id(raw_id), fields(texts) if raw_id in wanted else None)
            for raw_id, texts in entries
        )
        return _Piece(tuple(rows), is_cut)

    def _bounded(self, rows: tuple[EntryRow, ...]) -> Iterator[tuple[EntryRow, ...]]:
        """Yield the rows in pages.  Each exceeds `reply_bytes` by one entry at most."""
        begin = size = 0
        for end, row in enumerate(rows, start=1):
            size += _size([text for field in row.fields or () for text in field])
            if size >= self._reply_bytes or end == len(rows):
                yield rows[begin:end]
                begin, size = end, 0


def _size(texts: Sequence[bytes]) -> int:
    return _BYTES_PER_ENTRY + sum(len(text) + _BYTES_PER_TEXT for text in texts)
