"""What a decision's plan sends to all processes: nothing that grows with entries or pending."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.commands.xclaim import NamedClaim, xclaim
from claimlib.engine.spark import frame_of
from claimlib.runs import protocol
from claimlib.runs.protocol import Decision
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import ClaimRequest
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace
from tests.conftest import by_spark_alone
from tests.delta.pels import NOW_MS, REQUEST, keyspace

# Decisions read files of entries and pending; of the other tables the driver holds what it needs.
SCANNED = re.compile(r"FileScan parquet \[(\w+)")
# Per owner or group there are few rows: what is summed up may be broadcast.
SUMMED_UP = re.compile(r"Aggregate")


@pytest.fixture
def store(spark_store: Store) -> Store:
    """A new store, open in Spark."""
    return spark_store


def broadcast(plan: str) -> Iterator[str]:
    """The scans whose rows, one by one, are broadcast by a physical plan: their first columns."""
    above: list[tuple[int, str]] = []
    for line in plan.splitlines():
        depth = len(line) - len(line.lstrip(" :+-*(0123456789)"))
        above = [node for node in above if node[0] < depth]
        scanned = SCANNED.search(line)
        names = [name for _, name in above]
        if scanned and "broadcast" in names:
            below = names[names.index("broadcast") :]
            if "sum" not in below:
                yield scanned[1]
        if "BroadcastExchange" in line:
            above.append((depth, "broadcast"))
        elif SUMMED_UP.search(line):
            above.append((depth, "sum"))


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The physical plans of the decisions that are committed; no table is held, however small."""
    by_spark_alone(monkeypatch)
    committed: list[str] = []
    commit = protocol._commit

    def noted(store: Store, row: object, decision: Decision) -> object:
        capsys.readouterr()
        frame_of(decision.rows).explain()
        committed.append(capsys.readouterr().out)
        return commit(store, row, decision)

    monkeypatch.setattr(protocol, "_commit", noted)
    return committed


@pytest.mark.long
def test_no_entries_and_no_pending_are_broadcast_however_small_spark_takes_them_for(
    store: Store, plans: list[str]
) -> None:
    write_keyspace(store, keyspace(b"s", b"t"), NOW_MS)
    xautoclaim(store, SweepRequest(REQUEST, stream_glob="s"))
    claim = ClaimRequest(b"carol", 0, (StreamId(1, 0), StreamId(2, 0)))
    xclaim(store, [NamedClaim(b"t", b"g", claim)])
    sweep, claims = plans
    for plan in (sweep, claims):
        assert len(SCANNED.findall(plan)) >= 2, plan
        assert "SortMergeJoin" in plan
        assert list(broadcast(plan)) == [], plan


def test_the_reading_of_a_plan_tells_rows_from_sums() -> None:
    scan = "FileScan parquet [{}#1L] Batched: true"
    plan = f"""
== Physical Plan ==
Project [a]
+- BroadcastHashJoin
   :- {scan.format("stream")}
   :- BroadcastExchange
   :  +- HashAggregate
   :     +- {scan.format("stream")}
   +- BroadcastExchange
      +- *(2) Filter
         +- {scan.format("id_ms")}
"""
    assert list(broadcast(plan)) == ["id_ms"]
