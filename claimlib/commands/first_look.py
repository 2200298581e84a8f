"""Find typing errors in a request, before Spark starts or large tables are read."""

from __future__ import annotations

from collections.abc import Callable

from claimlib.runs import Begun, pinned
from claimlib.runs.protocol import INPUTS
from claimlib.runs.rollforward import find_finished
from claimlib.store.tables import Store


def look_before_run(
    store: Store, *, command: str, run_id: str | None, check: Callable[[Begun], object]
) -> None:
    """Check the request of a run against the store as it is now.

    The check is skipped if an earlier run is unfinished, because the new run finishes it first.
    The check is also skipped if the run was already done, because a repeat changes nothing.

    Args:
        check: raises an error if the request has a typing error.
    """
    begun, unfinished = pinned(store, INPUTS)
    if unfinished or (run_id is not None and find_finished(store, command, run_id)):
        return
    check(begun)
