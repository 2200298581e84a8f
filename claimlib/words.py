"""A server command as its words: words in, the server's reply or the server's error out.

The order in which the server looks at its words decides which error is said first; it is that of
Redis 7.2 and Valkey 9.1: number of words, min-idle, start, options from left to right, and last of
all whether the key and the group are there.  On an error nothing changes.

The server reads option words and the names in its errors as C strings: a NUL byte ends them, and
line breaks in an error become spaces.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from claimlib import scan
from claimlib.errors import IdError, IntervalError, ReplyError, RequestError
from claimlib.ids import StreamId, c_string, parse_range_start
from claimlib.model import (
    COUNT_MAX,
    DEFAULT_COUNT,
    MAX_I64,
    AutoclaimRequest,
    Group,
    IdleRule,
    Profile,
)

Reply = list["Reply"] | bytes
"""A reply as the server nests it: arrays of arrays and byte strings."""

_INTEGER = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_LINE_BREAKS = str.maketrans("\r\n", "  ")


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream of a keyspace.

    Attributes:
        entries: what the stream holds: the fields of each id, flat: name, value, name, value …
        groups: its consumer groups by name.
    """

    entries: Mapping[StreamId, tuple[bytes, ...]]
    groups: Mapping[bytes, Group]


Keyspace = Mapping[bytes, Stream]


def xautoclaim(
    keyspace: Keyspace,
    words: Sequence[bytes],
    now_ms: int,
    idle_rule: IdleRule = IdleRule.SERVER,
    profile: Profile = Profile.REDIS_7_2,
) -> tuple[Keyspace, list[Reply]]:
    """`XAUTOCLAIM key group consumer min-idle-time start [COUNT count] [JUSTID]` at `now_ms`.

    Returns:
        The keyspace afterwards (the given one stays as it is), and the reply: cursor, claimed
        entries (ids only with JUSTID), deleted ids.

    Raises:
        ReplyError: the server's error.
        RequestError: the words are another command.
    """
    key, group_name, parsed = parse_xautoclaim(words)
    request = replace(parsed, idle_rule=idle_rule, profile=profile)
    stream = keyspace.get(key)
    group = stream.groups.get(group_name) if stream is not None else None
    if stream is None or group is None:
        raise no_group(key, group_name)
    new_group, answer = scan.xautoclaim(group, request, now_ms, stream.entries)
    new_stream = replace(stream, groups={**stream.groups, group_name: new_group})
    claimed = _ids(answer.claimed) if request.justid else _rows(answer.claimed, stream)
    return {**keyspace, key: new_stream}, [_id(answer.cursor), claimed, _ids(answer.deleted)]


def no_group(key: bytes, group: bytes) -> ReplyError:
    """The error of a command on a stream or a group that is not there."""
    return ReplyError(
        f"NOGROUP No such key '{_in_error(key)}' or consumer group '{_in_error(group)}'"
    )


def parse_xautoclaim(words: Sequence[bytes]) -> tuple[bytes, bytes, AutoclaimRequest]:
    """Key, group and request of an XAUTOCLAIM; its COUNT is 100 where the words give none.

    Raises:
        ReplyError: the server's error.
        RequestError: the words are another command.
    """
    if not words or words[0].lower() != b"xautoclaim":
        raise RequestError("the first word must be XAUTOCLAIM", words=words)
    if len(words) < 6:
        raise ReplyError("ERR wrong number of arguments for 'xautoclaim' command")
    _, key, group, consumer, min_idle_word, start_word, *options = words
    min_idle_ms = _parse_integer(min_idle_word)
    if min_idle_ms is None:
        raise ReplyError("ERR Invalid min-idle-time argument for XAUTOCLAIM")
    start = _parse_start(start_word)
    count, justid = _parse_options(options)
    return (
        key,
        group,
        AutoclaimRequest(
            consumer=consumer,
            min_idle_ms=max(0, min_idle_ms),
            start=start,
            count=count,
            justid=justid,
        ),
    )


def _parse_start(word: bytes) -> StreamId:
    try:
        return parse_range_start(word)
    except IntervalError as error:
        raise ReplyError(f"ERR {error.message}") from error
    except IdError as error:
        raise ReplyError("ERR Invalid stream ID specified as stream command argument") from error


def _parse_options(options: Sequence[bytes]) -> tuple[int, bool]:
    """COUNT and JUSTID, in any case and order; the last COUNT counts."""
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


def _parse_integer(word: bytes) -> int | None:
    """A signed 64-bit integer in its one canonical form (`string2ll`): no sign plus, no zeros."""
    if _INTEGER.fullmatch(word) is None:
        return None
    number = int(word)
    return number if -MAX_I64 - 1 <= number <= MAX_I64 else None


def _in_error(name: bytes) -> str:
    return c_string(name).decode("utf-8", "surrogateescape").translate(_LINE_BREAKS)


def _id(stream_id: StreamId) -> bytes:
    return str(stream_id).encode("ascii")


def _ids(stream_ids: Sequence[StreamId]) -> list[Reply]:
    return [_id(stream_id) for stream_id in stream_ids]


def _rows(stream_ids: Sequence[StreamId], stream: Stream) -> list[Reply]:
    """Entries as XRANGE gives them: id, then the fields in their order."""
    return [[_id(stream_id), list(stream.entries[stream_id])] for stream_id in stream_ids]
