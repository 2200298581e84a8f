"""Calls that are made a few at a time, and writers that are kept apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock, RLock
from typing import TypeVar

# At a time: what is small waits for storage and for Spark's planning, not for all processors.
_THREADS = 4
T = TypeVar("T")


def concurrently(calls: Iterable[Callable[[], T]]) -> list[T]:
    """Return the results of calls that do not write to each other's tables, made a few at a time.

    All have ended when this returns, or raises what the first of them raised.
    """
    with ThreadPoolExecutor(_THREADS) as threads:
        return [future.result() for future in [threads.submit(call) for call in calls]]


class _Writes:
    """The writes of this process, by table.  Spark's local file system looks whether a commit is
    there before it puts its own in place; in between no other is to come."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._tables: dict[str, _Table] = {}

    @contextmanager
    def by_spark(self, table: str) -> Iterator[None]:
        """Until the block ends, Spark may commit to a table; so may others by Spark."""
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
        """Whether Spark does not write to a table; then it does not before the block has ended."""
        of_table = self._of(table)
        with of_table.lock:
            yield not of_table.writes_by_spark

    def _of(self, table: str) -> _Table:
        with self._guard:
            return self._tables.setdefault(table, _Table())


@dataclass
class _Table:
    # Reentrant: who has it may find that Spark has to write after all.
    lock: RLock = field(default_factory=RLock)
    writes_by_spark: int = 0


WRITES = _Writes()
