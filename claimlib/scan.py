"""One group's pending entries list, entry by entry: the reference for what XAUTOCLAIM does.

House rules: `rules` alone says what happens to one entry; what COUNT, the scan budget, the cursor
and the consumers do is said here and nowhere else.  Nothing is changed in place, and no clock is
read.

The theory (Redis 7.2 and later, Valkey 9.1).  A call examines the PEL by id, from `start` on, until

    - 10 * COUNT entries were examined (the scan budget), or
    - COUNT of them were hits: claimed or deleted.  Entries that are left cost budget only.

The cursor is the first entry not examined, 0-0 if there is none.  What was examined is therefore a
prefix, and what happens to an entry does not depend on the entries before it: repeating the call
with the cursor until it is 0-0, at one instant, gives the same for any COUNT.  That is a sweep.

Guards are judged by the state before the call.  What they spare is left, and costs budget only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from functools import partial

from claimlib import rules
from claimlib.errors import GuardError
from claimlib.ids import END_OF_SCAN, StreamId
from claimlib.model import (
    SCAN_BUDGET_FACTOR,
    AutoclaimReply,
    AutoclaimRequest,
    Consumer,
    Group,
    Guards,
    Outcome,
    PendingEntry,
    Profile,
)
from claimlib.names import matches


def xautoclaim(
    group: Group,
    request: AutoclaimRequest,
    now_ms: int,
    present: Callable[[StreamId], bool] | Container[StreamId],
) -> tuple[Group, AutoclaimReply]:
    """One XAUTOCLAIM at `now_ms`, or a whole sweep where the request has no count.

    `present`: the ids that the stream still has, or a function that says whether it has one.

    Returns:
        The group's new state, and the reply.

    Raises:
        GuardError: it would claim or delete more than the request's guards allow.
    """
    has_id = present if callable(present) else present.__contains__
    first = bisect_left(group.pending, request.start, key=lambda entry: entry.id)
    outcome_of = partial(_outcome, group, request, now_ms, has_id)
    outcomes = _examine(group.pending[first:], request.count, outcome_of)
    after_last = first + len(outcomes)
    examined = list(zip(group.pending[first:after_last], outcomes, strict=True))
    kept = [
        _after(entry, outcome, request, now_ms)
        for entry, outcome in examined
        if outcome is not Outcome.DELETED
    ]
    reply = AutoclaimReply(
        cursor=group.pending[after_last].id if after_last < len(group.pending) else END_OF_SCAN,
        claimed=tuple(entry.id for entry, outcome in examined if outcome in _HANDED_OVER),
        deleted=tuple(entry.id for entry, outcome in examined if outcome is Outcome.DELETED),
    )
    _check_limits(group, request, reply)
    return replace(
        group,
        pending=(*group.pending[:first], *kept, *group.pending[after_last:]),
        consumers=_seen(group.consumers, request, now_ms, outcomes),
    ), reply


_HANDED_OVER = (Outcome.CLAIMED, Outcome.PARKED)


def _check_limits(group: Group, request: AutoclaimRequest, reply: AutoclaimReply) -> None:
    guards, pending = request.guards, len(group.pending)
    claims, purges = len(reply.claimed), len(reply.deleted)
    if guards.max_claims is not None and claims > guards.max_claims:
        raise GuardError(f"guard max_claims: {claims} entries would be claimed")
    share = guards.max_deleted_share
    if share is not None and purges and purges / pending > share:
        raise GuardError(
            f"guard max_deleted_share: {purges} of {pending} pending entries would be deleted"
        )


def _examine(
    entries: Sequence[PendingEntry],
    count: int | None,
    outcome_of: Callable[[PendingEntry], Outcome],
) -> list[Outcome]:
    """The outcomes of the entries that the call examines: always of the first ones."""
    left = len(entries) if count is None else count
    budget = left * SCAN_BUDGET_FACTOR
    outcomes: list[Outcome] = []
    for entry in entries[:budget]:
        if left == 0:
            break
        outcome = outcome_of(entry)
        if outcome is not Outcome.LEFT:
            left -= 1
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


def _is_idle_enough(since_ms: int, least_ms: int, request: AutoclaimRequest, now_ms: int) -> bool:
    equal_counts = rules.EQUAL_COUNTS[request.idle_rule]
    return bool(rules.is_idle_enough(now_ms, since_ms, least_ms, equal_counts))


def _park_above(guards: Guards) -> int:
    return rules.NEVER_PARKED if guards.max_deliveries is None else guards.max_deliveries - 1


def _is_spared(owner: bytes | None, group: Group, request: AutoclaimRequest, now_ms: int) -> bool:
    """Whether the guards leave an owner what it has."""
    guards = request.guards
    if guards.only_from is not None and (owner is None or not matches(guards.only_from, owner)):
        return True
    if guards.only_consumers_idle_ms is None or owner is None:
        return False
    known = next((one for one in group.consumers if one.name == owner), None)
    if known is None:
        return True
    last_ms = known.seen_time_ms if known.active_time_ms is None else known.active_time_ms
    return not _is_idle_enough(last_ms, guards.only_consumers_idle_ms, request, now_ms)


def _after(
    entry: PendingEntry, outcome: Outcome, request: AutoclaimRequest, now_ms: int
) -> PendingEntry:
    """What becomes of an entry that is not deleted."""
    if outcome is Outcome.LEFT:
        return entry
    parked = outcome is Outcome.PARKED
    return PendingEntry(
        id=entry.id,
        consumer=request.guards.parking_consumer if parked else request.consumer,
        delivery_time_ms=now_ms,
        delivery_count=rules.raised_count(entry.delivery_count, int(not request.justid), parked),
    )


def _seen(
    consumers: Sequence[Consumer],
    request: AutoclaimRequest,
    now_ms: int,
    outcomes: Sequence[Outcome],
) -> tuple[Consumer, ...]:
    """The consumers after the call: the caller is created, seen, and active if it got entries;
    the parking consumer as if it had called, if it got entries."""
    by_name = {consumer.name: consumer for consumer in consumers}
    has_active_time = request.profile is not Profile.REDIS_7_0
    got_entries = Outcome.CLAIMED in outcomes
    if got_entries or has_active_time:
        _see(by_name, request.consumer, now_ms, is_active=got_entries and has_active_time)
    if Outcome.PARKED in outcomes and request.guards.parking_consumer is not None:
        _see(by_name, request.guards.parking_consumer, now_ms, is_active=has_active_time)
    return tuple(by_name[name] for name in sorted(by_name))


def _see(by_name: dict[bytes, Consumer], name: bytes, now_ms: int, *, is_active: bool) -> None:
    known = by_name.get(name)
    last_active_ms = known.active_time_ms if known is not None else None
    by_name[name] = Consumer(name, now_ms, now_ms if is_active else last_active_ms)
