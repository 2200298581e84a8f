"""A sweep beside what else could do it, on the same tables, in one process.

- The floor: its decisions and its journal rows in plain Spark SQL, joined by 64-bit keys, with no
  broadcast but of the tables of groups and consumers.  It checks nothing, and knows one request.
- DuckDB with delta-rs: the whole job, with as many threads: decisions, journal, pending rewritten.
- The unit of fixed cost: an append of one row to a Delta table of its own.
- Up to a million rows, a server: XAUTOCLAIM by redis-py with hiredis, once (see `server`).

Each does its job as often as is asked; the first time, in a cold JVM, does not count.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession

from claimlib.store.tables import Store
from claimlib.testing.server_process import valkey_server
from tests.bench import server
from tests.bench.check import Measured, Result, differing
from tests.bench.data import CONSUMER, MIN_IDLE_MS, NOW_MS, SHAPES, Shape
from tests.bench.result import History
from tests.bench.store import (
    UNIT,
    Watch,
    append_one_row,
    copied,
    make,
    medians_of,
    seconds_of,
    sweep,
)
from tests.writing import append_rows

OURS, FLOOR, DUCKDB = "claimlib", "floor", "duckdb"
SERVER = "XAUTOCLAIM on a server"
# Of more rows a server is not filled.
_MOST_OF_SERVER = 1_000_000
_THREADS = 2

_CLAIMED = f"""
    1::BIGINT AS run_seq, if(is_gone, 'deleted', 'claimed') AS kind, {{names}}, id_ms, id_seq,
    {{owner}} AS from_consumer, delivery_time_ms AS from_delivery_time_ms,
    delivery_count AS from_delivery_count,
    if(is_gone, NULL, '{CONSUMER}') AS consumer, if(is_gone, NULL, {NOW_MS}) AS delivery_time_ms,
    if(is_gone, NULL, delivery_count + 1) AS delivery_count, if(is_gone, NULL, false) AS justid,
    {NOW_MS} AS at_ms, if(is_gone, NULL, {NOW_MS}) AS seen_time_ms,
    if(is_gone, NULL, {NOW_MS}) AS active_time_ms"""

_FLOOR = f"""
    SELECT /*+ BROADCAST(g), BROADCAST(c) */
      {_CLAIMED.format(names="g.stream, g.consumer_group", owner="c.consumer")}
    FROM (
      SELECT /*+ MERGE(e) */ p.*, e.id_ms IS NULL AS is_gone
      FROM (SELECT stream_key, group_key, id_ms, id_seq, xxhash64(consumer) AS consumer_key,
              delivery_time_ms, delivery_count FROM {{pending}}) p
      LEFT JOIN (SELECT stream_key, id_ms, id_seq FROM {{entries}}) e
        ON p.stream_key = e.stream_key AND p.id_ms = e.id_ms AND p.id_seq = e.id_seq
      WHERE e.id_ms IS NULL OR p.delivery_time_ms < {NOW_MS - MIN_IDLE_MS}) d
    JOIN (SELECT stream, consumer_group, xxhash64(stream, consumer_group) AS group_key
          FROM {{groups}}) g ON g.group_key = d.group_key
    JOIN (SELECT concat('consumer-', id) AS consumer,
            xxhash64(concat('consumer-', id)) AS consumer_key FROM range(20)) c
      ON c.consumer_key = d.consumer_key"""

_DUCKDB_DECIDED = f"""
    CREATE OR REPLACE TEMP TABLE decided AS
    SELECT p.*, e.id_ms IS NULL AS is_gone
    FROM read_parquet($pending, hive_partitioning = false) p
    LEFT JOIN (SELECT DISTINCT stream, id_ms, id_seq
               FROM read_parquet($entries, hive_partitioning = false)) e
      ON p.stream = e.stream AND p.id_ms = e.id_ms AND p.id_seq = e.id_seq
    WHERE e.id_ms IS NULL OR p.delivery_time_ms < {NOW_MS - MIN_IDLE_MS}"""

_DUCKDB_JOURNAL = f"""
    SELECT {_CLAIMED.format(names="stream, consumer_group", owner="decided.consumer")}
    FROM decided"""

_DUCKDB_PENDING = f"""
    SELECT p.stream, p.consumer_group, p.id_ms, p.id_seq,
      CASE WHEN d.id_ms IS NULL THEN p.consumer ELSE '{CONSUMER}' END AS consumer,
      CASE WHEN d.id_ms IS NULL THEN p.delivery_time_ms ELSE {NOW_MS} END AS delivery_time_ms,
      CASE WHEN d.id_ms IS NULL THEN p.delivery_count ELSE p.delivery_count + 1 END
        AS delivery_count,
      CASE WHEN d.id_ms IS NULL THEN p.run_seq ELSE 1 END AS run_seq
    FROM read_parquet($pending, hive_partitioning = false) p
    LEFT JOIN decided d ON p.stream = d.stream AND p.consumer_group = d.consumer_group
      AND p.id_ms = d.id_ms AND p.id_seq = d.id_seq
    WHERE NOT coalesce(d.is_gone, false)"""


def run(
    spark: SparkSession, folder: str, rows: int, watch: Watch, *, data: str, times: int
) -> Measured:
    """The benchmark's document: medians of seconds, by phase for ours, and the ratios."""
    made, shape = f"{folder}/made", SHAPES[data]
    watch.time("make rows", lambda: make(Store.init(spark, made), rows, shape))
    append_one_row(spark, f"{folder}/unit")
    store = Store.open(spark, made)
    for number in range(times + 1):
        # Number 0 warms the JVM up, and is not counted.
        store = copied(spark, made, f"{folder}/swept")
        watch.run(f"{OURS} {number}", partial(sweep, store))
        floor = copied(spark, made, f"{folder}/floor")
        watch.time(f"{FLOOR} {number}", partial(_floor, floor))
        watch.time(f"{DUCKDB} {number}", partial(_duckdb, made, f"{folder}/duckdb"))
        watch.time(f"{UNIT} {number}", partial(append_one_row, spark, f"{folder}/unit"))
    medians = medians_of(watch, (OURS, FLOOR, DUCKDB, UNIT), times)
    served = _served(spark, store, rows, shape, watch) if rows <= _MOST_OF_SERVER else {}
    if served:
        medians[SERVER] = seconds_of(watch)[SERVER]
    phases = [watch.phases[f"{OURS} {number}"] for number in range(1, times + 1)]
    by_phase = {name: round(median(of_run[name] for of_run in phases), 2) for name in phases[0]}
    document: dict[str, object] = {
        "rows": rows,
        "data": data,
        "groups": shape.groups_of(rows),
        "times": times,
        "seconds": medians,
        "seconds_by_phase": by_phase,
        "ratios": {
            "decide of floor": round(by_phase["decide"] / medians[FLOOR], 2),
            "run of floor": round(medians[OURS] / medians[FLOOR], 2),
            "run of duckdb": round(medians[OURS] / medians[DUCKDB], 2),
            "run of appends": round(medians[OURS] / medians[UNIT], 1),
        },
        "peak_mib": watch.peak_mib,
    }
    results = {"": Result(store, History(rows, shape))}
    return Measured(document, results, {**_differ(spark, store, folder), **served})


def markdown(document: Mapping[str, Any]) -> str:
    """The document as a table for people: who took how long, and how that compares."""
    ours = document["seconds"][OURS]
    what = f"{document['rows']:,} rows ({document['data']}), medians of {document['times']}"
    lines = [
        f"| {what} | s | {OURS} takes |",
        "|---|---|---|",
        *(
            f"| {name} | {seconds} | {'' if name == OURS else f'{ours / seconds:.1f} times that'} |"
            for name, seconds in document["seconds"].items()
        ),
        *(f"| - {phase} | {s} | |" for phase, s in document["seconds_by_phase"].items()),
    ]
    return "\n".join(lines)


def _served(
    spark: SparkSession, store: Store, rows: int, shape: Shape, watch: Watch
) -> Mapping[str, int]:
    """A server's loop, timed; of how many streams it says something else than our run."""
    with valkey_server() as valkey:
        streams = server.fill(spark, valkey, rows, shape)
        claimed = watch.time(SERVER, lambda: server.claim_all(valkey, streams))
    return {"replies of the server": server.differing(store, claimed)}


def _floor(store: Store) -> None:
    tables = {name: store.identifier(name) for name in ("pending", "entries", "groups")}
    append_rows(store, "journal", store.spark.sql(_FLOOR.format(**tables)))


def _duckdb(made: str, where: str) -> None:
    import duckdb
    from deltalake import DeltaTable, write_deltalake

    shutil.rmtree(where, ignore_errors=True)
    files = {name: DeltaTable(f"{made}/{name}").file_uris() for name in ("pending", "entries")}
    with duckdb.connect(config={"threads": _THREADS}) as connection:
        connection.execute(_DUCKDB_DECIDED, files)
        write_deltalake(f"{where}/journal", connection.sql(_DUCKDB_JOURNAL).to_arrow_reader())
        pending = connection.sql(_DUCKDB_PENDING, params={"pending": files["pending"]})
        write_deltalake(f"{where}/pending", pending.to_arrow_reader())


def _differ(spark: SparkSession, store: Store, folder: str) -> Mapping[str, int]:
    """Of how many streams what the floor and DuckDB say is not what our run does."""
    said = "kind IN ('claimed', 'deleted')"
    ours = store.read("journal").where(said)
    floor = spark.read.format("delta").load(str(Path(folder, "floor", "journal"))).where(said)
    duckdb = {
        name: spark.read.format("delta").load(f"{folder}/duckdb/{name}")
        for name in ("journal", "pending")
    }
    return {
        "journal of the floor": differing("journal", ours, floor),
        "journal of duckdb": differing("journal", ours, duckdb["journal"]),
        "pending of duckdb": differing("pending", store.read("pending"), duckdb["pending"]),
    }
