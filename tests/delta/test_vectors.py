"""What a real server answered: every recorded XAUTOCLAIM, through the reference and the tables."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from claimlib.testing.vector_check import check
from claimlib.testing.vectors import steps

VECTORS = Path(__file__).parents[1] / "vectors"


def test_reference_and_tables_answer_every_recorded_step_as_the_server_did(
    spark: SparkSession, tmp_path: Path
) -> None:
    recorded = [step for name in ("named", "random") for step in steps(VECTORS / f"{name}.json")]
    verdict = check(spark, tmp_path / "store", recorded)
    assert "\n".join(verdict.failed) == ""
    assert verdict.passed == 2 * 277
    assert sum(verdict.not_covered.values()) == len(recorded) - 277
    assert b"XAUTOCLAIM" not in verdict.not_covered
