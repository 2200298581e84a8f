"""Decide what happens to ONE pending entry.

House rules: every rule is one expression of comparisons, `-`, `&` and `|`.  So the same expression
works on plain values, on NumPy arrays and on terms of SQL.  It has no `not`, no `~`, no `and`, no
`if` and no chained comparison.  No rule depends on the order of entries, COUNT or a cursor, because
`scan` handles them.  No rule gets a null.

Redis 7.2 and later and Valkey 9.1 do the following to each entry that XAUTOCLAIM examines:

    deleted   the stream no longer has the entry, for any idle time and any owner
    claimed   the stream has it, and it is idle enough
    left      otherwise

The idle time is now - delivery time, with its sign.  An entry is idle enough in one of these cases:

    - min-idle is 0.  Then idle times are not tested, so even a delivery in the future is claimed.
    - idle > min-idle.
    - idle == min-idle, if the idle rule counts equality.  Servers do, but their documents do not.

XCLAIM does the same to each id of its request, one after the other.  It also claims an entry
without an owner, for any idle time.  With FORCE it also claims an id that is not pending
(`goes_to_caller`).

All times are signed 64-bit and not negative, so `now - delivery time` cannot overflow.

Guards (`model.Guards`) belong to claimlib, not to the server.  An entry that is idle enough is
still left if the guards spare its owner.  A claimable entry whose delivery count has reached the
limit is parked: it is claimed for the parking consumer, as with JUSTID.  If the parking consumer
already owns it, it is left.  An entry that the stream no longer has is deleted despite all guards.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from claimlib.semantics.model import DELIVERY_COUNT_MAX, IdleRule, Profile

Value = Any
"""A plain value, a NumPy array or a term of SQL (`plans.sql_terms`).

The values of one call must fit together.
"""

EQUAL_COUNTS: Mapping[IdleRule, bool] = MappingProxyType(
    {IdleRule.DOCUMENTED: False, IdleRule.SERVER: True}
)
"""For each idle rule, True if it claims an entry whose idle time equals min-idle exactly."""

SEES_EVERY_CALLER: Mapping[Profile, bool] = MappingProxyType(
    {Profile.REDIS_7_2: True, Profile.REDIS_7_0: False}
)
"""For each profile, True if a call that gets no entry creates the consumer and sets its seen time.

Such a server also stores the time at which a consumer was last active.
"""

NEVER_PARKED = DELIVERY_COUNT_MAX
"""The `park_above` of a request that parks no entry, because no count is above it."""

FORCED_COUNT = 1
"""The delivery count of an id that FORCE has just made pending, before the claim raises it."""

# `== _FALSE` is the negation, because the rules must not use `not`.
_FALSE = False


def is_deleted(present: Value) -> Value:
    """Return True if an entry leaves the PEL.

    `present` is True if the stream has its id.
    """
    return present == _FALSE


def at_boundary(now_ms: Value, delivery_time_ms: Value, min_idle_ms: Value) -> Value:
    """Return True if an entry was idle for exactly min-idle, so that the idle rules differ."""
    return (now_ms - delivery_time_ms == min_idle_ms) & (min_idle_ms > 0)


def is_idle_enough(
    now_ms: Value, delivery_time_ms: Value, min_idle_ms: Value, equal_counts: Value
) -> Value:
    """Return True if an entry has been idle for long enough to be claimed.

    `equal_counts`: see `EQUAL_COUNTS`.
    """
    idle_ms = now_ms - delivery_time_ms
    return (min_idle_ms == 0) | (idle_ms > min_idle_ms) | ((idle_ms == min_idle_ms) & equal_counts)


def is_exhausted(delivery_count: Value, park_above: Value) -> Value:
    """Return True if an entry has so many deliveries that a claim parks it."""
    return delivery_count > park_above


def is_claimable(
    idle_enough: Value, is_spared: Value, is_parking: Value, exhausted: Value
) -> Value:
    """Return True if an entry gets a new owner, provided that the stream has it.

    `is_spared` is True if the guards spare its owner.  `is_parking` is True if its owner is the
    parking consumer.  `exhausted`: see `is_exhausted`.
    """
    return idle_enough & (is_spared == _FALSE) & ((is_parking == _FALSE) | (exhausted == _FALSE))


def is_claimed(present: Value, claimable: Value) -> Value:
    """Return True if an entry gets a new owner."""
    return present & claimable


def goes_to_caller(pending: Value, owned: Value, idle_enough: Value, force: Value) -> Value:
    """Return True if an id of an XCLAIM goes to the caller, provided that the stream has it.

    `pending` is True if the id is in the PEL, and `owned` if it has an owner there.  FORCE has an
    effect only on an id that is not pending.
    """
    return ((pending == _FALSE) & force) | (pending & ((owned == _FALSE) | idle_enough))


def is_touched(present: Value, claimable: Value) -> Value:
    """Return True if an entry is deleted or claimed."""
    return is_deleted(present) | is_claimed(present, claimable)


def raised_count(delivery_count: Value, raise_by: Value, exhausted: Value) -> Value:
    """Return the delivery count of a claimed entry, from plain values or NumPy arrays only.

    `raise_by` is 1, or 0 with JUSTID.  A parked entry keeps its count.  A count of 2^63-1 is not
    raised.
    """
    return delivery_count + raise_by * (exhausted == _FALSE) * (delivery_count < DELIVERY_COUNT_MAX)
