"""How many examples Hypothesis draws.

They are as many as a test asks for (`make test-properties`), and a share of them in the profiles
`some` (`make test`), `quick` (`make test-quick`) and `mutations` (`make test-mutations`).  The last
one always draws the same examples and does not look for the smallest.
"""

from __future__ import annotations

from hypothesis import Phase, settings

QUICK = "quick"
SOME = "some"
MUTATIONS = "mutations"
_DEFAULT = 100

settings.register_profile(QUICK, max_examples=10)
settings.register_profile(SOME, max_examples=25)
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
