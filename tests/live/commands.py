"""The steps of a sequence: strategies for the words of each command, for good ones and bad ones.

`@entry3` is one of the ids that the sequence's stream began with, and `@entry3~` the same without a
`-0` at its end; `sequences` puts the ids in.  A word may begin with `(`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, product
from typing import Any

from hypothesis import strategies as st

from claimlib.semantics.ids import MAX_ID, MAX_U64, StreamId
from claimlib.semantics.model import COUNT_MAX, DELIVERY_COUNT_MAX, MAX_I64
from claimlib.testing.vectors import KEY
from tests.live.times import Times, Words

GROUP = b"g"
OWNERS = (b"other", b"caller", b"\xff\\\n'")
CALLERS = (b"caller", b"caller", b"new", b"other", b"\xff\\\n'")

# Many that are near to each other, for pages; and where numbers stop being signed, or exact.
_EDGES = (0, 2**53, 2**53 + 1, 2**63 - 1, 2**63, MAX_U64)
NEAR = [StreamId(5, seq) for seq in range(1, 25)]
_FAR = [StreamId(ms, seq) for ms, seq in product(_EDGES, _EDGES) if (ms, seq) != (0, 0)]
IDS = [*NEAR, *(StreamId(1_750_000_000_000 + n, 0) for n in range(20)), *_FAR, *_FAR]

# For a COUNT near the largest one a server has not enough memory.
COUNTS = (1, 1, 1, 2, 3, None, 100_000)
_SOME_IDS = (StreamId(5, 4), StreamId(5, 9), StreamId(2**63 - 1, 7), StreamId(2**63, 0), MAX_ID)
STARTS = (
    *(b"0-0", b"0-0", b"0-0", b"-", *[b"@cursor"] * 6),
    *(str(stream_id).encode() for stream_id in _SOME_IDS),
    *(b"(%d-%d" % stream_id for stream_id in _SOME_IDS[:-1]),
)

_ENTRIES = tuple(b"@entry%d" % number for number in range(24))
_PARTIAL = tuple(word + b"~" for word in _ENTRIES)
_ANY_IDS = tuple(str(stream_id).encode() for stream_id in IDS)
_ID_WORDS = (*_ENTRIES * 2, *_PARTIAL * 2, *_ANY_IDS, b"0", b"5", b"0-1")

_BAD_INTEGERS = (b"x", b"1.5", b"+1", b"01", b" 1", b"", b"%d" % (MAX_I64 + 1), b"-0")
_BAD_IDS = (b"x", b"5-", b"-5", b"5-*", b"5--x", b"", b"%d" % (MAX_U64 + 1), b"1-2-3", b"$")
_NO_RANGE_ID = (b"-", b"+", b"(5")


def any_of(*choices: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    """One of each, drawn as ONE number: of a list Hypothesis leaves out what is up to five."""
    drawn = list(product(*choices))
    return st.integers(0, len(drawn) - 1).map(lambda number: drawn[number])


def one_of(*strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """One of them; `st.one_of` draws one that is listed twice no more often than the others."""
    # Of what is sampled Hypothesis would print all.
    return st.integers(0, len(strategies) - 1).flatmap(lambda number: strategies[number])


def steps(times: Times) -> st.SearchStrategy[list[Words]]:
    """The steps of a sequence."""
    page = _pages(times)
    # Of fresh entries in a row it examines ten.
    fresh = any_of(CALLERS, (False, True)).map(
        lambda who: _page(*who, times.min_idles[0], b"0-0", 1)
    )
    sweep = page.map(lambda words: (b"SWEEP", *words))
    claims = [_claims(times)] * 8 + [_claims_dated(times)] * 8 + [_claims_again(times)] * 2
    reads = [_ranges(times)] * 6 + [st.just((b"XPENDING", KEY, GROUP))] * 2
    autoclaim, claim, read, ack = (_bad(parts) for parts in _faults())
    bad = (*[autoclaim] * 2, *[claim] * 3, *[read] * 3, *[ack] * 2)
    step = one_of(
        *[page] * 8, fresh, *[sweep] * 2, *claims, *reads, *[_acks()] * 4, *bad, *_removals()
    )
    # Of one list Hypothesis draws six or seven.
    several = st.lists(step, min_size=1, max_size=12), st.lists(step, max_size=16)
    return st.tuples(*several).map(lambda both: [*both[0], *both[1]])


# ---- XAUTOCLAIM ----


def _pages(times: Times) -> st.SearchStrategy[Words]:
    return st.builds(
        lambda who, min_idle, where: _page(*who, min_idle, *where),
        *(any_of(CALLERS, (False, True)), st.sampled_from(times.min_idles)),
        any_of(STARTS, COUNTS),
    )


def _page(caller: bytes, justid: bool, min_idle: bytes, start: bytes, count: int | None) -> Words:
    counted = () if count is None else (b"COUNT", b"%d" % count)
    as_ids = (b"JUSTID",) if justid else ()
    return (b"XAUTOCLAIM", KEY, GROUP, caller, min_idle, start, *counted, *as_ids)


# ---- XCLAIM ----

_HIGHEST = b"%d" % DELIVERY_COUNT_MAX
_RETRYCOUNTS = (b"0", b"0", b"-1", b"1", b"7", _HIGHEST, _HIGHEST, b"%d" % -MAX_I64)
_COUNTED = (*[()] * 7, *((b"RETRYCOUNT", word) for word in _RETRYCOUNTS))
_LAST_IDS = (b"0-1", b"@entry3", b"@entry9~", b"%d-%d" % MAX_ID, b"%d" % 2**63)
_LAST_IDS_TWICE = (
    *((b"0-1", b"@entry3"), (b"0-1", b"@entry9~"), (b"@entry3", b"0-1")),
    *((b"@entry9", b"0-1"), (b"@entry9~", b"@entry3")),
)
_RAISED = (
    *[()] * 10,
    *((b"LASTID", word) for word in _LAST_IDS),
    *((b"LASTID", first, b"LASTID", second) for first, second in _LAST_IDS_TWICE),
)
_CASES = (bytes.upper, bytes.upper, bytes.lower, bytes.swapcase, lambda word: word.title())
_ORDERS = (0, 0, 1, 2, 3)


def _claims(times: Times) -> st.SearchStrategy[Words]:
    # Without FORCE what is not pending stays so, with it the PEL grows.
    options = any_of(
        (*[()] * 40, *times.dated),
        _COUNTED,
        (*[()] * 2, (b"FORCE",)),
        ((), (b"JUSTID",)),
        _RAISED,
    )
    return st.builds(
        _claim,
        any_of(CALLERS, times.min_idles),
        _some_ids(),
        options,
        any_of(_ORDERS, _CASES),
    )


def _claims_dated(times: Times) -> st.SearchStrategy[Words]:
    """One that gets what is there, with a time of its own."""
    usual = times.min_idles[0]
    forced = ((), (b"FORCE",), (b"FORCE", b"JUSTID"))
    drawn = any_of(CALLERS, (b"0", b"0", usual), times.dated, forced)
    ids = st.lists(st.sampled_from((*_ENTRIES, *_PARTIAL)), min_size=1, max_size=3)
    return st.builds(
        lambda chosen, ids: (b"XCLAIM", KEY, GROUP, *chosen[:2], *ids, *chosen[2], *chosen[3]),
        drawn,
        ids,
    )


def _claims_again(times: Times) -> st.SearchStrategy[Words]:
    """The same id once more in one command: refused, or idle enough again at once."""
    back = (*[((), times.min_idles[0])], *((words, times.min_idles[0]) for words in times.back))
    drawn = any_of(CALLERS, _ENTRIES, ((), (b"JUSTID",), (b"FORCE",)), (*back, ((), b"0")))
    return drawn.map(
        lambda chosen: (
            b"XCLAIM",
            KEY,
            GROUP,
            chosen[0],
            chosen[3][1],
            chosen[1],
            chosen[1],
            *chosen[3][0],
            *chosen[2],
        )
    )


def _claim(
    who: Words, ids: list[bytes], options: tuple[Words, ...], form: tuple[int, Any]
) -> Words:
    """`form`: where the options begin (they are turned round), and the case of their words."""
    turn, case = form
    chosen = [option for option in options if option]
    turned = chosen[turn % len(chosen) :] + chosen[: turn % len(chosen)] if chosen else []
    words = (word if at % 2 else case(word) for option in turned for at, word in enumerate(option))
    return (b"XCLAIM", KEY, GROUP, *who, *ids, *words)


def _some_ids() -> st.SearchStrategy[list[bytes]]:
    """Up to six ids (often pending ones), repeated ones among them; seldom none."""
    few = st.lists(st.sampled_from(_ID_WORDS), min_size=1, max_size=6)
    again = few.map(lambda ids: [*ids, ids[0]])
    return one_of(*[few] * 6, again, again, few.map(lambda ids: ids[::-1] * 2), st.just([]))


# ---- XPENDING, XACK, XDEL, XTRIM ----

_BOUNDS = (*_ENTRIES[:8], *_PARTIAL[:4], b"5", b"%d" % 2**63, b"%d-%d" % MAX_ID)
_FROM = (*[b"-"] * 24, *_BOUNDS, *(b"(" + word for word in _BOUNDS[:-1]))
_TO = (*[b"+"] * 24, *_BOUNDS, *(b"(" + word for word in _BOUNDS))
_ROWS = (
    b"1",
    b"1",
    b"2",
    b"2",
    *[b"100"] * 6,
    b"0",
    b"-1",
    b"%d" % MAX_I64,
    b"%d" % (-MAX_I64 - 1),
)
_OF = (*[()] * 4, *((name,) for name in (*OWNERS, b"new", b"nobody")))


def _ranges(times: Times) -> st.SearchStrategy[Words]:
    idles = (*[()] * 6, *product((b"IDLE", b"idle", b"Idle"), times.read_idles))
    return st.builds(
        lambda least, bounds, rest, more: (
            *(b"XPENDING", KEY, GROUP, *least, *bounds, rest[0], *rest[1]),
            # Without IDLE the server does not look behind the consumer.
            *(more if rest[1] and not least else ()),
        ),
        *(st.sampled_from(idles), any_of(_FROM, _TO), any_of(_ROWS, _OF)),
        st.sampled_from(((), (b"x",), (b"x", b"1"))),
    )


def _acks() -> st.SearchStrategy[Words]:
    return _some_ids().map(lambda ids: (b"XACK", KEY, GROUP, *(ids or [b"@entry0"])))


def _removals() -> Iterable[st.SearchStrategy[Words]]:
    gone = st.lists(
        st.sampled_from((*_ENTRIES, *_ANY_IDS[:24], *_ANY_IDS)), min_size=1, max_size=6
    ).map(lambda ids: (b"XDEL", KEY, *ids))
    newest = st.integers(0, 30).map(lambda kept: (b"XTRIM", KEY, b"MAXLEN", b"%d" % kept))
    lowest = st.sampled_from((*_ENTRIES, *_ANY_IDS))
    return gone, gone, gone, newest, lowest.map(lambda word: (b"XTRIM", KEY, b"MINID", word))


# ---- commands with faults ----

Fault = tuple[str, Words]
"""The part of a command that is bad, and its words."""


def _faults() -> Iterable[tuple[Mapping[str, Words], tuple[list[Fault], ...]]]:
    """Each command in its parts (all of it good), and what may stand there instead, by kind."""
    names = {"key": (KEY,), "group": (GROUP,)}
    unknown = _each("key", [b"nokey"]), _each("group", [b"nogroup"])
    behind = b"(%d-%d" % MAX_ID
    yield (
        {"command": (b"XAUTOCLAIM",), **names, "who": (b"new",), "idle": (b"0",), "start": (b"0",)},
        (
            *unknown,
            _each("idle", _BAD_INTEGERS),
            _each("start", (*_BAD_IDS, b"(", b"(-")),
            _each("start", [behind]),
            _each("options", [(b"COUNT", word) for word in (*_BAD_COUNTS, *_BAD_INTEGERS)]),
            _each(
                "options", [b"FORCE", b"5-1", b"x", (b"JUSTID", b"JUST"), (b"COUNT", b"1", b"2")]
            ),
            _each("options", [b"COUNT", b"count", (b"JUSTID", b"Count")]),
        ),
    )
    yield (
        {"command": (b"XCLAIM",), **names, "who": (b"new",), "idle": (b"0",), "ids": (b"@entry1",)},
        (
            *unknown,
            _each("idle", _BAD_INTEGERS),
            _each("ids", [(b"@entry1", word) for word in (*_BAD_IDS, *_NO_RANGE_ID)]),
            *(
                _each("options", [(name, word) for word in _BAD_INTEGERS])
                for name in (b"IDLE", b"Time", b"RETRYCOUNT")
            ),
            _each("options", [(b"LASTID", word) for word in (*_BAD_IDS, *_NO_RANGE_ID)]),
            _each("options", [(b"FORCE", b"5-1"), (b"IDLE", b"1", b"@entry2"), (b"JUSTID", b"5")]),
            _each("options", [b"IDLE", b"time", b"RETRYCOUNT", (b"FORCE", b"LASTID")]),
        ),
    )
    yield (
        {"command": (b"XPENDING",), **names, "from": (b"-",), "to": (b"+",), "rows": (b"9",)},
        (
            *unknown,
            _each("idle", [(b"IDLE", word) for word in _BAD_INTEGERS]),
            _each("rows", _BAD_INTEGERS),
            _each("from", (*_BAD_IDS, b"(", b"(+")),
            _each("from", [behind]),
            _each("to", (*_BAD_IDS, b"(-")),
            _each("to", [b"(0-0", b"(0"]),
            _each("rows", [(), (b"9", b"c", b"x", b"y", b"z")]),
            _each("idle", [(b"IDLE", b"1")]),
        ),
    )
    yield (
        {"command": (b"XACK",), **names, "ids": (b"@entry1", b"@entry2")},
        (
            *unknown,
            _each("ids", [(b"@entry1", word) for word in (*_BAD_IDS, *_NO_RANGE_ID)]),
            _each("ids", [(word, b"@entry1") for word in _BAD_IDS]),
        ),
    )


_BAD_COUNTS = (b"0", b"-1", b"%d" % (COUNT_MAX + 1))


def _each(part: str, words: Iterable[bytes | Words]) -> list[Fault]:
    return [(part, (word,) if isinstance(word, bytes) else word) for word in words]


_PARTS = ("command", "key", "group", "who", "idle", "start", "ids", "from", "to", "rows", "options")


def _with(parts: Mapping[str, Words], *faults: Fault) -> Words:
    by_part = {**parts, **dict(faults)}
    return tuple(chain.from_iterable(by_part.get(part, ()) for part in _PARTS))


def _bad(
    drawn: tuple[Mapping[str, Words], tuple[list[Fault], ...]],
) -> st.SearchStrategy[Words]:
    """A command with one fault, or with two (the first must be said), or with too few words."""
    good, kinds = drawn
    whole = _with(good)
    fault = one_of(*map(st.sampled_from, kinds))
    short = st.integers(1, len(whole) - 1).map(lambda number: whole[:number])
    single = fault.map(lambda wrong: _with(good, wrong))
    two = st.tuples(fault, fault).map(lambda both: _with(good, *both))
    return one_of(*[single] * 5, two, short)
