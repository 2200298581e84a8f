"""Make a small keyspace for trials: three streams, each with a living and a dead consumer."""

from __future__ import annotations

from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import Consumer, Group, PendingEntry
from claimlib.semantics.words import Keyspace, Stream

_MINUTE_MS = 60_000


def sample_keyspace(now_ms: int) -> Keyspace:
    """Return `orders`, `emails` and `clicks` at `now_ms`, each with the group `workers`.

    All entries are pending.  Every fourth entry was delivered just now, to `alice`, which is alive.
    The other entries have been idle for up to some hours.  They belong to `bob`, which is dead.
    Every tenth entry is no longer in its stream.
    """
    sizes = {b"orders": 40, b"emails": 20, b"clicks": 80}
    return {name: _stream(now_ms, size) for name, size in sizes.items()}


def _stream(now_ms: int, size: int) -> Stream:
    ids = [StreamId(now_ms - (size - n) * _MINUTE_MS, 0) for n in range(size)]
    entries = {stream_id: (b"n", b"%d" % n) for n, stream_id in enumerate(ids) if n % 10 != 9}
    pending = tuple(
        PendingEntry(stream_id, b"alice", now_ms - 5_000, 1)
        if n % 4 == 0
        else PendingEntry(stream_id, b"bob", stream_id.ms, 1 + n % 3)
        for n, stream_id in enumerate(ids)
    )
    consumers = (
        Consumer(b"alice", now_ms - 5_000, now_ms - 5_000),
        Consumer(b"bob", now_ms - 90 * _MINUTE_MS, now_ms - 90 * _MINUTE_MS),
    )
    return Stream(entries, {b"workers": Group(ids[-1], pending, consumers)})
