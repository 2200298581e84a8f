"""The cases for `claimlib.rules`, for plain values, NumPy arrays and Spark Columns alike."""

from __future__ import annotations

from dataclasses import dataclass

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
    at_boundary: bool
    idle_enough: bool
    deleted: bool
    claimed: bool
    touched: bool


@dataclass(frozen=True)
class CountCase:
    """One delivery count, by how much a claim raises it, and what it must become."""

    name: str
    delivery_count: int
    raise_by: int
    raised: int


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
            at_boundary=boundary,
            idle_enough=idle_enough,
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
]

COUNT_CASES: list[CountCase] = [
    CountCase("raised", 1, 1, 2),
    CountCase("never delivered", 0, 1, 1),
    CountCase("kept", 1, 0, 1),
    CountCase("above 2^53", 2**53, 1, 2**53 + 1),
    CountCase("up to the largest", MAX_I64 - 1, 1, MAX_I64),
    CountCase("at the largest", MAX_I64, 1, MAX_I64),
    CountCase("kept at the largest", MAX_I64, 0, MAX_I64),
]
