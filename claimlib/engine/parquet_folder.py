"""Find the files and the partition columns of a folder of Parquet, by Spark's rules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from os.path import commonpath, normpath
from pathlib import Path, PurePosixPath

from claimlib.errors import InputError
from claimlib.terminal import listed


def refuse_mixed_folders(place: str, files: Sequence[PurePosixPath]) -> None:
    """Raise InputError if Spark would read only some of the files.

    If a folder has both files and folders, Spark reads only one kind.  It reads the folders if
    they are named `name=value`, and the files otherwise.

    Args:
        files: all files in the folder, at every depth.
    """
    folders = sorted({path.parent for path in files if not _MARKER.search(path.name)})
    if len(folders) < 2:
        return
    top = _place_in_storage(place)
    if not all(folder.is_relative_to(top) for folder in folders):  # `place` has a symbolic link
        top = PurePosixPath(commonpath(folders))
    partitions = [partition_values(folder.relative_to(top)) for folder in folders]
    partitionings = {(root, *(name.lower() for name, _ in values)) for root, values in partitions}
    if len(partitionings) == 1 and all(values for _, values in partitions):
        return
    shown = listed([str(folder) for folder in folders[:_MOST_SHOWN]], len(folders))
    raise InputError(
        f"{place}: not all of its files would be read. They are in {shown}: put all of them into"
        " one folder, or into folders named after the same columns, as in day=2026-01-01",
        table=place,
    )


_MOST_SHOWN = 3
# Marker files of writers, which Spark ignores, such as _SUCCESS and day_$folder$.
_MARKER = re.compile(r"\A_[^=]*\Z|_\$folder\$\Z")


def _place_in_storage(place: str) -> PurePosixPath:
    """Return a place without its scheme and its host."""
    return PurePosixPath(normpath(re.sub(r"\A[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?", "", place)))


def partition_values(relative: PurePosixPath) -> tuple[PurePosixPath, list[tuple[str, str]]]:
    """Return the partitioned folder, and the partition columns with their values as written.

    Folders below the partition folders need not be named after columns.  For `a/day=1/b`, the
    result is the folder `a` and the column `day` with the value `1`.
    """
    parts = [part.partition("=") for part in relative.parts]
    end = next((n for n in range(len(parts), 0, -1) if parts[n - 1][1]), 0)
    start = next((n for n in range(end, 0, -1) if not parts[n - 1][1]), 0)
    values = [(unescaped(name), value) for name, _, value in parts[start:end]]
    return PurePosixPath(*relative.parts[:start]), values


def unescaped(text: str) -> str:
    """Return a name or a value with its escapes (%3A) replaced."""
    return re.sub("%([0-9A-Fa-f]{2})", lambda match: chr(int(match[1], 16)), text)


def data_files(folder: Path) -> list[Path]:
    """Return the files with rows in a folder, at every depth, by Spark's rules.

    Raises:
        OSError: a folder cannot be read, or a symbolic link forms a loop.
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
    is_marker = name.startswith("_") and "=" not in name
    return is_marker or name.startswith(".") or name.endswith("._COPYING_")
