"""Execute relations with DuckDB and delta-rs in this process, for a store in a local folder."""

from __future__ import annotations

import os
import re
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, ClassVar
from warnings import filterwarnings

import pyarrow as pa

from claimlib.engine import limits
from claimlib.engine.dialect import to_duckdb, to_spark_type, with_equal_numbers
from claimlib.engine.embedded_inputs import FILE, InputFiles, open_files
from claimlib.engine.folder import (
    DataFile,
    TableFiles,
    as_utf_8,
    data_file,
    files_of,
    new_name,
)
from claimlib.engine.functions import add_functions
from claimlib.engine.inputs import Input
from claimlib.engine.newest_versions import NewestVersions
from claimlib.engine.relation import (
    External,
    Mapped,
    Node,
    Query,
    Record,
    Rows,
    Statement,
    TableScan,
    flatten,
    in_partition,
    leaves_of,
    made_by,
    records_of,
    with_leaves,
)
from claimlib.errors import DamagedTableError, InputError, VersionExpiredError
from claimlib.process import RESTORE

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

BATCH_ROWS = 100_000
# A row group has 122,880 rows.  A page, or another change of few rows, reads and marks all files
# that have one of these rows.  So several small files per bucket are faster than one large file.
ROW_GROUPS_PER_FILE = 2
_TABLE_NUMBERS = count()
"""Numbers that make the names of kept tables unique within a process."""
_TYPES: dict[tuple[object, ...], Mapping[str, str]] = {}
"""The types of the columns of statements, by the keys of `EmbeddedEngine.types_of`."""
_TYPES_MAX = 4096
_VERSIONS_MAX = 256
"""The most versions of tables whose files are remembered."""
# Texts of DuckDB's errors.
_MISSING_FILE = "No files found that match the pattern"
_DAMAGED_FILE = ("No magic bytes found at end of file", "too small to be a Parquet file")


class EmbeddedEngine:
    """Execute relations in this process.

    Args:
        folder: the store's folder.  None if only rows in memory are used.
    """

    name: ClassVar[str] = "embedded"

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._lock = Lock()
        self._database: DuckDBPyConnection | None = None
        self._files: dict[tuple[str, int], TableFiles] = {}
        self._newest = NewestVersions(partial(files_of, version=None))

    # ---------------------------------------------------------------- executing

    def fetch(self, node: Node) -> pa.Table:
        """Return all rows."""
        if isinstance(node, Rows):
            return node.arrow
        # `execute` copies the rows, which are few.  `sql` would parse and bind the statement twice.
        with self._prepared(node) as (connection, select):
            return connection.execute(select).to_arrow_table()

    def few(self, node: Node, most: int) -> pa.Table | None:
        """Return all rows, or None if they are more than `most`."""
        rows = self.fetch(Query(f"SELECT * FROM {{this}} LIMIT {most + 1:d}", {"this": node}))
        return None if rows.num_rows > most else rows

    def stream(self, node: Node, expected_rows: int) -> Iterator[Record]:
        """Yield all rows in the order of the statement."""
        del expected_rows  # DuckDB sorts any number of rows, on disk if necessary
        if isinstance(node, Rows):
            yield from records_of(node.arrow)
            return
        with self._executed(node) as result:
            for batch in result.to_arrow_reader(BATCH_ROWS):
                yield from records_of(batch)

    def types_of(self, node: Node) -> Mapping[str, str]:
        """Return the types of the columns by name.

        They are computed once per statement and process.  Statements that differ only in their rows
        and in their numbers share one result.
        """
        empty = with_leaves(node, self._without_rows_of)
        statement = flatten(empty, lambda text: to_duckdb(with_equal_numbers(text)))
        leaves = tuple(
            str(leaf.arrow.schema) if isinstance(leaf, Rows) else str(leaf.handle)
            for leaf in statement.leaves.values()
            if isinstance(leaf, (Rows, External))
        )
        key = (statement.steps, statement.last, leaves)
        known = _TYPES.get(key)
        if known is None:
            with self._executed(Query("SELECT * FROM {this} LIMIT 0", {"this": empty})) as result:
                types = (to_spark_type(str(type_)) for type_ in result.types)
                known = dict(zip(result.columns, types, strict=True))
            if len(_TYPES) >= _TYPES_MAX:
                _TYPES.clear()
            _TYPES[key] = known
        return known

    def reuse(self, node: Node) -> Node:
        """Return a node of the same rows, which are fetched if they are few."""
        if isinstance(node, Rows):
            return node
        rows = self.few(node, limits.LIMITS.embedded_rows)
        return node if rows is None else Rows(rows)

    def keep(self, node: Node) -> Node:
        """Compute the rows now, and return a node that has them in memory if they are few.

        Many rows are stored in a table of the database.  The table is dropped together with the
        node.
        """
        if isinstance(node, (Rows, External)):
            return node
        table = f"kept_{next(_TABLE_NUMBERS)}"
        kept = External(table)
        weakref.finalize(kept, _drop, self._connection(), table)
        large: Mapping[str, Node] = {}
        remaining: Node = node
        if isinstance(node, Query) and node.made_by is not None:
            large, remaining = self._parts(node, node.made_by)
        with self._prepared(remaining) as (connection, select):
            connection.execute(f"CREATE TABLE {table} AS {select}")

        def insert(value: str) -> None:
            with self._prepared(large[value]) as (connection, select):
                connection.execute(f"INSERT INTO {table} {select}")

        _do_concurrently(insert, large)
        rows = self.few(kept, limits.LIMITS.embedded_rows)
        return kept if rows is None else Rows(rows)

    def open_input(self, place: str) -> Input:
        """Open a given table, see `embedded_inputs.open_files`."""
        return Input(External(open_files(place)), is_fixed=True)

    def write(
        self, node: Node, table: str, partition: str | None, compared: Sequence[str] | None
    ) -> list[DataFile]:
        """Write rows as data files into the folder of a table.

        The files are part of no version until they are committed.

        Args:
            node: rows with all columns of the table.
            partition: the name of the partition column.  None if there is none.
            compared: see `folder.data_file`.
        """
        folder = self._table_folder(table)
        name = new_name()
        try:
            if partition is None:
                self._copy(node, folder, name)
            else:
                self._copy_partitions(node, folder, name, partition)
            paths = sorted(folder.rglob(f"{name}-*.parquet"))
            files = [data_file(folder, str(path.relative_to(folder)), compared) for path in paths]
        except BaseException:
            for path in folder.rglob(f"{name}-*.parquet"):
                path.unlink(missing_ok=True)
            raise
        return files

    def discard(self, table: str, files: Sequence[DataFile]) -> None:
        """Delete files that `write` wrote and that no version will contain."""
        for file in files:
            (self._table_folder(table) / file.path).unlink(missing_ok=True)

    def _copy_partitions(self, node: Node, folder: Path, name: str, partition: str) -> None:
        """Write the files of a table with partitions.

        The partitions of large tables are written a few at a time, because writing all at once
        needs more memory and time.
        """
        unordered, order = node, list[str]()
        if isinstance(node, Query) and node.limit is None:
            unordered = replace(node, order_by=())
            order = [term for term in node.order_by if term != partition]
        large, remaining = self._parts(unordered, partition)

        def copy(value: str) -> None:
            text = f"SELECT * EXCEPT ({partition}) FROM {{this}} AS this"
            rows = Query(text, {"this": large[value]}, tuple(order))
            self._copy(rows, folder / f"{partition}={value}", name)

        _do_concurrently(copy, large)
        sorted_by = (partition, *order) if order else ()
        rows = Query("SELECT * FROM {this} AS this", {"this": remaining}, sorted_by)
        self._copy(rows, folder, f"{name}-other", f"PARTITION_BY ({_identifier(partition)})")

    def _parts(self, node: Node, partition: str) -> tuple[Mapping[str, Node], Node]:
        """Divide the rows of a node.

        Return the rows of each partition of large tables, by its value, and the remaining rows.  A
        remaining row may have a value that the tables do not have yet.
        """
        values = self._large_partitions(node, partition)
        if not values:
            return {}, node
        large: dict[str, Node] = {}
        for value in values:
            inputs = {"this": in_partition(node, partition, value)}
            is_in = f"{partition} = {_quoted_text(value)}"
            large[value] = Query(f"SELECT * FROM {{this}} AS this WHERE {is_in}", inputs)
        listed = ", ".join(map(_quoted_text, values))
        is_other = f"{partition} IS NULL OR {partition} NOT IN ({listed})"
        inputs = {"this": in_partition(node, partition, None)}
        return large, Query(f"SELECT * FROM {{this}} AS this WHERE {is_other}", inputs)

    def _copy(
        self, node: Node, folder: Path, name: str, option: str = "WRITE_EMPTY_FILE false"
    ) -> None:
        options = (
            "FORMAT parquet, COMPRESSION snappy, RETURN_FILES true, OVERWRITE_OR_IGNORE true",
            f"FILENAME_PATTERN '{name}-{{i}}', ROW_GROUPS_PER_FILE {ROW_GROUPS_PER_FILE}",
            option,
        )
        folder.mkdir(exist_ok=True)
        target = _quoted_text(as_utf_8(folder))
        with self._prepared(node) as (connection, select):
            connection.execute(f"COPY ({select}) TO {target} ({', '.join(options)})")

    def _large_partitions(self, node: Node, partition: str) -> list[str]:
        """Return the values of a partition column, or no values if the tables of a node are small.

        Only tables whose rows can be computed one partition at a time (`made_by`) count.
        """
        scans = [
            self._files_of(leaf)
            for made in made_by(node, partition)
            for leaf in leaves_of(made)
            if isinstance(leaf, TableScan)
        ]
        of_tables = [files.paths for files in scans if files.partition == partition]
        values = sorted({str(value) for paths in of_tables for value in paths})
        number_of_rows = sum(files.number_of_rows for files in scans)
        return [] if number_of_rows < limits.LIMITS.partition_rows * len(values) else values

    def _table_folder(self, table: str) -> Path:
        if self._folder is None:
            raise AssertionError("an engine without a folder has no tables")
        return self._folder / table

    @contextmanager
    def _executed(self, node: Node) -> Iterator[DuckDBPyRelation]:
        """Execute a graph as one statement on a separate connection, and yield the result."""
        with self._prepared(node) as (connection, select):
            yield connection.sql(select)

    @contextmanager
    def _prepared(self, node: Node) -> Iterator[tuple[DuckDBPyConnection, str]]:
        """Yield a connection, and the statement of a graph.  The caller runs it on the connection.

        If DuckDB cannot read a file, raise the error that names its table.
        """
        import duckdb

        connection = self._connection()
        statement = flatten(node, to_duckdb)
        try:
            yield connection, self._sql(statement, connection)
        except duckdb.InvalidInputException as error:
            if "not valid UTF8" not in str(error):
                if any(text in str(error) for text in _DAMAGED_FILE):
                    self._refuse_damaged(statement, error, "damaged")
                raise
            for files in _inputs_of(statement):
                if not any(f'"{path}"' in str(error) for path in files.paths):
                    continue
                raise InputError(
                    f"a text in {files.place} is not UTF-8: run the command again with --engine"
                    " spark, which names the rows",
                    table=files.place,
                ) from error
            raise DamagedTableError(
                "a table has a text that is not UTF-8: claimlib check STORE --engine spark names it"
            ) from error
        except duckdb.IOException as error:
            if _MISSING_FILE in str(error):
                self._refuse_expired(statement, error)
                _refuse_vanished(statement, error)
                self._refuse_damaged(statement, error, "missing")
            raise
        finally:
            connection.close()

    def _refuse_expired(self, statement: Statement, cause: Exception) -> None:
        """Raise VersionExpiredError if a statement reads a version that is not the newest."""
        for leaf in statement.leaves.values():
            if isinstance(leaf, TableScan) and leaf.version is not None:
                newest = self._files_of(replace(leaf, version=None)).version
                if leaf.version != newest:
                    raise VersionExpiredError.of(leaf.table, leaf.version) from cause

    def _refuse_damaged(self, statement: Statement, cause: Exception, what: str) -> None:
        """Raise DamagedTableError if an error names a file of a table."""
        for leaf in statement.leaves.values():
            if not isinstance(leaf, TableScan):
                continue
            files = self._files_of(leaf)
            paths = (path for of_value in files.paths.values() for path in of_value)
            for path in paths:
                if f'{path}"' in str(cause) or f"{path}'" in str(cause):
                    raise DamagedTableError(
                        f"version {files.version} of the table {leaf.table} cannot be read,"
                        f" because {path} is {what}: {RESTORE}",
                        table=leaf.table,
                    ) from cause

    def _sql(self, statement: Statement, connection: DuckDBPyConnection) -> str:
        parts = [
            f"{name} AS NOT MATERIALIZED ({self._leaf(leaf, name, connection)})"
            for name, leaf in statement.leaves.items()
        ]
        for name, text in statement.steps:
            how = "MATERIALIZED" if statement.uses[name] > 1 else "NOT MATERIALIZED"
            parts.append(f"{name} AS {how} ({text})")
        return f"WITH {', '.join(parts)} {statement.last}"

    def _leaf(self, leaf: Node, name: str, connection: DuckDBPyConnection) -> str:
        """Return a SELECT of the rows of a leaf."""
        if isinstance(leaf, TableScan):
            return self._scan(leaf, name, connection)
        if isinstance(leaf, External):
            if isinstance(leaf.handle, InputFiles):
                return _input_rows(leaf.handle, name, connection)
            return f"SELECT * FROM {leaf.handle}"
        if isinstance(leaf, Rows):
            connection.register(f"rows_of_{name}", leaf.arrow)
        elif isinstance(leaf, Mapped):
            # DuckDB finds the local variable `rows` by its name in the statement.
            rows = self._mapped(leaf)
            connection.execute(f"CREATE TEMP TABLE rows_of_{name} AS SELECT * FROM rows")
            del rows
        return f"SELECT * FROM rows_of_{name}"

    def _mapped(self, node: Mapped) -> pa.RecordBatchReader:
        """Run a function over all rows as one range, which may have any number of keys."""
        ordered = Query("SELECT * FROM {this} AS this", {"this": node.input}, order_by=node.order)
        schema = pa.schema([(name, _ARROW_TYPES[type_]) for name, type_ in node.columns.items()])

        def results() -> Iterator[pa.RecordBatch]:
            with self._executed(ordered) as result:
                batches = (batch.to_pandas() for batch in result.to_arrow_reader(BATCH_ROWS))
                for frame in node.function(batches):
                    yield pa.RecordBatch.from_pandas(frame, schema, preserve_index=False)

        return pa.RecordBatchReader.from_batches(schema, results())

    def _scan(self, scan: TableScan, name: str, connection: DuckDBPyConnection) -> str:
        files = self._files_of(scan)
        if files.deleted is not None:
            connection.register(f"deleted_of_{name}", files.deleted)
        # A file that is older than a column lacks it.  The part without rows adds all columns.
        parts = [_part(files, value, paths, name) for value, paths in files.paths.items()]
        columns = ", ".join(map(_identifier, scan.columns))
        rows = " UNION ALL BY NAME ".join((_without_rows(files), *parts))
        return f"SELECT {columns} FROM ({rows})"

    def _files_of(self, scan: TableScan) -> TableFiles:
        """Return the files of a version that may have the rows of a scan."""
        known = self._files_of_version(scan.table, scan.version)
        # DuckDB knows the names of simple types, too.
        known = replace(known, columns={**scan.may_lack, **known.columns})
        files = known if scan.partition is None else known.of_partition(*scan.partition)
        files = files if scan.runs is None else files.of_runs(*scan.runs)
        return files if scan.bounds is None else files.within(scan.bounds.by_bucket)

    def _files_of_version(self, table: str, version: int | None) -> TableFiles:
        """Return the files of a version, or of the newest version."""
        folder = self._table_folder(table)
        known = self._newest.of(folder) if version is None else self._files.get((table, version))
        if known is None:
            known = files_of(folder, version)
        key = (table, known.version)
        if key not in self._files and len(self._files) >= _VERSIONS_MAX:
            self._files.clear()
        self._files[key] = known
        return known

    def _without_rows_of(self, leaf: Node) -> Node:
        """Return a leaf that has the same columns and no rows, and reads no file."""
        if isinstance(leaf, TableScan):
            columns = ", ".join(map(_identifier, leaf.columns))
            return External(f"(SELECT {columns} FROM ({_without_rows(self._files_of(leaf))}))")
        if isinstance(leaf, External) and isinstance(leaf.handle, InputFiles):
            return External(f"({_without_rows(leaf.handle)})")
        if isinstance(leaf, Mapped):
            fields = [(name, _ARROW_TYPES[type_]) for name, type_ in leaf.columns.items()]
            schema = pa.schema(fields)
            return Rows(schema.empty_table())
        return Rows(leaf.arrow.schema.empty_table()) if isinstance(leaf, Rows) else leaf

    # ---------------------------------------------------------------- the database

    def _connection(self) -> DuckDBPyConnection:
        with self._lock:
            if self._database is None:
                self._database = _new_database()
            return self._database.cursor()


def _do_concurrently(work: Callable[[str], None], partitions: Iterable[str]) -> None:
    """Do the work of each partition, a few at the same time.

    While Python decides one partition on one processor, DuckDB works on another partition.  If a
    partition fails, those that have not begun are cancelled.
    """
    with ThreadPoolExecutor(limits.LIMITS.partitions_at_once) as threads:
        running = [threads.submit(work, partition) for partition in partitions]
        try:
            ended, _ = wait(running, return_when=FIRST_EXCEPTION)
        finally:
            threads.shutdown(cancel_futures=True)
    for future in running:
        if future in ended:
            future.result()


def _drop(connection: DuckDBPyConnection, table: str) -> None:
    connection.execute(f"DROP TABLE IF EXISTS {table}")


def _part(files: TableFiles, value: str | None, paths: Sequence[str], name: str) -> str:
    """Return a SELECT of the rows of one partition."""
    options = "union_by_name = true, hive_partitioning = false"
    if files.deleted is not None:
        options += ", filename = true, file_row_number = true"
    listed = ", ".join(_quoted_text(_without_globs(path)) for path in paths)
    rows = f"read_parquet([{listed}], {options})"
    if files.deleted is not None:
        rows = (
            f"{rows} AS p ANTI JOIN deleted_of_{name} AS d"
            " ON p.filename = d.path AND p.file_row_number = d.row"
        )
    if files.partition is None:
        return f"SELECT * FROM {rows}"
    constant = "NULL" if value is None else _quoted_text(value)
    # Some writers repeat the partition column in the files, so it is not read from them.
    others = f"COLUMNS(lambda c: c <> {_quoted_text(files.partition)})"
    own = _cast(constant, files.partition, files.columns[files.partition])
    return f"SELECT {others}, {own} FROM {rows}"


def _input_rows(files: InputFiles, name: str, connection: DuckDBPyConnection) -> str:
    """Return a SELECT of the rows of a given table.

    In it, `f` has the rows of the files, `v` the partition values of the files, and `d` the deleted
    rows.
    """
    rows = _without_rows(files)
    if files.paths:
        listed = ", ".join(_quoted_text(_without_globs(path)) for path in files.paths)
        options = f"union_by_name = true, hive_partitioning = false, filename = '{FILE}'"
        if files.deleted is not None:
            options += ", file_row_number = true"
        rows += f" UNION ALL BY NAME SELECT * FROM read_parquet([{listed}], {options})"
    rows = f"({rows}) AS f"
    in_files = {*files.columns}
    if files.partitions is not None:
        connection.register(f"partitions_of_{name}", files.partitions)
        rows += f" JOIN partitions_of_{name} AS v ON f.{FILE} = v.{FILE}"
        in_files -= {*files.partitions.column_names}
    if files.deleted is not None:
        connection.register(f"deleted_of_{name}", files.deleted)
        rows += (
            f" ANTI JOIN deleted_of_{name} AS d ON f.{FILE} = d.path AND f.file_row_number = d.row"
        )
    columns = (
        _cast(f"{'f' if column in in_files else 'v'}.{_identifier(column)}", column, type_)
        for column, type_ in files.columns.items()
    )
    return f"SELECT {', '.join(columns)} FROM {rows}"


def _cast(value: str, column: str, type_: str) -> str:
    return f"CAST({value} AS {type_}) AS {_identifier(column)}"


def _inputs_of(statement: Statement) -> Iterator[InputFiles]:
    for leaf in statement.leaves.values():
        if isinstance(leaf, External) and isinstance(leaf.handle, InputFiles):
            yield leaf.handle


def _refuse_vanished(statement: Statement, cause: Exception) -> None:
    """Raise InputError if a file of a given table was deleted since the table was opened."""
    for files in _inputs_of(statement):
        if any(not Path(path).exists() for path in files.paths):
            raise InputError(
                f"{files.place} changed while it was read, because a file of it was deleted: run"
                " the command again while no process writes to it",
                table=files.place,
            ) from cause


def _without_rows(files: TableFiles | InputFiles) -> str:
    columns = (_cast("NULL", name, type_) for name, type_ in files.columns.items())
    return f"SELECT {', '.join(columns)} WHERE false"


def _without_globs(path: str) -> str:
    """Return a path with its glob characters escaped for DuckDB."""
    return re.sub(r"[*?\[]", lambda match: f"[{match[0]}]", path)


def _quoted_text(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def _identifier(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


_ARROW_TYPES = {"BIGINT": pa.int64(), "TINYINT": pa.int8(), "BOOLEAN": pa.bool_()}


# ------------------------------------------------------------------- the database


def _temporary() -> str:
    """Return the folder for temporary files.

    If the disk is full, Python finds no folder that it can write to.  Then only statements that
    exceed the memory fail.
    """
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:
        return os.environ.get("TMPDIR", "/tmp")  # noqa: S108 - DuckDB makes a folder of its own


def _new_database() -> DuckDBPyConnection:
    """Return a database in memory that has Spark's functions."""
    import duckdb

    # The warning is about `execute` in `fetch`, which is intended there.
    filterwarnings("ignore", "Arrow output on a DB-API result", UserWarning)
    connection = duckdb.connect(
        config={
            "TimeZone": "UTC",
            "autoinstall_known_extensions": "false",
            # DuckDB writes rows there that exceed the memory.  The default is the working folder.
            "temp_directory": as_utf_8(Path(_temporary(), f"claimlib-duckdb-{os.getpid()}")),
        }
    )
    add_functions(connection)
    return connection
