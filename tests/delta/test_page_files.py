"""A page, a range of XPENDING and an XCLAIM open the files that overlap them: told by the scans'
own metrics, and by a store that has lost all its other files.

The rows that a decision is made of are read by Spark or, of a large table in a local folder, by
delta-rs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.commands.xclaim import NamedClaim, xclaim
from claimlib.commands.xpending import pending_range, read_store
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import AutoclaimRequest, ClaimRequest, PendingRange
from claimlib.store.tables import Store
from tests.conftest import by_spark_alone
from tests.delta.queries import last_query
from tests.delta.reading import query
from tests.limits import set_limits
from tests.writing import append_rows

# Only a classic session has the JVM's list of queries and their metrics.
pytestmark = pytest.mark.classic

NOW_MS = 1_750_000_000_000
# One entry a second, a hundred in each of sixteen files.  Every tenth has been idle for a minute.
FIRST_MS, STEP_MS, ROWS, FILES = NOW_MS - 10**9, 1000, 1600, 16
DUE = 9
# The other streams have the same ids; one of them lies in the hot one's bucket.
HOT, BESIDE, ELSEWHERE = "hot", "s-5", "s-1"
# Thirty entries are examined, three of them are due; the next one is where the cursor stands.
COUNT = 3


@pytest.fixture
def store(spark_store: Store) -> Store:
    """A new store, open in Spark."""
    return spark_store


def id_ms(number: int) -> int:
    return FIRST_MS + number * STEP_MS


@dataclass(frozen=True)
class File:
    """A table's file, as delta-rs lists it."""

    path: Path
    bucket: int
    low: int
    high: int

    def overlaps(self, bucket: int, low: int, high: int) -> bool:
        return self.bucket == bucket and self.low <= high and low <= self.high


def files(store: Store, table: str) -> list[File]:
    where = Path(store.where, table)
    actions = DeltaTable(where).get_add_actions(flatten=True)
    names = ("path", "partition.bucket", "min.id_ms", "max.id_ms")
    columns = [actions.column(name).to_pylist() for name in names]
    return [
        File(where / path, int(bucket), low, high)
        for path, bucket, low, high in zip(*columns, strict=True)
    ]


@pytest.fixture(params=[pytest.param("Spark", marks=pytest.mark.long), "delta-rs"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who reads the rows near a page, of tables that are taken for large."""
    if request.param == "Spark":
        request.getfixturevalue("large_tables")
        by_spark_alone(monkeypatch)
    else:
        set_limits(monkeypatch, session_rows=200)
    return str(request.param)


@pytest.fixture
def full_store(store: Store, reader: str) -> Iterator[Store]:
    """The streams, each with a group, in sixteen files per bucket and table."""
    del reader
    numbers = store.spark.range(0, ROWS, 1, FILES)
    ids = numbers.select(
        "id",
        F.explode(F.array(*map(F.lit, (HOT, BESIDE, ELSEWHERE)))).alias("stream"),
        (FIRST_MS + F.col("id") * STEP_MS).alias("id_ms"),
        F.lit(0).alias("id_seq"),
        F.lit(0).alias("run_seq"),
    )
    idle_ms = F.when(F.col("id") % 10 == DUE, 60_000).otherwise(10)
    state = {
        "consumer_group": F.lit("g"),
        "consumer": F.lit("dead"),
        "delivery_time_ms": NOW_MS - idle_ms,
        "delivery_count": F.lit(1),
    }
    append_rows(store, "pending", ids.withColumns(state).drop("id"))
    append_rows(store, "entries", ids.drop("id"))
    proven = ("complete_from_ms", "complete_from_seq", "complete_to_ms", "complete_to_seq")
    rows = [(HOT, id_ms(0), 0, id_ms(ROWS), 0, 0)]
    append_rows(store, "streams", store.rows("streams", rows, ["stream", *proven, "run_seq"]))
    last = ("last_delivered_ms", "last_delivered_seq", "snapshot_ms", "run_seq")
    rows = [(HOT, "g", id_ms(ROWS), 0, NOW_MS, 0)]
    append_rows(store, "groups", store.rows("groups", rows, ["stream", "consumer_group", *last]))
    # A scan tells its table at the end of a text that is cut off at a hundred characters otherwise.
    settings, name = store.spark.conf, "spark.sql.maxMetadataStringLength"
    before = settings.get(name)
    settings.set(name, "1000")
    yield store
    settings.set(name, before)


def opened(spark: SparkSession, table: str, after: int) -> list[int]:
    """How many files each scan of a table opened, in the order of the queries behind one."""
    status = spark._jsparkSession.sharedState().statusStore()
    numbers = []
    for query_id in range(after + 1, last_query(spark) + 1):
        values, nodes = status.executionMetrics(query_id), status.planGraph(query_id).allNodes()
        for node in (nodes.apply(at) for at in range(nodes.size())):
            metrics = [node.metrics().apply(at) for at in range(node.metrics().size())]
            named = {metric.name(): metric.accumulatorId() for metric in metrics}
            value = values.get(named.get("number of files read", -1))
            if f"/{table}]" in node.desc() and value.isDefined():
                numbers.append(int(value.get().replace(",", "")))
    return numbers


@dataclass(frozen=True)
class Case:
    """A page: where it begins, how far its rows reach, and what it does."""

    start: int
    last: int
    sought_to: int
    claims: int
    next_ms: int
    files_of_page: int
    files_of_search: int


def bucket_of(store: Store, stream: str) -> int:
    rows = query(store.where, "pending", f"SELECT DISTINCT bucket FROM t WHERE stream = '{stream}'")
    (row,) = rows
    return row["bucket"]


CASES = {
    "in the middle": Case(750, 780, 810, 3, id_ms(780), 1, 2),
    "at the end": Case(1590, 1599, 1599, 1, 0, 1, 1),
}


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_a_page_opens_the_files_of_its_rows_and_its_end_is_sought_within_a_minute(
    full_store: Store, name: str, reader: str
) -> None:
    """Two bounds.  The search for the end first looks from the start on for a minute, at ids alone
    (further only where a minute has too few).  All else, in both tables, up to the reading back of
    what was done, opens files that overlap the page's rows."""
    case = CASES[name]
    pending, entries = files(full_store, "pending"), files(full_store, "entries")
    bucket = bucket_of(full_store, HOT)
    assert bucket == bucket_of(full_store, BESIDE) != bucket_of(full_store, ELSEWHERE)
    assert len(pending) == len(entries) == 2 * FILES
    page = (bucket, id_ms(case.start), id_ms(case.last))
    sought = (bucket, id_ms(case.start), id_ms(case.sought_to))
    of_page = {file for file in pending + entries if file.overlaps(*page)}
    of_search = {file for file in pending if file.overlaps(*sought)}
    assert len(of_page) == 2 * case.files_of_page, "as many of pending as of entries"
    assert len(of_search) == case.files_of_search
    for file in {*pending, *entries} - of_page - of_search:
        file.path.unlink()
    request = AutoclaimRequest(b"alice", 1000, StreamId(id_ms(case.start), 0), count=COUNT)
    before = last_query(full_store.spark)

    reply = xautoclaim(full_store, SweepRequest(request, stream_glob=HOT, cursor="c"))

    assert reply.counts["claimed"] == reply.claimed.count() == case.claims
    assert [row["next_ms"] for row in reply.cursors.collect()] == [case.next_ms]
    assert [row["claimed"] for row in reply.groups.collect()] == [case.claims]
    scans = opened(full_store.spark, "pending", before)
    assert scans, "the claimed rows are merged by Spark"
    if reader == "Spark":
        assert scans.pop(0) == case.files_of_search
    # The claimed rows were rewritten into one more file, and are read back from there.
    assert max(scans) <= case.files_of_page + 1, scans
    of_entries = opened(full_store.spark, "entries", before)
    if reader == "Spark":
        assert max(of_entries) == case.files_of_page
    else:
        assert of_entries == []


def test_a_range_of_xpending_and_an_xclaim_open_the_files_of_their_ids(
    full_store: Store, reader: str
) -> None:
    first, last = 750, 779
    lie_in = (bucket_of(full_store, HOT), id_ms(first), id_ms(last))
    for table in ("pending", "entries"):
        others = [file for file in files(full_store, table) if not file.overlaps(*lie_in)]
        assert len(others) == 2 * FILES - 1
        for file in others:
            file.path.unlink()
    before = last_query(full_store.spark)
    query = PendingRange(StreamId(id_ms(first), 0), StreamId(id_ms(last), 0), 1000)
    rows = pending_range(read_store(full_store), HOT.encode(), b"g", query).collect()
    assert [row["id_ms"] for row in rows] == [id_ms(n) for n in range(first, last + 1)]
    assert opened(full_store.spark, "pending", before) == ([1] if reader == "Spark" else [])

    before = last_query(full_store.spark)
    ids = tuple(StreamId(id_ms(number), 0) for number in (first, DUE + first, last))
    claim = NamedClaim(HOT.encode(), b"g", ClaimRequest(b"alice", 1000, ids))
    reply = xclaim(full_store, [claim])
    assert [row["status"] for row in reply.ids.collect()] == ["left", "claimed", "claimed"]
    # The claimed rows were rewritten into one more file, and are read back from there.
    assert max(opened(full_store.spark, "pending", before)) <= 2
    assert max(opened(full_store.spark, "entries", before), default=0) == (reader == "Spark")
