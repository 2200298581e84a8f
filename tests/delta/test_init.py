"""A store that is created without Spark is the same as one that Spark creates."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from claimlib.commands.init import Renamed, init
from claimlib.commands.snapshot import snapshot
from claimlib.commands.sources import LastSnapshot, source_of
from claimlib.commands.upgrade import upgrade
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.errors import (
    SchemaError,
    SourceMismatchError,
    StorageError,
    StoreBusyError,
    StoreExistsError,
    StoreIncompleteError,
)
from claimlib.live.batches import SourceOpened
from claimlib.report.store import report_of_store
from claimlib.runs.journal import ServerIdentity
from claimlib.schema import ENTRIES_ID_PROPERTY, TABLE_ID_PROPERTY, TABLES
from claimlib.store.commits import create_table
from claimlib.store.creation import create
from claimlib.store.definitions import Definitions, FolderDefinitions, SparkDefinitions
from claimlib.store.lock import FILE, WriteLock
from claimlib.store.opening import open_folder
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import read_groups, write_keyspace
from tests.delta.pels import CLAIMED, DELETED, NOW_MS, REQUEST, keyspace
from tests.delta.snapshots import ALL, source, stream
from tests.limits import set_limits
from tests.lock_holder import holding, told

SWEEP = SweepRequest(REQUEST)


def no_session() -> SparkSession:
    raise AssertionError("Spark was started")


def in_folder(where: Path) -> FolderDefinitions:
    definitions = FolderDefinitions.find(no_session, str(where))
    assert definitions is not None
    return definitions


@pytest.fixture
def embedded(tmp_path: Path) -> Path:
    """Return the folder of a store that was created without Spark."""
    where = tmp_path / "embedded"
    assert create(in_folder(where)).store.is_embedded
    return where


def first_commit(where: Path, table: str) -> dict[str, Any]:
    lines = (where / table / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    return {name: action for line in lines for name, action in json.loads(line).items()}


def definition(spark: SparkSession, where: Path, table: str) -> Mapping[str, object]:
    """Return the definition of a table by the log and by Spark, without random values and times."""
    commit = first_commit(where, table)
    protocol = {
        name: sorted(value) if isinstance(value, list) else value
        for name, value in commit["protocol"].items()
    }
    metadata = {name: commit["metaData"][name] for name in ("format", "partitionColumns")}
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{where}/{table}`").collect()[0].asDict()
    for name in ("id", "location", "createdAt", "lastModified", "statistics"):
        detail.pop(name, None)
    ids = {TABLE_ID_PROPERTY, ENTRIES_ID_PROPERTY}
    detail["properties"] = {
        name: "an id" if name in ids else value for name, value in detail["properties"].items()
    }
    detail["tableFeatures"] = sorted(detail["tableFeatures"])
    return {
        "protocol": protocol,
        "metadata": metadata,
        "schema": json.loads(commit["metaData"]["schemaString"]),
        "detail": detail,
        "struct": spark.read.format("delta").load(f"{where}/{table}").schema.json(),
    }


def test_each_table_is_defined_as_spark_defines_it(
    spark: SparkSession, empty_store: Path, embedded: Path
) -> None:
    for table in TABLES:
        expected = definition(spark, empty_store, table)
        assert definition(spark, embedded, table) == expected, table
    assert_bound(embedded)


def assert_bound(where: Path) -> None:
    of_streams, of_entries = (
        first_commit(where, name)["metaData"]["configuration"] for name in ("streams", "entries")
    )
    assert of_streams[ENTRIES_ID_PROPERTY] == of_entries[TABLE_ID_PROPERTY]


@pytest.mark.long
@pytest.mark.parametrize("is_embedded", [True, False], ids=["embedded", "Spark"])
@pytest.mark.parametrize(
    "is_many", [pytest.param(True, marks=pytest.mark.long), False], ids=["MERGE", "few rows"]
)
def test_runs_of_either_engine_work_on_it(
    spark: SparkSession,
    embedded: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_embedded: bool,
    is_many: bool,
) -> None:
    if is_many:
        set_limits(monkeypatch, session_rows=0)
    store = open_folder(no_session, str(embedded), writes=True)
    if not is_embedded:
        store = Store.open(spark, str(embedded))
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    reply = xautoclaim(store, SWEEP, now_ms=NOW_MS)
    assert (reply.counts["claimed"], reply.counts["deleted"]) == (CLAIMED, DELETED)
    owners = defaultdict(int)
    for entry in read_groups(Store.open(spark, str(embedded)))[b"s"][b"g"].pending:
        owners[entry.consumer] += 1
    assert owners == {b"alice": CLAIMED, b"dead": 4}


def test_spark_refuses_rows_with_a_bucket_that_is_not_that_of_their_stream(
    spark: SparkSession, embedded: Path
) -> None:
    at = f"delta.`{embedded}/entries`"
    row = "SELECT 's' AS stream, 1L AS id_ms, 0L AS id_seq, 0L AS run_seq"
    spark.sql(f"INSERT INTO {at} BY NAME {row}")
    spark.sql(f"DELETE FROM {at} WHERE id_ms = 2")
    assert spark.table(at).selectExpr("bucket = pmod(xxhash64(stream), 8)").first()[0]
    with pytest.raises(Exception, match=r"(?i)generated"):
        spark.sql(f"INSERT INTO {at} BY NAME {row}, -1 AS bucket")


def files_of(where: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in where.rglob("*") if path.is_file()}


def test_a_repeat_changes_nothing(embedded: Path) -> None:
    before = files_of(embedded)
    again = create(in_folder(embedded))
    assert (again.was_there, again.created, again.has_lost_proofs) == (True, (), False)
    assert report_of_store(again, None).notes[0].endswith("already exists: nothing was changed")
    assert files_of(embedded) == before
    with pytest.raises(StoreExistsError, match="8 buckets"):
        create(in_folder(embedded), buckets=4)


@pytest.mark.long
@pytest.mark.parametrize(
    ("engine", "number"), [("embedded", 0), ("embedded", 1), ("embedded", 10), ("Spark", 1)]
)
def test_a_creation_that_is_interrupted_is_completed_by_a_repeat_of_either_engine(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, number: int
) -> None:
    created = []

    def cut_off(folder: Path, table: Any, properties: Mapping[str, str]) -> None:
        if len(created) == number:
            raise KeyboardInterrupt
        created.append(table.name)
        create_table(folder, table, properties)

    where = tmp_path / "store"
    with monkeypatch.context() as patched:
        patched.setattr("claimlib.store.definitions.create_table", cut_off)
        with pytest.raises(KeyboardInterrupt):
            create(in_folder(where), buckets=3)
    if number:
        with pytest.raises(StoreIncompleteError):
            Store.open(spark, str(where))
    definitions = in_folder(where) if engine == "embedded" else SparkDefinitions(spark, str(where))
    completed = create(definitions).store
    assert completed.buckets == (3 if number else 8)
    # A store that has tables already is locked while it is completed.
    lock = [FILE] if number else []
    assert sorted(path.name for path in where.iterdir()) == sorted([*lock, *TABLES])
    write_keyspace(completed, keyspace(b"s"), NOW_MS)
    assert xautoclaim(completed, SWEEP, now_ms=NOW_MS).counts["claimed"] == CLAIMED


@pytest.mark.parametrize("buckets", [None, 4])
def test_two_that_create_it_at_once_make_one_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buckets: int | None
) -> None:
    where = tmp_path / "store"
    others = []

    def after_another(folder: Path, table: Any, properties: Mapping[str, str]) -> None:
        if table.name in {"streams", "pending"} and table.name not in others:
            others.append(table.name)
            create(in_folder(where), buckets=3 if buckets is None else buckets)
        create_table(folder, table, properties)

    monkeypatch.setattr("claimlib.store.definitions.create_table", after_another)
    created = create(in_folder(where), buckets=buckets)
    assert created.store.buckets == (buckets or 3)
    versions = created.store.pin().versions
    assert set(versions.values()) == {0}
    ids = [
        first_commit(where, name)["metaData"]["configuration"] for name in ("streams", "entries")
    ]
    assert ids[0][ENTRIES_ID_PROPERTY] == ids[1][TABLE_ID_PROPERTY]
    assert sorted(path.name for path in where.iterdir()) == sorted([FILE, *TABLES])


def test_of_two_that_create_it_at_once_with_other_options_the_second_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = tmp_path / "store"

    def after_another(folder: Path, table: Any, properties: Mapping[str, str]) -> None:
        monkeypatch.undo()
        create(in_folder(where), buckets=3)
        create_table(folder, table, properties)

    monkeypatch.setattr("claimlib.store.definitions.create_table", after_another)
    with pytest.raises(StoreExistsError, match="3 buckets"):
        create(in_folder(where), buckets=4)
    assert create(in_folder(where)).was_there


def test_without_its_entries_the_proofs_are_invalidated_and_the_loss_is_accepted(
    embedded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_folder(no_session, str(embedded), writes=True)
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    xautoclaim(store, SweepRequest(REQUEST, stream_glob="none"))
    shutil.rmtree(embedded / "entries")

    def cut_off(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("claimlib.store.definitions.create_table", cut_off)
        with pytest.raises(KeyboardInterrupt):
            create(in_folder(embedded))
    assert store.relation("streams").where("complete_from_ms IS NOT NULL").is_empty()
    again = create(in_folder(embedded))
    assert (again.created, again.newly_accepted) == (("entries",), ()), "accepted before"
    assert again.has_lost_proofs
    counts = xautoclaim(open_folder(no_session, str(embedded), writes=True), SWEEP).counts
    assert (counts["refused"], counts["deleted"], counts["claimed"]) == (1, 0, 0)
    (row,) = again.store.relation("streams").collect()
    assert (row["stream"], row["complete_from_ms"], row["length"]) == ("s", None, 9)


def test_replaced_tables_are_refused_until_they_are_accepted(embedded: Path) -> None:
    store = open_folder(no_session, str(embedded), writes=True)
    shutil.copytree(embedded / "pending", embedded.parent / "old")
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    xautoclaim(store, SWEEP, now_ms=NOW_MS)
    shutil.rmtree(embedded / "pending")
    (embedded.parent / "old").rename(embedded / "pending")
    before = files_of(embedded)
    with pytest.raises(SchemaError, match=r"\(pending is at version 0, but run 1"):
        create(in_folder(embedded))
    assert files_of(embedded) == before
    accepted = create(in_folder(embedded), accept_replaced=True)
    assert (accepted.newly_accepted, accepted.has_lost_proofs) == (("pending",), False)
    assert xautoclaim(accepted.store, SWEEP).run_seq == 2


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "store" / "entries" / "part.parquet"
    file.parent.mkdir(parents=True)
    file.write_text("")
    with pytest.raises(StorageError, match=r"entries cannot be written \(Directory not empty\)"):
        create(in_folder(tmp_path / "store"))
    assert list(file.parent.iterdir()) == [file]


def test_no_store_is_made_in_the_folder_of_a_table(embedded: Path) -> None:
    before = files_of(embedded)
    for inner in (embedded / "pending", embedded / "pending" / "x"):
        with pytest.raises(StorageError, match="cannot be in the folder of a table"):
            create(in_folder(inner))
    assert files_of(embedded) == before


def test_only_spark_changes_tables_with_a_constraint_or_a_damaged_log(
    spark: SparkSession, embedded: Path
) -> None:
    spark.sql(f"ALTER TABLE delta.`{embedded}/groups` ADD CONSTRAINT c CHECK (stream <> '')")
    assert FolderDefinitions.find(no_session, str(embedded)) is None
    assert FolderDefinitions.find(no_session, "lake.shop") is None
    assert FolderDefinitions.find(no_session, "s3a://bucket/store") is None
    broken = embedded.parent / "broken"
    (broken / "groups" / "_delta_log").mkdir(parents=True)
    assert FolderDefinitions.find(no_session, str(broken)) is None


@pytest.mark.parametrize("engine", ["embedded", pytest.param("spark", marks=pytest.mark.long)])
def test_a_new_name_of_the_source_counts_from_the_next_snapshot_on(
    request: pytest.FixtureRequest, embedded: Path, engine: str
) -> None:
    def defined() -> Definitions:
        if engine == "embedded":
            return in_folder(embedded)
        return SparkDefinitions(request.getfixturevalue("spark_if_needed")(), str(embedded))

    first = stream(b"s", {1: b"x"}, {1}, NOW_MS)
    snapshot(create(defined()).store, ALL, lambda _: source([SourceOpened("a", "h")], first))
    same, renaming = init(defined(), source=ALL.source)
    assert renaming is None
    assert same.store.declared_source is None
    creation, renaming = init(defined(), source="redis://moved")
    assert renaming == Renamed(
        ALL.source, "moved:6379/0", LastSnapshot(1, ALL.source, ServerIdentity("a", "h"))
    )
    store = creation.store
    assert source_of(store) == "moved:6379/0"
    with pytest.raises(SourceMismatchError, match=r"filled from moved.*that server:6379/0 is the"):
        snapshot(store, ALL, lambda _: source([SourceOpened("b", "i")], first))
    moved = replace(ALL, source="moved:6379/0")
    reply = snapshot(store, moved, lambda _: source([SourceOpened("b", "i")], first))
    assert reply.former_source is None
    back = snapshot(store, ALL, lambda _: source([SourceOpened("c", "j", "i")], first))
    assert (back.former_source, source_of(store)) == ("moved:6379/0", ALL.source)
    _, again = init(defined(), source="moved:6379")
    assert again is not None
    assert source_of(create(defined()).store) == "moved:6379/0"


def test_a_store_that_no_snapshot_has_filled_keeps_its_source(embedded: Path) -> None:
    with pytest.raises(StoreExistsError, match="not yet filled from a source"):
        init(in_folder(embedded), source="lake")


@pytest.mark.parametrize("change", [partial(create, accept_replaced=True), upgrade])
def test_tables_are_not_changed_while_another_process_writes_to_them(
    embedded: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[FolderDefinitions], object]
) -> None:
    """Without the lock a commit of Spark could replace one of the other process."""
    with holding(embedded, "snapshot:other") as process:
        assert told(process) == "held"
        lock = partial(WriteLock, wait_ms=0)
        monkeypatch.setattr("claimlib.store.creation.WriteLock", lambda folder, _: lock(folder))
        with pytest.raises(StoreBusyError, match="snapshot:other"):
            change(in_folder(embedded))
        assert not create(in_folder(embedded)).created, "a repeat that changes nothing waits"
