"""What a run is doing: on a terminal its phase, how far Spark is with it, and how long that may
still take; in a log each phase, as it begins, and now and then how far it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from pyspark.sql import SparkSession
from rich.status import Status
from rich.text import Text

from claimlib.cli.tasks import Pace, Stage, stages_of
from claimlib.runs import Phase, Progress, silent
from claimlib.terminal import error_console, one_line, say

_POLL_S = 0.5
_LOGGED_EVERY_S = 10.0
_STARTING = "starting Spark"
_BEFORE_A_RUN = "reading the store"


Start = Callable[[], SparkSession]
Tell = Callable[[str, str], None]
"""As `Progress`; besides the phases of a run there is what comes before it."""


@contextmanager
def shown(
    start: Start, *, quiet: bool = False, verbose: bool = False
) -> Iterator[tuple[Start, Progress]]:
    """`start`, which says what it does, and a progress callback that shows what it is told, both on
    stderr.

    Args:
        quiet: nothing is shown.
        verbose: also how long each phase took is shown, and in a log each detail.
    """
    if quiet:
        yield start, silent
        return
    # The console writes to a copy: stderr is turned away from the terminal while the JVM starts.
    with error_console() as console:
        if console is None:
            log = Log(every_s=0 if verbose else _LOGGED_EVERY_S)
            with _timed(log.tell, say, verbose=verbose) as tell:
                yield partial(_started, start, tell), tell
            return
        with (
            console.status(_BEFORE_A_RUN) as status,
            _watched(_Line(status)) as line,
            _timed(line.tell, line.leave, verbose=verbose) as tell,
        ):
            yield (lambda: line.watch_spark(_started(start, tell))), tell


def _started(start: Start, tell: Tell) -> SparkSession:
    tell(_STARTING, "")
    spark = start()
    tell(_BEFORE_A_RUN, "")
    return spark


class Log:
    """Lines in a log, which nobody reads as they come: each phase, and of its details one in ten
    seconds."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, *, every_s: float = _LOGGED_EVERY_S
    ) -> None:
        """Args:
        clock: seconds, since whenever.
        every_s: of the details of a phase one in so many seconds is said.
        """
        self._clock = clock
        self._every_s = every_s
        self._phase = ""
        self._said_at = 0.0

    def tell(self, phase: str, detail: str) -> None:
        """The run's present phase."""
        now = self._clock()
        # Each run that is recovered is another one, and is named.
        is_within = phase == self._phase and phase != Phase.RECOVER
        if is_within and now - self._said_at < self._every_s:
            return
        self._phase, self._said_at = phase, now
        say(_text(phase, detail))


@contextmanager
def _timed(tell: Tell, say_text: Callable[[str], None], *, verbose: bool) -> Iterator[Tell]:
    """`tell`; verbose, also how long each phase took is said, once it has ended."""
    if not verbose:
        yield tell
        return
    durations = Durations(tell, say_text)
    yield durations.tell
    durations.end()  # not where an error ends the run: that phase has not come to its end


class Durations:
    """Passes on what it is told, and says how long each phase took."""

    def __init__(
        self,
        tell: Tell,
        say_text: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        say_text: says a line that stays.
        clock: seconds, since whenever.
        """
        self._tell = tell
        self._say = say_text
        self._clock = clock
        self._phase = self._text = ""
        self._since = 0.0

    def tell(self, phase: str, detail: str) -> None:
        """The run's present phase."""
        if phase != self._phase:
            self.end()
            self._phase, self._since = phase, self._clock()
        self._text = _text(phase, detail)
        self._tell(phase, detail)

    def end(self) -> None:
        """The present phase has ended."""
        if self._phase:
            self._say(f"{self._text} · took {self._clock() - self._since:,.1f} s")
        self._phase = ""


@contextmanager
def _watched(line: _Line) -> Iterator[_Line]:
    """The line, to which a thread adds how far Spark is."""
    watcher = threading.Thread(target=line.watch, daemon=True)
    watcher.start()
    try:
        yield line
    finally:
        line.ended.set()
        watcher.join()
        line.forget_spark()


class _Line:
    """The line on the terminal: written by the run (`tell`) and by the thread that polls Spark."""

    def __init__(self, status: Status, pace: Pace | None = None) -> None:
        self.ended = threading.Event()
        self._status = status
        self._text = _BEFORE_A_RUN
        self._pace = pace or Pace()
        self._stages: Callable[[], list[Stage]] = list
        self._of_spark = ExitStack()

    def watch_spark(self, spark: SparkSession) -> SparkSession:
        """From now on the session's tasks are shown."""
        self._stages = stages_of(spark, self._of_spark)
        return spark

    def forget_spark(self) -> None:
        """The session's tasks are shown no longer."""
        self._stages = list
        self._of_spark.close()

    def tell(self, phase: str, detail: str) -> None:
        """The run's present phase."""
        self._text = _text(phase, detail)
        self._status.update(Text(self._text))

    def leave(self, text: str) -> None:
        """Write a line that stays, above this one."""
        self._status.console.print(Text(f"claimlib: {one_line(text)}"))

    def watch(self) -> None:
        """Add Spark's tasks to the line, twice a second, until the run ends."""
        while not self.ended.wait(_POLL_S):
            self.poll()

    def poll(self) -> None:
        """Add Spark's tasks to the line."""
        try:
            stages = self._stages()
        except Exception:  # noqa: BLE001 - a JVM that has ended: the run itself says so
            stages = []
        tasks = self._pace.text(stages)
        self._status.update(Text(f"{self._text} · {tasks}" if tasks else self._text))


def _text(phase: str, detail: str) -> str:
    return one_line(f"{phase} · {detail}") if detail else str(phase)
