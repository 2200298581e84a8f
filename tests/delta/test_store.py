"""A store is opened only if it is what this version works with, and says what is wrong."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.commands.xpending import read_store
from claimlib.errors import (
    ConfigError,
    RequestError,
    SchemaError,
    SchemaVersionError,
    StoreExistsError,
    StoreIncompleteError,
    StoreNotFoundError,
)
from claimlib.local_rows import divided_frame, local_frame
from claimlib.report.store import of_store
from claimlib.report.sweep import of_reply
from claimlib.runs import Phase
from claimlib.schema import ENTRIES_ID_PROPERTY, TABLES
from claimlib.store.creation import Creation, bind_proofs, create, init_sql
from claimlib.store.definitions import SparkDefinitions
from claimlib.store.location import Location
from claimlib.store.opening import open_folder
from claimlib.store.tables import Store
from claimlib.testing.tables import write_keyspace
from tests.delta.pels import NOW_MS, REQUEST, keyspace
from tests.delta.reading import count
from tests.writing import append_rows, execute_sql


@pytest.fixture
def store(spark_store: Store) -> Store:
    """A new store, open in Spark."""
    return spark_store


def create_by_spark(spark: SparkSession, where: str, *, accept_replaced: bool = False) -> Creation:
    return create(SparkDefinitions(spark, where), accept_replaced=accept_replaced)


def test_a_store_that_is_not_there_is_named_with_the_command_that_makes_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(StoreNotFoundError, match="claimlib init /"):
        Store.open(spark, f"{tmp_path}/none")
    with pytest.raises(StoreNotFoundError, match=r"nobody\.nothing"):
        Store.open(spark, "nobody.nothing")


def test_a_store_that_lacks_a_table_names_it_and_init_completes_it(
    spark: SparkSession, store_path: Path
) -> None:
    shutil.rmtree(store_path / "tombstones")
    with pytest.raises(StoreIncompleteError, match="tombstones") as raised:
        Store.open(spark, str(store_path))
    assert raised.value.missing == ["tombstones"]
    assert Store.init(spark, str(store_path)).version("tombstones") == 0
    with pytest.raises(StoreExistsError, match="8 buckets"):
        Store.init(spark, str(store_path), buckets=4)


def test_where_the_entries_were_lost_and_are_made_again_no_sweep_takes_them_for_deleted(
    spark: SparkSession, store: Store
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    request = SweepRequest(REQUEST)
    assert xautoclaim(store, request, dry_run=True).counts["refused"] == 0
    shutil.rmtree(Path(store.where, "entries"))
    with pytest.raises(StoreIncompleteError, match="sweeps then refuse its groups until the next"):
        Store.open(spark, store.where)
    again = Store.init(spark, store.where)
    counts = xautoclaim(again, request).counts
    assert (counts["refused"], counts["deleted"], counts["claimed"]) == (1, 0, 0)
    write_keyspace(again, keyspace(b"t"), NOW_MS)
    once_more = Store.init(spark, store.where)  # nothing is missing
    assert xautoclaim(once_more, request, dry_run=True).counts["refused"] == 1, "s, and not t"


def test_entries_made_again_by_hand_are_refused_until_init_takes_the_proofs_back(
    spark: SparkSession, store: Store
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    statements = init_sql(store.where, buckets=store.buckets)
    shutil.rmtree(Path(store.where, "entries"))
    for statement in statements:  # as somebody runs them who may not have claimlib create tables
        spark.sql(statement)
    advice = f"claimlib init {store.where} --accept-replaced accepts this one"
    for opened in (Store.open, lambda spark, where: open_folder(lambda: spark, where)):
        with pytest.raises(SchemaError, match=f"dropped and created again.*{advice}"):
            opened(spark, store.where)
    with pytest.raises(SchemaError, match=advice):
        Store.init(spark, store.where)
    again, notes = accepted(spark, store)
    assert "entries do not count as complete any more: sweeps refuse" in notes[0]
    counts = xautoclaim(again, SweepRequest(REQUEST)).counts
    assert (counts["refused"], counts["deleted"], counts["claimed"]) == (1, 0, 0)
    write_keyspace(again, keyspace(b"t"), NOW_MS)
    once_more = create_by_spark(spark, store.where)
    assert of_store(once_more, None).notes[0].endswith("already exists: nothing was changed")
    assert xautoclaim(once_more.store, SweepRequest(REQUEST), dry_run=True).counts["refused"] == 1


@pytest.fixture
def statements(tmp_path: Path) -> list[str]:
    """What makes a store, as somebody keeps it who may not have claimlib create tables."""
    return init_sql(str(tmp_path / "by-hand"), buckets=4)


@pytest.fixture
def by_hand(spark: SparkSession, tmp_path: Path, statements: list[str]) -> Store:
    """A store that these statements have made, of which a run has seen entries."""
    for statement in statements:
        spark.sql(statement)
    made = Store.open(spark, str(tmp_path / "by-hand"))
    write_keyspace(made, keyspace(b"s"), NOW_MS)
    assert xautoclaim(made, SweepRequest(REQUEST, stream_glob="none")).run_seq == 1
    return made


@pytest.fixture
def make_again(by_hand: Store, statements: list[str]) -> Callable[[str], None]:
    """Lose a table, and run the statements once more: the new one has the id of the old one."""

    def made(table: str) -> None:
        shutil.rmtree(Path(by_hand.where, table))
        for statement in statements:
            by_hand.spark.sql(statement)

    return made


ALL_PENDING = SweepRequest(REQUEST)


def accepted(spark: SparkSession, store: Store) -> tuple[Store, list[str]]:
    """A store after an `init` that accepts replaced tables, and what that says."""
    after = create_by_spark(spark, store.where, accept_replaced=True)
    return after.store, list(of_store(after, None).notes)


def test_entries_made_again_with_their_old_id_are_refused_until_init_takes_the_proofs_back(
    spark: SparkSession, by_hand: Store, make_again: Callable[[str], None]
) -> None:
    make_again("entries")
    says = (
        rf"\(entries is at version 0, but run 1 has used version 1\).*claimlib init {by_hand.where}"
        " --accept-replaced accepts the present ones; its entries then do not count as complete"
    )
    # Also by a store that has been open all the while.
    for store in (by_hand, Store.open(spark, by_hand.where)):
        for is_dry in (True, False):
            with pytest.raises(SchemaError, match=says):
                xautoclaim(store, ALL_PENDING, dry_run=is_dry)
    again, notes = accepted(spark, by_hand)
    assert "entries do not count as complete any more: sweeps refuse" in notes[0]
    assert notes[1] == "accepted at earlier versions than runs have used: entries"
    counts = xautoclaim(by_hand, ALL_PENDING).counts
    assert (counts["refused"], counts["deleted"], counts["claimed"]) == (1, 0, 0)
    with pytest.raises(RequestError, match="gone back after run 1, and were accepted"):
        read_store(again, "1")
    assert read_store(again, "2").run_seq == 2
    write_keyspace(again, keyspace(b"t"), NOW_MS)
    once_more, notes = accepted(spark, by_hand)
    assert notes[0].endswith("already exists: nothing was changed")
    assert xautoclaim(once_more, ALL_PENDING, dry_run=True).counts["refused"] == 1, "s, and not t"


@pytest.mark.parametrize("table", ["entries", "pending"])
def test_init_refuses_replaced_tables_before_it_changes_anything_unless_told_to_accept_them(
    spark: SparkSession, by_hand: Store, make_again: Callable[[str], None], table: str
) -> None:
    make_again(table)
    version, before = by_hand.version("streams"), by_hand.read("streams").collect()
    with pytest.raises(SchemaError, match=rf"\({table} is at version 0.* --accept-replaced"):
        Store.init(spark, by_hand.where)
    assert (by_hand.version("streams"), by_hand.read("streams").collect()) == (version, before)
    accepted(spark, by_hand)
    assert not create_by_spark(spark, by_hand.where).newly_accepted


def test_init_leaves_the_proofs_alone_where_it_refuses_other_entries(
    spark: SparkSession, by_hand: Store
) -> None:
    """They have another id, so that `init` would take the proofs back."""
    entries = Path(by_hand.where, "entries")
    kept = entries.rename(entries.with_name("kept"))
    for statement in init_sql(by_hand.where, buckets=4):
        spark.sql(statement)
    with pytest.raises(SchemaError, match=r"\(entries is at version 0.* --accept-replaced"):
        Store.init(spark, by_hand.where)
    shutil.rmtree(entries)
    kept.rename(entries)
    counts = xautoclaim(Store.open(spark, by_hand.where), ALL_PENDING, dry_run=True).counts
    assert counts["refused"] == 0


def test_init_creates_a_lost_table_as_the_others_are_and_accepts_it(
    spark: SparkSession, by_hand: Store
) -> None:
    shutil.rmtree(Path(by_hand.where, "entries"))
    again = create_by_spark(spark, by_hand.where)
    assert (again.store.buckets, again.newly_accepted) == (4, ("entries",))
    lost, created, *_ = of_store(again, None).notes
    assert lost.startswith("the entries do not count as complete any more")
    assert created == "created again without rows, because they were missing: entries"
    assert xautoclaim(again.store, ALL_PENDING).counts["refused"] == 1
    assert not create_by_spark(spark, by_hand.where).newly_accepted


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("lost", "refused", "claims"),
    [
        ("entries", 1, False),
        pytest.param("streams", 1, False, marks=pytest.mark.long),
        pytest.param("pending", 0, False, marks=pytest.mark.long),
        ("runs", 0, True),
        pytest.param("journal", 0, True, marks=pytest.mark.long),
    ],
)
def test_an_init_that_is_cut_off_before_it_creates_a_lost_table_or_after_it_is_finished_by_another(
    spark: SparkSession,
    by_hand: Store,
    monkeypatch: pytest.MonkeyPatch,
    lost: str,
    refused: int,
    claims: bool,
) -> None:
    table = Path(by_hand.where, lost)
    shutil.rmtree(table)
    for next_step, is_there in (("schema.properties_of_new", False), ("bind_proofs", True)):
        with monkeypatch.context() as patched:
            patched.setattr(f"claimlib.store.creation.{next_step}", interrupted)
            with pytest.raises(KeyboardInterrupt):
                Store.init(spark, by_hand.where)
        assert table.exists() == is_there
    again = Store.init(spark, by_hand.where)
    counts = xautoclaim(again, ALL_PENDING).counts
    assert (counts["refused"], counts["claimed"] > 0) == (refused, claims)


def test_where_one_table_was_lost_and_another_one_replaced_init_changes_nothing(
    spark: SparkSession, by_hand: Store, make_again: Callable[[str], None]
) -> None:
    make_again("pending")
    entries = Path(by_hand.where, "entries")
    entries.rename(entries.with_name("kept"))
    version = by_hand.version("streams")
    with pytest.raises(SchemaError, match=r"\(pending is at version 0, but run 1"):
        Store.init(spark, by_hand.where)
    assert by_hand.version("streams") == version
    assert not entries.exists()
    entries.with_name("kept").rename(entries)
    again, notes = accepted(spark, by_hand)
    assert notes[0] == "accepted at earlier versions than runs have used: pending"
    assert xautoclaim(again, ALL_PENDING).counts["refused"] == 0


def test_entries_that_are_replaced_while_a_run_works_are_refused_before_its_row_of_runs_is_written(
    by_hand: Store, make_again: Callable[[str], None]
) -> None:
    def replace(phase: Phase, _detail: str) -> None:
        if phase is Phase.VERIFY:
            make_again("entries")

    with pytest.raises(SchemaError, match=r"\(entries is at version 0, but run 2 has used"):
        xautoclaim(by_hand, ALL_PENDING, progress=replace)
    assert count(by_hand.where, "runs") == 1


def test_what_is_accepted_is_one_table_as_it_is_now_and_no_other_one(
    spark: SparkSession, by_hand: Store, make_again: Callable[[str], None]
) -> None:
    make_again("pending")
    with pytest.raises(SchemaError, match=r"\(pending is at .* accepts the present ones$"):
        xautoclaim(by_hand, ALL_PENDING)
    for as_of in (None, "1"):
        with pytest.raises(SchemaError, match=r"\(pending is at version 0"):
            read_store(by_hand, as_of)
    again, notes = accepted(spark, by_hand)
    assert notes[0] == "accepted at earlier versions than runs have used: pending"
    assert xautoclaim(again, ALL_PENDING, dry_run=True).counts["refused"] == 0
    make_again("entries")  # before any run has seen the new state
    with pytest.raises(SchemaError, match=r"\(entries is at version 0"):
        xautoclaim(again, ALL_PENDING)
    again, notes = accepted(spark, by_hand)
    assert "entries do not count as complete any more" in notes[0]
    assert again.accepted.versions["entries"] == again.version("entries")
    assert xautoclaim(again, ALL_PENDING, dry_run=True).counts["refused"] == 0, "nothing is pending"


def test_an_old_copy_of_streams_does_not_bring_back_proofs_that_were_taken_back(
    spark: SparkSession, by_hand: Store, make_again: Callable[[str], None]
) -> None:
    streams = Path(by_hand.where, "streams")
    shutil.copytree(streams, Path(by_hand.where, "copy"))
    make_again("entries")
    again, _ = accepted(spark, by_hand)
    assert xautoclaim(again, ALL_PENDING).counts["refused"] == 1
    shutil.rmtree(streams)
    Path(by_hand.where, "copy").rename(streams)
    with pytest.raises(SchemaError, match=r"streams is at version .* do not count as complete"):
        xautoclaim(Store.open(spark, by_hand.where), ALL_PENDING)
    again, notes = accepted(spark, by_hand)
    assert "entries do not count as complete any more" in notes[0]
    counts = xautoclaim(again, ALL_PENDING).counts
    assert (counts["refused"], counts["deleted"], counts["claimed"]) == (1, 0, 0)


def test_entries_that_are_made_again_while_init_looks_at_them_have_their_proofs_taken_back(
    spark: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    statements = init_sql(store.where, buckets=store.buckets)

    def bind_later(definitions: SparkDefinitions) -> bool:
        shutil.rmtree(Path(store.where, "entries"))
        for statement in statements:
            spark.sql(statement)
        return bind_proofs(definitions)

    with monkeypatch.context() as patched:
        patched.setattr("claimlib.store.creation.bind_proofs", bind_later)
        again = create_by_spark(spark, store.where)
    assert (
        "entries do not count as complete any more: sweeps refuse" in of_store(again, None).notes[0]
    )
    counts = xautoclaim(again.store, SweepRequest(REQUEST)).counts
    assert (counts["refused"], counts["deleted"], counts["claimed"]) == (1, 0, 0)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (
            "ALTER TABLE {tombstones} SET TBLPROPERTIES ('claimlib.schemaVersion' = '1')",
            SchemaVersionError,
            "tombstones .* has schema version 1",
        ),
        (
            "ALTER TABLE {streams} SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
            SchemaError,
            "table streams .* is append-only",
        ),
    ],
)
def test_init_refuses_a_store_before_it_changes_it(
    spark: SparkSession, store: Store, change: str, error: type[Exception], says: str
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    spark.sql(change.format(**{name: store.identifier(name) for name in TABLES}))
    shutil.rmtree(Path(store.where, "entries"))
    before = store.read("streams").collect()
    with pytest.raises(error, match=says):
        Store.init(spark, store.where, buckets=store.buckets)
    assert store.read("streams").collect() == before
    assert not Path(store.where, "entries").exists()


def test_where_streams_was_lost_and_is_made_again_its_proofs_are_about_the_entries_that_are_there(
    spark: SparkSession, store: Store
) -> None:
    shutil.rmtree(Path(store.where, "streams"))
    again = Store.init(spark, store.where, buckets=store.buckets)
    write_keyspace(again, keyspace(b"s"), NOW_MS)
    assert xautoclaim(again, SweepRequest(REQUEST)).counts["refused"] == 0


def test_a_store_whose_streams_do_not_say_which_entries_they_are_about_is_opened(
    spark: SparkSession, store: Store
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    name = store.identifier("streams")
    spark.sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES ('{ENTRIES_ID_PROPERTY}')")
    again = Store.open(spark, store.where)
    assert xautoclaim(again, SweepRequest(REQUEST), dry_run=True).counts["refused"] == 0
    bound = Store.init(spark, store.where, buckets=store.buckets)
    rows = spark.sql(f"SHOW TBLPROPERTIES {name} ('{ENTRIES_ID_PROPERTY}')").collect()
    assert [row["value"] for row in rows] == [bound.table_ids["entries"]], "init has them say it"
    spark.sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES ('{ENTRIES_ID_PROPERTY}')")
    shutil.rmtree(Path(store.where, "entries"))
    without = Store.init(spark, store.where, buckets=store.buckets)
    assert xautoclaim(without, SweepRequest(REQUEST), dry_run=True).counts["refused"] == 1


def test_a_table_tells_its_version_also_where_no_error_says_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = [column.name for column in TABLES["cursors"].written]
    append_rows(store, "cursors", store.rows("cursors", [("c", "s", "g", 0, 0, 0)], columns))
    newest = store.logs.history("cursors")[0]["version"]
    assert newest > 0
    assert store.version("cursors") == newest
    monkeypatch.setattr("claimlib.store.delta_errors._LATEST", re.compile("nothing says so"))
    assert store.version("cursors") == newest


def test_a_store_of_another_schema_version_is_refused(
    spark: SparkSession, store_path: Path
) -> None:
    table = Location.parse(str(store_path)).identifier("runs")
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('claimlib.schemaVersion' = '99')")
    with pytest.raises(SchemaVersionError, match="schema version 99"):
        Store.open(spark, str(store_path))


@pytest.mark.parametrize(
    ("change", "column", "says"),
    [
        ("delivery_count INT NOT NULL", "delivery_count", "is int, but must be bigint: change"),
        ("delivery_count BIGINT", "delivery_count", "may hold null"),
        ("", "delivery_count", "has no column delivery_count"),
    ],
)
def test_a_column_that_is_missing_mistyped_or_may_be_null_is_named(
    spark: SparkSession, store_path: Path, change: str, column: str, says: str
) -> None:
    shutil.rmtree(store_path / "pending")
    statement = dict(zip(TABLES, init_sql(str(store_path), buckets=8), strict=True))["pending"]
    own = "delivery_count BIGINT NOT NULL,\n"
    assert own in statement
    changed = statement.replace(own, f"{change},\n" if change else "")
    spark.sql(changed.replace(",delivery_count,", ",") if not change else changed)
    with pytest.raises(SchemaError, match=says) as raised:
        Store.open(spark, str(store_path))
    assert (raised.value.table, raised.value.column) == ("pending", column)


def test_a_sweep_of_an_empty_store_does_nothing_and_is_a_run(store: Store) -> None:
    reply = xautoclaim(store, SweepRequest(REQUEST))
    assert reply.counts == {
        "claimed": 0,
        "deleted": 0,
        "lost": 0,
        "gone": 0,
        "spared": 0,
        "parked": 0,
        "delivered_later": 0,
        "swept": 0,
        "cursor": 0,
        "refused": 0,
    }
    assert count(store.where, "runs") == 1
    assert of_reply(reply).notes[0].startswith("No consumer group of the store matches the request")


def test_a_statement_that_delta_passes_over_by_a_setting_of_the_session_is_an_error(
    store: Store,
) -> None:
    row = ("c", "s", "g", 1, 0, 0)
    append_rows(store, "cursors", store.rows("cursors", [row], TABLES["cursors"].struct.names))
    settings = {f"spark.databricks.delta.write.txn{name}": "1" for name in ("AppId", "Version")}
    raised = "UPDATE {table} SET next_ms = next_ms + 1"
    for name, value in settings.items():
        store.spark.conf.set(name, value)
    try:
        assert execute_sql(store, "cursors", raised)["num_affected_rows"] == 1
        with pytest.raises(ConfigError, match=r"passed over a statement on cursors.*Unset both"):
            execute_sql(store, "cursors", raised)
    finally:
        for name in settings:
            store.spark.conf.unset(name)
    assert [cursor["next_ms"] for cursor in store.read("cursors").collect()] == [2]


def test_no_local_relation_has_more_bytes_than_serverless_compute_takes(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["x" * 20] * 90 + ["x" * 200] * 10  # the last ones weigh more
    rows = pa.table({"id": list(range(100)), "text": texts})
    monkeypatch.setattr("claimlib.local_rows.LOCAL_DATA_BYTES", 500)
    sizes = []
    make = type(spark).createDataFrame

    def weighed(self: SparkSession, part: pa.Table, struct: object) -> DataFrame:
        sizes.append(part.nbytes)
        return make(self, part, struct)

    monkeypatch.setattr(type(spark), "createDataFrame", weighed)
    frame = local_frame(spark, rows)
    assert frame.toArrow().sort_by("id").to_pylist() == rows.to_pylist()
    assert max(sizes) <= 500
    assert len(sizes) > 5
    assert local_frame(spark, rows.slice(0, 0), frame.schema).toArrow().num_rows == 0
    monkeypatch.setattr("claimlib.local_rows.LOCAL_DATA_BYTES", 1)  # less than a row
    assert local_frame(spark, rows.slice(0, 3)).count() == 3


@pytest.mark.parametrize("way", ["rows", "lists", "its own way"])
def test_rows_behind_a_batch_without_rows_are_not_lost(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """As a filter leaves one, and delta-rs where a deletion vector hides it."""
    monkeypatch.setattr("claimlib.local_rows._MANY_ROWS", 10 if way == "rows" else 1)
    if way == "its own way":
        monkeypatch.setattr("claimlib.local_rows.LISTS_BYTES", 0)
    parts = [[], [1, 2], [], [], [3], [4], []]
    batches = [pa.record_batch([pa.array(ids, pa.int64())], ["id"]) for ids in parts]
    frame = local_frame(spark, pa.Table.from_batches(batches))
    assert sorted(row["id"] for row in frame.collect()) == [1, 2, 3, 4]
    assert frame.count() == 4


@pytest.mark.parametrize("number", [499, 500, 501, 20_000, 20_001])
def test_many_rows_of_this_process_are_the_same_rows_and_few_for_the_optimizer(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: int,
) -> None:
    """Each of its rules walks over all rows of a local relation."""

    def explained(frame: DataFrame) -> str:
        capsys.readouterr()
        frame.explain(extended=True)
        return capsys.readouterr().out

    ids = range(number)
    rows = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "text": [None if id_ % 3 == 0 else f"text {id_}" for id_ in ids],
            "fields": pa.array(
                [None if id_ % 5 == 0 else [{"name": b"\xff", "value": None}] for id_ in ids],
                pa.list_(pa.struct([("name", pa.binary()), ("value", pa.binary())])),
            ),
            "counts": pa.array(
                [None if id_ % 7 == 0 else [("lost", id_)] for id_ in ids],
                pa.map_(pa.string(), pa.int64()),
            ),
        }
    )
    frame = local_frame(spark, rows)
    read = frame.toArrow().sort_by("id")
    assert read.to_pylist() == rows.to_pylist()
    assert frame.columns == rows.column_names
    assert local_frame(spark, rows, frame.schema).schema == frame.schema
    assert ("inline" in explained(frame)) == (number >= 500)
    monkeypatch.setattr("claimlib.local_rows.LOCAL_DATA_BYTES", rows.nbytes // 3)
    assert local_frame(spark, rows).toArrow().sort_by("id").to_pylist() == rows.to_pylist()
    monkeypatch.setattr("claimlib.local_rows.LISTS_BYTES", 1_000)
    assert "inline" not in explained(local_frame(spark, rows))


@pytest.mark.classic
@pytest.mark.parametrize(("name", "most"), [("_TASK_ROWS", 24_999), ("_TASK_BYTES", 1_000)])
def test_one_task_is_sent_the_rows_of_the_driver_only_where_they_are_few(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str, most: int
) -> None:
    """Those of a million groups in one task took more memory than 4 GiB, and the command hung."""
    rows = pa.table({"id": list(range(25_000))})
    assert divided_frame(spark, rows).rdd.getNumPartitions() == 1
    monkeypatch.setattr(f"claimlib.local_rows.{name}", most)
    frame = divided_frame(spark, rows)
    assert frame.rdd.getNumPartitions() > 1
    assert frame.count() == 25_000


def test_fewer_rows_are_fetched_if_spark_reads_them(store: Store) -> None:
    """Spark has to be sent them again with each plan that is made of them."""
    for number, are_few in ((10_001, False), (10_000, True)):
        rows = store.relation_of(store.spark.range(number))
        assert rows.reused().is_in_memory == are_few
