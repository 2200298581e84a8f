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
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Sequence
from dataclasses import replace

from claimlib import rules
from claimlib.ids import END_OF_SCAN, StreamId
from claimlib.model import (
    SCAN_BUDGET_FACTOR,
    AutoclaimReply,
    AutoclaimRequest,
    Consumer,
    Group,
    Outcome,
    PendingEntry,
    Profile,
)


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
    """
    has_id = present if callable(present) else present.__contains__
    first = bisect_left(group.pending, request.start, key=lambda entry: entry.id)
    outcomes = _examine(group.pending[first:], request, now_ms, has_id)
    after_last = first + len(outcomes)
    examined = list(zip(group.pending[first:after_last], outcomes, strict=True))
    kept = [
        _claimed(entry, request, now_ms) if outcome is Outcome.CLAIMED else entry
        for entry, outcome in examined
        if outcome is not Outcome.DELETED
    ]
    reply = AutoclaimReply(
        cursor=group.pending[after_last].id if after_last < len(group.pending) else END_OF_SCAN,
        claimed=tuple(entry.id for entry, outcome in examined if outcome is Outcome.CLAIMED),
        deleted=tuple(entry.id for entry, outcome in examined if outcome is Outcome.DELETED),
    )
    return replace(
        group,
        pending=(*group.pending[:first], *kept, *group.pending[after_last:]),
        consumers=_seen(group.consumers, request, now_ms, got_entries=bool(reply.claimed)),
    ), reply


def _examine(
    entries: Sequence[PendingEntry],
    request: AutoclaimRequest,
    now_ms: int,
    has_id: Callable[[StreamId], bool],
) -> list[Outcome]:
    """The outcomes of the entries that the call examines: always of the first ones."""
    left = len(entries) if request.count is None else request.count
    budget = left * SCAN_BUDGET_FACTOR
    outcomes: list[Outcome] = []
    for entry in entries[:budget]:
        if left == 0:
            break
        outcome = _outcome(entry, request, now_ms, is_present=has_id(entry.id))
        if outcome is not Outcome.LEFT:
            left -= 1
        outcomes.append(outcome)
    return outcomes


def _outcome(
    entry: PendingEntry, request: AutoclaimRequest, now_ms: int, *, is_present: bool
) -> Outcome:
    if rules.is_deleted(is_present):
        return Outcome.DELETED
    idle_enough = rules.is_idle_enough(
        now_ms,
        entry.delivery_time_ms,
        request.min_idle_ms,
        rules.EQUAL_COUNTS[request.idle_rule],
    )
    return Outcome.CLAIMED if rules.is_claimed(is_present, idle_enough) else Outcome.LEFT


def _claimed(entry: PendingEntry, request: AutoclaimRequest, now_ms: int) -> PendingEntry:
    return PendingEntry(
        id=entry.id,
        consumer=request.consumer,
        delivery_time_ms=now_ms,
        delivery_count=rules.raised_count(entry.delivery_count, 0 if request.justid else 1),
    )


def _seen(
    consumers: Sequence[Consumer], request: AutoclaimRequest, now_ms: int, *, got_entries: bool
) -> tuple[Consumer, ...]:
    """The consumers after the call: the caller is created, seen, and active if it got entries."""
    if request.profile is Profile.REDIS_7_0 and not got_entries:
        return tuple(consumers)
    by_name = {consumer.name: consumer for consumer in consumers}
    caller = by_name.get(request.consumer)
    active_time_ms = caller.active_time_ms if caller else None
    if got_entries and request.profile is not Profile.REDIS_7_0:
        active_time_ms = now_ms
    by_name[request.consumer] = Consumer(request.consumer, now_ms, active_time_ms)
    return tuple(by_name[name] for name in sorted(by_name))
