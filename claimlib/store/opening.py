"""What is checked before a store is made or opened: its place, and the tables that are there."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

from claimlib import schema
from claimlib.errors import (
    ConfigError,
    RequestError,
    SchemaError,
    SchemaVersionError,
    StoreExistsError,
    StoreIncompleteError,
    StoreNotFoundError,
    UnsafeLocationError,
)
from claimlib.places import S3, local_folder
from claimlib.schema import TABLES, Table, quote_identifier
from claimlib.store import local
from claimlib.store.delta_errors import errors_mapped
from claimlib.store.local import LocalTable
from claimlib.store.location import Location
from claimlib.store.threads import concurrently

# A path that has one of these may be another one to Spark, or to delta-rs.
OTHER_PATH = re.compile(r"[%\\{}\[\]*?]")


_CREDENTIALS = re.compile(r":(//)?[^/]*@")


def shared_folder(spark: SparkSession, location: Location) -> Path | None:
    """The folder of a store, where this process and Spark mean the same by it: Spark may take a
    path for one of another file system, or run elsewhere; and delta-rs takes a % in it for the
    beginning of another character."""
    folder = local_folder(location.where)
    if folder is None or is_remote() or "%" in location.where:
        return None
    try:
        log = next((folder / "streams" / "_delta_log").glob("*.json"), None)
        files = [] if log is None else spark.read.text(str(log)).inputFiles()
    except Exception:  # noqa: BLE001 - it may not be read, or is no glob: Spark says what is wrong
        return None
    return folder if [file.partition(":")[0] for file in files] == ["file"] else None


def all_local(folder: Path) -> dict[str, LocalTable]:
    """The tables of a store that are there, without a query, in the order of `TABLES`; none: Spark
    has to look at them."""
    tables = {name: local.newest(folder / name) for name in TABLES}
    known = {name: table for name, table in tables.items() if table is not None}
    is_known = all(name in known or not (folder / name / "_delta_log").exists() for name in TABLES)
    return known if is_known else {}


_TOO_MANY_BUCKETS = 10**9  # `buckets_of` takes nine digits
_ENTRIES_LOST = "; sweeps then refuse its groups until the next snapshot or import"


def init_sql(
    where: str,
    *,
    buckets: int,
    source: str | None = None,
    accepted: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """The statements that create a store, also for those who may not have claimlib create tables.

    Args:
        where, buckets, source: see `Store.init`.
        accepted: further properties of `streams`, if that is created (`Accepted.properties`).

    Raises:
        RequestError: see `check_options`.
    """
    check_options(buckets, source)
    location = Location.parse(where)
    return schema.create_sqls(location.identifier, buckets, source, accepted)


def check_options(buckets: int | None, source: str | None) -> None:
    """Refuse a number of buckets that no store can have, and a name that no source can have.

    Raises:
        RequestError: the number is not positive, or too large; the name is empty, or has
            credentials in it.
    """
    if buckets is not None and not 0 < buckets < _TOO_MANY_BUCKETS:
        raise RequestError(
            f"a store cannot have {buckets} buckets: give a number from 1 to"
            f" {_TOO_MANY_BUCKETS - 1:,}",
            option="buckets",
        )
    if source is not None and not source.strip():
        raise RequestError("the name of the source is empty: name it, or leave --source out")
    if source is not None and _CREDENTIALS.search(source):
        raise RequestError(
            "a source is named without credentials, as host:port/db: its name is kept in the store"
            " and shown"
        )


def check_catalog_lasts(spark: SparkSession, where: str) -> None:
    """Spark's own catalog lasts as long as the session, unless it is kept in a metastore; a schema
    that somebody has made there already, with a location, is their business."""
    kept_in = spark.conf.get("spark.sql.catalogImplementation", "in-memory")
    is_kept = kept_in != "in-memory" or "DATABRICKS_RUNTIME_VERSION" in os.environ
    if where.partition(".")[0] != "spark_catalog" or is_kept:
        return
    if not spark.catalog.databaseExists(where):
        raise UnsafeLocationError(
            f"{where} would disappear when this Spark session ends, because spark_catalog is kept"
            " in memory: give a folder (./name), or a catalog that lasts (for example a Hive"
            " metastore, by spark.sql.catalogImplementation=hive)",
            where=where,
        )


# With what else than this rows are missing without a word.
_READS_ALL = {
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.databricks.delta.stalenessLimit": "0",
}
_NO_TIME = re.compile(r"\s*0*(?:\.0*)?\s*[a-z]*\s*", re.IGNORECASE)


def check_reads_all(spark: SparkSession) -> None:
    """Refuse a session in which Spark reads less of a table than there is: what it does not see of
    `entries` would be taken for deleted.

    Raises:
        ConfigError: naming the setting.
    """
    for name, sound in _READS_ALL.items():
        try:
            value = str(spark.conf.get(name, sound))
        except PySparkException:  # serverless compute lets nobody look at it, nor set it
            continue
        if value.lower() != sound and not (sound == "0" and _NO_TIME.fullmatch(value)):
            raise ConfigError(
                f"{name} is {value} in this Spark session, so that rows may be missing from what it"
                " reads, and their entries would be taken for deleted. Nothing was done. Set it to"
                f" {sound} (--spark-conf {name}={sound}, or spark.conf.set in a notebook), and try"
                " again",
                option=name,
            )


def create_namespace(spark: SparkSession, where: str) -> None:
    """Create the schema of a catalog, unless it is there.

    Raises:
        StoreNotFoundError: Spark does not know the catalog.
    """
    catalog, namespace = map(quote_identifier, where.split("."))
    with _unknown_catalog_named(where):
        spark.sql(f"CREATE SCHEMA IF NOT EXISTS {catalog}.{namespace}")


def _check_catalog(spark: SparkSession, where: str) -> None:
    catalog, _ = map(quote_identifier, where.split("."))
    with _unknown_catalog_named(where):
        spark.sql(f"SHOW SCHEMAS IN {catalog}")


@contextmanager
def _unknown_catalog_named(where: str) -> Iterator[None]:
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


def present_tables(spark: SparkSession, location: Location) -> dict[str, dict[str, str]]:
    """The properties of those of a store's tables that are there."""
    properties_of_all = concurrently(
        partial(properties_of, spark, location.identifier(name)) for name in TABLES
    )
    tables = zip(TABLES, properties_of_all, strict=True)
    return {name: properties for name, properties in tables if properties is not None}


def take_proofs_back(
    spark: SparkSession, location: Location, of_streams: Mapping[str, str]
) -> None:
    """Have no stream say any more which of its entries are complete: that was said of other tables,
    and in a new `entries` all entries would be gone.

    Args:
        of_streams: the properties of `streams`.

    Raises:
        SchemaError: `streams` is append-only.
        CommitConflictError: somebody changed it meanwhile.
    """
    if schema.is_append_only(of_streams):
        raise append_only(location.where, "streams")
    with errors_mapped("streams"):
        spark.sql(f"UPDATE {location.identifier('streams')} SET {schema.WITHOUT_PROOF_SQL}")


def bind_proofs(spark: SparkSession, location: Location) -> bool:
    """Have `streams` say which table `entries` its proofs are about, where it does not yet: one of
    the two is new, and has been made by another statement, or nobody has ever said it.

    Returns: whether proofs were taken back first, for somebody has made the entries again since it
    was looked at.

    Raises:
        SchemaError, CommitConflictError: see `take_proofs_back`.
    """
    names = ("streams", "entries")
    present = {name: properties_of(spark, location.identifier(name)) or {} for name in names}
    entries_id = present["entries"].get(schema.TABLE_ID_PROPERTY)
    if entries_id is None or present["streams"].get(schema.ENTRIES_ID_PROPERTY) == entries_id:
        return False
    are_of_others = not schema.has_entries_of_its_proofs(present)
    if are_of_others:
        take_proofs_back(spark, location, present["streams"])
    set_property(spark, location, "streams", schema.ENTRIES_ID_PROPERTY, entries_id)
    return are_of_others


def set_property(
    spark: SparkSession, location: Location, table: str, name: str, value: str
) -> None:
    """Set a property of a table.

    Raises:
        CommitConflictError: somebody changed it meanwhile.
    """
    with errors_mapped(table):
        spark.sql(
            f"ALTER TABLE {location.identifier(table)} SET TBLPROPERTIES"
            f" ('{name}' = {schema.property_sql(value)})"
        )


def properties_of(spark: SparkSession, identifier: str) -> dict[str, str] | None:
    """The properties of a table; null where there is none.

    They come with the table's newest commit.  `DESCRIBE DETAIL` says them too, but counts the
    table's files for it: with eleven tables 20 s in a new JVM.
    """
    try:
        rows = spark.sql(f"SHOW TBLPROPERTIES {identifier}").collect()
    except PySparkException as error:
        if _says_missing(error):
            return None
        raise
    return {row["key"]: row["value"] for row in rows}


def check_properties(
    start: Callable[[], SparkSession],
    where: str,
    location: Location,
    present: Mapping[str, Mapping[str, str]],
) -> None:
    """Refuse a store that lacks tables, or was made by another version of the schema.

    Args:
        start: opens a session, for a store of which nothing is there.
        where: where the store is, as people have written it.
        location: the same, as it was understood.
        present: the properties of those of its tables that are there.

    Raises:
        StoreError: see `Store.open`.
    """
    if not present:
        if location.is_namespace:
            _check_catalog(start(), where)
        raise StoreNotFoundError(
            f"no store at {location.where}{_read_as(location)}: create it with:"
            f" claimlib init {shlex.quote(where)}",
            where=where,
        )
    missing = sorted(set(TABLES) - set(present))
    if missing:
        raise StoreIncompleteError(
            f"the store at {location.where} lacks {', '.join(missing)};"
            f" claimlib init {shlex.quote(where)} creates what is missing"
            f"{_ENTRIES_LOST if 'entries' in missing else ''}",
            where=where,
            missing=missing,
        )
    check_versions(where, present)
    buckets_of(where, present)
    if not schema.has_entries_of_its_proofs(present):
        raise other_entries(where)


def other_entries(where: str) -> SchemaError:
    """The error of a table `entries` that is not the one that proofs are about."""
    return SchemaError(
        f"the table entries of {where} is not the one whose entries are proven to be complete: it"
        " was dropped and created again, and a sweep would take all that it lacks for deleted. Put"
        " the original table back; if you no longer have it, claimlib init"
        f" {shlex.quote(where)} --accept-replaced accepts this one, whose entries then do not count"
        f" as complete{_ENTRIES_LOST}",
        table="entries",
    )


def check_columns(
    spark: Callable[[], SparkSession],
    location: Location,
    known: Sequence[StructType] = (),
    *,
    tables: Collection[str] = tuple(TABLES),
) -> None:
    """Refuse a store whose tables lack a column, or have one of another type or nullability.

    Args:
        spark: opens a session, where the columns are not known.
        location: where the store is.
        known: the columns of the tables, in their order; empty: not known.
        tables: those to be looked at.

    Raises:
        SchemaError: a column is not as it must be.
    """
    structs = known or concurrently(
        partial(_struct, spark(), location.identifier(name)) for name in tables
    )
    for name, struct in zip(tables, structs, strict=True):
        _check_columns(TABLES[name], struct)


def _struct(spark: SparkSession, identifier: str) -> StructType:
    return spark.table(identifier).schema


def _says_missing(error: PySparkException) -> bool:
    condition = error.getCondition() or ""
    # The last is what Spark says of a catalog that it does not know.
    marks = ("NOT_FOUND", "MISSING", "PATH_DOES_NOT_EXIST", "REQUIRES_SINGLE_PART_NAMESPACE")
    return any(mark in condition for mark in marks)


def check_same(
    where: str, present: Mapping[str, Mapping[str, str]], buckets: int | None, source: str | None
) -> None:
    """Refuse to complete a store that was made with other options; null: whatever it has."""
    numbers = {properties[schema.BUCKETS_PROPERTY] for properties in present.values()}
    others = set() if buckets is None else numbers - {str(buckets)}
    declared = schema.declared_source(present.get("streams", {}))
    if others or (source is not None and "streams" in present and declared != source):
        existing = ", ".join(sorted(numbers))
        raise StoreExistsError(
            f"{where} is already a store, with {existing} buckets and"
            f" {'no declared source' if declared is None else f'source {declared}'}: leave out"
            " --buckets and --source to use it as it is, or choose another location",
            where=where,
            buckets=existing,
            source=declared,
        )


def buckets_of(where: str, present: Mapping[str, Mapping[str, str]]) -> int | None:
    """The number of buckets of those of a store's tables that are there; null: there is none.

    Raises:
        SchemaError: they differ, or it is no number.
    """
    for name, properties in present.items():
        if not re.fullmatch("[1-9][0-9]{0,8}", properties[schema.BUCKETS_PROPERTY]):
            raise SchemaError(
                f"property {schema.BUCKETS_PROPERTY} of table {name} of {where} is"
                f" {properties[schema.BUCKETS_PROPERTY]!r}, but must be a number of buckets: set it"
                " to what the other tables have",
                table=name,
            )
    buckets_by_table = {
        name: properties[schema.BUCKETS_PROPERTY] for name, properties in present.items()
    }
    if len(set(buckets_by_table.values())) > 1:
        said = ", ".join(f"{name} {buckets}" for name, buckets in sorted(buckets_by_table.items()))
        raise SchemaError(
            f"the tables of {where} are divided into different numbers of buckets ({said}): drop an"
            " empty table, and recreate it with claimlib init",
            where=where,
        )
    return next(map(int, buckets_by_table.values()), None)


def _read_as(location: Location) -> str:
    return " (a catalog's schema; a folder is written ./name)" if location.is_namespace else ""


def check_log_store(spark: SparkSession, location: Location) -> None:
    """On S3 open-source Delta keeps two commits apart only within one driver, unless told of a log
    store that does more; Databricks does it by itself."""
    scheme = location.where.partition("://")[0]
    if scheme not in S3 or "DATABRICKS_RUNTIME_VERSION" in os.environ:
        return
    setting = f"spark.delta.logStore.{scheme}.impl"
    if spark.conf.get(setting, None) is None:
        raise UnsafeLocationError(
            f"{location.where} is on S3, where two drivers can overwrite each other's commits: set"
            f" {setting} to a log store that keeps them apart"
            " (io.delta.storage.S3DynamoDBLogStore), or, if never more than one driver writes to"
            " this store at a time, to io.delta.storage.S3SingleDriverLogStore",
            where=location.where,
            setting=setting,
        )


def append_only(where: str, table: str) -> SchemaError:
    """The error of a table that cannot be changed, and has to be."""
    return SchemaError(
        f"table {table} of {where} is append-only, and this command changes its rows: set its"
        f" property {schema.APPEND_ONLY_PROPERTY} to false",
        table=table,
    )


def check_versions(where: str, present: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse tables that another version of the schema has made.

    Raises:
        SchemaVersionError: naming the table and both versions.
    """
    for name, properties in present.items():
        _check_version(where, name, properties)


def _check_version(where: str, table: str, properties: Mapping[str, str]) -> None:
    version = properties.get(schema.SCHEMA_VERSION_PROPERTY)
    needed = (schema.BUCKETS_PROPERTY, schema.TABLE_ID_PROPERTY)
    if version != schema.SCHEMA_VERSION or any(name not in properties for name in needed):
        raise SchemaVersionError(
            f"table {table} of {where} has schema version {version or 'none'}; this claimlib works"
            f" with version {schema.SCHEMA_VERSION}: use the version of claimlib that created"
            " the store, or another location",
            table=table,
            actual=version,
            expected=schema.SCHEMA_VERSION,
        )


def _check_columns(table: Table, struct: StructType) -> None:
    fields = {field.name: field for field in struct.fields}
    for column in table.columns:
        if column.name not in fields:
            raise SchemaError(
                f"table {table.name} has no column {column.name} ({column.type}): add the column,"
                " or drop the table and recreate it with claimlib init",
                table=table.name,
                column=column.name,
            )
        field = fields[column.name]
        if field.dataType.simpleString() != column.simple_type:
            raise SchemaError(
                f"column {column.name} of table {table.name} is {field.dataType.simpleString()},"
                f" but must be {column.simple_type}: change its type, or drop the table and"
                " recreate it with claimlib init",
                table=table.name,
                column=column.name,
            )
        if field.nullable and not column.nullable:
            raise SchemaError(
                f"column {column.name} of table {table.name} may hold null, and must not: declare"
                " it NOT NULL, so that Delta refuses the rows that lack it",
                table=table.name,
                column=column.name,
            )
