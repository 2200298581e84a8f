"""The tables of a store: read, pinned, appended to, replaced, merged."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

from claimlib import schema
from claimlib.engine.folder import DataFile
from claimlib.engine.relation import (
    DESCENDING,
    Executor,
    External,
    Relation,
    Rows,
    TableScan,
    Writer,
)
from claimlib.engine.spark import SparkEngine, frame_of
from claimlib.errors import ConfigError, SchemaError, VersionExpiredError
from claimlib.local_rows import LISTS_BYTES, arrow_table, local_frame
from claimlib.places import (
    check_writable,
    local_folder,
)
from claimlib.schema import BUCKET_SQL, TABLES, Column, Kind, Table, quote_text
from claimlib.session import check_file_names
from claimlib.store.delta_errors import conflict, errors_mapped, latest_version, says_expired
from claimlib.store.gone_back import (
    PROVING,
    Accepted,
    Seen,
    error_of,
    gone_back,
)
from claimlib.store.local import (
    Bounds,
    Commit,
    Condition,
    LocalTable,
    NewestVersions,
    Token,
    commits_of,
)
from claimlib.store.location import Location
from claimlib.store.lock import WriteLock
from claimlib.store.opening import (
    OTHER_PATH,
    all_local,
    append_only,
    bind_proofs,
    buckets_of,
    check_catalog_lasts,
    check_columns,
    check_log_store,
    check_options,
    check_properties,
    check_reads_all,
    check_same,
    check_versions,
    create_namespace,
    init_sql,
    other_entries,
    present_tables,
    properties_of,
    set_property,
    shared_folder,
    take_proofs_back,
)
from claimlib.store.threads import WRITES, concurrently

# So many rows, or fewer, are worked on from the driver's memory where delta-rs reads them: at a few
# hundred bytes a row that is some megabytes.  Each query of a table has Delta look up its files, by
# two to four more: of 40,000 rows a sweep took 2.0 s, and 5.0 s by Spark's own reads and writes.
FEW_ROWS = 50_000
# So many where Spark has to read them, and be sent them: of 30,000 rows a page took 7.7 s from
# memory, not 6.5 s, and over Spark Connect 6.8 s, not 5.4 s.
FEW_OF_SPARK = 10_000
# What is read of a table is kept for the next time if it has so many bytes at most, and so many
# parts at most: a store has eleven tables, and a process may have many stores, or show many runs.
_KEPT_BYTES, _KEPT_PARTS = 4 * 2**20, 8
_Read = tuple[tuple[Condition | Bounds, ...], tuple[str, ...] | None]
# A task is sent the rows of its partition.  Those of a million groups in one task took a driver of
# 4 GiB more memory than it had.
_TASK_BYTES = 16 * 2**20
# What a commit says of itself.
CommitInfo = Mapping[str, Any]
# Later than any version of a table.
_NO_VERSION = 2**62
# See `arranged`.
_PARTS_PER_BUCKET, _MOST_PARTS = 4, 200
# A page, or whatever changes few rows, reads and marks the files in which they lie: with files of
# this size a page of ten million rows took 3.3 s, with one file per bucket 4.4 s.
_ROWS_PER_FILE = 250_000
# So many others may commit to a table while few rows are appended to it.
_MOST_COMMITS = 20


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
        has_lost_proofs: whether `init` has taken back what was proven of its entries, as the table
            `entries`, or `streams`, is not the one that was there.
        accepted: what `init` had accepted when that was last looked up.
        newly_accepted: the tables that were lost, or replaced by an earlier version, and that
            `init` has accepted.
        created: the tables that `init` has just created in a store whose other tables already
            existed.
        append_only: the tables whose rows nobody can change, as somebody has set it.
        lock: what runs hold while they write; it says how long they wait for another process.
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
            # Over Spark Connect Delta's conflicts have their classes only once this is imported.
            importlib.import_module("delta.connect")
        self._start = start
        self.is_embedded = is_embedded
        self.location = location
        self._folder = folder
        self.lock = WriteLock(folder)
        self._newest = None if folder is None else NewestVersions(folder)
        self._frames: dict[str, tuple[LocalTable, dict[_Read, tuple[DataFrame, pa.Table]]]] = {}
        self._literals: WeakKeyDictionary[DataFrame, pa.Table] = WeakKeyDictionary()
        self.table_ids = {
            name: of_table[schema.TABLE_ID_PROPERTY] for name, of_table in properties.items()
        }
        self.buckets = int(properties["streams"][schema.BUCKETS_PROPERTY])
        self.declared_source = schema.declared_source(properties["streams"])
        self.was_there = True
        self.has_lost_proofs = False
        self.accepted = Accepted.of(properties["streams"])
        self.newly_accepted: tuple[str, ...] = ()
        self.created: tuple[str, ...] = ()
        self.append_only = {
            name for name, of_table in properties.items() if schema.is_append_only(of_table)
        }

    @cached_property
    def spark(self) -> SparkSession:
        """The session, which may be opened only now that it is needed."""
        spark = self._start()
        if self.is_embedded:
            check_reads_all(spark)
        return spark

    @cached_property
    def engine(self) -> Executor:
        """What executes relations."""
        inside = None
        if self.is_embedded or has_embedded_packages():
            # Where a store is only opened in a session, DuckDB need not be installed.
            from claimlib.engine.embedded import EmbeddedEngine

            inside = EmbeddedEngine(self._folder)
            if self.is_embedded:
                return inside
        return SparkEngine(self.spark, self, inside, reads_tables=self._reads_files())

    def _reads_files(self) -> bool:
        """Return True if this process can read the files of all tables."""
        of_tables = [self._local(table) for table in TABLES]
        return all(local is not None and local.is_readable_as_files() for local in of_tables)

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
        buckets: int | None = None,
        source: str | None = None,
        accept_replaced: bool = False,
    ) -> Store:
        """Create the tables of a store that are not there yet, and open it.

        A repeat changes nothing; so it also completes a store whose creation was cut off, or that
        has lost a table.  Where `entries` is or was made again, or an older `streams` is accepted,
        the proofs of absence are taken back: sweeps refuse the groups until the next snapshot or
        import.

        Args:
            where: a folder or `catalog.schema`.
            buckets: partitions of entries, pending and journal; fixed once created.  Null: those of
                the tables that are there, or `schema.DEFAULT_BUCKETS`.
            source: what the store mirrors, if that is not a server whose snapshot will say so.
            accept_replaced: whether runs are to use tables that have gone back (`gone_back`) as
                they are now; else they are refused.

        Raises:
            StoreNotFoundError: the catalog is not known.
            UnsafeLocationError: the catalog exists only as long as the session; or see `open`.
            StoreExistsError: there is a store with other buckets or another source; it is left as
                it is.
            SchemaVersionError: there is one of another version; it is left as it is.
            SchemaError: tables have gone back, and are not to be accepted; the tables are divided
                into buckets differently; or proofs are to be taken back, and `streams` is
                append-only.
            CommitConflictError: somebody changed `streams` meanwhile.
            RequestError: a store cannot have so many buckets; the name of the source is empty, or
                has credentials in it.
        """
        check_options(buckets, source)
        location = Location.parse(where)
        check_log_store(spark, location)
        check_file_names(spark, location.where)
        if location.is_namespace:
            check_catalog_lasts(spark, where)
            create_namespace(spark, where)
        present = present_tables(spark, location)
        check_versions(where, present)
        check_same(where, present, buckets, source)
        if buckets is None:
            buckets = buckets_of(where, present) or schema.DEFAULT_BUCKETS
        before = None
        if present:
            check_columns(lambda: spark, location, tables=present)
            of_streams = {schema.BUCKETS_PROPERTY: str(buckets), schema.TABLE_ID_PROPERTY: ""}
            folder = shared_folder(spark, location)
            before = cls(lambda: spark, location, {"streams": of_streams, **present}, folder)
            # Before tables are made: who is cut off in between must not leave proofs behind.
            before._look_back(present, accept_replaced=accept_replaced)
        statements = init_sql(
            where,
            buckets=buckets,
            source=source,
            accepted={} if before is None else before.accepted.properties(),
        )
        concurrently(partial(spark.sql, statement) for statement in statements)
        became_void = bind_proofs(spark, location)
        store = cls.open(spark, where)
        store.was_there = len(present) == len(TABLES)
        store.has_lost_proofs = became_void
        if before is not None:
            store.has_lost_proofs |= before.has_lost_proofs
            store.newly_accepted = before.newly_accepted
            store.created = tuple(name for name in TABLES if name not in present)
        return store

    def _look_back(
        self, present: Mapping[str, Mapping[str, str]], *, accept_replaced: bool
    ) -> None:
        """Refuse tables that were dropped and created again, or replaced by older copies; or have
        runs use these as they are, and lost ones as they will be made.  Where `entries` or
        `streams` is one of them, what is proven is taken back.

        Args:
            present: the properties of the tables that are there; the others were lost.
            accept_replaced: see `init`.

        Raises:
            SchemaError: naming tables that are not accepted, before anything is changed; or proofs
                are to be taken back, and `streams` is append-only.
            CommitConflictError: somebody changed `streams` meanwhile.
        """
        runs = self._seen(present)
        older = gone_back(self._versions(present), runs, self.accepted)
        are_of_others = not schema.has_entries_of_its_proofs(present)
        if not accept_replaced:
            self._refuse_replaced(present, older, are_of_others=are_of_others)
        self.has_lost_proofs = are_of_others or not PROVING.isdisjoint(older)
        if self.has_lost_proofs and "streams" in present:
            take_proofs_back(self.spark, self.location, present["streams"])
        if not older:
            return
        # Of all tables: who has looked at one of them before this has seen too early a version.
        self.accepted = Accepted(max(run.run_seq for run in runs), self._versions(present))
        self.newly_accepted = tuple(older)
        if "streams" in present:
            for name, text in self.accepted.properties().items():
                set_property(self.spark, self.location, "streams", name, text)

    def _refuse_replaced(
        self, present: Collection[str], older: Mapping[str, str], *, are_of_others: bool
    ) -> None:
        replaced = {table: what for table, what in older.items() if table in present}
        if replaced:
            raise error_of(self.where, replaced)
        # Without proofs nothing is taken for deleted: two `init` may have crossed.
        is_other = "entries" in present and are_of_others
        if is_other and not self.read("streams").where("complete_from_ms IS NOT NULL").isEmpty():
            raise other_entries(self.where)

    def _versions(self, present: Collection[str]) -> dict[str, int]:
        """The versions of the tables now; of those that were lost, as they will be made."""
        return {**dict.fromkeys(TABLES, 0), **self.pin(present).versions}

    def _seen(self, present: Collection[str]) -> list[Seen]:
        """What the newest finished run, and all that are not finished, have seen; by the tables
        that are there."""
        newest, _ = self.newest_run() if "runs" in present else (None, False)
        finished = 0 if newest is None else newest.run_seq
        later = Condition("run_seq", finished, is_above=True)
        is_run = Condition("kind", str(Kind.RUN))
        unfinished = self.find("journal", is_run, later) if "journal" in present else []
        runs = [Seen(row["run_seq"], json.loads(row["inputs"])["versions"]) for row in unfinished]
        return runs if newest is None else [*runs, newest]

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
        check_log_store(spark, location)
        check_file_names(spark, location.where)
        folder = shared_folder(spark, location)
        local = {} if folder is None else all_local(folder)
        return cls._checked(lambda: spark, where, location, folder, local)

    @classmethod
    def open_folder(
        cls, start: Callable[[], SparkSession], where: str, *, writes: bool = False
    ) -> Store:
        """Open a store for the embedded engine if that can work on it, else in a session.

        Args:
            start: opens the session as soon as one is needed.  Threads may call it at a time, and
                get one session.
            writes: whether the embedded engine must be able to write to the tables.

        Raises:
            StoreError: see `open`.
        """
        embedded = cls.find_embedded(start, where, writes=writes)
        return cls.open(start(), where) if embedded is None else embedded

    @classmethod
    def find_embedded(
        cls, start: Callable[[], SparkSession], where: str, *, writes: bool = False
    ) -> Store | None:
        """Open a store for the embedded engine, or return None if that cannot work on it: the store
        is not in a folder of this machine, or the engine cannot read a table (or write to one).

        Only where that session would take a path for the same folder as this process does
        (`session.takes_paths_for_folders`).

        Args:
            start, writes: see `open_folder`.

        Raises:
            StoreError: see `open`.
        """
        location = Location.parse(where)
        folder = local_folder(location.where)
        if folder is None or OTHER_PATH.search(where) or not has_embedded_packages():
            return None
        local = all_local(folder)
        if not local or not all(table.is_readable_as_files() for table in local.values()):
            return None
        if writes and not all(_is_writable(name, table) for name, table in local.items()):
            return None
        return cls._checked(start, where, location, folder, local, is_embedded=True)

    @classmethod
    def _checked(
        cls,
        start: Callable[[], SparkSession],
        where: str,
        location: Location,
        folder: Path | None,
        local: Mapping[str, LocalTable],
        *,
        is_embedded: bool = False,
    ) -> Store:
        """The store, if its tables are what this version works with."""
        present = {name: dict(table.properties) for name, table in local.items()}
        present = present or present_tables(start(), location)
        check_properties(start, where, location, present)
        check_columns(start, location, [table.struct for table in local.values()])
        return cls(start, location, present, folder, is_embedded=is_embedded)

    def in_session(self) -> Store:
        """Return the store as Spark opens it."""
        return Store.open(self.spark, self.where) if self.is_embedded else self

    # ------------------------------------------------------------ reading

    def check_reads_all(self) -> None:
        """`opening.check_reads_all`, of the store's session.

        Raises:
            ConfigError: Spark may read less than there is.
        """
        # The embedded engine has no settings that pass over files.
        if not self.is_embedded:
            check_reads_all(self.spark)

    def is_same_table(self, table: str, pins: Pins) -> bool:
        """Whether a table is the one that was pinned: one that was dropped and made again has other
        rows, and other versions of the same numbers."""
        return self.table_ids[table] == pins.table_ids[table]

    def check_not_gone_back(self, versions: Mapping[str, int], runs: Collection[Seen]) -> None:
        """Refuse tables that are at an earlier version than a run has seen.

        Args:
            versions: those of tables now.
            runs: the newest finished run, and all that are not finished.

        Raises:
            SchemaError: naming them, and the command that accepts them as they are.
        """
        if gone_back(versions, runs, self.accepted):
            # Somebody may have had them accepted since the store was opened.
            older = gone_back(versions, runs, self.accepted_now())
            if older:
                raise error_of(self.where, older)

    def accepted_now(self) -> Accepted:
        """What `init` has accepted by now."""
        local = self._local("streams")
        properties = None if local is None else local.properties
        if properties is None:
            properties = properties_of(self.spark, self.identifier("streams")) or {}
        self.accepted = Accepted.of(properties)
        return self.accepted

    def check_writable(self) -> None:
        """Raise StorageError if this user may not write to the store's local folder."""
        if self._folder is not None:
            check_writable(self._folder, TABLES)

    def check_changeable(self, tables: Iterable[str]) -> None:
        """Refuse tables that no run could change: what it had decided would never be applied.

        Raises:
            SchemaError: one of them is append-only.
        """
        for table in tables:
            if table in self.append_only:
                raise append_only(self.where, table)

    def identifier(self, table: str) -> str:
        """The table's quoted name in SQL."""
        return self.location.identifier(table)

    def read(self, table: str) -> DataFrame:
        """The table as it is when the frame is run."""
        return self.spark.table(self.identifier(table))

    def read_at(self, table: str, version: int, columns: Sequence[str] | None = None) -> DataFrame:
        """The table, or some of its columns, at one of its versions; the newest one of few rows
        from the driver's memory.

        Raises:
            VersionExpiredError: it is not the newest one, and is not kept any more.
        """
        local = self._local(table)
        newest = local if local is not None and local.version == version else None
        held = self._held(table, newest, columns=columns)
        if held is not None:
            return held[0]
        names = "*" if columns is None else ", ".join(columns)
        try:
            rows = self.spark.sql(
                f"SELECT {names} FROM {self.identifier(table)} VERSION AS OF {version:d}"
            )
        except PySparkException as error:
            if not says_expired(error):
                raise
            raise VersionExpiredError.of(table, version) from error
        return rows

    def relation(self, table: str, version: int | None = None) -> Relation:
        """Return a table at one of its versions (None: as it is when the relation is computed).

        Columns that somebody has added are left out: a statement may use their names.
        """
        names = tuple(column.name for column in TABLES[table].columns)
        return Relation(self.engine, TableScan(table, version, names))

    def bucket_of(self, stream: str) -> int:
        """Return the bucket of a stream, by its spelled name."""
        row = Relation(self.engine, Rows(pa.table({"stream": [stream]})))
        (of_stream,) = row.select(f"{BUCKET_SQL.format(buckets=self.buckets)} AS bucket").collect()
        return int(of_stream["bucket"])

    def frame_at(self, table: str, version: int | None) -> DataFrame:
        """Return what `relation` states as a DataFrame."""
        return self.now(table) if version is None else self.read_at(table, version)

    def readable_at(self, table: str, version: int) -> Relation | None:
        """A table at a version, where that version can still be read; null: it is not kept any
        more."""
        try:
            rows = self.relation(table, version)
            rows.is_empty()
        except VersionExpiredError:
            return None
        except PySparkException as error:
            if says_expired(error):
                return None
            raise
        return rows

    def pin(self, tables: Collection[str] = tuple(TABLES)) -> Pins:
        """The current version of every table (or of some), and each table's id as it was when
        opened.

        Tables of one's own are written while they are pinned, so they are pinned in their order.
        """
        versions: dict[str, int] = {}
        for stage in reading_order(tables):
            read = concurrently(partial(self.version, name) for name in stage)
            versions |= zip(stage, read, strict=True)
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
            latest = latest_version(error)
            if latest is not None:
                return latest
        return int(self.history(table, limit=1)[0]["version"])

    def find(self, table: str, *conditions: Condition) -> list[dict[str, Any]]:
        """The few rows of a table as it is now that meet all conditions."""
        local = self._local(table)
        rows = None if local is None else local.rows(FEW_ROWS, *conditions)
        if rows is None:
            where = " AND ".join(map(_sql_of, conditions)) or "true"
            return self.relation(table).where(where).collect()
        records: list[dict[str, Any]] = rows.to_pylist(maps_as_pydicts="strict")
        return records

    def now(self, table: str, *conditions: Condition) -> DataFrame:
        """The rows of a table that meet all conditions: few of them as they are now, from the
        driver's memory; else as they are when the frame is run.  What a write of the same table
        rests on is `read`, so that Delta knows of it."""
        held = self._held(table, self._local(table), *conditions)
        return self._where(table, *conditions) if held is None else held[0]

    def _held(
        self,
        table: str,
        local: LocalTable | None,
        *conditions: Condition | Bounds,
        columns: Sequence[str] | None = None,
    ) -> tuple[DataFrame, pa.Table] | None:
        """Few rows of a table, in the driver's memory.  They stay there while nobody writes to the
        table: a snapshot reads each table three times, which was a sixth of its time."""
        if local is None:
            return None
        known = self._frames.get(table)
        if known is None or known[0] is not local:
            known = self._frames[table] = local, {}
        read = (conditions, None if columns is None else tuple(columns))
        if read in known[1]:
            return known[1][read]
        rows = local.rows(FEW_ROWS, *conditions, columns=columns)
        if rows is None:
            return None
        held = self.in_memory(rows, local.struct_of(columns)), rows
        # A part that lies within bounds is about one page, and hardly read again.
        is_wanted_again = all(isinstance(condition, Condition) for condition in conditions)
        is_kept = rows.nbytes <= _KEPT_BYTES and len(known[1]) < _KEPT_PARTS
        if is_wanted_again and is_kept:
            known[1][read] = held
        return held

    def numbers(self, table: str, column: str) -> pa.ChunkedArray:
        """Return the numbers in a column of a table as it is now."""
        local = self._local(table)
        numbers = None if local is None else local.numbers(column)
        return self.relation(table).select(column).arrow()[column] if numbers is None else numbers

    def newest_run(self) -> tuple[Seen | None, bool]:
        """Return the newest finished run with what it has left, or None if none is finished; and
        whether `runs` lacks the row of an earlier run.

        Runs are numbered from 1 without gaps.  The table `runs` has a file for each run; the
        number says which file has the newest row.
        """
        numbers = self.numbers("runs", "run_seq")
        highest = pc.max(numbers).as_py()
        if highest is None:
            return None, False
        records = self.find("runs", Condition("run_seq", highest))
        # Another writer may have deleted the row since.
        newest = Seen(highest, records[0]["output_versions"] if records else {})
        return newest, pc.count_distinct(numbers).as_py() < highest

    def last(self, table: str, column: str, limit: int) -> tuple[list[dict[str, Any]], int]:
        """The rows of a table as it is now with the highest numbers in a column, the highest first,
        and how many rows there are in all."""
        local = self._local(table)
        newest_rows = None if local is None else local.last(column, limit, FEW_ROWS)
        if newest_rows is not None:
            return newest_rows
        rows = self.relation(table)
        return rows.order_by(f"{column}{DESCENDING}").limit(limit).collect(), rows.count()

    def _where(self, table: str, *conditions: Condition) -> DataFrame:
        rows = self.read(table)
        for condition in conditions:
            column = F.col(condition.column)
            rows = rows.where(
                column > condition.value if condition.is_above else column == condition.value
            )
        return rows

    def is_small(self, table: str, most: int | None = None) -> bool:
        """Whether a table is known, without a query, to have few rows now; and no more than so
        many."""
        local = self._local(table)
        limit = FEW_ROWS if most is None else min(most, FEW_ROWS)
        return local is not None and local.is_small(limit)

    def last_note(self, table: str) -> tuple[int, str | None]:
        """The newest version of a table, and the user metadata of its commit."""
        local = self._local(table)
        notes = None if local is None else local.notes(1)
        if local is not None and notes:
            return local.version, notes[0]
        newest = self.history(table, limit=1)[0]
        return newest["version"], newest["userMetadata"]

    def notes(self, table: str) -> list[str | None]:
        """Return the user metadata of a table's commits, as far as its history goes."""
        local = self._local(table)
        notes = None if local is None else local.notes()
        if notes is None:
            return [commit["userMetadata"] for commit in self.history(table)]
        return notes

    def _local(self, table: str) -> LocalTable | None:
        """A table in a folder that delta-rs can read; null: Spark has to."""
        local = None if self._newest is None else self._newest.of(table)
        if local is None:
            return None
        table_id = local.properties.get(schema.TABLE_ID_PROPERTY)
        return local if table_id == self.table_ids[table] else None

    def history(self, table: str, limit: int | None = None) -> Sequence[CommitInfo]:
        """The table's commits, newest first: `version`, `operation`, `operationParameters`,
        `operationMetrics` and `userMetadata` of each, null where a commit does not say it."""
        if self.is_embedded and self._folder is not None:
            return commits_of(self._folder / table, limit)
        cut = "" if limit is None else f" LIMIT {limit:d}"
        commits = self.spark.sql(f"DESCRIBE HISTORY {self.identifier(table)}{cut}").collect()
        return [commit.asDict() for commit in commits]

    def columns_of_others(self, table: str) -> set[str]:
        """The columns that somebody has added to a table: what rewrites it would empty them."""
        local = self._local(table)
        names = self.read(table).columns if local is None else local.struct.names
        return set(names) - {column.name for column in TABLES[table].columns}

    # ------------------------------------------------------------ writing

    def append(
        self,
        table: str,
        rows: DataFrame | Relation,
        *,
        token: Token | None = None,
        note: str | None = None,
        are_few: bool = False,
        after: int | None = None,
    ) -> None:
        """Append rows in one commit.  A bucket that they have must be that of their stream: Delta
        refuses them else.

        With a token the append is let through once: a repeat is skipped without a word, so who must
        know reads back.

        Args:
            rows: a relation knows by itself whether its rows are few.
            are_few: whether the rows of a frame are expected to be few: then they pass through the
                driver, and where the store's folder is at hand no query writes them.
            after: the version of the table that the rows were made from, if they were made from
                rows in memory; null: they were not.

        Raises:
            CommitConflictError: another writer with the same token's app_id committed meanwhile, or
                any other after that version.
        """
        how = Commit("append", token=token, note=note)
        may_be_few = are_few or after is not None or isinstance(rows, Relation)
        if may_be_few and self._committed(table, rows, how, after):
            return
        self._write("append", table, self._frame(rows), {}, token, note)

    def _frame(self, rows: DataFrame | Relation) -> DataFrame:
        """Rows as a frame: few of them are computed first, so that Spark has nothing but to write
        them."""
        if not isinstance(rows, Relation):
            return rows
        few = rows.few(FEW_ROWS)
        return frame_of(rows) if few is None else self.in_memory(few)

    def append_arrow(self, table: str, rows: pa.Table) -> None:
        """Append rows of this process in one commit, however many.

        Args:
            rows: the columns that a writer gives, with the types of the table.

        Raises:
            CommitConflictError: others committed again and again meanwhile.
        """
        self.append(table, Relation(self.engine, Rows(rows)))

    def replace(
        self,
        table: str,
        rows: DataFrame | Relation,
        buckets: Sequence[int] | None = None,
        *,
        token: Token | None = None,
        note: str | None = None,
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
        if after is not None and self._committed(table, rows, how, after):
            return
        options = {} if buckets is None else {"replaceWhere": in_buckets(buckets)}
        self._write("overwrite", table, self._frame(rows), options, token, note)

    def few_now(self, table: str) -> tuple[Relation, int] | None:
        """The rows of a table of few rows as it is now, and the version that this is, if they can
        be written without a query; null: Spark has to write them."""
        local = self._local(table)
        if local is None or not _is_writable(table, local):
            return None
        with WRITES.alone(self.identifier(table)) as is_alone:
            if not is_alone:
                return None
        held = self._held(table, local)
        return None if held is None else (Relation(self.engine, Rows(held[1])), local.version)

    def to_rewrite(self, table: str) -> tuple[Relation, int | None]:
        """The rows of a table that is written again, and their version: few rows as they are now;
        else as they are when Delta writes, with null for the version."""
        return self.few_now(table) or (self.relation_of(self.read(table)), None)

    def version_and_use(self, table: str, token: Token) -> tuple[int, bool]:
        """The newest version of a table in a local folder, and whether a commit up to it bore a
        token, or a later one."""
        local = self._readable(table)
        return local.version, local.has_used(token)

    def _readable(self, table: str) -> LocalTable:
        local = self._local(table)
        if local is None:
            raise SchemaError(
                f"the table {table} of {self.where} cannot be read as files any more: another"
                " writer has changed what it is. Run the command again",
                table=table,
            )
        return local

    def _committed(
        self, table: str, rows: DataFrame | Relation, how: Commit, after: int | None
    ) -> bool:
        """Commit rows without a query that writes: whether that was done, or had been before.  If
        it was not, Spark is to write them.

        Args:
            after: see `append`.

        Raises:
            CommitConflictError: see `append`.
            SchemaError: Spark would have to write them, and the store is open without it.
        """
        files: list[DataFile] = []
        is_done = self._commit_tried(table, rows, how, after, files)
        if not is_done:
            for file in files:
                self._local_folder(table, file.path).unlink(missing_ok=True)
        if is_done is None:
            raise conflict(table)
        if not is_done and self.is_embedded:
            raise SchemaError(
                f"the table {table} of {self.where} has a constraint, a column or a feature that"
                " only Spark can write: run the command again with --engine spark",
                table=table,
            )
        return is_done

    def _local_folder(self, *names: str) -> Path:
        if self._folder is None:
            raise AssertionError("the store is in no local folder")
        return self._folder.joinpath(*names)

    def _commit_tried(
        self,
        table: str,
        rows: DataFrame | Relation,
        how: Commit,
        after: int | None,
        files: list[DataFile],
    ) -> bool | None:
        """`_committed`; null: others committed first.

        Args:
            files: gets the files that are written, and may be committed.
        """
        for attempt in range(_MOST_COMMITS):
            local = self._local(table)
            if local is None or not _is_writable(table, local):
                # Rows from memory are what they are only after that version.
                return False if after is None else None
            if after is not None and local.version != after:
                return None
            if how.token is not None and local.has_used(how.token):
                return None if attempt else True
            written = files or self._files(table, local, rows, after)
            files[:] = written or ()
            with WRITES.alone(self.identifier(table)) as is_alone:
                if written is None or (not is_alone and after is None):
                    return False
                if is_alone and local.commit(files, how):
                    return True
            if self._newest is not None:
                self._newest.forget(table)
        return None

    def _files(
        self, table: str, local: LocalTable, rows: DataFrame | Relation, after: int | None
    ) -> Sequence[DataFile] | None:
        """Write files of rows with all columns of a table; null: Spark has to write the rows."""
        if isinstance(rows, Relation) and isinstance(rows.engine, Writer):
            completed = completed_rows(TABLES[table], rows, self.buckets)
            partition = TABLES[table].partitioned_by
            return rows.engine.write(completed.node, table, partition, local.compared)
        completed_here = self._complete(table, rows, after)
        if completed_here is None or self._lacks(table, completed_here):
            return None
        return local.written_files(completed_here)

    def _complete(
        self, table: str, rows: DataFrame | Relation, after: int | None
    ) -> pa.Table | None:
        """Rows with all columns of a table, in the order of its key; null: they are not few after
        all."""
        if isinstance(rows, Relation):
            with errors_mapped(table):
                completed = completed_rows(TABLES[table], rows, self.buckets)
                is_wanted = after is not None or rows.is_in_memory
                return completed.arrow() if is_wanted else completed.few(FEW_ROWS)
        known = self._literals.get(rows)
        if known is None or known.column_names != [column.name for column in TABLES[table].columns]:
            known = self._completed(table, rows, None if after is not None else FEW_ROWS + 1)
        return None if after is None and known.num_rows > FEW_ROWS else known

    def _lacks(self, table: str, rows: pa.Table) -> bool:
        """Whether rows lack what must not be null, of which Spark says more."""
        needed = [column.name for column in TABLES[table].columns if not column.nullable]
        return any(rows[name].null_count for name in needed)

    def _completed(self, table: str, rows: DataFrame, limit: int | None) -> pa.Table:
        frame = schema.completed(rows, TABLES[table], self.buckets).coalesce(1)
        if is_arranged(TABLES[table]):
            frame = frame.sortWithinPartitions(*map(F.expr, TABLES[table].key_order()))
        with errors_mapped(table):
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
        is_sorted = is_arranged(TABLES[table])
        # If Delta generated the bucket itself, Spark would not know that the rows are sorted by it,
        # and would sort them again, in as much memory: ten million rows spilled.
        sorted_by = {"bucket"} & {*rows.columns} if is_sorted else ()
        writer = schema.conform(rows, TABLES[table], *sorted_by).write.format("delta").mode(mode)
        writer = writer.options(**options)
        if is_sorted:
            writer = writer.option("maxRecordsPerFile", _ROWS_PER_FILE)
        if token is not None:
            writer = writer.option("txnAppId", token.app_id).option("txnVersion", token.version)
        if note is not None:
            writer = writer.option("userMetadata", note)
        with WRITES.by_spark(self.identifier(table)), errors_mapped(table):
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
        with WRITES.by_spark(self.identifier(table)), errors_mapped(table):
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
        known = self._literals.get(frame)
        if known is not None:
            return frame, known
        rows = frame.toArrow()
        return self.in_memory(rows, frame.schema), rows

    def few(self, frame: DataFrame, most: int | None = None) -> tuple[DataFrame, pa.Table] | None:
        """`fetched`, of a frame of so many rows (by default as many as Spark is to be sent) or
        fewer; null: it has more."""
        limit = min(FEW_ROWS, FEW_OF_SPARK) if most is None else most
        known = self._literals.get(frame)
        if known is not None:
            return (frame, known) if known.num_rows <= limit else None
        fetched = frame.limit(limit + 1).toArrow()
        if fetched.num_rows > limit:
            return None
        return self.in_memory(fetched, frame.schema), fetched

    def few_or_all(self, rows: DataFrame, most: int | None = None) -> DataFrame:
        """A part of a table, in the driver's memory where it has few rows (`few`)."""
        if self.is_held(rows):
            return rows
        few = self.few(rows, most)
        return rows if few is None else few[0]

    def in_memory(self, rows: pa.Table, struct: StructType | None = None) -> DataFrame:
        """Rows in memory as a frame; few of them in one partition: what is made of such frames
        alone needs no shuffle.  Very many Spark would take apart by ten thousand, each part a task,
        each of which would write a file per bucket: of 200,000 groups a sweep took 18.5 s, and
        takes 16.7."""
        frame = local_frame(self.spark, rows, struct)
        if rows.num_rows <= FEW_ROWS and rows.nbytes <= _TASK_BYTES:
            frame = frame.coalesce(1)
        elif rows.nbytes > LISTS_BYTES:
            frame = frame.coalesce(math.ceil(rows.nbytes / _TASK_BYTES))
        self._literals[frame] = rows
        return frame

    def rows_in_memory(self, frame: DataFrame) -> pa.Table | None:
        """Return the rows of a frame that `is_held`; None if it is not."""
        return self._literals.get(frame)

    def relation_of(self, frame: DataFrame) -> Relation:
        """Return a relation of a frame's rows; the embedded engine has them in memory."""
        node = Rows(frame.toArrow()) if self.is_embedded else External(frame)
        return Relation(self.engine, node)

    def is_held(self, frame: DataFrame, most: int | None = None) -> bool:
        """Whether a frame is few rows from the driver's memory, as `read_at`, `now`, `held` and
        others give it; and no more than so many."""
        known = self._literals.get(frame)
        return known is not None and (most is None or known.num_rows <= most)

    def rows(
        self, table: str, values: Sequence[tuple[object, ...]], columns: Sequence[str]
    ) -> Relation:
        """Python values as rows with columns of `table`."""
        wanted = TABLES[table].arrow_schema(columns)
        return Relation(self.engine, Rows(arrow_table(values, wanted)))


def _sql_of(condition: Condition) -> str:
    if isinstance(condition.value, str):
        return f"{condition.column} = {quote_text(condition.value)}"
    return condition.sql()


def _is_writable(table: str, local: LocalTable) -> bool:
    """Whether a commit of files is all that a writer of a table has to do."""
    has_own_columns = {*local.struct.names} == {column.name for column in TABLES[table].columns}
    return has_own_columns and local.is_writable()


def has_embedded_packages() -> bool:
    """Return True if the packages of the embedded engine are installed.

    A Databricks runtime may bring delta-rs without the others.
    """
    return all(map(find_spec, ("duckdb", "sqlglot", "xxhash")))


def reading_order(tables: Collection[str]) -> tuple[list[str], ...]:
    """Tables that are written meanwhile, in the order in which they are to be read: `pending` first
    and `entries` last, so that a row of `pending` that is seen, and a proof that is, are not newer
    than what is seen of the entries.  Else an entry that was added before its pending row could be
    taken for one that is gone."""
    first, last = ([name] if name in tables else [] for name in ("pending", "entries"))
    return first, [name for name in tables if name not in {*first, *last}], last


def in_buckets(buckets: Iterable[int]) -> str:
    """The condition under which a row lies in one of some buckets."""
    return f"bucket IN ({', '.join(f'{bucket:d}' for bucket in buckets)})"


def is_arranged(table: Table) -> bool:
    """Whether the rows of a table's files are sorted by its key (`arranged`)."""
    return bool(table.key_order()) and table.partitioned_by is not None


def _generated(column: Column, buckets: int, *, has_it: bool) -> str:
    made = (column.generated_as or "").format(buckets=buckets)
    return f"{f'coalesce({column.name}, {made})' if has_it else made} AS {column.name}"


def completed_rows(table: Table, rows: Relation, buckets: int) -> Relation:
    """Return rows with all columns of a table, those that Delta generates too, in the order of the
    table's key; columns that they lack are null."""
    known = set(rows.columns)
    completed = rows.select(
        *(
            f"CAST({column.name if column.name in known else 'NULL'} AS {column.type})"
            f" AS {column.name}"
            for column in table.written
        ),
        *(
            _generated(column, buckets, has_it=column.name in known)
            for column in table.columns
            if column.generated_as is not None
        ),
    )
    partition = () if table.partitioned_by is None else (table.partitioned_by,)
    order = (*partition, *table.key_order())
    return completed.order_by(*order) if partition else completed


def arranged(table: Table, rows: DataFrame, buckets: int) -> DataFrame:
    """Rows as the files of a partitioned table should hold them: one bucket's together, sorted by
    the key, so that statistics can skip files.  Costs a shuffle; other tables are left as they are.

    A task is given whole buckets.  There are several times as many tasks as buckets, so that few
    tasks get more than one: where one of four had most of eight buckets, a processor was idle for
    3.6 of 13.9 s.  Of very many buckets Spark divides well by itself.
    """
    if table.partitioned_by is None:
        return rows
    order = [F.col(table.partitioned_by), *map(F.expr, table.key_order())]
    parts = _PARTS_PER_BUCKET * buckets
    number = (parts,) if parts <= _MOST_PARTS else ()
    divided = rows.repartition(*number, table.partitioned_by)
    return divided.sortWithinPartitions(order)
