"""Read each table of a folder again only if its newest version has changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar


class _HasVersion(Protocol):
    @property
    def version(self) -> int: ...


T = TypeVar("T", bound=_HasVersion | None)
_Mark = tuple[int, ...]


class NewestVersions(Generic[T]):
    """Keep what was read of the newest version of each table of a store.

    A table is read again only if another writer has committed to it or replaced it since, because
    reading its log is slow.

    Args:
        read: returns a value of the newest version of the table in a folder.  Several threads may
            use the value.  None is not kept.
    """

    def __init__(self, read: Callable[[Path], T]) -> None:
        self._read = read
        self._known: dict[Path, tuple[T, _Mark]] = {}

    def of(self, table: Path) -> T:
        """Return the value of the newest version of the table in a folder."""
        log = table / "_delta_log"
        value, mark = self._known.get(table, (None, None))
        if value is not None and mark == _mark(log, value.version):
            return value
        log_before = _state(log)
        value = self._read(table)
        mark = None if value is None else _mark(log, value.version)
        # If the table was created again meanwhile, the mark may belong to another commit.
        if value is not None and mark is not None and log_before == _state(log):
            self._known[table] = value, mark
        return value

    def forget(self, table: Path) -> None:
        """Read a table again the next time, even if its log has not changed."""
        self._known.pop(table, None)


def _mark(log: Path, version: int) -> _Mark | None:
    """Return a mark of the commit of a version.  It differs if the table was created again.

    Return None if the version is not the newest, or if the file of its commit was deleted.

    The log is listed for two reasons.  On a network file system, a lookup of a new file may be
    answered from a cache.  And the file of a later commit may be deleted while that of an earlier
    commit is kept.  Then only the name of a checkpoint shows the later version.
    """
    try:
        with os.scandir(log) as files:
            numbers = [file.name[:_DIGITS] for file in files if file.name[:_DIGITS].isdigit()]
    except OSError:
        return None
    number = f"{version:0{_DIGITS}d}"
    return _state(log / f"{number}.json") if max(numbers, default="") == number else None


# The name of a log file begins with its version, padded with zeros to this number of digits.
_DIGITS = 20


def _state(path: Path) -> _Mark | None:
    """Return a value that changes if a file, or the list of files in a folder, changes.

    Return None if the path cannot be read.
    """
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns
