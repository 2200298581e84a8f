"""Reads a server's consumer groups, and what their pending entries need of the streams.

The order makes the result right.  Of each stream the pending entries are read first and the entries
second, so that an id judged absent was absent after it was seen pending.  Other clients go on
meanwhile; so what is promised is:

- each pending row was pending, with that owner, time and count, when its page was read;
- each pending id without an entry was absent when the stream was read, after the pending entries.

What is delivered after a group's first page was read is left to the next reading: the pages end at
the id that was the last pending one then, or a busy group would never end.

XPENDING tells how long an entry has been idle, not when it was delivered.  It runs in a transaction
with TIME, in which the server's clock stands still (Redis from 7.2 on, Valkey): the difference is
the delivery time to the millisecond.  On Redis 7.0 the clock goes on while a page is made up; TIME
comes last, so that no entry seems idle for longer than it is.

Only commands that read are sent: SCAN, TIME, XINFO STREAM, XINFO GROUPS, XINFO CONSUMERS, XPENDING,
XRANGE, EVAL_RO, and MULTI and EXEC around some of them.

Memory: one page of rows (of `entry_page`, with payloads), the names of the streams seen, the groups
of one stream and the consumers of one group (servers do not page them), and the packed pending ids
of one stream (`live.pending_ids`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from claimlib import names
from claimlib.errors import RequestError, WrongTypeError
from claimlib.ids import MIN_ID, StreamId
from claimlib.live.connection import Source
from claimlib.live.entries import EntryWalk
from claimlib.live.pending_ids import PackedIds, Wanted
from claimlib.live.replies import attributes, consumer_rows, pending_rows, stream_id, time_ms
from claimlib.live.vanished import VanishedError
from claimlib.source import (
    Batch,
    ConsumerRow,
    Counts,
    EntryPage,
    EntryRow,
    GroupDone,
    GroupGone,
    PendingPage,
    PendingRow,
    SourceDone,
    StreamDone,
    StreamGone,
)

__all__ = [
    "DEFAULT_PAGE",
    "Batch",
    "ConsumerRow",
    "Counts",
    "EntryPage",
    "EntryRow",
    "GroupDone",
    "GroupGone",
    "PendingPage",
    "PendingRow",
    "SourceDone",
    "StreamDone",
    "StreamGone",
    "read_source",
]

DEFAULT_PAGE = 1000

_GLOB_CHARACTERS = frozenset(b"*?[\\")


def read_source(
    source: Source,
    *,
    stream_glob: str | bytes = "*",
    group_glob: str | bytes = "*",
    fields: bool = True,
    pending_page: int = DEFAULT_PAGE,
    entry_page: int = DEFAULT_PAGE,
    scan_page: int = DEFAULT_PAGE,
) -> Iterator[Batch]:
    r"""Yields the matching streams, their groups, pending entries and entries (see `source`).

    Nothing is read ahead: a batch is what the server held when it was asked for.  A stream without
    a matching group is reported too (`StreamDone` with nothing pending).

    Args:
        source: Where to read; its pace is its own.
        stream_glob: As SCAN's MATCH.  Without any of `*?[\` it is a name and is not searched for.
        group_glob: As Redis would match it; servers have no such search for groups.
        fields: Whether to read the payloads of pending entries.
        pending_page: Rows per page of pending entries.
        entry_page: Rows per page of entries.
        scan_page: Keys that one SCAN looks at.

    Returns:
        The batches; they cost no more than a page of memory at a time.

    Raises:
        RequestError: A page size below 1; `GlobError`: a glob that cannot be used.
        WrongTypeError: The one stream that was named is not a stream (while reading).
        PermissionDeniedError: A command or a key is denied (while reading).
        SourceUnreachableError: The connection broke (while reading); what was yielded is void.
    """
    sizes = {"pending_page": pending_page, "entry_page": entry_page, "scan_page": scan_page}
    for name, size in sizes.items():
        if size < 1:
            raise RequestError(f"{name} must be at least 1, not {size}", option=name, value=size)
    streams, groups = _glob(stream_glob), _glob(group_glob)
    walk = EntryWalk(source, with_fields=fields, page_size=entry_page)
    return _Reading(source, streams, groups, walk, pending_page, scan_page).batches()


def _glob(glob: str | bytes) -> bytes:
    """A glob's bytes, once it is clear that it can be matched."""
    # Arguments of a command line that are not UTF-8 reach us with their bytes as surrogates.
    raw = glob.encode("utf-8", "surrogateescape") if isinstance(glob, str) else glob
    names.glob_pattern(raw)
    return raw


@dataclass(frozen=True, slots=True)
class _Look:
    """What XINFO says of a stream and its groups at one instant."""

    read_ms: int
    length: int
    last_generated_id: StreamId
    last_delivered_ids: dict[bytes, StreamId]


@dataclass(frozen=True, slots=True)
class _FirstPage:
    """A group at the instant of its first page; `end` is the last id pending then."""

    snapshot_ms: int
    rows: tuple[PendingRow, ...]
    end: StreamId
    consumers: tuple[ConsumerRow, ...]


@dataclass(slots=True)
class _Reading:
    """One reading of a server: what was asked for, and what was counted so far."""

    source: Source
    stream_glob: bytes
    group_glob: bytes
    walk: EntryWalk
    pending_page: int
    scan_page: int

    def batches(self) -> Iterator[Batch]:
        sent_before = self.source.commands_sent
        streams = groups = pending = entries = vanished = 0
        for stream in self._streams():
            for batch in self._stream(stream):
                yield batch
                if isinstance(batch, StreamDone):
                    streams += 1
                    groups += batch.group_count
                    pending += batch.pending_count
                    entries += batch.entry_count
                elif isinstance(batch, StreamGone | GroupGone):
                    vanished += 1
        commands = self.source.commands_sent - sent_before
        yield SourceDone(Counts(streams, groups, pending, entries, commands, vanished))

    @property
    def _is_name(self) -> bool:
        return _GLOB_CHARACTERS.isdisjoint(self.stream_glob)

    def _streams(self) -> Iterator[bytes]:
        """The names of the matching streams, each once."""
        if self._is_name:
            yield self.stream_glob
            return
        seen: set[bytes] = set()  # SCAN may name a key again
        match = ("MATCH", self.stream_glob, "COUNT", self.scan_page, "TYPE", "stream")
        cursor = b"0"
        while True:
            cursor, found = self.source.call("SCAN", cursor, *match)
            for stream in found:
                if stream not in seen:
                    seen.add(stream)
                    yield stream
            if cursor == b"0":
                return

    def _stream(self, stream: bytes) -> Iterator[Batch]:
        # A key found by SCAN was a stream; if it is none any more, the stream is gone.
        gone = VanishedError if self._is_name else (VanishedError, WrongTypeError)
        try:
            look = self._look(stream)
        except gone:
            yield StreamGone(stream)
            return
        try:
            yield from self._groups_then_entries(stream, look)
        except (VanishedError, WrongTypeError):
            yield StreamGone(stream)

    def _groups_then_entries(self, stream: bytes, look: _Look) -> Iterator[Batch]:
        held: list[PackedIds] = []
        matching = [g for g in look.last_delivered_ids if names.matches(self.group_glob, g)]
        for group in matching:
            ids = PackedIds()
            is_whole = yield from self._group(stream, group, look.last_delivered_ids[group], ids)
            if is_whole:
                held.append(ids)
        if matching:
            look = self._look(stream)  # from here on the stream: all of its pending ids are held
        wanted = Wanted(held)
        entry_count = 0
        for rows in self.walk.pages(stream, wanted):
            entry_count += len(rows)
            yield EntryPage(stream, rows)
        complete_from, complete_to = wanted.span or (None, None)
        yield StreamDone(
            stream,
            look.length,
            look.last_generated_id,
            complete_from,
            complete_to,
            look.read_ms,
            group_count=len(held),
            pending_count=sum(ids.count for ids in held),
            entry_count=entry_count,
        )

    def _group(
        self, stream: bytes, group: bytes, last_delivered_id: StreamId, ids: PackedIds
    ) -> Generator[Batch, None, bool]:
        """One group's batches; their ids are added to `ids`.  Returns whether it was read whole."""
        try:
            first = self._first_page(stream, group)
            rows = first.rows
            while rows:
                ids.add([row.id for row in rows])
                yield PendingPage(stream, group, first.snapshot_ms, rows)
                if len(rows) < self.pending_page or rows[-1].id >= first.end:
                    break
                rows = self._next_page(stream, group, rows[-1].id, first.end)
        except VanishedError:
            yield GroupGone(stream, group)
            return False
        yield GroupDone(
            stream, group, first.snapshot_ms, last_delivered_id, first.consumers, ids.count
        )
        return True

    def _look(self, stream: bytes) -> _Look:
        info, groups, time = self.source.transaction(
            ("XINFO", "STREAM", stream), ("XINFO", "GROUPS", stream), ("TIME",)
        )
        state = attributes(info)
        return _Look(
            time_ms(time),
            state[b"length"],
            stream_id(state[b"last-generated-id"]),
            _last_delivered_ids(groups),
        )

    def _first_page(self, stream: bytes, group: bytes) -> _FirstPage:
        summary, page, consumers, time = self.source.transaction(
            ("XPENDING", stream, group),
            ("XPENDING", stream, group, "-", "+", self.pending_page),
            ("XINFO", "CONSUMERS", stream, group),
            ("TIME",),
        )
        now_ms = time_ms(time)
        _, _, last_id, _ = summary
        return _FirstPage(
            now_ms,
            pending_rows(page, now_ms),
            stream_id(last_id) if last_id is not None else MIN_ID,
            consumer_rows(consumers, now_ms),
        )

    def _next_page(
        self, stream: bytes, group: bytes, after: StreamId, end: StreamId
    ) -> tuple[PendingRow, ...]:
        page, time = self.source.transaction(
            ("XPENDING", stream, group, f"({after}", str(end), self.pending_page), ("TIME",)
        )
        return pending_rows(page, time_ms(time))


def _last_delivered_ids(groups: Sequence[Sequence[Any]]) -> dict[bytes, StreamId]:
    states = [attributes(group) for group in groups]
    return {state[b"name"]: stream_id(state[b"last-delivered-id"]) for state in states}
