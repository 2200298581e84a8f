"""Run `claimlib` as a task of a Databricks job.

The entry point returns if a command succeeds, and raises an error if it fails.  Such a task takes
every `sys.exit` for a failure.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from claimlib import process
from claimlib.cli import run as run_command


def main() -> None:
    """Run the command that the process' arguments name, and return if its exit code is 0.

    Raises:
        RuntimeError: the exit code is not 0.  The message has the command and its exit code.  If an
            error was raised, it also has the error's message on stderr.  The output of the command
            itself is on stdout and stderr.
    """
    words = sys.argv[1:]
    raised: list[Exception] = []

    def run() -> int:
        try:
            return run_command(words)
        except Exception as error:
            raised.append(error)
            raise

    code = process.ending(run, debug=lambda: "--debug" in words)
    if code == process.DONE:
        return
    meaning = _meaning(code, raised)
    raise RuntimeError(f"claimlib {' '.join(words[:1])} ended with exit code {code}: {meaning}")


def _meaning(code: int, raised: Sequence[Exception]) -> str:
    """Return why the command ended.

    After an interrupt this is the meaning of the exit code.  An interrupt can raise many different
    errors, and their messages do not have this meaning.
    """
    if not raised or code in {process.INTERRUPTED, process.TERMINATED}:
        return process.MEANINGS[code]
    return process.in_one_line(process.translated(raised[0]))
