"""The embedded engine writes tables so that other readers and writers find what Delta says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from claimlib.commands.snapshot import SnapshotReply, snapshot
from claimlib.commands.xack import NamedAck, xack
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.engine.changes import Changes
from claimlib.engine.embedded import EmbeddedEngine
from claimlib.engine.folder import DataFile
from claimlib.engine.relation import Relation, Rows
from claimlib.errors import CommitConflictError, SchemaError
from claimlib.live.batches import Batch
from claimlib.plans.keys import bucket_of
from claimlib.runs import Phase
from claimlib.semantics.ids import StreamId
from claimlib.store import local as local_delta
from claimlib.store.folder_writer import FolderWriter
from claimlib.store.local import Commit, Condition, LocalTable, Token
from claimlib.store.tables import Store
from claimlib.store.threads import WRITES
from claimlib.store.writer import RunCommit
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.own_rows import pending_row
from tests.delta.pels import NOW_MS, REQUEST, keyspace
from tests.delta.reading import count
from tests.delta.snapshots import ANY, source, stream
from tests.limits import set_limits
from tests.writing import append_rows, execute_sql

# Over Spark Connect a path may be on another machine: there Spark writes all.
pytestmark = pytest.mark.classic

TOKEN = Token("test", 7)


@pytest.fixture
def store(folder_store: Store) -> Store:
    """Return a store of the embedded engine, because these tests check only this engine."""
    return folder_store


def rows(store: Store, *ids: int, stream: str = "s") -> Relation:
    values = [pending_row(stream, id_ms) for id_ms in ids]
    columns = list(values[0])
    return store.rows("pending", [tuple(row[name] for name in columns) for row in values], columns)


def ids(store: Store, table: str = "pending") -> list[int]:
    return sorted(row["id_ms"] for row in store.relation(table).collect())


def newest(store: Store, table: str) -> LocalTable:
    local = local_delta.newest(Path(store.where) / table)
    assert local is not None
    return local


def test_spark_reads_what_was_appended_with_generated_columns_and_skips_files_by_statistics(
    store: Store,
) -> None:
    store.writer.append("pending", rows(store, 2, 1), note="mine")
    pending = store.read("pending").where("bucket = pmod(xxhash64(stream), 8) AND id_ms >= 1")
    assert pending.where("group_key = xxhash64(stream, consumer_group)").count() == 2
    assert store.read("pending").where("id_ms = 3").count() == 0
    assert store.logs.newest_note("pending")[1] == "mine"
    assert store.logs.history("pending", 1)[0]["userMetadata"] == "mine"


LANDED = {
    "landing": ["l"] * 5,
    "stream": ["s", "t", "s", "s", "ü"],
    "consumer_group": ["g", "s", "h", "g", "g"],
    "id_ms": [1, 2, 3, -1, 5],
    "id_seq": [0, 1, 0, 0, 0],
    "consumer": ["a", None, "b", "a", "c"],
    "delivery_time_ms": [10, 20, 30, 40, 50],
    "delivery_count": [1, 2, 3, 4, 5],
    "snapshot_ms": [7] * 5,
}


@pytest.mark.parametrize("opened", ["store", "spark_store"])
def test_rows_of_this_process_get_what_delta_generates_of_their_names_whoever_writes_them(
    request: pytest.FixtureRequest, opened: str
) -> None:
    store: Store = request.getfixturevalue(opened)
    store.writer.append("pel_snapshots", Relation(store.engine, Rows(pa.table(LANDED))))
    landed = store.read("pel_snapshots")
    of_names = "stream_key = xxhash64(stream) AND group_key = xxhash64(stream, consumer_group)"
    assert landed.where(of_names).where("bucket = pmod(xxhash64(stream), 8)").count() == 5
    rows = {tuple(row) for row in landed.select(*LANDED).collect()}
    assert rows == set(zip(*LANDED.values(), strict=True))


def snapshot_of(*owners: tuple[int, bytes], at_ms: int) -> Iterator[Batch]:
    pending = dict(owners)
    return source(stream(b"s", pending, set(pending), at_ms))


@pytest.mark.parametrize("moment", ["before", "meanwhile"])
@pytest.mark.parametrize("table", ["pending", "entries"])
def test_what_others_change_while_a_snapshot_writes_a_small_table_again_stays_as_they_left_it(
    store: Store, monkeypatch: pytest.MonkeyPatch, table: str, moment: str
) -> None:
    """Row 3 was to stay, and somebody removes it: it does not come back with the new row 4."""
    snapshot(store, ANY, lambda _: snapshot_of((1, b"a"), (2, b"a"), (3, b"a"), at_ms=NOW_MS))
    commit, tried = FolderWriter._commit_after, [""]

    def others() -> None:
        store.writer.delete(table, Condition("id_ms", 3))

    def meanwhile(self: FolderWriter, name: str, *arguments: Any) -> None:
        tried.append(name)
        if moment == "meanwhile" and tried.count(table) == 1 and name == table:
            others()
        commit(self, name, *arguments)

    def before(phase: Phase, _detail: str) -> None:
        if (phase, moment) == (Phase.APPLY, "before"):
            others()

    monkeypatch.setattr(FolderWriter, "_commit_after", meanwhile)
    later = ((1, b"b"), (3, b"a"), (4, b"a"))
    reply = snapshot(store, ANY, lambda _: snapshot_of(*later, at_ms=NOW_MS + 1), progress=before)

    assert tried.count(table) == (2 if moment == "meanwhile" else 1)
    assert reply.counts[f"{table}_missing"] == 1
    assert ids(store, table) == [1, 4]
    others_table = "entries" if table == "pending" else "pending"
    assert ids(store, others_table) == [1, 3, 4]


def test_a_snapshot_writes_each_small_table_by_one_commit(store: Store) -> None:
    snapshot(store, ANY, lambda _: snapshot_of((1, b"a"), (2, b"a"), (3, b"a"), at_ms=NOW_MS))
    before = {table: store.version(table) for table in ("pending", "entries")}
    later = ((1, b"b"), (3, b"a"), (4, b"a"))
    snapshot(store, ANY, lambda _: snapshot_of(*later, at_ms=NOW_MS + 1))
    assert {table: store.version(table) - version for table, version in before.items()} == {
        "pending": 1,
        "entries": 1,
    }
    rows = store.relation("pending").select("id_ms", "consumer", "run_seq").collect()
    assert {tuple(row.values()) for row in rows} == {(1, "b", 2), (3, "a", 1), (4, "a", 2)}
    assert ids(store, "entries") == [1, 3, 4]


@pytest.mark.parametrize("cut", ["pending", "entries", "consumers", Phase.VERIFY, Phase.FINISH])
def test_a_snapshot_that_ends_between_its_commits_is_finished_by_the_next_run(
    store: Store, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    snapshot(store, ANY, lambda _: snapshot_of((1, b"a"), (2, b"z"), (3, b"a"), at_ms=NOW_MS))
    commit = FolderWriter._commit_after

    def cut_off(self: FolderWriter, name: str, *arguments: Any) -> None:
        if name == cut:
            raise InterruptedError
        commit(self, name, *arguments)

    def enter(phase: Phase, _detail: str) -> None:
        if phase == cut:
            raise InterruptedError

    def later() -> SnapshotReply:
        owners = ((1, b"b"), (3, b"a"), (4, b"a"))
        rows = snapshot_of(*owners, at_ms=NOW_MS + 1)
        return snapshot(store, ANY, lambda _: rows, run_id="cut", progress=enter)

    with monkeypatch.context() as patch:
        patch.setattr(FolderWriter, "_commit_after", cut_off)
        with pytest.raises(InterruptedError):
            later()
    cut = ""
    reply = later()

    names = ("pending_replaced", "pending_removed", "pending_new", "entry_removed", "lost")
    assert [reply.counts.get(name, 0) for name in names] == [1, 1, 1, 1, 0]
    rows = store.relation("pending").select("id_ms", "consumer", "run_seq").collect()
    assert sorted(tuple(row.values()) for row in rows) == [(1, "b", 2), (3, "a", 1), (4, "a", 2)]
    assert ids(store, "entries") == [1, 3, 4]
    consumers = store.relation("consumers").select("consumer", "run_seq").collect()
    assert sorted(tuple(row.values()) for row in consumers) == [("a", 1), ("b", 2)]
    assert store.relation("entry_landing").count() == 0


def test_a_commit_comes_right_after_its_version(store: Store) -> None:
    before, after = newest(store, "groups"), newest(store, "groups")
    names = {"stream": ["s"], "consumer_group": ["g"], "last_delivered_ms": [1]}
    row = pa.table({**names, "last_delivered_seq": [0], "snapshot_ms": [5], "run_seq": [0]})
    written = Relation(store.engine, Rows(row)).node
    assert isinstance(store.engine, EmbeddedEngine)
    files = [store.engine.write(written, "groups", None, None) for _ in range(2)]
    assert before.commit(files[0], Commit("append"))
    assert not after.commit(files[1], Commit("append"))
    assert store.relation("groups").count() == 1
    earlier = before.rows(10)
    assert earlier is not None, "who reads the version before a commit still can"
    assert earlier.num_rows == 0


def others_come_first(
    store: Store, monkeypatch: pytest.MonkeyPatch, *others: int, token: Token | None = None
) -> None:
    """Append a row with each of these ids right before a commit to the table."""
    commit, left = LocalTable.commit, [*reversed(others)]

    def late(self: LocalTable, written: Sequence[DataFile], how: Commit) -> bool:
        if left:
            append_rows(store, "pending", rows(store, left.pop()), token=token)
        return commit(self, written, how)

    monkeypatch.setattr(LocalTable, "commit", late)


def check_all_files_committed(store: Store) -> None:
    """Assert that the folder of `pending` has the files of its newest version and no other."""
    there = [file.name for file in Path(store.where, "pending").rglob("*.parquet")]
    actions = pa.table(newest(store, "pending")._table.get_add_actions())
    assert sorted(there) == sorted(Path(path).name for path in actions["path"].to_pylist())


def test_a_refused_commit_leaves_no_file_behind(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_rows(store, "pending", rows(store, 1))
    others_come_first(store, monkeypatch, 2)
    with pytest.raises(CommitConflictError, match="pending"):
        store.writer.update("pending", {"consumer": "'new'"}, "true")
    assert ids(store) == [1, 2]
    check_all_files_committed(store)


def test_what_is_made_of_a_version_is_not_written_after_another_version(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_rows(store, "pending", rows(store, 1))
    with monkeypatch.context() as patch:
        others_come_first(store, patch, 2)
        with pytest.raises(CommitConflictError, match="pending"):
            store.writer.update("pending", {"id_ms": "5L"}, "id_ms = 1")
    assert ids(store) == [1, 2]
    store.writer.update("pending", {"id_ms": "5L"}, "id_ms = 1")
    assert ids(store) == [2, 5]


def test_a_token_lets_one_append_through_whoever_writes_first(store: Store) -> None:
    append_rows(store, "pending", rows(store, 1), token=TOKEN)
    append_rows(store, "pending", rows(store, 2), token=TOKEN)
    append_rows(store, "pending", rows(store, 3), token=TOKEN)
    assert ids(store) == [1]
    later = Token(TOKEN.app_id, TOKEN.version + 1)
    append_rows(store, "pending", rows(store, 4), token=later)
    append_rows(store, "pending", rows(store, 5), token=later)
    assert ids(store) == [1, 4]


def test_who_commits_between_two_looks_of_an_append_does_not_lose_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    others_come_first(store, monkeypatch, 3, 2)
    append_rows(store, "pending", rows(store, 1), token=TOKEN)
    assert ids(store) == [1, 2, 3]


def test_while_spark_writes_a_table_a_commit_of_this_process_is_refused(store: Store) -> None:
    """Spark's local file system would put its commit over one that comes at that moment."""
    append_rows(store, "pending", rows(store, 1))
    changed = Condition("id_ms", 1)
    with WRITES.by_spark(store.identifier("pending")):
        with pytest.raises(CommitConflictError, match="pending"):
            append_rows(store, "pending", rows(store, 2))
        with pytest.raises(CommitConflictError, match="pending"):
            store.writer.delete("pending", changed)
    assert ids(store) == [1]
    check_all_files_committed(store)
    store.writer.delete("pending", changed)
    assert ids(store) == []


def test_of_two_appends_with_one_token_at_a_time_one_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    others_come_first(store, monkeypatch, 2, token=TOKEN)
    with pytest.raises(CommitConflictError, match="pending"):
        append_rows(store, "pending", rows(store, 1), token=TOKEN)
    assert ids(store) == [2]


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE {table} ADD CONSTRAINT small CHECK (id_ms < 100)",
        "ALTER TABLE {table} ADD COLUMNS (note STRING)",
        "ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
    ],
)
def test_a_table_with_more_than_a_store_gives_it_is_refused_and_spark_writes_it(
    store: Store, spark: SparkSession, statement: str
) -> None:
    spark.sql(statement.replace("{table}", store.identifier("pending")))
    with pytest.raises(SchemaError, match=r"pending .* only Spark can write: .* --engine spark"):
        append_rows(store, "pending", rows(store, 1))
    in_spark = Store.open(spark, store.where)
    append_rows(in_spark, "pending", rows(in_spark, 1))
    assert ids(in_spark) == [1]


@pytest.mark.long
def test_with_checkpoints_and_deletion_vectors_spark_and_delta_rs_read_the_same(
    store: Store,
) -> None:
    """Both make checkpoints of what the other has written; after two rounds each table has one."""
    for table in ("pending", "journal", "consumers", "runs"):
        store.spark.sql(
            f"ALTER TABLE {store.identifier(table)} SET TBLPROPERTIES"
            " ('delta.checkpointInterval' = '2')"
        )
    write_keyspace(store, keyspace(b"s", b"t"), NOW_MS)
    for number in range(2):
        xautoclaim(store, SweepRequest(REQUEST), now_ms=NOW_MS + number * 10**6)
        execute_sql(
            store, "pending", f"DELETE FROM {{table}} WHERE stream = 't' AND id_ms = {number + 5}"
        )
        xack(store, [NamedAck(b"s", b"g", (StreamId(number + 1, 0),))])
    fresh = store.spark.newSession()
    for table in ("pending", "journal", "consumers", "runs"):
        assert list(Path(store.where, table, "_delta_log").glob("*.checkpoint.parquet"))
        by_spark = fresh.read.format("delta").load(f"{store.where}/{table}").select("run_seq")
        by_delta_rs = newest(store, table).rows(10_000)
        assert by_delta_rs is not None
        expected = sorted(row["run_seq"] for row in by_spark.collect())
        assert sorted(by_delta_rs["run_seq"].to_pylist()) == expected


@pytest.mark.parametrize(
    "kind", ["folder_store", pytest.param("spark_store", marks=pytest.mark.long)]
)
def test_rows_that_lack_a_value_of_a_column_without_nulls_are_refused(
    request: pytest.FixtureRequest, kind: str
) -> None:
    store: Store = request.getfixturevalue(kind)
    files = {*Path(store.where).rglob("*.parquet")}
    row = pending_row("s", 1)
    del row["id_ms"]
    rows = Relation(store.engine, Rows(pa.Table.from_pylist([row])))
    with pytest.raises(Exception, match=r"pending.*column id_ms, which is NOT NULL|NOT_NULL"):
        append_rows(store, "pending", rows)
    assert count(store.where, "pending") == 0
    if kind == "folder_store":
        assert {*Path(store.where).rglob("*.parquet")} == files


@pytest.mark.long
def test_spark_writes_a_large_bucket_to_several_files_in_the_order_of_the_key(
    spark_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, file_rows=4, session_rows=0)
    key = ("stream", "consumer_group", "id_ms", "id_seq")
    changes = Changes(
        "pending",
        1,
        None,
        key,
        new=descending(spark_store, 10).select(
            "*", f"{bucket_of('s', spark_store.buckets)} AS bucket"
        ),
    )
    spark_store.writer.apply(changes, RunCommit(Token("run", 1), None, None))
    assert ranges(spark_store) == [(1, 4), (5, 8), (9, 10)]


def descending(store: Store, number: int) -> Relation:
    """Return pending rows of one stream, the greatest id first."""
    rows = pa.Table.from_pylist([pending_row("s", 1)]).take([0] * number)
    ids = pa.array(range(number, 0, -1), pa.int64())
    rows = rows.set_column(rows.column_names.index("id_ms"), "id_ms", ids)
    return Relation(store.engine, Rows(rows))


def ranges(store: Store) -> list[tuple[int, int]]:
    """Return the smallest and the greatest id of each file of `pending`."""
    files = pa.table(DeltaTable(Path(store.where, "pending")).get_add_actions(flatten=True))
    lows, highs = (files[f"{end}.id_ms"].to_pylist() for end in ("min", "max"))
    return sorted(zip(lows, highs, strict=True))
