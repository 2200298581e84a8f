"""A small table in a local folder is written without Spark, so that whoever else reads or writes it
finds what Delta says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from claimlib.commands.snapshot import SnapshotReply, snapshot
from claimlib.commands.xack import NamedAck, xack
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.engine.folder import DataFile
from claimlib.errors import CommitConflictError
from claimlib.live.batches import Batch
from claimlib.runs import Phase
from claimlib.schema import TABLES
from claimlib.semantics.ids import StreamId
from claimlib.store import local as local_delta
from claimlib.store.local import Commit, LocalTable, Token
from claimlib.store.tables import Store
from claimlib.store.threads import WRITES
from claimlib.testing.tables import write_keyspace
from tests.delta.own_rows import pending_row
from tests.delta.pels import NOW_MS, REQUEST, keyspace
from tests.delta.snapshots import ANY, source, stream

# Over Spark Connect a path may be on another machine: there Spark writes all.
pytestmark = pytest.mark.classic

TOKEN = Token("test", 7)


@pytest.fixture
def store(spark_store: Store) -> Store:
    """A new store, open in Spark."""
    return spark_store


@pytest.fixture
def spark_writes_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    del store

    def refused(*_arguments: object) -> None:
        raise AssertionError("Spark was to write a small table")

    monkeypatch.setattr(Store, "_write", refused)


def rows(store: Store, *ids: int, stream: str = "s") -> DataFrame:
    values = [pending_row(stream, id_ms) for id_ms in ids]
    columns = list(values[0])
    return store.rows("pending", [tuple(row[name] for name in columns) for row in values], columns)


def ids(store: Store, table: str = "pending") -> list[int]:
    return sorted(row["id_ms"] for row in store.read(table).collect())


def newest(store: Store, table: str) -> LocalTable:
    local = local_delta.newest(Path(store.where) / table)
    assert local is not None
    return local


@pytest.mark.usefixtures("spark_writes_nothing")
def test_spark_reads_what_was_appended_with_generated_columns_and_skips_files_by_statistics(
    store: Store,
) -> None:
    store.append("pending", rows(store, 2, 1), note="mine")
    pending = store.read("pending").where("bucket = pmod(xxhash64(stream), 8) AND id_ms >= 1")
    assert pending.where("group_key = xxhash64(stream, consumer_group)").count() == 2
    assert store.read("pending").where("id_ms = 3").count() == 0
    assert store.last_note("pending")[1] == "mine"
    assert store.history("pending", 1)[0]["userMetadata"] == "mine"


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


@pytest.mark.parametrize("writer", ["delta-rs", "Spark"])
def test_rows_of_this_process_get_what_delta_generates_of_their_names_whoever_writes_them(
    store: Store, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, writer: str
) -> None:
    if writer == "Spark":
        monkeypatch.setattr(Store, "_committed", lambda *_: False)
    else:
        request.getfixturevalue("spark_writes_nothing")
    store.append_arrow("pel_snapshots", pa.table(LANDED))
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
    replace, tried = Store.replace, [""]

    def others() -> None:
        store.execute(table, "DELETE FROM {table} WHERE id_ms = 3")

    def meanwhile(self: Store, name: str, *rows: DataFrame, **how: Any) -> None:
        tried.append(name)
        if moment == "meanwhile" and tried.count(table) == 1 and name == table:
            others()
        replace(self, name, *rows, **how)

    def before(phase: Phase, _detail: str) -> None:
        if (phase, moment) == (Phase.APPLY, "before"):
            others()

    monkeypatch.setattr(Store, "replace", meanwhile)
    later = ((1, b"b"), (3, b"a"), (4, b"a"))
    reply = snapshot(store, ANY, lambda _: snapshot_of(*later, at_ms=NOW_MS + 1), progress=before)

    assert tried.count(table) == (1 if moment == "meanwhile" else 0)
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
    rows = store.read("pending").select("id_ms", "consumer", "run_seq").collect()
    assert {tuple(row) for row in rows} == {(1, "b", 2), (3, "a", 1), (4, "a", 2)}
    assert ids(store, "entries") == [1, 3, 4]


@pytest.mark.parametrize("cut", ["pending", "entries", "consumers", Phase.VERIFY, Phase.FINISH])
def test_a_snapshot_that_ends_between_its_commits_is_finished_by_the_next_run(
    store: Store, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    snapshot(store, ANY, lambda _: snapshot_of((1, b"a"), (2, b"z"), (3, b"a"), at_ms=NOW_MS))
    replace = Store.replace

    def cut_off(self: Store, name: str, *rows: DataFrame, **how: Any) -> None:
        if name == cut:
            raise InterruptedError
        replace(self, name, *rows, **how)

    def enter(phase: Phase, _detail: str) -> None:
        if phase == cut:
            raise InterruptedError

    def later() -> SnapshotReply:
        owners = ((1, b"b"), (3, b"a"), (4, b"a"))
        rows = snapshot_of(*owners, at_ms=NOW_MS + 1)
        return snapshot(store, ANY, lambda _: rows, run_id="cut", progress=enter)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "replace", cut_off)
        with pytest.raises(InterruptedError):
            later()
    cut = ""
    reply = later()

    names = ("pending_replaced", "pending_removed", "pending_new", "entry_removed", "lost")
    assert [reply.counts.get(name, 0) for name in names] == [1, 1, 1, 1, 0]
    rows = store.read("pending").select("id_ms", "consumer", "run_seq").collect()
    assert sorted(map(tuple, rows)) == [(1, "b", 2), (3, "a", 1), (4, "a", 2)]
    assert ids(store, "entries") == [1, 3, 4]
    consumers = store.read("consumers").select("consumer", "run_seq").collect()
    assert sorted(map(tuple, consumers)) == [("a", 1), ("b", 2)]
    assert store.read("entry_landing").count() == 0


@pytest.mark.usefixtures("spark_writes_nothing")
def test_a_commit_comes_right_after_its_version(store: Store) -> None:
    before, after = newest(store, "groups"), newest(store, "groups")
    names = {"stream": ["s"], "consumer_group": ["g"], "last_delivered_ms": [1]}
    row = pa.table({**names, "last_delivered_seq": [0], "snapshot_ms": [5], "run_seq": [0]})
    assert before.commit(before.written_files(row), Commit("append"))
    assert not after.commit(after.written_files(row), Commit("append"))
    assert store.read("groups").count() == 1
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
            store.append("pending", rows(store, left.pop()), token=token)
        return commit(self, written, how)

    monkeypatch.setattr(LocalTable, "commit", late)


def test_a_refused_commit_leaves_no_file_behind(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    others_come_first(store, monkeypatch, 2)
    with pytest.raises(CommitConflictError, match="pending"):
        store.append("pending", rows(store, 1), after=store.version("pending"))
    there = [file.name for file in Path(store.where, "pending").rglob("*.parquet")]
    actions = pa.table(newest(store, "pending")._table.get_add_actions())
    assert sorted(there) == sorted(Path(path).name for path in actions["path"].to_pylist())
    assert len(there) == 1


def test_a_token_lets_one_append_through_whoever_writes_first(store: Store) -> None:
    store.append("pending", rows(store, 1), token=TOKEN)
    store.append("pending", rows(store, 2), token=TOKEN)
    store.append("pending", rows(store, 3), token=TOKEN)
    assert ids(store) == [1]
    later = Token(TOKEN.app_id, TOKEN.version + 1)
    store.append("pending", rows(store, 4), token=later)
    store.append("pending", rows(store, 5), token=later)
    assert ids(store) == [1, 4]


def test_rows_made_from_a_version_are_not_written_after_another_one(store: Store) -> None:
    few = store.few_now("pending")
    assert few is not None
    _, version = few
    store.append("pending", rows(store, 1))
    with pytest.raises(CommitConflictError, match="pending"):
        store.append("pending", rows(store, 2), after=version)
    with pytest.raises(CommitConflictError, match="pending"):
        store.replace("pending", rows(store, 3), token=TOKEN, note="n", after=version)
    assert ids(store) == [1]


def test_who_commits_between_two_looks_of_an_append_does_not_lose_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    others_come_first(store, monkeypatch, 3, 2)
    store.append("pending", rows(store, 1), token=TOKEN)
    assert ids(store) == [1, 2, 3]


def test_while_spark_writes_a_table_it_also_writes_the_few_rows_that_come_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's local file system would put its commit over one that comes at that moment."""
    few = store.few_now("pending")
    assert few is not None
    write, others = Store._write, [2]

    def meanwhile(self: Store, *arguments: object) -> None:
        if others:
            store.append("pending", rows(store, others.pop()))
            with pytest.raises(CommitConflictError, match="pending"):
                store.append("pending", rows(store, 3), after=few[1])
        write(self, *arguments)  # type: ignore[arg-type]

    with WRITES.by_spark(store.identifier("pending")):
        monkeypatch.setattr(Store, "_write", meanwhile)
        store.append("pending", rows(store, 1))
    assert ids(store) == [1, 2]
    assert {row["engineInfo"].split("/")[0] for row in store.history("pending", 2)} == {
        "Apache-Spark"
    }


def test_of_two_appends_with_one_token_at_a_time_one_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    others_come_first(store, monkeypatch, 2, token=TOKEN)
    with pytest.raises(CommitConflictError, match="pending"):
        store.append("pending", rows(store, 1), token=TOKEN)
    assert ids(store) == [2]


def test_what_replaces_a_bucket_leaves_the_others_and_no_row_of_it_with_deletion_vectors(
    store: Store,
) -> None:
    store.append("pending", rows(store, 1, 2, 3))
    store.append("pending", rows(store, 9, stream="t"))
    store.execute("pending", "DELETE FROM {table} WHERE id_ms = 2")
    (bucket,) = {r["bucket"] for r in store.read("pending").where("stream = 's'").collect()}
    _, version = store.few_now("pending") or (None, -1)
    assert version == store.version("pending")
    store.replace("pending", rows(store, 4), [bucket], token=TOKEN, note="n", after=version)
    assert ids(store) == ([4, 9] if bucket != _bucket(store, "t") else [4])
    assert newest(store, "pending").version == version + 1


def _bucket(store: Store, stream: str) -> int:
    row = store.spark.sql(f"SELECT pmod(xxhash64('{stream}'), {store.buckets}) AS b").first()
    assert row is not None
    return int(row["b"])


@pytest.mark.parametrize(
    ("statement", "is_refused"),
    [
        ("ALTER TABLE {table} ADD CONSTRAINT small CHECK (id_ms < 100)", True),
        ("ALTER TABLE {table} ADD COLUMNS (note STRING)", False),
        (
            "ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
            False,
        ),
    ],
)
def test_a_table_with_more_than_a_store_gives_it_is_written_by_spark(
    store: Store, statement: str, *, is_refused: bool
) -> None:
    store.spark.sql(statement.replace("{table}", store.identifier("pending")))
    assert store.few_now("pending") is None
    store.append("pending", rows(store, 1))
    if is_refused:
        with pytest.raises(Exception, match="CHECK"):
            store.append("pending", rows(store, 200))
    assert ids(store) == [1]
    assert "delta-rs" not in str(store.history("pending", 1)[0]["engineInfo"])


def test_null_where_none_may_be_is_refused(store: Store) -> None:
    columns = [name for name in TABLES["pending"].struct.names if name != "id_ms"]
    row = pending_row("s", 1)
    lacking = store.rows("pending", [tuple(row[name] for name in columns)], columns)
    with pytest.raises(Exception, match="NOT NULL"):
        store.append("pending", lacking)
    assert ids(store) == []


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
        store.execute(
            "pending", f"DELETE FROM {{table}} WHERE stream = 't' AND id_ms = {number + 5}"
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
