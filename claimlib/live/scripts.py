"""Run read-only scripts (EVAL_RO), if the server's user may run them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from claimlib.errors import PermissionDeniedError

_T = TypeVar("_T")


class Scripts:
    """Remember if a script was denied, so that no other script is sent."""

    def __init__(self) -> None:
        self._allowed = True

    def or_else(self, script: Callable[[], _T], plain: Callable[[], _T]) -> _T:
        """Return the result of the script, or of plain commands if scripts are not allowed.

        Raises:
            SourceError: one of the two functions raises it.
        """
        if self._allowed:
            try:
                return script()
            except PermissionDeniedError:
                # If the key or a command in the script was denied, the plain commands are denied,
                # too, and raise this error.
                self._allowed = False
        return plain()
