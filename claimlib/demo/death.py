"""A driver that dies in the middle of a run, to see what becomes of the run."""

from __future__ import annotations

from claimlib.runs import Phase, Progress


class Killed(Exception):  # noqa: N818 - it is no error of anybody
    """The driver is gone."""


def die_at(fatal: Phase) -> Progress:
    """Return a run's `progress` that lets its driver die as a phase begins."""

    def tell(phase: Phase, _detail: str) -> None:
        if phase is fatal:
            raise Killed(f"killed as the run began to {fatal}")

    return tell
