"""Queries of few rows: interpreted, not compiled.

Spark writes Java code for each query and compiles it.  The numbers that a run brings, its own and
its instant, stand in that code, so that each run compiles again: a sweep of 2,000 rows 18 classes,
a page 24, a snapshot 38.  Interpreted, in turns with compiled in one process, a sweep took 1.50 s
instead of 1.90, a dry run 0.95 instead of 1.16, a page 2.05 instead of 2.19.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

MOST_ROWS = 10_000
"""Of more rows, queries are compiled: of 40,000 rows a sweep took 2.0 s, interpreted
2.9 s."""
SETTINGS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


class _Sessions:
    """In how many blocks each session is, and which settings are to be given back."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._blocks: WeakKeyDictionary[SparkSession, int] = WeakKeyDictionary()
        self._before: WeakKeyDictionary[SparkSession, dict[str, str]] = WeakKeyDictionary()

    def enter(self, spark: SparkSession) -> None:
        with self._lock:
            blocks = self._blocks.get(spark, 0)
            self._blocks[spark] = blocks + 1
            if blocks == 0:
                self._before[spark] = {}
                _interpret(spark, self._before[spark])

    def leave(self, spark: SparkSession) -> None:
        with self._lock:
            self._blocks[spark] -= 1
            if self._blocks[spark] == 0:
                for name, value in self._before.pop(spark).items():
                    with suppress(Exception):  # a session that has ended has no settings
                        spark.conf.set(name, value)


def _interpret(spark: SparkSession, before: dict[str, str]) -> None:
    """Have a session interpret; `before` gets what it had set otherwise.  Where it does not let
    this be set, as serverless compute does not, queries are compiled."""
    with suppress(PySparkException):
        for name, value in SETTINGS.items():
            was = str(spark.conf.get(name))
            if was != value:
                before[name] = was
                spark.conf.set(name, value)


_SESSIONS = _Sessions()


@contextmanager
def interpreted(spark: SparkSession, *, are_few: bool = True) -> Iterator[None]:
    """Until the block ends, the session's queries are interpreted; then its settings are as they
    were.  Blocks of several threads may overlap: what else the session does meanwhile gives the
    same, and is slower where it has many rows.

    Args:
        are_few: whether the queries are about few rows; else they are compiled, as ever.
    """
    if not are_few:
        yield
        return
    try:
        _SESSIONS.enter(spark)
        yield
    finally:
        _SESSIONS.leave(spark)
