"""Run commands on one group's pending entries list, entry by entry, as the reference.

House rules: `rules` alone decides what happens to one entry.  This module alone decides what COUNT,
the scan budget, the cursor and the consumers do.  No value is changed in place, and no clock is
read.

XAUTOCLAIM (Redis 7.2 and later, Valkey 9.1).  A call examines the PEL by id, from `start` on, until

    - 10 * COUNT entries were examined (the scan budget), or
    - COUNT of them were claimed or deleted.  An entry that is left uses up only budget.

The cursor is the id of the first entry that was not examined, or 0-0 if there is none.  The outcome
of an examined entry does not depend on the entries before it.  A sweep repeats the call with the
cursor, all at the same time, until the cursor is 0-0.  So a sweep has the same result for any
COUNT.

Guards use the state before the call.  An entry that they spare is left, and uses up only budget.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

from claimlib.errors import GuardError
from claimlib.semantics import rules
from claimlib.semantics.ids import END_OF_SCAN, StreamId
from claimlib.semantics.model import (
    SCAN_BUDGET_FACTOR,
    AutoclaimReply,
    AutoclaimRequest,
    ClaimReply,
    ClaimRequest,
    Consumer,
    Group,
    Guards,
    Outcome,
    PendingEntry,
    PendingRange,
    PendingSummary,
    Profile,
)
from claimlib.semantics.names import matches

Call = tuple[bytes, bool]
"""The consumer that calls a command, and True if it gets entries."""


def xautoclaim(
    group: Group,
    request: AutoclaimRequest,
    now_ms: int,
    present: Callable[[StreamId], bool] | Container[StreamId],
) -> tuple[Group, AutoclaimReply]:
    """Run one XAUTOCLAIM at `now_ms`, or a whole sweep if the request has no count.

    `present` is the ids that the stream still has, or a function that returns True for such an id.

    Returns:
        The group's new state, and the reply.

    Raises:
        GuardError: the request would claim or delete more than its guards allow.
    """
    has_id = present if callable(present) else present.__contains__
    first = bisect_left(group.pending, request.start, key=lambda entry: entry.id)
    outcome_of = partial(_outcome, group, request, now_ms, has_id)
    outcomes = _examine(group.pending[first:], request.count, outcome_of)
    after_last = first + len(outcomes)
    examined = list(zip(group.pending[first:after_last], outcomes, strict=True))
    kept = [
        _state_after(entry, outcome, request, now_ms)
        for entry, outcome in examined
        if outcome is not Outcome.DELETED
    ]
    reply = AutoclaimReply(
        cursor=group.pending[after_last].id if after_last < len(group.pending) else END_OF_SCAN,
        claimed=tuple(entry.id for entry, outcome in examined if outcome in _NEW_OWNER),
        deleted=tuple(entry.id for entry, outcome in examined if outcome is Outcome.DELETED),
    )
    _check_limits(group, request, reply)
    return replace(
        group,
        pending=(*group.pending[:first], *kept, *group.pending[after_last:]),
        consumers=_consumers_after(
            group.consumers, _callers(request, outcomes), request.profile, now_ms
        ),
    ), reply


_NEW_OWNER = (Outcome.CLAIMED, Outcome.PARKED)


def _check_limits(group: Group, request: AutoclaimRequest, reply: AutoclaimReply) -> None:
    guards, pending = request.guards, len(group.pending)
    claims, purges = len(reply.claimed), len(reply.deleted)
    if guards.max_claims is not None and claims > guards.max_claims:
        raise GuardError(
            f"guard max_claims: {claims} entries would be claimed, and it allows"
            f" {guards.max_claims}"
        )
    share = guards.max_deleted_share
    if share is not None and purges and purges / pending > share:
        raise GuardError(
            f"guard max_deleted_share: {purges} of {pending} pending entries would be deleted, more"
            f" than a share of {share:.4f}"
        )


def _examine(
    entries: Sequence[PendingEntry],
    count: int | None,
    outcome_of: Callable[[PendingEntry], Outcome],
) -> list[Outcome]:
    """Examine entries from the first on, and return the outcome of each examined entry."""
    remaining = len(entries) if count is None else count
    budget = remaining * SCAN_BUDGET_FACTOR
    outcomes: list[Outcome] = []
    for entry in entries[:budget]:
        if remaining == 0:
            break
        outcome = outcome_of(entry)
        if outcome is not Outcome.LEFT:
            remaining -= 1
        outcomes.append(outcome)
    return outcomes


def _outcome(
    group: Group,
    request: AutoclaimRequest,
    now_ms: int,
    has_id: Callable[[StreamId], bool],
    entry: PendingEntry,
) -> Outcome:
    is_present = has_id(entry.id)
    if rules.is_deleted(is_present):
        return Outcome.DELETED
    exhausted = rules.is_exhausted(entry.delivery_count, _park_above(request.guards))
    claimable = rules.is_claimable(
        _is_idle_enough(entry.delivery_time_ms, request.min_idle_ms, request, now_ms),
        _is_spared(entry.consumer, group, request, now_ms),
        entry.consumer is not None and entry.consumer == request.guards.parking_consumer,
        exhausted,
    )
    if not rules.is_claimed(is_present, claimable):
        return Outcome.LEFT
    return Outcome.PARKED if exhausted else Outcome.CLAIMED


def _is_idle_enough(
    since_ms: int, least_ms: int, request: AutoclaimRequest | ClaimRequest, now_ms: int
) -> bool:
    equal_counts = rules.EQUAL_COUNTS[request.idle_rule]
    return bool(rules.is_idle_enough(now_ms, since_ms, least_ms, equal_counts))


def _park_above(guards: Guards) -> int:
    return rules.NEVER_PARKED if guards.max_deliveries is None else guards.max_deliveries - 1


def _is_spared(owner: bytes | None, group: Group, request: AutoclaimRequest, now_ms: int) -> bool:
    """Return True if the guards do not allow that entries of an owner are claimed."""
    guards = request.guards
    if guards.only_from is not None and (owner is None or not matches(guards.only_from, owner)):
        return True
    if guards.only_consumers_idle_ms is None or owner is None:
        return False
    known = next((consumer for consumer in group.consumers if consumer.name == owner), None)
    if known is None:
        return True
    last_ms = known.seen_time_ms if known.active_time_ms is None else known.active_time_ms
    return not _is_idle_enough(last_ms, guards.only_consumers_idle_ms, request, now_ms)


def _state_after(
    entry: PendingEntry, outcome: Outcome, request: AutoclaimRequest, now_ms: int
) -> PendingEntry:
    """Return the new state of an entry that is not deleted."""
    if outcome is Outcome.LEFT:
        return entry
    parked = outcome is Outcome.PARKED
    return PendingEntry(
        id=entry.id,
        consumer=request.guards.parking_consumer if parked else request.consumer,
        delivery_time_ms=now_ms,
        delivery_count=rules.raised_count(entry.delivery_count, int(not request.justid), parked),
    )


def _callers(request: AutoclaimRequest, outcomes: Sequence[Outcome]) -> Iterator[Call]:
    yield request.consumer, Outcome.CLAIMED in outcomes
    if Outcome.PARKED in outcomes and request.guards.parking_consumer is not None:
        yield request.guards.parking_consumer, True


def _consumers_after(
    consumers: Sequence[Consumer], calls: Iterable[Call], profile: Profile, now_ms: int
) -> tuple[Consumer, ...]:
    """Return the consumers after the calls.

    A call creates its consumer, sets the seen time, and sets the active time if it got entries.
    Some profiles differ, see `rules.SEES_EVERY_CALLER`.
    """
    by_name = {consumer.name: consumer for consumer in consumers}
    sees_every_caller = rules.SEES_EVERY_CALLER[profile]
    for name, got_entries in calls:
        if got_entries or sees_every_caller:
            known = by_name.get(name)
            active_time_ms = known.active_time_ms if known is not None else None
            if got_entries and sees_every_caller:
                active_time_ms = now_ms
            by_name[name] = Consumer(name, now_ms, active_time_ms)
    return tuple(by_name[name] for name in sorted(by_name))


# ------------------------------------------------------------------- XCLAIM


def xclaim(
    group: Group,
    request: ClaimRequest,
    now_ms: int,
    present: Callable[[StreamId], bool] | Container[StreamId],
) -> tuple[Group, ClaimReply]:
    """Run one XCLAIM at `now_ms`, id by id in the order of the request.

    - An id that the stream no longer has leaves the PEL in any case.
    - An id that is not pending is skipped.  With FORCE it is made pending first, and is claimed.
    - An id that has an owner and is not idle enough stays, even with FORCE.

    Returns:
        The group's new state, and the reply.
    """
    has_id = present if callable(present) else present.__contains__
    pending = {entry.id: entry for entry in group.pending}
    claimed: list[StreamId] = []
    deleted: list[StreamId] = []
    for stream_id in request.ids:
        entry = pending.get(stream_id)
        if not has_id(stream_id):
            if pending.pop(stream_id, None) is not None:
                deleted.append(stream_id)
        elif _is_free(entry, request, now_ms):
            pending[stream_id] = _claimed_entry(stream_id, entry, request, now_ms)
            claimed.append(stream_id)
    raised_id = max(group.last_delivered_id, request.last_id or group.last_delivered_id)
    return Group(
        last_delivered_id=raised_id,
        pending=tuple(pending[stream_id] for stream_id in sorted(pending)),
        consumers=_consumers_after(
            group.consumers, [(request.consumer, bool(claimed))], request.profile, now_ms
        ),
    ), ClaimReply(tuple(claimed), tuple(deleted))


def _is_free(entry: PendingEntry | None, request: ClaimRequest, now_ms: int) -> bool:
    """Return True if an id that the stream has goes to the caller."""
    since_ms = 0 if entry is None else entry.delivery_time_ms
    idle_enough = _is_idle_enough(since_ms, request.min_idle_ms, request, now_ms)
    owned = entry is not None and entry.consumer is not None
    return bool(rules.goes_to_caller(entry is not None, owned, idle_enough, request.force))


def _claimed_entry(
    stream_id: StreamId, entry: PendingEntry | None, request: ClaimRequest, now_ms: int
) -> PendingEntry:
    before = rules.FORCED_COUNT if entry is None else entry.delivery_count
    raised = rules.raised_count(before, int(not request.justid), exhausted=False)
    return PendingEntry(
        id=stream_id,
        consumer=request.consumer,
        delivery_time_ms=_delivery_time_ms(request, now_ms),
        delivery_count=raised if request.retrycount is None else request.retrycount,
    )


def _delivery_time_ms(request: ClaimRequest, now_ms: int) -> int:
    """Return the time of IDLE or TIME, or now if that time is before 1970 or in the future."""
    if request.idle_ms is not None:
        wanted = now_ms - request.idle_ms
    else:
        wanted = now_ms if request.time_ms is None else request.time_ms
    return wanted if 0 <= wanted <= now_ms else now_ms


# ------------------------------------------------------------------- XPENDING, XACK


def xpending_summary(group: Group) -> PendingSummary:
    """Return the number of pending entries, their first and last id, and the number by owner."""
    owners = Counter(entry.consumer for entry in group.pending if entry.consumer is not None)
    return PendingSummary(
        number=len(group.pending),
        smallest=group.pending[0].id if group.pending else None,
        largest=group.pending[-1].id if group.pending else None,
        consumers=tuple(sorted(owners.items())),
    )


def xpending_range(group: Group, query: PendingRange, now_ms: int) -> tuple[PendingEntry, ...]:
    """Return the pending entries of a range, by id.

    Entries that the stream no longer has are among them.
    """
    least_ms = query.min_idle_ms or 0
    matching = (
        entry
        for entry in group.pending
        if query.start <= entry.id <= query.end
        and (query.consumer is None or entry.consumer == query.consumer)
        and (least_ms == 0 or now_ms - entry.delivery_time_ms >= least_ms)
    )
    return tuple(islice(matching, max(0, query.count)))


def xack(group: Group, ids: Iterable[StreamId]) -> tuple[Group, int]:
    """Remove ids from the PEL.

    Return the group's new state, and the number of the ids that were pending.
    """
    acknowledged = set(ids)
    kept = tuple(entry for entry in group.pending if entry.id not in acknowledged)
    return replace(group, pending=kept), len(group.pending) - len(kept)
