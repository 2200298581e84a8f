"""Count the finished tasks of Spark's present work, and estimate the time left."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark.sql.connect.shell.progress import ProgressHandler, StageInfo

# Before this time, a single task changes the estimate too much.
_ESTIMATED_FROM_S = 5.0


class Stage(NamedTuple):
    """Hold a stage that Spark is working on."""

    number: int
    finished_tasks: int
    all_tasks: int


class Pace:
    """Estimate the time left, from the numbers of finished tasks at different times."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without stages.

        Args:
            clock: monotonic time in seconds.
        """
        self._clock = clock
        self._seen_since: Mapping[int, float] = {}
        self._done = 0
        self._done_at = 0.0

    def text(self, stages: Sequence[Stage]) -> str:
        """Return the number of finished tasks of these stages, and the time left, as a text."""
        now = self._clock()
        self._seen_since = {
            stage.number: self._seen_since.get(stage.number, now) for stage in stages
        }
        done, total = (
            sum(stage.finished_tasks for stage in stages),
            sum(stage.all_tasks for stage in stages),
        )
        if done != self._done:
            self._done, self._done_at = done, now
        if not stages:
            return ""
        tasks = f"{done:,} of {total:,} tasks"
        left_s = self._left_s(total, now)
        return tasks if left_s is None else f"{tasks} · {_time_left(left_s)}"

    def _left_s(self, total: int, now: float) -> float | None:
        """Estimate the time left in seconds, from the pace up to the task that ended last.

        So the estimate decreases until the next task ends.  It is None if it is not known yet, or
        if the work takes longer than estimated.
        """
        began = min(self._seen_since.values())
        if not self._done or now - began < _ESTIMATED_FROM_S:
            return None
        took = self._done_at - began
        left = took * (total - self._done) / self._done - (now - self._done_at)
        return left if left > 0 else None


def _time_left(seconds: float) -> str:
    if seconds < 10:
        return "a few seconds left"
    if seconds <= 50:
        return f"about {10 * math.ceil(seconds / 10)} s left"
    if seconds <= 59 * 60:
        return f"about {math.ceil(seconds / 60)} min left"
    return f"about {seconds / 3600:.1f} h left"


# ------------------------------------------------------------------- sources of stages


def stages_of(spark: SparkSession, ended: ExitStack) -> Callable[[], list[Stage]]:
    """Return a function that returns the stages that a session is working on.

    Args:
        ended: the caller closes it when the stages are no longer needed.  The session may exist for
            longer.
    """
    reported = _ReportedStages()
    handler = cast("ProgressHandler", reported)  # importing that class needs packages of Connect
    try:
        spark.registerProgressHandler(handler)
    except PySparkException:  # the session has its own JVM, whose status tracker knows the stages
        return partial(_active_stages, spark)
    ended.callback(spark.removeProgressHandler, handler)
    return reported.now


def _active_stages(spark: SparkSession) -> list[Stage]:
    tracker = spark.sparkContext.statusTracker()
    infos = ((number, tracker.getStageInfo(number)) for number in tracker.getActiveStageIds())
    return [
        Stage(number, info.numCompletedTasks, info.numTasks)
        for number, info in infos
        if info is not None
    ]


class _ReportedStages:
    """Hold the stages that a Connect server reports for each query.

    Each thread that waits for a query calls this object.
    """

    def __init__(self) -> None:
        self._by_query: dict[str | None, list[Stage]] = {}

    def __call__(
        self,
        stages: Iterable[StageInfo] | None,
        inflight_tasks: int,
        operation_id: str | None,
        done: bool,
    ) -> None:
        """Keep the stages of a query that have begun, or all unfinished ones if none has begun.

        See `pyspark.sql.connect.shell.progress.ProgressHandler`.
        """
        del inflight_tasks
        if done:
            self._by_query.pop(operation_id, None)
            return
        unfinished = [
            Stage(info.stage_id, info.num_completed_tasks, info.num_tasks)
            for info in stages or ()
            if not info.done
        ]
        # The server also reports stages that wait for other stages, and stages that never begin,
        # because their results exist already.
        begun = [stage for stage in unfinished if stage.finished_tasks]
        self._by_query[operation_id] = begun or unfinished

    def now(self) -> list[Stage]:
        """Return each query's unfinished stages that have a finished task.

        If a query has no such stage, all its unfinished stages are returned.
        """
        # A list is iterated, because other threads may change the dict meanwhile.
        return [stage for stages in [*self._by_query.values()] for stage in stages]
