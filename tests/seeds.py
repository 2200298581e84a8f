"""What random states are drawn by: `make test` always by the same, the long tests by a new one."""

from __future__ import annotations

import random

import pytest


def new_seed(config: pytest.Config) -> int:
    """A seed that is made up, or the one of `--hypothesis-seed`."""
    given_seed = config.getoption("--hypothesis-seed")
    drawn_by = random.SystemRandom().getrandbits(32) if given_seed is None else int(given_seed)
    print(f"seed {drawn_by}")  # a failure shows it, too
    return drawn_by
