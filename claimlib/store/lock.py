"""Lock a store in a folder of this machine, so that one process at a time writes to it.

Spark and delta-rs do not exclude each other when two processes commit to one table.  The lock is
`flock` on a file in the store's folder.  The kernel releases it when the process ends.  Threads of
one process share the lock, because `threads.WRITES` keeps their commits apart.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from claimlib.errors import StorageError, StoreBusyError
from claimlib.times import format_duration_ms, format_instant_ms

FILE = ".claimlib.lock"
"""The name of the lock file, which is never deleted, because another process may wait for it."""
_POLL_S = 0.1
# The errors of the kernel if a file system has no locks.
_CANNOT_LOCK = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENOLCK}
_MOST_BYTES = 2**16

_Key = tuple[int, int, int]
"""The id of a process, and the device and the inode of a file.

The process is a part of the key, because a forked process does not hold the locks of its parent.
"""


@dataclass(frozen=True, slots=True)
class Holder:
    """Describe the run that holds a lock, for the processes that wait for it.

    Attributes:
        run: the key of a run, or a command.
        process: the id of the process that holds the lock.
        host: the name of the machine of this process.
        since_ms: the time when the process took the lock, in ms since the epoch.
    """

    run: str
    process: int
    host: str
    since_ms: int

    @classmethod
    def of_this_process(cls, run: str) -> Holder:
        """Return a holder for this process, which takes the lock now."""
        return cls(run, os.getpid(), socket.gethostname(), time.time_ns() // 1_000_000)

    @classmethod
    def read(cls, path: Path) -> Holder | None:
        """Return the holder that a lock file names, or None if it names none."""
        try:
            with path.open("rb") as file:
                values = json.loads(file.read(_MOST_BYTES))
            return cls(
                run=str(values["run"]),
                process=int(values["process"]),
                host=str(values["host"]),
                since_ms=int(values["since_ms"]),
            )
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def __str__(self) -> str:
        """Return the text that names the holder in messages."""
        since = format_instant_ms(self.since_ms)
        return f"{self.run} (process {self.process} on {self.host}, since {since})"


def _tell_nothing(text: str) -> None:
    del text


@dataclass
class WriteLock:
    """Let one process at a time write to a store.

    Attributes:
        folder: the store's folder.  None if the store is elsewhere.  Such a store is not locked.
        wait_ms: the time to wait for another process, in ms.  None means without limit.
    """

    folder: Path | None
    wait_ms: int | None = None

    @contextmanager
    def held_for(self, run: str, tell: Callable[[str], None] = _tell_nothing) -> Iterator[None]:
        """Hold the lock while the block runs.

        If the file system cannot lock any file, the block runs without the lock.

        Args:
            run: the key of a run, or a command.  Waiting processes show it.
            tell: receives a message if this process waits, or if the store cannot be locked.

        Raises:
            StoreBusyError: another process still holds the lock after `wait_ms`.
            StorageError: the lock file cannot be opened or locked, for example because this user
                has no permission.
        """
        share = None if self.folder is None else self._wait_and_take(self.folder, run, tell)
        try:
            yield
        finally:
            if share is not None:
                _LOCKS.release(*share)

    def _wait_and_take(
        self, folder: Path, run: str, tell: Callable[[str], None]
    ) -> tuple[_Key, Holder] | None:
        """Wait for the lock and take it, or return None if the store cannot be locked."""
        path, began_s, last_text = folder / FILE, time.monotonic(), ""
        wait_s = math.inf if self.wait_ms is None else self.wait_ms / 1000
        while True:
            try:
                share = _LOCKS.take(path, run)
            except OSError as error:
                if error.errno not in _CANNOT_LOCK:
                    raise StorageError(
                        f"{path} cannot be locked ({error.strerror}), so nothing was written. Run"
                        " the command again once that is repaired",
                        file=str(path),
                    ) from error
                tell(f"the store cannot be locked ({error.strerror}): start no other command")
                return None
            if share is not None:
                return share
            left_s = began_s + wait_s - time.monotonic()
            holder = Holder.read(path)
            if left_s <= 0:
                raise self._busy(holder)
            text = f"waiting for {holder or 'another process'}"
            if text != last_text:
                tell(text)
                last_text = text
            time.sleep(min(_POLL_S, left_s))

    def _busy(self, holder: Holder | None) -> StoreBusyError:
        details = dict.fromkeys(Holder.__slots__) if holder is None else asdict(holder)
        return StoreBusyError(
            f"{self.folder} is locked by {holder or 'another process'}, which still writes to it"
            f" after {format_duration_ms(self.wait_ms or 0)}. Nothing was done. Run the command"
            " again later, or wait longer (--wait 1h; without --wait there is no limit)",
            where=str(self.folder),
            **details,
        )


@dataclass
class _Lock:
    """Hold a lock of this process: the descriptor of its file, and the runs that share it."""

    file: int
    holders: list[Holder] = field(default_factory=list)

    def name_holder(self) -> None:
        """Write into the file which run has held the lock for the longest time."""
        text = json.dumps(asdict(self.holders[0])).encode() if self.holders else b""
        with suppress(OSError):  # the lock is valid without its text, for example on a full disk
            os.ftruncate(self.file, 0)
            os.pwrite(self.file, text, 0)


class _Locks:
    """Keep the locks of this process."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[_Key, _Lock] = {}

    def take(self, path: Path, run: str) -> tuple[_Key, Holder] | None:
        """Take a lock, or share it with another thread, or return None if another process has it.

        Raises:
            StorageError: this user has no permission to open the file.
            OSError: the file system cannot lock the file.
        """
        with self._guard:
            file = _opened(path)
            key = os.getpid(), *_identity(file)
            if key in self._locks:
                os.close(file)
            elif _try_lock(file):
                self._locks[key] = _Lock(file)
            else:
                return None
            holder = Holder.of_this_process(run)
            self._locks[key].holders.append(holder)
            self._locks[key].name_holder()
            return key, holder

    def release(self, key: _Key, holder: Holder) -> None:
        """Release a lock that `take` returned.  Other threads may still share the lock."""
        with self._guard:
            lock = self._locks[key]
            lock.holders.remove(holder)
            lock.name_holder()
            if not lock.holders:
                del self._locks[key]
                # Unlock first, because closing does not release the lock if a forked process has
                # the descriptor, too.
                fcntl.flock(lock.file, fcntl.LOCK_UN)
                os.close(lock.file)


_LOCKS = _Locks()


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except PermissionError as error:
        raise StorageError(
            f"no permission to write to the lock file {path}: change its permissions",
            file=str(path),
        ) from error


def _identity(file: int) -> tuple[int, int]:
    """Return the device and the inode of a file, which are the same for all of its paths."""
    status = os.fstat(file)
    return status.st_dev, status.st_ino


def _try_lock(file: int) -> bool:
    """Lock a file and return True, or close it and return False if another process has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(file)
        if isinstance(error, BlockingIOError):
            return False
        raise
    return True
