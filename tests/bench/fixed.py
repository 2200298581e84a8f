"""What a command costs however few rows there are: small stores, in appends of one row.

Each command is run several times on the same store, at a later instant each time, so that it finds
the same work to do; an append of one row to a Delta table of its own, in the same session, comes
after each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pyspark.sql import SparkSession

from claimlib.commands.snapshot import SnapshotRequest, snapshot
from claimlib.commands.xack import NamedAck, xack
from claimlib.commands.xautoclaim import xautoclaim
from claimlib.commands.xclaim import NamedClaim, xclaim
from claimlib.commands.xpending import pending_overview, read_store
from claimlib.live.batches import Batch
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import ClaimRequest, RemovalLimits
from claimlib.store.tables import Store
from tests.bench.check import Measured
from tests.bench.data import CONSUMER, COUNT, GROUP, LARGEST, MIN_IDLE_MS
from tests.bench.store import (
    PAGE,
    SWEEP,
    UNIT,
    Watch,
    append_one_row,
    hours_later_ms,
    make,
    medians_of,
)
from tests.delta.snapshots import source, stream

_STREAMS = 20
_SNAPSHOT = SnapshotRequest("server:6379/0", limits=RemovalLimits(max_removed_share=1))


def run(
    spark: SparkSession, folder: str, rows: int, watch: Watch, *, data: str, times: int
) -> Measured:
    """The benchmark's document: medians of seconds, after one of each to warm up, and in appends
    of one row."""
    del data
    swept, paged, by_id, acked, mirror = (
        Store.init(spark, f"{folder}/{name}")
        for name in ("swept", "paged", "by_id", "acked", "mirror")
    )
    for store in (swept, paged, by_id, acked):
        watch.time("make rows", partial(make, store, rows))
    ids = _ids(by_id, (times + 1) * COUNT)
    commands: dict[str, Callable[[int], object]] = {
        "dry run": lambda n: xautoclaim(swept, SWEEP, now_ms=hours_later_ms(n), dry_run=True),
        "sweep": lambda n: xautoclaim(swept, SWEEP, now_ms=hours_later_ms(n), run_id=f"{n}"),
        "the same run id": lambda n: xautoclaim(
            swept, SWEEP, now_ms=hours_later_ms(n), run_id=f"{n}"
        ),
        "page": lambda n: xautoclaim(paged, PAGE, now_ms=hours_later_ms(n)),
        "xclaim": lambda n: xclaim(by_id, [_claim(ids[:COUNT])], now_ms=hours_later_ms(n)),
        "xack": lambda n: xack(acked, [_ack(ids[n * COUNT :][:COUNT])]),
        "xpending": lambda _: pending_overview(read_store(swept)).collect(),
        "snapshot": lambda n: snapshot(mirror, _SNAPSHOT, lambda _: source(*_streams(rows, n))),
    }
    for number in range(times + 1):
        for name, command in commands.items():
            watch.time(f"{name} {number}", partial(command, number))
            watch.time(f"{UNIT} {number}", partial(append_one_row, spark, f"{folder}/unit"))
    medians = medians_of(watch, (*commands, UNIT), times)
    document: dict[str, object] = {
        "rows": rows,
        "times": times,
        "seconds": medians,
        "appends": {name: round(medians[name] / medians[UNIT], 1) for name in commands},
        "peak_mib": watch.peak_mib,
    }
    return Measured(document, {}, {})


def _ids(store: Store, number: int) -> tuple[StreamId, ...]:
    """The first ids of the largest stream."""
    pending = store.read("pending").where(f"stream = '{LARGEST}'")
    rows = pending.select("id_ms").orderBy("id_ms").limit(number).collect()
    return tuple(StreamId(row["id_ms"], 0) for row in rows)


def _claim(ids: tuple[StreamId, ...]) -> NamedClaim:
    request = ClaimRequest(CONSUMER.encode(), MIN_IDLE_MS, ids)
    return NamedClaim(LARGEST.encode(), GROUP.encode(), request)


def _ack(ids: tuple[StreamId, ...]) -> NamedAck:
    return NamedAck(LARGEST.encode(), GROUP.encode(), ids)


def _streams(rows: int, number: int) -> list[list[Batch]]:
    """Streams of which each has got one entry since the last time, and lost the first."""
    each = rows // _STREAMS
    ids = set(range(number + 1, number + 1 + each))
    owners = dict.fromkeys(ids, b"bob")
    names = (b"stream-%05d" % n for n in range(_STREAMS))
    return [stream(name, owners, ids, hours_later_ms(number)) for name in names]
