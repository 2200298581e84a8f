"""What a sweep does, done by a server: XAUTOCLAIM, group by group, a hundred entries at a time.

The server (a Valkey of one's own) is filled with the same pending entries, by what a fleet would
do: it adds them, hands them to their owners, and forgets some.  Its clock is its own, so entries
are due by the idle time that XCLAIM gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from claimlib.store.tables import Store
from claimlib.testing.server_process import Server
from tests.bench import data
from tests.bench.data import CONSUMER, COUNT, GROUP, Shape

T = TypeVar("T")
# Of what is due; filling must not take half of that.
_IDLE_MS = 3_600_000
# Commands sent at once, and ids named by one of them.
_AT_ONCE = 1000


@dataclass
class Claimed:
    """What the loop was told, by kind and stream: how many ids, and the sum of their id_ms."""

    sums: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)

    def add(self, kind: str, stream: str, ids: Sequence[bytes]) -> None:
        """More ids of one reply."""
        count, total = self.sums.get((kind, stream), (0, 0))
        times = (int(id_.partition(b"-")[0]) for id_ in ids)
        self.sums[kind, stream] = count + len(ids), total + sum(times)


def fill(spark: SparkSession, server: Server, rows: int, shape: Shape) -> list[str]:
    """Fill a server; the names of its streams."""
    made = data.pending(spark, rows, shape)
    by_stream = made.groupBy("stream").agg(
        F.array_sort(F.collect_list(F.struct("id_ms", "consumer", "is_due", "is_gone"))).alias("of")
    )
    streams = []
    with server.client() as client:
        for row in by_stream.toLocalIterator():
            _fill_stream(client, row["stream"], row["of"])
            streams.append(row["stream"])
    return streams


def _fill_stream(client: Any, stream: str, entries: Sequence[Any]) -> None:
    ids = [f"{entry['id_ms']}-0" for entry in entries]
    _pipelined(client, ids, lambda pipe, id_: pipe.xadd(stream, {"field": stream}, id_))
    client.xgroup_create(stream, GROUP, "0")
    client.xreadgroup(GROUP, "everybody", {stream: ">"}, count=len(ids))
    owned: dict[tuple[str, bool], list[str]] = {}
    for id_, entry in zip(ids, entries, strict=True):
        owned.setdefault((entry["consumer"], entry["is_due"]), []).append(id_)
    claims = [(key, some) for key, all_of in owned.items() for some in _parts(all_of)]

    def claim(pipe: Any, part: tuple[tuple[str, bool], Sequence[str]]) -> None:
        (consumer, is_due), some = part
        idle_ms = _IDLE_MS if is_due else 0
        pipe.xclaim(stream, GROUP, consumer, 0, list(some), idle=idle_ms, justid=True)

    _pipelined(client, claims, claim)
    gone = [id_ for id_, entry in zip(ids, entries, strict=True) if entry["is_gone"]]
    for some in _parts(gone):
        client.xdel(stream, *some)


def _parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for at in range(0, len(items), _AT_ONCE):
        yield items[at : at + _AT_ONCE]


def _pipelined(client: Any, items: Sequence[Any], send: Callable[[Any, Any], object]) -> None:
    for some in _parts(items):
        with client.pipeline(transaction=False) as pipe:
            for argument in some:
                send(pipe, argument)
            pipe.execute()


def claim_all(server: Server, streams: Sequence[str]) -> Claimed:
    """The loop."""
    claimed = Claimed()
    with server.client() as client:
        for stream in streams:
            for kind, ids in _pages(client, stream):
                claimed.add(kind, stream, ids)
    return claimed


def _pages(client: Any, stream: str) -> Iterator[tuple[str, list[bytes]]]:
    cursor = b"0-0"
    while True:
        cursor, claimed, deleted = client.xautoclaim(
            stream, GROUP, CONSUMER, _IDLE_MS // 2, cursor, COUNT
        )
        yield "claimed", [id_ for id_, _ in claimed]
        yield "deleted", deleted
        if cursor == b"0-0":
            return


def differing(store: Store, claimed: Claimed) -> int:
    """Of how many streams the journal of a sweep says something else than the loop."""
    said = store.read("journal").where("kind IN ('claimed', 'deleted')")
    sums = said.groupBy("kind", "stream").agg(F.count("*").alias("n"), F.sum("id_ms").alias("sum"))
    ours = {(row["kind"], row["stream"]): (row["n"], row["sum"]) for row in sums.collect()}
    theirs: Mapping[tuple[str, str], tuple[int, int]] = {
        key: sums for key, sums in claimed.sums.items() if sums[0]
    }
    return len({key[1] for key in {*ours, *theirs} if ours.get(key) != theirs.get(key)})
