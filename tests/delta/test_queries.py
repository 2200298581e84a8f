"""How many queries a run costs: each takes Spark and Delta some 60 to 150 ms, however few rows
there are.  A store in a local folder, whose small tables are read without any, has fewer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from claimlib.commands.snapshot import snapshot
from claimlib.commands.xack import NamedAck, xack
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.commands.xclaim import NamedClaim, xclaim
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import AutoclaimRequest, ClaimRequest
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.pels import NOW_MS, REQUEST, keyspace
from tests.delta.queries import last_query
from tests.delta.snapshots import ANY, source, stream

# Only a classic session has the JVM's list of queries.
pytestmark = pytest.mark.classic

IDS = (StreamId(1, 0), StreamId(3, 0))
PAGE = SweepRequest(AutoclaimRequest(b"bob", 1000, count=2), cursor="c", resume=True)
SWEEP = SweepRequest(AutoclaimRequest(b"carol", 1000))
LATER_MS = NOW_MS + 10**6

# By command, in this order, on a store that was swept before: where small tables are read without a
# query and Spark writes (decision 028), and where Spark reads all.  Fewer are better; who needs
# more says why here.  Four or five of Spark's are the look at what the newest run has seen of the
# tables.  Elsewhere each version of a small table is fetched once, by one query and four of
# Delta's; to look up a version is one.  Before a run changes a table that it has not read, it asks
# Delta for the table's size.  The first command in a new session runs three more queries.
MOST: dict[str, tuple[int, int, Callable[[Store], object]]] = {
    "a dry run": (5, 29, lambda store: xautoclaim(store, SWEEP, now_ms=LATER_MS, dry_run=True)),
    "a sweep": (26, 66, lambda store: xautoclaim(store, SWEEP, now_ms=LATER_MS, run_id="x")),
    "the same again": (0, 13, lambda store: xautoclaim(store, SWEEP, now_ms=LATER_MS, run_id="x")),
    "a page": (36, 78, lambda store: xautoclaim(store, PAGE, now_ms=2 * LATER_MS)),
    # Requests that are named are held, which is two more, and the query that decides has half as
    # many jobs.
    "an XCLAIM": (
        26,
        66,
        lambda store: xclaim(
            store, [NamedClaim(b"s", b"g", ClaimRequest(b"dave", 0, IDS))], now_ms=3 * LATER_MS
        ),
    ),
    "an XACK": (18, 53, lambda store: xack(store, [NamedAck(b"s", b"g", IDS)])),
}


@pytest.mark.parametrize("reader", ["delta-rs", pytest.param("Spark", marks=pytest.mark.long)])
def test_no_command_costs_more_queries_than_are_written_down_here(
    store_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    if reader == "Spark":
        monkeypatch.setattr(
            "claimlib.store.definitions.shared_folder", lambda _spark, _location: None
        )
    store = Store.open(spark, str(store_path))
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    xautoclaim(store, SweepRequest(REQUEST))
    queries = {}
    for name, (*_, command) in MOST.items():
        before = last_query(store.spark)
        command(store)
        queries[name] = last_query(store.spark) - before
    print(queries)
    most = {name: numbers[reader == "Spark"] for name, (*numbers, _) in MOST.items()}
    assert {name: n for name, n in queries.items() if n > most[name]} == {}


@pytest.mark.long
@pytest.mark.parametrize(
    ("reader", "most"), [("delta-rs", 106), pytest.param("Spark", 245, marks=pytest.mark.long)]
)
def test_no_snapshot_costs_more_queries_than_are_written_down_here(
    store_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, reader: str, most: int
) -> None:
    """One that replaces, removes and adds rows of `pending` and of `entries`."""
    if reader == "Spark":
        monkeypatch.setattr(
            "claimlib.store.definitions.shared_folder", lambda _spark, _location: None
        )
    store = Store.open(spark, str(store_path))
    first = stream(b"s", {1: b"a", 2: b"a"}, {1, 2}, NOW_MS)
    snapshot(store, ANY, lambda _: source(first))
    before = last_query(store.spark)
    second = stream(b"s", {2: b"b", 3: b"b"}, {2, 3}, NOW_MS + 1)
    snapshot(store, ANY, lambda _: source(second))
    queries = last_query(store.spark) - before
    print(queries)
    assert queries <= most
