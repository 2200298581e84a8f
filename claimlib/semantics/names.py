r"""Spell names as text, and match Redis' globs on names.

A name on the server is any bytes.  Its spelling is the text that tables contain.  UTF-8 stays as it
is, any other byte becomes `\xhh`, and a backslash is doubled.  So each name has exactly one
spelling, and an ordinary name is spelled as itself.

A glob matches the BYTES of a name, as `stringmatchlen` of Redis 7 and Valkey 9.1 does.  Here it
becomes a regular expression, so that an engine can apply it to its rows.  The text to match is the
spelling's UTF-8, read as Latin-1, so that each byte is one character.  One byte of the name is one
unit of that text: a plain character, two backslashes, or `\xhh`.  The expression works with
Python's `re` and with Java's regular expressions.

    - It never backtracks.  The part after a `*`, up to the next `*`, is matched at the first place
      where it fits, as on the server.  So `a*a*a*a*b` does not try all combinations.
    - Its loops are possessive.  Java runs such loops without a stack frame per character.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby

from claimlib.errors import GlobError, NameSpellingError

_MAX_STARS = 1000  # with more, the server gives up and matches nothing
_SPECIAL = frozenset(b"*?[\\")

ByteSet = frozenset[int]
_ANY_BYTE: ByteSet = frozenset(range(256))
_BACKSLASH = ord("\\")
_ESCAPED = re.compile(rb"\\(?:\\|x([0-9a-f]{2}))")

# One character of UTF-8, written as the escapes of its bytes, such as \xc3\xa9.  It is never in a
# spelling, which has the character itself.
_CONTINUED = r"\\x[89ab][0-9a-f]"
_ESCAPED_CHARACTER = (
    rf"(?:\\x(?:c[2-9a-f]|d[0-9a-f]){_CONTINUED}"
    rf"|\\x(?:e0\\x[ab][0-9a-f]|ed\\x[89][0-9a-f]|e[1-9a-cef]{_CONTINUED}){_CONTINUED}"
    rf"|\\x(?:f0\\x[9ab][0-9a-f]|f[1-3]{_CONTINUED}|f4\\x8[0-9a-f]){_CONTINUED}{_CONTINUED})"
)
_UNIT = r"(?:[^\\]|\\(?:\\|x[0-9a-f]{2}))"
_NOTHING = r"(?!)"
# The end of the text.  `$` also matches before a last line break, and `\Z` differs in Java.
_END = r"(?![\s\S])"

# The alternative `(?!)` is for Python before 3.11.5, as in `_take_first`.
SPELLING = rf"\A(?:[^\\]|\\\\|(?!{_ESCAPED_CHARACTER})\\x[89a-f][0-9a-f]|{_NOTHING})*+{_END}"
"""An expression that only spellings of names match, for Python's `re` and Spark's RLIKE."""


def spell(name: bytes) -> str:
    r"""Return the spelling of a name.

    UTF-8 stays as it is, any other byte becomes `\xhh`, and `\` becomes `\\`.

    Raises:
        NameSpellingError: the name is not bytes.
    """
    if not isinstance(name, bytes):
        raise NameSpellingError(
            f"a name must be bytes, not {name!r}: write b'...', or name.encode()", text=name
        )
    return name.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


def unspell(text: str) -> bytes:
    """Return the name that a text spells.

    Raises:
        NameSpellingError: the text is not the result of `spell` for any name.
    """
    raw = text.encode("utf-8", "surrogatepass")
    name = _ESCAPED.sub(lambda match: bytes.fromhex((match[1] or b"5c").decode("ascii")), raw)
    if spell(name) != text:
        raise NameSpellingError(
            f"{_quoted(text)} is not a valid name: a backslash is written twice, a byte that is"
            " not UTF-8 as \\x and two digits (0-9a-f), and everything else as itself",
            text=text,
        )
    return name


def _quoted(text: str) -> str:
    """Return a text in quotes, without control characters, and with backslashes as typed."""
    return repr(text).replace("\\\\", "\\")


# Two backslashes are one match, so that the text after them is not read as an escape.
_PRINTED_ESCAPE = re.compile(r"\\\\|\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")


def is_utf8(text: str) -> bool:
    """Return True if a text can be encoded in UTF-8.

    Bytes of a command line that are not UTF-8 become surrogates in the text.  No table can store
    surrogates, and no JVM accepts them.
    """
    return not any("\ud800" <= char <= "\udfff" for char in text)


def unspell_shown(text: str) -> bytes:
    r"""Return the name of a spelling that a user copied from a printed table.

    This is `unspell`, but a character that cannot be printed may be an escape, as in printed
    tables: `\u000a` or `\U000e0041`.

    Raises:
        NameSpellingError: see `unspell`.
    """
    return unspell(_PRINTED_ESCAPE.sub(_unprintable, text))


def _unprintable(match: re.Match[str]) -> str:
    """Return the unprintable character of an escape.  Any other match is returned unchanged."""
    number = int(match[1] or match[2] or "0", 16)  # 0 for two backslashes
    meant = chr(number) if number < 0x110000 else " "
    return match[0] if meant.isprintable() or match[0] == "\\\\" else meant


def matches(glob: str | bytes, name: bytes) -> bool:
    """Return True if the server's `stringmatchlen(glob, name)` finds a match.

    Raises:
        GlobError: see `glob_pattern`.
    """
    return _compiled(glob).search(spell(name).encode("utf-8").decode("latin-1")) is not None


@lru_cache(maxsize=64)
def _compiled(glob: str | bytes) -> re.Pattern[str]:
    return re.compile(glob_pattern(glob))


def glob_pattern(glob: str | bytes) -> str:
    """Return a regular expression to SEARCH in the Latin-1 reading of a spelling's UTF-8 bytes.

    In Spark: `decode(encode(name, 'UTF-8'), 'ISO-8859-1') RLIKE pattern`.  The pattern is ASCII.
    A glob that is given as text means its UTF-8 bytes, so it is not a spelling.

    `*` matches any bytes, `?` one byte, and `[ab]`, `[a-c]` and `[^a]` one byte of a class.  After
    a backslash the next byte is literal.  These rules are those of the server:

    - Upper and lower case differ.
    - `[]` matches nothing, and `[^]` matches any byte.
    - In a class, a dash after a byte always makes a range, even up to `]`.
    - The ends of a range may come in either order.  In a range, bytes from 0x80 on come before
      0x00, because `char` has a sign on x86-64.
    - `*` alone also matches the empty name, but `**` alone does not.

    Raises:
        GlobError: the glob is empty, a class is not closed, a backslash ends the glob, or it has
            more than 1,000 stars.  Adjacent stars count as one.
    """
    raw = _as_bytes(glob)
    if raw.strip(b"*") == b"":
        return r"\A" if raw == b"*" else r"\A(?=[\s\S])"
    first, *others = _segments(raw)
    if not others:
        return rf"\A{first}{_END}"
    *middle, last = others
    tail = _take_first(last + _END) if last else ""
    return rf"\A{first}{''.join(map(_take_first, middle))}{tail}"


def literal_name(glob: str | bytes) -> bytes | None:
    r"""Return the one name that a glob without any of `*?[\` matches.

    Return None if the glob may match several names.

    Raises:
        GlobError: the glob is empty, or is not valid Unicode text.
    """
    raw = _as_bytes(glob)
    return raw if _SPECIAL.isdisjoint(raw) else None


def _take_first(part: str) -> str:
    """Return an expression that skips to the first place where `part` fits, and matches it there.

    The expression never backtracks.  The alternative `(?!)` never matches, so it changes nothing.
    But without it Python before 3.11.5 continues after the `part` that ended the loop (gh-106052).
    """
    return rf"(?:(?!{part}){_UNIT}|{_NOTHING})*+{part}"


def _segments(glob: bytes) -> list[str]:
    """Return the expressions of the parts before, between and after the stars."""
    parts: list[str] = [""]
    stars = 0
    for is_star, run in groupby(_tokens(glob), key=lambda token: token is None):
        if is_star:
            stars += 1
            parts.append("")
        else:
            parts[-1] = "".join(_byte_of(token) for token in run if token is not None)
    if stars > _MAX_STARS:
        raise GlobError(f"a glob may have {_MAX_STARS} stars, not {stars}", glob=glob)
    return parts


def _tokens(glob: bytes) -> Iterator[ByteSet | None]:
    """Yield the tokens of a glob.

    A token is a set of bytes, and matches one of them.  None is a star.
    """
    at = 0
    while at < len(glob):
        char = glob[at : at + 1]
        at += 1
        if char == b"*":
            yield None
        elif char == b"?":
            yield _ANY_BYTE
        elif char == b"[":
            allowed, at = _class(glob, at)
            yield allowed
        elif char == b"\\":
            yield frozenset(_escaped(glob, at))
            at += 1
        else:
            yield frozenset(char)


def _class(glob: bytes, at: int) -> tuple[ByteSet, int]:
    """Return the class that begins before `at`, and the position after its `]`."""
    is_negated = glob[at : at + 1] == b"^"
    at += is_negated
    allowed: set[int] = set()
    while glob[at : at + 1] != b"]":
        if at >= len(glob):
            raise GlobError(f"a [ is not closed in the glob {_shown(glob)}", glob=glob)
        if glob[at : at + 1] == b"\\":
            allowed.update(_escaped(glob, at + 1))
            at += 2
        elif glob[at + 1 : at + 2] == b"-" and at + 2 < len(glob):
            allowed.update(_range(glob[at], glob[at + 2]))
            at += 3
        else:
            allowed.add(glob[at])
            at += 1
    return (_ANY_BYTE - allowed if is_negated else frozenset(allowed)), at + 1


def _range(first: int, last: int) -> Iterator[int]:
    """Return the bytes between two bytes, ends included, in the order of a signed `char`.

    This order is 0x80 … 0xff, 0x00 … 0x7f.
    """
    low, high = sorted((byte ^ 0x80) - 0x80 for byte in (first, last))
    return (signed % 256 for signed in range(low, high + 1))


def _escaped(glob: bytes, at: int) -> bytes:
    """Return the byte at a position, which follows a backslash."""
    if at >= len(glob):
        raise GlobError(f"a backslash ends the glob {_shown(glob)}", glob=glob)
    return glob[at : at + 1]


def _byte_of(allowed: ByteSet) -> str:
    """Return an expression for the unit of one of these bytes in a spelling.

    A byte from 0x80 on is a plain character if it is a part of valid UTF-8.  Otherwise it is an
    escape.
    """
    if allowed == _ANY_BYTE:
        return _UNIT
    plain = sorted(allowed - {_BACKSLASH})
    choices = [_one_of(plain)] if plain else []
    if _BACKSLASH in allowed:
        choices.append(r"\\\\")
    if high := [byte for byte in plain if byte >= 0x80]:
        choices.append(_one_escape_of(high))
    if not choices:
        return _NOTHING
    return choices[0] if len(choices) == 1 else f"(?:{'|'.join(choices)})"


def _one_escape_of(high: list[int]) -> str:
    """Return an expression for the escape of one of several ascending bytes from 0x80 on."""
    digits = [
        f"{first:x}[{''.join(f'{byte % 16:x}' for byte in run)}]"
        for first, run in groupby(high, key=lambda byte: byte // 16)
    ]
    return rf"\\x(?:{'|'.join(digits)})"


def _one_of(plain: list[int]) -> str:
    """Return an expression for one of several ascending bytes as a plain character."""
    if len(plain) == 1:
        return _char(plain[0])
    ranges: list[tuple[int, int]] = []
    for byte in plain:
        if ranges and ranges[-1][1] == byte - 1:
            ranges[-1] = (ranges[-1][0], byte)
        else:
            ranges.append((byte, byte))
    return f"[{''.join(f'{_char(low)}-{_char(high)}' for low, high in ranges)}]"


def _char(byte: int) -> str:
    char = chr(byte)
    return char if char.isascii() and char.isalnum() else rf"\x{byte:02x}"


def _as_bytes(glob: str | bytes) -> bytes:
    if isinstance(glob, bytes):
        raw = glob
    else:
        try:
            # Bytes that the command line could not decode are surrogates here.
            raw = glob.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise GlobError(f"the glob {glob!a} is not valid Unicode text", glob=glob) from error
    if not raw:
        raise GlobError("the glob is empty: write * for every name", glob=glob)
    return raw


def _shown(glob: bytes) -> str:
    return repr(glob.decode("utf-8", "backslashreplace"))
