"""Pages from a stored cursor: each is one XAUTOCLAIM, and together they are the sweep."""

from __future__ import annotations

from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.semantics import scan
from claimlib.semantics.ids import END_OF_SCAN, StreamId, parse_id
from claimlib.semantics.model import AutoclaimRequest
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import read_groups, write_keyspace
from tests.delta.pels import NOW_MS, PEL, REQUEST, keyspace
from tests.writing import append_rows

ENTRIES = keyspace(b"s")[b"s"].entries
PAGE = AutoclaimRequest(REQUEST.consumer, REQUEST.min_idle_ms, count=4)
FROM_CURSOR = SweepRequest(PAGE, cursor="c", resume=True)


def stored(store: Store) -> list[tuple[str, str, str, int]]:
    rows = store.read("cursors").collect()
    return sorted(
        (row["name"], row["stream"], row["consumer_group"], row["next_ms"]) for row in rows
    )


def test_pages_from_the_stored_cursor_end_at_0_0_with_the_sweeps_result(each_store: Store) -> None:
    write_keyspace(each_store, keyspace(b"s", b"t"), NOW_MS)
    group, cursor, pages = PEL, StreamId(0, 0), 0
    while pages == 0 or cursor != END_OF_SCAN:
        request = AutoclaimRequest(PAGE.consumer, PAGE.min_idle_ms, cursor, PAGE.count)
        group, answer = scan.xautoclaim(group, request, NOW_MS, ENTRIES)
        cursor, pages = answer.cursor, pages + 1

        reply = xautoclaim(each_store, FROM_CURSOR, now_ms=NOW_MS)

        assert [parse_id(row["next_id"]) for row in reply.cursors.collect()] == [cursor, cursor]
        assert read_groups(each_store) == {b"s": {b"g": group}, b"t": {b"g": group}}
        assert stored(each_store) == [("c", name, "g", cursor.ms) for name in "st"]
    assert pages == 2
    swept, _ = scan.xautoclaim(PEL, REQUEST, NOW_MS, ENTRIES)
    assert group == swept


def test_an_explicit_start_wins_over_the_stored_cursor_and_replaces_it(store: Store) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    first = ("c", "s", "g", 2)
    columns = ["name", "stream", "consumer_group", "next_ms", "next_seq", "run_seq"]
    append_rows(store, "cursors", store.rows("cursors", [(*first, 0, 0)], columns))
    later = AutoclaimRequest(PAGE.consumer, PAGE.min_idle_ms, StreamId(7, 0), count=1)
    expected = scan.xautoclaim(PEL, later, NOW_MS, ENTRIES)[1]
    dry = xautoclaim(store, SweepRequest(later, cursor="c"), dry_run=True)
    assert [row["next_id"] for row in dry.cursors.collect()] == [str(expected.cursor)]
    assert stored(store) == [first], "a dry run stores nothing"
    xautoclaim(store, SweepRequest(later, cursor="c"))
    assert [row[3] for row in stored(store)] == [expected.cursor.ms]
