"""A given folder of Parquet files: all of its rows, with all of their columns, or an error."""

from __future__ import annotations

import re
from os.path import commonpath
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame, SparkSession

from claimlib.errors import InputError


def read_parquet(spark: SparkSession, place: str) -> DataFrame:
    """The files that are there now, with the columns of all of them (null where a file lacks one).
    A time that is the name of a folder is UTC if it has no zone, as one in a column is.

    Raises:
        InputError: Spark would pass over some of the files without a word.
    """
    path = _literal(place)
    # What its files hold does not matter to the list of them.
    every = spark.read.option("recursiveFileLookup", "true").schema("any INT").parquet(path)
    _refuse_mixed_folders(place, every.inputFiles())
    # Else the columns are those of one file, and the session's zone applies to names of folders.
    reader = spark.read.option("mergeSchema", "true").option("timeZone", "UTC")
    try:
        return reader.parquet(path)
    except Exception as error:
        # Of files that are looked at in tasks, what is wrong is only said in the text.
        if "CANNOT_MERGE" in str(error):
            raise InputError(
                f"{place} cannot be read as a table: its files have columns of the same name but of"
                " different types",
                table=place,
            ) from error
        raise


def _literal(path: str) -> str:
    """A path that Spark takes as it stands: of Parquet it would else read what a glob matches, and
    `e{a,b}` names a folder here, not `ea`."""
    return re.sub(r"[\\{}\[\]*?]", r"\\\g<0>", path)


def _refuse_mixed_folders(place: str, files: list[str]) -> None:
    """Of a folder that holds files and folders Spark reads only one of both: the folders, if they
    are called `name=value`, else the files."""
    folders = sorted({PurePosixPath(unquote(urlsplit(file).path)).parent for file in files})
    if len(folders) < 2:
        return
    top = commonpath(folders)
    names = {_partition_names(folder.relative_to(top)) for folder in folders}
    if None not in names and len(names) == 1:
        return
    raise InputError(
        f"{place}: Spark would not read all of its files, which are in {_listed(folders)}: put all"
        " of them into one folder, or into folders that are divided by the same columns, as in"
        " day=2026-01-01",
        table=place,
    )


def _partition_names(relative: PurePosixPath) -> tuple[str, ...] | None:
    """The names of the columns that the folders of a path stand for; null: one is none."""
    parts = [part.partition("=") for part in relative.parts]
    if not all(name and equals for name, equals, _ in parts):
        return None
    return tuple(name for name, *_ in parts)


_SHOWN = 3


def _listed(folders: list[PurePosixPath]) -> str:
    shown = ", ".join(map(str, folders[:_SHOWN]))
    more = len(folders) - _SHOWN
    return f"{shown} and {more:,} more" if more > 0 else shown
