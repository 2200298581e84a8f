"""What a run is doing: on a terminal its phase, and how far Spark is with the present stage; in a
log each phase, as it begins, and now and then how far it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.status import Status
from rich.text import Text

from claimlib.runs import Phase, Progress
from claimlib.terminal import error_console, one_line, say

_POLL_S = 0.5
_LOGGED_EVERY_S = 10.0
_STARTING = "starting Spark"
_BEFORE_A_RUN = "reading the store"


Start = Callable[[], SparkSession]


@contextmanager
def shown(start: Start, *, quiet: bool = False) -> Iterator[tuple[Start, Progress]]:
    """`start`, which says what it does, and a progress callback that shows what it is told, both on
    stderr; quiet, nothing is shown."""
    if quiet:
        yield start, _silent
        return
    # The console writes to a copy: stderr is turned away from the terminal while the JVM starts.
    with error_console() as console:
        if console is None:
            yield partial(_started, start), Log().tell
            return
        with console.status(_BEFORE_A_RUN) as status:
            line = _Line(status)
            watcher = threading.Thread(target=line.watch, daemon=True)
            watcher.start()
            try:
                yield partial(line.started, start), line.tell
            finally:
                line.ended.set()
                watcher.join()


def _started(start: Start) -> SparkSession:
    say(_STARTING)
    spark = start()
    say(_BEFORE_A_RUN)
    return spark


def _silent(phase: Phase, detail: str) -> None:
    del phase, detail


class Log:
    """Lines in a log, which nobody reads as they come: each phase, and of its details one in ten
    seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Args: clock: seconds, since whenever."""
        self._clock = clock
        self._phase: Phase | None = None
        self._said_at = 0.0

    def tell(self, phase: Phase, detail: str) -> None:
        """The run's present phase."""
        now = self._clock()
        # Each run that is recovered is another one, and is named.
        is_within = phase is self._phase and phase is not Phase.RECOVER
        if is_within and now - self._said_at < _LOGGED_EVERY_S:
            return
        self._phase, self._said_at = phase, now
        say(_text(phase, detail))


class _Line:
    """The line on the terminal: written by the run (`tell`) and by the thread that polls Spark."""

    def __init__(self, status: Status) -> None:
        self.ended = threading.Event()
        self._spark: SparkSession | None = None
        self._status = status
        self._text = _BEFORE_A_RUN

    def started(self, start: Start) -> SparkSession:
        """The session, once it is there."""
        self._show(_STARTING)
        self._spark = start()
        self._show(_BEFORE_A_RUN)
        return self._spark

    def tell(self, phase: Phase, detail: str) -> None:
        """The run's present phase."""
        self._show(_text(phase, detail))

    def _show(self, text: str) -> None:
        self._text = text
        self._status.update(Text(text))

    def watch(self) -> None:
        """Add Spark's tasks to the line, twice a second, until the run ends."""
        while not self.ended.wait(_POLL_S):
            tasks = "" if self._spark is None else _tasks(self._spark)
            self._status.update(Text(f"{self._text}{tasks}"))


def _tasks(spark: SparkSession) -> str:
    """How many tasks of the active stages are done; nothing where Spark tells none (Connect)."""
    try:
        tracker = spark.sparkContext.statusTracker()
    except PySparkException:
        return ""
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    if not known:
        return ""
    done = sum(stage.numCompletedTasks for stage in known)
    return f" · {done:,} of {sum(stage.numTasks for stage in known):,} tasks"


def _text(phase: Phase, detail: str) -> str:
    return one_line(f"{phase} · {detail}") if detail else str(phase)
