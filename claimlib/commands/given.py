"""A given table: a name of the catalog, or a folder or file of Delta or Parquet, as it is now."""

from __future__ import annotations

import re
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from claimlib.errors import InputError
from claimlib.schema import quote_identifier

_NAME = re.compile(r"[\w-]+(\.[\w-]+){0,2}")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://?")


def place_of(given: str) -> str:
    """A given table as it is kept with a run: a name as it is, a relative path made absolute.

    `catalog.schema.table` (or less of it) is a name, anything else a path: a folder of this very
    place is written `./name`.
    """
    if _NAME.fullmatch(given) or _URL.match(given):
        return given
    return str(Path(given).absolute())


def read_given(spark: SparkSession, place: str) -> DataFrame:
    """A table that was given (see `place_of`).  Of a Delta table it is today's version, for good;
    of Parquet the files that are there now; of a view or another kind of table, which cannot be
    held, what Spark finds whenever the frame is run.

    Raises:
        InputError: there is no table, or Spark cannot read it.
    """
    is_name = _NAME.fullmatch(place) is not None
    name = ".".join(map(quote_identifier, place.split("."))) if is_name else None
    identifier = name or f"delta.{quote_identifier(place)}"
    version = _delta_version(spark, identifier)
    try:
        if version is not None:
            return spark.sql(f"SELECT * FROM {identifier} VERSION AS OF {version:d}")
        return spark.table(name) if name is not None else spark.read.parquet(place)
    except PySparkException as error:
        hint = f" (a name of the catalog; a path is written ./{place})" if is_name else ""
        raise InputError(
            f"{place}{hint} cannot be read as a table:"
            f" {error.getCondition() or str(error).splitlines()[0]}",
            table=place,
        ) from error


def _delta_version(spark: SparkSession, identifier: str) -> int | None:
    """The table's version; null: it is no Delta table."""
    try:
        newest = spark.sql(f"DESCRIBE HISTORY {identifier} LIMIT 1").first()
    except PySparkException:
        return None  # why, the reading itself says better
    return int(newest["version"]) if newest is not None else None
