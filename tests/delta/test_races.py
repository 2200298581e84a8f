"""Two runs at once, and other writers: one decision wins, and nothing is taken twice or revived.

All writers are threads of one session: on a local file system commits exclude each other within one
JVM only.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Lock
from typing import Any

import pytest
from pyspark.sql import DataFrame

from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.runs import Begun, Decision, Phase, claims, run
from claimlib.runs.journal import APP_ID
from claimlib.runs.protocol import INPUTS
from claimlib.schema import TABLES
from claimlib.semantics.model import AutoclaimRequest
from claimlib.store.local import Token
from claimlib.store.spark_writer import SparkWriter
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import read_groups, write_keyspace
from tests.conftest import by_spark_alone
from tests.delta.own_rows import append, delete, entry_row, pending_row, update
from tests.delta.pels import CLAIMED, DELETED, NOW_MS, PEL, REQUEST, keyspace
from tests.delta.reading import count
from tests.delta.waiting import Waiting
from tests.limits import set_limits
from tests.writing import append_rows

PATIENCE_S = 200


def claim(consumer: bytes) -> SweepRequest:
    return SweepRequest(AutoclaimRequest(consumer, 1000))


def test_a_run_whose_append_is_skipped_without_a_word_knows_that_it_lost_and_begins_again(
    store: Store,
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    pinned, other_done = Event(), Event()

    def held(phase: Phase, detail: str) -> None:
        if phase is Phase.DECIDE and detail == "run 1":
            pinned.set()
            assert other_done.wait(PATIENCE_S)

    with ThreadPoolExecutor() as threads:
        slow = threads.submit(xautoclaim, store, claim(b"slow"), run_id="slow", progress=held)
        assert pinned.wait(PATIENCE_S)
        quick = xautoclaim(store, claim(b"quick"), run_id="quick")
        other_done.set()
        lost = slow.result()

    assert (quick.run_seq, quick.counts["claimed"]) == (1, CLAIMED)
    assert (lost.run_seq, lost.counts["claimed"], lost.counts["deleted"]) == (2, 0, 0)
    where = store.where
    assert count(where, "journal", "kind = 'run' AND run_seq = 1 AND run_id = 'quick'") == 1
    assert count(where, "journal", "kind = 'run'") == 2
    assert count(where, "journal", "kind = 'claimed'") == CLAIMED
    assert count(where, "pending", "consumer = 'quick'") == CLAIMED


@pytest.mark.long
def test_of_two_decisions_that_are_appended_at_the_same_time_one_wins_and_both_runs_finish(
    spark_store: Store, tmp_path: Path
) -> None:
    store = spark_store
    waiting = Waiting(tmp_path)
    rows = store.rows("journal", [("swept", "s", "g")], ["kind", "stream", "consumer_group"])
    slow_rows = waiting.rows(rows)

    def decide_slowly(begun: Begun) -> Decision:
        return Decision(slow_rows if begun.run_seq == 1 else rows)

    with ThreadPoolExecutor() as threads:
        slow = threads.submit(
            run, store, command="slow", request={}, decide=decide_slowly, run_id="x"
        )
        waiting.until_appending(slow)
        quick = run(store, command="quick", request={}, decide=lambda _: Decision(rows), run_id="x")
        waiting.go_on()
        lost = slow.result()

    assert (quick.run_seq, lost.run_seq) == (1, 2)
    assert count(store.where, "journal", "kind = 'run'") == 2
    assert count(store.where, "runs") == 2


@pytest.fixture(
    params=[
        "few rows",
        *(pytest.param(way, marks=pytest.mark.long) for way in ("merged", "rewritten")),
    ]
)
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A new store by how a run changes `pending`.

    Of a large table Spark merges changed rows where little changes, and rewrites the buckets where
    much does.
    """
    if request.param == "few rows":
        return request.getfixturevalue("store")
    by_spark_alone(monkeypatch)
    if request.param == "rewritten":
        set_limits(monkeypatch, merged_rows=0)
    return request.getfixturevalue("spark_store")


def test_what_another_writer_takes_between_decision_and_apply_is_lost_and_stays_away(
    each_way: Store,
) -> None:
    store = each_way
    write_keyspace(store, keyspace(b"s"), NOW_MS)

    def take(phase: Phase, detail: str) -> None:
        del detail
        if phase is Phase.APPLY:
            delete(store, "pending", "id_ms IN (3, 4)")
            update(store, "pending", "id_ms = 5", consumer="'eve'")

    reply = xautoclaim(store, SweepRequest(REQUEST), progress=take)

    assert reply.counts["lost"] == 3
    assert {row["id"] for row in reply.lost.collect()} == {"3-0", "4-0", "5-0"}
    assert {row["id"] for row in reply.claimed.collect()} == {"1-0", "7-0", "9-0"}
    assert reply.deleted.count() == 0
    left = {entry.id.ms: entry.consumer for entry in read_groups(store)[b"s"][b"g"].pending}
    assert left == {
        1: b"alice",
        7: b"alice",
        9: b"alice",
        5: b"eve",
        **dict.fromkeys((2, 6, 8, 10), b"dead"),
    }
    assert count(store.where, "tombstones") == 0, "it was not this run that purged it"
    assert count(store.where, "journal", "kind = 'lost'") == 3
    again = xautoclaim(store, SweepRequest(REQUEST))
    assert again.counts["lost"] == 0
    assert count(store.where, "pending", "id_ms IN (3, 4)") == 0


def copy(store: Store, condition: str) -> None:
    """What somebody does who appends rows of `pending` twice."""
    columns = (column.name for column in TABLES["pending"].written)
    copied = store.relation("pending").where(condition).select(*columns)
    append_rows(store, "pending", copied.fetched())


@pytest.mark.long
@pytest.mark.parametrize("taken", ["4-0", pytest.param("5-0", marks=pytest.mark.long)])
def test_a_copy_of_a_row_does_not_make_up_for_one_that_another_writer_took(
    spark_store: Store, large_tables: None, taken: str
) -> None:
    """The MERGE changes as many rows as it should, but two of them are one entry's."""
    del large_tables
    write_keyspace(spark_store, keyspace(b"s"), NOW_MS)

    def take(phase: Phase, _detail: str) -> None:
        if phase is Phase.APPLY:
            copy(spark_store, "id_ms = 1")
            if taken == "4-0":
                delete(spark_store, "pending", "id_ms = 4")
            else:
                update(spark_store, "pending", "id_ms = 5", consumer="'eve'")

    reply = xautoclaim(spark_store, SweepRequest(REQUEST), progress=take)
    assert (reply.counts["lost"], reply.counts["gone"]) == (1, 0)
    assert [row["id"] for row in reply.lost.collect()] == [taken]
    assert count(spark_store.where, "tombstones") == (0 if taken == "4-0" else DELETED)


@pytest.mark.long
def test_where_a_run_is_finished_later_a_copy_of_what_it_deleted_makes_up_for_nothing_either(
    spark_store: Store, large_tables: None
) -> None:
    store = spark_store
    del large_tables
    write_keyspace(store, keyspace(b"s", b"t"), NOW_MS)

    def take(phase: Phase, _detail: str) -> None:
        if phase is Phase.APPLY:
            copy(store, "stream = 's' AND id_ms = 4")
            delete(store, "pending", "stream = 't' AND id_ms = 4")
        if phase is Phase.VERIFY:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        xautoclaim(store, SweepRequest(REQUEST), run_id="r", progress=take)
    reply = xautoclaim(store, SweepRequest(REQUEST), run_id="r")
    assert (reply.counts["lost"], reply.counts["gone"]) == (1, 0)
    assert [(row["stream"], row["id"]) for row in reply.lost.collect()] == [("t", "4-0")]
    assert count(store.where, "tombstones", "stream = 's'") == count(store.where, "tombstones") == 1


def test_a_copy_of_a_row_does_not_make_up_for_one_either_where_nothing_is_deleted(
    each_store: Store,
) -> None:
    write_keyspace(each_store, keyspace(b"s"), NOW_MS)
    delete(each_store, "pending", "id_ms = 4")

    def take(phase: Phase, _detail: str) -> None:
        if phase is Phase.APPLY:
            copy(each_store, "id_ms = 1")
            update(each_store, "pending", "id_ms = 5", consumer="'eve'")

    reply = xautoclaim(each_store, SweepRequest(REQUEST), progress=take)
    assert (reply.counts["deleted"], reply.counts["lost"]) == (0, 1)
    assert [row["id"] for row in reply.lost.collect()] == ["5-0"]


def test_an_entry_of_which_there_are_two_rows_is_lost_once(store: Store) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)

    def take(phase: Phase, _detail: str) -> None:
        if phase is Phase.APPLY:
            update(store, "pending", "id_ms IN (4, 5)", consumer="'eve'")
            copy(store, "id_ms IN (4, 5)")

    reply = xautoclaim(store, SweepRequest(REQUEST), progress=take)
    assert sorted(row["id"] for row in reply.lost.collect()) == ["4-0", "5-0"]
    assert (reply.counts["lost"], count(store.where, "tombstones")) == (2, 0)


def test_an_entry_that_a_pipeline_appends_while_a_run_begins_is_not_taken_for_one_that_is_gone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between any two looks at versions the pipeline adds an entry, and then its pending row."""
    whole = {f"complete_{name}": 0 for name in ("from_ms", "from_seq", "to_seq")}
    append(store, "streams", {"stream": "s", **whole, "complete_to_ms": 99, "run_seq": 0})
    group = {"stream": "s", "consumer_group": "g", "last_delivered_ms": 99, "last_delivered_seq": 0}
    append(store, "groups", {**group, "snapshot_ms": NOW_MS, "run_seq": 0})
    looked_at: list[str] = []
    look, one_at_a_time = Store.version, Lock()

    def version(store: Store, table: str) -> int:
        with one_at_a_time:
            looked_at.append(table)
            append(store, "entries", entry_row("s", len(looked_at)))
            append(store, "pending", pending_row("s", len(looked_at)))
            return look(store, table)

    monkeypatch.setattr(Store, "version", version)
    reply = xautoclaim(store, SweepRequest(REQUEST))
    assert len(looked_at) > len(INPUTS)
    assert reply.counts["deleted"] == 0
    assert reply.counts["claimed"] >= 1


def test_a_driver_that_comes_back_late_changes_nothing(each_way: Store) -> None:
    """Everything that a run applies is applied once more, behind a later run."""
    from claimlib.runs import records
    from claimlib.runs.journal import decided_by, run_rows

    write_keyspace(each_way, keyspace(b"s"), NOW_MS)
    xautoclaim(each_way, SweepRequest(REQUEST))
    later = AutoclaimRequest(b"carol", 0)
    xautoclaim(each_way, SweepRequest(later), now_ms=NOW_MS + 1)
    delete(each_way, "consumers", "consumer = 'alice'")
    state = read_groups(each_way), count(each_way.where, "tombstones")

    first, _ = run_rows(each_way, 0)
    decided = decided_by(each_way, first.run_seq)
    claims.apply(each_way, first, decided)
    outcome = claims.verify(each_way, first, decided)
    records.apply(each_way, first, decided, outcome)

    assert outcome.counts() == {"lost": 0, "gone": 0}
    assert (read_groups(each_way), count(each_way.where, "tombstones")) == state
    assert state[1] == DELETED
    assert all(entry.consumer == b"carol" for entry in state[0][b"s"][b"g"].pending)
    assert len(state[0][b"s"][b"g"].pending) == len(PEL.pending) - DELETED


def replaced_slowly(monkeypatch: pytest.MonkeyPatch, waiting: Waiting, slow: str) -> list[str]:
    """The tables that are rewritten from now on, one per try; who writes `slow` waits."""
    tried: list[str] = []
    write = SparkWriter._write

    def write_slowly(
        self: SparkWriter, mode: str, table: str, rows: DataFrame, *arguments: Any
    ) -> None:
        if mode == "overwrite":
            tried.append(table)
            rows = waiting.frame(rows) if table == slow else rows
        write(self, mode, table, rows, *arguments)

    monkeypatch.setattr(SparkWriter, "_write", write_slowly)
    return tried


@pytest.mark.long
def test_what_somebody_changes_while_buckets_are_rewritten_is_kept_and_lost_to_the_run(
    spark_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows that replace a bucket were read before the other writer's commit: Delta refuses
    them, and the run writes the bucket once more, from what is there now."""
    set_limits(monkeypatch, merged_rows=0)
    write_keyspace(spark_store, keyspace(b"s"), NOW_MS)
    waiting = Waiting(tmp_path)
    tried = replaced_slowly(monkeypatch, waiting, "pending")
    with ThreadPoolExecutor() as threads:
        slow = threads.submit(xautoclaim, spark_store, SweepRequest(REQUEST))
        waiting.until_appending(slow)
        delete(spark_store, "pending", "id_ms IN (3, 4)")
        update(spark_store, "pending", "id_ms = 5", consumer="'eve'")
        waiting.go_on()
        reply = slow.result()

    assert tried == ["pending", "pending", "consumers"], "refused once"
    assert {row["id"] for row in reply.lost.collect()} == {"3-0", "4-0", "5-0"}
    left = {entry.id.ms: entry.consumer for entry in read_groups(spark_store)[b"s"][b"g"].pending}
    assert left == {**dict.fromkeys((1, 7, 9), b"alice"), 5: b"eve"} | dict.fromkeys(
        (2, 6, 8, 10), b"dead"
    )
    assert count(spark_store.where, "tombstones") == 0


@pytest.mark.long
def test_what_somebody_writes_into_a_small_table_while_it_is_rewritten_is_kept(
    spark_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_keyspace(spark_store, keyspace(b"s"), NOW_MS)
    xautoclaim(spark_store, SweepRequest(REQUEST))
    waiting = Waiting(tmp_path)
    tried = replaced_slowly(monkeypatch, waiting, "consumers")
    zoe = ("s", "g", "zoe", 1, None, 0)
    columns = [column.name for column in TABLES["consumers"].written]
    with ThreadPoolExecutor() as threads:
        slow = threads.submit(xautoclaim, spark_store, claim(b"carol"), now_ms=NOW_MS + 10**6)
        waiting.until_appending(slow)
        append_rows(spark_store, "consumers", spark_store.rows("consumers", [zoe], columns))
        update(spark_store, "consumers", "consumer = 'dead'", seen_time_ms="7")
        waiting.go_on()
        slow.result()

    # Over Spark Connect no table is known to be small, and `pending` is merged.
    before = ["pending"] if spark_store.logs.is_small("pending") else []
    assert tried == [*before, "consumers", "consumers"], "refused once"
    rows = {row["consumer"]: row for row in spark_store.relation("consumers").collect()}
    assert sorted(rows) == ["alice", "carol", "dead", "zoe"]
    assert (rows["dead"]["seen_time_ms"], rows["carol"]["run_seq"]) == (7, 2)


@pytest.mark.long
@pytest.mark.parametrize(
    ("one_in", "operation"), [(1, "MERGE"), pytest.param(2, "WRITE", marks=pytest.mark.long)]
)
def test_buckets_are_rewritten_where_much_of_them_changes_and_else_merged(
    spark_store: Store, monkeypatch: pytest.MonkeyPatch, one_in: int, operation: str
) -> None:
    """Six of the ten rows of a bucket change, of a table that is not small."""
    set_limits(monkeypatch, session_rows=0)
    set_limits(monkeypatch, merged_rows=CLAIMED + DELETED)
    set_limits(monkeypatch, rows_per_change=one_in)
    write_keyspace(spark_store, keyspace(b"s"), NOW_MS)
    reply = xautoclaim(spark_store, SweepRequest(REQUEST))
    assert reply.counts["lost"] == 0
    assert (reply.claimed.count(), reply.deleted.count()) == (CLAIMED, DELETED)
    assert spark_store.logs.history("pending")[0]["operation"] == operation
    assert count(spark_store.where, "pending", "consumer = 'alice' AND run_seq = 1") == CLAIMED
    assert count(spark_store.where, "pending") == len(PEL.pending) - DELETED


def test_a_token_that_was_used_lets_no_second_append_through(store: Store) -> None:
    rows = store.rows("journal", [("swept",)], ["kind"])
    numbered = rows.select("*", "1L AS run_seq")
    append_rows(store, "journal", numbered, token=Token(APP_ID, 1))
    append_rows(store, "journal", numbered, token=Token(APP_ID, 1))
    assert count(store.where, "journal") == 1
