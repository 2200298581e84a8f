"""Parse, write and order stream ids, and convert the numbers of an id to BIGINTs.

An id is a pair of unsigned 64-bit numbers.  The server's parser decides which text is a number
(`string2ull` of Redis 7 and Valkey 9.1).  First it refuses a negative 64-bit number in its usual
form, such as the `-3` in `5--3`.  Any other text is read by C's `strtoull`, which accepts leading
white space, leading zeros and a sign.  So `-03` is not refused, but wraps around: `5--03` is
5-18446744073709551613.  Clients do not write such ids.  But an id that the server accepts must have
the same meaning here.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from claimlib.errors import IdError, IntervalError

MAX_U64 = 2**64 - 1
_SIGN_BIT = 2**63
_MAX_TEXT_BYTES = 127  # the server copies the text and a NUL into a buffer of 128 bytes

_UNSIGNED = re.compile(rb"[ \t\n\v\f\r]*([+-]?)([0-9]+)")
_USUAL_NEGATIVE = re.compile(rb"-[1-9][0-9]*")


class StreamId(NamedTuple):
    """Identify a stream entry.

    Ids are ordered by `ms`, then by `seq`, as unsigned numbers.

    Attributes:
        ms: 0 … 2^64-1.  By default it is the time in ms by the server's clock when the entry was
            added.
        seq: 0 … 2^64-1.  It distinguishes entries with the same `ms`.

    Examples:
        >>> StreamId(5, 3) < StreamId(5, 10)
        True
        >>> str(StreamId(5, 3))
        '5-3'
    """

    ms: int
    seq: int

    def __str__(self) -> str:
        return f"{self.ms}-{self.seq}"


MIN_ID = StreamId(0, 0)
MAX_ID = StreamId(MAX_U64, MAX_U64)
END_OF_SCAN = MIN_ID
"""The cursor of a finished scan.  The next scan starts from the beginning."""
_NAMED_BOUNDS = {b"-": MIN_ID, b"+": MAX_ID}


def parse_id(text: str | bytes, default_seq: int = 0) -> StreamId:
    """Parse one plain id: `5-3`, or `5` with `default_seq`.

    Raises:
        IdError: the server would refuse the text as an id.  `-` and `+` are range bounds, not ids.

    Examples:
        >>> parse_id("1767225600000-3")
        StreamId(ms=1767225600000, seq=3)
        >>> parse_id("5")
        StreamId(ms=5, seq=0)
    """
    raw = _as_bytes(text)
    parsed = _parse_halves(raw, default_seq) if len(raw) <= _MAX_TEXT_BYTES else None
    if parsed is None:
        raise IdError(
            f"{_shown(raw)} is not a valid stream id: write ms-seq, or ms alone", text=text
        )
    return parsed


def parse_range_start(text: str | bytes) -> StreamId:
    """Return the first id of a range.

    The text is an id (`5` is 5-0), `-`, `+`, or `(id` for the id after it.

    Raises:
        IdError: the text is not such a bound.
        IntervalError: no id comes after the largest id.

    Examples:
        >>> parse_range_start("(5-3")
        StreamId(ms=5, seq=4)
        >>> parse_range_start("-") == MIN_ID
        True
    """
    bound, is_exclusive = _parse_bound(text, 0)
    return successor(bound) if is_exclusive else bound


def parse_range_end(text: str | bytes) -> StreamId:
    """Return the last id of a range.

    The text is an id (`5` is 5-18446744073709551615), `-`, `+`, or `(id` for the id before it.

    Raises:
        IdError: the text is not such a bound.
        IntervalError: no id comes before 0-0.

    Examples:
        >>> parse_range_end("5")
        StreamId(ms=5, seq=18446744073709551615)
        >>> parse_range_end("+") == MAX_ID
        True
    """
    bound, is_exclusive = _parse_bound(text, MAX_U64)
    return predecessor(bound) if is_exclusive else bound


def successor(stream_id: StreamId) -> StreamId:
    """Return the next id.

    Raises:
        IntervalError: no id comes after the largest id.
    """
    if stream_id == MAX_ID:
        raise IntervalError("invalid start ID for the interval", id=stream_id)
    ms, seq = stream_id
    return StreamId(ms, seq + 1) if seq < MAX_U64 else StreamId(ms + 1, 0)


def predecessor(stream_id: StreamId) -> StreamId:
    """Return the previous id.

    Raises:
        IntervalError: no id comes before 0-0.
    """
    if stream_id == MIN_ID:
        raise IntervalError("invalid end ID for the interval", id=stream_id)
    ms, seq = stream_id
    return StreamId(ms, seq - 1) if seq > 0 else StreamId(ms - 1, MAX_U64)


def to_bigint(u: int) -> int:
    """Return the signed 64-bit number with the bits of the unsigned number `u`.

    Raises:
        IdError: `u` is not in 0 … 2^64-1.
    """
    if not 0 <= u <= MAX_U64:
        raise IdError(f"{u} is not an unsigned 64-bit number", number=u)
    return u if u < _SIGN_BIT else u - 2**64


def from_bigint(i: int) -> int:
    """Return the unsigned 64-bit number with the bits of the signed number `i`.

    Raises:
        IdError: `i` is not in -2^63 … 2^63-1.
    """
    if not -_SIGN_BIT <= i < _SIGN_BIT:
        raise IdError(f"{i} is not a signed 64-bit number", number=i)
    return i if i >= 0 else i + 2**64


def c_string(raw: bytes) -> bytes:
    """Return the part of a word that the server reads as a C string, which a NUL byte ends."""
    return raw.partition(b"\0")[0]


def _parse_bound(text: str | bytes, default_seq: int) -> tuple[StreamId, bool]:
    """Return a range bound, and True if it is exclusive.

    `(`, `(-` and `(+` are not valid bounds.
    """
    raw = _as_bytes(text)
    if len(raw) > 1 and raw.startswith(b"("):
        return parse_id(raw[1:], default_seq), True
    if len(raw) <= _MAX_TEXT_BYTES and c_string(raw) in _NAMED_BOUNDS:
        return _NAMED_BOUNDS[c_string(raw)], False
    return parse_id(raw, default_seq), False


def _parse_halves(raw: bytes, default_seq: int) -> StreamId | None:
    ms_text, dash, seq_text = c_string(raw).partition(b"-")
    ms = _parse_unsigned(ms_text)
    seq = _parse_unsigned(seq_text) if dash else default_seq
    return None if ms is None or seq is None else StreamId(ms, seq)


def _parse_unsigned(text: bytes) -> int | None:
    match = _UNSIGNED.fullmatch(text)
    if match is None:
        return None
    magnitude = int(match[2])
    if magnitude > MAX_U64:
        return None
    if match[1] != b"-":
        return magnitude
    if _USUAL_NEGATIVE.fullmatch(text) and magnitude <= _SIGN_BIT:
        return None
    return -magnitude % 2**64  # strtoull negates unsigned numbers modulo 2^64


def _as_bytes(text: str | bytes) -> bytes:
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


def _shown(raw: bytes) -> str:
    return repr(raw.decode("utf-8", "backslashreplace"))
