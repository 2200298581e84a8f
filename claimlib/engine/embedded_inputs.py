"""Open given tables with the embedded engine.

It reads Delta tables, folders of Parquet files and single Parquet files, all on this machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as kinds

from claimlib.engine.folder import absolute, as_utf_8, deleted_rows, duckdb_type, is_readable
from claimlib.engine.inputs import (
    NANOSECONDS,
    NO_TABLE,
    NOTHING_THERE,
    is_name,
    is_path,
    mixed_types_error,
    unreadable,
)
from claimlib.engine.parquet_folder import (
    data_files,
    partition_values,
    refuse_mixed_folders,
    unescaped,
)
from claimlib.errors import InputError, RequestError

FILE = "claimlib_file"
"""The name of a column with the path of the file that has the row."""


@dataclass(frozen=True, slots=True)
class InputFiles:
    """Hold the files of a given table.

    Attributes:
        place: the location of the table.
        columns: the DuckDB types by column, in order.
        paths: the absolute paths of the files.
        partitions: one row per file: its path (`FILE`) and its values of the partition columns.
            None if the table is not partitioned.
        deleted: see `folder.TableFiles`.
    """

    place: str
    columns: Mapping[str, str]
    paths: Sequence[str]
    partitions: pa.Table | None
    deleted: pa.Table | None


class _NeedsSparkError(Exception):
    """Report that only Spark can read a table.  The text is the reason."""


def why_spark(place: str) -> str | None:
    """Return the reason why only Spark can read a table.

    Return None if the embedded engine can read it, or if there is no readable table.
    """
    try:
        _open(place)
    except _NeedsSparkError as error:
        return str(error)
    except InputError:
        return None
    return None


def open_files(place: str) -> InputFiles:
    """Return the current files of a table, or those of the current version of a Delta table.

    Raises:
        InputError: the table does not exist, cannot be read, or would not be read completely.
        RequestError: only Spark can read the table.
    """
    try:
        return _open(place)
    except _NeedsSparkError as error:
        raise RequestError(
            f"the embedded engine cannot read {place}: {error}."
            " Use --engine auto or --engine spark",
            option="engine",
        ) from error


def _open(place: str) -> InputFiles:
    if not is_path(place):
        if is_name(place):
            raise _NeedsSparkError(f"it is a name in a catalog (write a path as ./{place})")
        raise _NeedsSparkError("it is not in a folder of this machine")
    path = Path(place)
    try:
        if (path / "_delta_log").is_dir():
            return _delta(place, path)
        if not path.exists():
            raise unreadable(place, NOTHING_THERE)
        if any((above / "_delta_log").is_dir() for above in path.parents):
            raise _NeedsSparkError("it is a part of a Delta table, which may have deleted its rows")
        return _parquet(place, path)
    except OSError as error:
        raise unreadable(place, error.strerror or str(error)) from error
    except ValueError as error:  # a path with a null character
        raise unreadable(place, str(error)) from error


# ------------------------------------------------------------------- Delta


def _delta(place: str, folder: Path) -> InputFiles:
    from deltalake import DeltaTable

    folder = folder.resolve()  # delta-rs resolves links in the paths of files with deleted rows
    if "%" in str(folder):
        raise _NeedsSparkError("delta-rs takes a % in its path for an encoded character")
    try:
        table = DeltaTable(folder.as_uri())
        is_supported = is_readable(table)
    except Exception as error:
        raise _NeedsSparkError(f"delta-rs cannot open it ({error})") from error
    if not is_supported:
        raise _NeedsSparkError("it uses a feature that the engine lacks, such as column mapping")
    columns = {field.name: duckdb_type(field.type) for field in table.schema().fields}
    names = table.metadata().partition_columns
    actions = pa.table(table.get_add_actions(flatten=True))
    paths = [absolute(folder, path) for path in actions["path"].to_pylist()]
    partitions = None
    if names:
        if any(columns[name] == "BLOB" for name in names):
            raise _NeedsSparkError("it is partitioned by a BINARY column")
        values = {name: actions[f"partition.{name}"] for name in names}
        partitions = pa.table({FILE: pa.array(paths, pa.string()), **values})
    return InputFiles(place, columns, paths, partitions, deleted_rows(table))


# ------------------------------------------------------------------- Parquet


def _parquet(place: str, path: Path) -> InputFiles:
    files = [path] if path.is_file() else data_files(path)
    refuse_mixed_folders(place, [PurePosixPath(file) for file in files])
    values_by_file = [] if path.is_file() else _partition_values_by_file(path, files)
    if not any(values_by_file):
        # Spark does not read the folders in a folder that is not partitioned.
        files = [file for file in files if path in {file, file.parent}]
    if not files:
        raise unreadable(place, NO_TABLE)
    columns = _columns_of(place, files)
    paths = list(map(as_utf_8, files))
    if not any(values_by_file):
        return InputFiles(place, columns, paths, None, None)
    names = [name for name, _ in values_by_file[0]]
    if len({*map(str.lower, names)}) < len(names):
        raise _NeedsSparkError("two levels of its folders name the same column")
    partition_columns = {
        name: _partition_column(name, [values[level][1] for values in values_by_file])
        for level, name in enumerate(names)
    }
    # A partition column that is also in the files keeps its position and its name there.
    in_files = {name.lower(): name for name in columns}
    types = {
        in_files.get(name.lower(), name): type_ for name, (type_, _) in partition_columns.items()
    }
    arrays = {
        in_files.get(name.lower(), name): array for name, (_, array) in partition_columns.items()
    }
    partitions = pa.table({FILE: pa.array(paths, pa.string()), **arrays})
    return InputFiles(place, {**columns, **types}, paths, partitions, None)


def _partition_values_by_file(folder: Path, files: Iterable[Path]) -> list[list[tuple[str, str]]]:
    return [partition_values(PurePosixPath(file.parent.relative_to(folder)))[1] for file in files]


_NULL_TYPE = '"NULL"'
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile("[+-]?[0-9]{1,18}")
_DATE, _TIME = "%Y-%m-%d", "%Y-%m-%d %H:%M:%S"


def _partition_column(name: str, texts_by_file: Sequence[str]) -> tuple[str, pa.Array]:
    """Return the DuckDB type and the values of a partition column.

    Args:
        texts_by_file: for each file, the value in the name of its folder.  The type is inferred
            from them, as Spark infers it.
    """
    values = [None if text == _NO_VALUE else text for text in texts_by_file]
    types = {_type_of(name, text) for text in values if text is not None} or {_NULL_TYPE}
    if types <= {"INTEGER", "BIGINT"}:
        numbers = [None if text is None else int(text) for text in values]
        return ("BIGINT" if "BIGINT" in types else "INTEGER"), pa.array(numbers, pa.int64())
    if len(types) > 1 and "VARCHAR" not in types:
        raise _NeedsSparkError(f"the values of {name} in the names of its folders are of two types")
    texts = pa.array([text and unescaped(text) for text in values], pa.string())
    # DuckDB casts the texts of days and times.  A time without a zone is UTC.
    return ("VARCHAR" if "VARCHAR" in types else types.pop()), texts


def _type_of(name: str, text: str) -> str:
    """Return the DuckDB type that Spark infers for a value in the name of a folder."""
    if _INTEGER.fullmatch(text):
        return "INTEGER" if -(2**31) <= int(text) < 2**31 else "BIGINT"
    if _is_instant(text, _DATE):
        return "DATE"
    if _is_instant(unescaped(text), _TIME):
        return "TIMESTAMPTZ"
    first = text.lstrip()[:1]
    if not first or first.isnumeric() or first in "+-." or text in {"NaN", "Infinity"}:
        raise _NeedsSparkError(f"the type of {name}={text}, the name of a folder, is not clear")
    return "VARCHAR"


def _is_instant(text: str, format_: str) -> bool:
    """Return True if a text is a day or time in a format, with all of its digits."""
    try:
        return f"{datetime.strptime(text, format_):{format_}}" == text  # noqa: DTZ007 - it has no zone
    except ValueError:
        return False


def _columns_of(place: str, files: Iterable[Path]) -> dict[str, str]:
    """Return the DuckDB types of the columns of Parquet files, by column.

    Columns whose names differ only in case are one column.

    Raises:
        InputError: a file cannot be read, or a column has different types in two files.
    """
    columns: dict[str, str] = {}
    names: dict[str, str] = {}
    for file in files:
        for name_in_file, type_ in _columns(place, file):
            name = names.setdefault(name_in_file.lower(), name_in_file)
            columns[name] = _common_type(place, columns.get(name, type_), type_)
    return columns


def _columns(place: str, file: Path) -> list[tuple[str, str]]:
    try:
        parquet = pq.ParquetFile(file)
    except (pa.ArrowInvalid, NotImplementedError) as error:
        raise InputError(
            f"{file} is not a Parquet file: give a Delta or Parquet table", table=place
        ) from error
    with parquet:
        leaves = (parquet.schema.column(number) for number in range(len(parquet.schema)))
        int96_columns = {leaf.path for leaf in leaves if leaf.physical_type == "INT96"}
        return [
            (field.name, "TIMESTAMPTZ" if field.name in int96_columns else _type(place, field.type))
            for field in parquet.schema_arrow
        ]


def _common_type(place: str, left: str, right: str) -> str:
    """Return the type of a column that has the types `left` and `right` in two files.

    Decimals with the same scale may have different precisions.  All other types must be equal.
    """
    if left == right:
        return left
    decimals = [_DECIMAL.fullmatch(type_) for type_ in (left, right)]
    if all(decimals) and len({match[2] for match in decimals if match}) == 1:
        # The precision is between `DECIMAL(` and the comma.
        return max(left, right, key=lambda type_: int(type_[8:].partition(",")[0]))
    if any("(" in type_ or "[" in type_ for type_ in (left, right)) and not any(decimals):
        raise _NeedsSparkError("a nested column has different types in its files")
    types = " and ".join(_SPARK_NAMES.get(type_, type_) for type_ in (left, right))
    raise mixed_types_error(place, f" ({types})")


_DECIMAL = re.compile(r"DECIMAL\(([0-9]+),([0-9]+)\)")
# Spark's names of the types, for messages.
_SPARK_NAMES = {
    "VARCHAR": "STRING",
    "BLOB": "BINARY",
    "INTEGER": "INT",
    "TIMESTAMPTZ": "TIMESTAMP",
    "TIMESTAMP": "TIMESTAMP_NTZ",
}


def _type(place: str, type_: Any) -> str:
    """Return the DuckDB type that corresponds to Spark's type for a column of Parquet."""
    if kinds.is_dictionary(type_):
        type_ = type_.value_type
    if kinds.is_timestamp(type_) and type_.unit == "ns":
        raise unreadable(place, NANOSECONDS)
    if kinds.is_nested(type_):
        return _nested_type(place, type_)
    if kinds.is_decimal(type_) and type_.precision <= _MOST_DIGITS:
        return f"DECIMAL({type_.precision},{type_.scale})"
    known = _TYPES.get(_PARAMETERS.sub("", str(type_)))
    if known is None:
        raise _NeedsSparkError(f"it has a column of type {type_}")
    return f"{known}TZ" if kinds.is_timestamp(type_) and type_.tz is not None else known


def _nested_type(place: str, type_: Any) -> str:
    if kinds.is_map(type_):
        return f"MAP({_type(place, type_.key_type)}, {_type(place, type_.item_type)})"
    if kinds.is_struct(type_):
        fields = (f"{_quoted(field.name)} {_type(place, field.type)}" for field in type_)
        return f"STRUCT({', '.join(fields)})"
    return f"{_type(place, type_.value_type)}[]"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_MOST_DIGITS = 38
_PARAMETERS = re.compile(r"\[.*\]")  # as in `timestamp[us, tz=UTC]`
_TYPES = {
    **dict.fromkeys(("string", "large_string", "string_view"), "VARCHAR"),
    **dict.fromkeys(("binary", "large_binary", "binary_view", "fixed_size_binary"), "BLOB"),
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "uint8": "SMALLINT",
    "uint16": "INTEGER",
    "uint32": "BIGINT",
    "uint64": "DECIMAL(20,0)",
    "float": "FLOAT",
    "double": "DOUBLE",
    **dict.fromkeys(("date32", "date64"), "DATE"),
    "timestamp": "TIMESTAMP",
    "null": "INTEGER",
}
"""DuckDB types by Arrow type.  Unsigned integers get larger types, because Spark has no unsigned
types."""
