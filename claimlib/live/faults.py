"""Turn redis-py's errors into those of claimlib.  No other module does this."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    NoPermissionError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import TimeoutError as ReplyTimeoutError

from claimlib.errors import (
    AuthenticationFailedError,
    ClaimlibError,
    PermissionDeniedError,
    RequestError,
    SourceError,
    SourceUnreachableError,
    WrongTypeError,
)
from claimlib.live.vanished import SlotMovedError, VanishedError
from claimlib.semantics.names import spell

Word = bytes | str | int

ALL_KEYS = "%R~*"
"""The access rule that grants read access to all keys."""
ALL_KEYS_TO_WRITE = "~*"
"""The access rule that grants read and write access to all keys."""

# The position of a command's key among its words.  The other commands that claimlib sends have no
# key.
_KEY_AT = {
    **dict.fromkeys(("XPENDING", "XRANGE", "XCLAIM", "XACK"), 1),
    **dict.fromkeys(("XINFO", "XGROUP"), 2),
    **dict.fromkeys(("EVAL", "EVAL_RO"), 3),
}
_WRITING = ("EVAL", "XCLAIM", "XACK", "XGROUP")


class _Fault(NamedTuple):
    """Describe one kind of error reply.

    Attributes:
        classes: redis-py's classes for it.
        beginnings: the texts with which it may begin.
        error: the error of claimlib that is raised for it.
        message: the message of this error.
    """

    classes: tuple[type[ResponseError], ...]
    beginnings: tuple[str, ...]
    error: type[ClaimlibError]
    message: str


_FAULTS = (
    _Fault((), ("NOGROUP", "no such key"), VanishedError, "{source}: {text}"),
    _Fault(
        (),
        ("WRONGTYPE",),
        WrongTypeError,
        "key {key} on {source} is not a stream: check the name, or use a glob (which matches only "
        "streams)",
    ),
    _Fault(
        (),
        ("unknown command",),
        PermissionDeniedError,
        "{source} does not know {command}: it is older than Redis 7.0, or the command was renamed "
        "or disabled there",
    ),
    _Fault(
        (),
        (
            *("syntax error", "wrong number of arguments", "Invalid stream ID"),
            *("unknown subcommand", "Unknown subcommand"),
        ),
        RequestError,
        "{source} does not understand {command} as claimlib sends it ({text}): the server is older "
        "than Redis 7.0, or is neither Redis nor Valkey; give another server's address",
    ),
    _Fault(
        (AskError, TryAgainError),  # MovedError is a subclass of AskError
        ("MOVED", "ASK", "TRYAGAIN"),
        SlotMovedError,
        "{source} does not serve key {key}, whose slot moves to another node of the cluster: try"
        " again",
    ),
    _Fault(
        (ClusterDownError,),  # MasterDownError is a subclass of it
        ("BUSY", "MASTERDOWN", "CLUSTERDOWN"),
        SourceUnreachableError,
        "{source} cannot answer now, try again ({text})",
    ),
    _Fault(
        (ReadOnlyError,),
        ("READONLY",),
        RequestError,
        "{source} is a replica, which takes no writes: give the address of its master",
    ),
    _Fault(
        (),
        ("DB index is out of range", "invalid DB index"),
        RequestError,
        "{source} has no such database: give another number after the slash of the URL",
    ),
)
_OTHER_FAULT = _Fault((), (), SourceError, "{source} refused {command}: {text}")

# Texts that report NOPERM inside another error.
_DENIED_WITHIN = (
    "can't run this command",  # in a script of Redis 7.0
    "ACL failure in script",  # in a script of Redis 7.2 and Valkey
    "because of: NOPERM",  # of EXEC
)
_COMMAND_IN_MESSAGE = re.compile(r"'([^']+)' command")


def reply_fault(label: str, words: Sequence[Word], error: ResponseError) -> ClaimlibError:
    """Return the error for a command that the server answered with an error."""
    text = str(error).removeprefix("ERR ")
    command, key = _command(words), _key(words)
    if isinstance(error, NoPermissionError) or any(part in text for part in _DENIED_WITHIN):
        return _denied(label, command, key, text, is_writing=words[0] in _WRITING)
    fault = next(
        (f for f in _FAULTS if isinstance(error, f.classes) or text.startswith(f.beginnings)),
        _OTHER_FAULT,
    )
    about = {"source": label, "command": command, "key": key}
    return fault.error(fault.message.format(**about, text=text), **about)


def transport_fault(label: str, error: RedisError) -> ClaimlibError:
    """Return the error for a connection that broke, was refused, or could not be made."""
    if isinstance(error, AuthenticationError):
        return AuthenticationFailedError(
            f"{label} refused the login ({error}): check the user name and the password (the "
            "environment variable REDIS_PASSWORD, or --password-file)",
            source=label,
        )
    if isinstance(error, BusyLoadingError):
        reason = "is still loading its data: try again later"
    elif isinstance(error, ReplyTimeoutError):
        reason = (
            "did not answer in time: try again. If it never answers, check host, port and TLS "
            "(rediss:// with TLS, redis:// without)"
        )
    else:
        reason = f"cannot be reached ({error}): check host, port, TLS and network, and try again"
    return SourceUnreachableError(f"{label} {reason}", source=label)


def _denied(
    label: str, command: str, key: str | None, text: str, *, is_writing: bool
) -> PermissionDeniedError:
    """Return the error for a right that is missing.

    Its field `rule` is the access rule that grants this right.
    """
    named = _COMMAND_IN_MESSAGE.search(text)
    if named:
        # It may be a command of the script, and not the command that was sent.
        command = named[1]
        rule = f"+{command}"
        message = f"the user on {label} has no permission to run {command}: grant {rule}"
    elif "key" not in text:  # the server names neither a command nor a key
        rule = f"+{command}"
        message = (
            f"the user on {label} has no permission to run {command}, or a command that it calls:"
            " claimlib doctor names the missing rights"
        )
    else:
        rule = ALL_KEYS_TO_WRITE if is_writing else ALL_KEYS
        remedy = (
            "grant access to the key (~PATTERN)"
            if is_writing
            else "grant read access to the key (%R~PATTERN), or use a glob that leaves the key out"
        )
        message = f"the user on {label} has no permission to use {command} on key {key}: {remedy}"
    return PermissionDeniedError(
        f"{message} (the server: {text})", source=label, command=command, key=key, rule=rule
    )


def _command(words: Sequence[Word]) -> str:
    """Return the command as access rules name it: `xrange`, `xinfo|stream`."""
    parts = words[:2] if words[0] in {"XINFO", "XGROUP", "CLUSTER"} else words[:1]
    return "|".join(str(part).lower() for part in parts)


def _key(words: Sequence[Word]) -> str | None:
    place = _KEY_AT.get(str(words[0]))
    key = None if place is None else words[place]
    return spell(key) if isinstance(key, bytes) else None
