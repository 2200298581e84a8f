"""A snapshot of a server on which others go on working: what it says was true when it was read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

import redis

from claimlib.commands.snapshot import SnapshotRequest, snapshot
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.live.batches import Batch, PendingPage
from claimlib.live.connection import Source
from claimlib.live.reader import read_source
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import AutoclaimRequest
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import read_groups

STREAMS = (b"s1", b"s2", b"s3")
ENTRIES = 1200
PAGE = 40
AT_LEAST = 500  # of each kind of change, while the pages are read


class Traffic:
    """Other clients: after each batch that was read, they change something on the server."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self.done: Counter[str] = Counter()
        self.random = Random(7)
        self.pages: dict[tuple[bytes, StreamId], PendingPage] = {}

    def between(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            if isinstance(batch, PendingPage):
                self.check_as_read(batch)
            yield batch
            self.go_on()

    def check_as_read(self, page: PendingPage) -> None:
        """Nothing has moved since the page was read: each of its rows is pending, as it says."""
        first, last = page.rows[0].id, page.rows[-1].id
        rows = self.client.xpending_range(page.stream, "g", str(first), str(last), len(page.rows))
        assert [(row["message_id"].decode(), row["consumer"]) for row in rows] == [
            (str(row.id), row.consumer) for row in page.rows
        ]
        self.pages |= {(page.stream, row.id): page for row in page.rows}

    def go_on(self) -> None:
        stream = self.random.choice(STREAMS)
        ids = [f"{self.random.randint(1, ENTRIES)}-0" for _ in range(48)]
        self.done["acknowledged"] += self.client.xack(stream, "g", *ids[:12])
        self.done["deleted"] += self.client.xdel(stream, *ids[6:18])
        claimed = self.client.xclaim(stream, "g", "thief", 0, ids[18:40], justid=True)
        self.done["claimed"] += len(claimed)
        for _ in range(6):
            self.client.xadd(stream, {"later": "1"})
            self.done["added"] += 1
        self.client.xreadgroup("g", "late", {stream: ">"}, count=3)


def test_a_snapshot_is_correct_while_entries_are_acknowledged_deleted_claimed_and_added(
    client: redis.Redis, source: Source, store: Store
) -> None:
    for stream in STREAMS:
        with client.pipeline(transaction=False) as pipe:
            for number in range(1, ENTRIES + 1):
                pipe.xadd(stream, {"n": number}, id=f"{number}-0")
            pipe.xgroup_create(stream, "g", id="0")
            pipe.xreadgroup("g", "dead", {stream: ">"}, count=ENTRIES)
            pipe.execute()
    traffic = Traffic(client)

    def read(_spans: object) -> Iterator[Batch]:
        return traffic.between(read_source(source, pending_page=PAGE, entry_page=PAGE))

    snapshot(store, SnapshotRequest(source.label), read)

    print(*(f"{traffic.done[kind]:6} {kind}" for kind in sorted(traffic.done)), sep="\n")
    kinds = ("acknowledged", "deleted", "claimed", "added")
    assert {kind: traffic.done[kind] for kind in kinds if traffic.done[kind] < AT_LEAST} == {}
    stored = {
        (stream, entry.id): entry
        for stream, groups in read_groups(store).items()
        for entry in groups[b"g"].pending
    }
    assert stored.keys() == traffic.pages.keys(), "what was pending when its page was read"

    heir = AutoclaimRequest(b"heir", 0)
    reply = xautoclaim(store, SweepRequest(heir))
    purged = [(row["stream"].encode(), row["id"]) for row in reply.deleted.collect()]
    assert purged
    assert [entry for entry in purged if client.xrange(entry[0], entry[1], entry[1])] == [], (
        "what is judged absent is absent: an id that was deleted never comes back"
    )
    forgiven = [
        entry for entry in purged if not client.xpending_range(entry[0], "g", entry[1], entry[1], 1)
    ]
    print(f"{len(purged):6} purged, of which acknowledged and deleted: {len(forgiven)}")
    assert reply.counts["refused"] == 0
    assert reply.counts["claimed"] + reply.counts["deleted"] == len(stored)
