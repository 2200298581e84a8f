"""Make a few calls at a time, and keep writers of one table apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock, RLock
from typing import TypeVar

# The number of calls at a time.  Small calls wait for storage and for Spark's planning, and do not
# need all processors.
_THREADS = 4
T = TypeVar("T")


def concurrently(calls: Iterable[Callable[[], T]]) -> list[T]:
    """Make calls, a few at a time, and return their results.

    The calls must not write to each other's tables.  All calls have ended when this function
    returns.  If several calls raise errors, the error of the first of them is raised.
    """
    with ThreadPoolExecutor(_THREADS) as threads:
        return [future.result() for future in [threads.submit(call) for call in calls]]


class _Writes:
    """Keep commits of Spark and commits of the embedded engine to one table apart.

    On a local file system, Spark first checks that a version has no commit yet, and then writes its
    commit.  The embedded engine must not commit between these two steps.
    """

    def __init__(self) -> None:
        self._guard = Lock()
        self._tables: dict[str, _Table] = {}

    @contextmanager
    def by_spark(self, table: str) -> Iterator[None]:
        """Let Spark commit to a table until the block ends.

        Other threads may also commit to the table by Spark.
        """
        of_table = self._of(table)
        with of_table.lock:
            of_table.writes_by_spark += 1
        try:
            yield
        finally:
            with of_table.lock:
                of_table.writes_by_spark -= 1

    @contextmanager
    def alone(self, table: str) -> Iterator[bool]:
        """Yield True if Spark does not commit to a table now, and False if it does.

        Until the block ends, Spark does not begin to commit to the table.
        """
        of_table = self._of(table)
        with of_table.lock:
            yield not of_table.writes_by_spark

    def _of(self, table: str) -> _Table:
        with self._guard:
            return self._tables.setdefault(table, _Table())


@dataclass
class _Table:
    # Reentrant for tests, which commit to a table while another commit to it is being made.
    lock: RLock = field(default_factory=RLock)
    writes_by_spark: int = 0


WRITES = _Writes()
