"""Sequences on a server with the reference behind it, step by step; and the tally of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, dataclass, field, is_dataclass, replace
from itertools import chain, pairwise
from typing import Any

from hypothesis import HealthCheck, given, seed, settings

from claimlib.semantics import scan
from claimlib.semantics.ids import END_OF_SCAN, StreamId, parse_id
from claimlib.semantics.model import AutoclaimReply, Profile
from claimlib.semantics.words import Stream
from claimlib.testing.vectors import KEY, Step, by_reference
from tests.live.branches import Branch, branches, expected, is_of_sweep, parsed
from tests.live.played import Played, Sent, play, play_on
from tests.live.sequences import Sequence, sequences, text_of_words
from tests.live.times import GOING, STANDING
from tests.live.wire import Wire

LEAST = 20  # of each branch
_WAYS: Mapping[Profile, tuple[Any, Callable[[Wire, Sequence], Played]]] = {
    Profile.REDIS_7_2: (STANDING, play),
    Profile.REDIS_7_0: (GOING, play_on),
}


@dataclass
class Tally:
    """What was played: how much of it, and what the tables are to repeat.

    Attributes:
        profile: whose branches must be reached.
        in_tables: of each command of which the tables get steps: how often they are to reach each
            of its branches, too.
    """

    profile: Profile
    in_tables: Mapping[str, int] = field(default_factory=dict)
    sequences: int = 0
    commands: Counter[str] = field(default_factory=Counter)
    branches: Counter[Branch] = field(default_factory=Counter)
    steps: list[Step] = field(default_factory=list)
    branches_of_steps: Counter[Branch] = field(default_factory=Counter)

    def add(self, played: Played) -> None:
        """Counts a sequence in."""
        self.sequences += 1
        self.commands.update(sent.words[0].decode() for sent in played.sent)
        reached = branches(played)
        self.branches.update(chain.from_iterable(reached))
        for places, step in played.answered(f"sequence {self.sequences}"):
            met = chain.from_iterable(reached[place] for place in places)
            self._offer(
                step, Counter(branch for branch in met if step.is_sweep or not is_of_sweep(branch))
            )

    def _offer(self, step: Step, reached: Counter[Branch]) -> None:
        """The tables get a step that reaches what they have not reached often enough."""
        if any(
            self.branches_of_steps[branch] < self.in_tables.get(branch[0], 0) for branch in reached
        ):
            self.steps.append(step)
            self.branches_of_steps.update(reached)

    @property
    def expected(self) -> list[Branch]:
        """The branches that must be reached."""
        return expected(self.profile)

    def table(self) -> str:
        """How often each branch was reached, and how often of that in the tables."""
        return "\n".join(
            f"{self.branches[branch]:7} {self.branches_of_steps[branch]:7} {': '.join(branch)}"
            for branch in self.expected
        )

    def missed(self) -> list[Branch]:
        """The branches that were not reached often enough, or not in the tables."""
        return [
            branch
            for branch in self.expected
            if self.branches[branch] < LEAST
            or self.branches_of_steps[branch] < self.in_tables.get(branch[0], 0)
        ]


def follow_all(
    wire: Wire,
    number: int,
    drawn_by: int,
    profile: Profile = Profile.REDIS_7_2,
    in_tables: Mapping[str, int] | None = None,
) -> Tally:
    """So many sequences of a seed through server and reference."""
    tally = Tally(profile, in_tables or {})
    times, play_here = _WAYS[profile]

    @seed(drawn_by)
    @settings(
        max_examples=number,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(sequence=sequences(times))
    def follow(sequence: Sequence) -> None:
        played = play_here(wire, sequence)
        differences = list(differences_of(played))
        assert not differences, "\n".join([*differences, *text_of_played(played)])
        tally.add(played)

    follow()
    assert tally.sequences >= number
    return tally


def text_of_played(played: Played) -> list[str]:
    """What was sent to the server, as people read it."""
    return [
        f"From {played.now_ms} ms (@now) on:",
        *(f"  {text_of_words(command)}" for command in played.sequence.setup),
        *(f"  {sent.number}> {text_of_words(sent.words)}" for sent in played.sent),
    ]


# ---- the reference, step by step ----


def differences_of(played: Played) -> Iterator[str]:
    """Where the reference says something else than the server."""
    for places, step in played.answered("step"):
        last_ms = played.sent[places[-1]].between_ms[1]
        difference = _difference_of_step(step, last_ms)
        if difference is not None:
            yield f"{step.name}: {difference}"
        if step.is_sweep and last_ms == step.now_ms:
            yield from _differences_of_sweep(step)
    for sent in played.sent:
        if sent.words[0] in _KEPT:
            yield from _differences_of_removal(sent)


def _difference_of_step(step: Step, last_ms: int) -> str | None:
    """The server did it at an instant from the step's on, up to the last one: each time that it
    tells lies between those that the reference tells at the first and at the last.  Where a row is
    idle enough for an XPENDING at the last instant only, it shows what it does at one between."""
    if last_ms == step.now_ms:
        return step.difference(by_reference(step))
    instants = range(step.now_ms, last_ms + 1)
    told = [by_reference(replace(step, now_ms=now_ms)) for now_ms in instants]
    between = [(told[0], told[-1]), *zip(told, told, strict=True), *pairwise(told)]
    fits = any(_is_between(first, step.expected, last) for first, last in between)
    return None if fits else step.difference(told[0])


def _is_between(first: Any, value: Any, last: Any) -> bool:
    """Whether three values are the same but for their numbers, and those ascend."""
    if is_dataclass(value):
        return _is_between(astuple(first), astuple(value), astuple(last))
    if isinstance(value, Mapping):
        return first.keys() == value.keys() == last.keys() and all(
            _is_between(first[key], value[key], last[key]) for key in value
        )
    if isinstance(value, list | tuple):
        alike = type(first) is type(value) is type(last) and len(first) == len(value) == len(last)
        return alike and all(map(_is_between, first, value, last))
    if isinstance(value, int):
        return isinstance(first, int) and isinstance(last, int) and first <= value <= last
    return bool(first == value == last)


def _differences_of_sweep(step: Step) -> Iterator[str]:
    """A sweep as one request without a count, beside the calls that it is on the server."""
    stream, (_, name, request) = step.before[KEY], parsed(step.command)
    decided = scan.xautoclaim(
        stream.groups[name],
        replace(request, count=None, profile=step.profile),
        step.now_ms,
        stream.entries,
    )
    _, claimed, deleted = step.reply
    ids = [
        tuple(parse_id(row if isinstance(row, str) else row[0]) for row in rows)
        for rows in (claimed, deleted)
    ]
    expected = (step.after[KEY].groups[name], AutoclaimReply(END_OF_SCAN, *ids))
    if decided != expected:
        yield f"{step.name}, without a count:\n  expected {expected}\n  found    {decided}"


def _differences_of_removal(sent: Sent) -> Iterator[str]:
    kept = _KEPT[sent.words[0]](sent.before.entries, sent.words)
    entries = {stream_id: sent.before.entries[stream_id] for stream_id in kept}
    computed = (len(sent.before.entries) - len(kept), Stream(entries, sent.before.groups))
    if computed != (sent.reply, sent.after):
        yield f"{text_of_words(sent.words)}:\n  expected {sent}\n  found    {computed}"


def _kept_by_xdel(entries: Mapping[StreamId, object], command: tuple[bytes, ...]) -> set[StreamId]:
    return set(entries) - set(map(parse_id, command[2:]))


def _kept_by_xtrim(entries: Mapping[StreamId, object], command: tuple[bytes, ...]) -> set[StreamId]:
    _, _, how, bound = command
    if how == b"MINID":
        return {stream_id for stream_id in entries if stream_id >= parse_id(bound)}
    newest_first = sorted(entries, reverse=True)
    return set(newest_first[: int(bound)])


_KEPT = {b"XDEL": _kept_by_xdel, b"XTRIM": _kept_by_xtrim}


# ---- for the long forms ----


def version_of(wire: Wire, field: bytes) -> str:
    """The server's version, as a field of its INFO tells it."""
    (info,) = wire.ask((b"INFO", b"server"))
    told = dict(line.split(b":", 1) for line in info.splitlines() if b":" in line)
    return told[field].decode()
