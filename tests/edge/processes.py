"""Commands as people start them: in a process of their own, where nothing of ours is exported."""

import os
import subprocess
import sys
import time
from pathlib import Path

from claimlib.session import SHORT_LIVED

ROOT = Path(__file__).parents[2]
# A variable of the user's shell would change what a command says or does.
_DROPPED = ("CLAIMLIB_", "PYSPARK_", "SPARK_", "PYTHON", "REDIS_", "FORCE_COLOR")
# For each JVM that such a process starts, whatever its memory.
QUICK_JAVA = " ".join(option for option in SHORT_LIVED.split() if option.startswith("-XX:"))
_START = "import sys; sys.argv[0] = 'claimlib'; from claimlib.cli import main; main()"


# Commands that look at small tables, or at none, answer in 3 s on a quiet machine.  Tests share
# theirs: twice as long is still less than a JVM needs to start there.
PROMPT_S = 6


def promptly(run):
    """What `run()` gives, once it takes no longer than `PROMPT_S`; one of three
    tries must, as whatever else the machine does may hold up the others."""
    took_s = []
    for _ in range(3):
        began = time.monotonic()
        outcome = run()
        took_s.append(time.monotonic() - began)
        if took_s[-1] < PROMPT_S:
            return outcome
    raise AssertionError(f"took {took_s} s")


def run_python(*arguments, timeout=600, before=(), **variables):
    """The finished process `python ARGUMENTS`, with the source folder on its path; the words of
    `before` start it."""
    return subprocess.run(
        [*before, sys.executable, *map(str, arguments)],
        env=_environment(variables),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def run_claimlib(*arguments, before=(), **variables):
    """The finished process `claimlib ARGUMENTS`."""
    return run_python("-c", _START, *arguments, before=before, **variables)


def started_claimlib(*arguments, **variables):
    """The process `claimlib ARGUMENTS`, whose output can be read line by line, and which leads a
    group of processes; it is killed with the `with` block, if it has not ended by then."""
    return _Started(
        [sys.executable, "-c", _START, *map(str, arguments)],
        env=_environment(variables),
        start_new_session=True,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class _Started(subprocess.Popen):
    def __exit__(self, *raised):
        self.kill()
        super().__exit__(*raised)


def _environment(variables):
    environ = {k: v for k, v in os.environ.items() if not k.startswith(_DROPPED)}
    own = {"PYTHONPATH": str(ROOT), "COLUMNS": "100", "NO_COLOR": "1"}
    return {**environ, **own, "JDK_JAVA_OPTIONS": QUICK_JAVA, **variables}
