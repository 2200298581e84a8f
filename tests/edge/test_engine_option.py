"""`--engine`: the same commands by Spark and without it leave the same rows."""

import json
import shutil

import pytest

from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import Consumer, Group, PendingEntry
from claimlib.semantics.words import Stream
from claimlib.store.tables import Store
from claimlib.testing.tables import write_keyspace
from tests.edge.processes import promptly, run_claimlib

NOW_MS = 1_750_000_000_000
NOW = ("--now", "2025-06-15T15:07:00Z")
NO_JAVA = {"JAVA_HOME": "/nowhere"}
CLAIM = ("--consumer", "carol", "--min-idle", "1m", "--run-id", "r", *NOW)
COMMANDS = [
    ("xautoclaim", *CLAIM, "--stream", "s"),
    ("xautoclaim", *CLAIM[:-4], "--run-id", "page", *NOW, "--count", "1", "--cursor", "c"),
    ("reset-cursor", "c", "--run-id", "r"),
    (
        "xclaim",
        "t",
        "g",
        "dave",
        "3-0",
        "9-0",
        "--min-idle",
        "0ms",
        "--force",
        "--run-id",
        "r",
        *NOW,
    ),
    ("xack", "t", "g", "1-0", "--run-id", "r"),
    ("retire", "u", "g", "dead", "--to", "erin", "--run-id", "r", *NOW),
]
CHANGED = {
    "pending": "stream, consumer_group, id_ms, id_seq, consumer, delivery_time_ms, delivery_count,"
    " run_seq, stream_key, group_key, bucket",
    "tombstones": "*",
    "consumers": "*",
    "cursors": "*",
    "groups": "*",
    "journal": "run_seq, kind, stream, consumer_group, id_ms, id_seq, request_number, position,"
    " from_consumer, from_delivery_count, consumer, delivery_time_ms, delivery_count, justid,"
    " at_ms, seen_time_ms, active_time_ms, next_ms, next_seq, pending_before, at_boundary, reason,"
    " request, request_hash, stream_key, group_key, bucket",
    "runs": "run_seq, run_id, command, request_hash, now_ms, counts",
}


def keyspace():
    pel = tuple(PendingEntry(StreamId(n, 0), b"dead", NOW_MS - 90_000, n) for n in (1, 2, 3, 4))
    group = Group(StreamId(9, 0), pel, (Consumer(b"dead", NOW_MS, None), Consumer(b"erin", 1, 2)))
    entries = {StreamId(n, 0): (b"f", b"\xff") for n in (1, 3, 4, 9)}
    return {name: Stream(entries, {b"g": group}) for name in (b"s", b"t", b"u", b"\xffv")}


@pytest.fixture(scope="module")
def filled(spark, empty_store, tmp_path_factory):
    where = shutil.copytree(empty_store, tmp_path_factory.mktemp("engines") / "store")
    write_keyspace(Store.open(spark, str(where)), keyspace(), NOW_MS)
    return where


def rows_read_by_spark(spark, where):
    rows = {
        table: spark.read.format("delta").load(f"{where}/{table}").selectExpr(*columns.split(", "))
        for table, columns in CHANGED.items()
    }
    return {table: sorted(map(str, frame.collect())) for table, frame in rows.items()}


def test_the_same_commands_leave_the_same_rows_by_either_engine(spark, claimlib, filled, tmp_path):
    by_spark, embedded = (
        shutil.copytree(filled, tmp_path / name / "store") for name in ("spark", "embedded")
    )
    for command, *words in COMMANDS:
        said = claimlib(command, by_spark, *words, "--engine", "spark", "--output", "csv")
        process = run_claimlib(
            *(command, embedded, *words, "--engine", "embedded", "--output", "csv"), **NO_JAVA
        )
        assert (process.returncode, process.stdout) == (said.code, said.out), process.stderr
        assert said.code == 0, said.err
    assert rows_read_by_spark(spark, embedded) == rows_read_by_spark(spark, by_spark)
    versions = [Store.open(spark, str(where)).version("pending") for where in (by_spark, embedded)]
    assert versions == [6, 6], "one commit for each run that changes it"
    # What one engine has done, the other knows.
    again = claimlib("xack", embedded, *COMMANDS[4][1:], "--engine", "spark")
    assert "already done" in again.out
    assert Store.open(spark, str(embedded)).history("pending")[0]["userMetadata"] == (
        "claimlib run 6 retire:r"
    )


def test_what_the_embedded_engine_cannot_do_is_refused(claimlib, filled, monkeypatch):
    tables = ("--entries", "e", "--pending", "p")
    said = claimlib("import", filled, *tables, "--engine", "embedded")
    assert (said.code, "needs Spark: leave --engine out" in said.err) == (2, True)
    said = claimlib("xpending", filled, "--engine", "duckdb")
    assert said.code == 2
    assert "engine" in said.err
    monkeypatch.setenv("CLAIMLIB_EXECUTION__ENGINE", "embedded")
    said = claimlib("xpending", "spark_catalog.claims")
    assert (said.code, "must be a folder of this machine" in said.err) == (2, True), said.err


def test_init_and_upgrade_start_no_java_for_a_local_folder(tmp_path):
    words = ("init", tmp_path / "store", "--buckets", "3", "--output", "json")
    for engine in ((), ("--engine", "embedded")):
        process = promptly(lambda engine=engine: run_claimlib(*words, *engine, **NO_JAVA))
        assert process.returncode == 0, process.stderr
        assert json.loads(process.stdout)["buckets"] == 3
    for others in (
        ("--engine", "spark"),
        ("--spark-conf", "spark.databricks.delta.properties.defaults.checkpointInterval=5"),
    ):
        process = run_claimlib(*words, *others, **NO_JAVA)
        assert (process.returncode, "needs Java" in process.stderr) == (2, True)
    again = run_claimlib("upgrade", tmp_path / "store", "--output", "json", **NO_JAVA)
    assert (again.returncode, json.loads(again.stdout)["upgraded_tables"]) == (0, [])
    process = run_claimlib("init", "s3a://bucket/store", "--engine", "embedded", **NO_JAVA)
    assert (process.returncode, "must be a folder of this machine" in process.stderr) == (2, True)
