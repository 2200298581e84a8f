"""Run `claimlib` as a task of a Databricks job.

The entry point returns if a command succeeds, and raises an error if it fails.  It never calls
`sys.exit`, because such a task fails at every `sys.exit`, even with code 0.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from claimlib import process
from claimlib.cli import run as run_command


def main() -> None:
    """Run the command that the process' arguments name, and return if its exit code is 0.

    Raises:
        RuntimeError: the exit code is not 0.  The message has the name of the command, the exit
            code, and the reason.
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
    reason = _reason(code, raised)
    raise RuntimeError(f"claimlib {' '.join(words[:1])} ended with exit code {code}: {reason}")


def _reason(code: int, raised: Sequence[Exception]) -> str:
    """Return the reason why the command ended: an error's message, or the exit code's meaning.

    After an interrupt it is the meaning of the exit code.  The interrupt may have raised any error,
    whose message does not mention the interrupt.
    """
    if not raised or code in {process.INTERRUPTED, process.TERMINATED}:
        return process.MEANINGS[code]
    return process.in_one_line(process.translated(raised[0]))
