"""The embedded engine: DuckDB and delta-rs in this process, for a store in a local folder."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from claimlib.engine.dialect import to_duckdb
from claimlib.engine.folder import TableFiles, as_utf_8, files_of
from claimlib.engine.relation import (
    Node,
    Query,
    Record,
    Rows,
    Statement,
    TableScan,
    flatten,
    records_of,
)
from claimlib.errors import VersionExpiredError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

BATCH_ROWS = 100_000
_LACKS_A_FILE = "No files found that match the pattern"
FEW_ROWS = 100_000
"""So many rows of an intermediate result are kept in memory for several statements."""


class EmbeddedEngine:
    """Executes relations in this process.

    Args:
        folder: the store's folder; None if only rows in memory are used.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._lock = Lock()
        self._database: DuckDBPyConnection | None = None
        self._files: dict[tuple[str, int], TableFiles] = {}

    # ---------------------------------------------------------------- executing

    def fetch(self, node: Node) -> pa.Table:
        """Return all rows."""
        if isinstance(node, Rows):
            return node.arrow
        with self._executed(node) as result:
            return result.to_arrow_table()

    def stream(self, node: Node, expected_rows: int) -> Iterator[Record]:
        """Yield all rows in the order of the statement."""
        del expected_rows  # what is sorted may spill to disk
        if isinstance(node, Rows):
            yield from records_of(node.arrow)
            return
        with self._executed(node) as result:
            for batch in result.to_arrow_reader(BATCH_ROWS):
                yield from records_of(batch)

    def columns_of(self, node: Node) -> tuple[str, ...]:
        """Return the names of the columns."""
        if isinstance(node, Rows):
            return tuple(node.arrow.column_names)
        with self._executed(Query("SELECT * FROM {this} LIMIT 0", {"this": node})) as result:
            return tuple(result.columns)

    def reuse(self, node: Node) -> Node:
        """Return a node of the same rows: few rows are fetched."""
        if isinstance(node, Rows):
            return node
        rows = self.fetch(Query(f"SELECT * FROM {{this}} LIMIT {FEW_ROWS + 1}", {"this": node}))
        return node if rows.num_rows > FEW_ROWS else Rows(rows)

    @contextmanager
    def _executed(self, node: Node) -> Iterator[DuckDBPyRelation]:
        """Run a graph as one statement on a connection of its own."""
        import duckdb

        connection = self._connection()
        statement = flatten(node, to_duckdb)
        try:
            yield connection.sql(self._sql(statement, connection))
        except duckdb.IOException as error:
            if _LACKS_A_FILE in str(error):
                self._refuse_expired(statement, error)
            raise
        finally:
            connection.close()

    def _refuse_expired(self, statement: Statement, cause: Exception) -> None:
        """Raise VersionExpiredError if a version that is not the newest one is read."""
        for leaf in statement.leaves.values():
            if isinstance(leaf, TableScan) and leaf.version is not None:
                newest = self._files_of(TableScan(leaf.table, None)).version
                if leaf.version != newest:
                    raise VersionExpiredError.of(leaf.table, leaf.version) from cause

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
        """Return a SELECT of what a leaf holds."""
        if isinstance(leaf, TableScan):
            return self._scan(leaf, name, connection)
        if isinstance(leaf, Rows):
            connection.register(f"rows_of_{name}", leaf.arrow)
        else:
            raise TypeError(f"{leaf} is not of this engine")
        return f"SELECT * FROM rows_of_{name}"

    def _scan(self, scan: TableScan, name: str, connection: DuckDBPyConnection) -> str:
        files = self._files_of(scan)
        if files.deleted is not None:
            connection.register(f"deleted_of_{name}", files.deleted)
        # Files that are older than a column lack it: the part without rows has all of them.
        parts = [_part(files, value, paths, name) for value, paths in files.paths.items()]
        columns = ", ".join(map(_identifier, files.columns))
        rows = " UNION ALL BY NAME ".join((_without_rows(files), *parts))
        return f"SELECT {columns} FROM ({rows})"

    def _files_of(self, scan: TableScan) -> TableFiles:
        if self._folder is None:
            raise AssertionError("an engine without a folder has no tables")
        known = None if scan.version is None else self._files.get((scan.table, scan.version))
        if known is None:
            known = files_of(self._folder / scan.table, scan.version)
            self._files[scan.table, known.version] = known
        return known

    # ---------------------------------------------------------------- the database

    def _connection(self) -> DuckDBPyConnection:
        with self._lock:
            if self._database is None:
                self._database = _new_database()
            return self._database.cursor()


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
    of = files.columns[files.partition]
    # Some writers repeat the column in the files.
    others = f"COLUMNS(lambda c: c <> {_quoted_text(files.partition)})"
    own = f"CAST({constant} AS {of}) AS {_identifier(files.partition)}"
    return f"SELECT {others}, {own} FROM {rows}"


def _without_rows(files: TableFiles) -> str:
    columns = (f"CAST(NULL AS {of}) AS {_identifier(name)}" for name, of in files.columns.items())
    return f"SELECT {', '.join(columns)} WHERE false"


def _without_globs(path: str) -> str:
    """Return a path in which DuckDB takes no character as part of a glob."""
    return re.sub(r"[*?\[]", lambda match: f"[{match[0]}]", path)


def _quoted_text(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def _identifier(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


# ------------------------------------------------------------------- functions


def _new_database() -> DuckDBPyConnection:
    """Return a database in memory with Spark's functions that DuckDB lacks."""
    import duckdb

    connection = duckdb.connect(
        config={
            "autoinstall_known_extensions": "false",
            # What has no room in memory goes there; by default it would be the working folder.
            "temp_directory": as_utf_8(
                Path(tempfile.gettempdir(), f"claimlib-duckdb-{os.getpid()}")
            ),
        }
    )
    options: dict[str, Any] = {"type": "arrow", "null_handling": "special"}
    connection.create_function("claimlib_hash", _hash, ["BIGINT", "VARCHAR"], "BIGINT", **options)
    connection.create_function(
        "claimlib_matches", _matches, ["VARCHAR", "VARCHAR"], "BOOLEAN", **options
    )
    for statement in _MACROS:
        connection.execute(statement)
    return connection


_MACROS = (
    # 42 is the seed of Spark's xxhash64.
    """CREATE MACRO xxhash64(a) AS claimlib_hash(42::BIGINT, a),
    (a, b) AS claimlib_hash(claimlib_hash(42::BIGINT, a), b)""",
    "CREATE MACRO pmod(a, b) AS ((a % b) + b) % b",
    # Only from 16 to 10 is ever asked for: the text of an unsigned number.
    "CREATE MACRO conv(digits, from_base, to_base) AS CAST(('0x' || digits)::UBIGINT AS VARCHAR)",
    "CREATE MACRO safe_subtract(a, b) AS TRY(a - b)",
)


def _hash(seeds: pa.ChunkedArray, texts: pa.ChunkedArray) -> pa.Array:
    """Return Spark's xxhash64 of texts: each has a seed, and null leaves the seed as it is."""
    import xxhash

    @lru_cache(maxsize=65_536)
    def hashed(seed: int, text: str | None) -> int:
        return seed if text is None else xxhash.xxh64_intdigest(text.encode(), seed)

    pairs = zip(seeds.to_numpy().view(np.uint64).tolist(), texts.to_pylist(), strict=True)
    numbers = np.fromiter((hashed(seed, text) for seed, text in pairs), np.uint64, len(texts))
    return pa.array(numbers.view(np.int64))


def _matches(texts: pa.ChunkedArray, patterns: pa.ChunkedArray) -> pa.Array:
    """Return whether the bytes of spelled names match the patterns of globs."""

    @lru_cache(maxsize=65_536)
    def matches(text: str | None, pattern: str | None) -> bool | None:
        if text is None or pattern is None:
            return None
        return re.search(pattern, text.encode().decode("iso-8859-1")) is not None

    pairs = zip(texts.to_pylist(), patterns.to_pylist(), strict=True)
    return pa.array([matches(text, pattern) for text, pattern in pairs], pa.bool_())
