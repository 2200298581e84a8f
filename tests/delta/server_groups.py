"""Consumer groups on a real server, and runs of a store that mirrors it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

from claimlib.commands.reply import Reply
from claimlib.commands.snapshot import SnapshotReply, SnapshotRequest, snapshot
from claimlib.commands.writeback import WritebackReply, writeback
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.live.access import ServerAccess
from claimlib.live.reading import ServerReading
from claimlib.live.replies import time_ms
from claimlib.semantics.model import AutoclaimRequest, RemovalLimits
from claimlib.store.tables import Store
from claimlib.testing.server_process import Server

HOUR_MS = 3_600_000
GROUP = "w"
FAST = {"max_commands_per_second": 1_000_000}

State = dict[str, tuple[str, int, int]]
"""By id: owner, delivery time (ms since the epoch) and delivery count."""


def stall(
    client: redis.Redis,
    stream: str | bytes,
    ids: Sequence[str],
    owner: str = "bob",
    idle_ms: int = HOUR_MS,
    count: int = 1,
) -> None:
    """Add entries that their owner has had pending for some time."""
    pipeline = client.pipeline(transaction=False)
    for id_ in ids:
        pipeline.xadd(stream, {"n": 1}, id=id_)
    pipeline.execute()
    if not (client.exists(stream) and client.xinfo_groups(stream)):
        client.xgroup_create(stream, GROUP, id="0")
    client.xreadgroup(GROUP, owner, {stream: ">"}, count=len(ids))
    dated = ("IDLE", idle_ms, "RETRYCOUNT", count)
    for first in range(0, len(ids), 1000):
        part = ids[first : first + 1000]
        client.execute_command("XCLAIM", stream, GROUP, owner, 0, *part, *dated)


def state(client: redis.Redis, stream: str | bytes) -> State:
    """Return the pending entries of a group.  In a transaction the server's clock stands still."""
    if not client.exists(stream):
        return {}
    pipeline = client.pipeline(transaction=True)
    pipeline.xpending_range(stream, GROUP, "-", "+", 1_000_000)
    pipeline.time()
    rows, (seconds, microseconds) = pipeline.execute()
    now_ms = time_ms((str(seconds).encode(), str(microseconds).encode()))
    return {
        row["message_id"].decode(): (
            row["consumer"].decode(),
            now_ms - row["time_since_delivered"],
            row["times_delivered"],
        )
        for row in rows
    }


def owners(states: State) -> dict[str, tuple[str, int]]:
    return {id_: (owner, count) for id_, (owner, _, count) in states.items()}


def in_store(store: Store, stream: str) -> State:
    """Return the pending entries of a group in the store."""
    rows = store.relation("pending").where(f"stream = '{stream}'").collect()
    return {
        f"{row['id_ms']}-{row['id_seq']}": (
            row["consumer"],
            row["delivery_time_ms"],
            row["delivery_count"],
        )
        for row in rows
    }


def mirror(store: Store, server: Server, stream_glob: str = "*") -> SnapshotReply:
    reading = ServerReading(server.url, stream_glob=stream_glob, **FAST)
    limits = RemovalLimits(max_removed_share=1)
    request = SnapshotRequest(reading.label, stream_glob=stream_glob, limits=limits)
    return snapshot(store, request, reading)


def sweep(store: Store, consumer: str = "alice", min_idle_ms: int = HOUR_MS // 4) -> Reply:
    request = AutoclaimRequest(consumer.encode(), min_idle_ms)
    return xautoclaim(store, SweepRequest(request), run_id="r")


def write(
    store: Store,
    server: Server,
    run: str = "r",
    run_id: str | None = "w",
    url: str | None = None,
    max_latency_ms: int | None = None,
    **options: Any,
) -> WritebackReply:
    access = ServerAccess(url or server.url, max_latency_ms=max_latency_ms, **FAST)
    return writeback(store, run, access, run_id=run_id, **options)


def outcomes(reply: WritebackReply) -> dict[str, int]:
    """The outcomes that are not 0; their sum is what was decided."""
    counts = {name: reply.counts[name] for name in ("moved", "acknowledged", "touched", "gone")}
    assert sum(counts.values()) == reply.counts["decided"]
    return {name: number for name, number in counts.items() if number}
