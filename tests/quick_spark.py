"""A Spark for tables of a few rows: what prepares it for large ones would take longer than the
tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_JAVA_OPTIONS = (
    "-XX:+UseSerialGC",
    "-Xmn1g",
    # Half an hour of tests compiles 230 MB: in Java's own 240 MB methods were thrown out, 31,000 of
    # them, and compiled again.
    "-XX:ReservedCodeCacheSize=512m",
    "-Djdk.lang.Process.launchMechanism=VFORK",
    # Delta keeps what it knows of a table, and the plans that read its log: of the tables of many
    # stores, until the heap is full and most of the time is spent on collecting it.
    "-Dspark.databricks.delta.delta.log.cacheSize=64",
    # Tests look back at the queries of one run or two; of 1000 their texts alone are 100 MB.
    "-Dspark.sql.ui.retainedExecutions=300",
)


# The session of the tests has it, a session that a test started by accident does not.
APP_NAME = "claimlib tests"


def quick_session() -> SparkSession:
    from claimlib.session import open_session

    session = open_session(
        app_name=APP_NAME,
        master="local[2]",
        driver_memory="5g",
        shuffle_partitions=2,
        java_options=" ".join(_JAVA_OPTIONS),
    )
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    session.conf.set("spark.sql.adaptive.enabled", "false")
    return session
