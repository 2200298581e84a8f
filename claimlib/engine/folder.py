"""Versions of Delta tables in a folder of this machine, as files that DuckDB reads."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from claimlib.errors import VersionExpiredError


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of one version of a table.

    Attributes:
        version: the version.
        columns: name and DuckDB type of each column, in order.
        partition: the name of the partition column; None if there is none.
        paths: by value of the partition column (None without partitions), the absolute paths of its
            files.
        deleted: one row per deleted row of these files: path, row (its number in the file); None
            if no file has a deletion vector.
    """

    version: int
    columns: Mapping[str, str]
    partition: str | None
    paths: Mapping[str | None, Sequence[str]]
    deleted: pa.Table | None


def is_readable(table: Any) -> bool:
    """Return True if DuckDB reads the files of a deltalake table as they are.

    A reader feature such as column mapping gives the columns other names in the files.
    """
    protocol = table.protocol()
    if protocol.min_reader_version < _FEATURES_FROM:
        return bool(protocol.min_reader_version == 1)
    return {*(protocol.reader_features or ())} <= _READER_FEATURES


# From this version on a protocol names its features; 2 stands for column mapping.
_FEATURES_FROM = 3
_READER_FEATURES = {"deletionVectors", "v2Checkpoint", "vacuumProtocolCheck"}


def files_of(folder: Path, version: int | None) -> TableFiles:
    """Return the files of a version of the table in a folder (None: of the newest version).

    Raises:
        VersionExpiredError: that version is not kept any more.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    # A path as it is might be taken for a URL.
    try:
        table = DeltaTable(folder.as_uri(), version=version)
    except DeltaError as error:
        if version is None:
            raise
        raise VersionExpiredError.of(folder.name, version) from error
    actions = pa.table(table.get_add_actions())
    partitions = table.metadata().partition_columns
    partition = partitions[0] if partitions else None
    values = [None] * actions.num_rows if partition is None else actions["partition"].to_pylist()
    paths = defaultdict(list)
    for path, value in zip(actions["path"].to_pylist(), values, strict=True):
        paths[None if partition is None else str(value[partition])].append(_absolute(folder, path))
    return TableFiles(
        table.version(),
        {field.name: _type(field.type) for field in table.schema().fields},
        partition,
        paths,
        _deleted_rows(table),
    )


def _absolute(folder: Path, path: str) -> str:
    decoded = unquote(path)
    if decoded.startswith("file:"):
        return decoded.removeprefix("file://").removeprefix("file:")
    return f"{as_utf_8(folder)}/{decoded}"


def as_utf_8(path: Path) -> str:
    """Return a path as DuckDB takes it: as the UTF-8 that its bytes are, whatever the locale.

    delta-rs opens no table in a folder whose name is not UTF-8.
    """
    return os.fsencode(path).decode(errors="replace")


def _deleted_rows(table: Any) -> pa.Table | None:
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


def _type(type_: Any) -> str:
    """Return the DuckDB type of a column's Delta type."""
    kind = type(type_).__name__
    if kind == "ArrayType":
        return f"{_type(type_.element_type)}[]"
    if kind == "MapType":
        return f"MAP({_type(type_.key_type)}, {_type(type_.value_type)})"
    if kind == "StructType":
        fields = ", ".join(f'"{field.name}" {_type(field.type)}' for field in type_.fields)
        return f"STRUCT({fields})"
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
