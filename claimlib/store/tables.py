"""Hold a store: its location, its engine, and its tables as relations."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

from claimlib import schema
from claimlib.engine.relation import Executor, External, Relation, Rows, TableScan
from claimlib.engine.spark import SparkEngine
from claimlib.local_rows import arrow_table
from claimlib.schema import BUCKET_SQL, TABLES
from claimlib.store.location import Location
from claimlib.store.lock import WriteLock
from claimlib.store.logs import FolderLogs, Logs
from claimlib.store.replaced_tables import Accepted
from claimlib.store.sessions import check_reads_all
from claimlib.store.threads import concurrently
from claimlib.store.writer import Writer

if TYPE_CHECKING:
    from claimlib.engine.embedded import EmbeddedEngine


@dataclass(frozen=True, slots=True)
class Pins:
    """Hold the versions and the ids of tables at one time.

    Reads of these versions always return the same rows.
    """

    versions: Mapping[str, int]
    table_ids: Mapping[str, str]

    def is_same_table(self, table: str, store: Store) -> bool:
        """Return True if a store's table is the pinned one.

        A table that was dropped and created again has other rows, and its version numbers have
        another meaning.
        """
        return store.table_ids[table] == self.table_ids[table]


class Store:
    """Hold an open store.  `Store.init` creates one, `Store.open` opens one.

    Attributes:
        location: the place of the tables.
        folder: the store's folder.  None if it is not certain that this process can read it.
        is_embedded: True if the embedded engine executes all statements, False if Spark does.
        buckets: the number of partitions of entries, pending and journal.
        declared_source: the source that `init` declared.  None if it declared none.
        declared_after: the number of the last run that was decided when `init` declared the source.
            0 if there was no such run.
        table_ids: the id of each table, as it was when the store was opened.
        accepted: the replaced tables that `init --accept-replaced` had accepted when the store was
            opened.
        append_only: the tables with the property `delta.appendOnly`, whose rows cannot be changed.
        lock: the lock that a run holds while it writes.
        logs: the reader of the logs of the tables.
    """

    def __init__(
        self,
        start: Callable[[], SparkSession],
        location: Location,
        properties: Mapping[str, Mapping[str, str]],
        folder: Path | None = None,
        *,
        is_embedded: bool = False,
    ) -> None:
        if is_remote():
            # Over Spark Connect, Delta's conflicts have their own classes only after this import.
            importlib.import_module("delta.connect")
        self._start = start
        self.is_embedded = is_embedded
        self.location = location
        self.folder = folder
        self.lock = WriteLock(folder)
        self.table_ids = {
            name: of_table[schema.TABLE_ID_PROPERTY] for name, of_table in properties.items()
        }
        self.logs = (
            FolderLogs(self._session, location, folder, self.table_ids)
            if is_embedded and folder is not None
            else Logs(self._session, location, folder, self.table_ids)
        )
        self.buckets = int(properties["streams"][schema.BUCKETS_PROPERTY])
        self.declared_source = schema.declared_source(properties["streams"])
        self.declared_after = schema.declared_after(properties["streams"])
        self._buckets_of: dict[str, int] = {}
        self.accepted = Accepted.of(properties["streams"])
        self.append_only = {
            name for name, of_table in properties.items() if schema.is_append_only(of_table)
        }

    @classmethod
    def init(
        cls,
        spark: SparkSession,
        where: str,
        *,
        buckets: int | None = None,
        source: str | None = None,
        accept_replaced: bool = False,
    ) -> Store:
        """Create the tables of a store that do not exist, by Spark, and open it.

        See `creation.create` for arguments and errors.
        """
        from claimlib.store.creation import create
        from claimlib.store.definitions import SparkDefinitions

        definitions = SparkDefinitions(spark, where)
        return create(
            definitions, buckets=buckets, source=source, accept_replaced=accept_replaced
        ).store

    @classmethod
    def open(cls, spark: SparkSession, where: str) -> Store:
        """Open a store in a Spark session.

        See `opening.open_store` for errors.
        """
        from claimlib.store.opening import open_store

        return open_store(spark, where)

    @cached_property
    def spark(self) -> SparkSession:
        """Return the session, and open it if it is not open yet."""
        spark = self._start()
        if self.is_embedded:
            check_reads_all(spark)
        return spark

    def _session(self) -> SparkSession:
        return self.spark

    @cached_property
    def engine(self) -> Executor:
        """Return the engine, which executes relations."""
        # For a store that is opened in a session, DuckDB need not be installed.
        if self.is_embedded:
            return self._embedded_engine
        local_engine = self._embedded_engine if has_embedded_packages() else None
        return SparkEngine(self.spark, self.logs, local_engine, reads_tables=self._reads_files())

    @cached_property
    def _embedded_engine(self) -> EmbeddedEngine:
        from claimlib.engine.embedded import EmbeddedEngine

        return EmbeddedEngine(self.folder)

    def _reads_files(self) -> bool:
        """Return True if this process can read the files of all tables."""
        of_tables = [self.logs.local(table) for table in TABLES]
        return all(local is not None and local.is_readable_as_files() for local in of_tables)

    @cached_property
    def writer(self) -> Writer:
        """Return the writer of the tables."""
        if self.is_embedded:
            from claimlib.store.folder_writer import FolderWriter

            return FolderWriter(self, self._embedded_engine)
        from claimlib.store.spark_writer import SparkWriter

        return SparkWriter(self)

    @property
    def where(self) -> str:
        """Return the location of the store, as messages show it."""
        return self.location.where

    def identifier(self, table: str) -> str:
        """Return the table's quoted name in SQL."""
        return self.location.identifier(table)

    def read(self, table: str, version: int | None = None) -> DataFrame:
        """Return a table at one of its versions, read by Spark.

        Args:
            version: None means the newest version when the frame is computed.

        Raises:
            VersionExpiredError: the version no longer exists.
        """
        return self.logs.read_at(table, version)

    def version(self, table: str) -> int:
        """Return the current version of a table."""
        return self.logs.version(table)

    def pin(self, tables: Collection[str] = tuple(TABLES)) -> Pins:
        """Return the current version of every table (or of some), and each table's id.

        Other writers may commit while tables are pinned, so the order matters (`reading_order`).
        """
        versions: dict[str, int] = {}
        for stage in reading_order(tables):
            read = concurrently(partial(self.version, name) for name in stage)
            versions |= zip(stage, read, strict=True)
        return Pins(versions, self.table_ids)

    def relation(
        self, table: str, version: int | None = None, columns: Sequence[str] | None = None
    ) -> Relation:
        """Return a table at one of its versions.

        Args:
            version: None means the newest version when the relation is computed.
            columns: None means all columns of the schema.  Columns that a user has added are
                omitted, because a statement may use their names.
        """
        of_table = TABLES[table]
        names = columns or [column.name for column in of_table.columns]
        scan = TableScan(table, version, tuple(names), may_lack=of_table.later_types)
        return Relation(self.engine, scan)

    def relation_of(self, frame: DataFrame) -> Relation:
        """Return a relation of a frame's rows.  For the embedded engine, they are fetched now."""
        node = Rows(frame.toArrow()) if self.is_embedded else External(frame)
        return Relation(self.engine, node)

    def rows(
        self, table: str, values: Sequence[tuple[object, ...]], columns: Sequence[str]
    ) -> Relation:
        """Return Python values as rows with columns of a table."""
        wanted = TABLES[table].arrow_schema(columns)
        return Relation(self.engine, Rows(arrow_table(values, wanted)))

    def bucket_of(self, stream: str) -> int:
        """Return the bucket of a stream.

        Args:
            stream: the spelled name of the stream.
        """
        if stream not in self._buckets_of:
            row = Relation(self.engine, Rows(pa.table({"stream": [stream]})))
            bucket = f"{BUCKET_SQL.format(buckets=self.buckets)} AS bucket"
            self._buckets_of[stream] = row.select(bucket).arrow()["bucket"][0].as_py()
        return self._buckets_of[stream]


def has_embedded_packages() -> bool:
    """Return True if the packages of the embedded engine are installed.

    A Databricks runtime may bring delta-rs without the others.
    """
    return all(map(find_spec, ("duckdb", "sqlglot", "xxhash")))


def reading_order(tables: Collection[str]) -> tuple[list[str], ...]:
    """Return tables in the order in which they must be read while other writers commit.

    The tables of one list may be read at the same time.  `pending` is read first, and `entries`
    last, after `streams` with the ranges of ids whose entries are complete.  If `entries` were read
    before them, an entry that was added in between would be missing, and could count as deleted.
    """
    first, last = ([name] if name in tables else [] for name in ("pending", "entries"))
    return first, [name for name in tables if name not in {*first, *last}], last
