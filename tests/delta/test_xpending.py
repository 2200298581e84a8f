"""XPENDING on a store: now, as a run left it, and of what is not there."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from claimlib.commands.runs import find_run
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.commands.xpending import (
    pending_overview,
    pending_range,
    pending_summary,
    read_store,
    stalled,
)
from claimlib.errors import ReplyError, RequestError
from claimlib.report.report_model import as_text
from claimlib.report.xpending_report import report_of_overview
from claimlib.semantics.ids import MAX_ID, MIN_ID, StreamId
from claimlib.semantics.model import PendingRange, PendingSummary
from claimlib.semantics.words import Stream
from claimlib.store.opening import open_folder
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.pels import CLAIMED, LEFT, NOW_MS, PEL, REQUEST, keyspace

ALL = PendingRange(MIN_ID, MAX_ID, 100)
SECOND_MS = 1000


def test_what_is_pending_now_and_as_each_run_left_it(store: Store) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    before = pending_overview(read_store(store), stalled_ms=SECOND_MS)
    assert stalled(before)[0] > 0
    assert stalled(before)[1] == 1
    xautoclaim(store, SweepRequest(REQUEST), run_id="a")
    xautoclaim(store, SweepRequest(REQUEST), run_id="b", now_ms=NOW_MS + 1)

    now = read_store(store)
    assert pending_summary(now, b"s", b"g") == PendingSummary(
        CLAIMED + LEFT, StreamId(1, 0), StreamId(10, 0), _owners()
    )
    assert stalled(pending_overview(now, stalled_ms=SECOND_MS)) == (0, 0)
    assert stalled(pending_overview(now, stalled_ms=SECOND_MS, now_ms=NOW_MS + SECOND_MS))[0] > 0
    for run in ("1", "xautoclaim:a", "xautoclaim:b", datetime.now(UTC).isoformat()):
        rows = pending_range(read_store(store, run), b"s", b"g", ALL).collect()
        assert len(rows) == CLAIMED + LEFT, run
    assert store.logs.history("runs", 1)[0]["version"] == 2, "nothing was written"
    for number in (1, 2):  # of the very time at which `runs` says that it ended
        ended_ms = find_run(store, str(number)).ended_ms
        assert ended_ms is not None
        ended = datetime.fromtimestamp(ended_ms / 1000, UTC).isoformat(timespec="milliseconds")
        assert read_store(store, ended).versions == read_store(store, str(number)).versions

    text = as_text(report_of_overview("here", pending_overview(now), 900_000, 50))
    assert "owners idle 15m+" in text
    assert text.splitlines()[-1].split() == [
        "total",
        "1",
        "group",
        "9",
        "0",
        "10ms",
        "2",
        "0",
        "0",
        "2",
        "0",
        "0",
        "-",
    ]


def _owners() -> tuple[tuple[bytes, int], ...]:
    return ((b"alice", CLAIMED), (b"dead", LEFT))


def test_a_group_or_a_moment_that_is_not_there_is_named(store: Store) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    for names in ((b"s", b"no"), (b"no", b"g")):
        with pytest.raises(ReplyError, match="NOGROUP No such key"):
            pending_summary(read_store(store), *names)
        with pytest.raises(ReplyError, match="NOGROUP No such key"):
            pending_range(read_store(store), *names, ALL)
    with pytest.raises(RequestError, match=r"no run of .* had finished by 2020-01-01"):
        read_store(store, "2020-01-01T00:00:00Z")
    with pytest.raises(RequestError, match="no finished run 7"):
        read_store(store, "7")
    with pytest.raises(RequestError, match="stalled_ms must be"):
        pending_overview(read_store(store), stalled_ms=-1)


def test_a_column_that_somebody_has_added_does_not_matter(store: Store) -> None:
    write_keyspace(store, {b"s": Stream({}, {b"g": PEL})}, NOW_MS)
    before = pending_overview(read_store(store)).collect()
    for table in ("pending", "groups", "consumers"):
        for name in ("now_ms", "last_ms"):
            store.spark.sql(f"ALTER TABLE {store.identifier(table)} ADD COLUMN {name} STRING")
    assert pending_overview(read_store(store)).collect() == before
    folder = open_folder(lambda: store.spark, store.where)
    assert pending_overview(read_store(folder)).collect() == before


def test_a_group_with_nothing_pending_is_one_all_the_same(store: Store) -> None:
    write_keyspace(store, {b"s": Stream({}, {b"g": replace(PEL, pending=())})}, NOW_MS)
    assert pending_summary(read_store(store), b"s", b"g") == PendingSummary(0, None, None, ())
    (row,) = pending_overview(read_store(store)).collect()
    assert (row["pending"], row["stalled"], row["oldest_idle_ms"]) == (0, 0, None)
