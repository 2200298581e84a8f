"""The recorded steps that a sweep must repeat, each as a stream of its own.

A sweep is XAUTOCLAIM repeated with the returned cursor until it is 0-0.  So a step whose reply has
the cursor 0-0 was the whole sweep from its start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from claimlib.model import SCAN_BUDGET_FACTOR, AutoclaimRequest, IdleRule
from claimlib.words import Stream, parse_xautoclaim
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
        return cls(b"vector:%d" % number, group, sweep, request.count, step)

    @property
    def ended_by(self) -> str:
        """What ended the call: always the end of the PEL, and maybe just then a limit too."""
        pending = self.before.groups[self.group].pending
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
    def before(self) -> Stream:
        return self.step.before[KEY]

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
