"""`claimlib` as a task of a Databricks job: the entry point returns where a command is done, and
raises where it is not, as such a task takes every `sys.exit` for a failure."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from claimlib import process
from claimlib.cli import run as run_command


def main() -> None:
    """Run the command that the process' arguments name; return where it ends with 0.

    Raises:
        RuntimeError: it ended otherwise; the message has the command, its exit code and, where an
            error was raised, what stderr says of it.  What the command itself says stands on
            stdout and stderr.
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
    """Return why the command ended; of an interrupt's errors, which are many, none says that."""
    if not raised or code in {process.INTERRUPTED, process.TERMINATED}:
        return process.MEANINGS[code]
    return process.in_one_line(process.translated(raised[0]))
