"""What delta-rs sums up of a large table is what Spark does.

Over Spark Connect nothing is left to delta-rs, so most of these tests are for a classic session.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from claimlib.commands.preconditions import ENTRY_IDS
from claimlib.plans import requests, survey
from claimlib.plans.keys import GROUP, bucket
from claimlib.runs import journal
from claimlib.schema import TABLES
from claimlib.store.tables import Store, arranged
from claimlib.testing.tables import request_table, write_keyspace
from tests.batches import Batch, random_batch
from tests.delta.own_rows import append, pending_row

RUN_SEQ = 3


@pytest.fixture
def batch() -> Batch:
    """Nothing is random: by seed 5 the groups are always the same."""
    return random_batch(300, seed=5)


@pytest.fixture
def full_store(store: Store, batch: Batch, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A batch, with rows that no server has, and many that deletion vectors hide, in files and
    row groups of their own."""
    monkeypatch.setattr("claimlib.store.tables.FEW_ROWS", 0)
    write_keyspace(store, batch.keyspace, batch.instants)
    many = store.spark.range(0, 30_000, 1, 1).selectExpr(
        "'höchst ''ungewöhnlich''' AS stream",
        "'g' AS consumer_group",
        "CAST(id * 7 - 100000 AS BIGINT) AS id_ms",  # some of them are 2^63 and more
        "id AS id_seq",
        "CASE WHEN id % 3 > 0 THEN concat('c', id % 5) END AS consumer",
        "id % 1000 - 1 AS delivery_time_ms",
        "id % 7 - 1 AS delivery_count",
        "id % 5 AS run_seq",
    )
    store.append("pending", many)
    for condition in ("id_seq BETWEEN 9000 AND 21000", "id_seq % 11 = 0 AND id_ms % 2 = 0"):
        store.execute("pending", f"DELETE FROM {{table}} WHERE {condition}")
    store.execute("pending", "UPDATE {table} SET consumer = 'new' WHERE id_seq % 101 = 5")
    assert list(Path(store.where, "pending").rglob("deletion_vector*")), "nothing is hidden"
    return store


def targets(store: Store, batch: Batch) -> DataFrame:
    known = requests.known_groups(store.read("groups"), store.read("streams"), RUN_SEQ)
    table = requests.by_table(known, request_table(store.spark, batch.requests))
    standing = requests.standing(requests.started(table, store.read("cursors"), RUN_SEQ), None)
    pages = F.expr("pmod(hash(stream), 3) = 0 AND count IS NOT NULL")
    ends = standing.where(pages).selectExpr(*GROUP, "5L AS page_end_ms", "2L AS page_end_seq")
    part = "CASE WHEN pmod(hash(stream), 4) = 1 THEN 3L ELSE complete_to_ms END"
    ended = requests.ended(standing, ends)
    return store.held(ended.withColumn("complete_to_ms", F.expr(part)))


def rows(frame: DataFrame) -> Counter[str]:
    """Rows, in no order; null is None."""
    return Counter(str(sorted(row.asDict().items())) for row in frame.collect())


@pytest.mark.classic
def test_the_survey_of_delta_rs_says_of_each_group_what_that_of_spark_says(
    full_store: Store, batch: Batch
) -> None:
    pending = full_store.read_at("pending", full_store.version("pending"))
    wanted = targets(full_store, batch)
    surveyed = survey.surveyed_of(wanted)
    by_spark = survey.by_group(pending, surveyed, RUN_SEQ)
    by_delta_rs = full_store.queried(pending, survey.by_group_sql(RUN_SEQ), surveyed=surveyed)
    assert by_delta_rs is not None
    assert rows(full_store.in_memory(by_delta_rs)) == rows(by_spark)
    total = by_spark.agg(*survey.totals()).first()
    assert total is not None
    assert min(total[name] for name in ("invalid", "ahead", "unproven", "at_boundary")) > 0
    assert total["delivered_later"] > 0


@pytest.mark.classic
def test_so_are_the_names_of_owners_and_of_streams(full_store: Store) -> None:
    for table, columns, name in (("pending", None, "consumer"), ("entries", ENTRY_IDS, "stream")):
        version = full_store.version(table)
        all_rows = full_store.read_at(table, version, columns)
        by_delta_rs = full_store.queried(all_rows, f"SELECT DISTINCT {name} FROM t")
        assert by_delta_rs is not None
        assert rows(full_store.in_memory(by_delta_rs)) == rows(all_rows.select(name).distinct())


def test_of_a_part_of_a_table_or_an_old_version_delta_rs_says_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store, "pending", pending_row("s", 1))
    version = store.version("pending")
    append(store, "pending", pending_row("s", 2))
    monkeypatch.setattr("claimlib.store.tables.FEW_ROWS", 0)
    newest = store.read_at("pending", store.version("pending"))
    for part in (newest.where("id_ms > 1"), store.read_at("pending", version)):
        assert store.queried(part, "SELECT DISTINCT consumer FROM t") is None


@pytest.fixture
def temporary(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> Iterator[Path]:
    """The folder for temporary files, of any name (`none`: it is not there), while a table has a
    row and is large; in the end nothing is left in it."""
    append(store, "pending", pending_row("s", 1))
    monkeypatch.setattr("claimlib.store.tables.FEW_ROWS", 0)
    where = tmp_path / name
    if name != "none":
        where.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(where))
    yield where
    gc.collect()
    assert name == "none" or not list(where.iterdir()), "it is left as it was"


@pytest.mark.classic
@pytest.mark.usefixtures("temporary")
@pytest.mark.parametrize(("name", "is_there"), [("none", False), ("a b#ü?", True)])
def test_a_folder_for_temporary_files_is_needed_whatever_its_name_and_else_spark_answers(
    store: Store, *, is_there: bool
) -> None:
    others = store.spark.sql("SELECT 's' AS stream, 7 AS n")
    joined = "SELECT n, count(*) AS rows FROM t JOIN others ON t.stream = others.stream GROUP BY n"
    answer = store.queried("pending", joined, others=others)
    assert (answer and answer.to_pylist()) == ([{"n": 7, "rows": 1}] if is_there else None)
    assert store.queried("pending", "SELECT DISTINCT consumer FROM t") is not None


def test_what_a_run_decided_is_counted_alike(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """By kind and bucket."""
    values = [(1 + n % 2, f"kind {n % 3}", f"s{n % 5}", "g", n, n) for n in range(40)]
    names = ("run_seq", "kind", "stream", "consumer_group", "id_ms", "id_seq")
    store.append("journal", store.rows("journal", values, names))
    monkeypatch.setattr("claimlib.store.tables.FEW_ROWS", 0)
    by_delta_rs = journal._counted(store, 2)
    monkeypatch.setattr(Store, "queried", lambda *_, **__: None)
    by_spark = journal._counted(store, 2)
    assert sorted(map(str, by_delta_rs)) == sorted(map(str, by_spark))
    assert sum(row["n"] for row in by_delta_rs) == 20


def test_the_rows_of_a_large_bucket_are_written_to_several_files_in_the_order_of_their_key(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claimlib.store.tables._ROWS_PER_FILE", 4)
    values = [("s", "g", 10 - n, 0, "c", 0, 1, 0) for n in range(10)]
    names = ("stream", "consumer_group", "id_ms", "id_seq", "consumer", *_REST)
    there = store.rows("pending", values, names).withColumn("bucket", bucket(store.buckets))
    store.append("pending", arranged(TABLES["pending"], there, store.buckets))
    files = pa.table(DeltaTable(Path(store.where, "pending")).get_add_actions(flatten=True))
    lows, highs = (files[f"{end}.id_ms"].to_pylist() for end in ("min", "max"))
    assert sorted(zip(lows, highs, strict=True)) == [(1, 4), (5, 8), (9, 10)]


_REST = ("delivery_time_ms", "delivery_count", "run_seq")
