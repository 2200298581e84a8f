"""Every exit code of the README's table, each by a process that ended with it.

But for the one that is interrupted the processes share this test's JVM, and run some at a time.
"""

import re
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from processes import ROOT, run_claimlib_in_the_jvm_of, started_claimlib

from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.ids import StreamId
from claimlib.model import AutoclaimRequest, Consumer, Group, PendingEntry
from claimlib.runs import Phase
from claimlib.store import Store
from claimlib.testing.tables import write_keyspace
from claimlib.words import Stream

NOW_MS = 1_750_000_000_000
SWEEP = ("--consumer", "c", "--min-idle", "1m")
AT_A_TIME = 3
CASES = {
    "done": (0, ("runs", "stalled"), ""),
    "our fault": (1, ("xpending", "unreadable"), "(this is not expected; --debug shows more)"),
    "usage": (2, ("xautoclaim", "stalled", "--min-idle", "15"), "'15' has no unit"),
    "stalled": (3, ("xpending", "stalled", "--fail-on-stalled", "1m"), "stalled: "),
    "no store": (4, ("runs", "absent"), "no store at "),
    "input refused": (
        4,
        ("import", "imported", "--entries", "./none", "--pending", "./none"),
        "none cannot be read as a table: ",
    ),
    "not finished": (5, ("xpending", "unfinished"), "run 1 (xautoclaim:r) is decided and not yet"),
    "refused group": (6, ("xautoclaim", "stalled", *SWEEP, "--dry-run"), "refused: s / g: "),
    "no server": (75, ("snapshot", "redis://127.0.0.1:1/0", "stalled"), "cannot be reached"),
}


@pytest.fixture(scope="module")
def stores(spark, empty_store, tmp_path_factory):
    """A folder of stores: `stalled` has an entry that is due, without proof that its stream has it;
    `unreadable` a file of Parquet that is none; `unfinished` a run that stopped when it had
    decided."""
    folder = tmp_path_factory.mktemp("stores")
    stalled = Store.open(spark, str(shutil.copytree(empty_store, folder / "stalled")))
    pel = (PendingEntry(StreamId(1, 0), b"dead", NOW_MS - 90_000, 3),)
    group = Group(StreamId(9, 0), pel, (Consumer(b"dead", NOW_MS, None),))
    write_keyspace(stalled, {b"s": Stream({}, {b"g": group})}, NOW_MS, proven=None)
    for name in ("unreadable", "unfinished", "interrupted"):
        shutil.copytree(folder / "stalled", folder / name)
    shutil.copytree(empty_store, folder / "imported")
    (data,) = (folder / "unreadable" / "pending").rglob("*.parquet")
    data.write_bytes(b"no Parquet" * (data.stat().st_size // 10))
    _leave_unfinished(Store.open(spark, str(folder / "unfinished")))
    return folder


def _leave_unfinished(store):
    def stop(phase, detail):
        if phase == Phase.APPLY:
            raise InterruptedError(detail)

    request = SweepRequest(AutoclaimRequest(b"c", 60_000))
    with pytest.raises(InterruptedError):
        xautoclaim(store, request, run_id="r", progress=stop)


@pytest.fixture(scope="module")
def ended(spark, stores):
    """The finished process of each case."""

    def run(case):
        _, (command, *words), _ = CASES[case]
        places = [stores / word if (stores / word).is_dir() else word for word in words]
        return run_claimlib_in_the_jvm_of(spark, command, *places)

    with ThreadPoolExecutor(AT_A_TIME) as threads:
        return dict(zip(CASES, threads.map(run, CASES), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_a_process_ends_with_the_code_of_what_happened_and_says_what_it_was(ended, case):
    code, _, said = CASES[case]
    process = ended[case]
    assert process.returncode == code, process.stderr
    assert said in process.stderr
    assert "Traceback" not in process.stderr
    assert bool(process.stdout) == (code in {0, 3, 6})


def test_a_process_that_is_interrupted_in_a_phase_ends_as_the_shell_expects(stores):
    words = ("xautoclaim", stores / "interrupted", *SWEEP)
    with started_claimlib(*words) as process:
        said = []
        for line in process.stderr:
            said.append(line)
            if line.startswith("claimlib: decide"):
                process.send_signal(signal.SIGINT)
                break
        out, rest = process.communicate(timeout=600)
    assert said[-1] == "claimlib: decide · run 1\n", (said, rest)
    assert process.returncode == 130, rest
    assert out == ""
    assert rest == "claimlib: interrupted; what was decided is finished by the next run\n"


def test_these_are_all_codes_that_the_readme_has():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"\| code \| meaning \|\n\|---\|---\|\n((?:\|.*\n)+)", readme)
    codes = {int(line.split("|")[1]) for line in table.splitlines()}
    assert codes == {code for code, _, _ in CASES.values()} | {130}
