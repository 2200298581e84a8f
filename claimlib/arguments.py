"""How the scripts in `jobs/` read their arguments."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from typing import NoReturn

from claimlib.errors import RequestError
from claimlib.layout import DEFAULT_LIMIT, MOST_ROWS

_HINT = "--help shows what there is"


class JobParser(ArgumentParser):
    """Arguments of a job: what cannot be used is an error of ours, in one line, as elsewhere.

    An option is written out in full, and one that there is not is named without what was given for
    it: a password, if somebody took `--password` for one.
    """

    def __init__(self, description: str) -> None:
        super().__init__(description=description, allow_abbrev=False)

    def add_limit(self, what: str) -> None:
        """`--limit`: how many rows the report has at most."""
        self.add_argument("--limit", type=_limit, default=DEFAULT_LIMIT, help=f"of {what} shown")

    def parsed(self) -> Namespace:
        """What the process was given; options may stand between arguments.

        Raises:
            RequestError: something is missing, unknown, or cannot be used.
        """
        asked, others = self.parse_known_intermixed_args()
        unknown = [word.partition("=")[0] for word in others if word.startswith("-")]
        if unknown:
            self.error(f"there is no option {', '.join(unknown)}")
        if others:
            self.error(f"{len(others)} argument{'s'[: len(others) > 1]} too many")
        return asked

    def error(self, message: str) -> NoReturn:
        """Refuse; argparse calls it, too.

        Raises:
            RequestError: always.
        """
        raise RequestError(f"{message}; {_HINT}")


def _limit(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text) or not 1 <= int(text) <= MOST_ROWS:
        raise RequestError(f"--limit: give a number of rows from 1 to {MOST_ROWS:,}")
    return int(text)
