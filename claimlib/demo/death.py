"""Let a driver die in the middle of a run, to see what becomes of the run."""

from __future__ import annotations

from claimlib.runs import Phase, Progress


class Killed(Exception):  # noqa: N818 - it is no error of anybody
    """Report that the driver has died."""


def die_at(fatal: Phase) -> Progress:
    """Return a `progress` callback that lets the driver of a run die when a phase begins."""

    def tell(phase: Phase, _detail: str) -> None:
        if phase is fatal:
            raise Killed(f"killed as the run began to {fatal}")

    return tell
