"""Read a Redis or Valkey server with Spark: the data sources `redis_pending` and `redis_entries`.

Neither source writes to the server.  Each partition is one stream, or a range of its ids.  A Python
worker reads it over its own connection, so executors read several partitions at the same time.  In
a cluster, a worker reads from the master that has the stream's slot.

Source: the Python Data Source API of Spark 4.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from claimlib.errors import RequestError, SourceUnreachableError
from claimlib.live.access import ServerAccess
from claimlib.live.batches import EntryPage, GroupGone, PendingPage, StreamGone
from claimlib.live.connection import DEFAULT_COMMANDS_PER_SECOND
from claimlib.live.pending_ids import Span
from claimlib.live.reader import pending_summaries, read_stream, stream_names
from claimlib.schema import ENTRIES, PENDING, Table
from claimlib.semantics.ids import MAX_U64, StreamId, to_bigint
from claimlib.semantics.names import spell

_OPTIONS = {
    "url": "redis://[USER@]HOST[:PORT][/DB], rediss:// for TLS, or redis+sentinel://",
    "stream": "only these streams (a glob)",
    "group": "only these consumer groups (a glob)",
    "password_file": "a file on the driver and on each executor; default: variable REDIS_PASSWORD",
    "ca_file": "certificates to trust for TLS; a file on the driver and on each executor",
    "max_commands_per_second": "the limit of each partition",
    "pending_per_partition": "approximate number of entries; default: one partition per stream",
}
"""The options of both data sources, each with its description."""
_PENDING_COLUMNS = (
    "stream",
    "consumer_group",
    "id_ms",
    "id_seq",
    "consumer",
    "delivery_time_ms",
    "delivery_count",
)
_ENTRY_COLUMNS = ("stream", "id_ms", "id_seq", "fields")


def register_redis_sources(spark: SparkSession) -> None:
    """Register the data sources `redis_pending` and `redis_entries` in a session.

    `redis_pending` has one row per pending entry, with the columns of the table `pending` that a
    snapshot reads.  `redis_entries` has one row per stream entry between the first and the last
    pending id of the stream.  Only pending entries have a payload.

    Options: url (required), stream, group, password_file, ca_file, max_commands_per_second,
    pending_per_partition.
    """
    for source in (RedisPendingSource, RedisEntriesSource):
        spark.dataSource.register(source)


@dataclass(frozen=True, slots=True)
class _StreamPartition(InputPartition):
    """Name the stream that a partition reads.

    Attributes:
        span: the first and the last id.  None means the whole stream.
    """

    stream: bytes
    span: Span | None = None


def split(span: Span, number: int) -> list[Span]:
    """Return ranges of ids that cover a span, each with about the same number of milliseconds.

    Args:
        number: the number of ranges.  There are fewer if the span has fewer milliseconds.
    """
    first, last = span
    width_ms = last.ms - first.ms + 1
    number = min(number, width_ms)
    starts = [first.ms + width_ms * n // number for n in range(1, number)]
    lows = [first, *(StreamId(ms, 0) for ms in starts)]
    highs = [*(StreamId(ms - 1, MAX_U64) for ms in starts), last]
    return list(zip(lows, highs, strict=True))


class _StreamReader(DataSourceReader):
    """Read the streams of a server, one per partition."""

    def __init__(self, options: Mapping[str, str], table: Table, columns: Sequence[str]) -> None:
        self._options = dict(options)
        self._schema = table.arrow_schema(columns)
        self._is_pending = table is PENDING

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition per stream, or several if `pending_per_partition` is given."""
        with self._access().open() as servers:
            names = sorted(stream_names(servers, self._options.get("stream", "*")))
            limit = self._options.get("pending_per_partition")
            if limit is None:
                return [_StreamPartition(name) for name in names]
            pending = pending_summaries(servers, names, self._options.get("group", "*"))
        return [
            _StreamPartition(name, span)
            for name, (count, whole_span) in pending.items()
            # The number of ranges is rounded up.
            for span in (
                [None] if whole_span is None else split(whole_span, -(-count // int(limit)))
            )
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a stream, one record batch per page."""
        if not isinstance(partition, _StreamPartition):
            raise TypeError(f"not a partition of this source: {partition}")
        groups = self._options.get("group", "*")
        with self._access().open() as servers:
            batches = read_stream(
                servers,
                partition.stream,
                stream_glob=self._options.get("stream", "*"),
                group_glob=groups,
                fields=not self._is_pending,
                span=partition.span,
            )
            for batch in batches:
                if isinstance(batch, StreamGone | GroupGone):
                    # Spark may already have some rows of the stream or group.  Only a new query
                    # omits them.
                    raise SourceUnreachableError(
                        f"the stream {spell(batch.stream)}, or one of its groups, was removed while"
                        " it was read. Run the query again",
                        source=servers.label,
                    )
                if isinstance(batch, PendingPage) and self._is_pending:
                    yield self._batch(_pending_rows(batch))
                elif isinstance(batch, EntryPage) and not self._is_pending:
                    yield self._batch(_entry_rows(batch))

    def _access(self) -> ServerAccess:
        options = self._options
        return ServerAccess(
            options["url"],
            max_commands_per_second=float(
                options.get("max_commands_per_second", DEFAULT_COMMANDS_PER_SECOND)
            ),
            password_file=Path(options["password_file"]) if "password_file" in options else None,
            ca_file=Path(options["ca_file"]) if "ca_file" in options else None,
        )

    def _batch(self, rows: Sequence[Sequence[object]]) -> pa.RecordBatch:
        columns = zip(*rows, strict=True)
        arrays = [
            pa.array(values, field.type)
            for values, field in zip(columns, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _pending_rows(page: PendingPage) -> list[tuple[object, ...]]:
    names = spell(page.stream), spell(page.group)
    return [
        (
            *names,
            *map(to_bigint, row.id),
            None if row.consumer is None else spell(row.consumer),
            row.delivery_time_ms,
            row.delivery_count,
        )
        for row in page.rows
    ]


def _entry_rows(page: EntryPage) -> list[tuple[object, ...]]:
    stream = spell(page.stream)
    return [
        (stream, *map(to_bigint, row.id), None if row.fields is None else _pairs(row.fields))
        for row in page.rows
    ]


def _pairs(fields: Sequence[tuple[bytes, bytes]]) -> list[dict[str, bytes]]:
    return [{"name": name, "value": value} for name, value in fields]


class _RedisSource(DataSource):
    table: ClassVar[Table]
    columns: ClassVar[Sequence[str]]

    def schema(self) -> str:
        """Return the columns and their types, as in the tables of a store."""
        types = self.table.types
        return ", ".join(f"{name} {types[name]}" for name in self.columns)

    def reader(self, schema: object) -> DataSourceReader:
        """Check the options, and return the reader.

        Raises:
            RequestError: an option is unknown, or url is missing.  Or pending_per_partition is not
                a number from 1, or max_commands_per_second is not a number above 0.
        """
        del schema
        options = {name.lower(): value for name, value in self.options.items()}
        unknown = sorted(options.keys() - _OPTIONS.keys())
        if unknown:
            raise RequestError(
                f"unknown option {unknown[0]} of {self.name()}. The options are"
                f" {', '.join(_OPTIONS)}",
                option=unknown[0],
            )
        number = options.get("pending_per_partition", "1")
        if not number.isdecimal() or int(number) == 0:
            raise RequestError(
                f"pending_per_partition of {self.name()} must be a number from 1, not {number}",
                option="pending_per_partition",
            )
        rate = options.get("max_commands_per_second", "1")
        if not _is_above_0(rate):
            raise RequestError(
                f"max_commands_per_second of {self.name()} must be a number above 0, not {rate}",
                option="max_commands_per_second",
            )
        if "url" not in options:
            raise RequestError(f"{self.name()} needs the option url: {_OPTIONS['url']}")
        return _StreamReader(options, self.table, self.columns)


def _is_above_0(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False


class RedisPendingSource(_RedisSource):
    """Read pending entries, see `register_redis_sources`."""

    table, columns = PENDING, _PENDING_COLUMNS

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "redis_pending"


class RedisEntriesSource(_RedisSource):
    """Read stream entries, see `register_redis_sources`."""

    table, columns = ENTRIES, _ENTRY_COLUMNS

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "redis_entries"
