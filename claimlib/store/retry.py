"""Repeat an idempotent step after a commit conflict."""

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
    """Run an idempotent step.  After a commit conflict, pause briefly and run it again.

    Raises:
        CommitConflictError: the step had a conflict `MAX_ATTEMPTS` times.
    """
    for attempt in range(1, MAX_ATTEMPTS):
        try:
            return step()
        except CommitConflictError:
            # The pauses are random, so that two drivers that finish the same run do not conflict
            # again.
            jitter = random.uniform(0.5, 1.5)  # noqa: S311 - it is not a secret
            time.sleep(jitter * _FIRST_PAUSE_S * 2**attempt)
    return step()
