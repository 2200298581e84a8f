"""Queries of small tables are interpreted, those of large ones compiled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from claimlib.commands import sweep_decision
from claimlib.commands.describe import TABLES, describe
from claimlib.commands.snapshot import snapshot
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.commands.xpending import EVERYTHING, overview, reading
from claimlib.engine.interpreted import SETTINGS, interpreted
from claimlib.errors import RequestError
from claimlib.runs import protocol
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import AutoclaimRequest
from claimlib.store.tables import Store
from claimlib.testing.tables import write_keyspace
from tests.delta.pels import NOW_MS, REQUEST, keyspace
from tests.delta.snapshots import ALL, source, stream

COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}


def settings(spark: SparkSession) -> dict[str, str]:
    return {name: str(spark.conf.get(name)) for name in SETTINGS}


@pytest.fixture
def compiling(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, which compiles its queries as people's sessions do."""
    before = settings(spark)
    for name, value in COMPILED.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.mark.parametrize(
    ("few_rows", "most_rows", "expected"),
    [(10_000, 10_000, SETTINGS), (0, 10_000, COMPILED), (10_000, 1, COMPILED)],
    ids=["small", "read by Spark", "in memory, but not small"],
)
def test_a_run_on_small_tables_interprets_its_queries_and_one_on_large_ones_compiles_them(
    compiling: SparkSession,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    few_rows: int,
    most_rows: int,
    expected: dict[str, str],
) -> None:
    """The decision, the rows that are committed, the counts of a dry run, and what is shown of
    the store then."""
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    monkeypatch.setattr("claimlib.store.tables.FEW_ROWS", few_rows)
    monkeypatch.setattr("claimlib.runs.protocol.MOST_ROWS", most_rows)
    monkeypatch.setattr("claimlib.engine.spark.MOST_ROWS", most_rows)
    seen: list[dict[str, str]] = []
    to_arrow = type(store.read("pending")).toArrow

    def watched(frame: DataFrame) -> object:
        seen.append(settings(compiling))
        return to_arrow(frame)

    monkeypatch.setattr(type(store.read("pending")), "toArrow", watched)
    xautoclaim(store, SweepRequest(REQUEST), dry_run=True)
    reply = xautoclaim(store, SweepRequest(REQUEST))
    assert reply.counts["claimed"] > 0
    assert len(seen) > 4
    of_runs = len(seen)
    overview(reading(store))
    describe(reading(store, tables=TABLES), EVERYTHING)
    assert len(seen) == of_runs + 3
    # The last one is about cursors alone, of which there are none.
    assert all(values == expected for values in seen[:-1])
    assert settings(compiling) == COMPILED


def test_a_page_of_a_large_store_is_decided_by_interpreted_queries_and_merged_by_a_compiled_one(
    compiling: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where delta-rs has read the few rows near the page, it does not matter how many others there
    are; the MERGE scans whole files."""
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    monkeypatch.setattr("claimlib.store.tables.FEW_ROWS", 5)
    assert store.is_large("pending")
    seen: dict[str, dict[str, str]] = {}

    def watch(owner: object, name: str) -> None:
        call = getattr(owner, name)

        def watched(*args: Any, **options: Any) -> Any:
            seen[name] = settings(compiling)
            return call(*args, **options)

        monkeypatch.setattr(owner, name, watched)

    for owner, name in (
        (sweep_decision, "judge"),
        (protocol, "find_decided"),
        (Store, "execute"),
    ):
        watch(owner, name)
    page = AutoclaimRequest(b"alice", 1000, StreamId(8, 0), count=1)
    reply = xautoclaim(store, SweepRequest(page))
    assert reply.counts["claimed"] + reply.counts["deleted"] > 0
    interpreted_ones = ("judge", "find_decided")
    assert seen == {**dict.fromkeys(interpreted_ones, SETTINGS), "execute": COMPILED}


def test_a_small_store_that_becomes_a_large_one_is_written_by_compiled_queries(
    compiling: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first snapshot: what was staged is counted, not what the store has."""
    seen: list[dict[str, str]] = []
    append = Store.append

    def watched(self: Store, *args: Any, **options: Any) -> None:
        seen.append(settings(compiling))
        append(self, *args, **options)

    monkeypatch.setattr(Store, "append", watched)
    for at_ms, most, expected in ((NOW_MS, 1, COMPILED), (NOW_MS + 1, 2, SETTINGS)):
        monkeypatch.setattr("claimlib.runs.protocol.MOST_ROWS", most)
        read = stream(b"s", {1: b"x", 2: b"x"}, {1, 2}, at_ms)
        snapshot(store, ALL, lambda _, read=read: source(read))
        assert seen
        assert all(values == expected for values in seen)
        seen.clear()
        assert settings(compiling) == COMPILED


def test_the_settings_are_as_they_were_after_a_run_that_is_refused(
    compiling: SparkSession, store: Store
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    with pytest.raises(RequestError, match="no consumer group"):
        xautoclaim(store, SweepRequest(REQUEST, stream_glob="nothing"), allow_none=False)
    assert settings(compiling) == COMPILED


def test_where_a_session_does_not_let_them_be_set_queries_are_compiled(
    compiling: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AnalysisException("[CANNOT_MODIFY_CONFIG]")

    with monkeypatch.context() as patch:
        patch.setattr(type(compiling.conf), "set", refuse)
        with interpreted(compiling):
            assert settings(compiling) == COMPILED
    assert settings(compiling) == COMPILED


def test_of_blocks_that_overlap_the_last_one_to_end_gives_the_settings_back(
    compiling: SparkSession,
) -> None:
    first, second = interpreted(compiling), interpreted(compiling)
    with first:
        second.__enter__()
        assert settings(compiling) == SETTINGS
    assert settings(compiling) == SETTINGS
    second.__exit__(None, None, None)
    assert settings(compiling) == COMPILED
