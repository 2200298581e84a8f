"""Write the state of streams and groups as rows of a store, and read it back.

A test writes a keyspace (`words.Keyspace`) with this module, as a user's own pipeline would write
it.  After a run the test reads the tables back into the same values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from claimlib.engine.relation import Executor, Relation
from claimlib.errors import StoreExistsError
from claimlib.plans.requests import SWEEPS, guard_values
from claimlib.schema import quote_text
from claimlib.semantics.ids import MAX_ID, MIN_ID, StreamId, from_bigint, to_bigint
from claimlib.semantics.model import AutoclaimRequest, Consumer, Group, PendingEntry
from claimlib.semantics.names import spell, unspell
from claimlib.semantics.words import Keyspace, Stream
from claimlib.store.lookups import find
from claimlib.store.tables import Store

_Row = Mapping[str, Any]
Proven = tuple[StreamId, StreamId] | None
_NO_RUN = 0  # the run_seq of rows that no run wrote


def write_keyspace(
    store: Store,
    keyspace: Keyspace,
    snapshot_ms: int | Mapping[bytes, int | None] | None,
    proven: Proven | Mapping[bytes, Proven] = (MIN_ID, MAX_ID),
) -> None:
    """Append a keyspace to a store that has none of its streams.

    Args:
        snapshot_ms: the snapshot time of all groups, or one time per stream.  None means that the
            groups have no snapshot time.
        proven: the id range over which the entries are complete, for all streams or per stream.
            None means that there is no proof.

    Raises:
        StoreExistsError: the store has one of the streams.  Nothing was written.
    """
    _check_has_none_of(store, keyspace)
    rows: dict[str, list[tuple[object, ...]]] = defaultdict(list)
    for key, stream in keyspace.items():
        instant = snapshot_ms.get(key) if isinstance(snapshot_ms, Mapping) else snapshot_ms
        bounds = proven.get(key) if isinstance(proven, Mapping) else proven
        name = spell(key)
        rows["streams"].append(_stream_row(name, stream, bounds))
        rows["entries"] += [
            (name, *_bigints(stream_id), _pairs(fields), _NO_RUN)
            for stream_id, fields in stream.entries.items()
        ]
        for group_name, group in stream.groups.items():
            names = (name, spell(group_name))
            rows["groups"].append((*names, *_bigints(group.last_delivered_id), instant, _NO_RUN))
            rows["pending"] += [(*names, *_pending_row(entry)) for entry in group.pending]
            rows["consumers"] += [
                (*names, spell(owner.name), owner.seen_time_ms, owner.active_time_ms, _NO_RUN)
                for owner in group.consumers
            ]
    for table, values in rows.items():
        store.writer.append(table, store.rows(table, values, _COLUMNS[table]))


def read_groups(store: Store) -> dict[bytes, dict[bytes, Group]]:
    """Return the groups of a store by stream and name, from `groups`, `pending` and `consumers`.

    A group that has rows only in `pending` is omitted.  Small tables in a folder of this machine
    are read without Spark.
    """
    pending, consumers = _by_group(store, "pending"), _by_group(store, "consumers")
    keyspace: dict[bytes, dict[bytes, Group]] = defaultdict(dict)
    for row in find(store, "groups"):
        key = (row["stream"], row["consumer_group"])
        group = Group(
            last_delivered_id=_stream_id(row["last_delivered_ms"], row["last_delivered_seq"]),
            pending=tuple(sorted(map(_pending_entry, pending[key]), key=lambda entry: entry.id)),
            consumers=tuple(
                sorted(map(_consumer, consumers[key]), key=lambda consumer: consumer.name)
            ),
        )
        keyspace[unspell(key[0])][unspell(key[1])] = group
    return dict(keyspace)


def request_table(
    engine: Executor, requests: Mapping[tuple[bytes, bytes], AutoclaimRequest]
) -> Relation:
    """Return the requests as the table that `commands.xautoclaim` takes.

    It has one row per (stream, group).
    """
    rows = [
        (
            spell(stream),
            spell(group),
            spell(request.consumer),
            request.min_idle_ms,
            to_bigint(request.start.ms),
            to_bigint(request.start.seq),
            request.justid,
            str(request.idle_rule),
            str(request.profile),
            request.count,
            None,
            *guard_values(request.guards).values(),
        )
        for (stream, group), request in requests.items()
    ]
    return SWEEPS.of_rows(engine, rows)


def _check_has_none_of(store: Store, streams: Iterable[bytes]) -> None:
    """Raise StoreExistsError if the store has one of the streams.

    Otherwise a stream would have two rows, so that every run would refuse it.  A table at its first
    version is known to be empty, so no query is needed.
    """
    if store.version("streams") == 0:
        return
    names = sorted(map(spell, streams))
    listed = ", ".join(map(quote_text, names)) or "NULL"
    existing = store.relation("streams").select("stream").where(f"stream IN ({listed})").arrow()
    known = set(existing["stream"].to_pylist())
    if known_name := next((name for name in names if name in known), None):
        raise StoreExistsError(
            f"the store {store.where} has the stream {known_name} already, and a second copy of its"
            " rows would make every run refuse it. Nothing was written: give a new store",
            where=store.where,
            stream=known_name,
        )


_COLUMNS = {
    "streams": [
        "stream",
        "length",
        "complete_from_ms",
        "complete_from_seq",
        "complete_to_ms",
        "complete_to_seq",
        "run_seq",
    ],
    "entries": ["stream", "id_ms", "id_seq", "fields", "run_seq"],
    "groups": [
        "stream",
        "consumer_group",
        "last_delivered_ms",
        "last_delivered_seq",
        "snapshot_ms",
        "run_seq",
    ],
    "pending": [
        "stream",
        "consumer_group",
        "id_ms",
        "id_seq",
        "consumer",
        "delivery_time_ms",
        "delivery_count",
        "run_seq",
    ],
    "consumers": [
        "stream",
        "consumer_group",
        "consumer",
        "seen_time_ms",
        "active_time_ms",
        "run_seq",
    ],
}


def _stream_row(name: str, stream: Stream, proven: Proven) -> tuple[object, ...]:
    bounds = (None,) * 4 if proven is None else (*_bigints(proven[0]), *_bigints(proven[1]))
    return (name, len(stream.entries), *bounds, _NO_RUN)


def _pending_row(entry: PendingEntry) -> tuple[object, ...]:
    owner = None if entry.consumer is None else spell(entry.consumer)
    state = (owner, entry.delivery_time_ms, entry.delivery_count)
    return (*_bigints(entry.id), *state, _NO_RUN)


def _pairs(fields: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
    flat = iter(fields)
    return list(zip(flat, flat, strict=True))


def _bigints(stream_id: StreamId) -> tuple[int, int]:
    return to_bigint(stream_id.ms), to_bigint(stream_id.seq)


def _stream_id(ms: int, seq: int) -> StreamId:
    return StreamId(from_bigint(ms), from_bigint(seq))


def _by_group(store: Store, table: str) -> dict[tuple[str, str], list[_Row]]:
    rows: dict[tuple[str, str], list[_Row]] = defaultdict(list)
    for row in find(store, table):
        rows[row["stream"], row["consumer_group"]].append(row)
    return rows


def _pending_entry(row: _Row) -> PendingEntry:
    return PendingEntry(
        id=_stream_id(row["id_ms"], row["id_seq"]),
        consumer=None if row["consumer"] is None else unspell(row["consumer"]),
        delivery_time_ms=row["delivery_time_ms"],
        delivery_count=row["delivery_count"],
    )


def _consumer(row: _Row) -> Consumer:
    return Consumer(unspell(row["consumer"]), row["seen_time_ms"], row["active_time_ms"])
