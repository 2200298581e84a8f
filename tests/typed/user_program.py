"""A program of a user, for mypy: `make lint` checks that the public names have their types.

It is never run.
"""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import claimlib
from claimlib import (
    AutoclaimRequest,
    BulkReply,
    ClaimlibError,
    Description,
    FinishedRun,
    ImportReply,
    ImportRequest,
    NamedAck,
    PendingSummary,
    Phase,
    Problem,
    Reading,
    Relation,
    Reply,
    RescueReply,
    Retirement,
    RunList,
    ServerAccess,
    ServerReading,
    SnapshotReply,
    SnapshotRequest,
    Store,
    StoreBusyError,
    StreamId,
    SweepRequest,
    TableMap,
    Upgrade,
    WritebackReply,
    check,
    describe,
    find_run,
    frame_of,
    import_tables,
    init,
    list_runs,
    load_import_map,
    open_session,
    open_store,
    parse_duration_ms,
    parse_id,
    pending_entries,
    pending_overview,
    pending_summary,
    read_store,
    rescue,
    retire,
    server_commands,
    snapshot,
    upgrade,
    writeback,
    xack,
    xautoclaim,
)


def fill(url: str) -> None:
    """Fill two stores."""
    store = init("./store", buckets=8)
    assert_type(store, Store)
    server = ServerReading(url)
    assert_type(snapshot(store, SnapshotRequest(server.label), server), SnapshotReply)
    maps = load_import_map(Path("map.toml"))
    assert_type(maps, dict[str, TableMap])
    tables = ImportRequest("./entries", "./pending", maps=maps)
    assert_type(import_tables(init("./own"), tables, run_id="1"), ImportReply)
    assert_type(upgrade("./own"), Upgrade)


def look(store: Store) -> DataFrame:
    """Look at a store."""
    now = read_store(store)
    assert_type(now, Reading)
    groups = pending_overview(now)
    assert_type(groups, Relation)
    assert_type(groups.arrow(), pa.Table)
    assert_type(pending_entries(now, min_deliveries=2).total, int)
    assert_type(pending_summary(now, b"orders", b"workers"), PendingSummary)
    assert_type(describe(now), Description)
    assert_type(check(store), tuple[Problem, ...])
    assert_type(list_runs(store), RunList)
    return frame_of(groups)


def sweep(store: Store) -> int:
    """Change a store."""

    def show(phase: Phase, detail: str) -> None:
        print(phase.name, detail)

    request = SweepRequest(AutoclaimRequest(b"reclaimer", parse_duration_ms("15m")))
    try:
        reply = xautoclaim(store, request, run_id="noon", progress=show)
    except StoreBusyError as error:
        return error.exit_code
    assert_type(reply, Reply)
    assert_type(reply.claimed, Relation)
    entry = parse_id("5-3")
    assert_type(entry, StreamId)
    assert_type(xack(store, [NamedAck(b"orders", b"workers", (entry,))]), BulkReply)
    retirement = Retirement(b"orders", b"workers", b"bob", (b"alice",))
    assert_type(retire(store, retirement, dry_run=True), BulkReply)
    run = find_run(store, "noon")
    assert_type(run, FinishedRun)
    assert_type(Reply.of_finished(store, run), Reply)
    print(*server_commands(store, run).lines, sep="\n")
    server = ServerReading("redis://localhost:6379/0")
    written = writeback(store, run.key, ServerAccess(server.url), max_age_ms=60_000)
    assert_type(written, WritebackReply)
    assert_type(written.groups, Relation)
    rescued = rescue(store, server, request, run_id="rescue")
    assert_type(rescued, RescueReply)
    assert_type(rescued.written, WritebackReply | None)
    return reply.counts["claimed"]


if __name__ == "__main__":
    assert_type(claimlib.__version__, str)
    # mypy must refuse this name: an ignore that is not needed is an error.
    print(claimlib.no_such_name)  # type: ignore[attr-defined]
    spark = open_session()
    assert_type(spark, SparkSession)
    try:
        raise SystemExit(sweep(open_store("./store", spark=spark)))
    except ClaimlibError as failure:
        raise SystemExit(failure.exit_code) from failure
