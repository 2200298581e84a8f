"""What a server says, as the batches of a source; and what a store then holds."""

from __future__ import annotations

from collections.abc import Iterator

from claimlib.commands.snapshot import SnapshotRequest
from claimlib.live.batches import (
    Batch,
    ConsumerRow,
    Counts,
    EntryPage,
    EntryRow,
    GroupDone,
    PendingPage,
    PendingRow,
    SourceDone,
    StreamDone,
)
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import RemovalLimits
from claimlib.semantics.stream_life import StreamCounters
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import read_groups

ALL = SnapshotRequest("server:6379/0")
# Whatever the server no longer has may go.
ANY = SnapshotRequest(ALL.source, limits=RemovalLimits(max_removed_share=1))
FIELDS = ((b"f", b"v"),)


def stream(
    name: bytes,
    pending: dict[int, bytes],
    entries: set[int],
    at_ms: int,
    added: int | None = None,
    max_deleted: int = 0,
    group: bytes = b"g",
) -> list[Batch]:
    """One stream with one group: who owns which id, which ids the stream has, and how many it ever
    got."""
    last = StreamId(99, 0)
    if added is not None:  # the ids were added one by one, from 1-0 on
        last = StreamId(max(added, *entries, max_deleted), 0)
    first = StreamId(min(entries, default=0), 0)
    rows = tuple(
        PendingRow(StreamId(n, 0), owner, 1000 + n % 2**40, 1) for n, owner in pending.items()
    )
    consumers = tuple(ConsumerRow(owner, 5000, None) for owner in sorted(set(pending.values())))
    span = (StreamId(min(pending), 0), StreamId(max(pending), 0)) if pending else (None, None)
    read = tuple(
        EntryRow(StreamId(n, 0), FIELDS if n in pending else None)
        for n in sorted(entries)
        if pending and min(pending) <= n <= max(pending)
    )
    first_id, last_id = span
    return [
        *([PendingPage(name, group, at_ms, rows)] if rows else []),
        GroupDone(name, group, at_ms, StreamId(99, 0), consumers, len(rows)),
        *([EntryPage(name, read)] if read else []),
        StreamDone(
            *(name, len(entries), last, first_id, last_id, at_ms, 1, len(pending), len(read)),
            entries_added=added,
            closing=StreamCounters(len(entries), last, added, first, StreamId(max_deleted, 0)),
        ),
    ]


def source(*streams: list[Batch]) -> Iterator[Batch]:
    for batches in streams:
        yield from batches
    yield SourceDone(Counts(streams=len(streams)))


def owners(store: Store) -> dict[tuple[bytes, int], bytes | None]:
    return {
        (key, entry.id.ms): entry.consumer
        for key, groups in read_groups(store).items()
        for group in groups.values()
        for entry in group.pending
    }
