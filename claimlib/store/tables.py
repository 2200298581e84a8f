"""The tables of a store: read, pinned, appended to, replaced, merged."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
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
from claimlib.local_rows import arrow_table
from claimlib.schema import BUCKET_SQL, TABLES, Column, Table, quote_text
from claimlib.store.delta_errors import conflict, errors_mapped, latest_version, says_expired
from claimlib.store.gone_back import (
    Accepted,
    Seen,
)
from claimlib.store.local import (
    Commit,
    Condition,
    LocalTable,
    NewestVersions,
    Token,
    commits_of,
)
from claimlib.store.location import Location
from claimlib.store.lock import WriteLock
from claimlib.store.sessions import check_reads_all, properties_of
from claimlib.store.threads import WRITES, concurrently

# So many rows, or fewer, are worked on from the driver's memory where delta-rs reads them: at a few
# hundred bytes a row that is some megabytes.  Each query of a table has Delta look up its files, by
# two to four more: of 40,000 rows a sweep took 2.0 s, and 5.0 s by Spark's own reads and writes.
FEW_ROWS = 50_000
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
        declared_after: the last run that was decided when `init` said so; 0 if there was none.
        table_ids: the id of each table, as it was when the store was opened.
        accepted: the tables that `init` had accepted when the store was opened.
        append_only: the tables with the property that rows cannot be changed.
        lock: the lock that a run holds while it writes.
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
        self.table_ids = {
            name: of_table[schema.TABLE_ID_PROPERTY] for name, of_table in properties.items()
        }
        self.buckets = int(properties["streams"][schema.BUCKETS_PROPERTY])
        self.declared_source = schema.declared_source(properties["streams"])
        self.declared_after = schema.declared_after(properties["streams"])
        self._buckets_of: dict[str, int] = {}
        self.accepted = Accepted.of(properties["streams"])
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

    # ------------------------------------------------------------ reading

    def is_same_table(self, table: str, pins: Pins) -> bool:
        """Whether a table is the one that was pinned: one that was dropped and made again has other
        rows, and other versions of the same numbers."""
        return self.table_ids[table] == pins.table_ids[table]

    @property
    def folder(self) -> Path | None:
        """Return the store's folder, or None if it is not certain that this process can read it."""
        return self._folder

    def properties(self, table: str) -> Mapping[str, str]:
        """Return the properties of a table as it is now."""
        local = self._local(table)
        if local is not None:
            return local.properties
        return properties_of(self.spark, self.identifier(table)) or {}

    def identifier(self, table: str) -> str:
        """The table's quoted name in SQL."""
        return self.location.identifier(table)

    def read(self, table: str) -> DataFrame:
        """The table as it is when the frame is run."""
        return self.spark.table(self.identifier(table))

    def read_at(self, table: str, version: int | None) -> DataFrame:
        """Return a table at one of its versions; None means as it is when the frame is run.

        Raises:
            VersionExpiredError: the version no longer exists.
        """
        if version is None:
            return self.read(table)
        try:
            return self.spark.sql(
                f"SELECT * FROM {self.identifier(table)} VERSION AS OF {version:d}"
            )
        except PySparkException as error:
            if not says_expired(error):
                raise
            raise VersionExpiredError.of(table, version) from error

    def relation(
        self, table: str, version: int | None = None, columns: Sequence[str] | None = None
    ) -> Relation:
        """Return a table at one of its versions (None: as it is when the relation is computed).

        Args:
            columns: None means all columns of the schema.  Columns that a user has added are
                omitted, because a statement may use their names.
        """
        names = columns or [column.name for column in TABLES[table].columns]
        return Relation(self.engine, TableScan(table, version, tuple(names)))

    def bucket_of(self, stream: str) -> int:
        """Return the bucket of a stream, by its spelled name."""
        if stream not in self._buckets_of:
            row = Relation(self.engine, Rows(pa.table({"stream": [stream]})))
            bucket = f"{BUCKET_SQL.format(buckets=self.buckets)} AS bucket"
            self._buckets_of[stream] = row.select(bucket).arrow()["bucket"][0].as_py()
        return self._buckets_of[stream]

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

    def find(
        self, table: str, *conditions: Condition, columns: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """Return the few rows of a table that now meet all conditions.

        Args:
            columns: the columns that are read, with those of the conditions; None means all.
        """
        local = self._local(table)
        rows = None if local is None else local.rows(FEW_ROWS, *conditions, columns=columns)
        if rows is None:
            where = " AND ".join(map(_sql_of, conditions)) or "true"
            return self.relation(table, columns=columns).where(where).collect()
        records: list[dict[str, Any]] = rows.to_pylist(maps_as_pydicts="strict")
        return records

    def numbers(self, table: str, column: str) -> pa.ChunkedArray:
        """Return the numbers in a column of a table as it is now."""
        local = self._local(table)
        numbers = None if local is None else local.numbers(column)
        if numbers is None:
            return self.relation(table, columns=[column]).arrow()[column]
        return numbers

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
        # Only these, because `runs` has fewer columns in a store that is to be upgraded.
        wanted = ("run_seq", "output_versions")
        records = self.find("runs", Condition("run_seq", highest), columns=wanted)
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

    def is_small(self, table: str, most: int | None = None) -> bool:
        """Return True if a table is known to have few rows now, and no more than so many.

        A table elsewhere is known if the engine has fetched its current version.
        """
        local = self._local(table)
        if local is not None:
            return local.is_small(FEW_ROWS if most is None else min(most, FEW_ROWS))
        if most is not None or self.is_embedded:
            return False
        return self.relation(table).reused().is_in_memory

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
        after: int | None = None,
    ) -> None:
        """Append rows in one commit.  A bucket that they have must be that of their stream: Delta
        refuses them else.

        With a token the append is let through once: a repeat is skipped without a word, so who must
        know reads back.

        Args:
            rows: a frame, which Spark writes, or a relation.
            after: the version of the table whose rows in memory the rows were made from; None if
                they were not made from rows in memory.

        Raises:
            CommitConflictError: another writer with the same token's app_id committed meanwhile, or
                any other after that version.
        """
        if not isinstance(rows, Relation):
            rows = self.relation_of(rows)
        if not self._committed(table, rows, Commit("append", token=token, note=note), after):
            self._write("append", table, _frame(rows), {}, token, note)

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
        rows: Relation,
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
        self._write("overwrite", table, _frame(rows), options, token, note)

    def few_now(self, table: str) -> tuple[Relation, int] | None:
        """The rows of a table of few rows as it is now, and the version that this is, if they can
        be written without a query; null: Spark has to write them."""
        local = self._local(table)
        if local is None or not is_writable(table, local) or not local.is_small(FEW_ROWS):
            return None
        with WRITES.alone(self.identifier(table)) as is_alone:
            return (self.relation(table, local.version), local.version) if is_alone else None

    def to_rewrite(self, table: str) -> tuple[Relation, int | None]:
        """The rows of a table that is written again, and their version: few rows as they are now;
        else as they are when Delta writes, with null for the version."""
        return self.few_now(table) or (self.relation(table), None)

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

    def _committed(self, table: str, rows: Relation, how: Commit, after: int | None) -> bool:
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
        rows: Relation,
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
            if local is None or not is_writable(table, local):
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
            self._forget(table)
        return None

    def _forget(self, table: str) -> None:
        """Have the newest version of a table looked up again the next time it is needed."""
        if self._newest is not None:
            self._newest.forget(table)

    def _files(
        self, table: str, local: LocalTable, rows: Relation, after: int | None
    ) -> Sequence[DataFile] | None:
        """Write files of rows with all columns of a table, or return None if Spark must write."""
        completed = completed_rows(TABLES[table], rows, self.buckets)
        with errors_mapped(table):
            if isinstance(rows.engine, Writer):
                partition = TABLES[table].partitioned_by
                return rows.engine.write(completed.node, table, partition, local.compared)
            is_wanted = after is not None or rows.is_in_memory
            few = completed.arrow() if is_wanted else completed.few(FEW_ROWS)
        return None if few is None or self._lacks(table, few) else local.written_files(few)

    def _lacks(self, table: str, rows: pa.Table) -> bool:
        """Whether rows lack what must not be null, of which Spark says more."""
        needed = [column.name for column in TABLES[table].columns if not column.nullable]
        return any(rows[name].null_count for name in needed)

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

    def delete(self, table: str, *conditions: Condition) -> None:
        """Delete the rows of a table that meet all conditions, in one commit.

        Raises:
            CommitConflictError: another writer committed meanwhile.  Nothing was changed.
        """
        local = self._local(table)
        if local is not None and is_writable(table, local):
            with WRITES.alone(self.identifier(table)) as is_alone:
                if is_alone:
                    if not local.delete(conditions):
                        self._forget(table)
                        raise conflict(table)
                    return
        where = " AND ".join(map(_sql_of, conditions))
        self.execute(table, f"DELETE FROM {{table}} WHERE {where}")

    def update(self, table: str, values: Mapping[str, str], condition: str) -> None:
        """Set columns of rows of a small table, in one commit.

        Args:
            values: SQL expressions by column.
            condition: the SQL condition for the rows that are changed.

        Raises:
            CommitConflictError: another writer committed meanwhile.  Nothing was changed.
        """
        if not self.is_embedded:
            changed = ", ".join(f"{name} = {value}" for name, value in values.items())
            self.execute(table, f"UPDATE {{table}} SET {changed} WHERE {condition}")
            return
        version = self.version(table)
        names = (column.name for column in TABLES[table].columns)
        columns = (
            f"CASE WHEN {condition} THEN {values[name]} ELSE {name} END AS {name}"
            if name in values
            else name
            for name in names
        )
        self.replace(table, self.relation(table, version).select(*columns), after=version)

    def relation_of(self, frame: DataFrame) -> Relation:
        """Return a relation of a frame's rows; the embedded engine has them in memory."""
        node = Rows(frame.toArrow()) if self.is_embedded else External(frame)
        return Relation(self.engine, node)

    def rows(
        self, table: str, values: Sequence[tuple[object, ...]], columns: Sequence[str]
    ) -> Relation:
        """Python values as rows with columns of `table`."""
        wanted = TABLES[table].arrow_schema(columns)
        return Relation(self.engine, Rows(arrow_table(values, wanted)))


def _frame(rows: Relation) -> DataFrame:
    """Return rows as a frame.

    Few rows are computed first, so that Spark only has to write them.
    """
    return frame_of(rows.fetched_few(FEW_ROWS) or rows)


def _sql_of(condition: Condition) -> str:
    if isinstance(condition.value, str):
        return f"{condition.column} = {quote_text(condition.value)}"
    return condition.sql()


def is_writable(table: str, local: LocalTable) -> bool:
    """Return True if a writer of a table need only commit files."""
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
