"""Open given tables with Spark: any catalog name, and any folder of Delta or Parquet."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from claimlib.engine.inputs import (
    NANOSECONDS,
    NO_TABLE,
    NOT_IN_CATALOG,
    NOTHING_THERE,
    Input,
    is_name,
    mixed_types_error,
    unreadable,
)
from claimlib.engine.parquet_folder import refuse_mixed_folders
from claimlib.engine.relation import External
from claimlib.schema import quote_identifier
from claimlib.session import check_file_names

# Delta's error conditions for a folder without a transaction log.
_NO_DELTA = (
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_PATH_DOES_NOT_EXIST",
    "DELTA_TABLE_ONLY_OPERATION",
)


def open_by_spark(spark: SparkSession, place: str) -> Input:
    """Open a given table.

    A Delta table is fixed at its current version, and a folder of Parquet at its current files.  A
    catalog name of another kind of table, or of a view, cannot be fixed.

    Raises:
        InputError: the table does not exist, or Spark cannot read it completely.
    """
    check_file_names(spark, place)
    name = ".".join(map(quote_identifier, place.split("."))) if is_name(place) else None
    identifier = name or f"delta.{quote_identifier(place)}"
    try:
        version = delta_version(spark, identifier, has_name=name is not None)
        if version is not None:
            frame = spark.sql(f"SELECT * FROM {identifier} VERSION AS OF {version:d}")
        elif name is not None:
            frame = spark.table(name)
        else:
            frame = _read_parquet(spark, place)
        # Spark Connect finds a missing table only when its columns are read.
        _ = frame.schema
    except PySparkException as error:
        condition = error.getCondition()
        why = _REASONS.get(condition or "") or condition or str(error).partition("\n")[0]
        raise unreadable(place, why) from error
    return Input(External(frame), is_fixed=version is not None or name is None)


_REASONS = {
    "PARQUET_TYPE_ILLEGAL": NANOSECONDS,
    "PATH_NOT_FOUND": NOTHING_THERE,
    "TABLE_OR_VIEW_NOT_FOUND": NOT_IN_CATALOG,
    "REQUIRES_SINGLE_PART_NAMESPACE": "Spark has no such catalog",
    "UNABLE_TO_INFER_SCHEMA": NO_TABLE,
}
"""The reasons for messages, by Spark's error condition."""


def delta_version(spark: SparkSession, identifier: str, *, has_name: bool) -> int | None:
    """Return the version of a table, or None if it is not a Delta table."""
    try:
        newest = spark.sql(f"DESCRIBE HISTORY {identifier} LIMIT 1").first()
    except PySparkException as error:
        # An unreadable folder of Delta must not be read as Parquet, because its files may hold
        # deleted rows.  A catalog name has no such risk, because the catalog knows the kind of the
        # table.
        if not has_name and error.getCondition() not in _NO_DELTA:
            raise
        return None
    return int(newest["version"]) if newest is not None else None


def _read_parquet(spark: SparkSession, place: str) -> DataFrame:
    """Return the rows of the current files, with the columns of all files.

    A value is None if its file lacks the column.  If a time in the name of a folder has no time
    zone, it is in UTC, as in a column.
    """
    path = _literal(place)
    # Any schema will do, because only the names of the files are used.
    all_files = spark.read.option("recursiveFileLookup", "true").schema("n INT").parquet(path)
    files = [PurePosixPath(unquote(urlsplit(file).path)) for file in all_files.inputFiles()]
    refuse_mixed_folders(place, files)
    # Without these options Spark would read only the columns of one file, and use the session's
    # time zone for times in the names of folders.
    reader = spark.read.option("mergeSchema", "true").option("timeZone", "UTC")
    try:
        frame = reader.parquet(path)
        _ = frame.schema  # Spark Connect reads the files now
    except Exception as error:
        # If tasks read the files, only the text of the error contains the condition.
        if "CANNOT_MERGE" not in str(error):
            raise
        types = _OTHER_TYPES.search(str(error))
        raise mixed_types_error(place, f" ({types[1]} and {types[2]})" if types else "") from error
    return frame


_OTHER_TYPES = re.compile(r'incompatible data types "([^"]+)" and "([^"]+)"')


def _literal(path: str) -> str:
    """Return a path with its glob characters escaped.

    Spark would otherwise read the folders that match the path.
    """
    return re.sub(r"[\\{}\[\]*?]", r"\\\g<0>", path)
