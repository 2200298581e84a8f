"""The cases for `semantics.rules`, for plain values, NumPy arrays and terms of SQL alike."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from claimlib.semantics import rules

MAX_I64 = 2**63 - 1


@dataclass(frozen=True)
class RuleCase:
    """One pending entry, one request, and what each rule must say; times in ms."""

    name: str
    present: bool
    now_ms: int
    delivery_time_ms: int
    min_idle_ms: int
    equal_counts: bool
    is_spared: bool
    is_parking: bool
    delivery_count: int
    park_above: int
    at_boundary: bool
    idle_enough: bool
    exhausted: bool
    claimable: bool
    deleted: bool
    claimed: bool
    touched: bool


@dataclass(frozen=True)
class CountCase:
    """One delivery count, by how much a claim raises it, and what it must become."""

    name: str
    delivery_count: int
    raise_by: int
    exhausted: bool
    raised: int


NO_GUARDS = {
    "is_spared": False,
    "is_parking": False,
    "delivery_count": MAX_I64,
    "park_above": MAX_I64,
}


def _guarded(
    name: str, guard: tuple[bool, bool, int, int], *, exhausted: bool, free: bool
) -> list[RuleCase]:
    """An entry under guards, idle enough and not, present and dangling.

    `guard` is is_spared, is_parking, delivery_count and park_above; `free`: do they let it go?
    """
    return [
        RuleCase(
            f"{name}, {'idle' if idle else 'fresh'}, {'present' if present else 'dangling'}",
            present,
            *(1000, 899 if idle else 901, 100),
            False,
            *guard,
            at_boundary=False,
            idle_enough=idle,
            exhausted=exhausted,
            claimable=idle and free,
            deleted=not present,
            claimed=present and idle and free,
            touched=not present or (idle and free),
        )
        for idle, present in product((True, False), repeat=2)
    ]


def _entry(
    name: str, times_ms: tuple[int, int, int], *, documented: bool, server: bool, boundary: bool
) -> list[RuleCase]:
    """An entry that the stream has, under both idle rules, and the same one dangling.

    `times_ms` is now, delivery time and min-idle; `documented` and `server` say who claims it.
    """
    return [
        RuleCase(
            f"{name}, {'server' if equal_counts else 'documented'}, {state}",
            present,
            *times_ms,
            equal_counts=equal_counts,
            **NO_GUARDS,
            at_boundary=boundary,
            idle_enough=idle_enough,
            exhausted=False,
            claimable=idle_enough,
            deleted=not present,
            claimed=present and idle_enough,
            touched=not present or idle_enough,
        )
        for equal_counts, idle_enough in ((False, documented), (True, server))
        for present, state in ((True, "present"), (False, "dangling"))
    ]


RULE_CASES: list[RuleCase] = [
    *_entry("idle is less", (1000, 901, 100), documented=False, server=False, boundary=False),
    *_entry("idle is equal", (1000, 900, 100), documented=False, server=True, boundary=True),
    *_entry("idle is more", (1000, 899, 100), documented=True, server=True, boundary=False),
    *_entry("one ms of one", (1000, 999, 1), documented=False, server=True, boundary=True),
    *_entry("no idle test, fresh", (1000, 1000, 0), documented=True, server=True, boundary=False),
    *_entry("no idle test, idle", (1000, 1, 0), documented=True, server=True, boundary=False),
    *_entry("no idle test, future", (1000, 1001, 0), documented=True, server=True, boundary=False),
    *_entry("future delivery", (1000, 1001, 1), documented=False, server=False, boundary=False),
    *_entry("idle is minus it", (1000, 1100, 100), documented=False, server=False, boundary=False),
    *_entry("far future", (0, MAX_I64, 1), documented=False, server=False, boundary=False),
    *_entry("far future, no test", (0, MAX_I64, 0), documented=True, server=True, boundary=False),
    *_entry("largest idle", (MAX_I64, 0, MAX_I64), documented=False, server=True, boundary=True),
    *_entry("one short", (MAX_I64, 1, MAX_I64), documented=False, server=False, boundary=False),
    *_entry("one over", (MAX_I64, 0, MAX_I64 - 1), documented=True, server=True, boundary=False),
    *_entry("no time at all", (0, 0, 0), documented=True, server=True, boundary=False),
    *_entry("above 2^53", (2**53 + 2, 1, 2**53), documented=True, server=True, boundary=False),
    *_entry("at 2^53 + 1", (2**53 + 2, 1, 2**53 + 1), documented=False, server=True, boundary=True),
    *_guarded("spared", (True, False, 1, MAX_I64), exhausted=False, free=False),
    *_guarded("parking, fresh count", (False, True, 3, 3), exhausted=False, free=True),
    *_guarded("parking, exhausted", (False, True, 4, 3), exhausted=True, free=False),
    *_guarded("exhausted", (False, False, 4, 3), exhausted=True, free=True),
    *_guarded("one delivery short", (False, False, 3, 3), exhausted=False, free=True),
    *_guarded("spared and exhausted", (True, False, 4, 3), exhausted=True, free=False),
    *_guarded("highest count", (False, False, MAX_I64, MAX_I64 - 1), exhausted=True, free=True),
    *_guarded("first delivery", (False, False, 1, 0), exhausted=True, free=True),
    *_guarded("no delivery", (False, False, 0, 0), exhausted=False, free=True),
]

COUNT_CASES: list[CountCase] = [
    CountCase("raised", 1, 1, False, 2),
    CountCase("never delivered", 0, 1, False, 1),
    CountCase("kept", 1, 0, False, 1),
    CountCase("above 2^53", 2**53, 1, False, 2**53 + 1),
    CountCase("up to the largest", MAX_I64 - 1, 1, False, MAX_I64),
    CountCase("at the largest", MAX_I64, 1, False, MAX_I64),
    CountCase("kept at the largest", MAX_I64, 0, False, MAX_I64),
    CountCase("parked", 1, 1, True, 1),
    CountCase("parked with JUSTID", 1, 0, True, 1),
    CountCase("parked at the largest", MAX_I64, 1, True, MAX_I64),
]

# Of an id that XCLAIM names: pending, owned, idle enough, FORCE; and whether it is free.  What is
# not pending has no owner, and nobody asks how long it has been idle.
FREE_CASES: list[tuple[bool, bool, bool, bool, bool]] = [
    *((False, False, idle, False, False) for idle in (False, True)),
    *((False, False, idle, True, True) for idle in (False, True)),
    *((True, False, idle, force, True) for idle, force in product((False, True), repeat=2)),
    *((True, True, False, force, False) for force in (False, True)),
    *((True, True, True, force, True) for force in (False, True)),
]

ANSWERS = ("at_boundary", "idle_enough", "exhausted", "claimable", "deleted", "claimed", "touched")


def answers(of):
    """What each rule says of the values that `of` gives by name."""
    times = of("now_ms"), of("delivery_time_ms"), of("min_idle_ms")
    idle_enough = rules.is_idle_enough(*times, of("equal_counts"))
    exhausted = rules.is_exhausted(of("delivery_count"), of("park_above"))
    claimable = rules.is_claimable(idle_enough, of("is_spared"), of("is_parking"), exhausted)
    return (
        rules.at_boundary(*times),
        idle_enough,
        exhausted,
        claimable,
        rules.is_deleted(of("present")),
        rules.is_claimed(of("present"), claimable),
        rules.is_touched(of("present"), claimable),
    )
