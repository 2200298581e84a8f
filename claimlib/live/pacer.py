"""Limit how fast claimlib sends commands to a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from claimlib.errors import RequestError, SourceUnreachableError
from claimlib.times import format_duration_ms

if TYPE_CHECKING:
    from claimlib.live.connection import Source

_PAUSE_S = 0.5
_MAX_PAUSES = 600
"""The most pauses in a row, which take five minutes."""


class Pacer:
    """Limit the number of commands per second.

    Commands are evenly spread.  Idle time does not allow more commands later.  Commands that are
    sent together are not delayed in between.  The pause after them is as long as if they had been
    sent one by one.

    Args:
        max_per_second: commands per second.  None means as fast as the server answers.
        clock: monotonic time in seconds.
        sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        max_per_second: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if max_per_second is not None and not max_per_second > 0:
            raise RequestError(
                f"the limit of commands per second must be above 0, not {max_per_second}",
                max_commands_per_second=max_per_second,
            )
        self._interval_s = 0.0 if max_per_second is None else 1.0 / max_per_second
        self.clock = clock
        self._sleep = sleep
        self._free_at = clock()

    def wait_for(self, commands: int) -> None:
        """Wait until a number of commands may be sent together."""
        now = self.clock()
        if now < self._free_at:
            self._sleep(self._free_at - now)
        self._free_at = max(self._free_at, now) + commands * self._interval_s


class LatencyLimit:
    """Pause while a server takes too long to answer.

    Args:
        max_latency_ms: the longest time to an answer.  None means no limit.
        tell: called with a text for each pause.
        sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        max_latency_ms: int | None,
        tell: Callable[[str], None],
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._max_ms = max_latency_ms
        self._tell = tell
        self._sleep = sleep

    def wait(self, sources: Iterable[Source]) -> None:
        """Pause until each server answers in time.

        There is no pause if the server's last answers came in time.  Otherwise TIME is sent after
        each pause, to measure again.

        Raises:
            SourceUnreachableError: a server still answers too slowly after five minutes.
        """
        if self._max_ms is not None:
            for source in sources:
                self._wait_for(source, self._max_ms)

    def _wait_for(self, source: Source, max_ms: int) -> None:
        limit = f"more than --max-latency {format_duration_ms(max_ms)}"
        for _ in range(_MAX_PAUSES):
            if (latency_ms := source.latency_s * 1000) <= max_ms:
                return
            self._tell(f"paused: {source.label} took {latency_ms:.1f} ms to answer, {limit}")
            self._sleep(_PAUSE_S)
            source.call("TIME")
        raise SourceUnreachableError(
            f"{source.label} has taken {limit} to answer, for {_MAX_PAUSES * _PAUSE_S / 60:.0f}"
            " minutes",
            source=source.label,
        )
