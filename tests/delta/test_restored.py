"""A store whose tables somebody has given an earlier state, or has deleted rows of: it goes on.

Delta keeps the tokens of commits that were undone, so what comes under one of them is skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.errors import VerificationError
from claimlib.runs import rollforward
from claimlib.schema import TABLES
from claimlib.semantics.model import AutoclaimRequest
from claimlib.store.tables import Store
from claimlib.testing.tables import read_groups, write_keyspace
from tests.delta.pels import CLAIMED, DELETED, NOW_MS, REQUEST, keyspace
from tests.delta.reading import count


@pytest.fixture(params=["delta-rs", "Spark"])
def swept(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    store_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Store:
    """A store that has had a sweep, by who reads and writes its small tables."""
    if request.param == "Spark":
        monkeypatch.setattr("claimlib.store.tables.shared_folder", lambda *_: None)
    store = Store.open(spark, str(store_path))
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    xautoclaim(store, SweepRequest(REQUEST), run_id="first")
    return store


def claim_all(store: Store, consumer: bytes, run_id: str) -> int | None:
    """A sweep that claims every entry that is pending; its number."""
    request = SweepRequest(AutoclaimRequest(consumer, 0))
    reply = xautoclaim(store, request, run_id=run_id, now_ms=NOW_MS + 50)
    assert (reply.counts["claimed"], reply.counts["lost"]) == (len(PENDING), 0)
    return reply.run_seq


PENDING = (1, 2, 3, 5, 6, 7, 8, 9, 10)
RESTORED = "RESTORE TABLE {table} TO VERSION AS OF "


def owners(store: Store) -> set[bytes | None]:
    return {entry.consumer for entry in read_groups(store)[b"s"][b"g"].pending}


def test_after_a_restore_of_all_tables_runs_go_on_and_change_what_they_must(swept: Store) -> None:
    versions = {table: swept.version(table) for table in TABLES}
    before = read_groups(swept)
    assert [claim_all(swept, name, name.decode()) for name in (b"b", b"c")] == [2, 3]
    for table, version in versions.items():
        if swept.version(table) != version:
            swept.spark.sql(RESTORED.replace("{table}", swept.identifier(table)) + str(version))
    assert read_groups(swept) == before

    assert claim_all(swept, b"d", "d") == 4, "numbers 2 and 3 were used"
    assert owners(swept) == {b"d"}
    assert claim_all(swept, b"e", "e") == 5
    assert owners(swept) == {b"e"}
    for table in ("journal", "runs"):
        seqs = {row["run_seq"] for row in swept.read(table).select("run_seq").collect()}
        assert seqs == {1, 4, 5}, table
    seen = {row["consumer"]: row["run_seq"] for row in swept.read("consumers").collect()}
    assert (seen["d"], seen["e"]) == (4, 5)
    assert "b" not in seen


def test_where_a_history_does_not_tell_the_used_numbers_they_are_passed_over_in_larger_steps(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    xautoclaim(store, SweepRequest(REQUEST), run_id="first")
    assert [claim_all(store, name, name.decode()) for name in (b"b", b"c", b"d")] == [2, 3, 4]
    for table in ("journal", "runs"):
        store.execute(table, "DELETE FROM {table} WHERE run_seq > 1")
    store.execute("pending", "UPDATE {table} SET run_seq = 0")
    history = Store.history

    def silent(self: Store, table: str, limit: int | None = None) -> list[Row]:
        return [
            Row(**{**commit.asDict(), "userMetadata": None})
            for commit in history(self, table, limit)
        ]

    monkeypatch.setattr(Store, "history", silent)
    assert claim_all(store, b"e", "e") == 3 + 1000
    assert owners(store) == {b"e"}


def _deleted(store: Store) -> None:
    store.execute("runs", "DELETE FROM {table} WHERE run_seq = 2")


def _restored(store: Store) -> None:
    store.execute("runs", f"{RESTORED}1")


@pytest.mark.parametrize("vanish", [_deleted, _restored])
def test_a_run_whose_row_of_runs_is_gone_is_written_there_again_and_changes_nothing_else(
    swept: Store, vanish: Callable[[Store], None]
) -> None:
    assert claim_all(swept, b"b", "b") == 2
    others = [table for table in TABLES if table != "runs"]
    versions = swept.pin(others).versions
    for _ in range(2):
        vanish(swept)
        assert count(swept.where, "runs", "run_seq = 2") == 0
        assert claim_all(swept, b"b", "b") == 2
        assert count(swept.where, "runs", "run_seq = 2") == 1
        assert swept.pin(others).versions == versions
    assert claim_all(swept, b"c", "c") == 3


def test_a_row_of_runs_that_is_deleted_again_and_again_is_an_error_that_names_the_remedy(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    find = rollforward.find_finished_seq

    def find_none(store: Store, run_seq: int) -> rollforward.Finished | None:
        store.execute("runs", "DELETE FROM {table}")
        return find(store, run_seq)

    with monkeypatch.context() as patched:
        patched.setattr(rollforward, "find_finished_seq", find_none)
        with pytest.raises(VerificationError, match=r"deleted from the table runs.*RESTORE"):
            xautoclaim(store, SweepRequest(REQUEST), run_id="first")
    assert (count(store.where, "tombstones"), count(store.where, "runs")) == (DELETED, 0)
    assert count(store.where, "pending", "consumer = 'alice'") == CLAIMED
