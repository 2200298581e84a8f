"""A store: the tables of one namespace, and the only place that reads and writes them.

A store is a folder (`/data/store`, `s3a://bucket/store`) or a schema of a catalog (`main.streams`).
Everything here is plain SQL and DataFrame writers, so that it runs on classic Spark, on Connect and
on Databricks alike, and no Spark setting is needed for a correct result.

Delta's conflict exceptions have no common parent; `_CONFLICTS` is the one list of them.
"""

from __future__ import annotations

import importlib
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import pyarrow as pa
from delta import exceptions as delta_errors
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

from claimlib import local_delta, schema
from claimlib.errors import (
    CommitConflictError,
    ConfigError,
    DuplicateRowsError,
    RequestError,
    SchemaError,
    SchemaVersionError,
    StoreExistsError,
    StoreIncompleteError,
    StoreNotFoundError,
    UnsafeLocationError,
    VersionExpiredError,
)
from claimlib.local_delta import Commit, Condition, LocalTable, Token
from claimlib.places import (
    S3,
    check_no_secret,
    check_place,
    check_storage,
    is_namespace,
    local_folder,
)
from claimlib.schema import TABLES, Table, quote_identifier

_CONFLICTS = (
    delta_errors.ConcurrentWriteException,
    delta_errors.MetadataChangedException,
    delta_errors.ProtocolChangedException,
    delta_errors.ConcurrentAppendException,
    delta_errors.ConcurrentDeleteReadException,
    delta_errors.ConcurrentDeleteDeleteException,
    delta_errors.ConcurrentTransactionException,
    delta_errors.DeltaConcurrentModificationException,
)
# So many rows, or fewer, are worked on from the driver's memory: at a few hundred bytes a row that
# is some megabytes.  Each query of a table has Delta look up its files, by two to four more.
FEW_ROWS = 10_000
# Later than any version of a table.
_NO_VERSION = 2**62
# So many others may commit to a table while few rows are appended to it.
_MOST_COMMITS = 20
# At a time: what is small waits for storage and for Spark's planning, not for all processors.
_THREADS = 4
T = TypeVar("T")
# A path that has one of these may be another one to Spark, or to delta-rs.
_OTHER_PATH = re.compile(r"[%\\{}\[\]*?]")
_CREDENTIALS = re.compile(r":(//)?[^/]*@")


@dataclass(frozen=True, slots=True)
class Location:
    """Where a store is: a folder or a catalog's schema."""

    where: str
    is_namespace: bool

    @classmethod
    def parse(cls, where: str) -> Location:
        """`catalog.schema` is a namespace, anything else a folder; a relative one is made
        absolute."""
        check_place(where, "the store's place")
        check_no_secret(where, "the store's place")
        check_storage(where, "the store's place")
        if is_namespace(where):
            return cls(where, is_namespace=True)
        folder = local_folder(where)
        return cls(where.rstrip("/") if folder is None else str(folder), is_namespace=False)

    def identifier(self, table: str) -> str:
        """The table's quoted name in SQL."""
        if self.is_namespace:
            return ".".join(quote_identifier(part) for part in (*self.where.split("."), table))
        return f"delta.{quote_identifier(f'{self.where}/{table}')}"


@dataclass(frozen=True, slots=True)
class Pins:
    """The version and the identity of tables at one moment; reads at a pin never change."""

    versions: Mapping[str, int]
    table_ids: Mapping[str, str]


class Store:
    """An opened store.  `Store.init` creates one, `Store.open` opens one.

    Attributes:
        buckets: partitions of entries, pending and journal.
        declared_source: what `init` said that the store mirrors; null: nothing.
        table_ids: the id of each table, as it was when the store was opened.
        was_there: whether all of its tables were there before it was opened.
    """

    def __init__(
        self,
        start: Callable[[], SparkSession],
        location: Location,
        properties: Mapping[str, Mapping[str, str]],
        folder: Path | None = None,
    ) -> None:
        if is_remote():
            # Over Spark Connect Delta's conflicts have their classes only once this is imported.
            importlib.import_module("delta.connect")
        self._start = start
        self.location = location
        self._folder = folder
        self._literals: WeakKeyDictionary[DataFrame, pa.Table] = WeakKeyDictionary()
        self.table_ids = {
            name: found[schema.TABLE_ID_PROPERTY] for name, found in properties.items()
        }
        self.buckets = int(properties["streams"][schema.BUCKETS_PROPERTY])
        self.declared_source = schema.declared_source(properties["streams"])
        self.was_there = True

    @cached_property
    def spark(self) -> SparkSession:
        """The session, which may be opened only now that it is needed."""
        return self._start()

    @property
    def where(self) -> str:
        """The store as people name it."""
        return self.location.where

    @classmethod
    def init(
        cls,
        spark: SparkSession,
        where: str,
        *,
        buckets: int = schema.DEFAULT_BUCKETS,
        source: str | None = None,
    ) -> Store:
        """Create the tables of a store that are not there yet, and open it.

        A repeat changes nothing; so it also completes a store whose creation was cut off.

        Args:
            where: a folder or `catalog.schema`.
            buckets: partitions of entries, pending and journal; fixed once created.
            source: what the store mirrors, if that is not a server whose snapshot will say so.

        Raises:
            StoreNotFoundError: the catalog is not known.
            UnsafeLocationError: the catalog is gone with the session; or see `open`.
            StoreExistsError: there is a store with other buckets or another source; it is left as
                it is.
            RequestError: the name of the source is empty, or has credentials in it.
        """
        statements = init_sql(where, buckets=buckets, source=source)
        location = Location.parse(where)
        _check_log_store(spark, location)
        if location.is_namespace:
            _check_catalog_lasts(spark, where)
            _create_namespace(spark, where)
        present = _present(spark, location)
        _check_same(where, present, buckets, source)
        concurrently(partial(spark.sql, statement) for statement in statements)
        store = cls.open(spark, where)
        store.was_there = len(present) == len(TABLES)
        return store

    @classmethod
    def open(cls, spark: SparkSession, where: str) -> Store:
        """Open a store, after its tables were seen to be what this version works with.

        Raises:
            StoreNotFoundError: none of its tables is there.
            StoreIncompleteError: some are missing.
            SchemaVersionError: it was made by another version of the schema.
            SchemaError: a column is missing, or has another type or nullability; or the tables are
                divided into buckets differently.
            UnsafeLocationError: it is on S3, and nothing says what keeps two drivers apart there.
        """
        location = Location.parse(where)
        _check_log_store(spark, location)
        folder = _shared_folder(spark, location)
        local = {} if folder is None else _all_local(folder)
        return cls._checked(lambda: spark, where, location, folder, local)

    @classmethod
    def open_folder(cls, start: Callable[[], SparkSession], where: str) -> Store:
        """Open a store without a session, if it is in a folder of this machine, all of whose tables
        delta-rs can read; `start` opens a session as soon as one is needed.

        Only where that session would take a path for the same folder as this process does
        (`session.takes_paths_for_folders`).

        Args:
            start: threads may call it at a time, and get one session.

        Raises:
            StoreError: see `open`.
        """
        location = Location.parse(where)
        folder = local_folder(location.where)
        local = {} if folder is None or _OTHER_PATH.search(where) else _all_local(folder)
        if not local:
            return cls.open(start(), where)
        return cls._checked(start, where, location, folder, local)

    @classmethod
    def _checked(
        cls,
        start: Callable[[], SparkSession],
        where: str,
        location: Location,
        folder: Path | None,
        local: Mapping[str, LocalTable],
    ) -> Store:
        """The store, if its tables are what this version works with."""
        present = {name: dict(table.properties) for name, table in local.items()}
        present = present or _present(start(), location)
        missing = sorted(set(TABLES) - set(present))
        if not present:
            if location.is_namespace:
                _check_catalog(start(), where)
            raise StoreNotFoundError(
                f"no store at {location.where}{_read_as(location)}: create it with:"
                f" claimlib init {where}",
                where=where,
            )
        if missing:
            buckets = next(iter(present.values())).get(schema.BUCKETS_PROPERTY, "")
            raise StoreIncompleteError(
                f"the store at {location.where} lacks {', '.join(missing)};"
                f" claimlib init {where} --buckets {buckets} creates what is missing",
                where=where,
                missing=missing,
            )
        for name, properties in present.items():
            _check_version(where, name, properties)
        _check_buckets(where, present)
        structs = [table.struct for table in local.values()] or concurrently(
            partial(_struct, start(), location.identifier(name)) for name in TABLES
        )
        for table, struct in zip(TABLES.values(), structs, strict=True):
            _check_columns(table, struct)
        return cls(start, location, present, folder)

    # ------------------------------------------------------------ reading

    def identifier(self, table: str) -> str:
        """The table's quoted name in SQL."""
        return self.location.identifier(table)

    def read(self, table: str) -> DataFrame:
        """The table as it is when the frame is run."""
        return self.spark.table(self.identifier(table))

    def read_at(self, table: str, version: int) -> DataFrame:
        """The table at one of its versions; the newest one of few rows from the driver's memory.

        Raises:
            VersionExpiredError: it is not the newest one, and is not kept any more.
        """
        local = self._local(table)
        held = self._held(local) if local is not None and local.version == version else None
        if held is not None:
            return held[0]
        try:
            return self.spark.sql(
                f"SELECT * FROM {self.identifier(table)} VERSION AS OF {version:d}"
            )
        except PySparkException as error:
            if not _says_expired(error):
                raise
            raise VersionExpiredError(
                f"version {version} of {table} cannot be read any more: a version that is not the"
                " newest is kept for 7 days, or as long as the table's"
                " delta.deletedFileRetentionDuration says",
                table=table,
                version=version,
            ) from error

    def readable_at(self, table: str, version: int) -> DataFrame | None:
        """`read_at`, where that version can still be read; null: it is not kept any more."""
        try:
            rows = self.read_at(table, version)
            rows.limit(1).collect()
        except VersionExpiredError:
            return None
        except PySparkException as error:
            if _says_expired(error):
                return None
            raise
        return rows

    def pin(self, tables: Collection[str] = tuple(TABLES)) -> Pins:
        """The current version of every table (or of some), and each table's id as it was when
        opened.

        Tables of one's own are written while they are pinned: `pending` is pinned first and
        `entries` last, so that a row of `pending` that is seen, and a proof that is, are not older
        than what is seen of the entries.  Else an entry that was added before its pending row could
        be taken for one that is gone.
        """
        first, last = ([name] if name in tables else [] for name in ("pending", "entries"))
        others = [name for name in tables if name not in {*first, *last}]
        versions: dict[str, int] = {}
        for stage in (first, others, last):
            found = concurrently(partial(self.version, name) for name in stage)
            versions |= zip(stage, found, strict=True)
        return Pins(versions, self.table_ids)

    def version(self, table: str) -> int:
        """The table's current version.

        Delta tells it without a query where it is requested a version that cannot be: DESCRIBE
        HISTORY is four, and took 0.3 s, not 0.1 s.  Who answers otherwise is asked for that.
        """
        local = self._local(table)
        if local is not None:
            return local.version
        query = f"SELECT 1 FROM {self.identifier(table)} VERSION AS OF {_NO_VERSION:d}"
        try:
            self.spark.sql(query).schema  # noqa: B018 - Connect looks at a query when it must
        except Exception as error:  # noqa: BLE001 - DESCRIBE HISTORY says in words what is wrong
            latest = _latest_version(error)
            if latest is not None:
                return latest
        return int(self.history(table, limit=1)[0]["version"])

    def find(self, table: str, *conditions: Condition) -> list[dict[str, Any]]:
        """The few rows of a table as it is now that meet all conditions."""
        local = self._local(table)
        rows = None if local is None else local.rows(FEW_ROWS, *conditions)
        if rows is None:
            return [row.asDict() for row in self._where(table, *conditions).collect()]
        found: list[dict[str, Any]] = rows.to_pylist(maps_as_pydicts="strict")
        return found

    def find_few(self, table: str, *conditions: Condition) -> tuple[DataFrame, pa.Table] | None:
        """`few` of the rows of a table as it is now that meet all conditions."""
        held = self._held(self._local(table), *conditions)
        return held or self.few(self._where(table, *conditions))

    def now(self, table: str, *conditions: Condition) -> DataFrame:
        """The rows of a table that meet all conditions: few of them as they are now, from the
        driver's memory; else as they are when the frame is run.  What a write of the same table
        rests on is `read`, so that Delta knows of it."""
        held = self._held(self._local(table), *conditions)
        return self._where(table, *conditions) if held is None else held[0]

    def _held(
        self, local: LocalTable | None, *conditions: Condition
    ) -> tuple[DataFrame, pa.Table] | None:
        rows = None if local is None else local.rows(FEW_ROWS, *conditions)
        if local is None or rows is None:
            return None
        return self._literal(rows, local.struct), rows

    def highest(self, table: str, column: str) -> int | None:
        """The highest number in a column of a table as it is now; null: it has no rows."""
        local = self._local(table)
        highest = None if local is None else local.highest(column)
        if highest is None:
            found = self.read(table).agg(F.max(column)).first()
            return None if found is None else found[0]
        return highest[0] if highest else None

    def last(self, table: str, column: str, limit: int) -> tuple[list[dict[str, Any]], int]:
        """The rows of a table as it is now with the highest numbers in a column, the highest first,
        and how many rows there are in all."""
        local = self._local(table)
        found = None if local is None else local.last(column, limit, FEW_ROWS)
        if found is not None:
            return found
        rows = self.read(table)
        newest = rows.orderBy(F.col(column).desc()).limit(limit).collect()
        return [row.asDict() for row in newest], rows.count()

    def _where(self, table: str, *conditions: Condition) -> DataFrame:
        rows = self.read(table)
        for one in conditions:
            column = F.col(one.column)
            rows = rows.where(column > one.value if one.is_above else column == one.value)
        return rows

    def is_small(self, table: str) -> bool:
        """Whether a table is known, without a query, to have few rows now."""
        local = self._local(table)
        return local is not None and local.is_small(FEW_ROWS)

    def last_note(self, table: str) -> tuple[int, str | None]:
        """The newest version of a table, and the user metadata of its commit."""
        local = self._local(table)
        commit = None if local is None else local.last_commit()
        if local is not None and commit is not None:
            return local.version, commit.get("userMetadata")
        newest = self.history(table, limit=1)[0]
        return newest["version"], newest["userMetadata"]

    def _local(self, table: str) -> LocalTable | None:
        """A table in a folder that delta-rs can read; null: Spark has to."""
        if self._folder is None:
            return None
        local = local_delta.newest(self._folder / table)
        if local is None:
            return None
        table_id = local.properties.get(schema.TABLE_ID_PROPERTY)
        return local if table_id == self.table_ids[table] else None

    def history(self, table: str, limit: int | None = None) -> list[Row]:
        """The table's commits, newest first."""
        cut = "" if limit is None else f" LIMIT {limit:d}"
        return self.spark.sql(f"DESCRIBE HISTORY {self.identifier(table)}{cut}").collect()

    def columns_of_others(self, table: str) -> set[str]:
        """The columns that somebody has added to a table: what writes it anew would empty them."""
        local = self._local(table)
        names = self.read(table).columns if local is None else local.struct.names
        return set(names) - {column.name for column in TABLES[table].columns}

    def changes(self, table: str, after: int, until: int) -> DataFrame:
        """The change data feed of a table that has one: one row per row that the commits after
        version `after`, up to version `until`, have inserted or deleted, and two per row that they
        have updated; its columns, and Delta's `_change_type`.

        Where it cannot be had, that shows when the frame is made, or when it is run.
        """
        reader = self.spark.read.format("delta").option("readChangeFeed", "true")
        reader = reader.option("startingVersion", after + 1).option("endingVersion", until)
        if self.location.is_namespace:
            return reader.table(self.identifier(table))
        return reader.load(f"{self.location.where}/{table}")

    # ------------------------------------------------------------ writing

    def append(
        self,
        table: str,
        rows: DataFrame,
        *,
        token: Token | None = None,
        note: str | None = None,
        are_few: bool = False,
        after: int | None = None,
    ) -> None:
        """Append rows in one commit.

        With a token the append is let through once: a repeat is skipped without a word, so who must
        know reads back.

        Args:
            are_few: whether the rows are expected to be few: then they pass through the driver, and
                where the store's folder is at hand no query writes them.
            after: the version of the table that the rows were made from, if they were made from
                rows in memory; null: they were not.

        Raises:
            CommitConflictError: another writer with the same token's app_id committed meanwhile, or
                any other after that version.
        """
        how = Commit("append", token=token, note=note)
        if (are_few or after is not None) and self._commit_few(table, rows, how, after):
            return
        self._write("append", table, rows, {}, token, note)

    def replace(
        self,
        table: str,
        rows: DataFrame,
        buckets: Sequence[int] | None = None,
        *,
        token: Token,
        note: str,
        after: int | None = None,
    ) -> None:
        """Replace the rows of a table, or of some of its buckets, in one commit.

        `rows` may be made of the table itself, read without a version: then Delta reads what the
        commit replaces, and refuses it where somebody has written to these partitions meanwhile.

        Args:
            after: the version of the table that the rows were made from, if they were made from
                rows in memory (they are few then); null: they were not.

        Raises:
            CommitConflictError: somebody has; or as `append`.
        """
        how = Commit("overwrite", buckets, token, note)
        if after is not None and self._commit_few(table, rows, how, after):
            return
        options = {} if buckets is None else {"replaceWhere": in_buckets(buckets)}
        self._write("overwrite", table, rows, options, token, note)

    def few_now(self, table: str) -> tuple[DataFrame, int] | None:
        """The rows of a table of few rows as it is now, and the version that this is, if they can
        be written without a query; null: Spark has to write them."""
        local = self._local(table)
        if local is None or not self._is_writable(table, local):
            return None
        with _WRITES.alone(self.identifier(table)) as is_alone:
            if not is_alone:
                return None
        held = self._held(local)
        return None if held is None else (held[0], local.version)

    def _is_writable(self, table: str, local: LocalTable) -> bool:
        has_own_columns = {*local.struct.names} == {one.name for one in TABLES[table].columns}
        return has_own_columns and local.is_writable()

    def _commit_few(self, table: str, rows: DataFrame, how: Commit, after: int | None) -> bool:
        """Commit rows without a query that writes: whether that was done, or had been before.  If
        it was not, Spark is to write them.

        Raises:
            CommitConflictError: see `append`.
        """
        found: pa.Table | None = None
        for attempt in range(_MOST_COMMITS):
            local = self._local(table)
            if local is None or not self._is_writable(table, local):
                if after is None:
                    return False
                break  # rows from memory are what they are only after that version
            if how.token is not None and local.has_used(how.token):
                if attempt:
                    break
                return True
            if after is not None and local.version != after:
                break
            found = self._complete(table, rows, after) if found is None else found
            if found is None:
                return False
            with _WRITES.alone(self.identifier(table)) as is_alone:
                if not is_alone and after is None:
                    return False
                if is_alone and local.commit(found, how):
                    return True
        raise _conflict(table)

    def _complete(self, table: str, rows: DataFrame, after: int | None) -> pa.Table | None:
        """Rows with all columns of a table, in the order of its key; null: they are not few after
        all, or lack what must not be null, of which Spark says more."""
        found = self._literals.get(rows)
        if found is None or found.column_names != [one.name for one in TABLES[table].columns]:
            found = self._completed(table, rows, None if after is not None else FEW_ROWS + 1)
        needed = [one.name for one in TABLES[table].columns if not one.nullable]
        if any(found[name].null_count for name in needed):
            return None
        return None if after is None and found.num_rows > FEW_ROWS else found

    def _completed(self, table: str, rows: DataFrame, limit: int | None) -> pa.Table:
        frame = schema.completed(rows, TABLES[table], self.buckets).coalesce(1)
        order = TABLES[table].key_order()
        if order and TABLES[table].partitioned_by is not None:
            frame = frame.sortWithinPartitions(*map(F.expr, order))
        with _errors_mapped(table):
            return (frame if limit is None else frame.limit(limit)).toArrow()

    def _write(
        self,
        mode: str,
        table: str,
        rows: DataFrame,
        options: Mapping[str, str],
        token: Token | None,
        note: str | None,
    ) -> None:
        writer = schema.conform(rows, TABLES[table]).write.format("delta").mode(mode)
        writer = writer.options(**options)
        if token is not None:
            writer = writer.option("txnAppId", token.app_id).option("txnVersion", token.version)
        if note is not None:
            writer = writer.option("userMetadata", note)
        with _WRITES.by_spark(self.identifier(table)), _errors_mapped(table):
            if self.location.is_namespace:
                writer.saveAsTable(self.identifier(table))
            else:
                writer.save(f"{self.location.where}/{table}")

    def execute(self, table: str, statement: str, **frames: Any) -> Row:
        """Run one MERGE, UPDATE or DELETE on a table: `{table}` in the statement is that table,
        `{name}` one of the frames.  The result is what Delta says of it: num_affected_rows, and of
        a MERGE num_updated_rows and num_deleted_rows too.

        Raises:
            CommitConflictError: another writer got in between; nothing was changed.
            ConfigError: Delta has passed over the statement, as the session's settings say.
        """
        target = self.identifier(table)
        if frames:  # then Spark formats the statement: a brace in a path must stand for itself
            target = target.replace("{", "{{").replace("}", "}}")
        with _WRITES.by_spark(self.identifier(table)), _errors_mapped(table):
            said = self.spark.sql(statement.replace("{table}", target), **frames).collect()
        if not said:
            raise ConfigError(
                f"Delta passed over a statement on {table}: in this session"
                " spark.databricks.delta.write.txnAppId and txnVersion are set, which let one"
                " statement through only. Unset both, and start again",
                table=table,
            )
        return said[0]

    def held(self, frame: DataFrame) -> DataFrame:
        """A small frame, run once and from then on literal rows; all of it is in the driver's
        memory."""
        return self.fetched(frame)[0]

    def fetched(self, frame: DataFrame) -> tuple[DataFrame, pa.Table]:
        """`held`, and the same rows to be looked at without a query."""
        rows = frame.toArrow()
        return self._literal(rows, frame.schema), rows

    def few(self, frame: DataFrame, most: int | None = None) -> tuple[DataFrame, pa.Table] | None:
        """`fetched`, of a frame of so many rows (by default `FEW_ROWS`) or fewer; null: it has
        more."""
        limit = FEW_ROWS if most is None else most
        found = frame.limit(limit + 1).toArrow()
        if found.num_rows > limit:
            return None
        return self._literal(found, frame.schema), found

    def _literal(self, rows: pa.Table, struct: StructType) -> DataFrame:
        """Rows in memory as a frame, in one partition: what is made of such frames alone needs no
        shuffle."""
        frame = self.spark.createDataFrame(rows, struct).coalesce(1)
        self._literals[frame] = rows
        return frame

    def is_held(self, frame: DataFrame) -> bool:
        """Whether a frame is few rows from the driver's memory, as `read_at`, `now`, `held` and
        others give it."""
        return frame in self._literals

    def rows(
        self, table: str, values: Sequence[tuple[object, ...]], columns: Sequence[str]
    ) -> DataFrame:
        """A small frame of Python values with columns of `table`."""
        wanted = TABLES[table].struct
        struct = type(wanted)([wanted[column] for column in columns])
        schema_ = to_arrow_schema(struct)
        by_column = zip(*values, strict=True) if values else ([] for _ in columns)
        arrays = [
            pa.array(map(_entries_of_map, column), field.type)
            for field, column in zip(schema_, by_column, strict=True)
        ]
        return self._literal(pa.Table.from_arrays(arrays, schema=schema_), struct)


def _shared_folder(spark: SparkSession, location: Location) -> Path | None:
    """The folder of a store, where this process and Spark mean the same by it: Spark may take a
    path for one of another file system, or run elsewhere; and delta-rs takes a % in it for the
    beginning of another character."""
    folder = local_folder(location.where)
    if folder is None or is_remote() or "%" in location.where:
        return None
    try:
        log = next((folder / "streams" / "_delta_log").glob("*.json"), None)
        files = [] if log is None else spark.read.text(str(log)).inputFiles()
    except Exception:  # noqa: BLE001 - it may not be read, or is no glob: Spark says what is wrong
        return None
    return folder if [one.partition(":")[0] for one in files] == ["file"] else None


def _all_local(folder: Path) -> dict[str, LocalTable]:
    """The tables of a store that are there, without a query, in the order of `TABLES`; none: Spark
    has to look at them."""
    found = {name: local_delta.newest(folder / name) for name in TABLES}
    known = {name: table for name, table in found.items() if table is not None}
    is_known = all(name in known or not (folder / name / "_delta_log").exists() for name in TABLES)
    return known if is_known else {}


def concurrently(calls: Iterable[Callable[[], T]]) -> list[T]:
    """The results of calls that do not touch each other's tables, made a few at a time.

    All have ended when this returns, or raises what the first of them raised.
    """
    with ThreadPoolExecutor(_THREADS) as threads:
        return [future.result() for future in [threads.submit(call) for call in calls]]


def _check_catalog_lasts(spark: SparkSession, where: str) -> None:
    """Spark's own catalog lasts as long as the session, unless it is kept in a metastore; a schema
    that somebody has made there already, with a location, is their business."""
    kept_in = spark.conf.get("spark.sql.catalogImplementation", "in-memory")
    is_kept = kept_in != "in-memory" or "DATABRICKS_RUNTIME_VERSION" in os.environ
    if where.partition(".")[0] != "spark_catalog" or is_kept:
        return
    if not spark.catalog.databaseExists(where):
        raise UnsafeLocationError(
            f"{where} would be gone with this Spark session, whose spark_catalog is kept in memory:"
            " give a folder (./name), or a catalog that lasts (for example a Hive metastore, by"
            " spark.sql.catalogImplementation=hive)",
            where=where,
        )


def _create_namespace(spark: SparkSession, where: str) -> None:
    catalog, namespace = map(quote_identifier, where.split("."))
    with _unknown_catalog_named(where):
        spark.sql(f"CREATE SCHEMA IF NOT EXISTS {catalog}.{namespace}")


def _check_catalog(spark: SparkSession, where: str) -> None:
    catalog, _ = map(quote_identifier, where.split("."))
    with _unknown_catalog_named(where):
        spark.sql(f"SHOW SCHEMAS IN {catalog}")


@contextmanager
def _unknown_catalog_named(where: str) -> Iterator[None]:
    try:
        yield
    except PySparkException as error:
        if not _says_missing(error):
            raise
        catalog = quote_identifier(where.partition(".")[0])
        raise StoreNotFoundError(
            f"{where} is a schema of a catalog, and Spark knows no catalog {catalog}: name one that"
            f" it knows, or write a folder as ./{where}",
            where=where,
        ) from error


def init_sql(where: str, *, buckets: int, source: str | None = None) -> list[str]:
    """The statements that create a store, for those who may not create tables themselves.

    Raises:
        RequestError: the name of the source is empty, or has credentials in it.
    """
    if source is not None and not source.strip():
        raise RequestError("the name of the source is empty: name it, or leave --source out")
    if source is not None and _CREDENTIALS.search(source):
        raise RequestError(
            "a source is named without credentials, as host:port/db: its name is kept in the store"
            " and shown"
        )
    location = Location.parse(where)
    return [
        schema.create_sql(table, location.identifier(name), buckets, source)
        for name, table in TABLES.items()
    ]


class _Writes:
    """The writes of this process, by table.  Spark's local file system looks whether a commit is
    there before it puts its own in place; in between no other is to come."""

    def __init__(self) -> None:
        # Reentrant: who has it may find that Spark has to write after all.
        self._lock = RLock()
        self._by_spark: Counter[str] = Counter()

    @contextmanager
    def by_spark(self, table: str) -> Iterator[None]:
        """Until the block ends, Spark may commit to a table; so may others by Spark."""
        with self._lock:
            self._by_spark[table] += 1
        try:
            yield
        finally:
            with self._lock:
                self._by_spark[table] -= 1

    @contextmanager
    def alone(self, table: str) -> Iterator[bool]:
        """Whether Spark does not write to a table; then it does not before the block has ended."""
        with self._lock:
            yield not self._by_spark[table]


_WRITES = _Writes()


def _entries_of_map(value: object) -> object:
    """A value as Arrow takes it."""
    return list(value.items()) if isinstance(value, Mapping) else value


def in_buckets(buckets: Iterable[int]) -> str:
    """The condition under which a row lies in one of some buckets."""
    return f"bucket IN ({', '.join(f'{bucket:d}' for bucket in buckets)})"


def _conflict(table: str) -> CommitConflictError:
    return CommitConflictError(
        f"another writer changed {table} at the same time; nothing of this write was kept:"
        " run it again",
        table=table,
    )


def arranged(table: Table, rows: DataFrame) -> DataFrame:
    """Rows as the files of a partitioned table should hold them: one bucket's together, sorted by
    the key, so that statistics can skip files.  Costs a shuffle; other tables are left as they are.
    """
    if table.partitioned_by is None:
        return rows
    order = [F.col(table.partitioned_by), *map(F.expr, table.key_order())]
    return rows.repartition(table.partitioned_by).sortWithinPartitions(order)


@contextmanager
def _errors_mapped(table: str) -> Iterator[None]:
    try:
        yield
    except _CONFLICTS as error:
        raise _conflict(table) from error
    except PySparkException as error:
        if DuplicateRowsError.IN_WORKER in str(error):
            raise DuplicateRowsError(
                "pending holds two rows of one key: (stream, consumer_group, id) must be unique",
                table="pending",
            ) from error
        raise


def _present(spark: SparkSession, location: Location) -> dict[str, dict[str, str]]:
    """The properties of those of a store's tables that are there."""
    found = concurrently(partial(_properties, spark, location.identifier(name)) for name in TABLES)
    tables = zip(TABLES, found, strict=True)
    return {name: properties for name, properties in tables if properties is not None}


def _properties(spark: SparkSession, identifier: str) -> dict[str, str] | None:
    """The properties of a table; null where there is none.

    They come with the table's newest commit.  `DESCRIBE DETAIL` says them too, but counts the
    table's files for it: with eleven tables 20 s in a new JVM.
    """
    try:
        rows = spark.sql(f"SHOW TBLPROPERTIES {identifier}").collect()
    except PySparkException as error:
        if _says_missing(error):
            return None
        raise
    return {row["key"]: row["value"] for row in rows}


def _struct(spark: SparkSession, identifier: str) -> StructType:
    return spark.table(identifier).schema


def _says_missing(error: PySparkException) -> bool:
    condition = error.getCondition() or ""
    # The last is what Spark says of a catalog that it does not know.
    marks = ("NOT_FOUND", "MISSING", "PATH_DOES_NOT_EXIST", "REQUIRES_SINGLE_PART_NAMESPACE")
    return any(mark in condition for mark in marks)


def _latest_version(error: Exception) -> int | None:
    """The newest version of a table, where Delta says that there is none as late as was asked."""
    if not isinstance(error, PySparkException) or error.getCondition() != _NO_SUCH_VERSION:
        return None
    latest = (error.getMessageParameters() or {}).get("latest")
    return None if latest is None else int(latest)


_NO_SUCH_VERSION = "DELTA_VERSION_NOT_FOUND"


def _says_expired(error: PySparkException) -> bool:
    """Whether a version cannot be read because of its age."""
    said = f"{error.getCondition() or ''} {error}"
    return any(mark in said for mark in _EXPIRED)


# What Delta says of a version whose commit is older than its files are kept, of one whose commit is
# gone, and what Spark says of a file that VACUUM has removed.
_EXPIRED = (
    "BEYOND_DELETED_FILE_RETENTION",
    _NO_SUCH_VERSION,
    "DELTA_NO_REPRODUCIBLE_HISTORY_FOUND",
    "DELTA_VERSIONS_NOT_CONTIGUOUS",
    "DELTA_TRUNCATED_TRANSACTION_LOG",
    "FILE_NOT_EXIST",
)


def _check_same(
    where: str, present: Mapping[str, Mapping[str, str]], buckets: int, source: str | None
) -> None:
    """Refuse to complete a store that was made with other options."""
    others = {found.get(schema.BUCKETS_PROPERTY) for found in present.values()} - {str(buckets)}
    declared = schema.declared_source(present.get("streams", {}))
    if others or (source is not None and "streams" in present and declared != source):
        found = ", ".join(sorted(map(str, others))) or str(buckets)
        raise StoreExistsError(
            f"{where} is a store already, with {found} buckets and source"
            f" {declared or 'not declared'}; use it as it is, or another place",
            where=where,
            buckets=found,
            source=declared,
        )


def _check_buckets(where: str, present: Mapping[str, Mapping[str, str]]) -> None:
    for name, properties in present.items():
        if not re.fullmatch("[1-9][0-9]{0,8}", properties[schema.BUCKETS_PROPERTY]):
            raise SchemaError(
                f"property {schema.BUCKETS_PROPERTY} of table {name} of {where} is"
                f" {properties[schema.BUCKETS_PROPERTY]!r}, and must be a number of buckets: set it"
                " to what the other tables have",
                table=name,
            )
    found = {name: properties[schema.BUCKETS_PROPERTY] for name, properties in present.items()}
    if len(set(found.values())) > 1:
        said = ", ".join(f"{name} {buckets}" for name, buckets in sorted(found.items()))
        raise SchemaError(
            f"the tables of {where} are divided into different numbers of buckets ({said}): a table"
            " that holds nothing yet can be dropped and made again by claimlib init --buckets",
            where=where,
        )


def _read_as(location: Location) -> str:
    return " (a catalog's schema; a folder is written ./name)" if location.is_namespace else ""


def _check_log_store(spark: SparkSession, location: Location) -> None:
    """On S3 open-source Delta keeps two commits apart only within one driver, unless told of a log
    store that does more; Databricks does it by itself."""
    scheme = location.where.partition("://")[0]
    if scheme not in S3 or "DATABRICKS_RUNTIME_VERSION" in os.environ:
        return
    setting = f"spark.delta.logStore.{scheme}.impl"
    if spark.conf.get(setting, None) is None:
        raise UnsafeLocationError(
            f"{location.where} is on S3, where two drivers can overwrite each other's commits: set"
            f" {setting} to a log store that keeps them apart"
            " (io.delta.storage.S3DynamoDBLogStore), or, if never more than one driver writes to"
            " this store at a time, to io.delta.storage.S3SingleDriverLogStore",
            where=location.where,
            setting=setting,
        )


def _check_version(where: str, table: str, properties: Mapping[str, str]) -> None:
    found = properties.get(schema.SCHEMA_VERSION_PROPERTY)
    needed = (schema.BUCKETS_PROPERTY, schema.TABLE_ID_PROPERTY)
    if found != schema.SCHEMA_VERSION or any(name not in properties for name in needed):
        raise SchemaVersionError(
            f"table {table} of {where} has schema version {found or 'none'}; this claimlib works"
            f" with version {schema.SCHEMA_VERSION}: use the claimlib that made the store, or"
            " another place",
            table=table,
            found=found,
            expected=schema.SCHEMA_VERSION,
        )


def _check_columns(table: Table, struct: StructType) -> None:
    found = {field.name: field for field in struct.fields}
    for column in table.columns:
        if column.name not in found:
            raise SchemaError(
                f"table {table.name} has no column {column.name} ({column.type}): add it, or let"
                " claimlib init create the table",
                table=table.name,
                column=column.name,
            )
        field = found[column.name]
        if field.dataType.simpleString() != column.simple_type:
            raise SchemaError(
                f"column {column.name} of table {table.name} is {field.dataType.simpleString()},"
                f" and must be {column.simple_type}",
                table=table.name,
                column=column.name,
            )
        if field.nullable and not column.nullable:
            raise SchemaError(
                f"column {column.name} of table {table.name} may hold null, and must not: declare"
                " it NOT NULL, so that Delta refuses the rows that lack it",
                table=table.name,
                column=column.name,
            )
