"""Run read-only scripts (EVAL_RO), if the server's user may run them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from claimlib.errors import PermissionDeniedError

_T = TypeVar("_T")


class Scripts:
    """Remember that the user may not run scripts, so that a refused script is not sent again."""

    def __init__(self) -> None:
        self._allowed = True

    def or_else(self, script: Callable[[], _T], plain: Callable[[], _T]) -> _T:
        """Return the result of the script, or of plain commands if scripts are not allowed.

        Raises:
            SourceError: as the functions that are called.
        """
        if self._allowed:
            try:
                return script()
            except PermissionDeniedError:
                # If the key, or a command of the script, is denied, the plain command raises this.
                self._allowed = False
        return plain()
