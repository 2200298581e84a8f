"""The command line `claimlib`, for people; jobs are started by the scripts in `jobs/`."""

from __future__ import annotations

import sys

from claimlib import exits


def main() -> None:
    """Run the command line and end the process."""
    sys.exit(exits.ending(_run, debug=lambda: "--debug" in sys.argv))


def _run() -> int:
    from claimlib.cli.asking import app

    try:
        code = app(standalone_mode=True)
    except SystemExit as ended:
        if ended.code == exits.INTERRUPTED:  # typer ends the process by itself, without a word
            raise KeyboardInterrupt from ended
        raise
    return code if isinstance(code, int) else exits.DONE
