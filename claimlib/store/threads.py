"""Calls that are made a few at a time, and writers that are kept apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import RLock
from typing import TypeVar

# At a time: what is small waits for storage and for Spark's planning, not for all processors.
_THREADS = 4
T = TypeVar("T")


def concurrently(calls: Iterable[Callable[[], T]]) -> list[T]:
    """The results of calls that do not write to each other's tables, made a few at a time.

    All have ended when this returns, or raises what the first of them raised.
    """
    with ThreadPoolExecutor(_THREADS) as threads:
        return [future.result() for future in [threads.submit(call) for call in calls]]


class _Writes:
    """The writes of this process, by table.  Spark's local file system looks whether a commit is
    there before it puts its own in place; in between no other is to come."""

    def __init__(self) -> None:
        # Reentrant: who has it may find that Spark has to write after all.
        self._lock = RLock()
        self._by_spark: Counter[str] = Counter()

    @contextmanager
    def by_spark(self, table: str) -> Iterator[None]:
        """Until the block ends, Spark may commit to a table; so may others by Spark."""
        with self._lock:
            self._by_spark[table] += 1
        try:
            yield
        finally:
            with self._lock:
                self._by_spark[table] -= 1

    @contextmanager
    def alone(self, table: str) -> Iterator[bool]:
        """Whether Spark does not write to a table; then it does not before the block has ended."""
        with self._lock:
            yield not self._by_spark[table]


WRITES = _Writes()
