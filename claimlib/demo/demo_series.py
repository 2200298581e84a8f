"""Write twelve hours of invented work of two consumer groups as the rows of a snapshot series.

Most work is done within minutes, and some takes an hour.  Two consumers die.  Some hours later,
another consumer claims the entries of the first one.  A few entries fail again and again.  The same
seed and time always give the same rows.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from claimlib import __version__
from claimlib.plans.differences import Digest
from claimlib.runs.journal import RunRow, ServerIdentity, Staged
from claimlib.schema import Kind
from claimlib.semantics.ids import StreamId, to_bigint
from claimlib.semantics.model import Consumer, Group, PendingEntry
from claimlib.semantics.names import spell
from claimlib.semantics.words import Keyspace, Stream
from claimlib.store.tables import Pins, Store
from claimlib.testing.keyspace_rows import write_keyspace

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
EVERY_MS = 15 * MINUTE_MS
SNAPSHOTS = 48

_SEED = 7
_USUAL_MS = 4 * MINUTE_MS
# The standard deviation of the logarithm of the work's duration.  1.5 % of the entries take over an
# hour.
_SPREAD = 1.25
_POISONED_SHARE = 0.02
_RETRY_MS = 40 * MINUTE_MS


@dataclass(frozen=True, slots=True)
class Life:
    """Hold the deliveries and the acknowledgement of one entry of a stream.

    Attributes:
        deliveries: the times and the consumers, the first delivery first.  A claim counts as a
            delivery.
        acked_ms: the time of the acknowledgement.  None if the entry is never acknowledged.
    """

    id: StreamId
    deliveries: tuple[tuple[int, bytes], ...]
    acked_ms: int | None

    def at(self, now_ms: int) -> PendingEntry | None:
        """Return the entry in its pending state at a time, or None if it is not pending then."""
        if self.acked_ms is not None and self.acked_ms <= now_ms:
            return None
        past = [delivery for delivery in self.deliveries if delivery[0] <= now_ms]
        return PendingEntry(self.id, past[-1][1], past[-1][0], len(past)) if past else None


@dataclass(frozen=True, slots=True)
class _Plan:
    """Plan one stream with one group.

    Attributes:
        every_ms: the time between two entries.
        dies_ms: the time from the beginning until the consumer `dying` dies.
        relieved_ms: the time from the beginning until another consumer claims the entries of
            `dying`.  None means that this never happens.
    """

    stream: bytes
    group: bytes
    every_ms: int
    consumers: tuple[bytes, ...]
    dying: bytes
    dies_ms: int
    relieved_ms: int | None


_PLANS = (
    _Plan(
        b"orders",
        b"billing",
        every_ms=40_000,
        consumers=(b"alice", b"bob", b"carol"),
        dying=b"bob",
        dies_ms=2 * HOUR_MS,
        relieved_ms=6 * HOUR_MS,
    ),
    _Plan(
        b"emails",
        b"sender",
        every_ms=100_000,
        consumers=(b"dave", b"erin"),
        dying=b"erin",
        dies_ms=8 * HOUR_MS,
        relieved_ms=None,
    ),
)


def lives(now_ms: int) -> dict[tuple[bytes, bytes], tuple[Life, ...]]:
    """Return all entries of each (stream, group), by id, from twelve hours before `now_ms` on."""
    begin_ms = now_ms - SNAPSHOTS * EVERY_MS
    return {
        (plan.stream, plan.group): tuple(_lives(plan, begin_ms, now_ms, random.Random(_SEED)))  # noqa: S311 - chosen by the seed, no secret
        for plan in _PLANS
    }


def _lives(plan: _Plan, begin_ms: int, now_ms: int, chance: random.Random) -> Iterator[Life]:
    """Yield the lives of the entries of a stream.

    From its death on, the dying consumer acknowledges no entry.  For an hour it still gets entries.
    Then its death is noticed, and it gets no more.
    """
    dies_ms = begin_ms + plan.dies_ms
    noticed_ms = dies_ms + HOUR_MS
    for number, added_ms in enumerate(range(begin_ms, now_ms, plan.every_ms)):
        owner = plan.consumers[number % len(plan.consumers)]
        if owner == plan.dying and added_ms >= noticed_ms:
            owner = plan.consumers[0]
        worked_ms = round(_USUAL_MS * chance.lognormvariate(0, _SPREAD))
        delivered_ms = added_ms + chance.randrange(1_000)
        is_poisoned = chance.random() < _POISONED_SHARE
        life = Life(StreamId(added_ms, 0), ((delivered_ms, owner),), delivered_ms + worked_ms)
        if is_poisoned:
            again = range(delivered_ms, now_ms, _RETRY_MS)
            life = replace(life, deliveries=tuple((ms, owner) for ms in again), acked_ms=None)
        if owner == plan.dying and (life.acked_ms is None or life.acked_ms >= dies_ms):
            life = _orphaned(plan, life, begin_ms, dies_ms, worked_ms)
        yield life


def _orphaned(plan: _Plan, life: Life, begin_ms: int, dies_ms: int, worked_ms: int) -> Life:
    """Return the life of an entry whose owner has died.

    The entry waits until another consumer claims it.  If `relieved_ms` of the plan is None, no
    consumer does.
    """
    # Keep the first delivery even if it was after the death.  It is within a second of the id.
    last_ms = max(dies_ms, life.id.ms + 1_000)
    own = tuple(delivery for delivery in life.deliveries if delivery[0] < last_ms)
    if plan.relieved_ms is None:
        return replace(life, deliveries=own, acked_ms=None)
    relieved_ms = begin_ms + plan.relieved_ms
    heir = next(consumer for consumer in plan.consumers if consumer != plan.dying)
    return replace(life, deliveries=(*own, (relieved_ms, heir)), acked_ms=relieved_ms + worked_ms)


def keyspace_at(now_ms: int, at_ms: int) -> Keyspace:
    """Return the streams and groups at a time within the twelve hours before `now_ms`."""
    return {
        stream: _stream(group, [life for life in entries if life.id.ms < at_ms], at_ms)
        for (stream, group), entries in lives(now_ms).items()
    }


def _stream(group: bytes, entries: Sequence[Life], at_ms: int) -> Stream:
    delivered = [life for life in entries if life.deliveries[0][0] <= at_ms]
    last: dict[bytes, int] = {}
    for life in delivered:
        for ms, owner in life.deliveries:
            if ms <= at_ms:
                last[owner] = max(ms, last.get(owner, 0))
    return Stream(
        {life.id: (b"n", b"%d" % n) for n, life in enumerate(entries)},
        {
            group: Group(
                max((life.id for life in delivered), default=StreamId(0, 0)),
                tuple(entry for life in delivered if (entry := life.at(at_ms)) is not None),
                tuple(Consumer(name, last[name], last[name]) for name in sorted(last)),
            )
        },
    )


def instants(now_ms: int) -> list[int]:
    """Return the times of the snapshots.  The last one is at `now_ms`."""
    return [now_ms - n * EVERY_MS for n in reversed(range(SNAPSHOTS))]


def write_series(store: Store, now_ms: int) -> None:
    """Fill a new store as snapshots every quarter of an hour would, the last of them at `now_ms`.

    The store gets the rows that they would have read (`pel_snapshots`), their runs, and the state
    at the end.  Real snapshots would be slow.  A test compares these rows with those of real
    snapshots.

    These runs record no table versions.  So no table can be read in the state that one of these
    runs left.
    """
    pel: list[tuple[object, ...]] = []
    journal: list[tuple[object, ...]] = []
    runs: list[tuple[object, ...]] = []
    for run_seq, at_ms in enumerate(instants(now_ms), 1):
        keyspace = keyspace_at(now_ms, at_ms)
        row = _run_row(run_seq, at_ms)
        pel += _pel_rows(keyspace, at_ms)
        journal += [_journal_row(row.values()), *_group_rows(keyspace, run_seq, at_ms)]
        runs.append(_finished_row(row))
    store.writer.append("pel_snapshots", store.rows("pel_snapshots", pel, _PEL))
    store.writer.append("journal", store.rows("journal", journal, _JOURNAL))
    store.writer.append("runs", store.rows("runs", runs, _RUNS))
    write_keyspace(store, keyspace_at(now_ms, now_ms), snapshot_ms=now_ms)


_PEL = (
    "landing",
    "stream",
    "consumer_group",
    "id_ms",
    "id_seq",
    "consumer",
    "delivery_time_ms",
    "delivery_count",
    "snapshot_ms",
)
_JOURNAL = (
    "run_seq",
    "kind",
    "command",
    "run_id",
    "attempt",
    "landing",
    "request",
    "request_hash",
    "now_ms",
    "source",
    "inputs",
    "stream",
    "consumer_group",
    "at_ms",
    "last_delivered_ms",
    "last_delivered_seq",
)
_RUNS = (
    "run_seq",
    "run_id",
    "command",
    "request",
    "request_hash",
    "source",
    "input_versions",
    "output_versions",
    "counts",
    "phase_ms",
    "began_ms",
    "ended_ms",
    "software_version",
)
_NOTHING = Digest(0, 0, 0)


def _run_row(run_seq: int, at_ms: int) -> RunRow:
    request = {"source": "sample:6379/0", "stream_glob": "*", "group_glob": "*", "fields": True}
    landing_uuid = _landing_uuid(at_ms)
    return RunRow(
        run_seq=run_seq,
        command="snapshot",
        run_id=f"sample-{run_seq}",
        attempt=landing_uuid,
        request=json.dumps(request, sort_keys=True),
        request_hash="sample",
        staged=Staged(landing_uuid, {}, _NOTHING, _NOTHING, {}, _NOTHING, _NOTHING),
        now_ms=None,
        source="sample:6379/0",
        server=ServerIdentity(),
        pins=Pins({}, {}),
        counts={},
        began_ms=at_ms,
    )


def _landing_uuid(at_ms: int) -> str:
    return f"sample{at_ms:026x}"


def _finished_row(row: RunRow) -> tuple[object, ...]:
    began_ms = row.began_ms or 0
    values = {
        "run_seq": row.run_seq,
        "run_id": row.run_id,
        "command": row.command,
        "request": row.request,
        "request_hash": row.request_hash,
        "source": row.source,
        "input_versions": {},
        "output_versions": {},
        "counts": {},
        "phase_ms": {},
        "began_ms": began_ms,
        "ended_ms": began_ms + 1_000,
        "software_version": __version__,
    }
    return tuple(values[name] for name in _RUNS)


def _journal_row(values: dict[str, object]) -> tuple[object, ...]:
    return tuple(values.get(name) for name in _JOURNAL)


def _group_rows(keyspace: Keyspace, run_seq: int, at_ms: int) -> Iterator[tuple[object, ...]]:
    for stream, group_name, group in _groups(keyspace):
        yield _journal_row(
            {
                "run_seq": run_seq,
                "kind": str(Kind.GROUP),
                "stream": stream,
                "consumer_group": group_name,
                "at_ms": at_ms,
                "last_delivered_ms": to_bigint(group.last_delivered_id.ms),
                "last_delivered_seq": to_bigint(group.last_delivered_id.seq),
            }
        )


def _pel_rows(keyspace: Keyspace, at_ms: int) -> Iterator[tuple[object, ...]]:
    for stream, group_name, group in _groups(keyspace):
        for entry in group.pending:
            owner = None if entry.consumer is None else spell(entry.consumer)
            yield (
                _landing_uuid(at_ms),
                stream,
                group_name,
                to_bigint(entry.id.ms),
                to_bigint(entry.id.seq),
                owner,
                entry.delivery_time_ms,
                entry.delivery_count,
                at_ms,
            )


def _groups(keyspace: Keyspace) -> Iterator[tuple[str, str, Group]]:
    for key, stream in keyspace.items():
        for name, group in stream.groups.items():
            yield spell(key), spell(name), group
