"""What a real server answered: every recorded XAUTOCLAIM, through the reference and the tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from claimlib.testing.vector_check import check
from claimlib.testing.vectors import steps

VECTORS = Path(__file__).parents[1] / "vectors"


RECORDED = [step for name in ("named", "random") for step in steps(VECTORS / f"{name}.json")]


@pytest.mark.parametrize(
    ("commands", "number"),
    [
        ({"XAUTOCLAIM"}, 277),
        ({"XCLAIM", "XACK"}, 172),
        ({"XPENDING"}, 59),
    ],
)
def test_reference_and_tables_answer_every_recorded_step_as_the_server_did(
    spark: SparkSession, tmp_path: Path, commands: set[str], number: int
) -> None:
    recorded = [step for step in RECORDED if step.command[0].decode() in commands]
    verdict = check(spark, tmp_path / "store", recorded)
    assert "\n".join(verdict.failed) == ""
    assert (verdict.passed, verdict.not_covered) == (2 * number, {})
