"""Claims by id, a retirement and acknowledgements, one after the other on one store."""

from __future__ import annotations

from claimlib.commands.retire import Retirement, retire
from claimlib.commands.xack import NamedAck, xack
from claimlib.commands.xclaim import NamedClaim, xclaim
from claimlib.semantics.ids import MAX_ID, StreamId
from claimlib.semantics.model import ClaimRequest, Consumer, Group, PendingEntry
from claimlib.semantics.words import Stream
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import read_groups, write_keyspace

_NOW_MS = 1_000_000
_IDS = [StreamId(ms, 0) for ms in range(1, 6)]


def _stream() -> Stream:
    """Five entries that are pending for alice, the third of which is gone from the stream."""
    pending = tuple(PendingEntry(stream_id, b"alice", _NOW_MS - 5_000, 1) for stream_id in _IDS)
    alive = dict.fromkeys([stream_id for stream_id in _IDS if stream_id != _IDS[2]], ())
    consumers = tuple(Consumer(name, _NOW_MS, None) for name in (b"alice", b"carol"))
    return Stream(alive, {b"g": Group(MAX_ID, pending, consumers)})


def test_what_is_claimed_by_id_retired_and_acknowledged_is_applied_to_the_store(
    store: Store,
) -> None:
    write_keyspace(store, {b"s": _stream()}, _NOW_MS)
    claim = ClaimRequest(b"bob", 1_000, tuple(_IDS[:2]))
    claimed = xclaim(store, [NamedClaim(b"s", b"g", claim)], now_ms=_NOW_MS)
    assert claimed.counts["claimed"] == 2
    retired = retire(store, Retirement(b"s", b"g", b"alice", (b"carol",)), now_ms=_NOW_MS + 1)
    assert (retired.counts["claimed"], retired.counts["deleted"]) == (2, 1)
    acked = xack(store, [NamedAck(b"s", b"g", (_IDS[0], _IDS[4]))])
    assert acked.counts["acked"] == 2

    (group,) = read_groups(store)[b"s"].values()
    assert [(entry.id, entry.consumer, entry.delivery_count) for entry in group.pending] == [
        (_IDS[1], b"bob", 2),
        (_IDS[3], b"carol", 1),
    ]
    assert {consumer.name for consumer in group.consumers} == {b"bob", b"carol"}
