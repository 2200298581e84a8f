"""Random states of many groups with several XCLAIMs each: what bulk claims are compared on.

Drawn evenly, for each branch of the rule is to be met often; `simpler` says what may be taken away
from a group that differs (see `shrinking`).  What is expected comes from `scan.xclaim`, request by
request; and, for what became of each id, id by id: an XCLAIM of many ids does the same as one
XCLAIM per id.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, islice, product
from random import Random
from typing import Any

from claimlib.commands.xclaim import NamedClaim
from claimlib.plans.survey import (
    NO_PROOF,
    NO_PROOF_REMEDY,
    NO_SNAPSHOT_TIME,
    NOT_IN_GROUPS,
)
from claimlib.semantics import scan
from claimlib.semantics.ids import MAX_ID, MAX_U64, MIN_ID, StreamId
from claimlib.semantics.model import (
    DELIVERY_COUNT_MAX,
    MAX_I64,
    ClaimRequest,
    Consumer,
    Group,
    IdleRule,
    PendingEntry,
    Profile,
)
from claimlib.semantics.names import spell
from claimlib.semantics.words import Keyspace, Stream
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import Proven, write_keyspace
from tests.shrinking import Size, fewer_of, oddities, plainer

Names = tuple[bytes, bytes]
"""A stream and one of its groups."""
Drawn = tuple[int, tuple[int, ...], list[tuple[int, int]]]
"""A group as it is drawn: an index into `_GROUPS`, indexes into `_ENTRIES`, and its requests: an
index into `_REQUESTS`, and a number whose digits are ids."""
NOW_MS = 1_750_000_000_000
MIN_IDLE_MS = 60_000
ME, YOU, OTHER = b"me", b"\xff\\\n'", b"other"
UNKNOWN = b"unknown"  # a group that nobody made

# Each edge of the unsigned range; few, so that requests and pending lists meet on them.
IDS = (
    *(StreamId(5, 3), StreamId(5, 4), StreamId(NOW_MS, 0), StreamId(2**53 + 1, 1)),
    *(StreamId(0, MAX_U64), StreamId(2**63 - 1, MAX_U64), StreamId(2**63, 0)),
    *(StreamId(2**63, 2**63), StreamId(MAX_U64, 2**63 - 1), MAX_ID),
)
# What is listed twice, here and below, is drawn twice as often.
PENDING = 5  # of a group at most
IDS_OF_REQUEST = 5  # at most
AGES = ("over", *["equal"] * 6, "short", "short", "now", *["future"] * 3, "ancient")
OWNERS = (OTHER, ME, None, YOU)
COUNTS = (1, 0, DELIVERY_COUNT_MAX - 1, DELIVERY_COUNT_MAX)
KNOWN = (
    (),
    (Consumer(ME, NOW_MS - 1, None),),
    (Consumer(ME, NOW_MS + 5, NOW_MS - 9), Consumer(OTHER, NOW_MS - 7, None)),
)
PROVEN: tuple[Proven, ...] = (
    *[(MIN_ID, MAX_ID)] * 11,
    *[(MIN_ID, StreamId(2**63, 2**63))] * 5,
    *[(MIN_ID, StreamId(MAX_U64, 2**63 - 1))] * 24,
    *((IDS[1], IDS[6]), (IDS[6], MAX_ID), None),
)
INSTANTS: tuple[int | None, ...] = (*[NOW_MS] * 14, MAX_I64, None, None)
TIMES = (
    *[{}] * 9,
    {"idle_ms": MIN_IDLE_MS},
    *[{"idle_ms": MIN_IDLE_MS + 1}] * 8,
    *[{"idle_ms": -1}, {"idle_ms": MAX_I64}, {"idle_ms": -MAX_I64 - 1}] * 3,
    *[{"time_ms": 0}] * 8,
    {"time_ms": NOW_MS - MIN_IDLE_MS},
    *[{"time_ms": MAX_I64}, {"time_ms": -1}] * 4,
)
RETRYCOUNTS = (None, None, None, 0, 3, DELIVERY_COUNT_MAX)
MIN_IDLES = (0, 0, 0, *[MIN_IDLE_MS] * 6, MAX_I64)
LAST_IDS = (None, None, None, StreamId(5, 4), StreamId(2**63 - 1, 0), StreamId(2**63, 7), MAX_ID)
LAST_DELIVERED = (MIN_ID, StreamId(2**63, 6), StreamId(2**63 - 1, MAX_U64))
_ABSENT = [set(few) for n in range(2, 5) for few in combinations(range(len(IDS)), n)]
_STREAMS = list(product(_ABSENT, INSTANTS, PROVEN, (False, True)))
_GROUPS = list(product(range(len(IDS)), KNOWN, LAST_DELIVERED))
_ENTRIES = [None, *product(AGES, OWNERS, COUNTS)]
_REQUESTS = list(
    product(
        (ME, ME, YOU),
        MIN_IDLES,
        TIMES,
        RETRYCOUNTS,
        (False, True),
        (False, True),
        LAST_IDS,
        IdleRule,
        Profile,
    )
)


@dataclass(frozen=True)
class Named:
    """What became of one id that a request names.

    Attributes:
        before: as the run found it; null: not pending.
        after: what the request made of it; null: it did not get it.
    """

    status: str
    before: PendingEntry | None
    after: PendingEntry | None


@dataclass(frozen=True)
class Case:
    """One group (null: nobody made it) of a stream, the numbered requests for it in their order,
    and what they are judged by."""

    names: tuple[bytes, bytes]
    group: Group | None
    requests: Sequence[tuple[int, ClaimRequest]]
    now_ms: int | None
    entries: Mapping[StreamId, tuple[bytes, ...]]
    proven: Proven

    def described(self) -> dict[str, object]:
        """All of it, for people."""
        group = self.group
        return {
            **{f"request {number}": request for number, request in self.requests},
            "instant": self.now_ms,
            "proven": self.proven,
            "pending": None if group is None else list(group.pending),
            "ids in the stream": sorted(self.entries),
            "consumers": None if group is None else list(group.consumers),
            "last delivered": None if group is None else group.last_delivered_id,
        }

    @property
    def refusal(self) -> str | None:
        """Why no request of the group is done; null: they are."""
        if self.group is None:
            stream, group = map(spell, self.names)
            return f"NOGROUP No such key '{stream}' or consumer group '{group}'{NOT_IN_GROUPS}"
        if self.now_ms is None:
            return NO_SNAPSHOT_TIME
        unproven = len(self._unproven())
        said = f"{NO_PROOF}: {unproven}. {NO_PROOF_REMEDY}"
        return said if unproven else None

    def _unproven(self) -> set[StreamId]:
        """The ids that need a proof and have none."""
        pending = {} if self.group is None else {entry.id for entry in self.group.pending}
        return {
            stream_id
            for _, request in self.requests
            for stream_id in request.ids
            if (stream_id in pending or request.force) and not self._is_proven(stream_id)
        }

    def _is_proven(self, stream_id: StreamId) -> bool:
        return self.proven is not None and self.proven[0] <= stream_id <= self.proven[1]

    @cached_property
    def expected(self) -> tuple[Group | None, dict[int, tuple[tuple[StreamId, ...], ...]]]:
        """The state behind all requests, and what each claimed and deleted, in its order."""
        if self.refusal is not None:
            return self.group, {}
        group, replies = self.group, {}
        for number, request in self.requests:
            group, reply = scan.xclaim(group, request, self.now_ms, self.entries)
            replies[number] = (reply.claimed, reply.deleted)
        return group, replies

    @cached_property
    def named(self) -> dict[tuple[int, int], Named]:
        """By request and position, what became of each id."""
        if self.refusal is not None:
            return {}
        group, rows = self.group, {}
        last_got: dict[StreamId, tuple[int, int]] = {}
        before = _by_id(group)
        for number, request in self.requests:
            for position, stream_id in enumerate(request.ids):
                was_pending = stream_id in _by_id(group)
                alone = replace(request, ids=(stream_id,))
                group, reply = scan.xclaim(group, alone, self.now_ms, self.entries)
                at = number, position
                if reply.claimed:
                    last_got[stream_id] = at
                    status = "claimed" if stream_id in before else "forced"
                else:
                    status = "left" if was_pending else "not_pending"
                    status = "deleted" if reply.deleted else status
                after = _by_id(group)[stream_id] if reply.claimed else None
                rows[at] = stream_id, Named(status, before.get(stream_id), after)
        return {
            at: replace(row, status="superseded")
            if row.after and last_got[stream_id] != at
            else row
            for at, (stream_id, row) in rows.items()
        }

    def branches(self) -> Iterator[str]:
        """What is met in this group; an id or a request may meet several."""
        if self.refusal is not None:
            reason = "unknown group" if self.group is None else self.refusal.split(":")[0]
            yield f"refused: {reason}"
            return
        if self._outside():
            yield "outside the proven range, and of no account"
        group = self.group
        for number, request in self.requests:
            yield from _branches_of_request(group, request, self.expected[1][number][0])
            for position, stream_id in enumerate(request.ids):
                pel = _by_id(group)
                group, _ = scan.xclaim(
                    group, replace(request, ids=(stream_id,)), self.now_ms, self.entries
                )
                row = self.named[number, position]
                yield from self._branches_of(stream_id, request, pel.get(stream_id), row)

    def _outside(self) -> set[StreamId]:
        ids = {stream_id for _, request in self.requests for stream_id in request.ids}
        return {stream_id for stream_id in ids if not self._is_proven(stream_id)}

    def _branches_of(
        self, stream_id: StreamId, request: ClaimRequest, entry: PendingEntry | None, row: Named
    ) -> Iterator[str]:
        yield row.status
        if stream_id not in self.entries:
            yield from _branches_of_dangling(request, entry, self.now_ms or 0)
            return
        if entry is None:
            if request.force:
                yield "forced with JUSTID" if request.justid else "forced without JUSTID"
            return
        again = row.before != entry
        if row.after is None:
            yield "left with FORCE" if request.force else "left without FORCE"
            if again:
                yield "left, for a request before it got it"
        else:
            yield from _branches_of_got(stream_id, request, entry, self.now_ms or 0, again=again)
        idle_ms = (self.now_ms or 0) - entry.delivery_time_ms
        if entry.consumer is not None and idle_ms == request.min_idle_ms == MIN_IDLE_MS:
            yield f"at min-idle exactly, {request.idle_rule}"


def _by_id(group: Group) -> dict[StreamId, PendingEntry]:
    return {entry.id: entry for entry in group.pending}


def _branches_of_dangling(
    request: ClaimRequest, entry: PendingEntry | None, now_ms: int
) -> Iterator[str]:
    if entry is None and request.force:
        yield "not forced, for the stream has it no more"
    if entry is not None and now_ms - entry.delivery_time_ms < request.min_idle_ms:
        yield "deleted though fresh"


def _branches_of_got(
    stream_id: StreamId, request: ClaimRequest, entry: PendingEntry, now_ms: int, *, again: bool
) -> Iterator[str]:
    yield f"claimed, JUSTID {request.justid}, RETRYCOUNT {request.retrycount is not None}"
    if request.retrycount == 0:
        yield "RETRYCOUNT 0"
    if entry.consumer is None and now_ms - entry.delivery_time_ms < request.min_idle_ms:
        yield "fresh, and nobody's"
    if entry.delivery_time_ms > now_ms:
        yield "delivered after the instant"
    if request.idle_ms is not None:
        yield "IDLE" if 0 <= request.idle_ms <= now_ms else "IDLE beyond time"
    if request.time_ms is not None:
        yield "TIME" if 0 <= request.time_ms <= now_ms else "TIME beyond time"
    if entry.delivery_count == DELIVERY_COUNT_MAX and not request.justid:
        yield "at the highest count"
    if entry.consumer == request.consumer:
        yield "claimed from oneself"
    if again:
        yield "claimed again" if request.min_idle_ms == 0 else "claimed again, dated back"
    if stream_id.ms >= 2**63:
        yield "beyond signed numbers"


def _branches_of_request(
    group: Group, request: ClaimRequest, claimed: Sequence[StreamId]
) -> Iterator[str]:
    if not request.ids:
        yield "no ids"
    if len(set(request.ids)) < len(request.ids):
        yield "an id twice in a request"
    if not claimed:
        yield f"nothing claimed, {request.profile}"
    if claimed and request.profile is Profile.REDIS_7_0:
        yield "claimed, redis-7.0"
    if request.last_id is not None:
        raised = request.last_id > group.last_delivered_id
        yield "LASTID above" if raised else "LASTID not above"


# Every one must be reached, in every test that compares with the reference.
BRANCHES = (
    *("claimed", "forced", "superseded", "deleted", "left", "not_pending"),
    *("forced with JUSTID", "forced without JUSTID", "left with FORCE", "left without FORCE"),
    *(
        f"claimed, JUSTID {justid}, RETRYCOUNT {has_retrycount}"
        for justid, has_retrycount in product((False, True), repeat=2)
    ),
    *("RETRYCOUNT 0", "fresh, and nobody's", "delivered after the instant", "at the highest count"),
    *("IDLE", "IDLE beyond time", "TIME", "TIME beyond time"),
    *("claimed from oneself", "claimed again", "claimed again, dated back"),
    *("left, for a request before it got it", "an id twice in a request", "no ids"),
    *(f"at min-idle exactly, {rule}" for rule in IdleRule),
    *(f"nothing claimed, {profile}" for profile in Profile),
    *("claimed, redis-7.0", "LASTID above", "LASTID not above", "beyond signed numbers"),
    *("not forced, for the stream has it no more", "deleted though fresh"),
    *(
        "refused: unknown group",
        "refused: the group has no snapshot time",
        f"refused: {NO_PROOF}",
    ),
    "outside the proven range, and of no account",
)


class Batch:
    """Many groups, two per stream, and some requests for each, numbered over all of them.

    No dataclass: a failing test would print all of it.  Which groups differ, the comparison says.
    """

    def __init__(
        self,
        keyspace: Keyspace,
        instants: Mapping[bytes, int | None],
        proven: Mapping[bytes, Proven],
        requests: Mapping[int, NamedClaim],
        name: str,
    ) -> None:
        self.keyspace = keyspace
        self.instants = instants
        self.proven = proven
        self.requests = requests
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}: {len(self.requests)} requests to {len(self.keyspace)} streams>"

    @cached_property
    def cases(self) -> dict[Names, Case]:
        by_group: dict[Names, list[tuple[int, ClaimRequest]]] = defaultdict(list)
        for number, named in sorted(self.requests.items()):
            by_group[named.stream, named.group].append((number, named.claim))
        return {
            (key, name): Case(
                (key, name),
                self.keyspace[key].groups.get(name),
                requests,
                self.instants[key] if name in self.keyspace[key].groups else None,
                self.keyspace[key].entries,
                self.proven[key],
            )
            for (key, name), requests in by_group.items()
        }

    def branches(self) -> Counter[str]:
        return Counter(name for case in self.cases.values() for name in case.branches())

    def write(self, store: Store) -> None:
        """All streams to a store, each table by one append."""
        write_keyspace(store, self.keyspace, self.instants, self.proven)


def batch_of(cases: Sequence[Case]) -> Batch:
    """A batch of given groups, each in a stream of its own, in their order."""
    keys = [b"s:%d" % number for number in range(len(cases))]
    claims = [
        NamedClaim(key, b"g", request)
        for key, case in zip(keys, cases, strict=True)
        for _, request in case.requests
    ]
    return Batch(
        {
            key: Stream(case.entries, {} if case.group is None else {b"g": case.group})
            for key, case in zip(keys, cases, strict=True)
        },
        {key: case.now_ms for key, case in zip(keys, cases, strict=True)},
        {key: case.proven for key, case in zip(keys, cases, strict=True)},
        dict(enumerate(claims, start=1)),
        f"{len(cases)} cases",
    )


def size(case: Case) -> Size:
    """How much there is to understand: requests, entries and ids, options, consumers, and what is
    odd about them."""
    group = case.group
    pending, consumers = ((), ()) if group is None else (group.pending, group.consumers)
    ids = sum(len(request.ids) for _, request in case.requests)
    options = sum(oddities(request, _PLAIN_REQUEST) for _, request in case.requests)
    whole = case.proven == (MIN_ID, MAX_ID)
    odd = sum(oddities(entry, _PLAIN_ENTRY) for entry in pending)
    delivered = 0 if group is None else oddities(group, _PLAIN_GROUP)
    of_group = len(consumers) + delivered + (not whole)
    return len(case.requests), len(pending) + ids, options, of_group, odd


def simpler(case: Case) -> Iterator[Case]:
    """A case with less of something: requests first (one is left), then entries and ids, then
    options."""
    for requests in fewer_of(case.requests):
        if requests:
            yield _with_ids_of(replace(case, requests=requests))
    for at, (number, request) in enumerate(case.requests):
        for ids in fewer_of(request.ids):
            less = (number, replace(request, ids=ids))
            yield _with_ids_of(_with_request(case, at, less))
        for plain in islice(plainer(request, _PLAIN_REQUEST), _MOST_REQUESTS):
            yield _with_request(case, at, (number, plain))
    yield replace(case, proven=(MIN_ID, MAX_ID))
    if case.group is not None:
        yield from (replace(case, group=group) for group in _simpler_groups(case.group))


_MOST_REQUESTS = 64
_PLAIN_REQUEST: list[dict[str, Any]] = [
    {"idle_ms": None, "time_ms": None},
    {"retrycount": None},
    {"force": False},
    {"justid": False},
    {"last_id": None},
    {"idle_rule": IdleRule.DOCUMENTED},
    {"profile": Profile.REDIS_7_2},
    {"min_idle_ms": 0},
]
_PLAIN_GROUP: list[dict[str, Any]] = [{"last_delivered_id": MIN_ID}]
_PLAIN_ENTRY: list[dict[str, Any]] = [{"consumer": OTHER}, {"delivery_count": 1}]


def _simpler_groups(group: Group) -> Iterator[Group]:
    for pending in fewer_of(group.pending):
        yield replace(group, pending=pending)
    for consumers in fewer_of(group.consumers):
        yield replace(group, consumers=consumers)
    yield from plainer(group, _PLAIN_GROUP)
    for at, entry in enumerate(group.pending):
        for plain in plainer(entry, _PLAIN_ENTRY):
            yield replace(group, pending=(*group.pending[:at], plain, *group.pending[at + 1 :]))


def _with_request(case: Case, at: int, request: tuple[int, ClaimRequest]) -> Case:
    return replace(case, requests=(*case.requests[:at], request, *case.requests[at + 1 :]))


def _with_ids_of(case: Case) -> Case:
    """Without what nobody asks about."""
    ids = {stream_id for _, request in case.requests for stream_id in request.ids}
    entries = {stream_id: fields for stream_id, fields in case.entries.items() if stream_id in ids}
    if case.group is None:
        return replace(case, entries=entries)
    pending = tuple(entry for entry in case.group.pending if entry.id in ids)
    return replace(case, entries=entries, group=replace(case.group, pending=pending))


def random_batch(streams: int, seed: int) -> Batch:
    """A batch of so many streams: for one seed always the same."""
    rng = Random(seed)
    drawn = [
        (rng.randrange(len(_STREAMS)), _drawn_group(rng), _drawn_group(rng)) for _ in range(streams)
    ]
    return _batch(drawn, seed)


def _drawn_group(rng: Random) -> Drawn:
    ids = (len(IDS) + 1) ** IDS_OF_REQUEST
    return (
        rng.randrange(len(_GROUPS)),
        tuple(rng.randrange(len(_ENTRIES)) for _ in range(PENDING)),
        [(rng.randrange(len(_REQUESTS)), rng.randrange(ids)) for _ in range(rng.randint(0, 4))],
    )


def _batch(drawn: Sequence[tuple[int, Drawn, Drawn]], seed: int) -> Batch:
    keyspace, instants, proven = {}, {}, {}
    claims: list[tuple[int, NamedClaim]] = []
    for number, (code, *groups) in enumerate(drawn):
        key = b"s:%d" % number
        absent, instants[key], proven[key], also_unknown = _STREAMS[code]
        named = dict(zip((b"g", b"h"), groups, strict=True))
        keyspace[key] = Stream(
            entries={
                stream_id: (b"of", key, b"id", str(stream_id).encode("ascii"))
                for n, stream_id in enumerate(IDS)
                if n not in absent
            },
            groups={name: _group(group, instants[key]) for name, group in named.items()},
        )
        if also_unknown:
            named[UNKNOWN] = groups[0]
        claims += [
            (turn, NamedClaim(key, name, _request(*codes)))
            for name, group in named.items()
            for turn, codes in enumerate(group[-1])
        ]
    # Group after group would have each group's requests side by side.  Numbers may be negative.
    claims.sort(key=lambda claim: claim[0])
    first = -len(claims) // 2
    return Batch(
        keyspace,
        instants,
        proven,
        {first + 3 * n: claim for n, (_, claim) in enumerate(claims)},
        f"seed {seed}",
    )


def _request(code: int, ids: int) -> ClaimRequest:
    consumer, min_idle_ms, times, retrycount, force, justid, last_id, *rules = _REQUESTS[code]
    return ClaimRequest(
        consumer,
        min_idle_ms,
        tuple(_ids(ids)),
        **times,
        retrycount=retrycount,
        force=force,
        justid=justid,
        last_id=last_id,
        idle_rule=rules[0],
        profile=rules[1],
    )


def _ids(code: int) -> Iterator[StreamId]:
    """The digits of a number; 0 is no id.  Every eighth number has none, or few would."""
    if code % 8 == 0:
        return
    while code:
        code, digit = divmod(code, len(IDS) + 1)
        if digit:
            yield IDS[digit - 1]


def _group(drawn: Drawn, instant: int | None) -> Group:
    first, known, last_delivered = _GROUPS[drawn[0]]
    now_ms = NOW_MS if instant is None else instant
    pending = {
        stream_id: PendingEntry(stream_id, owner, _delivered_ms(age, now_ms), count)
        for stream_id, code in zip((*IDS, *IDS)[first:], drawn[1], strict=False)
        if code
        for age, owner, count in [_ENTRIES[code]]
    }
    return Group(last_delivered, tuple(pending[stream_id] for stream_id in sorted(pending)), known)


def _delivered_ms(age: str, now_ms: int) -> int:
    wanted = {
        "over": now_ms - MIN_IDLE_MS - 1,
        "equal": now_ms - MIN_IDLE_MS,
        "short": now_ms - MIN_IDLE_MS + 1,
        "now": now_ms,
        "future": now_ms + 1,
        "ancient": 0,
    }
    return min(wanted[age], MAX_I64)
