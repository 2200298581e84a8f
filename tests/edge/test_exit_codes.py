"""Every exit code of the README's table, each by a command that ended with it.

Those that are interrupted are processes of their own.
"""

import os
import re
import shutil
import signal

import pytest

from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.runs import Phase
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import AutoclaimRequest, Consumer, Group, PendingEntry
from claimlib.semantics.words import Stream
from claimlib.testing.keyspace_rows import write_keyspace
from tests.cluster.jars import copy_jars
from tests.delta.own_rows import append
from tests.edge.processes import ROOT, started_claimlib

NOW_MS = 1_750_000_000_000
SWEEP = ("--consumer", "c", "--min-idle", "1m")
CASES = {
    "done": (0, ("runs", "stalled"), ""),
    "our fault": (
        1,
        ("runs", "forged"),
        "(unexpected error; run again with --debug for the traceback)",
    ),
    "usage": (2, ("xautoclaim", "stalled", "--min-idle", "15"), "'15' has no unit"),
    "stalled": (3, ("xpending", "stalled", "--fail-on-stalled", "1m"), "stalled: "),
    "no store": (4, ("runs", "absent"), "no store at "),
    "input refused": (
        4,
        ("import", "imported", "--entries", "./none", "--pending", "./none"),
        "none: no such file or folder",
    ),
    "not finished": (
        5,
        ("xautoclaim", "unfinished", *SWEEP, "--dry-run"),
        "run 1 (xautoclaim:r) is unfinished: its",
    ),
    "refused group": (6, ("xautoclaim", "stalled", *SWEEP, "--dry-run"), "refused: s / g: "),
    "no server": (75, ("snapshot", "redis://127.0.0.1:1/0", "stalled"), "cannot be reached"),
}


@pytest.fixture(scope="module")
def stores(open_store, empty_store, tmp_path_factory):
    """A folder of stores: `stalled` has an entry that is due, without proof that its stream has it;
    `forged` a row in its journal that no run wrote; `unfinished` a run that stopped when it had
    decided; `interrupted` and `terminated` have an entry that is due, and its stream has it."""
    folder = tmp_path_factory.mktemp("stores")
    stalled = open_store(shutil.copytree(empty_store, folder / "stalled"))
    pel = (PendingEntry(StreamId(1, 0), b"dead", NOW_MS - 90_000, 3),)
    group = Group(StreamId(9, 0), pel, (Consumer(b"dead", NOW_MS, None),))
    write_keyspace(stalled, {b"s": Stream({}, {b"g": group})}, NOW_MS, proven=None)
    for name in ("forged", "unfinished"):
        shutil.copytree(folder / "stalled", folder / name)
    terminated = open_store(shutil.copytree(empty_store, folder / "terminated"))
    entries = {StreamId(1, 0): (b"field", b"value")}
    write_keyspace(terminated, {b"s": Stream(entries, {b"g": group})}, NOW_MS)
    shutil.copytree(folder / "terminated", folder / "interrupted")
    shutil.copytree(empty_store, folder / "imported")
    forged = {"run_seq": 1, "kind": "run", "inputs": "no JSON"}
    append(open_store(folder / "forged"), "journal", forged)
    _leave_unfinished(open_store(folder / "unfinished"))
    return folder


def _leave_unfinished(store):
    def stop(phase, detail):
        if phase == Phase.APPLY:
            raise InterruptedError(detail)

    request = SweepRequest(AutoclaimRequest(b"c", 60_000))
    with pytest.raises(InterruptedError):
        xautoclaim(store, request, run_id="r", progress=stop)


@pytest.mark.parametrize("case", CASES)
def test_a_command_ends_with_the_code_of_what_happened_and_says_what_it_was(claimlib, stores, case):
    code, (command, *words), message = CASES[case]
    places = [stores / word if (stores / word).is_dir() else word for word in words]
    said = claimlib(command, *places)
    assert said.code == code, said.err
    assert message in said.err
    assert "Traceback" not in said.err
    assert bool(said.out) == (code in {0, 3, 6})


def signalled(words, phase, send):
    """The exit code of a process that got a signal in a phase, and what it said after that.

    Args:
        send: sends the signal to the process.
    """
    with started_claimlib(*words) as process:
        said = []
        for line in process.stderr:
            said.append(line)
            if line.startswith(f"claimlib: {phase}"):
                send(process)
                break
        out, rest = process.communicate(timeout=600)
    assert said[-1].startswith(f"claimlib: {phase} · run 1"), (said, rest)
    assert out == ""
    return process.returncode, rest


def press_ctrl_c(process):
    """A terminal sends the signal to the whole group: to the JVM and to Spark's workers, too."""
    os.killpg(process.pid, signal.SIGINT)


def terminate(process):
    """A scheduler sends the signal to the process that it has started."""
    process.send_signal(signal.SIGTERM)


def claimed_one(said):
    """Whether the report is that of the run that claims the one entry of its store."""
    (total,) = [line for line in said.out.splitlines() if line.startswith("total ")]
    return total.split()[:6] == ["total", "1", "group", "1", "1", "1"]


@pytest.fixture
def without_maven(spark, tmp_path):
    """Options of a JVM of its own that has Delta's jars from a folder; no package is asked for."""
    jars, ivy = copy_jars(spark, tmp_path / "jars"), tmp_path / "ivy"
    settings = (f"spark.jars={','.join(map(str, jars))}", f"spark.jars.ivy={ivy}")
    yield [word for setting in settings for word in ("--spark-conf", setting)]
    assert not ivy.exists()


@pytest.mark.parametrize("engine", ["embedded", pytest.param("spark", marks=pytest.mark.long)])
def test_ctrl_c_in_a_decision_ends_as_the_shell_expects_and_the_same_command_does_it(
    request, claimlib, stores, tmp_path, engine
):
    store = shutil.copytree(stores / "interrupted", tmp_path / "interrupted")
    words = ("xautoclaim", store, *SWEEP, "--run-id", "nightly")
    jvm = request.getfixturevalue("without_maven") if engine == "spark" else ()
    code, rest = signalled((*words, *jvm), "decide", press_ctrl_c)
    assert code == 130, rest
    # The signal comes before the decision is written, or after that.
    left = ("nothing was decided, so", "the decision of run 1 (xautoclaim:nightly) was written: ")
    assert rest.startswith(tuple(f"claimlib: interrupted: {state}" for state in left))
    finished = claimlib(*words)
    assert finished.code == 0, finished.err
    assert "XAUTOCLAIM, run 1 (xautoclaim:nightly)" in finished.out
    assert claimed_one(finished)
    looked_at = claimlib("xpending", store)
    assert looked_at.code == 0, looked_at.err


def test_a_run_that_is_terminated_after_its_decision_is_finished_by_the_same_command(
    claimlib, stores
):
    words = ("xautoclaim", stores / "terminated", *SWEEP, "--run-id", "nightly")
    code, rest = signalled(words, "apply", terminate)
    assert code == 143, rest
    assert rest == (
        "claimlib: terminated: the decision of run 1 was written: the same command with its"
        " --run-id, or the next run, finishes it\n"
    )
    unfinished = claimlib("xpending", stores / "terminated")
    assert unfinished.code == 0, unfinished.err
    assert "then --as-of 1 shows the store after it" in unfinished.out
    finished = claimlib(*words)
    assert finished.code == 0, finished.err
    recovered = "claimlib: recover · finishing run 1 (xautoclaim:nightly) of another process"
    assert recovered in finished.err.splitlines()
    assert "XAUTOCLAIM, run 1 (xautoclaim:nightly)" in finished.out
    assert "was already done" not in finished.out + finished.err
    repeated = claimlib(*words)
    assert repeated.out.splitlines()[-1] == "run 1 was already done: nothing was changed"
    assert claimed_one(finished)


def test_these_are_all_codes_that_the_readme_has():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"\| code \| meaning \|\n\|---\|---\|\n((?:\|.*\n)+)", readme)
    codes = {int(code) for line in table.splitlines() for code in line.split("|")[1].split(",")}
    assert codes == {code for code, _, _ in CASES.values()} | {130, 143}
