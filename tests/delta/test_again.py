"""What a run does twice, or late, or finds half done: the second time changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from pels import DELETED, NOW_MS, REQUEST, keyspace
from reading import count, query
from snapshots import ALL, owners, source, stream

from claimlib.commands.snapshot import snapshot
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.errors import SourceMismatchError
from claimlib.runs import Phase, mirror
from claimlib.runs.journal import APP_ID, RunRow, run_rows
from claimlib.store import Store, Token
from claimlib.testing.tables import write_keyspace

TABLES = ("pending", "entries", "groups", "consumers", "streams")


pytestmark = pytest.mark.long  # what happens to a driver that is late, or to a store that is old


def decided(store: Store, run_seq: int) -> RunRow:
    (row,) = (row for row in run_rows(store, 0) if row.run_seq == run_seq)
    return row


def apply_again(store: Store, run_seq: int) -> None:
    row = decided(store, run_seq)
    assert row.landed is not None
    mirror.apply(store, row, row.landed)


def contents(store: Store) -> dict[str, list[str]]:
    return {
        table: sorted(str(row) for row in query(store.where, table, "SELECT * FROM t"))
        for table in TABLES
    }


@pytest.fixture
def twice_read(store: Store) -> Store:
    """A store after two snapshots of one server: the second changed rows and brought none."""
    first = stream(b"s", {1: b"a", 2: b"a"}, {1, 2}, NOW_MS)
    snapshot(store, ALL, lambda: source(first))
    second = stream(b"s", {1: b"b", 2: b"b"}, {1, 2}, NOW_MS + 10)
    snapshot(store, ALL, lambda: source(second))
    return store


def test_a_snapshot_that_is_applied_again_after_its_landing_was_swept_changes_nothing(
    twice_read: Store,
) -> None:
    assert count(twice_read.where, "entry_landing") == 0
    before = contents(twice_read)
    assert [len(before[table]) for table in TABLES] == [2, 2, 1, 1, 1]

    apply_again(twice_read, 2)

    assert contents(twice_read) == before


def test_a_driver_that_applies_a_snapshot_late_does_not_revive_what_was_removed_since(
    twice_read: Store,
) -> None:
    third = stream(b"s", {2: b"b"}, {2}, NOW_MS + 20)
    snapshot(twice_read, ALL, lambda: source(third))
    before = contents(twice_read)
    assert owners(twice_read) == {(b"s", 2): b"b"}

    apply_again(twice_read, 2)
    apply_again(twice_read, 1)

    assert contents(twice_read) == before


def test_an_append_without_rows_uses_up_its_token(store: Store) -> None:
    rows = store.rows("pending", [("s", "g", 1, 0, None, 5, 1, 1)], PENDING)
    store.append("pending", rows.where("false"), token=Token(APP_ID, 1))
    store.append("pending", rows, token=Token(APP_ID, 1))
    assert count(store.where, "pending") == 0
    store.append("pending", rows, token=Token(APP_ID, 2))
    assert count(store.where, "pending") == 1


PENDING = (
    *("stream", "consumer_group", "id_ms", "id_seq", "consumer"),
    *("delivery_time_ms", "delivery_count", "run_seq"),
)


def test_a_decision_whose_commit_landed_stands_whatever_the_storage_said_of_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    append = Store.append

    def answer_lost(self: Store, table: str, *args: Any, **options: Any) -> None:
        append(self, table, *args, **options)
        if table == "journal":
            raise RuntimeError("java.net.SocketTimeoutException")

    monkeypatch.setattr(Store, "append", answer_lost)
    reply = xautoclaim(store, SweepRequest(REQUEST))
    assert reply.counts["deleted"] == DELETED
    assert count(store.where, "tombstones") == DELETED
    assert count(store.where, "journal", "kind = 'run'") == 1


def test_purges_that_others_took_are_lost_even_where_the_run_changed_no_row(store: Store) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)

    def take_all(phase: Phase, _detail: str) -> None:
        if phase is Phase.APPLY:
            store.execute("pending", f"DELETE FROM {store.identifier('pending')}")

    reply = xautoclaim(store, SweepRequest(REQUEST), progress=take_all)

    assert (reply.counts["gone"], count(store.where, "tombstones")) == (0, 0)
    assert reply.counts["lost"] == reply.counts["claimed"] + reply.counts["deleted"] > DELETED


def test_a_store_knows_its_source_when_no_stream_is_left(store: Store) -> None:
    snapshot(store, ALL, source)
    other = type(ALL)("other:6379/0")
    with pytest.raises(SourceMismatchError, match="server:6379/0"):
        snapshot(store, other, source)


def test_old_landings_of_finished_runs_are_swept_with_the_next(store: Store) -> None:
    one = stream(b"s", {1: b"a"}, {1}, NOW_MS)
    snapshot(store, ALL, lambda: source(one))
    row = decided(store, 1)
    left = store.rows("entry_landing", [(row.landed.uuid, "s", 1, 0, None)], LANDED)
    store.append("entry_landing", left)

    snapshot(store, ALL, lambda: source(one))

    assert count(store.where, "entry_landing") == 0


LANDED = ("landing", "stream", "id_ms", "id_seq", "fields")
