"""A process that holds the lock of a store's folder until it is told to release it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HOLD = """
import subprocess, sys
from pathlib import Path
from claimlib.store.lock import WriteLock
with WriteLock(Path(sys.argv[1])).held_for(sys.argv[2], print):
    child = subprocess.Popen(sys.argv[3:], stdin=subprocess.DEVNULL) if sys.argv[3:] else None
    print(child.pid if child else "held", flush=True)
    sys.stdin.readline()
"""
ROOT = Path(__file__).parents[1]


@contextmanager
def holding(folder: Path, run: str, *child: str) -> Iterator[subprocess.Popen[str]]:
    """Yield a process that takes the lock for a run.  `told` waits until it holds the lock.

    Args:
        child: a command that the process starts while it holds the lock.
    """
    words = [sys.executable, "-c", _HOLD, str(folder), run, *child]
    process = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def told(process: subprocess.Popen[str]) -> str:
    """Wait until the process holds the lock; return the process id of its child, or `held`."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def release(process: subprocess.Popen[str]) -> None:
    """Release the lock of the process, and end the process."""
    process.communicate("\n")
