"""What a real server answered, through the tables: every recorded step that a sweep must repeat.

A sweep is XAUTOCLAIM repeated with the returned cursor until it is 0-0.  So a step whose reply has
the cursor 0-0 was the whole sweep from its start, and the tables must show just what the server
did.  All steps are one run: each is a stream of its own, in the state before it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace

from claimlib.commands.xautoclaim import xautoclaim
from claimlib.ids import MIN_ID, parse_id
from claimlib.model import SCAN_BUDGET_FACTOR, AutoclaimRequest, IdleRule
from claimlib.names import unspell
from claimlib.testing.tables import read_groups, write_keyspace
from claimlib.words import parse_xautoclaim
from tests.request_table import request_table
from tests.unit.vector_cases import FILES, KEY, Step, steps

END = "0-0"


@dataclass(frozen=True)
class Sweep:
    """One step, as a stream of the store and a request."""

    stream: bytes
    group: bytes
    request: AutoclaimRequest
    count: int
    step: Step

    @classmethod
    def of(cls, number: int, step: Step) -> Sweep:
        key, group, request = parse_xautoclaim(step.command)
        assert key == KEY
        sweep = replace(request, count=None, idle_rule=IdleRule.SERVER)
        return cls(b"s:%d" % number, group, sweep, request.count, step)

    @property
    def ended_by(self) -> str:
        """What ended the call: always the end of the PEL, and maybe just then a limit too."""
        pending = self.step.before[KEY].groups[self.group].pending
        examined = sum(entry.id >= self.request.start for entry in pending)
        assert examined <= SCAN_BUDGET_FACTOR * self.count
        if examined == SCAN_BUDGET_FACTOR * self.count:
            return "budget just used up"
        return "COUNT just used up" if self.hits == self.count else "no limit near"

    @property
    def hits(self) -> int:
        _, claimed, deleted = self.step.reply
        return len(claimed) + len(deleted)

    @property
    def claimed(self) -> list[tuple[str, list[tuple[bytes, bytes]] | None]]:
        """The recorded entries as the reply's frame has them."""
        if self.request.justid:
            return [(stream_id, None) for stream_id in self.step.reply[1]]
        return [
            (
                stream_id,
                list(zip(*[iter(text.encode("ascii") for text in fields)] * 2, strict=True)),
            )
            for stream_id, fields in self.step.reply[1]
        ]


STEPS = [step for file in FILES for step in steps(file, "XAUTOCLAIM")]
SWEEPS = [
    Sweep.of(number, step)
    for number, step in enumerate(STEPS)
    if step.error is None and step.reply[0] == END
]


def test_each_recorded_step_that_was_a_whole_sweep_is_among_them():
    assert Counter(sweep.ended_by for sweep in SWEEPS) == {
        "no limit near": 136,
        "COUNT just used up": 11,
        "budget just used up": 1,
    }
    left = [step for step in STEPS if step.error is None and step.reply[0] != END]
    assert (len(STEPS), len(SWEEPS), len(left)) == (277, 148, 112)
    assert sum(sweep.request.justid for sweep in SWEEPS) == 35
    assert sum(sweep.request.start > MIN_ID for sweep in SWEEPS) == 67


def test_one_run_over_all_recorded_steps_leaves_and_replies_what_the_server_did(store, spark):
    write_keyspace(
        store,
        {sweep.stream: sweep.step.before[KEY] for sweep in SWEEPS},
        {sweep.stream: sweep.step.now_ms for sweep in SWEEPS},
    )
    requests = {(sweep.stream, sweep.group): sweep.request for sweep in SWEEPS}

    reply = xautoclaim(store, request_table(spark, requests))

    after = read_groups(store)
    claimed, deleted = by_stream(reply.claimed, "fields"), by_stream(reply.deleted)
    for sweep in SWEEPS:
        assert after.pop(sweep.stream) == sweep.step.after[KEY].groups, sweep.step.name
        assert claimed.pop(sweep.stream, []) == sweep.claimed, sweep.step.name
        deleted_ids = [stream_id for (stream_id,) in deleted.pop(sweep.stream, [])]
        assert deleted_ids == sweep.step.reply[2], sweep.step.name
    assert (after, claimed, deleted) == ({}, {}, {})
    assert reply.counts == {
        "claimed": 480,
        "deleted": 219,
        "lost": 0,
        "gone": 0,
        "swept": 148,
        "refused": 0,
    }


def by_stream(rows, *columns):
    """Per stream the ids of a reply's frame, in order, with some of its columns."""
    found = defaultdict(list)
    for row in rows.select("stream", "id", *columns).collect():
        found[unspell(row["stream"])].append(tuple(row[1:]))
    return {
        stream: sorted(values, key=lambda value: parse_id(value[0]))
        for stream, values in found.items()
    }
