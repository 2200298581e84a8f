"""How many examples Hypothesis draws: as many as a test asks for, and a share of them in the quick
profile (`make test-quick`)."""

from __future__ import annotations

from hypothesis import settings

QUICK = "quick"
_DEFAULT = 100

settings.register_profile(QUICK, max_examples=10)


def examples(number: int) -> int:
    """So many examples, scaled to the profile that is loaded."""
    return max(1, number * settings().max_examples // _DEFAULT)
