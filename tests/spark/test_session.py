"""The tests' own session, classic or over a local Connect server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.utils import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_jvm_of_a_local_session_gets_the_memory_the_options_and_the_partitions_it_was_given(
    spark: SparkSession,
) -> None:
    assert spark.conf.get("spark.driver.memory") == "5g"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert "-XX:+UseSerialGC" in (spark.conf.get("spark.driver.extraJavaOptions") or "")
    if not is_remote():
        runtime = spark.sparkContext._jvm.java.lang.Runtime.getRuntime()
        assert runtime.maxMemory() > 4 * 1024**3
