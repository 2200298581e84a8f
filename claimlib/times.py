"""Parse and format durations and times, which are whole milliseconds in the code.

A duration always has units, as in `15m`, `1h30m` or `250ms`.  A time has a zone, or is the number
of milliseconds since 1970-01-01T00:00:00Z, as the server counts them.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

from claimlib.errors import DurationError, InstantError

MAX_MS = 2**63 - 1
# Numbers that are probably not ms.  As ms, they would be times from 1970 to 1973, when there was no
# Redis, or times after the year 9999.
_LIKE_SECONDS = range(10**9, 10**11)
_LIKE_MICROSECONDS_FROM = 253_402_300_800_000
_LIKE_YEARS = range(1970, 2101)

_UNITS_MS = {
    "w": 7 * 24 * 60 * 60 * 1000,
    "d": 24 * 60 * 60 * 1000,
    "h": 60 * 60 * 1000,
    "m": 60 * 1000,
    "s": 1000,
    "ms": 1,
}
_DIGITS = r"0*([0-9]{1,19})"  # a number with more digits is not below 2^63
_DURATION = re.compile("".join(rf"(?:{_DIGITS}{unit})?" for unit in _UNITS_MS))
_NUMBER = re.compile(r"[+-]?[0-9.]+")
# As `2026-01-31`, `20260131`, `2026-W05-6` or `2026W056`.
_DATE = r"[0-9]{4}(?:-[0-9]{2}-[0-9]{2}|[0-9]{4}|-W[0-9]{2}-[1-7]|W[0-9]{2}[1-7])"
# As `12`, `12:30`, `12:30:15`, `12:30:15.5`, `1230` or `123015,5`.
_TIME = (
    r"(?:[01][0-9]|2[0-3])(?:"
    r":[0-5][0-9](?::[0-5][0-9](?:[.,][0-9]+)?)?|[0-5][0-9](?:[0-5][0-9](?:[.,][0-9]+)?)?"
    r")?"
)
# `fromisoformat` accepts more texts than this.  Which texts it accepts depends on the version of
# Python, and it ignores parts of some texts.
_ISO = re.compile(rf"{_DATE}(?:[T ]{_TIME}(?:Z|[+-]{_TIME})?)?")
_ISO_DATE = re.compile(_DATE)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def parse_duration_ms(text: str) -> int:
    """Return the milliseconds of a duration.

    A duration is whole numbers with the units w, d, h, m, s and ms, the largest unit first.

    Raises:
        DurationError: the text has no unit, an unknown unit, a fraction or a sign, or is more than
            2^63-1 ms.

    Examples:
        >>> parse_duration_ms("1h30m")
        5400000
    """
    if _NUMBER.fullmatch(text):
        raise DurationError(f"{text!r} has no unit: give a unit, as in {text}ms or 15m", text=text)
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        raise DurationError(
            f"{text!r} is not a valid duration: write whole numbers with units, largest unit first"
            " (w, d, h, m, s, ms), as in 15m or 1h30m",
            text=text,
        )
    total_ms = sum(
        int(number) * unit_ms
        for number, unit_ms in zip(match.groups(default="0"), _UNITS_MS.values(), strict=True)
    )
    if total_ms > MAX_MS:
        raise DurationError(f"{text!r} is more than 2^63-1 ms: give a shorter one", text=text)
    return total_ms


def format_duration_ms(ms: int) -> str:
    """Return the exact duration, as `parse_duration_ms` reads it: `1h30m` or `0ms`.

    A negative duration begins with a sign, as `-5s`.  No unit in between is omitted, because
    `3h0m55s` without the minutes could be read as 55 minutes.

    Examples:
        >>> format_duration_ms(5_400_000)
        '1h30m'
    """
    if ms == 0:
        return "0ms"
    parts: list[str] = []
    rest_ms = abs(ms)
    for unit, unit_ms in _UNITS_MS.items():
        number, rest_ms = divmod(rest_ms, unit_ms)
        if number or (parts and rest_ms):
            parts.append(f"{number}{unit}")
    return ("-" if ms < 0 else "") + "".join(parts)


def round_duration_ms(ms: int) -> str:
    """Return a duration in its largest unit and the next smaller one, rounded down: `3h0m`, `1w6d`.

    Durations of less than a minute are in seconds alone.  Durations of less than a second are in
    milliseconds.
    """
    for (unit, unit_ms), (smaller, smaller_ms) in pairwise(_UNITS_MS.items()):
        if ms >= unit_ms:
            rest = "" if smaller == "ms" else f"{ms % unit_ms // smaller_ms}{smaller}"
            return f"{ms // unit_ms}{unit}{rest}"
    return f"{ms}ms"


def parse_instant_ms(text: str) -> int:
    """Return the milliseconds since the epoch of a text.

    The text is an ISO 8601 time with a zone, or the number of milliseconds itself.  A fraction
    below the millisecond is cut off.

    Raises:
        InstantError: the text is neither of the two, has no time of day or no zone, or is before
            1970.  Or it is a number that looks like a date (20260101), like seconds, or like a
            smaller unit than milliseconds.

    Examples:
        >>> parse_instant_ms("2026-01-01T00:00:00Z")
        1767225600000
    """
    number = re.fullmatch(_DIGITS, text)
    instant_ms = _checked_ms(int(number[1])) if number else _parse_iso_ms(text)
    if instant_ms < 0:
        raise InstantError(
            f"{text!r} is before 1970, the earliest time that can be given: give a later one",
            text=text,
        )
    return instant_ms


def suspected_unit(low: int, high: int) -> str | None:
    """Return the wrong unit that times between two numbers seem to have.

    Return None if they seem to be in milliseconds, as they should be.
    """
    if low in _LIKE_SECONDS and high in _LIKE_SECONDS:
        return "seconds"
    return "microseconds or nanoseconds" if low >= _LIKE_MICROSECONDS_FROM else None


def _checked_ms(number: int) -> int:
    """Return the number, if it is likely to be a time in milliseconds.

    Raise InstantError if it looks like a date, or like a time in another unit.  With such a time,
    either no entry or every entry would be idle for long.
    """
    iso = "an ISO 8601 time as 2026-01-01T00:00:00Z"
    day = _date_of_digits(number)
    looks_like = "a date" if day is not None else suspected_unit(number, number)
    if looks_like is None:
        return number
    when = format_instant_ms(number)
    if day is not None:
        instead = _midnight(day)
    elif looks_like == "seconds":
        instead = f"{number}000, or {iso}"
    else:
        per_ms = {16: 10**3, 19: 10**6}.get(len(str(number)))
        when, instead = "after the year 9999", f"{number // per_ms}, or {iso}" if per_ms else iso
    raise InstantError(
        f"'{number}' counts milliseconds since 1970, and would be {when}: it looks like"
        f" {looks_like}; write {instead}",
        text=str(number),
    )


def _date_of_digits(number: int) -> date | None:
    """Return the date that the digits of a number spell (20260101), or None if they spell none."""
    year, month_and_day = divmod(number, 10_000)
    if year not in _LIKE_YEARS:
        return None
    try:
        return date(year, *divmod(month_and_day, 100))
    except ValueError:  # no such day
        return None


def _midnight(day: date) -> str:
    return f"{day.isoformat()}T00:00:00Z"


def _parse_iso_ms(text: str) -> int:
    try:
        instant = datetime.fromisoformat(text) if _ISO.fullmatch(text) else None
    except ValueError:  # no such day
        instant = None
    if instant is None:
        raise InstantError(
            f"{text!r} is not a valid time: write 2026-01-01T00:00:00Z, or ms since 1970",
            text=text,
        )
    if _ISO_DATE.fullmatch(text):
        if instant.year < _EPOCH.year:  # then the caller refuses a time before 1970
            return -1
        raise InstantError(
            f"{text!r} has no time of day: write {_midnight(instant.date())}", text=text
        )
    if instant.tzinfo is None:
        raise InstantError(
            f"{text!r} has no time zone: add one, as in {text}Z or {text}+01:00", text=text
        )
    return (instant - _EPOCH) // _MILLISECOND


def format_instant_ms(ms: int) -> str:
    """Return a time as ISO 8601 in UTC with milliseconds, or as `<n> ms` after the year 9999.

    Examples:
        >>> format_instant_ms(1767225600000)
        '2026-01-01T00:00:00.000Z'
    """
    try:
        instant = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return f"{ms} ms"
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")
