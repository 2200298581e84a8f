"""Folders of Parquet files that a user gives: which files are rows, and of which columns the names
of folders tell.  The rules are Spark's, for both engines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from os.path import commonpath, normpath
from pathlib import Path, PurePosixPath

from claimlib.errors import InputError
from claimlib.terminal import listed


def refuse_mixed_folders(place: str, files: Sequence[PurePosixPath]) -> None:
    """Raise InputError if only some of the files would be read.

    Of files beside folders, Spark reads only one of both: the folders, if they are called
    `name=value`, else the files.

    Args:
        files: all files in the folder and in the folders below.
    """
    folders = sorted({path.parent for path in files if not _MARKER.search(path.name)})
    if len(folders) < 2:
        return
    top = _place_in_storage(place)
    if not all(folder.is_relative_to(top) for folder in folders):  # by a symbolic link
        top = PurePosixPath(commonpath(folders))
    divisions = [partition_values(folder.relative_to(top)) for folder in folders]
    divided = {(above, *(name.lower() for name, _ in values)) for above, values in divisions}
    if len(divided) == 1 and all(values for _, values in divisions):
        return
    shown = listed([str(folder) for folder in folders[:_SHOWN]], len(folders))
    raise InputError(
        f"{place}: not all of its files would be read. They are in {shown}: put all of them into"
        " one folder, or into folders that are divided by the same columns, as in day=2026-01-01",
        table=place,
    )


_SHOWN = 3
# Files that writers leave beside the rows, and that Spark does not take for any.
_MARKER = re.compile(r"\A_[^=]*\Z|_\$folder\$\Z")


def _place_in_storage(place: str) -> PurePosixPath:
    """Return a place without its scheme and its host."""
    return PurePosixPath(normpath(re.sub(r"\A[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?", "", place)))


def partition_values(relative: PurePosixPath) -> tuple[PurePosixPath, list[tuple[str, str]]]:
    """Return the folder that is divided, and the columns that the folders below it stand for, with
    their values as written.  The last folders of a path need not stand for columns."""
    parts = [part.partition("=") for part in relative.parts]
    end = next((n for n in range(len(parts), 0, -1) if parts[n - 1][1]), 0)
    start = next((n for n in range(end, 0, -1) if not parts[n - 1][1]), 0)
    values = [(unescaped(name), value) for name, _, value in parts[start:end]]
    return PurePosixPath(*relative.parts[:start]), values


def unescaped(text: str) -> str:
    """Return a name or a value of a folder as it is meant."""
    return re.sub("%([0-9A-Fa-f]{2})", lambda match: chr(int(match[1], 16)), text)


def data_files(folder: Path) -> list[Path]:
    """Return the files in a folder and in the folders below that Spark takes for rows.

    Raises:
        OSError: a folder may not be read, or a symbolic link leads back to it.
    """
    files: list[Path] = []
    for path in sorted(folder.iterdir()):
        if _is_hidden(path.name):
            continue
        if path.is_dir():
            files += data_files(path)
        elif not _MARKER.search(path.name):
            files.append(path)
    return files


def _is_hidden(name: str) -> bool:
    is_hidden = name.startswith("_") and "=" not in name
    return is_hidden or name.startswith(".") or name.endswith("._COPYING_")
