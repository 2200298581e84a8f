"""Sequences of steps on a small stream with a group: what a real server is asked, drawn by
Hypothesis.

A step is the words of one command, as `played` sends them: `@now-5` stands for the server's instant
less 5 ms, `@cursor` for the cursor of the last XAUTOCLAIM.  Two words are no commands of a server:
SWEEP repeats the XAUTOCLAIM behind it until its cursor is 0-0, and DATE writes what no command can
write at that instant: when a pending entry was delivered, or a consumer was seen and active.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

from hypothesis import strategies as st

from claimlib.ids import MAX_ID, MAX_U64, StreamId
from claimlib.model import DELIVERY_COUNT_MAX, MAX_I64
from claimlib.testing.vectors import KEY

Words = tuple[bytes, ...]

GROUP = b"g"
OWNERS = (b"other", b"caller", b"\xff\\\n'")
CALLERS = (b"caller", b"caller", b"new", b"other", b"\xff\\\n'")

# Many that are near to each other, for pages; and where numbers stop being signed, or exact.
_EDGES = (0, 2**53, 2**53 + 1, 2**63 - 1, 2**63, MAX_U64)
_NEAR = [StreamId(5, seq) for seq in range(1, 25)]
_FAR = [StreamId(ms, seq) for ms, seq in product(_EDGES, _EDGES) if (ms, seq) != (0, 0)]
IDS = [*_NEAR, *(StreamId(1_750_000_000_000 + n, 0) for n in range(6)), *_FAR, *_FAR]

# What is listed twice is drawn twice as often.
MIN_IDLES = (*[b"60000"] * 4, b"1", b"0", b"0", b"-1", b"@now+0", b"%d" % MAX_I64)
_PAST = (
    *(b"@now-60001", b"@now-60000", b"@now-60000", b"@now-59999"),
    *(b"@now-2", b"@now-1", b"@now-0", b"0", b"1"),
)
# XCLAIM dates nothing into the future, DATE does.
_FUTURE = (b"@now+1", b"@now+60000", b"%d" % MAX_I64)
DELIVERED = (*_PAST, *_PAST, *_FUTURE)
_FRESH = (b"@now-59999", b"@now-0", b"@now-0", b"@now-1", b"@now+1")
DELIVERY_COUNTS = (1, 1, 0, 7, DELIVERY_COUNT_MAX - 1, DELIVERY_COUNT_MAX)

_NEVER = b"-1"
# When a consumer was seen, and was active; null: nobody made it before it owned something.
KNOWN = (
    None,
    None,
    (b"@now-1000", _NEVER),
    (b"@now-1000", b"@now-2000"),
    (b"@now+5", b"@now-9"),
)

# For a COUNT near the largest one a server has not enough memory.
COUNTS = (1, 1, 1, 2, 3, None, 100_000)
_SOME_IDS = (StreamId(5, 4), StreamId(5, 9), StreamId(2**63 - 1, 7), StreamId(2**63, 0), MAX_ID)
STARTS = (
    *(b"0-0", b"0-0", b"0-0", b"-", *[b"@cursor"] * 6),
    *(str(stream_id).encode() for stream_id in _SOME_IDS),
    *(b"(%d-%d" % stream_id for stream_id in _SOME_IDS[:-1]),
)


class Sequence:
    """What makes the stream and its group, and the steps on them.

    No dataclass: Hypothesis would print that as Python, one word per line.
    """

    def __init__(self, setup: Iterable[Words], steps: Iterable[Words]) -> None:
        self.setup = tuple(setup)
        self.steps = tuple(steps)

    def __repr__(self) -> str:
        return "\n".join(["", *map(text_of_words, (*self.setup, *self.steps)), ""])


def text_of_words(words: Words) -> str:
    """A command as people read it; a word that is not plain is quoted, and its bytes escaped."""
    return " ".join(
        word.decode() if re.fullmatch(rb"[!-~]+", word) else repr(word)[1:] for word in words
    )


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry as it is drawn.  `owner`: null: it is not pending."""

    id: StreamId
    is_present: bool
    owner: bytes | None
    delivered: bytes
    count: int


def _any_of(*choices: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    """One of each, drawn as ONE number: of a list Hypothesis leaves out what is up to five."""
    drawn = list(product(*choices))
    return st.integers(0, len(drawn) - 1).map(lambda number: drawn[number])


def _one_of(*strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """One of them; `st.one_of` draws one that is listed twice no more often than the others."""
    return st.sampled_from(strategies).flatmap(lambda strategy: strategy)


def _any_entry() -> st.SearchStrategy[_Entry]:
    owned = _any_of((True, True, False), (*OWNERS, None))
    delivery = _any_of(DELIVERED, DELIVERY_COUNTS)
    return st.builds(
        lambda stream_id, is_owned, delivered: _Entry(stream_id, *is_owned, *delivered),
        *(st.sampled_from(IDS), owned, delivery),
    )


def _fresh_entries(length: int) -> st.SearchStrategy[list[_Entry]]:
    """So many in a row (seldom fewer) that are fresh: only they use up the budget of a page."""
    state = _any_of(OWNERS, _FRESH, DELIVERY_COUNTS)
    # The first is no entry, so that a row shrinks to the entries that matter.
    slot = _one_of(st.none(), *[state] * 40)
    return st.tuples(*[slot] * length).map(
        lambda states: [
            _Entry(stream_id, True, *state)
            for stream_id, state in zip(_NEAR, states, strict=False)
            if state is not None
        ]
    )


def _steps() -> st.SearchStrategy[list[Words]]:
    page = st.builds(
        lambda who, min_idle, where: _page(*who, min_idle, *where),
        *(_any_of(CALLERS, (False, True)), st.sampled_from(MIN_IDLES), _any_of(STARTS, COUNTS)),
    )
    # Of fresh entries in a row it examines ten.
    fresh = st.builds(lambda who: _page(*who, b"60000", b"0-0", 1), _any_of(CALLERS, (False, True)))
    sweep = page.map(lambda words: (b"SWEEP", *words))
    stream_id = st.sampled_from(IDS).map(lambda one: str(one).encode())
    near_id = st.sampled_from([*_NEAR, *_NEAR, *IDS]).map(lambda one: str(one).encode())
    delete = st.lists(near_id, min_size=1, max_size=6).map(lambda ids: (b"XDEL", KEY, *ids))
    newest = st.integers(0, 30).map(lambda kept: (b"XTRIM", KEY, b"MAXLEN", b"%d" % kept))
    from_id = stream_id.map(lambda lowest: (b"XTRIM", KEY, b"MINID", lowest))
    step = _one_of(*[page] * 12, fresh, fresh, sweep, sweep, *[delete] * 3, newest, from_id)
    return st.lists(step, min_size=1, max_size=8)


def _page(caller: bytes, justid: bool, min_idle: bytes, start: bytes, count: int | None) -> Words:
    counted = () if count is None else (b"COUNT", b"%d" % count)
    as_ids = (b"JUSTID",) if justid else ()
    return (b"XAUTOCLAIM", KEY, GROUP, caller, min_idle, start, *counted, *as_ids)


def _setup(entries: list[_Entry], dates: dict[bytes, tuple[bytes, bytes]]) -> Iterator[Words]:
    yield (b"XGROUP", b"CREATE", KEY, GROUP, b"0", b"MKSTREAM")
    for name in dates:
        yield (b"XGROUP", b"CREATECONSUMER", KEY, GROUP, name)
    for entry in entries:
        stream_id = str(entry.id).encode()
        yield (b"XADD", KEY, stream_id, b"id", stream_id, b"f", b"\xff\0", b"f", b"")
        if entry.owner is not None:
            yield from _delivery(entry, stream_id)
    for name, dated in dates.items():
        yield (b"DATE", KEY, b"CONSUMER", name, *dated)
    gone = [str(entry.id).encode() for entry in entries if not entry.is_present]
    if gone:
        yield (b"XDEL", KEY, *gone)


def _delivery(entry: _Entry, stream_id: bytes) -> Iterator[Words]:
    is_past = entry.delivered in _PAST
    time = entry.delivered if is_past else b"@now+0"
    claim = (b"XCLAIM", KEY, GROUP, entry.owner, b"0", stream_id, b"TIME", time)
    yield (*claim, b"RETRYCOUNT", b"%d" % entry.count, b"FORCE", b"JUSTID")
    if not is_past:
        yield (b"DATE", KEY, b"PENDING", stream_id, entry.delivered)


# Made once: what is made anew for each sequence takes longer than the server does.
_SOME = st.lists(_any_entry(), max_size=16)
_FRESH_ROW = _one_of(*map(_fresh_entries, (10, 10, 11, 20, len(_NEAR))))
_BOTH = st.tuples(_FRESH_ROW, _SOME).map(chain.from_iterable)
_ENTRIES = _one_of(_SOME, _SOME, _FRESH_ROW, _FRESH_ROW, _BOTH)
_KNOWN = st.tuples(*(st.sampled_from(KNOWN) for _ in OWNERS))
_STEPS = _steps()


@st.composite
def sequences(draw: st.DrawFn) -> Sequence:
    """Sequences; the simplest is one page of an empty stream."""
    entries = {drawn.id: drawn for drawn in draw(_ENTRIES)}
    known = zip(OWNERS, draw(_KNOWN), strict=True)
    setup = _setup(
        [entries[stream_id] for stream_id in sorted(entries)],
        {name: dates for name, dates in known if dates is not None},
    )
    return Sequence(setup, draw(_STEPS))
