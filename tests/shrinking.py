"""The smallest example of a difference between the reference and the tables.

Random states differ in groups of ten entries with requests of ten options, most of which have
nothing to do with it.  `smallest` takes away entries and options as long as the group still
differs.  Spark is slow to answer and answers about hundreds of groups at once, so a round asks it
about all that may be taken away, each as a group of its own of ONE batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import Any, Generic, TypeVar

Case = TypeVar("Case")

Size = tuple[int, ...]
"""How large a case is: what weighs most comes first."""

MOST_ROUNDS = 8
MOST_AT_ONCE = 256


@dataclass(frozen=True)
class Difference(Generic[Case]):
    """One group, what the reference says of it, and what the tables say."""

    case: Case
    expected: object
    actual: object


Differing = Callable[[Sequence[Case]], Iterable[Difference[Case]]]
"""Of cases, as the groups of one batch: those that differ, in their order."""


@dataclass(frozen=True)
class Smallest(Generic[Case]):
    """The smallest difference that was found, and how.

    Attributes:
        rounds: how often Spark was asked.
        is_alone: whether the group differs without the others of its batch; else nothing was taken
            away.
    """

    difference: Difference[Case]
    rounds: int
    is_alone: bool

    def __str__(self) -> str:
        """What is printed where a test fails."""
        how = (
            f"the smallest such group that {self.rounds} rounds of Spark found"
            if self.is_alone
            else "the first of them, which differs among the others only"
        )
        difference = self.difference
        lines = [f"{how}:", *_lines(difference.case)]
        return "\n  ".join(
            [
                *lines,
                f"the reference says: {difference.expected}",
                f"the tables say: {difference.actual}",
            ]
        )


def _lines(case: Any) -> Iterator[str]:
    for name, value in case.described().items():
        yield f"{name}: {value}"


def assert_same(
    differences: Sequence[Difference[Case]],
    simpler: Callable[[Case], Iterable[Case]],
    size: Callable[[Case], Size],
    differing: Differing[Case],
) -> None:
    """Fail where groups differ, with the smallest example to be had of the smallest of them."""
    if differences:
        first = min(differences, key=lambda difference: size(difference.case))
        example = smallest(first, simpler, size, differing)
        raise AssertionError(f"{len(differences):,} groups differ from the reference; {example}")


def smallest(
    first: Difference[Case],
    simpler: Callable[[Case], Iterable[Case]],
    size: Callable[[Case], Size],
    differing: Differing[Case],
) -> Smallest[Case]:
    """The smallest difference to be had by taking away from a group that differs: always the same.

    Args:
        simpler: a case with less of something, in as many ways as there are; what should be tried
            first comes first.
        size: each simpler case is smaller.
    """
    best, rounds, is_alone = first, 0, False
    while rounds < MOST_ROUNDS:
        least = size(best.case)
        fewer = (case for case in simpler(best.case) if size(case) < least)
        cases = [*([] if is_alone else [best.case]), *islice(_once(fewer), MOST_AT_ONCE)]
        if not cases:
            break
        rounds += 1
        differences = list(differing(cases))
        if not differences:
            break
        is_alone = True
        better = min(differences, key=lambda difference: size(difference.case))
        if size(better.case) >= least:
            break
        best = better
    return Smallest(best, rounds, is_alone)


def _once(cases: Iterable[Case]) -> Iterator[Case]:
    seen: set[str] = set()
    for case in cases:
        if repr(case) not in seen:
            seen.add(repr(case))
            yield case


# ---- what may be taken away ----


def fewer_of(items: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Fewer items: none, each alone, each two, each half, all but each one."""
    yield ()
    for number in (1, 2):
        if number < len(items):
            yield from combinations(items, number)
    half = len(items) // 2
    if half > 2:
        yield tuple(items[:half])
        yield tuple(items[half:])
    if len(items) > 3:
        yield from combinations(items, len(items) - 1)


def plainer(value: Any, plain: Sequence[dict[str, Any]]) -> Iterator[Any]:
    """A frozen value with some of its attributes as `plain` has them, the most of them first; each
    of `plain` is taken or left as a whole."""
    changes = [change for change in plain if replace(value, **change) != value]
    for number in range(len(changes), 0, -1):
        for some in combinations(changes, number):
            yield replace(
                value, **{name: attribute for each in some for name, attribute in each.items()}
            )


def oddities(value: Any, plain: Sequence[dict[str, Any]]) -> int:
    """How many of `plain` a frozen value does not have."""
    return sum(replace(value, **change) != value for change in plain)
