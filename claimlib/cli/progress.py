"""Show what a run is doing.

A terminal shows the phase, the number of Spark's finished tasks, and an estimate of the time left.
A log gets a line for each phase when it begins, and more lines during a long phase.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from pyspark.sql import SparkSession
from rich.status import Status
from rich.text import Text

from claimlib.cli.spark_tasks import Pace, Stage, stages_of
from claimlib.runs import Phase, Progress, silent
from claimlib.terminal import error_console, one_line, say

_POLL_S = 0.5
_LOGGED_EVERY_S = 10.0
_STARTING = "starting Spark"
_BEFORE_A_RUN = "reading the store"


Start = Callable[[], SparkSession]
Tell = Callable[[str, str], None]
"""A callback like `Progress`, which also gets the phases before a run."""


@contextmanager
def shown(
    start: Start, *, quiet: bool = False, verbose: bool = False
) -> Iterator[tuple[Start, Progress]]:
    """Yield `start` and a progress callback.  Both show progress on stderr.

    Args:
        start: starts the session.
        quiet: True to show nothing.
        verbose: True to also show how long each phase took, and to write every detail to a log.
    """
    if quiet:
        yield start, silent
        return
    # The console writes to a copy, because stderr is redirected while the JVM starts.
    with error_console() as console:
        if console is None:
            log = Log(every_s=0 if verbose else _LOGGED_EVERY_S)
            with _timed(log.tell, say, verbose=verbose) as tell:
                yield partial(_start_and_tell, start, tell), tell
            return
        with (
            console.status(_BEFORE_A_RUN) as status,
            _watched(_Line(status)) as line,
            _timed(line.tell, line.leave, verbose=verbose) as tell,
        ):
            yield (lambda: line.watch_spark(_start_and_tell(start, tell))), tell


def _start_and_tell(start: Start, tell: Tell) -> SparkSession:
    tell(_STARTING, "")
    spark = start()
    tell(_BEFORE_A_RUN, "")
    return spark


class Log:
    """Write progress to a log: each phase, and from time to time a detail of it."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, *, every_s: float = _LOGGED_EVERY_S
    ) -> None:
        """Begin without a phase.

        Args:
            clock: monotonic time in seconds.
            every_s: the shortest time between two lines of one phase, in seconds.
        """
        self._clock = clock
        self._every_s = every_s
        self._phase = ""
        self._written_at = 0.0

    def tell(self, phase: str, detail: str) -> None:
        """Write the present phase of the run, or a detail if the last line is old enough."""
        now = self._clock()
        # Each detail of `Phase.RECOVER` names another run, so each gets a line.
        is_same_phase = phase == self._phase and phase != Phase.RECOVER
        if is_same_phase and now - self._written_at < self._every_s:
            return
        self._phase, self._written_at = phase, now
        say(_text(phase, detail))


@contextmanager
def _timed(tell: Tell, say_text: Callable[[str], None], *, verbose: bool) -> Iterator[Tell]:
    """Yield `tell`.  With `verbose`, also write the duration of each phase when it ends."""
    if not verbose:
        yield tell
        return
    durations = Durations(tell, say_text)
    yield durations.tell
    durations.end()  # not after an error, because the phase is then unfinished


class Durations:
    """Pass phases on, and write how long each phase took."""

    def __init__(
        self,
        tell: Tell,
        say_text: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without a phase.

        Args:
            say_text: writes a line that stays.
            clock: monotonic time in seconds.
        """
        self._tell = tell
        self._say = say_text
        self._clock = clock
        self._phase = self._text = ""
        self._since = 0.0

    def tell(self, phase: str, detail: str) -> None:
        """Pass on the present phase of the run."""
        if phase != self._phase:
            self.end()
            self._phase, self._since = phase, self._clock()
        self._text = _text(phase, detail)
        self._tell(phase, detail)

    def end(self) -> None:
        """Write how long the present phase took, because it has ended."""
        if self._phase:
            self._say(f"{self._text} · took {self._clock() - self._since:,.1f} s")
        self._phase = ""


@contextmanager
def _watched(line: _Line) -> Iterator[_Line]:
    """Yield the line, while a thread adds the number of finished tasks to it."""
    watcher = threading.Thread(target=line.watch, daemon=True)
    watcher.start()
    try:
        yield line
    finally:
        line.ended.set()
        watcher.join()
        line.forget_spark()


class _Line:
    """Show the line on the terminal.

    The run (by `tell`) and the thread that polls Spark (by `watch`) both write it.
    """

    def __init__(self, status: Status, pace: Pace | None = None) -> None:
        self.ended = threading.Event()
        self._status = status
        self._text = _BEFORE_A_RUN
        self._pace = pace or Pace()
        self._stages: Callable[[], list[Stage]] = list  # no stages, until there is a session
        self._cleanup = ExitStack()

    def watch_spark(self, spark: SparkSession) -> SparkSession:
        """Show the session's tasks from now on."""
        self._stages = stages_of(spark, self._cleanup)
        return spark

    def forget_spark(self) -> None:
        """Stop showing the session's tasks."""
        self._stages = list
        self._cleanup.close()

    def tell(self, phase: str, detail: str) -> None:
        """Show the present phase of the run."""
        self._text = _text(phase, detail)
        self._status.update(Text(self._text))

    def leave(self, text: str) -> None:
        """Write a permanent line above this one."""
        self._status.console.print(Text(f"claimlib: {one_line(text)}"))

    def watch(self) -> None:
        """Add Spark's tasks to the line, twice a second, until the run ends."""
        while not self.ended.wait(_POLL_S):
            self.poll()

    def poll(self) -> None:
        """Add Spark's tasks to the line."""
        try:
            stages = self._stages()
        except Exception:  # noqa: BLE001 - the JVM has ended: the run itself reports it
            stages = []
        tasks = self._pace.text(stages)
        self._status.update(Text(f"{self._text} · {tasks}" if tasks else self._text))


def _text(phase: str, detail: str) -> str:
    return one_line(f"{phase} · {detail}") if detail else str(phase)
