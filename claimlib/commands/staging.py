"""Stage the rows that a source yields.

Pages are written into `pel_snapshots` and `entry_landing` as they come, under one uuid.  Only the
rows of small tables are kept in memory until the end: one row per stream, group and consumer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import pyarrow as pa

from claimlib.commands.mirror import Landing
from claimlib.engine.relation import Relation, Rows
from claimlib.live.batches import (
    Batch,
    EntryPage,
    EntryRow,
    Fields,
    GroupDone,
    GroupGone,
    MasterDown,
    PendingPage,
    SourceDone,
    SourceOpened,
    StreamDone,
    StreamGone,
)
from claimlib.plans.differences import Scope
from claimlib.runs.journal import ServerIdentity
from claimlib.schema import Kind
from claimlib.semantics.ids import StreamId, to_bigint
from claimlib.semantics.names import spell
from claimlib.store.local import Condition
from claimlib.store.retry import retried
from claimlib.store.tables import Store
from claimlib.store.threads import concurrently

# The largest numbers of rows, and of bytes of payload, that are kept in memory before a commit.
MAX_ROWS = 200_000
MAX_BYTES = 64 * 1024 * 1024

_FIELDS = pa.list_(pa.struct([("name", pa.binary()), ("value", pa.binary())]))
_PENDING = pa.schema(
    [
        ("landing", pa.string()),
        ("stream", pa.string()),
        ("consumer_group", pa.string()),
        ("id_ms", pa.int64()),
        ("id_seq", pa.int64()),
        ("consumer", pa.string()),
        ("delivery_time_ms", pa.int64()),
        ("delivery_count", pa.int64()),
        ("snapshot_ms", pa.int64()),
    ]
)
_ENTRIES = pa.schema(
    [
        ("landing", pa.string()),
        ("stream", pa.string()),
        ("id_ms", pa.int64()),
        ("id_seq", pa.int64()),
        ("fields", _FIELDS),
    ]
)


class PageWriter:
    """Stage one reading of a server.

    Attributes:
        server: the ids of the server.  They are None until the first batch states them.
    """

    def __init__(self, store: Store, uuid: str, source: str, scope: Scope) -> None:
        self.uuid = uuid
        self._source = source
        self._scope = scope
        self._counts: dict[str, int] = {}
        self.server = ServerIdentity()
        self._store = store
        self._pending = _Buffer(_PENDING)
        self._entries = _Buffer(_ENTRIES)
        self._bytes = 0
        self._rows_read = {"pending": 0, "entries": 0}
        self._groups: list[GroupDone] = []
        self._streams: list[StreamDone] = []
        self._down: list[MasterDown] = []

    @property
    def first_ms(self) -> int:
        """Return the earliest snapshot time of the groups that were read, or 0 if there is none."""
        return min((group.snapshot_ms for group in self._groups), default=0)

    def so_far(self) -> str:
        """Return the progress of the reading as a text for users."""
        return (
            f"{len(self._streams):,} streams, {self._rows_read['pending']:,} pending,"
            f" {self._rows_read['entries']:,} entries"
        )

    def add(self, batch: Batch) -> None:
        """Add the next batch.  Rows are staged when there are enough of them."""
        match batch:
            case PendingPage():
                self._add_pending(batch)
            case EntryPage():
                self._add_entries(batch)
            case GroupDone():
                self._groups.append(batch)
            case StreamDone():
                # If only some groups are requested, streams without these groups are not read.
                if self._scope.group_glob == "*" or batch.group_count:
                    self._streams.append(batch)
            case GroupGone():
                self._delete_vanished(batch.stream, batch.group)
            case StreamGone():
                self._groups = [group for group in self._groups if group.stream != batch.stream]
                self._delete_vanished(batch.stream)
            case SourceOpened() | MasterDown() | SourceDone():
                self._add_source(batch)
        if self._pending.rows + self._entries.rows >= MAX_ROWS or self._bytes >= MAX_BYTES:
            self.flush()

    def _add_source(self, batch: SourceOpened | MasterDown | SourceDone) -> None:
        if isinstance(batch, MasterDown):
            self._down.append(batch)
            return
        if isinstance(batch, SourceOpened):
            self.server = ServerIdentity(
                batch.run_id, batch.replication_id, batch.former_replication_id
            )
            return
        counts = asdict(batch.counts)
        self._counts = {
            # The reader's own count would include streams without a requested group.
            "streams": len(self._streams),
            **{name: counts[name] for name in ("groups", "commands", "vanished")},
        }

    def flush(self) -> None:
        """Stage the rows that are in memory."""
        buffers = {"pel_snapshots": self._pending, "entry_landing": self._entries}
        concurrently(
            partial(self._append, table, buffer.take())
            for table, buffer in buffers.items()
            if buffer.rows
        )
        self._bytes = 0

    def _append(self, table: str, rows: pa.Table) -> None:
        self._store.writer.append(table, Relation(self._store.engine, Rows(rows)))

    def finish(self) -> Landing:
        """Stage the remaining rows, and return the landing, from which a snapshot is decided."""
        self.flush()
        pending = sum(group.pending_count for group in self._groups)
        entries = sum(stream.entry_count for stream in self._streams)
        return Landing(
            self.uuid,
            self._source,
            self._scope,
            self._small_tables(),
            rows=(pending, entries),
            server=self.server,
            counts=self._counts,
            down=tuple(self._down),
            closing={
                spell(stream.stream): stream.closing
                for stream in self._streams
                if stream.closing is not None
            },
        )

    def _small_tables(self) -> dict[str, Relation]:
        """Return journal rows by table, one per stream, group and consumer that was read."""
        groups = [
            (
                str(Kind.GROUP),
                *_spelled(g.stream, g.group),
                g.snapshot_ms,
                *_bigints(g.last_delivered_id),
            )
            for g in self._groups
        ]
        consumers = [
            (
                str(Kind.CONSUMER),
                *_spelled(g.stream, g.group, c.name),
                c.seen_time_ms,
                c.active_time_ms,
            )
            for g in self._groups
            for c in g.consumers
        ]
        key = ["kind", "stream", "consumer_group"]

        rows = self._store.rows
        return {
            "groups": rows("journal", groups, [*key, "at_ms", *_LAST_DELIVERED]),
            "consumers": rows("journal", consumers, [*key, "consumer", *_CONSUMER_TIMES]),
            "streams": rows("journal", self._stream_rows(), _STREAM_COLUMNS),
        }

    def _stream_rows(self) -> list[tuple[object, ...]]:
        return [
            (
                str(Kind.STREAM),
                spell(s.stream),
                s.length,
                *_bigints(s.last_generated_id),
                *_bigints(s.complete_from),
                *_bigints(s.complete_to),
                s.read_ms,
                self._source,
                s.entries_added,
            )
            for s in self._streams
        ]

    def _add_pending(self, page: PendingPage) -> None:
        stream, group = _spelled(page.stream, page.group)
        consumers = [None if row.consumer is None else spell(row.consumer) for row in page.rows]
        self._pending.add(
            [row.id for row in page.rows],
            {"landing": self.uuid, "stream": stream, "consumer_group": group},
            consumer=consumers,
            delivery_time_ms=[row.delivery_time_ms for row in page.rows],
            delivery_count=[row.delivery_count for row in page.rows],
            snapshot_ms=[page.snapshot_ms] * len(page.rows),
        )
        self._rows_read["pending"] += len(page.rows)

    def _add_entries(self, page: EntryPage) -> None:
        self._entries.add(
            [row.id for row in page.rows],
            {"landing": self.uuid, "stream": spell(page.stream)},
            fields=[row.fields for row in page.rows],
        )
        self._bytes += sum(map(_size, page.rows))
        self._rows_read["entries"] += len(page.rows)

    def _delete_vanished(self, stream: bytes, group: bytes | None = None) -> None:
        """Delete the staged rows of a stream or group that vanished while it was read."""
        self.flush()
        of_stream = [Condition("landing", self.uuid), Condition("stream", spell(stream))]
        if group is not None:
            self._delete("pel_snapshots", *of_stream, Condition("consumer_group", spell(group)))
            return
        self._delete("pel_snapshots", *of_stream)
        self._delete("entry_landing", *of_stream)

    def _delete(self, table: str, *conditions: Condition) -> None:
        retried(lambda: self._store.writer.delete(table, *conditions))


class _Buffer:
    """Hold rows of a table in memory, column by column.

    Attributes:
        rows: the number of rows.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._clear()

    def _clear(self) -> None:
        self.rows = 0
        self._columns: dict[str, list[Any]] = {name: [] for name in self._schema.names}

    def add(
        self, ids: Sequence[StreamId], same: Mapping[str, str], **columns: Sequence[object]
    ) -> None:
        """Add rows.

        Args:
            same: values that are the same in all of these rows, by column.
            columns: the values of the other columns.
        """
        self.rows += len(ids)
        self._columns["id_ms"].extend(stream_id.ms for stream_id in ids)
        self._columns["id_seq"].extend(stream_id.seq for stream_id in ids)
        for name, value in same.items():
            self._columns[name].extend([value] * len(ids))
        for name, values in columns.items():
            self._columns[name].extend(values)

    def take(self) -> pa.Table:
        """Return the rows, and remove them from memory."""
        columns = [_array(self._columns[field.name], field) for field in self._schema]
        self._clear()
        return pa.Table.from_arrays(columns, schema=self._schema)


def _array(values: list[Any], column: pa.Field) -> pa.Array:
    if column.name in {"id_ms", "id_seq"}:
        # The halves of an id are unsigned.  A table has them as BIGINTs with the same bits.
        return pa.array(values, pa.uint64()).view(pa.int64())
    return _fields_array(values) if column.type == _FIELDS else pa.array(values, column.type)


_LAST_DELIVERED = ("last_delivered_ms", "last_delivered_seq")
_CONSUMER_TIMES = ("seen_time_ms", "active_time_ms")
_STREAM_COLUMNS = [
    "kind",
    "stream",
    "length",
    "last_generated_ms",
    "last_generated_seq",
    "complete_from_ms",
    "complete_from_seq",
    "complete_to_ms",
    "complete_to_seq",
    "at_ms",
    "source",
    "entries_added",
]


def _spelled(*names: bytes) -> tuple[str, ...]:
    return tuple(map(spell, names))


def _bigints(stream_id: StreamId | None) -> tuple[int | None, int | None]:
    if stream_id is None:
        return None, None
    return to_bigint(stream_id.ms), to_bigint(stream_id.seq)


def _size(row: EntryRow) -> int:
    return sum(len(name) + len(value) for name, value in row.fields or ())


def _fields_array(column: list[Fields | None]) -> pa.Array:
    """Return payloads as one Arrow array.  A value is None if no payload was read."""
    offsets: list[int | None] = []
    pairs: list[tuple[bytes, bytes]] = []
    for fields in column:
        offsets.append(None if fields is None else len(pairs))
        pairs.extend(fields or ())
    names = pa.array([name for name, _ in pairs], pa.binary())
    values = pa.array([value for _, value in pairs], pa.binary())
    structs = pa.StructArray.from_arrays([names, values], ["name", "value"])
    return pa.ListArray.from_arrays(pa.array([*offsets, len(pairs)], pa.int32()), structs)
