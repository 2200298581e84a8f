"""Tables that a user gives, as Spark opens them: any name of a catalog, and any folder of Delta or
of Parquet."""

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
    unreadable,
    with_other_types,
)
from claimlib.engine.parquet_folder import refuse_mixed_folders
from claimlib.engine.relation import External
from claimlib.schema import quote_identifier
from claimlib.session import check_file_names

# What Delta says of a folder that has no log of it.
_NO_DELTA = (
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_PATH_DOES_NOT_EXIST",
    "DELTA_TABLE_ONLY_OPERATION",
)


def open_by_spark(spark: SparkSession, place: str) -> Input:
    """Open a table that a user gave.

    Of a Delta table it is the current version, fixed from then on; of Parquet the files that are
    there now.  A view, or another kind of table, cannot be fixed.

    Raises:
        InputError: there is no table, or Spark cannot read it, or would not read all of it.
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
        # Over Spark Connect a table is first looked for when its columns are.
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
"""What Spark's conditions mean here."""


def delta_version(spark: SparkSession, identifier: str, *, has_name: bool) -> int | None:
    """Return the table's version, or None if it is no Delta table."""
    try:
        newest = spark.sql(f"DESCRIBE HISTORY {identifier} LIMIT 1").first()
    except PySparkException as error:
        # A folder of Delta that cannot be read now must not be taken for Parquet: its files hold
        # rows that were deleted.  What a name is, the catalog knows.
        if not has_name and error.getCondition() not in _NO_DELTA:
            raise
        return None
    return int(newest["version"]) if newest is not None else None


def _read_parquet(spark: SparkSession, place: str) -> DataFrame:
    """Return the files that are there now, with the columns of all of them (null where a file lacks
    one).

    A time that is the name of a folder is UTC if it has no zone, as one in a column is.
    """
    path = _literal(place)
    # What its files hold does not matter to the list of them.
    every = spark.read.option("recursiveFileLookup", "true").schema("n INT").parquet(path)
    files = [PurePosixPath(unquote(urlsplit(file).path)) for file in every.inputFiles()]
    refuse_mixed_folders(place, files)
    # Else the columns are those of one file, and the session's zone applies to names of folders.
    reader = spark.read.option("mergeSchema", "true").option("timeZone", "UTC")
    try:
        frame = reader.parquet(path)
        _ = frame.schema  # over Spark Connect files are looked at now
    except Exception as error:
        # Of files that are looked at in tasks, what is wrong is only said in the text.
        if "CANNOT_MERGE" not in str(error):
            raise
        types = _OTHER_TYPES.search(str(error))
        raise with_other_types(place, f" ({types[1]} and {types[2]})" if types else "") from error
    return frame


_OTHER_TYPES = re.compile(r'incompatible data types "([^"]+)" and "([^"]+)"')


def _literal(path: str) -> str:
    """Return a path that Spark takes as it stands.

    Of Parquet it would else read what a glob matches, and `e{a,b}` names a folder here, not `ea`.
    """
    return re.sub(r"[\\{}\[\]*?]", r"\\\g<0>", path)
