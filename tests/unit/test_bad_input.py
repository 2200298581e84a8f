"""Ten thousand inputs per parser; what is good, and what it means, is told by a grammar here."""

import re
from datetime import date
from ipaddress import ip_address
from urllib.parse import unquote_to_bytes

import pytest

from claimlib.errors import (
    DurationError,
    GlobError,
    InstantError,
    NameSpellingError,
    RequestError,
)
from claimlib.live.address import Address, parse_address
from claimlib.semantics.names import SPELLING, glob_pattern, unspell
from claimlib.times import MAX_MS, parse_duration_ms, parse_instant_ms
from tests.bad_inputs import BAD, BYTE_PIECES, TEXT_PIECES, check, mutants
from tests.grammars import UNITS_MS, duration_ms, is_glob, name_spelled

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]  # a parser that hangs

# ---- durations ----

DURATIONS = [f"{n}{unit}" for n in (0, 7, 15, 250) for unit in ("w", "d", "h", "m", "s", "ms")]
DURATIONS += ["1h30m", "1w2d3h4m5s6ms", "1m1ms", f"{MAX_MS}ms", "106751991167d", "0" * 30 + "5s"]


def test_durations():
    pieces = [*TEXT_PIECES, *UNITS_MS, *"0123456789"]
    inputs = mutants("durations", DURATIONS, pieces)
    check("durations", inputs, duration_ms, parse_duration_ms, DurationError)


# ---- instants ----

INSTANTS = [
    *("2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00", "2025-12-31 18:30:00.250-05:30"),
    *("1970-01-01T00:00Z", "20260101T000000Z", "2026-W01-4T12Z", "2026W014T1234,5+0130"),
    *("9999-12-31T23:59:59.999999Z", "2024-02-29T23:59:59.1-23:59", "2026-06-30T10:20:30+00:00:01"),
    *("1767225600000", "0", "253402300799999", "0" * 25 + "7", "86400000"),
    *("999999999", "100000000000", "1767225600000000"),
]
ISO = re.compile(
    r"([0-9]{4})(-?)(?:([0-9]{2})\2([0-9]{2})|W([0-9]{2})\2([1-7]))"
    r"[T ]([0-9]{2})(?:(:?)([0-9]{2})(?:\8([0-9]{2})(?:[.,]([0-9]+))?)?)?"
    r"(?:Z|([+-])([0-9]{2})(?:(:?)([0-9]{2})(?:\14([0-9]{2})(?:[.,]([0-9]+))?)?)?)"
)


def instant_ms(text):
    if re.fullmatch("[0-9]+", text):
        is_ms = not 10**9 <= int(text) < 10**11 and int(text) < 253_402_300_800_000
        return int(text) if is_ms else BAD
    match = ISO.fullmatch(text)
    if match is None:
        return BAD
    year, month, day, week, weekday = (int(match[n] or 0) for n in (1, 3, 4, 5, 6))
    clock, zone = ([int(match[n] or 0) for n in three] for three in ((7, 9, 10), (13, 15, 16)))
    try:
        calendar = date.fromisocalendar(year, week, weekday) if week else date(year, month, day)
    except ValueError:
        return BAD
    if any(part[0] > 23 or part[1] > 59 or part[2] > 59 for part in (clock, zone)):
        return BAD
    days = calendar.toordinal() - date(1970, 1, 1).toordinal()
    micros, zone_micros = (int((match[n] or "").ljust(6, "0")[:6]) for n in (11, 17))
    sign = -1 if match[12] == "-" else 1
    offset = sign * (seconds(*zone) * 10**6 + zone_micros)
    ms = (((days * 86_400 + seconds(*clock)) * 10**6) + micros - offset) // 1000
    return ms if ms >= 0 else BAD


def seconds(hours, minutes, rest):
    return hours * 3600 + minutes * 60 + rest


def test_instants():
    pieces = [*TEXT_PIECES, *"TtZzW0123456789", ":30", "24:00", ":60", "+02", "-12:30", ".5"]
    inputs = mutants("instants", INSTANTS, pieces)
    check("instants", inputs, instant_ms, parse_instant_ms, InstantError)


# ---- names ----

SPELLINGS = [
    "orders:eu",
    "",
    "é€",
    r"a\\b",
    r"\xff",
    r"\x80\xbf",
    r"\\x41",
    r"\xed\xa0\x80",
    "a\0b\n",
]
SPELLINGS += [
    r"\xc3\\\xa9",
    r"\xf0\x9f\x98",
    r"\xe2\x82",
    r"\xf4\x90\x80\x80",
    r"\xc0\xaf",
    "😀\\\\",
]


def test_spellings_of_names():
    pieces = [*TEXT_PIECES, r"\x", r"\xc3", r"\xa9", r"\xFF", r"\x7f", r"\x80", "\\\\", r"\u00e9"]
    inputs = mutants("spellings", SPELLINGS, pieces)
    check("spellings", inputs, name_spelled, unspell, NameSpellingError)


def test_one_expression_tells_which_texts_are_spellings():
    pieces = [*TEXT_PIECES, r"\x", r"\xc3", r"\xa9", r"\xe2\x82\xac", r"\xf0\x9f", "\\\\"]
    inputs = mutants("spelling expression", SPELLINGS, pieces)
    texts = [text for text in inputs if not re.search("[\ud800-\udfff]", text)]  # Spark has none
    # Java's engine reads it.  Python's gets possessive repetition wrong before 3.11.5; the branches
    # begin differently, so a greedy one takes the same texts.
    expression = re.compile(SPELLING.replace(")*+", ")*"))
    for text in texts:
        is_spelling = name_spelled(text) is not BAD
        assert (expression.search(text) is not None) == is_spelling, text
    assert len(texts) > 8000


# ---- globs ----

GLOBS = [
    "*",
    "orders:*",
    "a?c",
    "[abc]",
    "[^a-c]*",
    r"a\*b",
    "[]",
    "[^]x",
    r"[\]]",
    "[a-]]",
    "**a*",
]
GLOBS += ["é[é-€]", r"[\\-a]", "[^^]", "a" + "[*" * 9 + "]"]
MANY_STARS = ["*" * 2000, "a*" * 1000, "a*" * 1001, "*a" * 999 + r"[*]\**", r"*\a" * 1000 + "[*]*"]


def has_pattern(glob):
    return glob_pattern(glob).isascii()


def test_globs():
    pieces = ["[", "]", "[^", "\\", "-", "*", "?", *TEXT_PIECES]
    inputs = [*mutants("globs", GLOBS, pieces), *MANY_STARS]
    check("globs", inputs, is_glob, has_pattern, GlobError)


def test_globs_of_bytes():
    globs = [glob.encode() for glob in GLOBS]
    pieces = [b"[", b"]", b"[^", b"\\", b"-", b"*", b"?", *BYTE_PIECES]
    check("byte globs", mutants("byte globs", globs, pieces), is_glob, has_pattern, GlobError)


# ---- the server's URL ----

URLS = ["redis://h", "rediss://Cache.Example/", "redis://h:6380/15", "redis://us%40er@h:1/2"]
URLS += ["redis://[::1]:7000/3", "REDIS://[fe80::1%eth0]", "redis://ü.example:", "redis://@h./007"]
URLS += ["redis+sentinel://h/main", "rediss+SENTINEL://u@h:1/my-master_1.x/3"]
URL = re.compile(
    r"(?i:redis)([sS]?)(?i:(\+sentinel)?)://(?:([^\s\0-\x1f\x7f:/?#]*)@)?"
    r"(?:\[([0-9a-zA-Z:.]+)(%[^\s\0-\x1f\x7f/?#\[\]%]+)?\]|([^\s\0-\x1f\x7f:/?#@\[\]]+))"
    r"(?::([0-9]{1,10})?)?(?:/([^?#\s\0-\x1f\x7f]*))?"
)
PATHS = {False: r"()([0-9]{1,10})?", True: r"([A-Za-z0-9._-]+)(?:/([0-9]{1,10})?)?"}


def address(url):
    match = URL.fullmatch(url)
    if match is None or re.search("[\ud800-\udfff]", url):
        return BAD
    tls, sentinel, user, literal, zone, name, port, path = match.groups()
    match = re.fullmatch(PATHS[bool(sentinel)], path or "")
    if match is None:
        return BAD
    master, db = match.groups()
    default_port = 26379 if sentinel else 6379
    try:
        host = literal or name
        ip_address(literal or "::")
        username = unquote_to_bytes(user or "").decode() or None
        host.encode("ascii" if literal else "idna")
    except ValueError:
        return BAD
    if (literal and ":" not in literal) or not 1 <= int(port or default_port) <= 65535:
        return BAD
    if int(db or 0) > 2**31 - 1:
        return BAD
    host = host.lower() + (zone or "")
    number = int(port or default_port)
    return Address(host, number, int(db or 0), bool(tls), username, master or None)


def test_addresses():
    pieces = [
        *TEXT_PIECES,
        "%zz",
        "%ff",
        "user@",
        ":secret@",
        "::",
        "[",
        "]",
        "..",
        "h" * 64,
        "9" * 30,
    ]
    check("addresses", mutants("addresses", URLS, pieces), address, parse_address, RequestError)
