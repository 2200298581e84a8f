"""Counters of streams over random lives, against a model that knows which life an entry is of."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimlib.semantics.ids import MIN_ID, StreamId
from claimlib.semantics.stream_life import MissingEntries, StreamCounters, is_other_stream


@dataclass(frozen=True)
class Life:
    """A stream as a server keeps it; `number` tells one life from another."""

    number: int
    ids: frozenset[int] = frozenset()
    last: int = 0
    added: int = 0
    max_deleted: int = 0

    def counters(self) -> StreamCounters:
        first = min(self.ids, default=0)
        ids = (StreamId(ms, 0) for ms in (self.last, first, self.max_deleted))
        last, first_id, max_deleted = ids
        return StreamCounters(len(self.ids), last, self.added, first_id, max_deleted)

    def add(self, id_: int) -> Life:
        return replace(self, ids=self.ids | {id_}, last=id_, added=self.added + 1)

    def delete(self, id_: int) -> Life:
        if id_ not in self.ids:
            return self
        return replace(self, ids=self.ids - {id_}, max_deleted=max(id_, self.max_deleted))

    def trim(self, length: int) -> Life:
        kept = sorted(self.ids)[max(len(self.ids) - length, 0) :]
        return replace(self, ids=frozenset(kept))


@dataclass
class Server:
    """One key over time; ids are taken from a clock, which outlives the key."""

    life: Life = field(default_factory=lambda: Life(0))
    lives: int = 1
    clock: int = 0
    dump: Life | None = None

    def play(self, step: tuple[str, int]) -> None:
        name, number = step
        if name == "add":
            for _ in range(number):
                self.clock += 1
                self.life = self.life.add(self.clock)
        elif name == "delete" and self.life.ids:
            self.life = self.life.delete(sorted(self.life.ids)[number % len(self.life.ids)])
        elif name == "trim":
            self.life = self.life.trim(number)
        elif name == "recreate":
            self.life, self.lives = Life(self.lives), self.lives + 1
        elif name == "dump":
            self.dump = self.life
        elif name == "restore" and self.dump is not None:
            self.life, self.lives = replace(self.dump, number=self.lives), self.lives + 1


def missing(known: frozenset[int], now: Life) -> MissingEntries:
    gone = known - now.ids
    return MissingEntries(len(gone), StreamId(max(gone, default=0), 0))


WITHIN_A_LIFE = st.tuples(st.sampled_from(["add", "add", "delete", "trim"]), st.integers(1, 6))
ANY_STEP = st.one_of(
    WITHIN_A_LIFE, st.tuples(st.sampled_from(["recreate", "dump", "restore"]), st.just(0))
)


def read(server: Server, low: int, high: int) -> tuple[Life, frozenset[int]]:
    """Return the stream, and those of its ids that lie in a span."""
    return server.life, frozenset(id_ for id_ in server.life.ids if low <= id_ <= high)


@given(st.lists(ANY_STEP, max_size=30), st.lists(WITHIN_A_LIFE, max_size=30), st.data())
def test_a_stream_that_goes_on_is_never_taken_for_another_one(before, after, data):
    server = Server()
    for step in before:
        server.play(step)
    bounds = sorted(data.draw(st.tuples(st.integers(0, 60), st.integers(0, 60))))
    then, known = read(server, *bounds)
    for step in after:
        server.play(step)
    assert (
        is_other_stream(then.counters(), server.life.counters(), missing(known, server.life))
        is False
    )


@given(st.lists(ANY_STEP, max_size=20), st.lists(ANY_STEP, max_size=20), st.data())
def test_rows_of_an_earlier_life_never_vanish_unless_an_honest_stream_could_look_the_same(
    before, after, data
):
    server = Server()
    for step in before:
        server.play(step)
    bounds = sorted(data.draw(st.tuples(st.integers(0, 40), st.integers(0, 40))))
    then, known = read(server, *bounds)
    for step in after:
        server.play(step)
    now = server.life
    seen = is_other_stream(then.counters(), now.counters(), missing(known, now))
    if now.number == then.number:
        assert seen is False
    elif len(then.ids) + now.added <= 14:
        assert seen is not could_be_honest(then, known, now)


def could_be_honest(then: Life, known: frozenset[int], now: Life) -> bool:
    """Return True if XADD, XDEL and XTRIM can lead from some stream with the counters and the known
    entries of `then` to some stream with the counters of `now` that lacks the same ones.

    The ids of unknown entries are free.  So all numbers of them are tried: of old ones that end up
    below the first entry, and above it, kept or lost, and of new ones that are lost.
    """
    added, unknown = now.added - then.added, len(then.ids) - len(known)
    if added < 0 or now.last < then.last or (now.last > then.last) != (added > 0):
        return False
    splits = itertools.product(range(unknown + 1), range(unknown + 1), range(added + 1), (0, 1))
    return any(
        _leads_to(then, known, now, kept, lost, lost_new, unknown_first)
        for kept, lost, lost_new, unknown_first in splits
        if kept + lost + unknown_first <= unknown  # the others were below the first entry
    )


def _leads_to(then, known, now, kept, lost, lost_new, unknown_first) -> bool:
    """Return True if this is possible with the given numbers of unknown old entries kept and lost
    above the first entry, of new entries lost, and with an unknown old first entry or not."""
    first, old_left, gone = min(now.ids, default=0), known & now.ids, known - now.ids
    new_left = now.added - then.added - lost_new
    if len(old_left) + kept + unknown_first + new_left != len(now.ids):
        return False
    if not now.ids:
        return lost == 0
    deletes_new = now.max_deleted > then.last
    if first > then.last:
        return not (old_left or kept or lost or unknown_first) and lost_new >= deletes_new
    is_there = unknown_first != (first in old_left) and min(old_left, default=first) >= first
    # Above an old first entry only XDEL deletes.
    by_xdel = max((id_ for id_ in gone if id_ > first), default=0)
    most_deleted = max(by_xdel, (first + 1) if lost else 0)
    fits = lost_new >= 1 if deletes_new else not lost_new and most_deleted <= now.max_deleted
    return is_there and fits


def test_the_case_that_removed_all_rows_of_a_flushed_server():
    before = StreamCounters(52, StreamId(52, 0), 52, StreamId(1, 0), MIN_ID)
    again = StreamCounters(57, StreamId(160, 0), 60, StreamId(101, 0), StreamId(103, 0))
    assert is_other_stream(before, again, MissingEntries(52, StreamId(52, 0))) is True


@pytest.mark.parametrize("which", ["before", "now"])
def test_without_entries_added_only_a_smaller_last_id_tells(which):
    counters = {name: StreamCounters(3, StreamId(9, 0), 3) for name in ("before", "now")}
    counters[which] = replace(counters[which], entries_added=None)
    assert is_other_stream(**counters, missing=MissingEntries(3, StreamId(3, 0))) is None
    counters["now"] = replace(counters["now"], last_generated_id=StreamId(8, 0))
    assert is_other_stream(**counters, missing=MissingEntries()) is True


def test_without_first_and_deleted_ids_deletions_are_counted_only():
    before = StreamCounters(8, StreamId(8, 0), 8)
    now = StreamCounters(6, StreamId(10, 0), 10)
    assert is_other_stream(before, now, MissingEntries(4, StreamId(8, 0))) is False
    assert is_other_stream(before, now, MissingEntries(5, StreamId(8, 0))) is True


def counters(length, last, added, first, max_deleted):
    """Counters by numbers; the ids are of these milliseconds, and None is unknown."""
    last_id, first_id, max_deleted_id = (
        None if ms is None else StreamId(ms, 0) for ms in (last, first, max_deleted)
    )
    return StreamCounters(length, last_id, added, first_id, max_deleted_id)


FIVE = counters(5, 5, 5, 1, 0)  # the ids 1 to 5


@pytest.mark.parametrize(
    ("now", "missing", "is_other"),
    [
        # The numbers of added and deleted entries.
        (counters(5, 5, 5, 1, 0), (0, 0), False),
        (counters(3, 5, 4, 1, 0), (0, 0), True),  # fewer were added
        (counters(5, 6, 5, 1, 0), (0, 0), True),  # a new last id without a new entry
        (counters(6, 5, 6, 1, 0), (0, 0), True),  # a new entry without a new last id
        (counters(4, 5, 5, 2, 0), (2, 2), True),  # more are missing than were deleted
        # All five old entries are gone, also those that the earlier reading did not have.
        (counters(3, 8, 8, 6, 0), (2, 2), False),
        (counters(5, 9, 9, 6, 0), (2, 2), True),
        # XDEL deleted a new entry, so one more than those that are missing.
        (counters(5, 7, 7, 2, 6), (1, 1), False),
        (counters(6, 7, 7, 2, 6), (1, 1), True),
        # The largest missing id: trimmed, or deleted by XDEL, or neither.
        (counters(4, 5, 5, 2, 0), (1, 1), False),
        (counters(4, 5, 5, 1, 2), (1, 2), False),
        (counters(4, 5, 5, 1, 0), (1, 2), True),
        (counters(4, 5, 5, 2, 0), (1, 2), True),
        (counters(0, 5, 5, 0, 0), (5, 5), False),  # all were trimmed
        (counters(1, 5, 5, 5, 0), (4, 5), True),
        (counters(4, 5, 5, None, 1), (1, 2), False),
        (counters(4, 5, 5, 1, None), (1, 2), False),
        # As many entries were deleted as there were, but the first one is old.
        (counters(1, 6, 6, 5, 4), (0, 0), True),
        (counters(1, 6, 6, 5, 6), (0, 0), False),  # XDEL deleted the new entry, and four old ones
        (counters(1, 7, 7, 5, 6), (5, 4), True),
        (counters(1, 6, 6, None, 4), (0, 0), False),
        (counters(1, 6, 6, 5, None), (0, 0), False),
    ],
)
def test_what_the_counters_prove(now, missing, is_other):
    count, last_ms = missing
    assert is_other_stream(FIVE, now, MissingEntries(count, StreamId(last_ms, 0))) is is_other
