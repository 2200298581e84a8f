"""A small keyspace in which a sweep claims, deletes and leaves alone, and its reading back."""

from __future__ import annotations

from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import AutoclaimRequest, Consumer, Group, PendingEntry
from claimlib.semantics.words import Keyspace, Stream

NOW_MS = 1_750_000_000_000
IDS = tuple(StreamId(ms, 0) for ms in range(1, 11))
GONE = StreamId(4, 0)  # no longer in the stream
REQUEST = AutoclaimRequest(b"alice", 1000)


def idle_ms(stream_id: StreamId) -> int:
    """Odd ids have been idle for a minute, even ones for ten milliseconds."""
    return 60_000 if stream_id.ms % 2 else 10


PEL = Group(
    last_delivered_id=StreamId(20, 0),
    pending=tuple(
        PendingEntry(stream_id, b"dead", NOW_MS - idle_ms(stream_id), 1) for stream_id in IDS
    ),
    consumers=(Consumer(b"dead", NOW_MS - 60_000, None),),
)
ENTRIES = {stream_id: (b"field", b"%d" % stream_id.ms) for stream_id in IDS if stream_id != GONE}
# What REQUEST does to PEL: five claimed, one deleted, four left alone.
CLAIMED, DELETED, LEFT = 5, 1, 4


def keyspace(*streams: bytes) -> Keyspace:
    """Streams that each have the same PEL in one group."""
    return {name: Stream(ENTRIES, {b"g": PEL}) for name in streams}
