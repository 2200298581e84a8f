"""Find out which of the rights for a snapshot or a writeback a server's user has.

Each right is tried by a command that needs the right and changes nothing.  A command that takes a
key gets a key that does not exist.  A server checks the user's right to a command first, and the
right to the key second.  Only a refusal because of a missing right counts.  Any other answer shows
that the server has checked both rights, and that the user has them.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from claimlib.errors import ClaimlibError, PermissionDeniedError, SourceUnreachableError
from claimlib.live.connection import Source
from claimlib.live.faults import ALL_KEYS, ALL_KEYS_TO_WRITE, Word
from claimlib.live.server import CLUSTER
from claimlib.live.vanished import SlotMovedError


class Right(NamedTuple):
    """Describe a right that a command of claimlib needs.

    Attributes:
        rule: the access rule that grants it, as in `ACL SETUSER`.
        words: the command that needs it.  `_KEY` in it is replaced by a key that does not exist.
        without: what happens without the right.
        is_needed: True if the user must be granted the right.
    """

    rule: str
    words: tuple[Word, ...]
    without: str
    is_needed: bool = True


class Rights(NamedTuple):
    """Hold the rights that a command of claimlib needs.

    Attributes:
        commands: the rights to commands.
        keys: the right to the keys of these commands.
    """

    commands: tuple[Right, ...]
    keys: Right


class Tried(NamedTuple):
    """Hold a right that was tried.

    Attributes:
        denied: the server's refusal, or None if the user has the right.
    """

    right: Right
    denied: PermissionDeniedError | None


_KEY = b"KEY"
_SNAPSHOT_FAILS = "a snapshot fails"
_WRITEBACK_FAILS = "a writeback fails"
_WORDS: Mapping[str, tuple[Word, ...]] = {
    "+scan": ("SCAN", 0, "COUNT", 1),
    "+time": ("TIME",),
    "+xinfo|stream": ("XINFO", "STREAM", _KEY),
    "+xinfo|groups": ("XINFO", "GROUPS", _KEY),
    "+xinfo|consumers": ("XINFO", "CONSUMERS", _KEY, "group"),
    "+eval": ("EVAL", "return 1", 1, _KEY),
    "+xpending": ("XPENDING", _KEY, "group"),
    "+xrange": ("XRANGE", _KEY, "-", "+", "COUNT", 1),
    "+xclaim": ("XCLAIM", _KEY, "group", "consumer", 0, "0-0", "JUSTID"),
    "+xack": ("XACK", _KEY, "group", "0-0"),
    "+xgroup|delconsumer": ("XGROUP", "DELCONSUMER", _KEY, "group", "consumer"),
    "+exec": ("EXEC",),
    "+multi": ("MULTI",),
}
"""The command that tries a right, by its rule."""


def _needed(without: str, *rules: str) -> Iterator[Right]:
    return (Right(rule, _WORDS[rule], without) for rule in rules)


SNAPSHOT_RIGHTS = Rights(
    (
        Right(
            "+info", ("INFO", "server"), "the server cannot be identified, and no replica is read"
        ),
        *_needed(_SNAPSHOT_FAILS, "+scan", "+time", "+xinfo|stream", "+xinfo|groups"),
        *_needed(_SNAPSHOT_FAILS, "+xinfo|consumers", "+xpending", "+xrange"),
        Right(
            "+eval_ro",
            ("EVAL_RO", "return 1", 1, _KEY),
            "single replies may become large",
            is_needed=False,
        ),
        # MULTI comes last.  If +exec is missing, its transaction ends only with the connection.
        *_needed(_SNAPSHOT_FAILS, "+exec", "+multi"),
    ),
    Right(
        ALL_KEYS, (), "a snapshot needs a --stream glob that matches only keys the user may read"
    ),
)
WRITEBACK_RIGHTS = Rights(
    (
        Right("+info", ("INFO", "server"), "the server cannot be identified, so a writeback fails"),
        *_needed(_WRITEBACK_FAILS, "+time", "+eval", "+xpending", "+xrange"),
        *_needed(_WRITEBACK_FAILS, "+xclaim", "+xack", "+xgroup|delconsumer"),
    ),
    Right(ALL_KEYS_TO_WRITE, (), "a writeback fails unless the user may write all streams of it"),
)


def tried_rights(
    source: Source, db: int = 0, rights: Rights = SNAPSHOT_RIGHTS, mode: str | None = None
) -> Iterator[Tried]:
    """Try each right that a command on the database needs.

    The right to keys is omitted if the user may run no command on a key.  The source cannot be used
    afterwards.

    Args:
        source: a new connection (`connection.connect`).
        db: the database.
        rights: the rights that the command needs.
        mode: the mode of the server (`server.ServerState`).

    Raises:
        SourceUnreachableError: the connection broke, or the server cannot answer now.
    """
    key = f"claimlib:none:{secrets.token_hex(16)}".encode()
    # Without these two rights, the command fails as without its last one.
    failure = rights.commands[-1].without
    select = (Right("+select", ("SELECT", db), failure),) if db else ()
    cluster = (Right("+cluster|nodes", ("CLUSTER", "NODES"), failure),) if mode == CLUSTER else ()
    keys: Tried | None = None
    for right in (*select, *cluster, *rights.commands):
        denied = _denial(source, [key if word is _KEY else word for word in right.words])
        if denied is not None and denied.fields.get("rule") not in {ALL_KEYS, ALL_KEYS_TO_WRITE}:
            yield Tried(right, denied)
            continue
        if _KEY in right.words and (keys is None or keys.denied is None):
            keys = Tried(rights.keys, denied)
        yield Tried(right, None)
    if keys is not None:
        yield keys


def _denial(source: Source, words: Sequence[Word]) -> PermissionDeniedError | None:
    """Return the server's refusal of a command because of a missing right.

    The result is None if the user has the right.
    """
    try:
        source.call(*words)
    except PermissionDeniedError as error:
        return error
    except SlotMovedError:  # another node of the cluster has the slot of the key
        return None
    except SourceUnreachableError:
        raise
    except ClaimlibError:  # there is no such key, for example, or nothing that EXEC could run
        return None
    return None
