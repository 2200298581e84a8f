"""The data sources `redis_pending` and `redis_entries` read what a snapshot reads."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from claimlib.live.data_source import register_redis_sources
from tests.delta.server_groups import mirror, stall

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
