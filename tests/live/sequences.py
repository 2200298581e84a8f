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
from functools import cache
from itertools import chain

from hypothesis import strategies as st

from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import DELIVERY_COUNT_MAX
from claimlib.testing.vectors import KEY
from tests.live import commands
from tests.live.commands import GROUP, IDS, NEAR, OWNERS, any_of, one_of
from tests.live.times import STANDING, Times, Words

DELIVERY_COUNTS = (1, 1, 0, 7, DELIVERY_COUNT_MAX - 1, DELIVERY_COUNT_MAX)


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


def _any_entry(times: Times) -> st.SearchStrategy[_Entry]:
    owned = any_of((True, True, False), (*OWNERS, None))
    delivery = any_of(times.delivered, DELIVERY_COUNTS)
    return st.builds(
        lambda stream_id, is_owned, delivered: _Entry(stream_id, *is_owned, *delivered),
        *(st.sampled_from(IDS), owned, delivery),
    )


def _fresh_entries(length: int, times: Times) -> st.SearchStrategy[list[_Entry]]:
    """So many in a row (seldom fewer) that are fresh: only they use up the budget of a page."""
    state = any_of(OWNERS, times.fresh, DELIVERY_COUNTS)
    # The first is no entry, so that a row shrinks to the entries that matter.
    slot = one_of(st.none(), *[state] * 40)
    return st.tuples(*[slot] * length).map(
        lambda states: [
            _Entry(stream_id, True, *state)
            for stream_id, state in zip(NEAR, states, strict=False)
            if state is not None
        ]
    )


def _setup(
    entries: list[_Entry], dates: dict[bytes, tuple[bytes, bytes]], times: Times
) -> Iterator[Words]:
    yield (b"XGROUP", b"CREATE", KEY, GROUP, b"0", b"MKSTREAM")
    for name in dates:
        yield (b"XGROUP", b"CREATECONSUMER", KEY, GROUP, name)
    for entry in entries:
        stream_id = str(entry.id).encode()
        yield (b"XADD", KEY, stream_id, b"id", stream_id, b"f", b"\xff\0", b"f", b"")
        if entry.owner is not None:
            yield from _delivery(entry, stream_id, times)
    for name, dated in dates.items():
        yield (b"DATE", KEY, b"CONSUMER", name, *dated)
    gone = [str(entry.id).encode() for entry in entries if not entry.is_present]
    if gone:
        yield (b"XDEL", KEY, *gone)


def _delivery(entry: _Entry, stream_id: bytes, times: Times) -> Iterator[Words]:
    is_past = entry.delivered in times.past
    time = entry.delivered if is_past else b"@now+0"
    claim = (b"XCLAIM", KEY, GROUP, entry.owner, b"0", stream_id, b"TIME", time)
    yield (*claim, b"RETRYCOUNT", b"%d" % entry.count, b"FORCE", b"JUSTID")
    if not is_past:
        yield (b"DATE", KEY, b"PENDING", stream_id, entry.delivered)


@cache
def _drawn(times: Times) -> tuple[st.SearchStrategy, ...]:
    """Entries, consumers and steps.  Made once: what is made again for each sequence takes longer
    than the server does."""
    some = st.lists(_any_entry(times), max_size=16)
    fresh_row = one_of(*(_fresh_entries(length, times) for length in (10, 10, 11, 20, len(NEAR))))
    both = st.tuples(fresh_row, some).map(chain.from_iterable)
    known = st.tuples(*(st.sampled_from(times.known) for _ in OWNERS))
    return one_of(*[some] * 3, fresh_row, fresh_row, both), known, commands.steps(times)


@st.composite
def sequences(draw: st.DrawFn, times: Times = STANDING) -> Sequence:
    """Sequences; the simplest is one page of an empty stream."""
    some_entries, some_known, some_steps = _drawn(times)
    entries = {drawn.id: drawn for drawn in draw(some_entries)}
    known = zip(OWNERS, draw(some_known), strict=True)
    ids = sorted(entries)
    setup = _setup(
        [entries[stream_id] for stream_id in ids],
        {name: dates for name, dates in known if dates is not None},
        times,
    )
    return Sequence(setup, [_with_ids(words, ids) for words in draw(some_steps)])


_ENTRY = re.compile(rb"(\(?)@entry([0-9]+)(~?)")


def _with_ids(words: Words, ids: list[StreamId]) -> Words:
    """The words with ids of the stream for `@entry3` and `@entry3~` (see `commands`)."""

    def put(match: re.Match[bytes]) -> bytes:
        stream_id = ids[int(match[2]) % len(ids)] if ids else NEAR[int(match[2])]
        is_short = match[3] and stream_id.seq == 0
        return match[1] + (b"%d" % stream_id.ms if is_short else str(stream_id).encode())

    return tuple(_ENTRY.sub(put, word) if b"@entry" in word else word for word in words)
