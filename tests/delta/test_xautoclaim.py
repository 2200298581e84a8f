"""A sweep over a store does what the reference does, and what it did can be read."""

from __future__ import annotations

import json

import pytest

from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.errors import RequestError, RunKeyConflictError, SchemaError
from claimlib.schema import TABLES
from claimlib.semantics import scan
from claimlib.store.opening import open_folder
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import read_groups, write_keyspace
from tests.delta.pels import CLAIMED, DELETED, ENTRIES, NOW_MS, PEL, REQUEST, keyspace
from tests.writing import execute_sql

SWEEP = SweepRequest(REQUEST)


def versions(store: Store) -> dict[str, int]:
    return {name: store.version(name) for name in TABLES}


def test_a_sweep_leaves_the_tables_as_the_reference_leaves_the_group_and_only_once(
    each_store: Store,
) -> None:
    write_keyspace(each_store, keyspace(b"s", b"other"), NOW_MS)
    expected, answer = scan.xautoclaim(PEL, REQUEST, NOW_MS, ENTRIES)
    before = versions(each_store)

    shown = xautoclaim(each_store, SweepRequest(REQUEST, stream_glob="s"), dry_run=True)
    assert shown.counts == {
        "claimed": CLAIMED,
        "deleted": DELETED,
        "lost": 0,
        "gone": 0,
        "spared": 0,
        "parked": 0,
        "delivered_later": 0,
        "swept": 1,
        "cursor": 0,
        "refused": 0,
    }
    assert {row["id"] for row in shown.claimed.collect()} == set(map(str, answer.claimed))
    assert versions(each_store) == before, "a dry run writes nothing"

    reply = xautoclaim(each_store, SweepRequest(REQUEST, stream_glob="s"), run_id="once")
    assert read_groups(each_store) == {b"s": {b"g": expected}, b"other": {b"g": PEL}}
    assert {row["id"] for row in reply.claimed.collect()} == set(map(str, answer.claimed))
    assert {row["id"] for row in reply.deleted.collect()} == set(map(str, answer.deleted))
    assert {row["id"]: row["fields"] for row in reply.claimed.collect()}["3-0"] == [
        {"name": b"field", "value": b"3"}
    ]
    (group,) = reply.groups.collect()
    assert (group["status"], group["pending_before"], group["pending_after"]) == ("swept", 10, 9)
    assert (group["oldest_idle_ms"], group["highest_delivery_count"]) == (60_000, 1)
    tombstones = [
        (row["stream"], row["id_ms"], row["consumer"], row["purged_at_ms"])
        for row in each_store.read("tombstones").collect()
    ]
    assert tombstones == [("s", 4, "dead", NOW_MS)]

    after = versions(each_store)
    again = xautoclaim(each_store, SweepRequest(REQUEST, stream_glob="s"), run_id="once")
    assert again.counts == reply.counts
    assert versions(each_store) == after, "the same key again changes nothing"
    with pytest.raises(RunKeyConflictError, match="once"):
        xautoclaim(each_store, SWEEP, run_id="once")
    assert versions(each_store) == after, "another request under the same key is refused"


@pytest.mark.smoke
def test_the_journal_says_who_got_what_when_and_why(store: Store) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    xautoclaim(store, SWEEP, run_id="r")
    journal = store.read("journal")
    run = journal.where("kind = 'run'").first()
    assert (run["command"], run["run_id"], run["run_seq"]) == ("xautoclaim", "r", 1)
    assert json.loads(run["request"])["min_idle_ms"] == 1000
    claim = journal.where("kind = 'claimed' AND id_ms = 3").first()
    assert (claim["from_consumer"], claim["from_delivery_time_ms"]) == ("dead", NOW_MS - 60_000)
    assert (claim["consumer"], claim["delivery_time_ms"]) == ("alice", NOW_MS)
    assert (claim["from_delivery_count"], claim["delivery_count"]) == (1, 2)
    finished = store.read("runs").first()
    assert finished["output_versions"]["pending"] == store.version("pending")
    assert finished["counts"]["claimed"] == CLAIMED
    assert {*finished["phase_ms"]} == {"begin", "decide", "apply", "verify", "record", "finish"}


def test_an_instant_that_is_none_is_refused_before_anything_is_read(store: Store) -> None:
    with pytest.raises(RequestError, match="now_ms"):
        xautoclaim(store, SWEEP, now_ms=-1)


@pytest.mark.long
def test_a_sweep_keeps_the_values_in_columns_that_users_added(spark_store: Store) -> None:
    """Their names may be those of columns that a plan computes."""
    write_keyspace(spark_store, keyspace(b"s"), NOW_MS)
    for table in ("pending", "entries"):
        own = "(`my-col` STRING, is_spared BOOLEAN, is_claimable BOOLEAN)"
        spark_store.spark.sql(f"ALTER TABLE {spark_store.identifier(table)} ADD COLUMNS {own}")
    value = "CONCAT('of ', CAST(id_ms AS STRING))"
    execute_sql(
        spark_store,
        "pending",
        f"UPDATE {{table}} SET `my-col` = {value}, is_spared = true, is_claimable = false",
    )
    counts = xautoclaim(spark_store, SWEEP).counts
    assert (counts["claimed"], counts["deleted"], counts["spared"]) == (CLAIMED, DELETED, 0)
    rows = spark_store.spark.table(spark_store.identifier("pending")).collect()
    assert len(rows) == len(PEL.pending) - DELETED
    assert {row["my-col"] == f"of {row['id_ms']}" for row in rows} == {True}
    assert {(row["is_spared"], row["is_claimable"]) for row in rows} == {(True, False)}
    folder = open_folder(lambda: spark_store.spark, spark_store.where)
    with pytest.raises(SchemaError, match="only Spark can write"):
        xautoclaim(folder, SWEEP, now_ms=NOW_MS + 10**6)
