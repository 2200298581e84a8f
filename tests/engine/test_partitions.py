"""The embedded engine computes large tables in partitions, and the rows are the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pyspark.sql import SparkSession

from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.engine import embedded
from claimlib.engine.embedded import EmbeddedEngine
from claimlib.engine.relation import TableScan
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import AutoclaimRequest, Consumer, Group, Guards, PendingEntry
from claimlib.semantics.words import Stream
from claimlib.store.opening import find_embedded
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace
from tests.limits import set_limits

NOW_MS = 1_750_000_000_000
REQUESTS = {
    "all groups": SweepRequest(AutoclaimRequest(b"c", 60_000)),
    "owners of a glob": SweepRequest(AutoclaimRequest(b"c", 60_000, guards=Guards(only_from="a*"))),
    "several consumers": SweepRequest(AutoclaimRequest(b"c", 60_000), others=(b"d", b"e")),
    "live consumers": SweepRequest(AutoclaimRequest(b"", 60_000), active_within_ms=600_000),
    "pages": SweepRequest(AutoclaimRequest(b"c", 60_000, count=3), cursor="page"),
}
OF_RUNS = ("attempt", "inputs")
"""Columns of the journal that differ from run to run."""


def keyspace() -> dict[bytes, Stream]:
    """Return streams in all buckets; some streams have no entry."""
    streams = {}
    for number in range(20):
        ids = [StreamId(number * 10 + n, n % 2) for n in range(number if number < 7 else 0)]
        pending = tuple(
            PendingEntry(of, (b"a1", b"b1")[n % 2], NOW_MS - 90_000 * (n % 4), n)
            for n, of in enumerate(ids)
        )
        consumers = tuple(Consumer(name, NOW_MS, NOW_MS) for name in (b"a1", b"b1"))
        entries = dict.fromkeys(ids[1:], (b"f", b"v"))
        group = Group(StreamId(999, 0), pending, consumers)
        streams[b"s%d" % number] = Stream(entries, {b"g": group, b"h": group})
    return streams


@pytest.fixture
def filled(spark: SparkSession, store_path: Path, tmp_path: Path) -> Iterator[Path]:
    store = Store.open(spark, str(store_path))
    write_keyspace(store, keyspace(), NOW_MS)
    write_keyspace(store, {b"unproven": keyspace()[b"s6"]}, NOW_MS, proven=None)
    return shutil.copytree(store_path, tmp_path / "copy")


def no_session() -> SparkSession:
    raise AssertionError("Spark was started")


def swept(folder: Path, request: SweepRequest) -> dict[str, Any]:
    """Return the rows of the tables that a sweep of the embedded engine changed, and its counts."""
    store = find_embedded(no_session, str(folder), writes=True)
    assert store is not None
    reply = xautoclaim(store, request, run_id="r")
    tables = {
        name: sorted(
            repr({column: value for column, value in row.items() if column not in OF_RUNS})
            for row in store.relation(name).collect()
        )
        for name in ("pending", "journal", "cursors", "consumers", "tombstones")
    }
    return {**tables, "counts": reply.counts}


@pytest.mark.parametrize(
    "name",
    [
        "all groups",
        *(pytest.param(name, marks=pytest.mark.long) for name in REQUESTS if name != "all groups"),
    ],
)
def test_a_sweep_leaves_the_same_rows(
    name: str, filled: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = swept(filled, REQUESTS[name])
    scanned: set[tuple[str, str | None]] = set()
    files_of = EmbeddedEngine._files_of

    def noted(self: EmbeddedEngine, scan: TableScan) -> object:
        if scan.partition is not None:
            scanned.add((scan.table, scan.partition[1]))
        return files_of(self, scan)

    monkeypatch.setattr(EmbeddedEngine, "_files_of", noted)
    set_limits(monkeypatch, partition_rows=0)
    set_limits(monkeypatch, embedded_rows=0)
    assert swept(store_path, REQUESTS[name]) == at_once
    assert at_once["counts"]["claimed"] > 0
    assert {"pending", "entries", "journal"} <= {table for table, _ in scanned}
    assert len({value for _, value in scanned}) > 3


def test_a_dry_run_decides_the_same_rows(
    filled: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decided(folder: Path) -> list[str]:
        store = find_embedded(no_session, str(folder), writes=False)
        assert store is not None
        reply = xautoclaim(store, REQUESTS["all groups"], dry_run=True)
        return sorted(map(repr, (*reply.claimed.collect(), *reply.groups.collect())))

    at_once = decided(filled)
    inserted: list[str] = []
    do_concurrently = embedded._do_concurrently

    def noted(work: Callable[[str], None], parts: Mapping[str, object]) -> None:
        inserted.extend(parts)
        do_concurrently(work, parts)

    monkeypatch.setattr(embedded, "_do_concurrently", noted)
    set_limits(monkeypatch, partition_rows=0)
    set_limits(monkeypatch, embedded_rows=0)
    assert decided(store_path) == at_once
    assert len(at_once) > 20
    assert len(inserted) > 3


@pytest.mark.parametrize("failing", ["a", "b"])
def test_after_an_error_the_parts_that_have_not_begun_are_cancelled(
    monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    cancelled = Event()
    begun: list[str] = []

    class Threads(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            cancelled.set()
            super().shutdown(wait=wait)

    def work(part: str) -> None:
        begun.append(part)
        if part == failing:
            raise ValueError(part)
        assert cancelled.wait(60)

    monkeypatch.setattr(embedded, "ThreadPoolExecutor", Threads)
    set_limits(monkeypatch, partitions_at_once=2)
    with pytest.raises(ValueError, match=rf"\A{failing}\Z"):
        embedded._do_concurrently(work, "abcdefgh")
    assert {*begun} <= {*"abc"}
