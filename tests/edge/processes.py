"""Commands as people start them: in a process of their own, where nothing of ours is exported."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# A variable of the user's shell would change what a command says or does.
_DROPPED = ("CLAIMLIB_", "PYSPARK_", "SPARK_", "PYTHON", "REDIS_", "FORCE_COLOR")


def run_python(*arguments, timeout=240, **variables):
    """The finished process `python ARGUMENTS`, with the source folder on its path."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(_DROPPED)}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "NO_COLOR": "1", **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def run_claimlib(*arguments, **variables):
    """The finished process `claimlib ARGUMENTS`."""
    start = "import sys; sys.argv[0] = 'claimlib'; from claimlib.cli import main; main()"
    return run_python("-c", start, *arguments, **variables)
