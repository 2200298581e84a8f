"""Test that the journal keeps the values that a run replaces in the small tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from claimlib.commands.reset_cursor import reset_cursor
from claimlib.commands.retire import Retirement, retire
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.commands.xclaim import NamedClaim, xclaim
from claimlib.plans.differences import Scope
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import ClaimRequest, Guards, Profile
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.pels import NOW_MS, REQUEST, keyspace
from tests.delta.reading import query
from tests.writing import append_rows

Rows = dict[tuple[object, ...], tuple[object, ...]]

# By table: the kind of its rows in the journal, the column of its name there, and its values.
TABLES = {
    "consumers": ("consumer", "consumer", ("seen_time_ms", "active_time_ms")),
    "cursors": ("cursor", "cursor_name", ("next_ms", "next_seq")),
    "groups": ("group", "consumer_group", ("last_delivered_ms", "last_delivered_seq")),
}
RESUMED = SweepRequest(replace(REQUEST, count=2), cursor="nightly", resume=True)
PARKED = Guards(max_deliveries=1, parking_consumer=b"parked")


def rows(store: Store, table: str) -> Rows:
    """Return the values of a small table, by stream and name."""
    _, _, values = TABLES[table]
    name = {"consumers": "consumer", "cursors": "name", "groups": "consumer_group"}[table]
    columns = ", ".join(("stream", name, *values))
    return _by_key(query(store.where, table, f"SELECT {columns} FROM t"))


def before(store: Store, run_seq: int, table: str) -> Rows:
    """Return the values before a run, by stream and name, as the journal has them."""
    kind, name, values = TABLES[table]
    columns = ", ".join(("stream", name, *values))
    condition = f"run_seq = {run_seq} AND kind = '{kind}_before'"
    return _by_key(query(store.where, "journal", f"SELECT {columns} FROM t WHERE {condition}"))


def _by_key(records: list[dict[str, object]]) -> Rows:
    pairs = [tuple(row.values()) for row in records]
    assert len({pair[:2] for pair in pairs}) == len(pairs), "each key once"
    return {pair[:2]: pair[2:] for pair in pairs}


def claim(store: Store, *, last_id: StreamId | None = None) -> int:
    ids = (StreamId(2, 0), StreamId(4, 0))
    request = ClaimRequest(b"bob", 0, ids, last_id=last_id)
    return xclaim(store, [NamedClaim(b"s", b"g", request)], now_ms=NOW_MS + 5).run_seq


RUNS: list[Callable[[Store], int]] = [
    lambda store: xautoclaim(store, RESUMED, now_ms=NOW_MS).run_seq,
    lambda store: xautoclaim(store, RESUMED, now_ms=NOW_MS + 1).run_seq,
    lambda store: reset_cursor(store, "nightly", Scope("s", "*"), to=StreamId(3, 0)).run_seq,
    lambda store: (
        xautoclaim(store, SweepRequest(replace(REQUEST, guards=PARKED)), now_ms=NOW_MS + 2).run_seq
    ),
    lambda store: (
        xautoclaim(
            store, SweepRequest(replace(REQUEST, profile=Profile.REDIS_7_0)), now_ms=NOW_MS + 70_000
        ).run_seq
    ),
    claim,
    lambda store: claim(store, last_id=StreamId(90, 1)),
    lambda store: (
        retire(
            store, Retirement(b"s", b"g", b"alice", (b"bob", b"parked")), now_ms=NOW_MS + 9
        ).run_seq
    ),
]


def test_rows_that_runs_change_or_remove_stand_in_the_journal_as_they_were(
    each_store: Store,
) -> None:
    write_keyspace(each_store, keyspace(b"s", b"t"), NOW_MS)
    changed = dict.fromkeys(TABLES, 0)
    for run in RUNS:
        then = {table: rows(each_store, table) for table in TABLES}
        run_seq = run(each_store)
        for table in TABLES:
            now, said = rows(each_store, table), before(each_store, run_seq, table)
            gone = {key: values for key, values in then[table].items() if now.get(key) != values}
            assert gone.items() <= said.items() <= then[table].items(), (run_seq, table)
            changed[table] += len(gone)
    assert all(changed.values()), changed


def test_a_consumer_that_the_store_holds_twice_has_one_row_with_its_newest_times(
    store: Store,
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    columns = ["stream", "consumer_group", "consumer", "seen_time_ms", "active_time_ms", "run_seq"]
    copies = [("s", "g", "alice", 5, None, 0), ("s", "g", "alice", 3, 4, 0)]
    append_rows(store, "consumers", store.rows("consumers", copies, columns))
    run_seq = xautoclaim(store, SweepRequest(REQUEST), now_ms=NOW_MS).run_seq
    assert before(store, run_seq, "consumers") == {("s", "alice"): (5, 4)}


def test_a_cursor_that_the_store_holds_twice_has_one_row_whichever_row_is_read_first(
    store: Store,
) -> None:
    columns = ["name", "stream", "consumer_group", "next_ms", "next_seq", "run_seq"]
    copies = [("nightly", "s", "g", 7, 1, 0), ("nightly", "s", "g", 3, 2, 0)]
    append_rows(store, "cursors", store.rows("cursors", copies, columns))
    run_seq = reset_cursor(store, "nightly", Scope("s", "*")).run_seq
    assert before(store, run_seq, "cursors") == {("s", "nightly"): (7, 2)}


@pytest.mark.parametrize("table", TABLES)
def test_the_first_run_over_an_empty_table_has_no_row_of_what_was_before(
    store: Store, table: str
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    run_seq = xautoclaim(store, replace(RESUMED, resume=False), now_ms=NOW_MS).run_seq
    assert before(store, run_seq, table) == {}
