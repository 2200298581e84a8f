"""Both engines decide a sweep as the reference does."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.batches import random_batch
from tests.spark.literal import decide, differences, literal_store


@pytest.mark.parametrize("engine", ["embedded", "spark"])
def test_a_sweep_of_two_hundred_random_groups_is_decided_as_by_the_reference(
    spark: SparkSession, engine: str
) -> None:
    """Pages, guards and unsound rows are among them.  By seed 2 they are always the same."""
    batch = random_batch(200, seed=2)
    rows = decide(literal_store(spark, batch, engine), batch)
    assert len(rows) > len(batch.requests)
    assert differences(batch, rows) == []
