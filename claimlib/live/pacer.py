"""Keeps the reader from asking a server more often than its owner allows."""

from __future__ import annotations

import time
from collections.abc import Callable

from claimlib.errors import RequestError


class Pacer:
    """At most so many commands per second, evenly spread, with nothing saved up while idle.

    Commands that are sent together go out together, and the pause after them is as long as if they
    had been sent one by one.

    Args:
        max_per_second: Commands per second; null: as fast as the server answers.
        clock: Seconds, never running backwards.
        sleep: Waits so many seconds.
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
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock()

    def wait_for(self, commands: int) -> None:
        """Waits until so many commands may be sent together."""
        now = self._clock()
        if now < self._free_at:
            self._sleep(self._free_at - now)
        self._free_at = max(self._free_at, now) + commands * self._interval_s
