"""A sweep over a store does what the reference does, and what it did can be read."""

from claimlib import scan
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.ids import StreamId
from claimlib.model import AutoclaimRequest, Consumer, Group, PendingEntry
from claimlib.store import Store
from claimlib.testing.tables import read_groups, write_keyspace
from claimlib.words import Stream

NOW_MS = 1_750_000_000_000
IDS = [StreamId(ms, 0) for ms in range(1, 11)]
PEL = Group(
    last_delivered_id=StreamId(20, 0),
    pending=tuple(
        PendingEntry(stream_id, b"dead", NOW_MS - (60_000 if stream_id.ms % 2 else 10), 1)
        for stream_id in IDS
    ),
    consumers=(Consumer(b"dead", NOW_MS - 60_000, None),),
)
ENTRIES = {stream_id: (b"field", b"%d" % stream_id.ms) for stream_id in IDS if stream_id.ms != 4}
REQUEST = AutoclaimRequest(b"alice", 1000)


def test_a_sweep_leaves_the_tables_as_the_reference_leaves_the_group(store: Store) -> None:
    write_keyspace(store, {b"s": Stream(ENTRIES, {b"g": PEL})}, NOW_MS)
    expected, _ = scan.xautoclaim(PEL, REQUEST, NOW_MS, ENTRIES)

    reply = xautoclaim(store, SweepRequest(REQUEST))

    assert read_groups(store) == {b"s": {b"g": expected}}
    assert reply.counts["claimed"] == 5
    assert reply.counts["deleted"] == 1
