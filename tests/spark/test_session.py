"""The tests' own session, classic or over a local Connect server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.utils import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from claimlib.store.tables import Store


@pytest.fixture
def store(spark_store: Store) -> Store:
    """A new store, open in Spark."""
    return spark_store


def test_the_jvm_of_a_local_session_gets_the_memory_the_options_and_the_partitions_it_was_given(
    spark: SparkSession,
) -> None:
    assert spark.conf.get("spark.driver.memory") == "5g"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert "-XX:+UseSerialGC" in (spark.conf.get("spark.driver.extraJavaOptions") or "")
    if not is_remote():
        runtime = spark.sparkContext._jvm.java.lang.Runtime.getRuntime()
        assert runtime.maxMemory() > 4 * 1024**3


# Longer answers PySpark gets 40 ms later.
_BUFFER_BYTES = 8192


@pytest.mark.classic
def test_what_spark_says_of_a_version_that_is_not_there_comes_at_once(
    spark: SparkSession, store: Store
) -> None:
    """That is how the version of a table is looked up, some ten times in a run."""
    with pytest.raises(PySparkException) as raised:
        spark.sql(f"SELECT 1 FROM {store.identifier('pending')} VERSION AS OF 99")
    stack = raised.value._stackTrace
    assert "DELTA_VERSION_NOT_FOUND" in stack
    assert len(stack.encode()) < _BUFFER_BYTES
