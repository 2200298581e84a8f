"""What can still be read of a store when its commits are older than Delta keeps what they replaced.

Commits are made old by the times of their files, which is what Delta goes by.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from claimlib.commands.reply import Reply
from claimlib.commands.runs import find_run
from claimlib.commands.snapshot import snapshot
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.commands.xclaim import NamedClaim, xclaim
from claimlib.commands.xpending import pending_overview, read_store
from claimlib.engine.relation import Record
from claimlib.errors import VersionExpiredError
from claimlib.runs import Phase
from claimlib.schema import TABLES
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import AutoclaimRequest, ClaimRequest
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace
from tests.conftest import by_spark_alone
from tests.delta.own_rows import Opener, delete, update
from tests.delta.pels import CLAIMED, DELETED, NOW_MS, REQUEST, keyspace
from tests.delta.reading import count
from tests.delta.snapshots import ALL, owners, source, stream

AGES = pytest.mark.parametrize("days", [8, 31])
LATER = SweepRequest(AutoclaimRequest(b"carol", 0))


def age(store: Store, days: int) -> None:
    """All commits so far look so many days old."""
    then_s = time.time() - days * 24 * 3600
    for table in TABLES:
        for number, file in enumerate(sorted(Path(store.where, table, "_delta_log").iterdir())):
            os.utime(file, (then_s + number, then_s + number))


def commit_past_a_checkpoint(store: Store, *tables: str) -> None:
    """Write commits that change nothing, and a checkpoint, and drop the log that is too old.

    Spark does the last two by itself as it commits.
    """
    for table in tables:
        version = store.version(table)
        every = Path(store.where, table, "_delta_log")
        for number in range(version + 1, version // 10 * 10 + 10):
            info = {"timestamp": time.time_ns() // 1_000_000, "operation": "MANUAL UPDATE"}
            text = json.dumps({"commitInfo": info | {"operationParameters": {}}})
            (every / f"{number:020}.json").write_text(text + "\n", encoding="utf-8")
        if store.is_embedded:
            newest = DeltaTable(f"{store.where}/{table}")
            newest.create_checkpoint()
            newest.cleanup_metadata()
        else:  # Delta leaves out a commit that appends nothing
            store.spark.sql(f"ALTER TABLE {store.identifier(table)} SET TBLPROPERTIES ('a' = '1')")
        assert any(every.glob("*.checkpoint*.parquet")), table


@dataclass(frozen=True, slots=True)
class Swept:
    """A store that the run `r` has swept, what that claimed, and what it counted."""

    where: Path
    claimed: dict[str, Record]
    counts: Mapping[str, int]


@pytest.fixture(scope="module")
def written(
    open_store: Opener, empty_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    where = shutil.copytree(empty_store, tmp_path_factory.mktemp("written") / "store")
    write_keyspace(open_store(where), keyspace(b"s"), NOW_MS)
    return where


@pytest.fixture(scope="module")
def swept(open_store: Opener, written: Path, tmp_path_factory: pytest.TempPathFactory) -> Swept:
    where = shutil.copytree(written, tmp_path_factory.mktemp("swept") / "store")
    reply = xautoclaim(open_store(where), SweepRequest(REQUEST), run_id="r")
    return Swept(where, {row["id"]: row for row in reply.claimed.collect()}, reply.counts)


@pytest.fixture(scope="module")
def cut_at(
    open_store: Opener, written: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Phase], Path]:
    """Where the run `cut` ended as it entered a phase."""

    @functools.cache
    def cut(phase: Phase) -> Path:
        where = shutil.copytree(written, tmp_path_factory.mktemp("cut") / "store")
        store = open_store(where)
        with pytest.raises(KeyboardInterrupt):
            xautoclaim(store, SweepRequest(REQUEST), run_id="cut", progress=stop_at(phase))
        return where

    return cut


def stop_at(stopped: Phase) -> object:
    def stop(phase: Phase, detail: str) -> None:
        if phase is stopped:
            raise KeyboardInterrupt(detail)

    return stop


@AGES
def test_what_a_run_did_is_answered_for_ever_and_its_run_id_again_changes_nothing(
    open_store: Opener, swept: Swept, tmp_path: Path, days: int
) -> None:
    claimed = swept.claimed
    store = open_store(shutil.copytree(swept.where, tmp_path / "store"))
    age(store, days)
    xautoclaim(store, LATER, now_ms=NOW_MS + 1)
    delete(store, "entries", "id_ms = 1")
    update(store, "entries", "id_ms = 3", fields="NULL")
    commit_past_a_checkpoint(store, "entries", "pending")
    versions = {table: store.version(table) for table in TABLES}

    for again in (
        xautoclaim(store, SweepRequest(REQUEST), run_id="r"),
        Reply.of_finished(store, find_run(store, "xautoclaim:r")),
    ):
        assert again.counts == swept.counts
        assert again.deleted.count() == DELETED
        answered = {row["id"]: row for row in again.claimed.collect()}
        assert answered.keys() == claimed.keys()
        payloads = [(id_, row["payload"]) for id_, row in sorted(answered.items())]
        kept = [(f"{n}-0", "present") for n in (5, 7, 9)]
        assert payloads == [("1-0", "gone"), ("3-0", "not_kept"), *kept]
        assert answered["5-0"] == claimed["5-0"]
        (group,) = again.groups.collect()
        assert (group["pending_before"], group["pending_after"]) == (10, 9)
    assert {table: store.version(table) for table in TABLES} == versions


@pytest.mark.long
@AGES
def test_a_state_that_is_not_kept_any_more_is_said_to_be_and_today_s_is_shown(
    spark: SparkSession, swept: Swept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """Spark refuses a version by its age; the embedded engine reads its files as long as they are
    there (`tests/engine/test_embedded_tables.py`)."""
    store = Store.open(spark, str(shutil.copytree(swept.where, tmp_path / "store")))
    age(store, days)
    xautoclaim(store, LATER, now_ms=NOW_MS + 1)
    with monkeypatch.context() as patch:
        by_spark_alone(patch)
        opened = Store.open(spark, store.where)
        with pytest.raises(VersionExpiredError, match=r"pending can no longer be read.*7 days"):
            pending_overview(read_store(opened, "xautoclaim:r"))
    assert pending_overview(read_store(store)).count() == 1


@AGES
def test_a_decided_snapshot_comes_to_its_end_however_late(store: Store, days: int) -> None:
    finish_late(store, days)


@pytest.mark.long
def test_a_decided_snapshot_is_finished_in_a_session_whose_spark_refuses_the_version(
    spark_store: Store,
) -> None:
    finish_late(spark_store, 8)


def finish_late(store: Store, days: int) -> None:
    first = stream(b"s", {1: b"a", 2: b"a", 3: b"a"}, {1, 2, 3}, NOW_MS)
    snapshot(store, ALL, lambda _: source(first))
    second = stream(b"s", {2: b"b", 3: b"a", 4: b"b"}, {2, 3, 4}, NOW_MS + 1)
    with pytest.raises(KeyboardInterrupt):
        snapshot(store, ALL, lambda _: source(second), run_id="cut", progress=stop_at(Phase.APPLY))
    commit_past_a_checkpoint(store, "entry_landing", "pel_snapshots")
    age(store, days)
    commit_past_a_checkpoint(store, "pending", "entries", "entry_landing")
    swept = xautoclaim(store, SweepRequest(REQUEST, stream_glob="nothing"))
    assert swept.run_seq == 3
    done = find_run(store, "snapshot:cut")
    assert (done.counts["lost"], done.counts["pending_missing"]) == (0, 0)
    assert owners(store) == {(b"s", 2): b"b", (b"s", 3): b"a", (b"s", 4): b"b"}
    assert count(store.where, "entries") == 3


@AGES
@pytest.mark.parametrize("stopped", [Phase.APPLY, Phase.VERIFY, Phase.RECORD, Phase.FINISH])
def test_a_decided_claim_comes_to_its_end_however_late(
    open_store: Opener,
    cut_at: Callable[[Phase], Path],
    tmp_path: Path,
    days: int,
    stopped: Phase,
) -> None:
    store = open_store(shutil.copytree(cut_at(stopped), tmp_path / "store"))
    age(store, days)
    commit_past_a_checkpoint(store, "pending", "entries")
    again = xautoclaim(store, SweepRequest(REQUEST), run_id="cut")
    assert (again.counts["claimed"], again.counts["deleted"]) == (CLAIMED, DELETED)
    assert (again.counts["lost"], again.counts["gone"]) in {(0, 0), (0, DELETED)}
    assert count(store.where, "pending", "consumer = 'alice'") == CLAIMED
    assert count(store.where, "tombstones") == DELETED


def test_a_writer_in_the_middle_of_a_run_on_a_table_that_was_old_makes_it_begin_again(
    store: Store,
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    age(store, 8)
    wrote = []

    def write(phase: Phase, detail: str) -> None:
        if phase is Phase.DECIDE and not wrote:
            wrote.append(detail)
            commit_past_a_checkpoint(store, "entries")

    done = xautoclaim(store, SweepRequest(REQUEST), progress=write)
    assert (done.counts["claimed"], wrote) == (CLAIMED, ["run 1"])


@AGES
def test_claims_by_id_are_answered_for_ever(store: Store, days: int) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    claim = NamedClaim(b"s", b"g", ClaimRequest(b"bob", 0, (StreamId(1, 0), StreamId(4, 0))))
    xclaim(store, [claim], run_id="r")
    age(store, days)
    commit_past_a_checkpoint(store, "pending", "entries")
    again = xclaim(store, [claim], run_id="r")
    assert [(row["status"], row["payload"]) for row in again.ids.collect()] == [
        *(("claimed", "present"), ("deleted", None)),
    ]
