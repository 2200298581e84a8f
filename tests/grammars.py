"""What durations, spellings of names and globs are: grammars of the tests' own.

Each gives what a text means, or BAD.
"""

from __future__ import annotations

import re

from claimlib.times import MAX_MS
from tests.bad_inputs import BAD

UNITS_MS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}


def duration_ms(text):
    """Numbers and units in turn, each unit smaller than the one before."""
    words = re.split(r"([0-9]+)", text)
    numbers, units = words[1::2], words[2::2]
    places = [list(UNITS_MS).index(unit) if unit in UNITS_MS else -1 for unit in units]
    is_good = words[0] == "" and numbers and -1 not in places and places == sorted(set(places))
    total = sum(int(n) * UNITS_MS.get(unit, 0) for n, unit in zip(numbers, units, strict=True))
    return total if is_good and total <= MAX_MS else BAD


# One character in UTF-8, written as the escapes of its bytes.
ESCAPED_CHARACTER = re.compile(
    r"\\x(?:c[2-9a-f]|d.)\\x[89ab]."
    r"|\\x(?:e0\\x[ab]|ed\\x[89]|e[1-9a-cef]\\x[89ab]).\\x[89ab]."
    r"|\\x(?:f0\\x[9ab]|f[123]\\x[89ab]|f4\\x8).\\x[89ab].\\x[89ab]."
)
UNITS = re.compile(r"(?:[^\\\ud800-\udfff]|\\\\|\\x[89a-f][0-9a-f])*")


def name_spelled(text):
    if UNITS.fullmatch(text) is None:
        return BAD
    halves = text.split(r"\\")  # an escape is never across two backslashes
    if any(map(ESCAPED_CHARACTER.search, halves)):
        return BAD
    raw = [re.split(r"\\x(..)", half) for half in halves]
    return b"\\".join(
        b"".join(bytes.fromhex(p) if n % 2 else p.encode() for n, p in enumerate(parts))
        for parts in raw
    )


CLASS = r"\[\^?+(?:\\.|[^\]\\]-.|[^\]\\])*+\]"
GLOB = re.compile(rf"(?s)(?:[^\\\[]|\\.|{CLASS})+")
STARS = re.compile(rf"(?s)\\.|{CLASS}|(\*+)")


def is_glob(glob):
    """Whether classes are closed, no backslash is the last, and stars are not too many."""
    if isinstance(glob, str):
        if re.search("[\ud800-\udc7f\udd00-\udfff]", glob):
            return BAD
        glob = glob.encode("utf-8", "surrogateescape")
    glob = glob.decode("latin-1")  # a byte is a character
    stars = sum(match[1] is not None for match in STARS.finditer(glob))
    return True if GLOB.fullmatch(glob) and (stars <= 1000 or not glob.strip("*")) else BAD
