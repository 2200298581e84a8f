"""The queries (SQL executions) that Spark has run, Delta's own among them."""

from __future__ import annotations

from pyspark.sql import SparkSession


def last_query(spark: SparkSession) -> int:
    """Return the number of the newest query, or -1 if there was none yet."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    queries = spark._jsparkSession.sharedState().statusStore().executionsList()
    return max((queries.apply(at).executionId() for at in range(queries.size())), default=-1)
