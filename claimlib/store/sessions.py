"""Check a Spark session that works on a store, and read the definitions of tables."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from claimlib.errors import ConfigError, StoreNotFoundError, UnsafeLocationError
from claimlib.places import S3
from claimlib.schema import quote_identifier
from claimlib.store.location import Location


def check_catalog_lasts(spark: SparkSession, where: str) -> None:
    """Raise UnsafeLocationError if a schema would disappear with the session.

    Spark's own catalog lasts only as long as the session, unless a metastore keeps it.  A schema
    that exists there already is accepted.
    """
    implementation = spark.conf.get("spark.sql.catalogImplementation", "in-memory")
    is_kept = implementation != "in-memory" or "DATABRICKS_RUNTIME_VERSION" in os.environ
    if where.partition(".")[0] != "spark_catalog" or is_kept:
        return
    if not spark.catalog.databaseExists(where):
        raise UnsafeLocationError(
            f"{where} would disappear when this Spark session ends, because spark_catalog is kept"
            " in memory: give a folder (./name), or a catalog that lasts (for example a Hive"
            " metastore, by spark.sql.catalogImplementation=hive)",
            where=where,
        )


# With other values, Spark may omit rows without an error.
_READS_ALL = {
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.databricks.delta.stalenessLimit": "0",
}
# A duration of zero in any unit, as `0`, `0.0` or `0 seconds`.
_NO_TIME = re.compile(r"\s*0*(?:\.0*)?\s*[a-z]*\s*", re.IGNORECASE)


def check_reads_all(spark: SparkSession) -> None:
    """Refuse a session in which Spark may skip files of a table.

    Entries in skipped files would count as deleted.

    Raises:
        ConfigError: a setting lets Spark skip files.  The message names it.
    """
    for name, required in _READS_ALL.items():
        try:
            value = str(spark.conf.get(name, required))
        except PySparkException:  # serverless compute can neither read nor set it
            continue
        if value.lower() != required and not (required == "0" and _NO_TIME.fullmatch(value)):
            raise ConfigError(
                f"{name} is {value} in this Spark session, so Spark may skip rows, and their"
                " entries would count as deleted. Nothing was done. Set it to"
                f" {required} (--spark-conf {name}={required}, or spark.conf.set in a notebook),"
                " and try again",
                option=name,
            )


def create_namespace(spark: SparkSession, where: str) -> None:
    """Create the schema of a catalog unless it exists.

    Raises:
        StoreNotFoundError: Spark does not know the catalog.
    """
    catalog, namespace = map(quote_identifier, where.split("."))
    with _catalog_errors_mapped(where):
        spark.sql(f"CREATE SCHEMA IF NOT EXISTS {catalog}.{namespace}")


def check_catalog(spark: SparkSession, where: str) -> None:
    """Raise StoreNotFoundError if Spark does not know the catalog of a schema."""
    catalog, _ = map(quote_identifier, where.split("."))
    with _catalog_errors_mapped(where):
        spark.sql(f"SHOW SCHEMAS IN {catalog}")


@contextmanager
def _catalog_errors_mapped(where: str) -> Iterator[None]:
    """Raise StoreNotFoundError if Spark says in this block that it does not know the catalog."""
    try:
        yield
    except PySparkException as error:
        if not _says_missing(error):
            raise
        catalog = quote_identifier(where.partition(".")[0])
        raise StoreNotFoundError(
            f"{where} is a schema of a catalog, and Spark knows no catalog {catalog}: name one that"
            f" it knows, or write a folder as ./{where}",
            where=where,
        ) from error


def properties_of(spark: SparkSession, identifier: str) -> dict[str, str] | None:
    """Return the properties of a table, or None if it does not exist.

    `SHOW TBLPROPERTIES` reads them from the newest version of the log.  `DESCRIBE DETAIL` also has
    them, but is slow, because it counts the table's files.
    """
    try:
        rows = spark.sql(f"SHOW TBLPROPERTIES {identifier}").collect()
    except PySparkException as error:
        if _says_missing(error):
            return None
        raise
    return {row["key"]: row["value"] for row in rows}


def struct_of(spark: SparkSession, identifier: str) -> StructType:
    """Return the columns of a table."""
    return spark.table(identifier).schema


def _says_missing(error: PySparkException) -> bool:
    condition = error.getCondition() or ""
    # Spark raises an error with the last of these marks for an unknown catalog.
    marks = ("NOT_FOUND", "MISSING", "PATH_DOES_NOT_EXIST", "REQUIRES_SINGLE_PART_NAMESPACE")
    return any(mark in condition for mark in marks)


def check_log_store(spark: SparkSession, location: Location) -> None:
    """Raise UnsafeLocationError if the store is on S3, and the session has no log store for it.

    Without a log store for S3, open-source Delta prevents two commits of one version only within
    one driver.  Databricks prevents them by itself.
    """
    scheme = location.where.partition("://")[0]
    if scheme not in S3 or "DATABRICKS_RUNTIME_VERSION" in os.environ:
        return
    setting = f"spark.delta.logStore.{scheme}.impl"
    if spark.conf.get(setting, None) is None:
        raise UnsafeLocationError(
            f"{location.where} is on S3, where two drivers can overwrite each other's commits. Set"
            f" {setting} to a log store that prevents this (io.delta.storage.S3DynamoDBLogStore)."
            " If only one driver at a time ever writes to this store,"
            " io.delta.storage.S3SingleDriverLogStore is sufficient",
            where=location.where,
            setting=setting,
        )
