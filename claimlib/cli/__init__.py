"""Run the command line `claimlib`.

The scripts in `jobs/` are the same commands for spark-submit.
"""

from __future__ import annotations

import os
import re
import sys
from functools import partial
from typing import TYPE_CHECKING

from claimlib import process, terminal
from claimlib.errors import RequestError

if TYPE_CHECKING:
    from typer.exceptions import TyperException

_COMPLETION_VARIABLE = "_CLAIMLIB_COMPLETE"
"""The environment variable with which a shell requests completions."""


def main() -> None:
    """Run the command line and end the process."""
    if _COMPLETION_VARIABLE in os.environ:  # `process.ending` would escape the tabs that fish reads
        sys.exit(run(sys.argv[1:]))
    sys.exit(_run_reporting_errors(sys.argv[1:]))


def job(command: str) -> int:
    """Run one command with the arguments of this process, and return its exit code."""
    return _run_reporting_errors([command, *sys.argv[1:]])


def _run_reporting_errors(words: list[str]) -> int:
    """Run a command, print its error in one line, and return its exit code."""
    return process.ending(partial(run, words), debug=lambda: "--debug" in words)


def run(words: list[str]) -> int:
    """Run the command that the words name, and return its exit code.

    Raises:
        RequestError: the command does not exist, or its arguments are not valid.
    """
    from typer.exceptions import Abort, TyperException

    from claimlib.cli.commands import app

    try:
        code = app(words, prog_name="claimlib", standalone_mode=False)
    except Abort as error:
        raise KeyboardInterrupt from error
    except TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            terminal.err(error.format_message())
            return error.exit_code
        raise RequestError(f"{_usage_message(error)}; see --help") from None
    except SystemExit as ended:  # a shell requested the completions of a word
        code = ended.code
    if code == process.INTERRUPTED:  # typer prints nothing after an interrupt, `process` does
        raise KeyboardInterrupt
    return code if isinstance(code, int) else process.DONE


def _usage_message(error: TyperException) -> str:
    """Return the message of an error in the words, in one line.

    The message does not repeat a surplus argument, which may be a secret for an option that does
    not exist.
    """
    message = " ".join(error.format_message().split()).rstrip(".")
    if message.startswith("Got unexpected extra argument"):
        return "too many arguments"
    # Typer repeats messages of pydantic, such as "Input should be a valid integer, unable to …".
    message = re.sub("Input should be a valid integer.*", "must be a whole number", message)
    return message.replace("Value error, ", "").replace("Input should be", "must be")
