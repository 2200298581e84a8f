"""Read the consumer groups of a server, and the stream entries that their pending entries need.

Other clients write while a stream is read.  So the pending entries of the stream are read first,
and its entries second.  This order makes two statements certain:

- Each pending row was pending, with this owner, time and count, when its page was read.
- Each pending id without an entry was absent from the stream after it was read as pending.

The pages of a group end at the last id that was pending when the first page was read.  The next
reading reads entries that are delivered later.  Otherwise reading a busy group might never end.

XPENDING reports how long an entry has been idle, not when it was delivered.  So it runs in a
transaction with TIME.  The server's clock stops in a transaction (Redis from 7.2 on, Valkey), so
TIME minus the idle time is the exact delivery time in milliseconds.  On Redis 7.0 the clock goes on
while a page is built.  TIME comes last, so no entry seems idle for longer than it is.

Only commands that read are sent: HELLO, INFO, SCAN, TIME, XINFO STREAM, XINFO GROUPS, XINFO
CONSUMERS, XPENDING, XRANGE, EVAL_RO, and MULTI and EXEC around some of them.

Memory holds:

- one page of rows: of pending entries by number, of entries by number and by `reply_bytes`;
- the names of the streams seen;
- the groups of one stream and the consumers of one group, because servers do not page them;
- the packed pending ids of one stream (`live.pending_ids`);
- the first and the last entry of one stream if scripts are not allowed, because XINFO STREAM
  returns them.

docs/decisions/027 has the sizes.

In a cluster, SCAN is sent to every master, and each stream is read from the master of its slot.  A
stream may move between two SCANs, so that no master names it, or two masters do.  Therefore the
masters are searched in rounds for streams that were not read yet:

- If the slot map has changed during a round, another round follows.
- If slots are being moved, a second round follows even if the slot map has not changed.  One of two
  rounds finds a stream that moves from one master to another.
- If the slot of a stream moved while the stream was read, the next round reads the stream again.

Streams of masters that do not answer are not read.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from claimlib.errors import RequestError, SourceUnreachableError, WrongTypeError
from claimlib.live.batches import (
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
    SourceOpened,
    StreamDone,
    StreamGone,
)
from claimlib.live.cluster import Servers
from claimlib.live.connection import Source
from claimlib.live.entries import EntryWalk
from claimlib.live.pending_ids import PackedIds, Span, Wanted
from claimlib.live.replies import (
    attributes,
    consumer_rows,
    parsing_reply,
    pending_rows,
    stream_counters,
    stream_id,
    time_ms,
)
from claimlib.live.scripts import Scripts
from claimlib.live.server import check_unchanged
from claimlib.live.vanished import SlotMovedError, VanishedError
from claimlib.semantics import names
from claimlib.semantics.ids import MIN_ID, StreamId
from claimlib.semantics.stream_life import StreamCounters

__all__ = [
    "DEFAULT_PAGE",
    "DEFAULT_REPLY_BYTES",
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
    "SourceOpened",
    "StreamDone",
    "StreamGone",
    "read_source",
]

DEFAULT_PAGE = 1000
DEFAULT_REPLY_BYTES = 4 * 1024 * 1024
_MOST_ROUNDS = 5
"""The most times that the masters of a cluster are searched while its slots move."""

# Return the reply of XINFO STREAM without the first and the last entry, which may be large.
_STATE_OF_STREAM = """
local state, needed = redis.call('XINFO', 'STREAM', KEYS[1]), {}
for i = 1, #state, 2 do
  if state[i] ~= 'first-entry' and state[i] ~= 'last-entry' then
    needed[#needed + 1], needed[#needed + 2] = state[i], state[i + 1]
  end
end
return needed
"""


def read_source(
    servers: Servers,
    *,
    stream_glob: str | bytes = "*",
    group_glob: str | bytes = "*",
    fields: bool = True,
    pending_page: int = DEFAULT_PAGE,
    entry_page: int = DEFAULT_PAGE,
    scan_page: int = DEFAULT_PAGE,
    reply_bytes: int = DEFAULT_REPLY_BYTES,
    also_spans: Mapping[bytes, Span] | None = None,
) -> Iterator[Batch]:
    r"""Yield the matching streams, their groups, pending entries and entries (see `batches`).

    Nothing is read ahead.  A batch shows the server as it was when the caller requested the batch.
    If one reply becomes several pages of entries, this is true only of the first page.  A stream
    without a matching group is reported, too, as `StreamDone` with nothing pending.  If the glob is
    the name of a stream that does not exist, no stream is reported.

    Args:
        servers: the server or the cluster, which has its own pace.
        stream_glob: a glob as for MATCH of SCAN.  Without any of `*?[\` it is a name, and SCAN is
            not sent.
        group_glob: a glob with the same rules.  It is matched here, because servers cannot search
            for groups.
        fields: True to read the payloads of pending entries.
        pending_page: rows per page of pending entries.
        entry_page: rows per page of entries.
        scan_page: keys that one SCAN looks at.
        reply_bytes: the number of bytes that one reply, and one page of entries, exceeds by one
            entry at most.  `live.entries` describes the exceptions.
        also_spans: the first and the last id of a span, by stream.  The entries of the span are
            read, too, because groups that are not read have pending entries there.  A span counts
            only if a group of its stream is read.  Payloads are read only for entries that are
            pending in the groups that are read.

    Returns:
        The batches.  They take no more than a page of memory at a time.

    Raises:
        RequestError: a page size is below 1, or a span ends before it begins.  Also `GlobError` if
            a glob cannot be used.
        WrongTypeError: the key that the glob names is not a stream (while reading).
        PermissionDeniedError: a command or a key is denied (while reading).
        SourceUnreachableError: the connection broke, or the server is not the one that was opened,
            or slots of a cluster keep moving (while reading).  Also if the named stream belongs to
            a master that does not answer.  Discard all batches that were yielded.
    """
    _check_sizes(
        pending_page=pending_page,
        entry_page=entry_page,
        scan_page=scan_page,
        reply_bytes=reply_bytes,
    )
    spans = dict(also_spans or {})
    _check_spans(spans)
    return _new_reading(
        servers,
        stream_glob,
        group_glob,
        fields=fields,
        pending_page=pending_page,
        entry_page=entry_page,
        scan_page=scan_page,
        reply_bytes=reply_bytes,
        spans=spans,
    ).batches()


def stream_names(servers: Servers, stream_glob: str | bytes = "*") -> Iterator[bytes]:
    """Yield the name of each stream that a glob matches, once.

    Raises:
        SourceError: see `read_source`.
    """
    return _new_reading(servers, stream_glob, "*", fields=False).stream_names()


def pending_summaries(
    servers: Servers, streams: Iterable[bytes], group_glob: str | bytes = "*"
) -> dict[bytes, tuple[int, Span | None]]:
    """Return, by stream, the number of pending entries, and the span of their ids.

    The span is None if nothing is pending, or if the stream is gone.

    Raises:
        SourceError: see `read_source`.
    """
    reading = _new_reading(servers, "*", group_glob, fields=False)
    servers.slot_map()
    return {
        stream: reading.by_source[servers.source_of(stream)].pending_summary(stream)
        for stream in streams
    }


def read_stream(
    servers: Servers,
    stream: bytes,
    *,
    stream_glob: str | bytes = "*",
    group_glob: str | bytes = "*",
    fields: bool = True,
    span: Span | None = None,
) -> Iterator[Batch]:
    """Yield the batches of one stream, as `read_source` does.

    Args:
        stream_glob: the glob that `stream_names` got.  If it is a name, the stream may not exist.
            In this case nothing is yielded.
        span: the first and the last id.  Only pending entries and entries between them are read.
            None means the whole stream.

    Raises:
        SourceError: see `read_source`.  Also if the stream moves to another node while it is read.
    """
    spans = None if span is None else {stream: span}
    reading = _new_reading(servers, stream_glob, group_glob, fields=fields, spans=spans)
    servers.slot_map()
    node = reading.by_source[servers.source_of(stream)]
    node.pending_span = span
    yield from node.batches(stream)


def _new_reading(
    servers: Servers,
    stream_glob: str | bytes,
    group_glob: str | bytes,
    *,
    fields: bool,
    pending_page: int = DEFAULT_PAGE,
    entry_page: int = DEFAULT_PAGE,
    scan_page: int = DEFAULT_PAGE,
    reply_bytes: int = DEFAULT_REPLY_BYTES,
    spans: Mapping[bytes, Span] | None = None,
) -> _Reading:
    streams, groups, scripts = _glob(stream_glob), _glob(group_glob), Scripts()

    def node_reading(source: Source) -> _NodeReading:
        walk = EntryWalk(
            source, scripts, with_fields=fields, page_size=entry_page, reply_bytes=reply_bytes
        )
        return _NodeReading(
            source, streams, groups, dict(spans or {}), scripts, walk, pending_page, scan_page
        )

    return _Reading(servers, {source: node_reading(source) for source in servers.nodes})


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise RequestError(f"{name} must be at least 1, not {size}", option=name, value=size)


def _check_spans(spans: Mapping[bytes, Span]) -> None:
    for stream, (first, last) in spans.items():
        if last < first:
            name = names.spell(stream)
            raise RequestError(
                f"the span of stream {name} ends at {last}, before it begins at {first}",
                stream=name,
            )


def _glob(glob: str | bytes) -> bytes:
    """Check that a glob can be matched, and return its bytes.

    Raises:
        GlobError: it cannot be matched.
    """
    # If an argument of a command line is not UTF-8, Python gives its bytes as surrogates.
    raw = glob.encode("utf-8", "surrogateescape") if isinstance(glob, str) else glob
    names.glob_pattern(raw)
    return raw


@dataclass(frozen=True, slots=True)
class _FirstPage:
    """Hold the state of a group when its first page was read.

    Attributes:
        end: the last id that was pending then.
    """

    snapshot_ms: int
    rows: tuple[PendingRow, ...]
    end: StreamId
    consumers: tuple[ConsumerRow, ...]


@dataclass(slots=True)
class _Reading:
    """Read one or several servers.

    Attributes:
        by_source: the reading of each server.
        read: the streams whose reading has begun, without those that moved.
        moved: the streams that moved to another node while they were read, each with its error.
    """

    servers: Servers
    by_source: Mapping[Source, _NodeReading]
    read: set[bytes] = field(default_factory=set)
    moved: dict[bytes, SlotMovedError] = field(default_factory=dict)

    def batches(self) -> Iterator[Batch]:
        sent_before = self.servers.commands_sent
        yield self.servers.ids
        yield from self.servers.down
        streams = groups = pending = entries = vanished = 0
        for stream in self.stream_names():
            for batch in self._stream(stream):
                yield batch
                if isinstance(batch, StreamDone):
                    streams += 1
                    groups += batch.group_count
                    pending += batch.pending_count
                    entries += batch.entry_count
                elif isinstance(batch, StreamGone | GroupGone) and stream not in self.moved:
                    vanished += 1
        for source in self.servers.nodes:
            check_unchanged(source, source.server)
        commands = self.servers.commands_sent - sent_before
        yield SourceDone(Counts(streams, groups, pending, entries, commands, vanished))

    def stream_names(self) -> Iterator[bytes]:
        """Yield the name of each matching stream once, and again if it has moved.

        Raises:
            SourceUnreachableError: slots keep moving.
        """
        # `is_second` is True if the last round has begun and ended with the same slot map.
        before, is_second = self.servers.slot_map(), False
        for _ in range(_MOST_ROUNDS):
            self.read -= self.moved.keys()
            self.moved.clear()
            for node in self.by_source.values():
                for stream in node.stream_names():
                    if stream not in self.read:  # SCAN may name a key again
                        self.read.add(stream)
                        yield stream
            now = self.servers.slot_map()
            is_same = now == before
            if is_same and not self.moved and (is_second or not now.is_moving):
                return
            before, is_second = now, is_same
        if self.moved:
            raise next(iter(self.moved.values()))
        raise SourceUnreachableError(
            f"slots of the cluster of {self.servers.label} keep moving between its masters: try"
            " again when this has ended",
            source=self.servers.label,
        )

    def _stream(self, stream: bytes) -> Iterator[Batch]:
        try:
            yield from self.by_source[self.servers.source_of(stream)].batches(stream)
        except SlotMovedError as error:
            self.moved[stream] = error
            yield StreamGone(stream)
        except SourceUnreachableError as error:
            if not self.servers.down:
                raise
            # A cluster may refuse to answer because some of its masters are down.
            down = "; ".join(master.reason for master in self.servers.down)
            raise SourceUnreachableError(f"{error.message}; {down}", **error.fields) from error


@dataclass(slots=True)
class _NodeReading:
    """Read the requested streams of one server.

    Attributes:
        also_spans: see `read_source`.
        pending_span: the first and the last id of the pending entries that are read.  None means
            all pending entries.
    """

    source: Source
    stream_glob: bytes
    group_glob: bytes
    also_spans: dict[bytes, Span]
    scripts: Scripts
    walk: EntryWalk
    pending_page: int
    scan_page: int
    pending_span: Span | None = None

    def pending_summary(self, stream: bytes) -> tuple[int, Span | None]:
        """Return the value of `pending_summaries` for one stream."""
        number, ids = 0, list[StreamId]()
        try:
            for group in self._last_delivered_ids(stream):
                if names.matches(self.group_glob, group):
                    of_group, *ends, _ = self.source.call("XPENDING", stream, group)
                    number += of_group
                    ids += [stream_id(end) for end in ends if end is not None]
        except (VanishedError, WrongTypeError):
            return 0, None
        return number, (min(ids), max(ids)) if ids else None

    @property
    def _names_one_stream(self) -> bool:
        return names.literal_name(self.stream_glob) is not None

    def stream_names(self) -> Iterator[bytes]:
        """Yield the names of the matching streams.

        If the glob is a name, yield it even if there is no such stream.
        """
        if self._names_one_stream:
            yield self.stream_glob
            return
        match = ("MATCH", self.stream_glob, "COUNT", self.scan_page, "TYPE", "stream")
        cursor = b"0"
        while True:
            cursor, names_read = self.source.call("SCAN", cursor, *match)
            yield from names_read
            if cursor == b"0":
                return

    def batches(self, stream: bytes) -> Iterator[Batch]:
        """Yield the batches of one stream."""
        # A key that SCAN found was a stream.  If it now has another type, the stream is gone.  A
        # key that the glob names may never have been a stream, so another type is an error.
        gone_errors = VanishedError if self._names_one_stream else (VanishedError, WrongTypeError)
        try:
            last_delivered_ids = self._last_delivered_ids(stream)
        except gone_errors:
            if not self._names_one_stream:
                yield StreamGone(stream)
            return
        try:
            yield from self._groups_then_entries(stream, last_delivered_ids)
        except (VanishedError, WrongTypeError):
            yield StreamGone(stream)

    def _groups_then_entries(
        self, stream: bytes, last_delivered_ids: Mapping[bytes, StreamId]
    ) -> Iterator[Batch]:
        pending_ids: list[PackedIds] = []
        for group, last_delivered_id in last_delivered_ids.items():
            if names.matches(self.group_glob, group):
                ids = PackedIds()
                if (yield from self._group(stream, group, last_delivered_id, ids)):
                    pending_ids.append(ids)
        # All pending ids of the stream are known now, so its entries can be read.
        counters, read_ms = self._counters(stream)
        wanted = Wanted(pending_ids, self.also_spans.get(stream) if pending_ids else None)
        entry_count = 0
        for rows in self.walk.pages(stream, wanted):
            entry_count += len(rows)
            yield EntryPage(stream, rows)
        complete_from, complete_to = wanted.span or (None, None)
        # An entry may be deleted while the entries are read.  Only the counters read afterwards
        # count this deletion, so missing entries are compared with these.
        closing = counters if wanted.span is None else self._counters(stream)[0]
        yield StreamDone(
            stream,
            counters.length,
            counters.last_generated_id,
            complete_from,
            complete_to,
            read_ms,
            group_count=len(pending_ids),
            pending_count=sum(ids.count for ids in pending_ids),
            entry_count=entry_count,
            entries_added=counters.entries_added,
            closing=closing,
        )

    def _group(
        self, stream: bytes, group: bytes, last_delivered_id: StreamId, ids: PackedIds
    ) -> Generator[Batch, None, bool]:
        """Yield one group's batches, and add their ids to `ids`.

        Returns:
            True if the whole group was read.
        """
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

    def _last_delivered_ids(self, stream: bytes) -> dict[bytes, StreamId]:
        """Return the groups of the stream, each with its last delivered id."""
        reply = self.source.call("XINFO", "GROUPS", stream)
        with parsing_reply(self.source.label, "XINFO GROUPS"):
            states = list(map(attributes, reply))
            return {state[b"name"]: stream_id(state[b"last-delivered-id"]) for state in states}

    def _counters(self, stream: bytes) -> tuple[StreamCounters, int]:
        """Return the stream's counters, and the server's time (ms since the epoch) of the reply."""
        time = ("TIME",)
        reply, now = self.scripts.or_else(
            lambda: self.source.transaction(("EVAL_RO", _STATE_OF_STREAM, 1, stream), time),
            lambda: self.source.transaction(("XINFO", "STREAM", stream), time),
        )
        read_ms = time_ms(now)
        with parsing_reply(self.source.label, "XINFO STREAM"):
            counters = stream_counters(reply)
        if not self.source.server.trims_in_order:
            # Trimming may have deleted ids above the first one, too (`semantics.stream_life`).
            counters = replace(counters, max_deleted_id=None)
        return counters, read_ms

    def _first_page(self, stream: bytes, group: bytes) -> _FirstPage:
        low, high = ("-", "+") if self.pending_span is None else map(str, self.pending_span)
        summary, page, consumers, time = self.source.transaction(
            ("XPENDING", stream, group),
            ("XPENDING", stream, group, low, high, self.pending_page),
            ("XINFO", "CONSUMERS", stream, group),
            ("TIME",),
        )
        now_ms = time_ms(time)
        with parsing_reply(self.source.label, "XPENDING"):
            _, _, last_id, *_ = summary
            end = stream_id(last_id) if last_id is not None else MIN_ID
            end = end if self.pending_span is None else min(end, self.pending_span[1])
            rows = pending_rows(page, now_ms)
        with parsing_reply(self.source.label, "XINFO CONSUMERS"):
            return _FirstPage(now_ms, rows, end, consumer_rows(consumers, now_ms))

    def _next_page(
        self, stream: bytes, group: bytes, after: StreamId, end: StreamId
    ) -> tuple[PendingRow, ...]:
        page, time = self.source.transaction(
            ("XPENDING", stream, group, f"({after}", str(end), self.pending_page), ("TIME",)
        )
        with parsing_reply(self.source.label, "XPENDING"):
            return pending_rows(page, time_ms(time))
