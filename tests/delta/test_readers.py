"""Who only reads sees one moment of the store, though runs are decided while it looks."""

from __future__ import annotations

from threading import Lock

import pytest

from claimlib.commands.check import check
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.commands.xpending import pending_overview, read_store
from claimlib.errors import LostRaceError
from claimlib.runs import protocol
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.pels import CLAIMED, NOW_MS, REQUEST, keyspace


class RunBetweenPins:
    """Has a run take place after `pending` was pinned and before `consumers` is, so many times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
        self.left = times
        self._lock = Lock()
        self._pending_is_pinned = False
        self._is_running = False
        self._version = Store.version

        def version(store: Store, table: str) -> int:  # a bound method would not get the store
            return self.version(store, table)

        monkeypatch.setattr(Store, "version", version)
        # One after the other, as they are named.
        monkeypatch.setattr("claimlib.store.threads._THREADS", 1)

    def version(self, store: Store, table: str) -> int:
        with self._lock:
            due = table == "consumers" and self.left > 0 and not self._is_running
        if due:
            self._is_running = True
            self.left -= 1
            xautoclaim(store, SweepRequest(REQUEST), now_ms=NOW_MS + self.left)
            self._is_running = False
        return self._version(store, table)


def test_an_overview_that_a_run_got_in_between_is_pinned_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    between = RunBetweenPins(monkeypatch, times=1)
    at = read_store(store)
    assert between.left == 0
    assert at.versions == {table: store.version(table) for table in at.versions}
    (group,) = pending_overview(at).collect()
    assert (group["pending"], group["owners"], group["unknown_owners"]) == (9, 2, 0)


def test_a_check_that_a_run_got_in_between_looks_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    between = RunBetweenPins(monkeypatch, times=1)
    problems = check(store)
    assert between.left == 0
    assert [
        problem for problem in problems if "missing from the table consumers" in problem.what
    ] == []


def test_a_dry_run_that_runs_get_in_between_again_and_again_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MAX_LOSSES", 1)
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    RunBetweenPins(monkeypatch, times=1)
    with pytest.raises(LostRaceError, match="its tables cannot be read in a consistent"):
        xautoclaim(store, SweepRequest(REQUEST), dry_run=True)
    again = xautoclaim(store, SweepRequest(REQUEST), dry_run=True, now_ms=NOW_MS + 120_000)
    assert again.counts["claimed"] > CLAIMED
