"""Leave stalled work on a real server: producers add, consumers read, and some of them die.

A seed determines what happens, except for the clock.  A dying consumer reads on and acknowledges
nothing until its connection closes.  The others fail at an entry now and then.

Nothing sleeps.  Entries that were not acknowledged are dated back by XCLAIM … TIME … RETRYCOUNT …
JUSTID.  So they look as if their consumer had died minutes to days ago.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from claimlib.testing.server_process import Server

if TYPE_CHECKING:
    import redis

SWEEP_AGE_MS = 15 * 60_000
"""The age of one delivery time that some entries of each group share, as after a sweep."""

_OLDEST_AGE_MS = 6 * 24 * 3_600_000
_YOUNGEST_AGE_MS = 1_000
_BATCH = 1_000
"""The most entries that are added, deleted or acknowledged at once."""
_FAILED_SHARE = 0.03
_RETRIED_SHARE = 0.3
_POISONED_SHARE = 0.02


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """Plan one stream and what happens to it.

    Attributes:
        name: its key.
        weight: its share of all entries.
        groups: its consumer groups.  Each of them reads it.
        deleted_share: the share of its entries that are deleted (XDEL), here and there.
        kept_share: the share of its entries that its trim (XTRIM MAXLEN) leaves.  1 means that it
            is not trimmed.
        ids_around: the milliseconds in an id that is added at `Workload.sweep_ms`.  All ids are
            shifted accordingly.  None means that ids contain the clock's time.
        healthy: the group (if any) in which no consumer dies and nothing fails.
    """

    name: bytes
    weight: int
    groups: tuple[bytes, ...]
    deleted_share: float = 0.02
    kept_share: float = 1.0
    ids_around: int | None = None
    healthy: bytes | None = None


PLANS = (
    StreamPlan(b"orders:eu", 5200, (b"billing", b"shipping", b"search"), kept_share=0.9),
    StreamPlan(b"orders:us", 4300, (b"billing", b"shipping")),
    StreamPlan(b"payments", 3100, (b"ledger", b"fraud", b"receipts"), deleted_share=0.005),
    StreamPlan(b"webhooks", 2600, (b"delivery", b"audit"), kept_share=0.8),
    StreamPlan(b"thumbnails", 2000, (b"resize", b"cdn"), deleted_share=0.1),
    StreamPlan(b"orders:apac", 1900, (b"billing", b"shipping", b"search")),
    StreamPlan(b"emails", 1500, (b"sender", b"bounces"), kept_share=0.6),
    StreamPlan(b"page views", 1400, (b"sessions", b"daily report"), healthy=b"sessions"),
    StreamPlan("événements".encode(), 900, ("büro".encode(), b"\xff\x00 not text")),
    StreamPlan(rb"C:\exports", 500, (b"upload", rb"archive\x41")),
    # Ids need not contain times.  Some of these ids are so large that they are negative as BIGINT.
    StreamPlan(b"sequence", 400, (b"import", b"check"), ids_around=2**63),
    StreamPlan(b"sessions:expired", 200, (b"cleanup", b"audit"), kept_share=0.0),
)
_LIVING = (b"worker-1", b"worker-2", b"worker 3")
_DYING = (b"worker-4", b"worker-\xfe")
_STANDBY = b"standby"


@dataclass(frozen=True, slots=True)
class Workload:
    """Hold the numbers of a finished workload.

    Attributes:
        clock_ms: the server's time at the start.  All other times are computed back from it.
        sweep_ms: the time at which some pending entries of each group were redelivered.
    """

    clock_ms: int
    added: int
    delivered: int
    acknowledged: int
    deleted: int
    trimmed: int
    streams: int
    groups: int
    consumers: int
    died: int

    @property
    def sweep_ms(self) -> int:
        """Return the time at which some entries of each group were redelivered together."""
        return self.clock_ms - SWEEP_AGE_MS


def drive(
    server: Server, *, entries: int, plans: Sequence[StreamPlan] = PLANS, seed: int = 1
) -> Workload:
    """Leave stalled work on a server.  Every client is closed when this returns.

    Args:
        server: an empty one.
        entries: the approximate number of entries of all streams together.  Each stream gets at
            least ten.
        plans: the streams, and what happens to each.
        seed: the seed of all random choices.  The same seed gives the same entries, readers and
            deaths.
    """
    with closing(server.client()) as client:
        seconds, micros = client.time()
        clock_ms = seconds * 1000 + micros // 1000
    total_weight = sum(plan.weight for plan in plans)
    streams = []
    for plan in plans:
        stream = _Stream(server, plan, clock_ms, random.Random(f"{seed} {plan.name!r}"))  # noqa: S311 - chosen by the seed, no secret
        stream.play(max(10, round(entries * plan.weight / total_weight)))
        streams.append(stream)
    return Workload(
        clock_ms=clock_ms,
        added=sum(len(stream.ids) for stream in streams),
        delivered=sum(stream.delivered for stream in streams),
        acknowledged=sum(stream.acknowledged for stream in streams),
        deleted=sum(stream.deleted for stream in streams),
        trimmed=sum(stream.trimmed for stream in streams),
        streams=len(plans),
        groups=sum(len(plan.groups) for plan in plans),
        consumers=sum(len(plan.groups) for plan in plans) * len([*_LIVING, *_DYING, _STANDBY]),
        died=sum(stream.died for stream in streams),
    )


def work_off(client: redis.Redis, groups: Iterable[tuple[bytes, bytes]], consumer: str) -> int:
    """Acknowledge the pending entries of a consumer, and return their number."""
    done = 0
    for stream, group in groups:
        while ids := _pending_ids(client, stream, group, consumer):
            done += client.xack(stream, group, *ids)
    return done


def _pending_ids(client: redis.Redis, stream: bytes, group: Any, consumer: str) -> list[bytes]:
    streams: dict[Any, Any] = {stream: "0"}
    reply: Any = client.xreadgroup(group, consumer, streams, count=_BATCH)
    ((_, entries),) = reply
    return [entry_id for entry_id, _ in entries]


class _Stream:
    """Play the life of one stream, from the first entry to the last trim."""

    def __init__(
        self, server: Server, plan: StreamPlan, clock_ms: int, chance: random.Random
    ) -> None:
        self.plan = plan
        self.ids: list[bytes] = []
        self.delivered = self.acknowledged = self.deleted = self.trimmed = self.died = 0
        self._server = server
        self._clock_ms = clock_ms
        self._sweep_ms = clock_ms - SWEEP_AGE_MS
        self._id_shift = 0 if plan.ids_around is None else plan.ids_around - self._sweep_ms
        self._chance = chance

    def play(self, entries: int) -> None:
        with closing(self._server.client()) as producer:
            for group in self.plan.groups:
                producer.xgroup_create(self.plan.name, group, id="0", mkstream=True)
            self._produce(producer, entries)
            for group in self.plan.groups:
                self._consume(group, entries)
            self._remove(producer)

    def _produce(self, producer: redis.Redis, entries: int) -> None:
        """Add entries whose ids are spread over the last six days.

        More of the ids are near the present time.
        """
        for first in range(0, entries, _BATCH):
            pipeline: Any = producer.pipeline(transaction=False)
            for n in range(first, min(first + _BATCH, entries)):
                age_ms = _OLDEST_AGE_MS * (_YOUNGEST_AGE_MS / _OLDEST_AGE_MS) ** (n / entries)
                ms = self._clock_ms - round(age_ms) + self._id_shift
                self.ids.append(b"%d-%d" % (ms, n))
                pipeline.execute_command("XADD", self.plan.name, self.ids[-1], *self._fields(n))
            pipeline.execute()

    def _fields(self, n: int) -> tuple[bytes, ...]:
        payload = self._chance.randbytes(self._chance.randrange(40))
        return (b"n", b"%d" % n, b"payload", payload, b"tag", b"a", b"tag", b"b")

    def _consume(self, group: bytes, entries: int) -> None:
        """Let all consumers of a group read in turn, until all entries are delivered.

        A consumer that has died reads no more.
        """
        most_per_read = max(2, min(60, entries // 20))
        reads = entries // (most_per_read // 2 + 1) // len([*_LIVING, *_DYING]) + 2
        with ExitStack() as clients:
            workers = deque(
                _Worker(
                    clients.enter_context(closing(self._server.client())),
                    self.plan.name,
                    group,
                    name,
                    reads_left=self._reads_left(group, name, reads),
                )
                for name in (*_DYING, *_LIVING)
            )
            workers[0].client.xgroup_createconsumer(self.plan.name, group, _STANDBY)
            while ids := workers[0].read(self._chance.randint(1, most_per_read)):
                self.delivered += len(ids)
                self._work(workers[0], ids)
                if workers[0].is_dead:
                    workers.popleft().client.close()
                    self.died += 1
                workers.rotate(-1)

    def _reads_left(self, group: bytes, name: bytes, reads: int) -> int | None:
        """Return the number of reads of a consumer before it dies, or None if it lives.

        Args:
            reads: the approximate number of reads of each consumer.
        """
        if group == self.plan.healthy or name not in _DYING:
            return None
        return self._chance.randint(reads // 2, reads)

    def _work(self, worker: _Worker, ids: list[bytes]) -> None:
        """Let a consumer acknowledge its entries, except those at which it failed.

        A dying consumer acknowledges nothing.  Entries that stay pending are dated back.
        """
        failed = ids
        if worker.reads_left is None:
            share = 0.0 if worker.group == self.plan.healthy else _FAILED_SHARE
            failed = [i for i in ids if self._chance.random() < share]
        done = [i for i in ids if i not in set(failed)]
        self.acknowledged += len(done)
        pipeline: Any = worker.client.pipeline(transaction=False)
        if done:
            pipeline.xack(worker.stream, worker.group, *done)
        for part in self._parts(failed):
            time_ms, count = self._last_delivery(part[-1], worker)
            pipeline.xclaim(
                worker.stream,
                worker.group,
                worker.name,
                min_idle_time=0,
                message_ids=part,
                time=time_ms,
                retrycount=count,
                justid=True,
            )
        pipeline.execute()

    def _parts(self, ids: list[bytes]) -> Iterator[list[bytes]]:
        """Yield parts of the ids.  Each part gets one time of its last delivery."""
        first = 0
        while first < len(ids):
            length = self._chance.randint(1, 12)
            yield ids[first : first + length]
            first += length

    def _last_delivery(self, newest: bytes, worker: _Worker) -> tuple[int, int]:
        """Return the time of the last delivery of some entries, and the number of deliveries.

        Most entries were delivered once, soon after they were added.  The others were delivered
        again since, a few times or many times.  Of each consumer, the first entries that are old
        enough were redelivered at the sweep's time.

        Args:
            newest: the id of the newest of these entries.
        """
        added_ms = int(newest.split(b"-")[0]) - self._id_shift
        first_ms = min(added_ms + self._chance.randint(5, 2_000), self._clock_ms)
        if not worker.was_swept and first_ms < self._sweep_ms:
            worker.was_swept = True
            return self._sweep_ms, 2
        fate = self._chance.random()
        if fate < _POISONED_SHARE:
            return self._chance.randint(first_ms, self._clock_ms), self._chance.randint(10, 60)
        if fate < _POISONED_SHARE + _RETRIED_SHARE:
            return self._chance.randint(first_ms, self._clock_ms), self._chance.randint(2, 5)
        return first_ms, 1

    def _remove(self, producer: redis.Redis) -> None:
        """Delete entries here and there (XDEL), and then the oldest ones (XTRIM)."""
        chosen = [i for i in self.ids if self._chance.random() < self.plan.deleted_share]
        pipeline = producer.pipeline(transaction=False)
        for first in range(0, len(chosen), _BATCH):
            pipeline.xdel(self.plan.name, *chosen[first : first + _BATCH])
        self.deleted = sum(pipeline.execute())
        if self.plan.kept_share < 1:
            kept = round(len(self.ids) * self.plan.kept_share)
            self.trimmed = int(producer.xtrim(self.plan.name, maxlen=kept, approximate=False))


@dataclass
class _Worker:
    """Hold one consumer with a connection of its own.

    Attributes:
        reads_left: the number of reads before it dies.  None means that it does not die.
        was_swept: True if some of its entries were redelivered at the sweep's time.
    """

    client: redis.Redis
    stream: bytes
    group: bytes
    name: bytes
    reads_left: int | None
    was_swept: bool = False

    @property
    def is_dead(self) -> bool:
        return self.reads_left == 0

    def read(self, count: int) -> list[bytes]:
        """Read the next entries, and return their ids, or no ids if there are no more entries."""
        if self.reads_left is not None:
            self.reads_left -= 1
        client: Any = self.client  # redis-py's hints do not allow names that are bytes
        reply = client.xreadgroup(self.group, self.name, {self.stream: ">"}, count)
        return [entry_id for entry_id, _ in reply[0][1]] if reply else []
