"""A page's window holds the page's rows and few others, wherever the ids lie."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession

from claimlib.commands.paging import page_ends
from claimlib.ids import MAX_ID, MAX_U64, MIN_ID, StreamId, from_bigint, to_bigint
from claimlib.model import Group, PendingEntry
from claimlib.testing.tables import write_keyspace
from claimlib.words import Stream
from tests.spark.literal import LiteralStore

NOW_MS = 1_750_000_000_000


@dataclass(frozen=True)
class Pel:
    """The ids of one group, and where its page begins."""

    ids: tuple[StreamId, ...]
    start: StreamId
    count: int
    proven: tuple[int, int] | None = None

    @property
    def page_rows(self) -> int:
        return 10 * self.count + 1

    @property
    def behind(self) -> list[StreamId]:
        return [one for one in self.ids if one >= self.start]


def ids(milliseconds: Iterable[int]) -> tuple[StreamId, ...]:
    return tuple(StreamId(ms, 0) for ms in milliseconds)


PELS = {
    "nothing pending": Pel((), MIN_ID, 1),
    "fewer than a page": Pel(ids(range(1, 9)), MIN_ID, 1),
    "dense": Pel(ids(range(NOW_MS, NOW_MS + 3000)), MIN_ID, 2, (NOW_MS, NOW_MS + 3000)),
    "dense, no proof": Pel(ids(range(NOW_MS, NOW_MS + 3000)), MIN_ID, 2),
    "from the middle": Pel(ids(range(NOW_MS, NOW_MS + 3000)), StreamId(NOW_MS + 1500, 0), 1),
    "an entry a day": Pel(ids(range(NOW_MS, NOW_MS + 86_400_000 * 300, 86_400_000)), MIN_ID, 3),
    "one ms": Pel(tuple(StreamId(7, n) for n in range(500)), MIN_ID, 1),
    "a gap, then many": Pel(ids([1, *range(NOW_MS, NOW_MS + 5000)]), MIN_ID, 1),
    "below the proof": Pel(ids(range(2000)), MIN_ID, 1, (1000, 2000)),
    "at the edges": Pel(
        ids([*range(60), *range(2**63 - 30, 2**63 + 30), *range(MAX_U64 - 40, MAX_U64 + 1)]),
        StreamId(50, 0),
        4,
    ),
    "from beyond 2^63": Pel(
        ids(range(2**63, 2**63 + 100)), StreamId(2**63 + 20, 0), 1, (2**63, MAX_U64)
    ),
}


def stream(pel: Pel) -> Stream:
    pending = tuple(PendingEntry(one, b"c", NOW_MS, 1) for one in pel.ids)
    return Stream({}, {b"g": Group(MAX_ID, pending, ())})


@pytest.fixture(scope="module")
def last_ids(spark: SparkSession) -> dict[str, int]:
    """The last id_ms of each page's window."""
    store = LiteralStore(spark)
    write_keyspace(store, {name.encode(): stream(pel) for name, pel in PELS.items()}, NOW_MS)
    assert store.read_at("pending", 0).count() == sum(len(pel.ids) for pel in PELS.values())
    targets = spark.createDataFrame(
        [
            (
                *(name, "g", to_bigint(pel.start.ms), to_bigint(pel.start.seq), pel.count),
                *(map(to_bigint, pel.proven) if pel.proven else (None, None)),
            )
            for name, pel in PELS.items()
        ],
        "stream STRING, consumer_group STRING, start_ms BIGINT, start_seq BIGINT, count BIGINT,"
        " complete_from_ms BIGINT, complete_to_ms BIGINT",
    )
    ends = page_ends(store.read_at("pending", 0), targets, store.buckets)
    assert ends is not None
    return {row["stream"]: from_bigint(row["page_end_ms"]) for row in ends.collect()}


@pytest.mark.parametrize("name", PELS)
def test_a_window_holds_the_pages_rows_or_all_that_there_are(name, last_ids):
    pel = PELS[name]
    within = [one for one in pel.behind if one.ms <= last_ids[name]]
    assert within[: pel.page_rows] == pel.behind[: pel.page_rows]


@pytest.mark.parametrize("name", PELS)
def test_a_window_holds_few_others_unless_one_millisecond_has_them_all(name, last_ids):
    pel = PELS[name]
    within = [one for one in pel.behind if one.ms <= last_ids[name]]
    assert len(within) <= 4 * pel.page_rows or within[pel.page_rows - 1].ms == within[-1].ms


def test_no_request_for_a_page_asks_spark_nothing(spark):
    targets = spark.createDataFrame([("s", "g", None)], "stream STRING, g STRING, count BIGINT")
    assert page_ends(spark.range(1), targets, 8) is None
