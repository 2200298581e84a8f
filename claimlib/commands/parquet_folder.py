"""A given folder of Parquet files: all of its rows, with all of their columns, or an error."""

from __future__ import annotations

import re
from os.path import commonpath, normpath
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame, SparkSession

from claimlib.errors import InputError
from claimlib.terminal import listed


def read_parquet(spark: SparkSession, place: str) -> DataFrame:
    """The files that are there now, with the columns of all of them (null where a file lacks one).
    A time that is the name of a folder is UTC if it has no zone, as one in a column is.

    Raises:
        InputError: Spark would pass over some of the files without a word, or a column has
            different types in them.
    """
    path = _literal(place)
    # What its files hold does not matter to the list of them.
    every = spark.read.option("recursiveFileLookup", "true").schema("n INT").parquet(path)
    _refuse_mixed_folders(place, every.inputFiles())
    # Else the columns are those of one file, and the session's zone applies to names of folders.
    reader = spark.read.option("mergeSchema", "true").option("timeZone", "UTC")
    try:
        frame = reader.parquet(path)
        _ = frame.schema  # over Spark Connect files are looked at now
    except Exception as error:
        # Of files that are looked at in tasks, what is wrong is only said in the text.
        types = _OTHER_TYPES.search(str(error))
        if "CANNOT_MERGE" not in str(error):
            raise
        said = f" ({types[1]} and {types[2]})" if types else ""
        raise InputError(
            f"{place} cannot be read as a table: its files have columns of the same name but of"
            f" different types{said}: write all of them with the same types",
            table=place,
        ) from error
    return frame


_OTHER_TYPES = re.compile(r'incompatible data types "([^"]+)" and "([^"]+)"')


def _literal(path: str) -> str:
    """A path that Spark takes as it stands: of Parquet it would else read what a glob matches, and
    `e{a,b}` names a folder here, not `ea`."""
    return re.sub(r"[\\{}\[\]*?]", r"\\\g<0>", path)


def _refuse_mixed_folders(place: str, files: list[str]) -> None:
    """Of a folder with files and folders in it, Spark reads only one of both: the folders, if they
    are called `name=value`, else the files."""
    paths = [PurePosixPath(unquote(urlsplit(file).path)) for file in files]
    folders = sorted({path.parent for path in paths if not _MARKER.search(path.name)})
    if len(folders) < 2:
        return
    top = _place_in_storage(place)
    if not all(folder.is_relative_to(top) for folder in folders):  # by a symbolic link
        top = PurePosixPath(commonpath(folders))
    divided = {_partition_names(folder.relative_to(top)) for folder in folders}
    if len(divided) == 1 and divided != {()}:
        return
    raise InputError(
        f"{place}: Spark would not read all of its files, which are in {_listed(folders)}: put all"
        " of them into one folder, or into folders that are divided by the same columns, as in"
        " day=2026-01-01",
        table=place,
    )


# Files that writers leave beside the rows, and that Spark does not take for any.
_MARKER = re.compile(r"\A_[^=]*\Z|_\$folder\$\Z")


def _place_in_storage(place: str) -> PurePosixPath:
    """A place without its scheme and its host."""
    return PurePosixPath(normpath(re.sub(r"\A[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?", "", place)))


def _partition_names(relative: PurePosixPath) -> tuple[str, ...]:
    """The names of the columns that the folders of a path stand for."""
    parts = [part.partition("=") for part in relative.parts]
    return tuple(name.lower() for name, equals, _ in parts if name and equals)


_SHOWN = 3


def _listed(folders: list[PurePosixPath]) -> str:
    return listed([str(folder) for folder in folders[:_SHOWN]], len(folders))
