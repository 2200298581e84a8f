"""A run that is killed leaves either nothing decided, or a decision that the next run finishes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.errors import UnfinishedRunError
from claimlib.runs import Phase
from claimlib.schema import TABLES
from claimlib.store.opening import open_folder
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.own_rows import Opener
from tests.delta.pels import CLAIMED, DELETED, NOW_MS, REQUEST, keyspace
from tests.delta.reading import count, query
from tests.edge.processes import QUICK_JAVA

HERE = Path(__file__).parent
KILL_POINTS = {"a": Phase.DECIDE, "b": Phase.APPLY, "c": Phase.VERIFY}
# What may differ between a run that was killed and one that was not.
DIFFERS = {
    "journal": {"attempt", "inputs"},
    "runs": {"engine", "phase_ms", "began_ms", "ended_ms", "input_versions", "output_versions"},
}


@dataclass
class Stores:
    """One store on which the run was never stopped, and per kill point one on which it was.

    Attributes:
        engine: what executed the runs that were killed.
    """

    unkilled: Store
    killed: dict[str, Path]
    engine: str


@pytest.fixture(scope="module", params=[pytest.param("spark", marks=pytest.mark.long), "embedded"])
def stores(
    request: pytest.FixtureRequest,
    open_store: Opener,
    empty_store: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Stores:
    """One process runs on three stores at once, each to its kill point; then it is killed."""
    folder = tmp_path_factory.mktemp("kills")
    first = shutil.copytree(empty_store, folder / "unkilled")
    store = open_store(first)
    write_keyspace(store, keyspace(b"s1", b"s2", b"s\xff"), NOW_MS)
    killed = {point: shutil.copytree(first, folder / point) for point in KILL_POINTS}
    stops = [f"{point}={phase}" for point, phase in KILL_POINTS.items()]
    # A second process does not start a Connect server of its own; it uses this one's.
    elsewhere = {"SPARK_REMOTE": "sc://localhost"} if is_remote() else {}
    process = subprocess.Popen(
        [sys.executable, HERE / "killed_run.py", request.param, folder, *stops],
        env=os.environ
        | {"JDK_JAVA_OPTIONS": QUICK_JAVA, "PYTHONPATH": f"{HERE.parents[1]}{os.pathsep}{HERE}"}
        | elsewhere,
        start_new_session=True,
    )
    xautoclaim(store, SweepRequest(REQUEST), run_id="killed")
    for where in killed.values():
        wait_for(where.with_suffix(".told"), process)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    return Stores(store, killed, request.param)


def wait_for(told: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 240
    while not told.exists():
        assert process.poll() is None, "a run ended before its kill point"
        assert time.monotonic() < deadline, "a run did not reach its kill point"
        time.sleep(0.05)  # between two looks at another process


def rows_of(where: str, table: str) -> list[str]:
    """All rows of a table, but for what may differ, in an order of their own."""
    differs = DIFFERS.get(table, set())
    return sorted(
        str({name: row[name] for name in row if name not in differs})
        for row in query(where, table, "SELECT * FROM t")
    )


def finish(spark: SparkSession, stores: Stores, point: str) -> Store:
    """Whatever runs next, here the same run again by the other engine, on the store that was left
    behind."""
    where = str(stores.killed[point])
    if stores.engine == "embedded":
        store = Store.open(spark, where)
    else:
        store = open_folder(lambda: spark, where, writes=True)
        assert store.is_embedded
    reply = xautoclaim(store, SweepRequest(REQUEST), run_id="killed")
    assert (reply.counts["claimed"], reply.counts["deleted"]) == (3 * CLAIMED, 3 * DELETED)
    assert reply.counts["lost"] == 0
    return store


def assert_same_rows(store: Store, unkilled: Store) -> None:
    for table in TABLES:
        assert rows_of(store.where, table) == rows_of(unkilled.where, table), table


@pytest.mark.long  # test_steps.py kills each command before its decision, too
def test_killed_before_its_decision_a_run_has_decided_nothing_and_the_next_decides_afresh(
    spark: SparkSession, stores: Stores
) -> None:
    where = stores.killed["a"]
    assert count(where, "journal") == 0
    assert count(where, "pending", "run_seq > 0") == 0
    assert count(where, "pending") == 3 * 10

    assert_same_rows(finish(spark, stores, "a"), stores.unkilled)


def test_killed_behind_its_decision_a_run_has_not_changed_pending_and_the_next_finishes_it(
    spark: SparkSession, stores: Stores
) -> None:
    where = stores.killed["b"]
    assert count(where, "journal", "kind = 'run'") == 1
    assert count(where, "journal", "kind = 'claimed'") == 3 * CLAIMED
    assert count(where, "pending", "run_seq > 0") == 0
    assert count(where, "pending") == 3 * 10

    with pytest.raises(UnfinishedRunError, match="xautoclaim:killed"):
        xautoclaim(Store.open(spark, str(where)), SweepRequest(REQUEST), dry_run=True)
    assert_same_rows(finish(spark, stores, "b"), stores.unkilled)


def test_killed_behind_its_change_of_pending_a_run_is_finished_by_another_run_of_the_store(
    spark: SparkSession, stores: Stores
) -> None:
    where = stores.killed["c"]
    assert count(where, "pending", "run_seq = 1") == 3 * CLAIMED
    assert count(where, "pending") == 3 * (10 - DELETED)
    assert count(where, "tombstones") == 0
    assert count(where, "runs") == 0

    assert_same_rows(finish(spark, stores, "c"), stores.unkilled)
