"""Walks a stream's entries over a span: every id, and the payload of the pending ones.

The span may hold far more entries than are pending.  A read-only script (EVAL_RO) therefore
returns the ids of a page alone, and payloads are asked for where an id is pending.  Where scripts
are not allowed, whole pages are read and the other payloads dropped here; the rows are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from claimlib.errors import PermissionDeniedError
from claimlib.live.connection import Source
from claimlib.live.pending_ids import Wanted
from claimlib.live.replies import fields, stream_id
from claimlib.source import EntryRow

# Ids of a range, at most so many.  It asks for a hundred entries at a time, so that Lua never holds
# the payloads of a whole page.
_IDS_OF_RANGE = """
local ids, start, left = {}, ARGV[1], tonumber(ARGV[3])
while left > 0 do
  local want = math.min(left, 100)
  local page = redis.call('XRANGE', KEYS[1], start, ARGV[2], 'COUNT', want)
  for _, entry in ipairs(page) do ids[#ids + 1] = entry[1] end
  if #page < want or page[want][1] == ARGV[2] then break end
  start, left = '(' .. page[want][1], left - want
end
return ids
"""

# The entries of the ids given, false for one that is not there.
_ENTRIES_OF_IDS = """
local entries = {}
for i, id in ipairs(ARGV) do entries[i] = redis.call('XRANGE', KEYS[1], id, id)[1] or false end
return entries
"""

# From this share of pending ids on, one XRANGE over the page is quicker than a look-up of each.
_DENSE_SHARE = 0.5

# Payloads by id, as the server writes both.
_Payloads = dict[bytes, list[bytes]]


class EntryWalk:
    """Reads the entries of one stream after the other; remembers whether scripts are allowed."""

    def __init__(self, source: Source, *, with_fields: bool, page_size: int) -> None:
        self._source = source
        self._with_fields = with_fields
        self._page_size = page_size
        self._scripts_allowed = True

    def pages(self, stream: bytes, wanted: Wanted) -> Iterator[tuple[EntryRow, ...]]:
        """The stream's entries over the span of the wanted ids, in pages that are never empty.

        Raises:
            SourceError: As `Source.call`.
        """
        if wanted.span is None:
            return
        start, end = (str(bound).encode() for bound in wanted.span)
        while True:
            raw_ids, payloads = self._next_page(stream, start, end)
            if rows := self._rows(stream, raw_ids, payloads, wanted):
                yield rows
            if len(raw_ids) < self._page_size or raw_ids[-1] == end:
                return
            start = b"(" + raw_ids[-1]

    def _next_page(
        self, stream: bytes, start: bytes, end: bytes
    ) -> tuple[list[bytes], _Payloads | None]:
        """The ids of a page; payloads too where there was no way to leave them behind."""
        if self._scripts_allowed:
            try:
                return self._script(_IDS_OF_RANGE, stream, start, end, self._page_size), None
            except PermissionDeniedError:
                # If it is the key that is denied, the range below says so.
                self._scripts_allowed = False
        payloads = self._range(stream, start, end)
        return list(payloads), payloads

    def _rows(
        self,
        stream: bytes,
        raw_ids: list[bytes],
        payloads: _Payloads | None,
        wanted: Wanted,
    ) -> tuple[EntryRow, ...]:
        ids = [stream_id(raw) for raw in raw_ids]
        if not self._with_fields:
            return tuple(EntryRow(id_, None) for id_ in ids)
        pending = wanted.among(ids)
        if payloads is None:
            asked = [raw for raw, id_ in zip(raw_ids, ids, strict=True) if id_ in pending]
            payloads = self._payloads(stream, raw_ids, asked)
        # An id whose payload is not found was deleted since its page of ids was read.  It is left
        # out, and so judged absent: rightly, for it is absent, and all that is pending was read
        # before.  (Ids are never given twice, so it cannot come back.)
        return tuple(
            EntryRow(id_, fields(payloads[raw]) if id_ in pending else None)
            for raw, id_ in zip(raw_ids, ids, strict=True)
            if id_ not in pending or raw in payloads
        )

    def _payloads(self, stream: bytes, page: list[bytes], asked: list[bytes]) -> _Payloads:
        """The payloads of the ids asked for (and perhaps of their neighbours on the page)."""
        if not asked:
            return {}
        if len(asked) >= _DENSE_SHARE * len(page):
            return self._range(stream, asked[0], asked[-1])
        entries = self._script(_ENTRIES_OF_IDS, stream, *asked)
        return {entry[0]: entry[1] for entry in entries if entry is not None}

    def _range(self, stream: bytes, start: bytes, end: bytes) -> _Payloads:
        entries = self._source.call("XRANGE", stream, start, end, "COUNT", self._page_size)
        return dict(entries)

    def _script(self, text: str, stream: bytes, *arguments: bytes | int) -> list[Any]:
        reply: list[Any] = self._source.call("EVAL_RO", text, 1, stream, *arguments)
        return reply
