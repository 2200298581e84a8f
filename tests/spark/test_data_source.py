"""The data sources `redis_pending` and `redis_entries` read what a snapshot reads."""

from __future__ import annotations

from itertools import pairwise

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from claimlib.live.data_source import register_redis_sources, split
from claimlib.semantics.ids import MAX_U64, StreamId, parse_id
from tests.delta.server_groups import GROUP, mirror, stall

ODD = b"odd \xff\n*"


def test_the_rows_are_those_of_a_snapshot(spark: SparkSession, server, client, store):
    register_redis_sources(spark)
    stall(client, "s", [f"{n}-0" for n in range(1, 1500)])
    stall(client, ODD, ["1-0", "18446744073709551615-3"])
    client.xdel("s", "7-0")
    mirror(store, server)
    for name, table in (("redis_pending", "pending"), ("redis_entries", "entries")):
        frame = spark.read.format(name).option("url", server.url).load()
        columns = frame.columns
        assert frame.select(F.spark_partition_id()).distinct().count() == 2
        read = {tuple(map(str, row)) for row in frame.collect()}
        stored = store.relation(table).select(*columns).collect()
        assert len(read) == len(stored) > 1000
        if table == "pending":
            assert read == {tuple(map(str, row.values())) for row in stored}
    entries = spark.read.format("redis_entries").option("url", server.url)
    (row,) = entries.option("stream", "s").load().where("id_ms = 3").collect()
    assert [(bytes(f["name"]), bytes(f["value"])) for f in row["fields"]] == [(b"n", b"1")]


def test_ranges_of_ids_are_partitions_and_give_the_same_rows(spark: SparkSession, server, client):
    register_redis_sources(spark)
    stall(client, "s", [f"{n // 2 + 100}-{n}" for n in range(500)])
    client.xack("s", GROUP, "100-0", *[f"{n // 2 + 100}-{n}" for n in range(60, 300)])
    client.xgroup_create("s", "late", id="300-0")
    client.xreadgroup("late", "bob", {"s": ">"})
    stall(client, "one", ["5-0", "5-1"])
    client.xadd("empty", {"n": 1})
    for name, number in (("redis_pending", 361), ("redis_entries", 499 + 2)):
        source = spark.read.format(name).option("url", server.url)
        ranges = source.option("pending_per_partition", "31").load()
        rows = [tuple(map(str, row)) for row in ranges.collect()]
        assert len(rows) == len(set(rows)) == number
        assert set(rows) == {tuple(map(str, row)) for row in source.load().collect()}
        assert ranges.select(F.spark_partition_id()).distinct().count() > 5


def test_a_span_is_split_into_ranges_without_gaps():
    assert [f"{first} {last}" for first, last in split((parse_id("1-5"), parse_id("4-7")), 2)] == [
        "1-5 2-18446744073709551615",
        "3-0 4-7",
    ]
    for number in (1, 2, 3, 7, 90):
        ranges = split((StreamId(10, 3), StreamId(60, 4)), number)
        assert len(ranges) == min(number, 51)
        assert (ranges[0][0], ranges[-1][1]) == (StreamId(10, 3), StreamId(60, 4))
        assert all(first <= last for first, last in ranges)
        for (_, before), (after, _) in pairwise(ranges):
            assert (before.ms + 1, before.seq, after.seq) == (after.ms, MAX_U64, 0)


def test_globs_choose_and_options_are_checked(spark: SparkSession, server, client):
    register_redis_sources(spark)
    stall(client, "a", ["1-0"])
    stall(client, "b", ["1-0"])
    pending = spark.read.format("redis_pending")
    assert pending.option("url", server.url).option("stream", "a*").load().count() == 1
    with pytest.raises(PySparkException, match="unknown option streams of redis_pending"):
        spark.read.format("redis_pending").option("streams", "a").load().count()
    with pytest.raises(PySparkException, match="redis_pending needs the option url"):
        spark.read.format("redis_pending").load().count()
    for option, least, refused in (
        ("pending_per_partition", "from 1", ("x", "0", "1.5")),
        ("max_commands_per_second", "above 0", ("x", "0", "nan", "inf")),
    ):
        for value in refused:
            source = spark.read.format("redis_pending").option("url", server.url)
            says = f"{option} .* must be a number {least}, not {value}"
            with pytest.raises(PySparkException, match=says):
                source.option(option, value).load().count()
    half = pending.option("url", server.url).option("max_commands_per_second", "0.5")
    assert half.load().columns
