"""Random states of many groups, each with its own request: what the reference is compared on.

A group is drawn as few small numbers.  `random_batch` draws them evenly, for each branch of the
rule is to be met often, and `simpler` says what may be taken away from a group that differs (see
`shrinking`); `batches` lets Hypothesis do both, so that hundreds of groups are ONE example, and
shrink to one entry of one group.  `Batch.branches` names what the rule meets in a batch, without
asking the rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from random import Random
from typing import Any

from hypothesis import strategies as st

from claimlib.errors import GuardError
from claimlib.semantics import scan
from claimlib.semantics.ids import END_OF_SCAN, MAX_ID, MAX_U64, MIN_ID, StreamId
from claimlib.semantics.model import (
    COUNT_MAX,
    DELIVERY_COUNT_MAX,
    MAX_I64,
    AutoclaimReply,
    AutoclaimRequest,
    Consumer,
    Group,
    Guards,
    IdleRule,
    PendingEntry,
    Profile,
)
from claimlib.semantics.words import Keyspace, Stream
from tests.shrinking import Size, fewer_of, oddities, plainer

Names = tuple[bytes, bytes]
"""A stream and one of its groups."""
Drawn = tuple[int, tuple[int, ...]]
"""A group as it is drawn: an index into `_REQUESTS`, and indexes into `_ENTRIES`."""

ENTRIES = 10  # of a group at most
NOW_MS = 1_750_000_000_000
CALLER = b"caller"
OTHER = b"other"
PARKING = b"parking"

_EDGES = (0, 2**53, 2**63 - 1, 2**63, MAX_U64)
IDS = [
    *(StreamId(ms, seq) for ms, seq in ((5, 3), (5, 4), (NOW_MS, 0), (2**53 + 1, 1))),
    *(StreamId(ms, seq) for ms, seq in product(_EDGES, _EDGES) if (ms, seq) != MIN_ID),
]
OWNERS = (OTHER, OTHER, CALLER, None, None, b"\xff\\\n'", PARKING, PARKING)
# How far an entry's idle time is from min-idle, or where its delivery time stands.  What is listed
# twice, here and below, is drawn twice as often.
AGES = (
    *("over", "over", "equal", "equal", "equal", "short", "just now"),
    *("future", "future", "future", "far future", "ancient"),
)
COUNTS = (1, 0, DELIVERY_COUNT_MAX - 1, DELIVERY_COUNT_MAX)

INSTANTS = (NOW_MS, NOW_MS, MAX_I64)
MIN_IDLES = (60_000, 1, 0, 0, 0, 0, MAX_I64)
STARTS = (*[MIN_ID] * 4, StreamId(5, 4), StreamId(2**63 - 1, 7), StreamId(2**63, 0), MAX_ID)
# COUNT; most are sweeps, for those reach more branches.
SIZES = (*[None] * 12, 1, 2, 3, COUNT_MAX)
# What the group knows of the caller beforehand.
KNOWN = (
    (),
    (Consumer(CALLER, NOW_MS - 1, None),),
    (Consumer(CALLER, NOW_MS + 5, NOW_MS - 9), Consumer(PARKING, NOW_MS - 7, None)),
)
GUARDS = (
    *[Guards()] * 8,
    Guards(max_claims=1),
    Guards(max_claims=0, max_deleted_share=1.0),
    Guards(max_claims=MAX_I64, max_deleted_share=0.5),
    Guards(max_deleted_share=0.0),
    *[Guards(only_from="other")] * 3,
    *[Guards(only_from="[^o]*")] * 3,
    # OTHER was active 60,000 ms before NOW_MS.
    *[Guards(only_consumers_idle_ms=60_000)] * 5,
    Guards(only_consumers_idle_ms=60_001),
    Guards(only_consumers_idle_ms=0),
    *[Guards(max_deliveries=1, parking_consumer=PARKING)] * 5,
    Guards(max_deliveries=DELIVERY_COUNT_MAX, parking_consumer=PARKING),
    Guards(10, 1.0, "*", 8, 1, PARKING),
)

# The first is no entry, so that a group shrinks to none.
_ENTRIES = [None, *product(IDS, (True, False), AGES, OWNERS, COUNTS)]
_REQUESTS = list(product(MIN_IDLES, IdleRule, STARTS, Profile, (False, True), SIZES, KNOWN, GUARDS))


@dataclass(frozen=True)
class Case:
    """One group, its request, and the instant: everything that decides what a sweep does."""

    group: Group
    request: AutoclaimRequest
    now_ms: int
    entries: Mapping[StreamId, tuple[bytes, ...]]

    def described(self) -> dict[str, object]:
        """All of it, for people."""
        return {
            "request": self.request,
            "instant": self.now_ms,
            "pending": list(self.group.pending),
            "ids in the stream": sorted(self.entries),
            "consumers": list(self.group.consumers),
        }

    @property
    def examined(self) -> list[PendingEntry]:
        return [entry for entry in self.group.pending if entry.id >= self.request.start]

    def expected(self) -> tuple[Group, AutoclaimReply]:
        """The state after the sweep, and its reply, as the reference says; of a refused group the
        state as it is, and nothing."""
        return self._by_reference[:2]

    @property
    def refusal(self) -> str | None:
        """Why the reference refuses the group; null: it does not."""
        return self._by_reference[2]

    @cached_property
    def _by_reference(self) -> tuple[Group, AutoclaimReply, str | None]:
        try:
            decided = scan.xautoclaim(self.group, self.request, self.now_ms, self.entries)
        except GuardError as error:
            return self.group, AutoclaimReply(END_OF_SCAN, (), ()), error.message
        return *decided, None

    def branches(self) -> Iterator[str]:
        """What the rule meets in this group, once per entry or group; one entry may be several.  Of
        a page, where it ends."""
        if self.refusal is not None:
            yield f"refused by {self.refusal.split(':')[0]}"
            return
        if self.request.count is not None:
            yield self._branch_of_page(self.request.count)
            return
        claimed = 0
        for entry in self.group.pending:
            names = list(self.branches_of(entry))
            claimed += "claimed" in names or "parked" in names
            yield from names
        if not claimed:
            yield f"nothing claimed, {self.request.profile}"

    def _branch_of_page(self, count: int) -> str:
        _, reply = self.expected()
        hits = len(reply.claimed) + len(reply.deleted)
        if reply.cursor == END_OF_SCAN:
            return "page to the end"
        return "page ended by COUNT" if hits == count else "page ended by its budget"

    def branches_of(self, entry: PendingEntry) -> Iterator[str]:
        """What the rule meets at one entry that it examines, or that lies before the start."""
        request, enough = self.request, self._is_idle_enough(entry)
        idle_ms, min_idle_ms = self.now_ms - entry.delivery_time_ms, request.min_idle_ms
        if entry.id < request.start:
            yield "before the start"
        elif entry.id not in self.entries:
            yield "dangling and idle" if enough else "dangling and fresh"
            if entry.consumer == CALLER:
                yield "dangling, owned by the caller"
        elif enough and (guarded := self.guard_of(entry)):
            yield guarded
        elif enough:
            yield from self._branches_of_claimed(entry, idle_ms)
        else:
            yield "left at equality (documented)" if idle_ms == min_idle_ms else "left fresh"
            if idle_ms == min_idle_ms - 1:
                yield "left, one ms short"
        if entry.id == request.start:
            yield "at the start exactly"

    def _is_idle_enough(self, entry: PendingEntry) -> bool:
        idle_ms, min_idle_ms = self.now_ms - entry.delivery_time_ms, self.request.min_idle_ms
        server = self.request.idle_rule is IdleRule.SERVER
        return min_idle_ms == 0 or idle_ms > min_idle_ms or (server and idle_ms == min_idle_ms)

    def branches_of_guards(self) -> Iterator[str]:
        """What the guards do to the entries that the request gets to, and that could be claimed."""
        cursor = self.expected()[1].cursor
        for entry in self.examined:
            if cursor == END_OF_SCAN or entry.id < cursor:
                could_be = entry.id in self.entries and self._is_idle_enough(entry)
                yield (could_be and self.guard_of(entry)) or "nothing"

    def guard_of(self, entry: PendingEntry) -> str | None:
        """What the guards do to an entry that could be claimed; null: nothing."""
        guards, owner = self.request.guards, entry.consumer
        if spared := self._spared_by_name(owner) or self._spared_as_active(owner):
            return spared
        if guards.max_deliveries is None or entry.delivery_count < guards.max_deliveries:
            return None
        return "parked already" if owner == PARKING else "parked"

    def _spared_by_name(self, owner: bytes | None) -> str | None:
        glob = self.request.guards.only_from
        if glob is not None and owner is None:
            return "spared, only_from and no owner"
        spared = {"other": owner != OTHER, "[^o]*": owner == OTHER}
        return "spared, only_from" if spared.get(glob) else None

    def _spared_as_active(self, owner: bytes | None) -> str | None:
        least_ms = self.request.guards.only_consumers_idle_ms
        if least_ms is None or owner is None:
            return None
        known = {
            consumer.name: consumer.active_time_ms or consumer.seen_time_ms
            for consumer in self.group.consumers
        }
        if owner not in known:
            return "spared, unknown owner"
        idle_ms = self.now_ms - known[owner]
        if 0 < least_ms == idle_ms and self.request.idle_rule is IdleRule.DOCUMENTED:
            return "spared, consumer idle for exactly as long"
        return "spared, consumer not idle" if least_ms > 0 and idle_ms < least_ms else None

    def _branches_of_claimed(self, entry: PendingEntry, idle_ms: int) -> Iterator[str]:
        min_idle_ms = self.request.min_idle_ms
        yield "claimed"
        if min_idle_ms > 0:
            over = idle_ms > min_idle_ms
            yield "claimed over min-idle" if over else "claimed at equality (server)"
        elif idle_ms < 0:
            yield "claimed at min-idle 0, future delivery"
        else:
            yield "claimed at min-idle 0"
        if idle_ms == min_idle_ms + 1:
            yield "claimed, one ms over"
        if entry.consumer == CALLER:
            yield "claimed from oneself"
        if entry.consumer is None:
            yield "claimed from nobody"
        if entry.delivery_count == DELIVERY_COUNT_MAX:
            yield "claimed at the highest count"
        yield "claimed with JUSTID" if self.request.justid else "claimed without JUSTID"
        if entry.id.ms >= 2**63 or entry.id.seq >= 2**63:
            yield "claimed beyond signed numbers"


# Every one must be reached, in every test that compares with the reference.
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
    "claimed from nobody",
    "claimed at the highest count",
    "claimed with JUSTID",
    "claimed without JUSTID",
    "claimed beyond signed numbers",
    "left at equality (documented)",
    "left, one ms short",
    "left fresh",
    "before the start",
    "at the start exactly",
    "page to the end",
    "page ended by COUNT",
    "refused by guard max_claims",
    "refused by guard max_deleted_share",
    "spared, only_from",
    "spared, only_from and no owner",
    "spared, unknown owner",
    "spared, consumer idle for exactly as long",
    "spared, consumer not idle",
    "parked",
    "parked already",
    *(f"nothing claimed, {profile}" for profile in Profile),
)


class Batch:
    """Many groups, two per stream, and one request for each.

    No dataclass: Hypothesis would print all of it.  Which groups differ, the comparison says.
    """

    def __init__(
        self,
        keyspace: Keyspace,
        instants: Mapping[bytes, int],
        requests: Mapping[Names, AutoclaimRequest],
    ) -> None:
        self.keyspace = keyspace
        self.instants = instants
        self.requests = requests

    def __repr__(self) -> str:
        return f"<{len(self.requests)} groups, {self.entries} pending entries>"

    @property
    def entries(self) -> int:
        return sum(len(case.group.pending) for case in self.cases().values())

    def cases(self) -> dict[Names, Case]:
        return {
            (key, name): Case(
                self.keyspace[key].groups[name],
                request,
                self.instants[key],
                self.keyspace[key].entries,
            )
            for (key, name), request in self.requests.items()
        }

    def by_entry(self) -> Batch:
        """The same with sweeps only and no group refused, for what sees entries alone."""
        sweeps = {
            names: replace(request, count=None, guards=_without_limits(request.guards))
            for names, request in self.requests.items()
        }
        return Batch(self.keyspace, self.instants, sweeps)

    def branches(self) -> Counter[str]:
        return Counter(name for case in self.cases().values() for name in case.branches())


def _without_limits(guards: Guards) -> Guards:
    return replace(guards, max_claims=None, max_deleted_share=None)


def batch_of(cases: Sequence[Case]) -> Batch:
    """A batch of given groups, each in a stream of its own, in their order."""
    keys = [b"s:%d" % number for number in range(len(cases))]
    return Batch(
        {
            key: Stream(case.entries, {b"g": case.group})
            for key, case in zip(keys, cases, strict=True)
        },
        {key: case.now_ms for key, case in zip(keys, cases, strict=True)},
        {(key, b"g"): case.request for key, case in zip(keys, cases, strict=True)},
    )


def size(case: Case) -> Size:
    """How much there is to understand: entries, options, consumers, and what is odd about them."""
    group, request = case.group, case.request
    options = oddities(request, _PLAIN_REQUEST) + oddities(request.guards, _PLAIN_GUARDS)
    odd = sum(oddities(entry, _PLAIN_ENTRY) for entry in group.pending)
    large = sum(entry.id != StreamId(n, 0) for n, entry in enumerate(group.pending, start=1))
    return len(group.pending), options, len(group.consumers), odd, large


def simpler(case: Case) -> Iterator[Case]:
    """A case with less of something: entries first, then options; each also with nothing odd about
    it, so that it takes few steps."""
    group, request = case.group, case.request
    guards = [*plainer(request.guards, _PLAIN_GUARDS), request.guards]
    options = product([*plainer(request, _PLAIN_REQUEST), request], guards)
    less = [_with_pending(case, pending) for pending in fewer_of(group.pending)]
    less += [replace(case, request=replace(simple, guards=others)) for simple, others in options]
    for smaller in less:
        yield _without_oddities(smaller)
        yield smaller
    for consumers in fewer_of(group.consumers):
        yield replace(case, group=replace(group, consumers=consumers))
    for at, entry in enumerate(group.pending):
        for plain in plainer(entry, _PLAIN_ENTRY):
            pending = (*group.pending[:at], plain, *group.pending[at + 1 :])
            yield replace(case, group=replace(group, pending=pending))
    yield _with_small_ids(case)


_PLAIN_REQUEST: list[dict[str, Any]] = [
    {"start": MIN_ID},
    {"count": None},
    {"justid": False},
    {"idle_rule": IdleRule.DOCUMENTED},
    {"profile": Profile.REDIS_7_2},
    {"min_idle_ms": 0},
]
_PLAIN_GUARDS: list[dict[str, Any]] = [
    {"max_claims": None},
    {"max_deleted_share": None},
    {"only_from": None},
    {"only_consumers_idle_ms": None},
    {"max_deliveries": None, "parking_consumer": None},
]
_PLAIN_ENTRY: list[dict[str, Any]] = [{"consumer": OTHER}, {"delivery_count": 1}]


def _with_pending(case: Case, pending: tuple[PendingEntry, ...]) -> Case:
    ids = {entry.id for entry in pending}
    entries = {stream_id: fields for stream_id, fields in case.entries.items() if stream_id in ids}
    return replace(case, group=replace(case.group, pending=pending), entries=entries)


def _without_oddities(case: Case) -> Case:
    plain = {name: value for each in _PLAIN_ENTRY for name, value in each.items()}
    pending = tuple(replace(entry, **plain) for entry in case.group.pending)
    group = replace(case.group, pending=pending, consumers=())
    return _with_small_ids(replace(case, group=group))


def _with_small_ids(case: Case) -> Case:
    """The same in a stream whose ids are 1-0, 2-0, …"""
    small = {entry.id: StreamId(n, 0) for n, entry in enumerate(case.group.pending, start=1)}
    pending = tuple(replace(entry, id=small[entry.id]) for entry in case.group.pending)
    entries = {
        small[stream_id]: fields for stream_id, fields in case.entries.items() if stream_id in small
    }
    return replace(case, group=replace(case.group, pending=pending), entries=entries)


def random_batch(groups: int, seed: int) -> Batch:
    """A batch of so many groups (an even number): for one seed always the same."""
    rng = Random(seed)
    return _batch(
        [(rng.choice(INSTANTS), _drawn_group(rng), _drawn_group(rng)) for _ in range(groups // 2)]
    )


def _drawn_group(rng: Random) -> Drawn:
    entries = rng.choice((0, 1, *[ENTRIES] * 8))
    return (
        rng.randrange(len(_REQUESTS)),
        tuple(rng.randrange(len(_ENTRIES)) for _ in range(entries)),
    )


@st.composite
def batches(draw: st.DrawFn, least_groups: int) -> Batch:
    """Batches of at least so many groups (an even number); the simplest ones are empty."""
    # Numbers instead of `sampled_from`, for Hypothesis' messages would list thousands of states.
    entry = st.integers(0, len(_ENTRIES) - 1)
    group = st.tuples(st.integers(0, len(_REQUESTS) - 1), st.tuples(*[entry] * ENTRIES))
    stream = st.tuples(st.sampled_from(INSTANTS), group, group)
    least = least_groups // 2
    return _batch(draw(st.lists(stream, min_size=least, max_size=least + 3)))


def _batch(drawn: list[tuple[int, Drawn, Drawn]]) -> Batch:
    keyspace, instants, requests = {}, {}, {}
    for number, (now_ms, *groups) in enumerate(drawn):
        key = b"s:%d" % number
        named = dict(zip((b"g", b"h"), groups, strict=True))
        instants[key] = now_ms
        keyspace[key] = Stream(
            entries=dict(_entries(key, groups)),
            groups={name: _group(group, now_ms) for name, group in named.items()},
        )
        requests |= {(key, name): _request(group) for name, group in named.items()}
    return Batch(keyspace, instants, requests)


def _entries(key: bytes, groups: list[Drawn]) -> Iterator[tuple[StreamId, tuple[bytes, ...]]]:
    """What the stream holds: each id that one of its groups has as present."""
    for group in groups:
        for stream_id, is_present, *_ in _states(group):
            if is_present:
                yield stream_id, (b"of", key, b"id", str(stream_id).encode("ascii"))


def _states(group: Drawn) -> Iterator[tuple[StreamId, bool, str, bytes | None, int]]:
    return filter(None, (_ENTRIES[code] for code in group[1]))


def _request(group: Drawn) -> AutoclaimRequest:
    min_idle_ms, idle_rule, start, profile, justid, count, _, guards = _REQUESTS[group[0]]
    return AutoclaimRequest(CALLER, min_idle_ms, start, count, justid, idle_rule, profile, guards)


def _group(group: Drawn, now_ms: int) -> Group:
    min_idle_ms, *_, known, _ = _REQUESTS[group[0]]
    pending = {
        stream_id: PendingEntry(stream_id, owner, _delivered_ms(age, now_ms, min_idle_ms), count)
        for stream_id, _, age, owner, count in _states(group)
    }
    other = Consumer(OTHER, NOW_MS - 60_000, NOW_MS - 60_000)
    return Group(
        last_delivered_id=MAX_ID,
        pending=tuple(pending[stream_id] for stream_id in sorted(pending)),
        consumers=tuple(sorted((*known, other), key=lambda consumer: consumer.name)),
    )


def _delivered_ms(age: str, now_ms: int, min_idle_ms: int) -> int:
    wanted = {
        "over": now_ms - min_idle_ms - 1,
        "equal": now_ms - min_idle_ms,
        "short": now_ms - min_idle_ms + 1,
        "just now": now_ms,
        "future": now_ms + 1,
        "far future": MAX_I64,
        "ancient": 0,
    }
    return min(max(wanted[age], 0), MAX_I64)
