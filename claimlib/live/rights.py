"""Which of the rights that a snapshot needs a server's user has.

Each is tried by a command that takes it, and reads: on a key that does not exist, if the command
takes one.  A server looks at the user's right to a command first, and at that to the key second;
only a refusal for want of one counts, as any other answer comes after both were looked at.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from claimlib.errors import ClaimlibError, PermissionDeniedError, SourceUnreachableError
from claimlib.live.connection import Source
from claimlib.live.faults import ALL_KEYS, Word


class Right(NamedTuple):
    """A right that a snapshot needs.

    Attributes:
        rule: the access rule that grants it, as in `ACL SETUSER`.
        words: the command that takes it; `_KEY` stands for a key that does not exist.
        without: what a snapshot is like that has not got it.
        is_needed: whether something must be done then.
    """

    rule: str
    words: tuple[Word, ...]
    without: str = "a snapshot fails"
    is_needed: bool = True


class Tried(NamedTuple):
    """A right that was tried; `denied` is the server's refusal, null: the user has it."""

    right: Right
    denied: PermissionDeniedError | None


_KEY = b"KEY"
_COMMANDS = (
    Right("+info", ("INFO", "server"), "the server cannot be identified, and no replica is read"),
    Right("+scan", ("SCAN", 0, "COUNT", 1)),
    Right("+time", ("TIME",)),
    Right("+xinfo|stream", ("XINFO", "STREAM", _KEY)),
    Right("+xinfo|groups", ("XINFO", "GROUPS", _KEY)),
    Right("+xinfo|consumers", ("XINFO", "CONSUMERS", _KEY, "group")),
    Right("+xpending", ("XPENDING", _KEY, "group")),
    Right("+xrange", ("XRANGE", _KEY, "-", "+", "COUNT", 1)),
    Right(
        "+eval_ro",
        ("EVAL_RO", "return 1", 1, _KEY),
        "single replies may become large",
        is_needed=False,
    ),
    Right("+exec", ("EXEC",)),
    # At the end: without +exec, only the end of the connection ends what it begins.
    Right("+multi", ("MULTI",)),
)
_KEYS = Right(
    ALL_KEYS, (), "a snapshot needs a --stream glob that matches only keys the user may read"
)


def tried_rights(source: Source, db: int = 0) -> Iterator[Tried]:
    """Each right that a snapshot of the database needs.  That to keys is left out where the user
    may run no command on a key.  The source cannot be used afterwards.

    Args:
        source: connected, and nothing more (`connection.connect`).
        db: the database.

    Raises:
        SourceUnreachableError: the connection broke, or the server cannot answer now.
    """
    key = f"claimlib:none:{secrets.token_hex(16)}".encode()
    select = (Right("+select", ("SELECT", db)),) if db else ()
    keys: Tried | None = None
    for right in (*select, *_COMMANDS):
        denied = _denial(source, [key if word is _KEY else word for word in right.words])
        if denied is not None and denied.fields.get("rule") != ALL_KEYS:
            yield Tried(right, denied)
            continue
        if _KEY in right.words:
            keys = Tried(_KEYS, denied)
        yield Tried(right, None)
    if keys is not None:
        yield keys


def _denial(source: Source, words: Sequence[Word]) -> PermissionDeniedError | None:
    """The server's refusal of a command for want of a right; null: the user may send it."""
    try:
        source.call(*words)
    except PermissionDeniedError as error:
        return error
    except SourceUnreachableError:
        raise
    except ClaimlibError:  # there is no such key, for example, or nothing that EXEC could run
        return None
    return None
