import re
import warnings

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from claimlib.errors import GlobError, NameSpellingError
from claimlib.semantics.names import (
    glob_pattern,
    is_utf8,
    literal_name,
    matches,
    spell,
    unspell,
    unspell_shown,
)
from claimlib.terminal import one_line
from tests.examples import examples

SPELLINGS = {
    b"": "",
    b"jobs:eu-1": "jobs:eu-1",
    "füße".encode(): "füße",
    "\U0001f600".encode(): "\U0001f600",
    b"\\": "\\\\",
    b"a\\xff": "a\\\\xff",
    b"\xff": "\\xff",
    b"\xc3": "\\xc3",
    b"\xc3\xa9\xc3": "é\\xc3",
    b"\xed\xa0\x80": "\\xed\\xa0\\x80",  # a surrogate in UTF-8 is none
    b"\xc0\x80": "\\xc0\\x80",  # nor is an overlong NUL
    b"\0\r\n\t ": "\0\r\n\t ",
    b"\\\xff\\": "\\\\\\xff\\\\",
}


@pytest.mark.parametrize(("name", "text"), SPELLINGS.items())
def test_a_name_has_one_spelling(name, text):
    assert spell(name) == text
    assert unspell(text) == name


@settings(deadline=None)
@given(st.binary(max_size=30))
def test_any_name_spelled_and_read_is_the_same(name):
    assert unspell(spell(name)) == name


@settings(deadline=None)
@given(st.text(alphabet="\\xacf90é\udcff", max_size=12))
def test_a_text_is_refused_or_is_the_spelling_of_what_it_names(text):
    try:
        name = unspell(text)
    except NameSpellingError:
        return
    assert spell(name) == text


@pytest.mark.parametrize(
    "text",
    [
        "\\",
        "a\\b",
        "\\x",
        "\\xf",
        "\\xFF",
        "\\x41",
        "\\xc3\\xa9",
        "\\n",
        "\\\\\\",
        "\udcff",
    ],
)
def test_a_text_that_spells_no_name_is_refused(text):
    with pytest.raises(NameSpellingError, match="is not a valid name"):
        unspell(text)


def test_a_name_that_is_a_text_is_refused_with_a_remedy():
    with pytest.raises(NameSpellingError, match=r"must be bytes, not 'orders': write b'"):
        spell("orders")


def test_a_refused_text_is_shown_as_it_was_typed():
    with pytest.raises(NameSpellingError, match=r"^'a\\b' is not a valid name"):
        unspell("a\\b")


def test_a_text_with_a_surrogate_is_not_utf_8():
    assert is_utf8("a\ud7ff\ue000é")
    assert not any(map(is_utf8, ["a\ud800b", "\udcff", "a\udfff"]))


# ---- globs ----


def stringmatchlen(glob: bytes, name: bytes) -> bool:
    """The server's own algorithm, step by step: what `KEYS` and `SCAN` do with a glob."""
    if glob == b"*":
        return True  # both commands do not even ask
    return _match(glob, name)[0]


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _match(glob, name):  # noqa: C901, PLR0912 - in one piece, to be read beside the server's
    """Whether it matches, and whether a longer try from an earlier star is in vain."""
    p = s = 0
    while p < len(glob) and s < len(name):
        token = glob[p]
        if token == ord("*"):
            while glob[p + 1 : p + 2] == b"*":
                p += 1
            if p + 1 == len(glob):
                return True, False
            while s < len(name):
                matched, in_vain = _match(glob[p + 1 :], name[s:])
                if matched or in_vain:
                    return matched, in_vain
                s += 1
            return False, True
        if token == ord("["):
            p, fits = _match_class(glob, p + 1, name[s])
            if not fits:
                return False, False
        elif token != ord("?"):
            if token == ord("\\") and p + 1 < len(glob):
                p += 1
            if glob[p] != name[s]:
                return False, False
        s += 1
        p += 1
        if s == len(name):
            while glob[p : p + 1] == b"*":
                p += 1
            break
    return p == len(glob) and s == len(name), False


def _match_class(glob: bytes, p: int, byte: int) -> tuple[int, bool]:
    is_negated = glob[p : p + 1] == b"^"
    p += is_negated
    fits = False
    while p < len(glob) and glob[p] != ord("]"):
        if glob[p] == ord("\\") and p + 1 < len(glob):
            p += 1
            fits |= glob[p] == byte
        elif p + 2 < len(glob) and glob[p + 1] == ord("-"):
            low, high = sorted((_signed(glob[p]), _signed(glob[p + 2])))
            fits |= low <= _signed(byte) <= high
            p += 2
        else:
            fits |= glob[p] == byte
        p += 1
    return p, fits != is_negated


COMPLETE = re.compile(
    rb"""(?xs) (?: \\.                                             # a byte taken literally
                 | \[ \^?+ (?: \\. | [^\]\\]-. | [^\]\\] )*+ \]     # a class that is closed
                 | [^\\\[] )+                                      # anything else""",
)
# Bytes that mean something in a glob, in a spelling, or in UTF-8 next to each other.
PIECES = [bytes([byte]) for byte in b"*?[]]^-\\abcAxf5\0\n\xc3\xa9\xff\x80"]
PIECES += [b"", b"[^", "é".encode(), "€".encode()]
pieces = st.one_of(st.sampled_from(PIECES), st.binary(min_size=1, max_size=1))
classes = st.builds(
    lambda negated, inside: b"[" + negated + b"".join(inside) + b"]",
    st.sampled_from([b"", b"^"]),
    st.lists(st.one_of(pieces, st.builds(lambda a, b: a + b"-" + b, pieces, pieces)), max_size=4),
)
globs = st.lists(st.one_of(pieces, classes), min_size=1, max_size=8).map(b"".join)
names = st.lists(pieces, max_size=8).map(b"".join)


@settings(deadline=None, max_examples=examples(1000))
@given(globs.filter(bool), st.lists(names, min_size=1, max_size=5))
@example(b"[a-\xff]", [b"\x80", b"\xff", b"a", b"b", b"\0"])
@example(b"[\x80-\xff]*", [b"\x7f", b"\x80", b"\xc3\xa9"])
@example(b"*[^a]?", ["ä€".encode(), b"a\\"])
@example(b"*\\x", [b"\\x", b"\\xff"])
@example(b"*f", [b"\xff", b"\\xff"])
def test_a_glob_matches_what_the_servers_algorithm_matches(glob, names):
    if not COMPLETE.fullmatch(glob):
        with pytest.raises(GlobError):
            glob_pattern(glob)
        return
    assert [matches(glob, name) for name in names] == [stringmatchlen(glob, n) for n in names]


@settings(deadline=None)
@given(names, st.data())
def test_a_name_with_stars_and_question_marks_put_in_matches_itself(name, data):
    keep = [b"\\" + name[i : i + 1] for i in range(len(name))]
    glob = [data.draw(st.sampled_from([byte, b"?", b"*", byte + b"*"])) for byte in keep]
    assert matches(b"".join(glob) or b"*", name)


@pytest.mark.parametrize(
    ("glob", "names", "others"),
    [
        ("*", [b"", b"a", b"\xff", b"\n"], []),
        ("**", [b"a", b"\xff"], [b""]),
        ("X", [b"X"], [b"", b"a"]),
        ("jobs:*", [b"jobs:", b"jobs:eu", b"jobs:\xff\n"], [b"jobs", b"Jobs:eu", b"xjobs:eu"]),
        ("*:eu", [b":eu", b"jobs:eu", b"\xff\\:eu"], [b"jobs:eu-1", b"jobs:eu\n", b"jobs:EU"]),
        ("a?c", [b"abc", b"a\\c", b"a\xffc", b"a\nc"], [b"ac", b"a\xc3\xa9c"]),
        ("a??c", ["aéc".encode()], [b"a\xc3c"]),
        ("é", ["é".encode()], [b"\xc3", b"\xe9", b"\\xc3\\xa9"]),
        (b"\xc3*", ["é".encode(), b"\xc3", b"\xc3a"], [b"\xa9", b"\\xc3"]),
        ("\udcff", [b"\xff"], ["\udcff".encode("utf-8", "surrogatepass")]),
        ("\\*", [b"*"], [b"a", b"\\*"]),
        ("\\ab", [b"ab"], [b"bb"]),
        ("\\\\", [b"\\"], [b"\\\\"]),
        ("*\\\\", [b"\\", b"a\\", b"\\\\"], [b"\\a"]),
        ("[abc]", [b"a", b"c"], [b"d", b"A", b"ab", b""]),
        ("[ac]", [b"a", b"c"], [b"b", b"X"]),
        ("[^abc]", [b"d", b"\\", b"\xff", b"^"], [b"a", b"dd", b""]),
        ("[a-c]x", [b"ax", b"cx"], [b"dx", b"-x"]),
        ("[c-a]", [b"a", b"b", b"c"], [b"d"]),
        ("[a-]]", [b"a", b"]", b"^"], [b"-", b"b"]),
        ("[\\]-]", [b"]", b"-"], [b"\\"]),
        ("[\\a-z]", [b"a", b"-", b"z"], [b"b"]),
        ("[a-\\]", [b"a", b"\\", b"]"], [b"b", b"-"]),
        ("[\\\\]xff", [b"\\xff"], [b"\xff"]),
        ("[\\\\a][\\\\a]", [b"\\\\", b"a\\"], [b"\\", b"a"]),
        ("[a^]", [b"a", b"^"], [b"b"]),
        ("[]", [], [b"", b"]", b"a"]),
        ("[]a]", [], [b"]", b"a", b"]a]"]),
        ("[^]", [b"a", b"]", b"\xff"], [b""]),
        ("[*?]", [b"*", b"?"], [b"a"]),
        ("[\udc80-\udcff]", [b"\x80", b"\xff"], [b"\x7f", b"a"]),
        ("[a-\udcff]", [b"\xff", b"\0", b"A", b"a"], [b"b", b"\x80", b"\xfe"]),
        ("a]", [b"a]"], [b"a"]),
        ("$(.+|{1})^", [b"$(.+|{1})^"], [b"$(.+|{11)^"]),
    ],
)
def test_a_glob_by_example(glob, names, others):
    assert [name for name in [*names, *others] if matches(glob, name)] == names


@pytest.mark.parametrize("glob", ["[", "a[", "[a", "[^", "[^a", "[a-", "[a-]", "*[\\]", "[]["])
def test_a_glob_with_an_open_class_is_refused(glob):
    with pytest.raises(GlobError, match=r"a \[ is not closed in the glob") as raised:
        glob_pattern(glob)
    assert raised.value.message.endswith(f" {glob!r}")


@pytest.mark.parametrize("glob", ["\\", "a\\", "\\\\\\", b"\xff\\", "[a\\"])
def test_a_glob_that_a_backslash_ends_is_refused(glob):
    with pytest.raises(GlobError, match="a backslash ends the glob"):
        glob_pattern(glob)


@pytest.mark.parametrize("glob", ["", b""])
def test_an_empty_glob_is_refused(glob):
    with pytest.raises(GlobError, match=r"the glob is empty: write \*"):
        glob_pattern(glob)


def test_a_glob_without_special_bytes_is_one_name():
    for glob in ("a", "a b{}]^-", b"\xff\x00", "é"):
        name = literal_name(glob)
        assert name is not None
        assert matches(glob, name)
        assert not matches(glob, name + b"x")
    assert [literal_name(f"a{special}") for special in "*?[\\"] == [None] * 4


def test_a_glob_that_is_no_text_is_refused():
    with pytest.raises(GlobError, match="is not valid Unicode text"):
        glob_pattern("\ud800")


def test_a_glob_with_more_stars_than_the_server_follows_is_refused():
    assert matches("*a" * 1000, b"a" * 1000)
    assert matches("*" * 5000 + "a", b"a")
    with pytest.raises(GlobError, match="may have 1000 stars, not 1001"):
        glob_pattern("*a" * 1001)


def test_many_stars_do_not_try_all_combinations():
    assert not matches("a*" * 30 + "b", b"a" * 2000)
    assert matches("a*" * 30 + "b", b"a" * 2000 + b"b")


@pytest.mark.parametrize("part", [b"\\", b"\xff", b"a\xff", "é".encode()])
def test_a_long_name_is_matched(part):
    name = part * 20_000
    assert matches(b"*\\" + name[-1:], name)
    assert matches("*?", name)
    assert not matches("*b", name)


def test_a_pattern_is_ascii_and_gives_no_warning():
    every_byte = b"[^" + b"".join(b"\\" + bytes([byte]) for byte in range(0, 256, 2)) + b"]"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for glob in (every_byte, bytes(range(256)).translate(None, b"[\\*"), "[é-€&&[^a]--[~~]*"):
            pattern = glob_pattern(glob)
            assert pattern.isascii()
            re.compile(pattern)


@pytest.mark.parametrize(
    ("shown", "name"),
    [
        (r"a\u000ab", b"a\nb"),
        (r"\u001b[2J\U000e0041", "\x1b[2J\U000e0041".encode()),
        (r"\xff\u0000\\u000a", b"\xff\0\\u000a"),
        ("a\nb", b"a\nb"),
        ("é", "é".encode()),
    ],
)
def test_a_name_can_be_given_as_a_terminal_shows_it(shown, name):
    assert unspell_shown(shown) == name
    assert unspell_shown(one_line(spell(name))) == name


@pytest.mark.parametrize(
    "text", [r"\u0061", r"\u00e9", r"\u00A0", r"\u12", r"\ud800", r"\U00110000"]
)
def test_an_escape_that_no_terminal_shows_is_refused(text):
    with pytest.raises(NameSpellingError):
        unspell_shown(text)


@given(st.binary(max_size=40))
def test_every_name_is_read_back_from_what_is_shown(name):
    assert unspell_shown(one_line(spell(name))) == name
