"""How many examples Hypothesis draws: as many as a test asks for, and a share of them in the quick
profile (`make test-quick`) and in that of mutations (`make test-mutations`), which always draws the
same ones and does not look for the smallest."""

from __future__ import annotations

from hypothesis import Phase, settings

QUICK = "quick"
MUTATIONS = "mutations"
_DEFAULT = 100

settings.register_profile(QUICK, max_examples=10)
settings.register_profile(
    MUTATIONS,
    max_examples=10,
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
)


def examples(number: int) -> int:
    """So many examples, scaled to the profile that is loaded."""
    return max(1, number * settings().max_examples // _DEFAULT)
