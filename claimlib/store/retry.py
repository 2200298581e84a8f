"""Doing an idempotent step again after a commit conflict."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from claimlib.errors import CommitConflictError

MAX_ATTEMPTS = 6
_FIRST_PAUSE_S = 0.05
T = TypeVar("T")


def retried(step: Callable[[], T]) -> T:
    """Run a step that may be run again; a conflict is answered by a short pause and another go.

    Raises:
        CommitConflictError: it conflicted `MAX_ATTEMPTS` times.
    """
    for attempt in range(1, MAX_ATTEMPTS):
        try:
            return step()
        except CommitConflictError:
            # Two drivers that roll the same run forward must not meet again at the same moment.
            jitter = random.uniform(0.5, 1.5)  # noqa: S311 - two clocks apart, no secret
            time.sleep(jitter * _FIRST_PAUSE_S * 2**attempt)
    return step()
