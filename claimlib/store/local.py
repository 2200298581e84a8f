"""Read Delta tables in a folder of this machine, and commit to them, by delta-rs without Spark.

A `LocalTable` is a table at the version that was the newest when it was opened.  A commit creates
the next version, or nothing.  A read returns None in these cases:

- delta-rs is not installed, or cannot read the log.
- The table has many rows, or a feature that delta-rs does not know.

The caller then reads with Spark, which reports the error if there is one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, StructField, StructType

from claimlib.engine import limits
from claimlib.engine.folder import DataFile, absolute, is_readable
from claimlib.schema import quote_text

T = TypeVar("T")
# The types of a store's columns.  All readers return the same rows for these types.
TYPES = {
    "bigint",
    "boolean",
    "int",
    "string",
    "array<struct<name:binary,value:binary>>",
    "map<string,bigint>",
}


def _quote_standard(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


@dataclass(frozen=True, slots=True)
class Condition:
    """State a condition on one column.

    Attributes:
        value: the value that the column must have.  If it is several texts, the column must have
            one of them.
        is_above: True if the column must be above the value, which is a number.
        is_negated: True if the opposite must be true.  Use it only for columns without nulls: a
            row with a null would meet neither the condition nor its opposite.
    """

    column: str
    value: int | str | tuple[str, ...]
    is_above: bool = False
    is_negated: bool = False

    def sql(self) -> str:
        """Return the condition as standard SQL."""
        return self._sql(_quote_standard)

    def spark_sql(self) -> str:
        """Return the condition for Spark, which does not read a doubled quote as one quote."""
        return self._sql(quote_text)

    def _sql(self, quote: Callable[[str], str]) -> str:
        if isinstance(self.value, tuple):
            condition = f"{self.column} IN ({', '.join(map(quote, self.value))})"
        elif isinstance(self.value, str):
            condition = f"{self.column} = {quote(self.value)}"
        else:
            condition = f"{self.column} {'>' if self.is_above else '='} {self.value:d}"
        return f"NOT ({condition})" if self.is_negated else condition


@dataclass(frozen=True, slots=True)
class Token:
    """Hold Delta's transaction identifier.

    A write is skipped if the table already has a token of this `app_id` with this or a later
    version.
    """

    app_id: str
    version: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Describe a commit of rows.

    Attributes:
        mode: `append` to add the rows, `overwrite` to replace the existing rows with them.
        partitions: the partitions whose rows are replaced.  None means all.
        token: the transaction token of the commit.  None means no token.
        note: the user metadata of the commit.  None means no user metadata.
    """

    mode: Literal["append", "overwrite"]
    partitions: Sequence[int] | None = None
    token: Token | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class StoredFile:
    """Describe a data file of a version of a table.

    Attributes:
        partition: the value of the partition column.  None if the table has no such column.
        rows: the number of the file's rows, including deleted rows.  None if it is not in the log.
    """

    size_bytes: int
    partition: str | None
    rows: int | None


@dataclass(frozen=True, slots=True)
class LocalTable:
    """Hold a version of a table, which was the newest when the table was opened.

    Attributes:
        properties: the table's properties.
        struct: the table's columns.
    """

    version: int
    properties: Mapping[str, str]
    struct: StructType
    _folder: Path
    _table: Any

    def notes(self, limit: int | None = None) -> list[str | None] | None:
        """Return the user metadata of the newest commits, or None if the log cannot be read.

        The newest commit is the first.  The versions are not returned, because delta-rs omits
        commits without `commitInfo`.
        """
        commits = _or_none(lambda: self._table.history(limit))
        return None if commits is None else [commit.get("userMetadata") for commit in commits]

    def rows(
        self, most: int, *conditions: Condition, columns: Sequence[str] | None = None
    ) -> pa.Table | None:
        """Return the rows that meet all conditions, or None if they must be read in another way.

        The result is None in these cases:

        - There may be more than `most` rows, or their files may be too large.
        - delta-rs cannot read the rows.
        - A column has a type that no table of a store has.  Readers may return such a type
          differently.

        Args:
            columns: the columns that are read.  None means all.
        """
        names = self.struct.names if columns is None else columns
        struct = StructType([self.struct[name] for name in names])
        if any(field.dataType.simpleString() not in TYPES for field in struct.fields):
            return None
        # In a table with payloads, even a few rows may be large.
        has_payloads = any(map(_is_payload, struct.fields))
        if (has_payloads or not conditions) and not self.is_small(most):
            return None
        where = " AND ".join(condition.sql() for condition in conditions) or "true"
        listed = ", ".join(f'"{name}"' for name in names)
        fetched = _or_none(lambda: self._queried(f"SELECT {listed} FROM t WHERE {where}", most))
        return None if fetched is None else _or_none(lambda: _with_spark_types(fetched, struct))

    def numbers(self, column: str) -> pa.ChunkedArray | None:
        """Return the numbers in a column, or None if the table cannot be read.

        The numbers are read from the rows, because the statistics of a file include rows that a
        deletion vector hides.
        """
        rows = _or_none(lambda: self._queried(f'SELECT "{column}" FROM t', None))
        return None if rows is None else rows[column]

    def last(self, column: str, limit: int, most: int) -> tuple[list[dict[str, Any]], int] | None:
        """Return the rows with the highest numbers in a column, and the number of all rows.

        The row with the highest number is the first.  The result is None in the same cases as that
        of `rows`.
        """
        numbers = self.numbers(column)
        if numbers is None:
            return None
        highest = sorted(numbers.to_pylist(), reverse=True)[:limit]
        if not highest:
            return [], 0
        fetched = self.rows(most, Condition(column, highest[-1] - 1, is_above=True))
        if fetched is None:
            return None
        rows = fetched.sort_by([(column, "descending")]).slice(0, limit)
        return rows.to_pylist(maps_as_pydicts="strict"), len(numbers)

    def _queried(self, statement: str, most: int | None) -> pa.Table | None:
        """Return the rows of a query, or None if they are more than `most`, or too large.

        The query has no LIMIT, because delta-rs might apply it before deletion vectors.
        """
        from deltalake import QueryBuilder

        batches, row_count, size = [], 0, 0
        query = QueryBuilder().register("t", self._table)
        reader = pa.RecordBatchReader.from_stream(query.execute(statement))
        for batch in reader:
            row_count, size = row_count + batch.num_rows, size + batch.nbytes
            if most is not None and (row_count > most or size > limits.LIMITS.unpacked_bytes):
                return None
            batches.append(batch)
        return pa.Table.from_batches(batches, reader.schema)

    def is_readable_as_files(self) -> bool:
        """Return True if the embedded engine can read the table."""
        return is_readable(self._table)

    def is_writable(self, columns: Collection[str]) -> bool:
        """Return True if this process can write the table.

        It cannot if the table has other columns than `columns`, a constraint, or a feature that no
        table of a store has.
        """
        protocol = self._table.protocol()
        features = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
        # Version 2 implies only features of a store's tables.  Versions 3 to 6 imply others.
        states_features = protocol.min_writer_version == _PLAIN_WRITER or bool(features)
        has_constraints = any(name.startswith(_CONSTRAINTS) for name in self.properties)
        if has_constraints or {*self.struct.names} != {*columns}:
            return False
        return states_features and features <= _FEATURES

    def has_used(self, token: Token) -> bool:
        """Return True if a commit had this token, or a later one."""
        used = self._table.transaction_version(token.app_id)
        return used is not None and used >= token.version

    def commit(self, files: Sequence[DataFile], how: Commit) -> bool:
        """Commit files as the version after this one, and write a checkpoint after ten versions.

        Return False if another writer has committed that version.

        Raises:
            Exception: delta-rs, or the file system, cannot write.
        """
        from deltalake.exceptions import CommitFailedError

        try:
            self._commit_files(files, how)
        except CommitFailedError:
            later = self._later()
            if later is None:
                raise
            # delta-rs may report a failure although it has made the commit.
            return later.has_any(files)
        self._write_checkpoint_if_due(self.version + 1)
        return True

    def delete(self, conditions: Sequence[Condition], note: str | None = None) -> bool:
        """Delete the rows that meet all conditions, in the version after this one.

        Return False if another writer has committed that version.

        Args:
            note: the user metadata of the commit.

        Raises:
            Exception: delta-rs, or the file system, cannot write.
        """
        where = " AND ".join(condition.sql() for condition in conditions)
        return (
            self._committed(
                lambda table: table.delete(
                    where,
                    commit_properties=_commit_properties(note, []),
                    post_commithook_properties=_hooks(),
                )
            )
            is not None
        )

    def compact(self, target_bytes: int, note: str) -> int | None:
        """Write the small files of each partition as fewer files, in the version after this one.

        The rows stay in the order of the files.  If there is nothing to do, nothing is committed.

        Args:
            target_bytes: the approximate size of the new files.  Larger files stay as they are.
            note: the user metadata of the commit.

        Returns: the number of files that were replaced, or None if another writer has committed
            that version.

        Raises:
            Exception: delta-rs, or the file system, cannot write.
        """
        from deltalake import WriterProperties

        properties = WriterProperties(compression="SNAPPY", max_row_group_size=_ROW_GROUP_ROWS)
        replaced = self._committed(
            lambda table: table.optimize.compact(
                target_size=target_bytes,
                writer_properties=properties,
                commit_properties=_commit_properties(note, []),
                post_commithook_properties=_hooks(),
            )
        )
        return None if replaced is None else int(replaced["numFilesRemoved"])

    def _committed(self, commit: Callable[[Any], dict[str, Any]]) -> dict[str, Any] | None:
        """Commit the version after this one, and return the metrics of delta-rs.

        Return None if another writer has committed that version.
        """
        from deltalake import DeltaTable
        from deltalake.exceptions import CommitFailedError

        # Committing moves the object to the new version, but `_table` must stay at this one.
        table = DeltaTable(self._folder.as_uri(), version=self.version)
        try:
            return commit(table)
        except CommitFailedError:
            if self._later() is None:
                raise
            return None

    def files(self) -> list[StoredFile]:
        """Return the data files of this version."""
        actions = pa.table(self._table.get_add_actions())
        partition = self._partition_column()
        unknown = [None] * actions.num_rows
        names = actions.column_names
        values = unknown if partition is None else actions["partition"].to_pylist()
        row_counts = actions["num_records"].to_pylist() if "num_records" in names else unknown
        return [
            StoredFile(size, None if partition is None else str(value[partition]), row_count)
            for size, value, row_count in zip(
                actions["size_bytes"].to_pylist(), values, row_counts, strict=True
            )
        ]

    def clean_log(self) -> None:
        """Write a checkpoint of the log, and delete log files that are older than their retention.

        Raises:
            Exception: delta-rs, or the file system, cannot write.
        """
        from deltalake import DeltaTable

        self._write_checkpoint_if_due(self.version)
        DeltaTable(self._folder.as_uri()).cleanup_metadata()

    def _write_checkpoint_if_due(self, version: int) -> None:
        """Write a checkpoint if the newest one is at least ten versions older than a version.

        Otherwise the log would take longer to read after each commit.
        """
        from deltalake import DeltaTable

        if version - version_at_checkpoint(self._folder) >= _VERSIONS_PER_CHECKPOINT:
            DeltaTable(self._folder.as_uri()).create_checkpoint()

    def removable(self) -> dict[Path, int]:
        """Return the files that no version within the table's retention uses, with their sizes.

        Files of deletion vectors are omitted, because delta-rs also lists those that are in use.
        For the same reason hidden files are omitted: Spark writes a checksum beside each file.
        """
        listed = self._table.vacuum(retention_hours=None, dry_run=True, full=True)
        paths = [Path(absolute(self._folder.resolve(), path)) for path in listed]
        others = (path for path in paths if not path.name.startswith((_DELETION_VECTOR, ".")))
        sizes = {path: size_of(path) for path in others}
        return {path: size for path, size in sizes.items() if size is not None}

    def _later(self) -> LocalTable | None:
        """Return the table at its newest version.

        Return None if that is this version, or if the newest version is unknown.
        """
        newest = _opened(self._folder)
        return None if newest is None or newest.version == self.version else newest

    def has_any(self, files: Sequence[DataFile]) -> bool:
        """Return True if this version contains one of these files."""
        paths = pa.table(self._table.get_add_actions())["path"].to_pylist()
        return any(file.path in paths for file in files)

    def _commit_files(self, files: Sequence[DataFile], how: Commit) -> None:
        from deltalake.transaction import AddAction, Transaction

        now_ms = time.time_ns() // 1_000_000
        added = [
            AddAction(file.path, file.size_bytes, file.partition, now_ms, True, file.statistics)
            for file in files
        ]
        tokens = [] if how.token is None else [Transaction(how.token.app_id, how.token.version)]
        partition = self._partition_column()
        filters = (
            [(partition, "in", [str(value) for value in how.partitions])]
            if partition is not None and how.partitions is not None
            else None
        )
        self._table.create_write_transaction(
            added,
            how.mode,
            self._table.schema(),
            [] if partition is None else [partition],
            filters,
            commit_properties=_commit_properties(how.note, tokens),
            post_commithook_properties=_hooks(),
        )

    def metadata(self) -> dict[str, Any]:
        """Return the table's definition as the action `metaData` of the log."""
        metadata = self._table.metadata()
        return {
            "id": str(metadata.id),
            "name": metadata.name,
            "description": metadata.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": self._table.schema().to_json(),
            "partitionColumns": list(metadata.partition_columns),
            "configuration": dict(self.properties),
            "createdTime": metadata.created_time,
        }

    def _partition_column(self) -> str | None:
        columns = self._table.metadata().partition_columns
        return columns[0] if columns else None

    @property
    def compared(self) -> Sequence[str] | None:
        """Return the columns whose smallest and largest values are in the log.

        None means all columns.
        """
        named = self.properties.get("delta.dataSkippingStatsColumns")
        return None if named is None else named.split(",")

    def is_small(self, most: int) -> bool:
        """Return True if the log shows that the table has at most `most` rows, and few bytes.

        The number of rows includes rows that deletion vectors hide.
        """
        totals = self._totals()
        if totals is None:
            return False
        rows, size = totals
        return rows <= most and size <= limits.LIMITS.table_bytes

    def _totals(self) -> tuple[int, int] | None:
        """Return the numbers of rows and bytes of all files, or None if they are not in the log."""
        files = _or_none(lambda: pa.table(self._table.get_add_actions()))
        if files is None or "num_records" not in files.column_names:
            return None
        row_counts, sizes = files["num_records"], files["size_bytes"]
        if row_counts.null_count:
            return None
        return pc.sum(row_counts).as_py() or 0, pc.sum(sizes).as_py() or 0


def _commit_properties(note: str | None, tokens: list[Any]) -> Any:
    from deltalake.transaction import CommitProperties

    return CommitProperties(
        custom_metadata=None if note is None else {"userMetadata": note},
        # The commit must directly follow the version that was read.
        max_commit_retries=0,
        app_transactions=tokens,
    )


def _hooks() -> Any:
    from deltalake.transaction import PostCommitHookProperties

    # Old log files are deleted by `clean_log` or by Spark, not in each commit.
    return PostCommitHookProperties(cleanup_expired_logs=False)


# The features of a store's tables.
_FEATURES = {"appendOnly", "changeDataFeed", "deletionVectors", "generatedColumns", "invariants"}
# The writer version of a store's table that lists no features.
_PLAIN_WRITER = 2
_CONSTRAINTS = "delta.constraints."


def commits_of(folder: Path, limit: int | None = None) -> list[dict[str, Any]]:
    """Return the information that the log has about the commits of a table, newest first.

    Each commit has `version`, `operation`, `operationParameters`, `operationMetrics` and
    `userMetadata`.  A value is None if the commit lacks it.  Commits whose files were deleted are
    omitted.

    Args:
        folder: the folder of the table.
        limit: the number of newest commits to return.  None means all.
    """
    files = sorted((folder / "_delta_log").glob("*.json"), reverse=True)
    commits = [file for file in files if file.stem.isdigit()][:limit]
    return [{"version": int(file.stem), **_commit_info(file)} for file in commits]


_COMMIT_FIELDS = ("operation", "operationParameters", "operationMetrics", "userMetadata")


def _commit_info(file: Path) -> dict[str, Any]:
    actions = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    info: dict[str, Any] = next(
        (action["commitInfo"] for action in actions if "commitInfo" in action), {}
    )
    return {name: info.get(name) for name in _COMMIT_FIELDS}


def newest(folder: Path) -> LocalTable | None:
    """Return the newest version of the table in a folder, or None if delta-rs cannot read it.

    The result is also None if the table has so many files that its log is slow to read.
    """
    return _or_none(lambda: _opened(folder))


def _opened(folder: Path) -> LocalTable | None:
    from deltalake import DeltaTable

    if _files_at_checkpoint(folder) > limits.LIMITS.table_files:
        return None
    # delta-rs might read a plain path as a URL.
    table = DeltaTable(folder.as_uri())
    properties = dict(table.metadata().configuration)
    if any(name.startswith(_COORDINATED) for name in properties):
        return None
    return LocalTable(table.version(), properties, _struct(table.schema().to_json()), folder, table)


# The newest commits of a table with coordinated commits may not be in its folder yet.
_COORDINATED = "delta.coordinatedCommits"


def _or_none(call: Callable[[], T]) -> T | None:
    """Return the result of a call of delta-rs, or None on any error.

    The caller then uses Spark, which reports the error.
    """
    try:
        return call()
    except Exception:  # noqa: BLE001 - delta-rs fails in many ways, and Spark reads the table then
        return None
    except BaseException as error:
        # A panic of Rust is no Exception in Python.
        if type(error).__name__ != "PanicException":
            raise
        return None


def _files_at_checkpoint(folder: Path) -> int:
    """Return the number of files that a table had at its newest checkpoint.

    Return 0 if there is no checkpoint, or if its description lacks the number.
    """
    return int(_last_checkpoint(folder).get("numOfAddFiles", 0))


def version_at_checkpoint(folder: Path) -> int:
    """Return the version of the newest checkpoint, or 0 if there is none."""
    return int(_last_checkpoint(folder).get("version", 0))


def _last_checkpoint(folder: Path) -> dict[str, Any]:
    """Return the log's description of its newest checkpoint.

    Return {} if there is no description or it is damaged.  Readers then list the log.
    """
    try:
        text = (folder / "_delta_log" / "_last_checkpoint").read_text(encoding="utf-8")
        description: dict[str, Any] = json.loads(text)
    except (FileNotFoundError, ValueError):
        return {}
    return description


_VERSIONS_PER_CHECKPOINT = 10
# The number of rows in a row group, which has statistics of its own.  DuckDB uses the same number.
_ROW_GROUP_ROWS = 122_880
_DELETION_VECTOR = "deletion_vector_"


def size_of(path: Path) -> int | None:
    """Return the size of a file in bytes, or None if it does not exist."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _is_payload(column: StructField) -> bool:
    # Only payloads are arrays.  The maps of a store hold counts and versions, which are small.
    return isinstance(column.dataType, ArrayType)


def _struct(text: str) -> StructType:
    """Return the columns, without the expressions that generate them."""
    struct = StructType()
    for column in StructType.fromJson(json.loads(text)).fields:
        struct = struct.add(column.name, column.dataType, column.nullable)
    return struct


def _with_spark_types(rows: pa.Table, struct: StructType) -> pa.Table:
    """Return the rows with the types that Spark gives them, in at least one batch."""
    schema = to_arrow_schema(struct)
    if not rows.num_rows:
        empty = [pa.array([], field.type) for field in schema]
        return pa.Table.from_batches([pa.RecordBatch.from_arrays(empty, schema=schema)])
    return rows.cast(schema)
