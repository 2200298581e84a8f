"""Whole sequences of steps against a real server: the reference follows each of them, and one Spark
run repeats each XAUTOCLAIM and each sweep on the state that the server had before it."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis
from hypothesis import HealthCheck, given, seed, settings

from claimlib import scan, words
from claimlib.ids import END_OF_SCAN, StreamId, parse_id
from claimlib.model import AutoclaimReply, AutoclaimRequest, IdleRule
from claimlib.testing.server import valkey_server
from claimlib.testing.vectors import KEY, Step, by_reference
from claimlib.words import Stream
from tests.batches import Case
from tests.live.played import Played, Sent, play
from tests.live.sequences import Sequence, sequences, text_of_words

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEQUENCES = 1_000
IN_TABLES = 250
SEED = 3  # the long form makes one up; --hypothesis-seed repeats it
LONG_SEQUENCES = 10_000
LONG_IN_TABLES = 1_500
LEAST = 20  # of each branch
LONG_REPORT = Path(__file__).parents[2] / "test-long.json"

# Every one must be reached.  The first are those of `tests.batches` that a server knows.
BRANCHES = (
    "dangling and idle",
    "dangling and fresh",
    "dangling, owned by the caller",
    "claimed over min-idle",
    "claimed, one ms over",
    "claimed at equality (server)",
    "claimed at min-idle 0",
    "claimed at min-idle 0, future delivery",
    "claimed from oneself",
    "claimed at the highest count",
    "claimed with JUSTID",
    "claimed without JUSTID",
    "claimed beyond signed numbers",
    "left, one ms short",
    "left fresh",
    "before the start",
    "at the start exactly",
    "left, future delivery",
    "claimed again at one instant",
    "dangling since a delete",
    "dangling since a trim",
    "dangling beyond signed numbers",
    "page to the end",
    "page to the end by COUNT",
    "page to the end by its budget",
    "page ended by COUNT",
    "page ended by its budget",
    "page from the last cursor",
    "page of nothing",
    "sweep of one call",
    "sweep of several calls",
    "caller created, nothing claimed",
    "caller created, active",
    "caller known, nothing claimed",
    "caller known, active for the first time",
    "caller known, active again",
    "a delete of something",
    "a trim of something",
)


@dataclass
class Tally:
    """What was played: how much of it, and what the tables are to repeat: the steps, and the
    branches that their sequences reach."""

    sequences: int = 0
    commands: Counter[str] = field(default_factory=Counter)
    branches: Counter[str] = field(default_factory=Counter)
    steps: list[Step] = field(default_factory=list)
    branches_of_steps: Counter[str] = field(default_factory=Counter)

    def add(self, played: Played, *, for_tables: bool) -> None:
        """Counts a sequence in."""
        self.sequences += 1
        self.commands.update(sent.words[0].decode() for sent in played.sent)
        reached = Counter(branches(played))
        self.branches.update(reached)
        if for_tables:
            self.steps += played.steps(f"sequence {self.sequences}")
            self.branches_of_steps.update(reached)

    def table(self) -> str:
        """How often each branch was reached, and how often of that in the tables."""
        return "\n".join(
            f"{self.branches[name]:7} {self.branches_of_steps[name]:7} {name}" for name in BRANCHES
        )

    def missed(self) -> list[str]:
        """The branches that were not reached often enough, or not in the tables."""
        return [
            name
            for name in BRANCHES
            if self.branches[name] < LEAST or not self.branches_of_steps[name]
        ]


# ---- what must hold ----


@pytest.fixture(scope="module")
def player() -> Iterator[redis.Redis]:
    """A client of a server that restores dumps without looking at their sums."""
    with (
        valkey_server(config={"enable-debug-command": "local"}) as server,
        server.client() as client,
    ):
        client.execute_command("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", "1")
        yield client


@pytest.mark.timeout(900)  # what Hypothesis may take to shrink a sequence, once one differs
def test_reference_and_tables_follow_a_thousand_sequences_step_by_step(
    player: redis.Redis, spark: SparkSession, tmp_path: Path
):
    tally = follow_all(player, SEQUENCES, SEED, in_tables=IN_TABLES)
    print(tally.table())
    assert tally.missed() == []
    repeat_in_tables(spark, tmp_path / "store", tally.steps)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_reference_and_tables_follow_ten_thousand_sequences_step_by_step(
    player: redis.Redis,
    spark: SparkSession,
    tmp_path: Path,
    pytestconfig: pytest.Config,
):
    given_seed = pytestconfig.getoption("--hypothesis-seed")
    drawn_by = random.SystemRandom().getrandbits(32) if given_seed is None else int(given_seed)
    print(f"seed {drawn_by}")  # a failure shows it, too
    started = time.monotonic()
    tally = follow_all(player, LONG_SEQUENCES, drawn_by, in_tables=LONG_IN_TABLES)
    followed = time.monotonic()
    print(tally.table())
    assert tally.missed() == []
    repeat_in_tables(spark, tmp_path / "store", tally.steps)
    report = {
        "seed": drawn_by,
        "sequences": tally.sequences,
        "commands": tally.commands,
        "branches": {name: tally.branches[name] for name in BRANCHES},
        "steps_in_tables": Counter("sweep" if one.is_sweep else "page" for one in tally.steps),
        "servers": {"valkey": player.info("server")["valkey_version"]},
        "seconds": {
            "reference": round(followed - started, 1),
            "tables": round(time.monotonic() - followed, 1),
        },
    }
    LONG_REPORT.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def follow_all(player: redis.Redis, number: int, drawn_by: int, *, in_tables: int) -> Tally:
    """So many sequences of a seed through server and reference; so many of them for the tables."""
    tally = Tally()

    @seed(drawn_by)
    @settings(
        max_examples=number,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(sequence=sequences())
    def follow(sequence: Sequence) -> None:
        played = play(player, sequence)
        differences = list(differences_of(played))
        assert not differences, "\n".join([*differences, *text_of_played(played)])
        # The last ones, for Hypothesis begins with small ones.
        tally.add(played, for_tables=tally.sequences >= number - in_tables)

    follow()
    assert tally.sequences >= number
    return tally


def repeat_in_tables(spark: SparkSession, folder: Path, steps: list[Step]) -> None:
    """Each step on its own, as a stream of one store, all in one run."""
    from claimlib.testing.vector_check import check

    verdict = check(spark, folder, steps)
    assert "\n".join(verdict.failed) == ""
    assert verdict.passed == 2 * len(steps)


# ---- the reference, step by step ----


def differences_of(played: Played) -> Iterator[str]:
    """Where the reference says something else than the server."""
    for step in played.steps("step"):
        difference = step.difference(by_reference(step))
        if difference is not None:
            yield f"{step.name}: {difference}"
        if step.is_sweep:
            yield from _differences_of_sweep(step)
    for sent in played.sent:
        if sent.words[0] in _KEPT:
            yield from _differences_of_removal(sent)


def _differences_of_sweep(step: Step) -> Iterator[str]:
    """A sweep as one request without a count, beside the calls that it is on the server."""
    stream, (_, name, request) = step.before[KEY], parsed(step.command)
    found = scan.xautoclaim(
        stream.groups[name], replace(request, count=None), step.now_ms, stream.entries
    )
    _, claimed, deleted = step.reply
    ids = [
        tuple(parse_id(row if isinstance(row, str) else row[0]) for row in rows)
        for rows in (claimed, deleted)
    ]
    expected = (step.after[KEY].groups[name], AutoclaimReply(END_OF_SCAN, *ids))
    if found != expected:
        yield f"{step.name}, without a count:\n  expected {expected}\n  found    {found}"


def _differences_of_removal(sent: Sent) -> Iterator[str]:
    kept = _KEPT[sent.words[0]](sent.before.entries, sent.words)
    entries = {one: sent.before.entries[one] for one in kept}
    found = (len(sent.before.entries) - len(kept), Stream(entries, sent.before.groups))
    if found != (sent.reply, sent.after):
        yield f"{text_of_words(sent.words)}:\n  expected {sent}\n  found    {found}"


def _kept_by_xdel(entries: Mapping[StreamId, object], command: tuple[bytes, ...]) -> set[StreamId]:
    return set(entries) - set(map(parse_id, command[2:]))


def _kept_by_xtrim(entries: Mapping[StreamId, object], command: tuple[bytes, ...]) -> set[StreamId]:
    _, _, how, bound = command
    if how == b"MINID":
        return {one for one in entries if one >= parse_id(bound)}
    newest_first = sorted(entries, reverse=True)
    return set(newest_first[: int(bound)])


_KEPT = {b"XDEL": _kept_by_xdel, b"XTRIM": _kept_by_xtrim}


def text_of_played(played: Played) -> list[str]:
    """What was sent to the server, as people read it."""
    return [
        f"All of it, at {played.now_ms} ms (@now):",
        *(f"  {text_of_words(command)}" for command in played.sequence.setup),
        *(f"  {sent.number}> {text_of_words(sent.words)}" for sent in played.sent),
    ]


# ---- which branches of the rule a sequence reaches: from states, requests and the server ----


def branches(played: Played) -> Iterator[str]:
    """What the rule meets in a sequence."""
    removed: dict[StreamId, str] = {}
    claimed: set[StreamId] = set()
    cursor = END_OF_SCAN
    for sent in played.sent:
        if sent.words[0] != b"XAUTOCLAIM":
            how = "delete" if sent.words[0] == b"XDEL" else "trim"
            gone = sent.before.entries.keys() - sent.after.entries.keys()
            removed |= dict.fromkeys(gone, how)
            yield from [f"a {how} of something"] * bool(gone)
            continue
        call = Call.of(sent, played.now_ms)
        yield from call.branches(removed)
        yield from ["claimed again at one instant"] * len(claimed & call.claimed)
        if cursor != END_OF_SCAN and call.case.request.start == cursor:
            yield "page from the last cursor"
        claimed |= call.claimed
        cursor = call.cursor
    for number, calls in Counter(sent.number for sent in played.sent).items():
        if played.sequence.steps[number - 1][0] == b"SWEEP":
            yield "sweep of one call" if calls == 1 else "sweep of several calls"


@dataclass(frozen=True)
class Call:
    """One XAUTOCLAIM: state and request, and what the server replied."""

    case: Case
    cursor: StreamId
    claimed: frozenset[StreamId]

    @classmethod
    def of(cls, sent: Sent, now_ms: int) -> Call:
        """The call that was sent."""
        _, name, request = parsed(sent.words)
        case = Case(sent.before.groups[name], request, now_ms, sent.before.entries)
        cursor, claimed, _ = sent.reply
        ids = (row if request.justid else row[0] for row in claimed)
        return cls(case, parse_id(cursor), frozenset(map(parse_id, ids)))

    def branches(self, removed: Mapping[StreamId, str]) -> Iterator[str]:
        """What the rule meets, once per entry, page or caller.  `removed`: how an id was removed
        by an earlier step."""
        hits = examined = 0
        for entry in self.case.group.pending:
            if self.cursor != END_OF_SCAN and entry.id >= self.cursor:
                break
            names = list(self.case.branches_of(entry))
            is_dangling = names[0].startswith("dangling")
            hits += is_dangling or "claimed" in names
            examined += entry.id >= self.case.request.start
            yield from names
            if is_dangling and entry.id in removed:
                yield f"dangling since a {removed[entry.id]}"
            if is_dangling and max(entry.id) >= 2**63:
                yield "dangling beyond signed numbers"
            if "left fresh" in names and entry.delivery_time_ms > self.case.now_ms:
                yield "left, future delivery"
        yield self._end(hits, examined)
        yield self._caller()

    def _end(self, hits: int, examined: int) -> str:
        count = self.case.request.count
        assert count is not None
        if not self.case.examined:
            return "page of nothing"
        by = "by COUNT" if hits == count else "by its budget" if examined == 10 * count else ""
        if self.cursor != END_OF_SCAN:
            return f"page ended {by}"
        return f"page to the end {by}".rstrip()

    def _caller(self) -> str:
        known = {consumer.name: consumer for consumer in self.case.group.consumers}
        caller = known.get(self.case.request.consumer)
        if caller is None:
            return "caller created, active" if self.claimed else "caller created, nothing claimed"
        if not self.claimed:
            return "caller known, nothing claimed"
        if caller.active_time_ms is None:
            return "caller known, active for the first time"
        return "caller known, active again"


def parsed(command: tuple[bytes, ...]) -> tuple[bytes, bytes, AutoclaimRequest]:
    """Key, group and request of an XAUTOCLAIM, by the rule of servers."""
    key, group, request = words.parse_xautoclaim(command)
    return key, group, replace(request, idle_rule=IdleRule.SERVER)
