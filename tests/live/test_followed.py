"""How the answers of a server whose clock goes on are compared with the reference."""

from __future__ import annotations

import pytest

from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import Group, IdleRule, PendingEntry, Profile
from claimlib.semantics.words import Stream
from claimlib.testing.vectors import KEY, Step
from tests.live.followed import _difference_of_step

NOW_MS = 1_750_000_000_000


def shown_idle_of_two(older_ms: int, newer_ms: int | None) -> Step:
    """An `XPENDING … IDLE 3` at an instant when one entry has been idle for 10 ms, another for 1:
    what a server showed of both (null: it did not show the newer one)."""
    rows = [PendingEntry(StreamId(n, 0), b"c", NOW_MS - idle, 1) for n, idle in ((1, 10), (2, 1))]
    state = {KEY: Stream({}, {b"g": Group(StreamId(2, 0), tuple(rows), ())})}
    reply = [["1-0", "c", older_ms, 1]]
    if newer_ms is not None:
        reply.append(["2-0", "c", newer_ms, 1])
    command = (b"XPENDING", KEY, b"g", b"IDLE", b"3", b"-", b"+", b"9")
    return Step(
        *("", 1, NOW_MS, IdleRule.SERVER, Profile.REDIS_7_0, state, command, reply, state),
    )


@pytest.mark.parametrize(("older_ms", "newer_ms"), [(10, None), (11, None), (12, 3), (15, 6)])
def test_what_the_server_showed_at_any_instant_of_the_step_is_no_difference(older_ms, newer_ms):
    assert _difference_of_step(shown_idle_of_two(older_ms, newer_ms), NOW_MS + 5) is None


@pytest.mark.parametrize(("older_ms", "newer_ms"), [(9, None), (16, 7), (14, None), (10, 1)])
def test_what_it_can_have_shown_at_none_is_one(older_ms, newer_ms):
    difference = _difference_of_step(shown_idle_of_two(older_ms, newer_ms), NOW_MS + 5)
    assert difference is not None
    assert "XPENDING s g IDLE 3 - + 9" in difference
