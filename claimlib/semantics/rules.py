"""What happens to ONE pending entry.

House rules: every rule is one expression of comparisons, `-`, `&` and `|`, so that the very same
expression works on plain values, on NumPy arrays and on terms of SQL.  No `not`, no `~`, no `and`,
no `if`, no chained comparison.  Nothing here knows of an order among entries, of COUNT or of a
cursor; that is `scan`.  No rule meets a null.

The theory, as Redis 7.2 and later and Valkey 9.1 do it for each entry that XAUTOCLAIM examines:

    deleted   the stream no longer has the entry, whatever its idle time and whoever owns it
    claimed   the stream has it, and it is idle enough
    left      otherwise

    idle = now - delivery time, with its sign.  Idle enough: min-idle is 0, which is no idle test at
    all, so that even a delivery in the future is claimed; or idle > min-idle; or, where the idle
    rule lets equality count, idle == min-idle.  Servers let it count, the documents do not.

XCLAIM does the same to the ids that it names, one after the other, but claims what has no owner
however fresh it is, and with FORCE what is not pending (`is_free`).

All times are signed 64-bit and not negative, so `now - delivery time` cannot overflow.

Guards (`model.Guards`) are ours, not the server's.  Where a request has any, an entry that is idle
enough is still left if its owner is spared; and one whose delivery count has reached the limit is
parked: claimed for the parking consumer as with JUSTID, or left where that consumer has it already.
A dangling entry is deleted whatever the guards say.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from claimlib.semantics.model import DELIVERY_COUNT_MAX, IdleRule, Profile

Value = Any
"""A plain value, a NumPy array or a term of SQL (`plans.sql_terms`); all the values of one call go
together."""

EQUAL_COUNTS: Mapping[IdleRule, bool] = MappingProxyType(
    {IdleRule.DOCUMENTED: False, IdleRule.SERVER: True}
)
"""Whether an idle rule claims an entry whose idle time equals min-idle exactly."""

SEES_EVERY_CALLER: Mapping[Profile, bool] = MappingProxyType(
    {Profile.REDIS_7_2: True, Profile.REDIS_7_0: False}
)
"""Whether a server creates, and sees, a consumer that calls and gets nothing, and keeps the time at
which a consumer was last active."""

NEVER_PARKED = DELIVERY_COUNT_MAX
"""The `park_above` of a request that parks nothing: no count is above it."""

FORCED_COUNT = 1
"""The delivery count of what FORCE has just made pending, before the claim raises it."""

_NO = False


def is_deleted(present: Value) -> Value:
    """Return True if an entry leaves the PEL.  `present`: whether the stream has its id."""
    return present == _NO


def at_boundary(now_ms: Value, delivery_time_ms: Value, min_idle_ms: Value) -> Value:
    """Return True if the idle rules disagree about an entry: it has been idle for exactly
    min-idle.
    """
    return (now_ms - delivery_time_ms == min_idle_ms) & (min_idle_ms > 0)


def is_idle_enough(
    now_ms: Value, delivery_time_ms: Value, min_idle_ms: Value, equal_counts: Value
) -> Value:
    """Return True if an entry may be claimed, if it is present.

    `equal_counts`: see `EQUAL_COUNTS`.
    """
    idle_ms = now_ms - delivery_time_ms
    return (min_idle_ms == 0) | (idle_ms > min_idle_ms) | ((idle_ms == min_idle_ms) & equal_counts)


def is_exhausted(delivery_count: Value, park_above: Value) -> Value:
    """Return True if an entry was delivered so often that it is parked instead of claimed."""
    return delivery_count > park_above


def is_claimable(
    idle_enough: Value, is_spared: Value, is_parking: Value, exhausted: Value
) -> Value:
    """Return True if an entry gets a new owner, if it is present.

    `is_spared`: do the guards leave its owner what it has?  `is_parking`: is its owner the parking
    consumer?  `exhausted`: see `is_exhausted`.
    """
    return idle_enough & (is_spared == _NO) & ((is_parking == _NO) | (exhausted == _NO))


def is_claimed(present: Value, claimable: Value) -> Value:
    """Return True if an entry gets a new owner."""
    return present & claimable


def is_free(pending: Value, owned: Value, idle_enough: Value, force: Value) -> Value:
    """Return True if an id that XCLAIM names goes to the caller, if it is present.

    `pending`: is it in the PEL?  `owned`: has it an owner there?  FORCE makes pending what is not;
    what is pending it does not free.
    """
    return ((pending == _NO) & force) | (pending & ((owned == _NO) | idle_enough))


def is_touched(present: Value, claimable: Value) -> Value:
    """Return True if anything happens to an entry: it is deleted or claimed."""
    return is_deleted(present) | is_claimed(present, claimable)


def raised_count(delivery_count: Value, raise_by: Value, exhausted: Value) -> Value:
    """Return the delivery count of a claimed entry.  Plain values and NumPy arrays only.

    `raise_by` is 1, or 0 with JUSTID; what is parked keeps its count.  The count stays at 2^63-1
    once it is there.
    """
    return delivery_count + raise_by * (exhausted == _NO) * (delivery_count < DELIVERY_COUNT_MAX)
