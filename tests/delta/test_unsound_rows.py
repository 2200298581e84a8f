"""Rows that no run may judge, or no run could change, refuse their own group and no other."""

from __future__ import annotations

import pytest

from claimlib.commands.check import check
from claimlib.commands.snapshot import snapshot
from claimlib.commands.xack import NamedAck, xack
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.commands.xclaim import NamedClaim, xclaim
from claimlib.errors import ForeignRunSeqError, VerificationError
from claimlib.runs import journal
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import AutoclaimRequest, ClaimRequest
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.own_rows import update
from tests.delta.pels import CLAIMED, NOW_MS, keyspace
from tests.delta.snapshots import ALL, source, stream
from tests.writing import append_rows

PAGE = SweepRequest(AutoclaimRequest(b"alice", 1000, count=100), cursor="nightly", resume=True)


def reasons(store: Store, request: SweepRequest) -> dict[str, str]:
    """Why groups are refused, by stream; the sound one is swept."""
    reply = xautoclaim(store, request)
    rows = {row["stream"]: row for row in reply.groups.collect()}
    assert rows.pop("sound")["claimed"] == CLAIMED
    assert {row["status"] for row in rows.values()} == {"refused"}
    return {name: row["reason"] for name, row in rows.items()}


def copy_rows(store: Store, table: str, stream_name: str, run_seq: int | None = None) -> None:
    """Append what a table holds of a stream once more, with another run number or the same."""
    from pyspark.sql import functions as F

    rows = store.read(table).where(F.col("stream") == stream_name)
    append_rows(
        store, table, rows if run_seq is None else rows.withColumn("run_seq", F.lit(run_seq))
    )


def test_a_repeated_row_of_streams_groups_or_cursors_refuses_its_groups_and_the_others_go_on(
    store: Store,
) -> None:
    write_keyspace(store, keyspace(b"sound", b"stream", b"group", b"cursor"), NOW_MS)
    copy_rows(store, "streams", "stream")
    copy_rows(store, "groups", "group")
    for _ in range(2):
        key = {"name": "nightly", "stream": "cursor", "consumer_group": "g"}
        values = {**key, "next_ms": 1, "next_seq": 0, "run_seq": 0}
        append_rows(store, "cursors", store.rows("cursors", [tuple(values.values())], list(values)))
    assert reasons(store, PAGE) == {
        name: f"duplicate key in {name}s: delete all rows of the key but one"
        for name in ("stream", "group", "cursor")
    }
    claim = ClaimRequest(b"bob", 0, (StreamId(1, 0),))
    names = (b"sound", b"stream", b"group", b"cursor")
    claims = [NamedClaim(name, b"g", claim) for name in names]
    rows = xclaim(store, claims).requests.collect()
    assert {row["stream"] for row in rows if row["status"] == "refused"} == {"stream", "group"}


def test_rows_with_run_numbers_of_another_store_refuse_their_group_and_check_says_how_to_mend_them(
    store: Store,
) -> None:
    tables = ("pending", "groups", "streams", "cursors")
    write_keyspace(store, keyspace(b"sound", *(name.encode() for name in tables)), NOW_MS)
    for name in tables:
        if name == "cursors":
            values = {"name": "nightly", "stream": name, "consumer_group": "g", "next_ms": 1}
            values |= {"next_seq": 0, "run_seq": 77}
            append_rows(store, name, store.rows(name, [tuple(values.values())], list(values)))
        else:
            update(store, name, f"stream = '{name}'", run_seq="77")
    by_stream = reasons(store, PAGE)
    assert by_stream["pending"].startswith("rows of pending with a run_seq that no run of this")
    assert ": 10; " in by_stream["pending"]
    for name in ("groups", "streams", "cursors"):
        assert by_stream[name].startswith(f"{name} has a row with a run_seq that no run"), name
    assert all(
        reason.endswith("prints the statement that repairs it") for reason in by_stream.values()
    )
    with pytest.raises(ForeignRunSeqError, match="nothing was acknowledged"):
        xack(store, [NamedAck(b"pending", b"g", (StreamId(1, 0),))])

    remedies = {
        problem.table: problem.remedy for problem in check(store) if problem.remedy is not None
    }
    assert set(remedies) == set(tables)
    for remedy in remedies.values():
        store.spark.sql(remedy)
    assert [problem for problem in check(store) if problem.refuses] == []
    reply = xautoclaim(store, PAGE)
    assert (reply.counts["refused"], reply.counts["claimed"]) == (0, len(tables) * CLAIMED)


def test_a_snapshot_of_a_store_with_run_numbers_of_another_store_is_refused_with_the_remedy(
    store: Store,
) -> None:
    batches = stream(b"s", {1: b"x"}, {1}, NOW_MS)
    snapshot(store, ALL, lambda _: source(batches))
    for table in ("pending", "entries", "groups", "consumers", "streams"):
        update(store, table, "true", run_seq="77")
        with pytest.raises(
            ForeignRunSeqError, match=rf"UPDATE .*{table}` SET run_seq = 0"
        ) as refused:
            snapshot(store, ALL, lambda _: source(batches))
        assert refused.value.table == table
        update(store, table, "run_seq >= 2", run_seq="0")
    assert snapshot(store, ALL, lambda _: source(batches)).run_seq == 2


def test_a_number_under_which_not_exactly_one_decision_stands_is_an_error_that_says_so(
    each_store: Store,
) -> None:
    with pytest.raises(VerificationError, match="0 rows of kind run for run 1"):
        journal.decided_by(each_store, 1)
    xautoclaim(each_store, PAGE)
    assert journal.decided_by(each_store, 1).row.command == "xautoclaim"
    append_rows(each_store, "journal", journal.rows_of(each_store, 1, journal.Kind.RUN))
    with pytest.raises(VerificationError, match="2 rows of kind run for run 1"):
        journal.decided_by(each_store, 1)
