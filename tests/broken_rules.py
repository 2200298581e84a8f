"""The semantic rules with one rule broken: what every comparison with the reference must notice.

The broken rules are lambdas, which travel to Spark's workers by value: there is no name by which a
worker could find the sound ones instead.
"""

from __future__ import annotations

from inspect import isfunction
from types import SimpleNamespace

from claimlib.semantics import rules

BROKEN = {
    "equality is left (> for >=)": {
        "is_idle_enough": lambda now_ms, delivery_time_ms, min_idle_ms, _equal_counts: (
            (min_idle_ms == 0) | (now_ms - delivery_time_ms > min_idle_ms)
        )
    },
    "dangling is tested after idle": {"is_touched": lambda _present, claimable: claimable},
    "the count is not raised": {
        "raised_count": lambda delivery_count, _raise_by, _exhausted: delivery_count
    },
    "what is parked is raised": {
        "raised_count": lambda delivery_count, raise_by, _exhausted: (
            delivery_count + raise_by * (delivery_count < 2**63 - 1)
        )
    },
}
# On Spark the JVM leaves such rows behind: only a test of the kernel alone can see it.
FILTERED = {
    "who is spared loses all the same": {
        "is_claimable": lambda idle_enough, _is_spared, is_parking, exhausted: (
            idle_enough & ((is_parking == False) | (exhausted == False))  # noqa: E712 - arrays
        )
    },
}

SOUND = {name: value for name, value in vars(rules).items() if isfunction(value) or name.isupper()}


def broken_rules(how: str) -> SimpleNamespace:
    """What may stand in for the module `rules`, broken in one way of `BROKEN`."""
    return SimpleNamespace(**{**SOUND, **{**BROKEN, **FILTERED}[how]})
