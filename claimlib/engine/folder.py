"""Find the files of a version of a Delta table in a local folder, so that DuckDB can read them."""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from claimlib.errors import VersionExpiredError


@dataclass(frozen=True, slots=True)
class TableFiles:
    """Hold the files of one version of a table.

    Attributes:
        version: the version.
        columns: name and DuckDB type of each column, in order.
        partition: the name of the partition column.  None if there is none.
        paths: by value of the partition column (None without partitions), the absolute paths of the
            files with this value.  `of_partition` and `within` select from these paths only.
        number_of_rows: the number of rows in all files of the version, including deleted rows.
            A file whose number of rows is not in the log does not count.
        id_ms: by path, the smallest and the largest `id_ms` of each file of the version, as far as
            the log has them.
        run_seq: the same for `run_seq`.
        deleted: one row per deleted row of the version: path, row (its number in the file).  None
            if no file has a deletion vector.
    """

    version: int
    columns: Mapping[str, str]
    partition: str | None
    paths: Mapping[str | None, Sequence[str]]
    number_of_rows: int
    id_ms: Mapping[str, tuple[int, int]]
    run_seq: Mapping[str, tuple[int, int]]
    deleted: pa.Table | None

    def of_partition(self, partition: str, value: str | None) -> TableFiles:
        """Return the files of one partition.

        Return all files if the column does not partition the table.

        Args:
            value: the value of the partition column.  None means a value that no file has.
        """
        if self.partition != partition:
            return self
        return replace(
            self, paths={key: paths for key, paths in self.paths.items() if key == value}
        )

    def of_runs(self, first: int, last: int) -> TableFiles:
        """Return the files that may have rows of the runs from `first` to `last`."""

        def is_wanted(path: str) -> bool:
            least, most = self.run_seq.get(path, _ANY)
            return least <= last and first <= most

        return self._only(
            {key: list(filter(is_wanted, paths)) for key, paths in self.paths.items()}
        )

    def within(self, by_bucket: Sequence[tuple[int, int, int]]) -> TableFiles:
        """Return the files that may have rows in any of the given intervals.

        Args:
            by_bucket: the intervals, each as a bucket, its smallest and its largest `id_ms`.
        """
        intervals = defaultdict(list)
        for bucket, low, high in by_bucket:
            intervals[str(bucket)].append((low, high))

        def is_wanted(path: str, value: str) -> bool:
            least, most = self.id_ms.get(path, _ANY)
            return any(least <= high and low <= most for low, high in intervals[value])

        wanted = {
            value: [path for path in paths if value is None or is_wanted(path, value)]
            for value, paths in self.paths.items()
        }
        return self._only(wanted)

    def _only(self, paths: Mapping[str | None, Sequence[str]]) -> TableFiles:
        return replace(
            self, paths={value: of_value for value, of_value in paths.items() if of_value}
        )


_ANY = (-(2**63), 2**63 - 1)


def is_readable(table: Any) -> bool:
    """Return True if DuckDB reads the files of a deltalake table as they are.

    A reader feature such as column mapping gives the columns other names in the files.
    """
    protocol = table.protocol()
    if protocol.min_reader_version < _FEATURES_FROM:
        return bool(protocol.min_reader_version == 1)
    return {*(protocol.reader_features or ())} <= _READER_FEATURES


# From this version on a protocol names its features.  Version 2 means column mapping.
_FEATURES_FROM = 3
_READER_FEATURES = {"deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}


@dataclass(frozen=True, slots=True)
class DataFile:
    """Describe a data file that is not committed yet.

    Attributes:
        path: the path below the folder of the table.
        size_bytes: the size of the file.
        partition: name and value of the partition column.  Empty if there is none.
        statistics: the statistics of the rows for the log, in JSON.
        nulls: the number of nulls of each column, without columns of lists, maps and structs.
    """

    path: str
    size_bytes: int
    partition: Mapping[str, str]
    statistics: str
    nulls: Counter[str]


def new_name() -> str:
    """Return the beginning of the names of new data files."""
    return f"part-00000-{uuid.uuid4()}"


# Delta truncates longer texts in statistics.  This module writes no statistics for such texts.
_LONGEST_STATISTIC = 100


def data_file(folder: Path, path: str, compared: Sequence[str] | None) -> DataFile:
    """Return a Parquet file of a table's folder, with the statistics for the log.

    Args:
        path: the path below the folder, `column=value/name` for a partition.
        compared: the columns whose smallest and largest values the log keeps.  None means all.
    """
    metadata = pq.read_metadata(folder / path)
    least, most, null_counts = {}, {}, {}
    nulls = _nulls(metadata)
    for number in range(metadata.num_columns):
        name = metadata.schema.column(number).path  # within a list or a map it has dots
        if "." in name or (compared is not None and name not in compared):
            continue
        ends = _ends(metadata, number)
        if ends is None:
            continue
        low, high = ends
        null_counts[name] = nulls[name]
        is_short = all(len(str(end)) <= _LONGEST_STATISTIC for end in (low, high))
        if low is not None and is_short:
            least[name], most[name] = low, high
    stated = {"numRecords": metadata.num_rows, "minValues": least, "maxValues": most}
    statistics = json.dumps({**stated, "nullCount": null_counts})
    partition = dict(part.split("=") for part in path.split("/")[:-1])
    return DataFile(path, (folder / path).stat().st_size, partition, statistics, nulls)


def _nulls(metadata: pq.FileMetaData) -> Counter[str]:
    """Return the number of nulls of each column, without columns of lists, maps and structs."""
    counts: Counter[str] = Counter()
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            if "." not in column.path_in_schema and column.statistics is not None:
                counts[column.path_in_schema] += column.statistics.null_count or 0
    return counts


def _ends(metadata: pq.FileMetaData, number: int) -> tuple[Any, Any] | None:
    """Return the smallest and the largest value of a column.

    Return None if the file lacks these statistics, or if values of its type are not compared.
    """
    groups = [metadata.row_group(group).column(number) for group in range(metadata.num_row_groups)]
    known = [group.statistics for group in groups]
    if any(ends is None or not ends.has_null_count for ends in known):
        return None
    types = {(ends.physical_type, ends.logical_type.type) for ends in known}
    if any(kind not in {"INT64", "INT32", "BYTE_ARRAY"} for kind, _ in types):
        return None
    if any(kind == "BYTE_ARRAY" and meaning != "STRING" for kind, meaning in types):
        return None
    with_values = [
        ends
        for ends, group in zip(known, groups, strict=True)
        if ends.null_count < group.num_values
    ]
    if any(not ends.has_min_max for ends in with_values):
        return None
    low = min((ends.min for ends in with_values), default=None)
    return low, max((ends.max for ends in with_values), default=None)


def files_of(folder: Path, version: int | None) -> TableFiles:
    """Return the files of a version of the table in a folder.

    Args:
        version: None means the newest version.

    Raises:
        VersionExpiredError: the version no longer exists.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    # delta-rs might take a plain path for a URL.
    try:
        table = DeltaTable(folder.as_uri(), version=version)
    except DeltaError as error:
        if version is None:
            raise
        raise VersionExpiredError.of(folder.name, version) from error
    folder = folder.resolve()  # delta-rs resolves links in the paths of files with deleted rows
    actions = pa.table(table.get_add_actions())
    is_counted = "num_records" in actions.column_names
    flat = pa.table(table.get_add_actions(flatten=True))  # has the statistics as columns
    partitions = table.metadata().partition_columns
    partition = partitions[0] if partitions else None
    values = [None] * actions.num_rows if partition is None else actions["partition"].to_pylist()
    paths = defaultdict(list)
    for path, value in zip(actions["path"].to_pylist(), values, strict=True):
        paths[None if partition is None else str(value[partition])].append(absolute(folder, path))
    return TableFiles(
        table.version(),
        {field.name: duckdb_type(field.type) for field in table.schema().fields},
        partition,
        paths,
        (is_counted and pc.sum(actions["num_records"]).as_py()) or 0,
        _ends_of(folder, flat, "id_ms"),
        _ends_of(folder, flat, "run_seq"),
        deleted_rows(table),
    )


def _ends_of(folder: Path, actions: pa.Table, column: str) -> dict[str, tuple[int, int]]:
    names = ("path", f"min.{column}", f"max.{column}")
    if not {*names} <= {*actions.column_names}:
        return {}
    rows = zip(*(actions[name].to_pylist() for name in names), strict=True)
    return {
        absolute(folder, path): (low, high)
        for path, low, high in rows
        if low is not None and high is not None
    }


def absolute(folder: Path, path: str) -> str:
    """Return the absolute path of a table's file.

    Args:
        path: the path in the log.  It is relative to the table's folder, or a URL.
    """
    decoded = unquote(path)
    if decoded.startswith("file:"):
        return decoded.removeprefix("file://").removeprefix("file:")
    return f"{as_utf_8(folder)}/{decoded}"


def as_utf_8(path: Path) -> str:
    """Return a path as DuckDB accepts it, with its bytes read as UTF-8 in every locale.

    delta-rs cannot open a table in a folder whose name is not UTF-8.
    """
    return os.fsencode(path).decode(errors="replace")


def deleted_rows(table: Any) -> pa.Table | None:
    """Return the deleted rows of a deltalake table, see `TableFiles`."""
    vectors = pa.table(table.deletion_vectors())
    if not vectors.num_rows:
        return None
    paths: list[str] = []
    rows = []
    for path, is_kept in zip(
        vectors["filepath"].to_pylist(), vectors["selection_vector"], strict=True
    ):
        numbers = np.flatnonzero(~is_kept.values.to_numpy(zero_copy_only=False))
        paths += [unquote(path).removeprefix("file://")] * len(numbers)
        rows.append(numbers)
    return pa.table({"path": pa.array(paths, pa.string()), "row": pa.array(np.concatenate(rows))})


def duckdb_type(type_: Any) -> str:
    """Return the DuckDB type of a column's Delta type."""
    kind = type(type_).__name__
    if kind == "ArrayType":
        return f"{duckdb_type(type_.element_type)}[]"
    if kind == "MapType":
        return f"MAP({duckdb_type(type_.key_type)}, {duckdb_type(type_.value_type)})"
    if kind == "StructType":
        fields = ", ".join(f'"{field.name}" {duckdb_type(field.type)}' for field in type_.fields)
        return f"STRUCT({fields})"
    if type_.type.startswith("decimal"):
        return str(type_.type).upper()
    return _PRIMITIVES.get(type_.type, "VARCHAR")


_PRIMITIVES = {
    "string": "VARCHAR",
    "long": "BIGINT",
    "integer": "INTEGER",
    "short": "SMALLINT",
    "byte": "TINYINT",
    "double": "DOUBLE",
    "float": "FLOAT",
    "boolean": "BOOLEAN",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMPTZ",
    "timestamp_ntz": "TIMESTAMP",
}
