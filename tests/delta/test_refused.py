"""What is refused before anything is written: requests, places and names that cannot be right."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from claimlib.commands.check import check
from claimlib.commands.imports import import_tables
from claimlib.commands.snapshot import snapshot
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.commands.xpending import pending_overview, read_store
from claimlib.engine.relation import Executor, Relation
from claimlib.engine.spark import frame_of
from claimlib.errors import (
    ConfigError,
    RequestError,
    SchemaError,
    SchemaVersionError,
    StoreExistsError,
    StoreIncompleteError,
    StoreNotFoundError,
    UnsafeLocationError,
)
from claimlib.plans.requests import NULLABLE, REQUEST_COLUMNS, SWEEPS
from claimlib.report.sweep_report import report_of_reply
from claimlib.semantics.model import COUNT_MAX
from claimlib.store.creation import init_sql
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import request_table, write_keyspace
from tests.conftest import by_spark_alone
from tests.delta import given_files, snapshots
from tests.delta.pels import CLAIMED, NOW_MS, REQUEST, keyspace
from tests.spark.literal import with_values


@pytest.fixture(scope="module")
def request_row(engine: Executor) -> Relation:
    return request_table(engine, {(b"s", b"g"): REQUEST})


def test_a_sound_request_table_stays_as_it_is(request_row: Relation) -> None:
    checked = SWEEPS.checked(request_row)
    assert (checked.types, checked.collect()) == (request_row.types, request_row.collect())


@pytest.mark.parametrize("column", [*(set(REQUEST_COLUMNS) - set(NULLABLE)), "start_seq"])
def test_a_null_in_a_request_is_refused_with_its_row_and_column(
    request_row: Relation, column: str
) -> None:
    with pytest.raises(RequestError, match=column) as raised:
        SWEEPS.checked(with_values(request_row, **{column: "NULL"}))
    assert raised.value.columns == [column]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("min_idle_ms", "'15m'"),
        ("idle_rule", "'Server'"),
        ("profile", "'redis-8'"),
        ("justid", "'maybe'"),
        ("count", "0"),
        ("count", "'ten'"),
        ("count", f"{COUNT_MAX + 1}"),
        ("cursor", "''"),
        ("cursor", "'\u00a0\t '"),
        ("start_ms", "'x'"),
        ("max_claims", "-1"),
        ("max_deleted_share", "1.01"),
        ("max_deleted_share", "CAST('NaN' AS DOUBLE)"),
        ("only_consumers_idle_ms", "-1"),
        ("max_deliveries", "0"),
        ("parking_consumer", "'alice'"),
        ("parking_consumer", "NULL"),
    ],
)
def test_a_value_that_no_request_can_have_is_refused_with_its_row_and_column(
    request_row: Relation, column: str, value: str
) -> None:
    parks = with_values(request_row, max_deliveries="3", parking_consumer="'parking'")
    with pytest.raises(RequestError, match=f"invalid {column} in the row for s/g"):
        SWEEPS.checked(with_values(parks, **{column: value}))


def test_a_glob_of_a_request_that_is_none_is_refused_with_its_row_and_column(store: Store) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    request = request_table(store.engine, {(b"s", b"g"): REQUEST})
    with pytest.raises(RequestError, match="invalid only_from in the request for s/g: a \\[ is"):
        xautoclaim(store, with_values(request, only_from="'[a'"))
    assert store.relation("journal").is_empty()


@pytest.mark.long
def test_a_request_that_lacks_a_column_or_names_a_group_twice_is_refused_in_a_dry_run_too(
    spark_store: Store,
) -> None:
    request = frame_of(request_table(spark_store.engine, {(b"s", b"g"): REQUEST}))
    misspelt = request.withColumnRenamed("count", "Count")
    for dry_run in (False, True):
        with pytest.raises(RequestError, match="has no column min_idle_ms"):
            xautoclaim(spark_store, request.drop("min_idle_ms"), dry_run=dry_run)
        with pytest.raises(RequestError, match="has unknown column Count"):
            xautoclaim(spark_store, misspelt, dry_run=dry_run)
        with pytest.raises(RequestError, match="2 rows for s/g"):
            xautoclaim(spark_store, request.union(request), dry_run=dry_run)
    assert spark_store.relation("journal").is_empty()


def test_entries_delivered_after_the_instant_are_counted_and_said(store: Store) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    early = xautoclaim(store, SweepRequest(REQUEST), now_ms=1, dry_run=True)
    assert early.counts["delivered_later"] == store.relation("pending").count() > 0
    assert any("delivered after the time" in note for note in report_of_reply(early).notes)


def test_a_catalog_that_spark_does_not_know_is_named_and_so_is_the_way_to_a_folder(
    spark: SparkSession,
) -> None:
    with pytest.raises(StoreNotFoundError, match=r"no catalog `my-data`.* \./my-data\.v1"):
        Store.init(spark, "my-data.v1")


def test_a_store_on_s3_is_refused_unless_a_log_store_is_named(spark: SparkSession) -> None:
    for act in (Store.open, Store.init):
        with pytest.raises(UnsafeLocationError, match=r"spark\.delta\.logStore\.s3a\.impl"):
            act(spark, "s3a://bucket/store")


def test_a_store_is_not_completed_with_another_number_of_buckets(
    spark: SparkSession, spark_store: Store
) -> None:
    shutil.rmtree(f"{spark_store.where}/pending")
    with pytest.raises(
        StoreIncompleteError, match=f"claimlib init {spark_store.where} creates what is missing"
    ):
        Store.open(spark, spark_store.where)
    with pytest.raises(StoreExistsError, match="8 buckets"):
        Store.init(spark, spark_store.where, buckets=4)
    with pytest.raises(StoreIncompleteError):
        Store.open(spark, spark_store.where)
    assert Store.init(spark, spark_store.where).buckets == 8


def test_tables_of_different_numbers_of_buckets_are_refused(
    spark: SparkSession, spark_store: Store
) -> None:
    _set(spark_store, "pending", "claimlib.buckets", "4")
    with pytest.raises(SchemaError, match="pending 4"):
        Store.open(spark, spark_store.where)


def test_a_table_without_an_id_is_of_another_version(
    spark: SparkSession, spark_store: Store
) -> None:
    name = spark_store.identifier("groups")
    spark.sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES ('claimlib.tableId')")
    with pytest.raises(SchemaVersionError, match="groups"):
        Store.open(spark, spark_store.where)


def test_a_source_cannot_be_declared_for_a_store_that_was_made_without_one(
    spark: SparkSession, spark_store: Store
) -> None:
    with pytest.raises(StoreExistsError, match="not yet filled from a source"):
        Store.init(spark, spark_store.where, source="other:6379/0")


@pytest.mark.long
@pytest.mark.parametrize("source", ["tokens.prod:6379/0", "curl-queue:6379/0", "ünï \\ 'x'"])
def test_a_declared_source_is_read_back_as_it_was_given(
    spark: SparkSession, spark_store: Store, source: str
) -> None:
    _set(spark_store, "streams", "claimlib.sourceHex", source.encode().hex())
    assert Store.open(spark, spark_store.where).declared_source == source


@pytest.mark.parametrize("buckets", [0, -1, 10**9])
def test_a_number_of_buckets_that_no_store_can_have_is_refused_before_anything_is_made(
    spark: SparkSession, tmp_path, buckets: int
) -> None:
    with pytest.raises(RequestError, match=f"cannot have {buckets} buckets: give a number from 1"):
        Store.init(spark, str(tmp_path / "store"), buckets=buckets)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("source", ["redis://u:pw@h:6379", "redis://u@h:6379", "u:pw@h:6379/0"])
def test_a_source_with_credentials_is_refused_before_anything_is_made_or_printed(
    spark: SparkSession, tmp_path, source: str
) -> None:
    with pytest.raises(RequestError, match="without credentials") as raised:
        Store.init(spark, str(tmp_path / "store"), source=source)
    assert "pw" not in str(raised.value)
    assert not (tmp_path / "store").exists()
    with pytest.raises(RequestError, match="without credentials"):
        init_sql(str(tmp_path / "store"), buckets=8, source=source)


def _set(store: Store, table: str, name: str, value: str) -> None:
    store.spark.sql(
        f"ALTER TABLE {store.identifier(table)} SET TBLPROPERTIES ('{name}' = '{value}')"
    )


@pytest.mark.long
@pytest.mark.parametrize("table", ["pending", "consumers", "cursors", "groups"])
def test_a_table_that_no_run_could_change_is_refused_before_anything_is_decided(
    spark: SparkSession, spark_store: Store, table: str
) -> None:
    write_keyspace(spark_store, keyspace(b"s"), NOW_MS)
    _set(spark_store, table, "delta.appendOnly", "true")
    opened = Store.open(spark, spark_store.where)
    with pytest.raises(SchemaError, match=f"table {table} of .* is append-only"):
        xautoclaim(opened, SweepRequest(REQUEST))
    assert opened.read("journal").isEmpty()
    assert pending_overview(read_store(opened)).count() == 1, "it can be read"


@pytest.mark.long
def test_a_store_to_whose_entries_a_pipeline_only_appends_is_swept_and_not_imported(
    spark: SparkSession, spark_store: Store, tmp_path: Path
) -> None:
    write_keyspace(spark_store, keyspace(b"s"), NOW_MS)
    for table in ("journal", "entries", "streams", "tombstones", "runs"):
        _set(spark_store, table, "delta.appendOnly", "true")
    opened = Store.open(spark, spark_store.where)
    assert xautoclaim(opened, SweepRequest(REQUEST)).counts["claimed"] == CLAIMED
    request = given_files.request(tmp_path, given_files.of_keyspace(keyspace(b"s"), NOW_MS))
    with pytest.raises(SchemaError, match=r"table entries of .* is append-only"):
        import_tables(opened, request)
    assert opened.read("journal").where("run_seq > 1").isEmpty()


def test_no_snapshot_of_a_server_is_read_into_a_table_that_it_could_not_change(
    spark: SparkSession, spark_store: Store
) -> None:
    _set(spark_store, "entries", "delta.appendOnly", "true")
    opened, was_read = Store.open(spark, spark_store.where), []
    with pytest.raises(SchemaError, match=r"table entries of .* is append-only"):
        snapshot(opened, snapshots.ANY, lambda begun: iter(was_read.append(begun) or ()))
    assert (was_read, opened.read("pel_snapshots").isEmpty()) == ([], True)


@pytest.mark.long
def test_a_session_that_makes_tables_append_only_makes_a_store_whose_rows_can_change(
    spark: SparkSession, tmp_path: Path
) -> None:
    default = "spark.databricks.delta.properties.defaults.appendOnly"
    spark.conf.set(default, "true")
    try:
        made = Store.init(spark, str(tmp_path / "store"))
    finally:
        spark.conf.unset(default)
    write_keyspace(made, keyspace(b"s"), NOW_MS)
    assert xautoclaim(made, SweepRequest(REQUEST)).counts["claimed"] == CLAIMED


@pytest.mark.long
@pytest.mark.parametrize("is_large", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_constraint_that_refuses_what_was_decided_is_named_and_the_run_is_finished_without_it(
    spark: SparkSession, spark_store: Store, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    if is_large:
        by_spark_alone(monkeypatch)
    write_keyspace(spark_store, keyspace(b"s"), NOW_MS)
    pending = spark_store.identifier("pending")
    spark.sql(f"ALTER TABLE {pending} ADD CONSTRAINT few CHECK (consumer != 'alice')")
    opened = Store.open(spark, spark_store.where)
    for run_id in ("one", "two"):
        with pytest.raises(SchemaError, match="a constraint of the table pending refuses") as it:
            xautoclaim(opened, SweepRequest(REQUEST), run_id=run_id)
        assert "constraint few" in it.value.message
        assert "DROP CONSTRAINT" in it.value.message
    spark.sql(f"ALTER TABLE {pending} DROP CONSTRAINT few")
    reply = xautoclaim(Store.open(spark, spark_store.where), SweepRequest(REQUEST), run_id="one")
    assert (reply.run_seq, reply.counts["claimed"]) == (1, CLAIMED)


def test_a_glob_of_bytes_that_are_no_text_is_kept_with_its_run(store: Store) -> None:
    write_keyspace(store, keyspace(b"\xffs", b"other"), NOW_MS)
    sweep = SweepRequest(REQUEST, stream_glob="\udcff*")
    for _ in range(2):
        reply = xautoclaim(store, sweep, run_id="bytes")
        assert (reply.run_seq, reply.counts["swept"], reply.counts["claimed"]) == (1, 1, CLAIMED)


def test_two_request_tables_that_say_the_same_number_in_different_columns_are_not_the_same(
    request_row: Relation,
) -> None:
    columns = ("count", "max_claims", "only_consumers_idle_ms")
    tables = [SWEEPS.checked(with_values(request_row, **{name: "5"})) for name in columns]
    assert len({SWEEPS.fingerprint(table)["hash"] for table in tables}) == len(columns)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "value", "sound"),
    [
        ("spark.sql.files.ignoreMissingFiles", "true", "false"),
        pytest.param("spark.sql.files.ignoreCorruptFiles", "TRUE", "false", marks=pytest.mark.long),
        pytest.param("spark.databricks.delta.stalenessLimit", "1h", "0ms", marks=pytest.mark.long),
    ],
)
def test_a_session_that_may_read_less_than_there_is_is_refused(
    spark_store: Store, name: str, value: str, sound: str
) -> None:
    """What it does not see of `entries` would be taken for deleted."""
    write_keyspace(spark_store, keyspace(b"s"), NOW_MS)
    xautoclaim(spark_store, SweepRequest(REQUEST), now_ms=0, run_id="first")
    commands: dict[str, Callable[[], object]] = {
        "sweep": lambda: xautoclaim(spark_store, SweepRequest(REQUEST)),
        "dry run": lambda: xautoclaim(spark_store, SweepRequest(REQUEST), dry_run=True),
        "overview": lambda: pending_overview(read_store(spark_store)),
        "earlier state": lambda: pending_overview(read_store(spark_store, "1")),
        "check": lambda: check(spark_store),
    }
    version = spark_store.version("journal")
    spark_store.spark.conf.set(name, value)
    try:
        for command in commands.values():
            with pytest.raises(ConfigError, match=f"{name} is {value}.*{name}=") as raised:
                command()
            assert raised.value.option == name
        assert spark_store.version("journal") == version
        spark_store.spark.conf.set(name, sound)
        assert xautoclaim(spark_store, SweepRequest(REQUEST)).counts["claimed"] == CLAIMED
    finally:
        spark_store.spark.conf.unset(name)
