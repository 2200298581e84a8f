"""How far Spark is with what it has begun, and how long that may still take."""

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

# Before, one task more or less changes too much.
_ESTIMATED_FROM_S = 5.0


class Stage(NamedTuple):
    """A stage that Spark is working on."""

    number: int
    done: int
    total: int


class Pace:
    """From stages as they are seen one moment after the other: what is done, and the time left."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Args: clock: seconds, since whenever."""
        self._clock = clock
        self._seen_since: Mapping[int, float] = {}
        self._done = 0
        self._done_at = 0.0

    def text(self, stages: Sequence[Stage]) -> str:
        """For people: how many tasks of these stages are done, and how long the others may take."""
        now = self._clock()
        self._seen_since = {
            stage.number: self._seen_since.get(stage.number, now) for stage in stages
        }
        done, total = sum(stage.done for stage in stages), sum(stage.total for stage in stages)
        if done != self._done:
            self._done, self._done_at = done, now
        if not stages:
            return ""
        tasks = f"{done:,} of {total:,} tasks"
        left_s = self._left_s(total, now)
        return tasks if left_s is None else f"{tasks} · {_time_left(left_s)}"

    def _left_s(self, total: int, now: float) -> float | None:
        """By the pace up to the task that ended last, so that it becomes less until the next one
        ends, or None if that is not yet known, or it takes longer than it seemed.
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


# ------------------------------------------------------------------- where they are seen


def stages_of(spark: SparkSession, ended: ExitStack) -> Callable[[], list[Stage]]:
    """Return what gives the stages that a session is working on.

    Args:
        ended: closed once nobody wants to know any more: a session may be there longer.
    """
    told = _ToldStages()
    handler = cast("ProgressHandler", told)  # importing that class needs what only Connect has
    try:
        spark.registerProgressHandler(handler)
    except PySparkException:  # the session has its own JVM, which can be asked
        return partial(_active_stages, spark)
    ended.callback(spark.removeProgressHandler, handler)
    return told.now


def _active_stages(spark: SparkSession) -> list[Stage]:
    tracker = spark.sparkContext.statusTracker()
    infos = ((number, tracker.getStageInfo(number)) for number in tracker.getActiveStageIds())
    return [
        Stage(number, info.numCompletedTasks, info.numTasks)
        for number, info in infos
        if info is not None
    ]


class _ToldStages:
    """The stages that a Connect server tells of, query by query: it is called by each thread that
    waits for a query."""

    def __init__(self) -> None:
        self._by_query: dict[str | None, list[Stage]] = {}

    def __call__(
        self,
        stages: Iterable[StageInfo] | None,
        inflight_tasks: int,
        operation_id: str | None,
        done: bool,
    ) -> None:
        """See `pyspark.sql.connect.shell.progress.ProgressHandler`; all stages of the query."""
        del inflight_tasks
        if done:
            self._by_query.pop(operation_id, None)
            return
        unfinished = [
            Stage(info.stage_id, info.num_completed_tasks, info.num_tasks)
            for info in stages or ()
            if not info.done
        ]
        # Told of are also stages that wait for others, and those that never begin, because what
        # they would give is there already.
        begun = [stage for stage in unfinished if stage.done]
        self._by_query[operation_id] = begun or unfinished

    def now(self) -> list[Stage]:
        """Return the stages that had begun, and were not done, when they were last told of; of a
        query none of whose stages has a task done, all.
        """
        return [stage for stages in [*self._by_query.values()] for stage in stages]
