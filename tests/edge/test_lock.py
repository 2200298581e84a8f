"""One process at a time writes to a local folder, and commands that only read do not wait."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.live.batches import SourceOpened
from claimlib.live.reading import ServerReading
from claimlib.runs import Phase
from claimlib.store.lock import FILE
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.pels import CLAIMED, DELETED, NOW_MS, REQUEST, keyspace
from tests.edge.commands import COMMANDS, WRITING
from tests.edge.processes import ROOT, run_claimlib, started_claimlib
from tests.lock_holder import holding, release, told

NO_JAVA = {"JAVA_HOME": "/nowhere"}
PATIENCE_S = 60
# They take the lock after they have asked the server, and there is none.
ASKING_FIRST = {"writeback", "rescue"}
READING = {
    "xautoclaim": (*COMMANDS["xautoclaim"].words, "--dry-run"),
    "xpending": ("{}",),
    "describe": ("{}", "s", "g"),
    "runs": ("{}",),
    "check": ("{}",),
    "init": ("{}",),
}


@pytest.fixture(scope="module")
def where(open_store, empty_store, tmp_path_factory):
    """Return the folder of a store with pending entries of the stream s."""
    folder = shutil.copytree(empty_store, tmp_path_factory.mktemp("locked") / "store")
    store = open_store(folder)
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    xautoclaim(store, SweepRequest(REQUEST, stream_glob="t"), now_ms=NOW_MS)  # claims nothing
    return folder


@pytest.fixture(scope="module")
def held(where):
    """Return the same folder, whose lock another process holds."""
    with holding(where, "xautoclaim:nightly") as process:
        assert told(process) == "held"
        yield where


@pytest.mark.usefixtures("in_session")
@pytest.mark.parametrize("command", [name for name in WRITING if name not in ASKING_FIRST])
def test_a_command_that_writes_ends_with_5_and_names_the_run_that_it_would_wait_for(
    claimlib, held, command, monkeypatch
):
    ids = SourceOpened(None, None)  # there is no server
    monkeypatch.setattr(ServerReading, "check", lambda _: ids)
    words = COMMANDS[command].on(held)
    said = claimlib(command, *words, "--wait", "0", "--quiet")
    assert (said.code, said.out) == (5, ""), said.err
    (line,) = said.err.splitlines()
    assert line.startswith(f"claimlib: error: {held} is locked by xautoclaim:nightly (process ")
    assert line.endswith("(--wait 1h; without --wait there is no limit)")


@pytest.mark.parametrize("command", READING)
def test_a_command_that_changes_nothing_does_not_wait(claimlib, held, command):
    words = [word.format(held) for word in READING[command]]
    said = claimlib(command, *words)
    assert said.code in {0, 4}, said.err
    assert "lock" not in said.err


def test_the_time_to_wait_may_stand_in_the_environment(claimlib, held, monkeypatch):
    monkeypatch.setenv("CLAIMLIB_LOCK__WAIT", "1ms")
    said = claimlib("reset-cursor", held, "nightly")
    assert (said.code, "which still writes to it after 1ms" in said.err) == (5, True), said.err
    said = claimlib("reset-cursor", held, "nightly", "--wait", "1")
    assert (said.code, "option --wait: '1' has no unit" in said.err) == (2, True), said.err


def test_init_that_creates_a_lost_table_waits_too(claimlib, where, tmp_path):
    folder = shutil.copytree(where, tmp_path / "store")
    shutil.rmtree(folder / "cursors")
    with holding(folder, "xautoclaim:nightly") as process:
        told(process)
        said = claimlib("init", folder, "--wait", "0")
        assert (said.code, "locked by xautoclaim:nightly" in said.err) == (5, True), said.err
    assert claimlib("init", folder, "--wait", "0").code == 0


def test_init_of_a_new_store_makes_no_lock(empty_store):
    assert not (empty_store / FILE).exists()


def test_a_process_names_the_run_that_it_waits_for_and_continues_when_that_has_ended(
    where, tmp_path
):
    folder = shutil.copytree(where, tmp_path / "store")
    words = ("xautoclaim", *COMMANDS["xautoclaim"].on(folder), "--engine", "embedded")
    with (
        holding(folder, "xautoclaim:nightly") as holder,
        started_claimlib(*words, **NO_JAVA) as waiting,
    ):
        told(holder)
        line = waiting.stderr.readline()
        release(holder)
        out, rest = waiting.communicate(timeout=PATIENCE_S)
    expected = (
        r"claimlib: lock · waiting for xautoclaim:nightly \(process \d+ on .+, since 20.+Z\)\n"
    )
    assert re.fullmatch(expected, line), (line, rest)
    assert (waiting.returncode, "XAUTOCLAIM, run 2" in out) == (0, True), rest


def test_spark_waits_for_an_embedded_process_and_finishes_its_run_after_a_kill(
    spark, where, tmp_path
):
    folder = shutil.copytree(where, tmp_path / "store")
    script = ROOT / "tests" / "delta" / "killed_run.py"
    process = subprocess.Popen(
        [sys.executable, script, "embedded", tmp_path, f"store={Phase.APPLY}"],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | NO_JAVA,
    )
    seen = []

    def tell(phase, detail):
        seen.append((phase, detail.partition(" (")[0]))
        if phase is Phase.LOCK:
            process.send_signal(signal.SIGKILL)

    store = Store.open(spark, str(folder))
    try:
        wait_for(folder.with_suffix(".told"), process)
        reply = xautoclaim(store, SweepRequest(REQUEST), run_id="killed", progress=tell)
    finally:
        process.kill()
        process.wait(PATIENCE_S)
    assert seen[0] == (Phase.LOCK, "waiting for xautoclaim:killed")
    assert (Phase.RECOVER, "finishing run 2") in seen
    assert (reply.counts["claimed"], reply.counts["deleted"]) == (CLAIMED, DELETED)


def wait_for(file, process):
    deadline = time.monotonic() + PATIENCE_S
    while not file.exists():
        assert process.poll() is None, "the run ended before its phase"
        assert time.monotonic() < deadline
        time.sleep(0.05)  # between two checks of the other process


def test_an_embedded_process_waits_for_spark_and_reads_meanwhile(spark, where, tmp_path):
    folder = shutil.copytree(where, tmp_path / "store")
    ended = {}

    def meanwhile(phase, _detail):
        if phase is Phase.DECIDE and not ended:
            for command in ("xack", "xpending"):
                words = ("--wait", "0") if command == "xack" else ()
                ended[command] = run_claimlib(
                    *(command, *COMMANDS[command].on(folder), *words, "--engine", "embedded"),
                    **NO_JAVA,
                )

    store = Store.open(spark, str(folder))
    xautoclaim(store, SweepRequest(REQUEST), run_id="by-spark", progress=meanwhile)
    assert "is locked by xautoclaim:by-spark (process " in ended["xack"].stderr
    assert [process.returncode for process in ended.values()] == [5, 0], ended
    later = run_claimlib("xack", *COMMANDS["xack"].on(folder), "--wait", "0", **NO_JAVA)
    assert later.returncode == 0, later.stderr
