"""A snapshot that cannot be finished is given up: what it left half applied does no harm."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from claimlib.commands.runs import abandon, find_run, list_runs
from claimlib.commands.snapshot import SnapshotRequest, snapshot
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.errors import RunAbandonedError, VerificationError
from claimlib.plans.survey import NO_PROOF_REMEDY
from claimlib.report import runs_report as runs
from claimlib.runs import Phase
from claimlib.runs import mirror_rows as mirror
from claimlib.runs.journal import Decided, RunRow, Staged, decided_by, run_rows
from claimlib.semantics.model import AutoclaimRequest
from claimlib.store.tables import Store
from tests.delta.pels import NOW_MS
from tests.delta.reading import query
from tests.delta.snapshots import ALL, owners, source, stream

ANYTHING = SweepRequest(AutoclaimRequest(b"alice", 0))
FIRST = stream(b"s", dict.fromkeys((1, 2, 3), b"x"), {1, 2, 3}, NOW_MS)
SECOND = stream(b"s", dict.fromkeys((4, 5, 6), b"x"), {4, 5, 6}, NOW_MS + 1)


def cut_off_at_apply(phase: Phase, detail: str) -> None:
    if phase is Phase.APPLY:
        raise KeyboardInterrupt(detail)


def cut(store: Store) -> RunRow:
    """A snapshot of SECOND that is decided and not applied."""
    with pytest.raises(KeyboardInterrupt):
        snapshot(store, ALL, lambda _: source(SECOND), run_id="cut", progress=cut_off_at_apply)
    return run_rows(store, 0)[-1]


def lose_the_landing(store: Store) -> None:
    store.spark.sql(f"DELETE FROM {store.identifier('entry_landing')} WHERE id_ms = 6")


Part = Callable[[Store, RunRow, Staged, Decided], None]


def _new_pending_and_proof(store: Store, row: RunRow, staged: Staged, decided: Decided) -> None:
    mirror._pending(store, row, staged, decided)
    mirror._small(store, row, "streams", decided)


@pytest.mark.parametrize("part", [_new_pending_and_proof, mirror._entries])
def test_what_a_run_that_is_given_up_had_applied_is_not_taken_for_entries_that_are_gone(
    store: Store, part: Part
) -> None:
    snapshot(store, ALL, lambda _: source(FIRST))
    row = cut(store)
    assert row.staged is not None
    decided = decided_by(store, row.run_seq)
    part(store, row, row.staged, decided)
    lose_the_landing(store)
    with pytest.raises(VerificationError, match="cannot be finished: rows that it had read"):
        xautoclaim(store, ANYTHING)
    before = owners(store)

    assert abandon(store, "snapshot:cut").counts == {"abandoned": 1}

    assert owners(store) == before
    reply = xautoclaim(store, ANYTHING)
    assert (reply.counts["refused"], reply.counts["deleted"], reply.counts["claimed"]) == (1, 0, 0)
    (group,) = reply.groups.collect()
    assert group["reason"].endswith(NO_PROOF_REMEDY)
    assert owners(store) == before

    snapshot(store, ALL, lambda _: source(SECOND))
    assert owners(store) == {(b"s", n): b"x" for n in (4, 5, 6)}
    reply = xautoclaim(store, ANYTHING)
    assert (reply.counts["refused"], reply.counts["deleted"], reply.counts["claimed"]) == (0, 0, 3)


def test_a_driver_that_comes_back_late_appends_nothing_of_a_run_that_was_given_up(
    store: Store,
) -> None:
    row = cut(store)
    assert row.staged is not None
    decided = decided_by(store, row.run_seq)
    lose_the_landing(store)
    abandon(store, "snapshot:cut")
    mirror.apply(store, row, row.staged, decided)
    for table in mirror.TABLES_WRITTEN:
        assert query(store.where, table, "SELECT * FROM t") == [], table


def test_the_run_id_of_a_run_that_was_given_up_is_not_taken_for_done(store: Store) -> None:
    cut(store)
    lose_the_landing(store)
    abandon(store, "snapshot:cut")
    with pytest.raises(RunAbandonedError, match="snapshot:cut was abandoned"):
        snapshot(store, ALL, lambda _: source(SECOND), run_id="cut")
    assert owners(store) == {}
    note = "snapshot:cut was abandoned: it did not do all that was requested"
    assert note in runs.report_of_runs(store.where, list_runs(store, 9)).notes
    assert runs.report_of_run(find_run(store, "snapshot:cut")).notes == (note,)


def test_a_store_does_not_mirror_the_server_of_a_snapshot_that_was_given_up(store: Store) -> None:
    cut(store)
    lose_the_landing(store)
    abandon(store, "snapshot:cut")
    other = SnapshotRequest("other:6379/0")
    snapshot(store, other, lambda _: source(FIRST))
    assert owners(store) == {(b"s", n): b"x" for n in (1, 2, 3)}
