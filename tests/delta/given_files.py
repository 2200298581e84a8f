"""Tables as somebody else's pipeline would leave them: Parquet and Delta files, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from claimlib.commands.imports import ImportRequest
from claimlib.plans.input_tables_plan import TableMap
from claimlib.semantics.words import Keyspace

Columns = Mapping[str, Sequence[object]]

ID = pa.string()
TYPES = {
    "stream": pa.binary(),
    "consumer_group": pa.binary(),
    "consumer": pa.binary(),
    "id": ID,
    "last": ID,
    "low": ID,
    "high": ID,
    "fields": pa.list_(pa.struct([("name", pa.binary()), ("value", pa.binary())])),
    "delivery_time_ms": pa.timestamp("us", tz="UTC"),
    "delivery_count": pa.int32(),
    "snapshot_ms": pa.int64(),
    "seen_time_ms": pa.int64(),
    "active_time_ms": pa.int64(),
}
MAPS = {
    "entries": TableMap({"id": ("id",)}),
    "pending": TableMap({"id": ("id",)}),
    "groups": TableMap({"last_delivered": ("last",)}),
    "consumers": TableMap(),
    "streams": TableMap({"complete_from": ("low",), "complete_to": ("high",)}),
}


def table(rows: Sequence[Sequence[object]], *names: str) -> pa.Table:
    """Rows as one table of these columns."""
    columns = list(zip(*rows, strict=True)) or [[]] * len(names)
    arrays = [pa.array(column, TYPES[name]) for name, column in zip(names, columns, strict=True)]
    return pa.Table.from_arrays(arrays, names=list(names))


def entries(rows: Sequence[Sequence[object]]) -> pa.Table:
    return table(rows, "stream", "id", "fields")


def pending(rows: Sequence[Sequence[object]]) -> pa.Table:
    names = ("stream", "consumer_group", "id", "consumer", "delivery_time_ms", "delivery_count")
    # Microseconds: what is below a millisecond is cut off.
    return table([(*row[:4], row[4] and row[4] * 1000 + 999, row[5]) for row in rows], *names)


def groups(rows: Sequence[Sequence[object]]) -> pa.Table:
    return table(rows, "stream", "consumer_group", "last", "snapshot_ms")


def consumers(rows: Sequence[Sequence[object]]) -> pa.Table:
    names = ("stream", "consumer_group", "consumer", "seen_time_ms", "active_time_ms")
    return table(rows, *names)


def streams(rows: Sequence[Sequence[object]]) -> pa.Table:
    return table(rows, "stream", "low", "high")


def request(where: Path, tables: Mapping[str, pa.Table], **options: object) -> ImportRequest:
    """The tables written to a folder, and the request to import them: `pending` is a Delta table,
    `entries` one file of Parquet, each other one a folder of it."""
    places = {name: str(where / name) for name in tables}
    for name, rows in tables.items():
        if name == "pending":
            write_deltalake(places[name], rows, mode="overwrite", schema_mode="overwrite")
            continue
        file = where / name if name == "entries" else where / name / "part.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, file)
    maps = {name: MAPS[name] for name in tables}
    return ImportRequest(**places, maps=maps, **options)


def of_keyspace(keyspace: Keyspace, now_ms: int) -> dict[str, pa.Table]:
    """The state of streams and groups as somebody's tables."""
    held = [
        (stream, name, group)
        for stream, state in keyspace.items()
        for name, group in state.groups.items()
    ]
    return {
        "entries": entries(
            [
                (stream, str(stream_id), [*zip(fields[::2], fields[1::2], strict=True)])
                for stream, state in keyspace.items()
                for stream_id, fields in state.entries.items()
            ]
        ),
        "pending": pending(
            [
                (stream, name, str(e.id), e.consumer, e.delivery_time_ms, e.delivery_count)
                for stream, name, group in held
                for e in group.pending
            ]
        ),
        "groups": groups(
            [(stream, name, str(group.last_delivered_id), now_ms) for stream, name, group in held]
        ),
        "consumers": consumers(
            [
                (stream, name, c.name, c.seen_time_ms, c.active_time_ms)
                for stream, name, group in held
                for c in group.consumers
            ]
        ),
    }
