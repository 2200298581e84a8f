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

_COMPLETE = "_CLAIMLIB_COMPLETE"
"""The variable by which a shell requests the completions of a word."""


def main() -> None:
    """Run the command line and end the process."""
    if _COMPLETE in os.environ:  # fish reads tabs, which are written out otherwise
        sys.exit(run(sys.argv[1:]))
    sys.exit(_ended(sys.argv[1:]))


def job(command: str) -> int:
    """Run one command with the arguments of this process, and return its exit code."""
    return _ended([command, *sys.argv[1:]])


def _ended(words: list[str]) -> int:
    return process.ending(partial(run, words), debug=lambda: "--debug" in words)


def run(words: list[str]) -> int:
    """Run the command that the words name, and return its exit code.

    Raises:
        RequestError: the words are not those of a command.
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
        raise RequestError(f"{_usage(error)}; see --help") from None
    except SystemExit as ended:  # a shell requested the completions of a word
        code = ended.code
    if code == process.INTERRUPTED:  # typer ends silently after an interrupt
        raise KeyboardInterrupt
    return code if isinstance(code, int) else process.DONE


def _usage(error: TyperException) -> str:
    """Return what is wrong with the words, in one line.

    An argument that is too many is not repeated.  It may be a secret for an option that does not
    exist.
    """
    message = " ".join(error.format_message().split()).rstrip(".")
    if message.startswith("Got unexpected extra argument"):
        return "too many arguments"
    # Typer's message has the wording of pydantic.
    message = re.sub("Input should be a valid integer.*", "must be a whole number", message)
    return message.replace("Value error, ", "").replace("Input should be", "must be")
