"""Read-only scripts (EVAL_RO), where the server's user may run them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from claimlib.errors import PermissionDeniedError

_T = TypeVar("_T")


class Scripts:
    """Remembers whether the user may run scripts, so that it is tried once."""

    def __init__(self) -> None:
        self._allowed = True

    def or_else(self, script: Callable[[], _T], plain: Callable[[], _T]) -> _T:
        """Return what the script gives; where scripts are not allowed, what plain commands give.

        Raises:
            SourceError: As what is called.
        """
        if self._allowed:
            try:
                return script()
            except PermissionDeniedError:
                # If it is the key, or what the script runs, that is denied, the command says so.
                self._allowed = False
        return plain()
