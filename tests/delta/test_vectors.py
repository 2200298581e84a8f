"""Replay every recorded step of a real server, through the reference and through the tables."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from claimlib.testing.vector_check import check
from claimlib.testing.vectors import steps

VECTORS = Path(__file__).parents[1] / "vectors"


RECORDED = [step for name in ("named", "random") for step in steps(VECTORS / f"{name}.json")]
NUMBERS = {"XAUTOCLAIM": 277, "XCLAIM": 167, "XACK": 5, "XPENDING": 59}


@pytest.mark.parametrize("opened", ["store", pytest.param("spark_store", marks=pytest.mark.long)])
def test_reference_and_tables_answer_every_recorded_step_as_the_server_did(
    request: pytest.FixtureRequest, opened: str
) -> None:
    numbers = Counter(step.command[0].decode() for step in RECORDED)
    assert numbers == NUMBERS
    verdict = check(request.getfixturevalue(opened), RECORDED)
    assert "\n".join(verdict.failed) == ""
    assert (verdict.passed, verdict.not_covered) == (2 * numbers.total(), {})
