"""Execute server commands that are given as words, with the server's replies and errors.

The server reports the first error that it finds, so the order of its checks matters.  The order is
that of Redis 7.2 and Valkey 9.1, and is documented at each command.  A command with an error
changes nothing.

The server reads option words and the names in its errors as C strings, which end at a NUL byte.
Line breaks in an error become spaces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from claimlib.errors import IdError, IntervalError, ReplyError, RequestError
from claimlib.semantics import scan
from claimlib.semantics.ids import StreamId, c_string, parse_id, parse_range_end, parse_range_start
from claimlib.semantics.model import (
    COUNT_MAX,
    DEFAULT_COUNT,
    MAX_I64,
    AutoclaimRequest,
    ClaimRequest,
    Group,
    IdleRule,
    PendingEntry,
    PendingRange,
    PendingSummary,
    Profile,
)

Reply = list["Reply"] | bytes | int | None
"""A reply as the server nests it: arrays, byte strings, integers, and nil."""

_INTEGER = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_LINE_BREAKS = str.maketrans("\r\n", "  ")


_PLAIN_WORD = re.compile(rb"[A-Za-z0-9_:./@+*-]+")


def redis_cli_word(word: bytes) -> str:
    r"""Return a word as a user writes it in a line of redis-cli.

    The word is plain, or in double quotes with `\xhh` for each byte that is not printable ASCII.
    """
    if _PLAIN_WORD.fullmatch(word):
        return word.decode("ascii")
    return f'"{"".join(map(_in_quotes, word))}"'


def _in_quotes(byte: int) -> str:
    if byte in b'"\\':
        return f"\\{byte:c}"
    return f"{byte:c}" if 0x20 <= byte < 0x7F else f"\\x{byte:02x}"


@dataclass(frozen=True, slots=True)
class Stream:
    """Hold one stream of a keyspace.

    Attributes:
        entries: the fields of each id in one flat tuple: name, value, name, value …
        groups: its consumer groups by name.
    """

    entries: Mapping[StreamId, tuple[bytes, ...]]
    groups: Mapping[bytes, Group]


Keyspace = Mapping[bytes, Stream]


def execute(
    keyspace: Keyspace,
    words: Sequence[bytes],
    now_ms: int,
    idle_rule: IdleRule = IdleRule.SERVER,
    profile: Profile = Profile.REDIS_7_2,
) -> tuple[Keyspace, Reply]:
    """Execute XAUTOCLAIM, XCLAIM, XPENDING or XACK at `now_ms`.

    Returns:
        The new keyspace, and the reply.  The given keyspace does not change.

    Raises:
        ReplyError: the server would reply with this error.
        RequestError: the words are another command.
    """
    match words[0].lower() if words else b"":
        case b"xautoclaim":
            return xautoclaim(keyspace, words, now_ms, idle_rule, profile)
        case b"xclaim":
            return xclaim(keyspace, words, now_ms, idle_rule, profile)
        case b"xpending":
            return keyspace, xpending(keyspace, words, now_ms)
        case b"xack":
            return xack(keyspace, words)
    raise RequestError("the first word must be XAUTOCLAIM, XCLAIM, XPENDING or XACK", words=words)


# ------------------------------------------------------------------- XAUTOCLAIM


def xautoclaim(
    keyspace: Keyspace,
    words: Sequence[bytes],
    now_ms: int,
    idle_rule: IdleRule = IdleRule.SERVER,
    profile: Profile = Profile.REDIS_7_2,
) -> tuple[Keyspace, list[Reply]]:
    """Execute an XAUTOCLAIM at `now_ms`.

    The words are `XAUTOCLAIM key group consumer min-idle-time start [COUNT count] [JUSTID]`.  They
    are checked in this order: the number of words, min-idle, start, options from left to right.
    The last check is that the key and the group exist.

    Returns:
        The new keyspace, and the reply: cursor, claimed entries (ids only with JUSTID),
        deleted ids.  The given keyspace does not change.

    Raises:
        ReplyError: the server would reply with this error.
        RequestError: the words are another command.
    """
    key, group_name, parsed = parse_xautoclaim(words)
    request = replace(parsed, idle_rule=idle_rule, profile=profile)
    stream, group = _group_of(keyspace, key, group_name)
    new_group, answer = scan.xautoclaim(group, request, now_ms, stream.entries)
    claimed = _ids(answer.claimed) if request.justid else _rows(answer.claimed, stream)
    reply: list[Reply] = [_id(answer.cursor), claimed, _ids(answer.deleted)]
    return _with_group(keyspace, key, group_name, new_group), reply


def parse_xautoclaim(words: Sequence[bytes]) -> tuple[bytes, bytes, AutoclaimRequest]:
    """Return the key, the group and the request of an XAUTOCLAIM.  The default of COUNT is 100.

    Raises:
        ReplyError: the server would reply with this error.
        RequestError: the words are another command.
    """
    _check_command(words, b"xautoclaim", least=6)
    _, key, group, consumer, min_idle_word, start_word, *options = words
    min_idle_ms = _parse_min_idle(min_idle_word, "XAUTOCLAIM")
    start = _parse_bound(start_word, parse_range_start)
    count, justid = _parse_options(options)
    return (
        key,
        group,
        AutoclaimRequest(
            consumer=consumer,
            min_idle_ms=min_idle_ms,
            start=start,
            count=count,
            justid=justid,
        ),
    )


def _parse_options(options: Sequence[bytes]) -> tuple[int, bool]:
    """Return COUNT and JUSTID.  The words may be in any case and order, and the last COUNT wins."""
    count, justid = DEFAULT_COUNT, False
    rest = iter(options)
    for word in rest:
        option = c_string(word).lower()
        if option == b"justid":
            justid = True
        elif option == b"count" and (value := next(rest, None)) is not None:
            count = _parse_count(value)
        else:
            raise ReplyError("ERR syntax error")
    return count, justid


def _parse_count(word: bytes) -> int:
    count = _parse_integer(word)
    if count is None or not 1 <= count <= COUNT_MAX:
        raise ReplyError("ERR COUNT must be > 0")
    return count


# ------------------------------------------------------------------- XCLAIM


def xclaim(
    keyspace: Keyspace,
    words: Sequence[bytes],
    now_ms: int,
    idle_rule: IdleRule = IdleRule.SERVER,
    profile: Profile = Profile.REDIS_7_2,
) -> tuple[Keyspace, list[Reply]]:
    """Execute an XCLAIM at `now_ms`.

    The words are `XCLAIM key group consumer min-idle-time id [id …] [option …]`.  The first checks
    are the number of words, and that the key and the group exist.  Then the words are checked in
    this order: min-idle, the ids, the options from left to right.  The ids end before the first
    word that is not an id.

    Returns:
        The new keyspace, and the reply: claimed entries in the order of the words (ids only
        with JUSTID).

    Raises:
        ReplyError: the server would reply with this error.
        RequestError: the words are another command.
    """
    _check_command(words, b"xclaim", least=6)
    key, group_name = words[1:3]
    stream, group = _group_of(keyspace, key, group_name)
    request = replace(parse_xclaim(words), idle_rule=idle_rule, profile=profile)
    new_group, answer = scan.xclaim(group, request, now_ms, stream.entries)
    reply = _ids(answer.claimed) if request.justid else _rows(answer.claimed, stream)
    return _with_group(keyspace, key, group_name, new_group), reply


def parse_xclaim(words: Sequence[bytes]) -> ClaimRequest:
    """Return the request of an XCLAIM, without its key and group (the second and third word).

    Raises:
        ReplyError: the server would reply with this error.
        RequestError: the words are another command.
    """
    _check_command(words, b"xclaim", least=6)
    _, _, _, consumer, min_idle_word, *rest = words
    min_idle_ms = _parse_min_idle(min_idle_word, "XCLAIM")
    ids = list(_leading_ids(rest))
    options = _parse_claim_options(rest[len(ids) :])
    return replace(ClaimRequest(consumer, min_idle_ms, tuple(ids)), **options)


def _leading_ids(words: Sequence[bytes]) -> Iterator[StreamId]:
    for word in words:
        try:
            yield parse_id(word)
        except IdError:
            return


def _parse_claim_options(words: Sequence[bytes]) -> dict[str, Any]:
    """Return the options of an XCLAIM as attributes of its request.

    If an option occurs several times, the last one wins.  IDLE and TIME count as one option here.
    """
    options: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        option = c_string(word).lower()
        if option in (b"force", b"justid"):
            options[option.decode("ascii")] = True
        elif option in _CLAIM_OPTIONS and (value := next(rest, None)) is not None:
            options |= _parse_claim_value(option, value)
        else:
            raise ReplyError(f"ERR Unrecognized XCLAIM option '{_in_error(word)}'")
    return options


_CLAIM_OPTIONS = (b"idle", b"time", b"retrycount", b"lastid")


def _parse_claim_value(option: bytes, value: bytes) -> dict[str, Any]:
    if option == b"lastid":
        return {"last_id": _parse_strict_id(value)}
    number = _parse_integer(value)
    if number is None:
        name = option.decode("ascii").upper()
        raise ReplyError(f"ERR Invalid {name} option argument for XCLAIM")
    if option == b"retrycount":
        return {"retrycount": number if number >= 0 else None}  # the server ignores a negative one
    return {  # both, so that a later IDLE replaces an earlier TIME, and vice versa
        "idle_ms": number if option == b"idle" else None,
        "time_ms": number if option == b"time" else None,
    }


# ------------------------------------------------------------------- XPENDING


def xpending(keyspace: Keyspace, words: Sequence[bytes], now_ms: int) -> list[Reply]:
    """Execute an XPENDING at `now_ms`.

    The words are `XPENDING key group [[IDLE min-idle] start end count [consumer]]`.  They are
    checked in this order: the number of words, IDLE, count, start, end.  The last check is that the
    key and the group exist.

    Returns:
        The summary (number, smallest id, largest id, consumers), or the rows of the range.

    Raises:
        ReplyError: the server would reply with this error.
        RequestError: the words are another command.
    """
    query = parse_xpending(words)
    _, group = _group_of(keyspace, *words[1:3])
    if query is None:
        return summary_reply(scan.xpending_summary(group))
    rows = scan.xpending_range(group, query, now_ms)
    return [_pending_row(entry, now_ms) for entry in rows]


def parse_xpending(words: Sequence[bytes]) -> PendingRange | None:
    """Return the range that an XPENDING requests, or None if it requests the summary.

    Raises:
        ReplyError: the server would reply with this error.
        RequestError: the words are another command.
    """
    _check_command(words, b"xpending", least=3)
    if len(words) == 3:
        return None
    if not 6 <= len(words) <= 9:
        raise ReplyError("ERR syntax error")
    rest, min_idle_ms = words[3:], None
    if c_string(rest[0]).lower() == b"idle":
        min_idle_ms = _parse_plain_integer(rest[1])
        rest = rest[2:]
        if len(rest) < 3:
            raise ReplyError("ERR syntax error")
    count = _parse_plain_integer(rest[2])
    start, end = _parse_bound(rest[0], parse_range_start), _parse_bound(rest[1], parse_range_end)
    consumer = rest[3] if len(rest) > 3 else None
    return PendingRange(start, end, count, min_idle_ms, consumer)


def summary_reply(summary: PendingSummary) -> list[Reply]:
    """Return the reply to an XPENDING without a range."""
    if summary.smallest is None or summary.largest is None:
        return [0, None, None, None]
    consumers: list[Reply] = [[name, b"%d" % number] for name, number in summary.consumers]
    return [summary.number, _id(summary.smallest), _id(summary.largest), consumers]


def _pending_row(entry: PendingEntry, now_ms: int) -> list[Reply]:
    idle_ms = max(0, now_ms - entry.delivery_time_ms)
    return [_id(entry.id), entry.consumer, idle_ms, entry.delivery_count]


# ------------------------------------------------------------------- XACK


def xack(keyspace: Keyspace, words: Sequence[bytes]) -> tuple[Keyspace, int]:
    """Execute `XACK key group id [id …]`.

    The number of words is checked first.  If the key or the group does not exist, no entry is
    acknowledged, and the ids are not checked.

    Returns:
        The new keyspace, and the number of the ids that were pending.

    Raises:
        ReplyError: the server would reply with this error.
        RequestError: the words are another command.
    """
    _check_command(words, b"xack", least=4)
    key, group_name = words[1:3]
    group = keyspace[key].groups.get(group_name) if key in keyspace else None
    if group is None:
        return keyspace, 0
    new_group, number = scan.xack(group, parse_xack(words))
    return _with_group(keyspace, key, group_name, new_group), number


def parse_xack(words: Sequence[bytes]) -> tuple[StreamId, ...]:
    """Return the ids of an XACK, without its key and group (the second and third word).

    Raises:
        ReplyError: the server would reply with this error.
        RequestError: the words are another command.
    """
    _check_command(words, b"xack", least=4)
    return tuple(map(_parse_strict_id, words[3:]))


# ------------------------------------------------------------------- for all commands


def no_group(key: bytes, group: bytes) -> ReplyError:
    """Return the error of a command on a stream or a group that does not exist."""
    return ReplyError(
        f"NOGROUP No such key '{_in_error(key)}' or consumer group '{_in_error(group)}'"
    )


def _group_of(keyspace: Keyspace, key: bytes, group_name: bytes) -> tuple[Stream, Group]:
    stream = keyspace.get(key)
    group = stream.groups.get(group_name) if stream is not None else None
    if stream is None or group is None:
        raise no_group(key, group_name)
    return stream, group


def _with_group(keyspace: Keyspace, key: bytes, group_name: bytes, group: Group) -> Keyspace:
    stream = keyspace[key]
    return {**keyspace, key: replace(stream, groups={**stream.groups, group_name: group})}


def _check_command(words: Sequence[bytes], command: bytes, least: int) -> None:
    name = command.decode("ascii")
    if not words or words[0].lower() != command:
        raise RequestError(f"the first word must be {name.upper()}", words=words)
    if len(words) < least:
        raise ReplyError(f"ERR wrong number of arguments for '{name}' command")


def _parse_min_idle(word: bytes, command: str) -> int:
    """Return min-idle, or 0 if it is negative."""
    number = _parse_integer(word)
    if number is None:
        raise ReplyError(f"ERR Invalid min-idle-time argument for {command}")
    return max(0, number)


def _parse_bound(word: bytes, parse: Callable[[bytes], StreamId]) -> StreamId:
    try:
        return parse(word)
    except IntervalError as error:
        raise ReplyError(f"ERR {error.message}") from error
    except IdError as error:
        raise ReplyError("ERR Invalid stream ID specified as stream command argument") from error


def _parse_strict_id(word: bytes) -> StreamId:
    return _parse_bound(word, parse_id)


def _parse_plain_integer(word: bytes) -> int:
    number = _parse_integer(word)
    if number is None:
        raise ReplyError("ERR value is not an integer or out of range")
    return number


def _parse_integer(word: bytes) -> int | None:
    """Return a signed 64-bit integer, or None if the word is not one in canonical form.

    The canonical form has no plus sign and no leading zeros (`string2ll`).
    """
    if _INTEGER.fullmatch(word) is None:
        return None
    number = int(word)
    return number if -MAX_I64 - 1 <= number <= MAX_I64 else None


def _in_error(name: bytes) -> str:
    """Return a name as the server writes it in an error."""
    return c_string(name).decode("utf-8", "surrogateescape").translate(_LINE_BREAKS)


def _id(stream_id: StreamId) -> bytes:
    return str(stream_id).encode("ascii")


def _ids(stream_ids: Sequence[StreamId]) -> list[Reply]:
    return [_id(stream_id) for stream_id in stream_ids]


def _rows(stream_ids: Sequence[StreamId], stream: Stream) -> list[Reply]:
    """Return entries as XRANGE returns them: the id, and the list of fields in their order."""
    return [[_id(stream_id), list(stream.entries[stream_id])] for stream_id in stream_ids]
