"""`--engine`: the same commands by Spark and without it leave the same rows."""

import json
import shutil
from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import Consumer, Group, PendingEntry
from claimlib.semantics.words import Stream
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace
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
def filled(open_store, empty_store, tmp_path_factory):
    where = shutil.copytree(empty_store, tmp_path_factory.mktemp("engines") / "store")
    write_keyspace(open_store(where), keyspace(), NOW_MS)
    return where


def rows_read_by_spark(spark, where, columns_of=CHANGED):
    rows = {
        table: spark.read.format("delta").load(f"{where}/{table}").selectExpr(*columns.split(", "))
        for table, columns in columns_of.items()
    }
    return {table: sorted(map(str, frame.collect())) for table, frame in rows.items()}


@pytest.mark.long
def test_the_same_commands_leave_the_same_rows_by_either_engine(spark, claimlib, filled, tmp_path):
    by_spark, embedded = (
        shutil.copytree(filled, tmp_path / name / "store") for name in ("spark", "embedded")
    )
    for command, *words in COMMANDS:
        said = claimlib(command, by_spark, *words, "--engine", "spark", "--output", "csv")
        other = claimlib(command, embedded, *words, "--engine", "embedded", "--output", "csv")
        assert (other.code, other.out) == (said.code, said.out), other.err
        assert said.code == 0, said.err
    assert rows_read_by_spark(spark, embedded) == rows_read_by_spark(spark, by_spark)
    versions = [Store.open(spark, str(where)).version("pending") for where in (by_spark, embedded)]
    assert versions == [7, 6], "one commit for each run that changes it; Spark adds rows by another"
    # What one engine has done, the other knows.
    again = claimlib("xack", embedded, *COMMANDS[4][1:], "--engine", "spark")
    assert "already done" in again.out
    assert Store.open(spark, str(embedded)).logs.history("pending")[0]["userMetadata"] == (
        "claimlib run 6 retire:r"
    )


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """Return the options of an import whose entries and pending entries are in other forms."""
    folder = tmp_path_factory.mktemp("lake")
    numbers = range(1, 30)
    of_entries = {
        "stream": [b"s\xff"] * 29,
        "id": [f"{2**63 + n}-{n}" for n in numbers],
        "day": [date(2026, 1, 1 + n % 3) for n in numbers],
        "fields": [[{"name": "é\\x41", "value": f"{n}"}] if n % 2 else None for n in numbers],
    }
    write_deltalake(folder / "entries", pa.table(of_entries), partition_by=["day"])
    for group in (b"g", b"h"):
        of_pending = {
            "stream": [b"s\xff"] * 29,
            "id": of_entries["id"],
            "consumer": [None if n % 5 == 0 else f"c{n % 3}" for n in numbers],
            "delivery_time_ms": pa.array(
                [NOW_MS * 1000 + n * 1001 for n in numbers], pa.timestamp("us")
            ),
            "delivery_count": pa.array(numbers, pa.uint64()),
        }
        file = folder / "pending" / f"consumer_group={group.decode()}" / "f.parquet"
        file.parent.mkdir(parents=True)
        pq.write_table(pa.table(of_pending), file)
    return ("--entries", folder / "entries", "--pending", folder / "pending", "--entries-complete")


IMPORTED = {
    "pending": CHANGED["pending"],
    "entries": "*",
    "groups": "*",
    "streams": "*",
    "journal": "run_seq, kind, stream, consumer_group, at_ms, length, source",
    "runs": "run_seq, run_id, command, request_hash, counts",
}


@pytest.mark.long
def test_an_import_leaves_the_same_rows_by_either_engine(
    spark, claimlib, empty_store, lake, tmp_path
):
    words = (*lake, "--run-id", "r", "--output", "json")
    by_spark, embedded = (
        shutil.copytree(empty_store, tmp_path / name / "store") for name in ("spark", "embedded")
    )
    said = claimlib("import", by_spark, *words, "--engine", "spark")
    process = promptly(lambda: run_claimlib("import", embedded, *words, **NO_JAVA))
    assert (process.returncode, said.code) == (0, 0), process.stderr
    rows = [rows_read_by_spark(spark, where, IMPORTED) for where in (by_spark, embedded)]
    assert rows[0] == rows[1]
    assert len(rows[0]["pending"]) == 58
    documents = [json.loads(text) for text in (said.out, process.stdout)]
    assert documents[0]["counts"] == documents[1]["counts"]
    # A faulty table is refused in the same words.
    faulty = tmp_path / "faulty.parquet"
    pq.write_table(pa.table({"stream": ["a\\b", "a"], "id": ["1-0", "x"]}), faulty)
    for option in ("--pending", "--entries"):
        said = claimlib("import", by_spark, *lake, option, faulty, "--engine", "spark")
        process = run_claimlib("import", embedded, *lake, option, faulty, **NO_JAVA)
        assert said.code == process.returncode != 0
        assert said.err.splitlines()[-1] == process.stderr.splitlines()[-1]


def test_tables_of_ids_and_of_requests_are_read_without_java(filled, tmp_path):
    where = shutil.copytree(filled, tmp_path / "store")
    pq.write_table(pa.table({"id": ["1-0", "3-0"]}), tmp_path / "ids.parquet")
    ids = ("--ids-from", tmp_path / "ids.parquet")
    process = run_claimlib("xack", where, "t", "g", *ids, "--dry-run", **NO_JAVA)
    assert (process.returncode, "2 acknowledged" in process.stdout) == (0, True), process.stderr
    request = {"request": [1], "stream": ["t"], "consumer_group": ["g"], "ids": [["1-0"]]}
    write_deltalake(tmp_path / "requests", pa.table(request))
    requests = ("--requests", tmp_path / "requests")
    process = run_claimlib("xack", where, *requests, **NO_JAVA)
    assert (process.returncode, "1 acknowledged" in process.stdout) == (0, True), process.stderr


def test_a_missing_table_is_named_before_spark_starts(filled):
    missing = "nofile.txt: no such file, and no table of this name in the catalog"
    words = ("import", filled, "--entries", "nofile.txt", "--pending", "nofile.txt")
    for command in (
        ("xack", filled, "t", "g", "--ids-from", "nofile.txt"),
        ("xclaim", filled, "--requests", "nofile.txt"),
        words,
        (*words, "--engine", "spark"),
    ):
        process = promptly(lambda command=command: run_claimlib(*command, **NO_JAVA))
        assert (process.returncode, missing in process.stderr) == (4, True), process.stderr
    process = run_claimlib(
        *words, "--spark-conf", "spark.sql.catalogImplementation=hive", **NO_JAVA
    )
    assert "needs Java" in process.stderr, "a metastore may have it"


def test_what_the_embedded_engine_cannot_do_is_refused(claimlib, filled, monkeypatch):
    tables = ("--entries", "e", "--pending", "p")
    has_catalog = ("--spark-conf", "spark.sql.catalog.lake=some.Catalog")
    said = claimlib("import", filled, *tables, *has_catalog, "--engine", "embedded")
    assert (said.code, "cannot read e: it is a name in a catalog" in said.err) == (2, True)
    assert "Use --engine auto or --engine spark" in said.err
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
