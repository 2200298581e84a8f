"""Check the properties and the columns of a store's tables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence

from pyspark.sql.types import StructType

from claimlib import schema
from claimlib.errors import (
    RequestError,
    SchemaError,
    SchemaVersionError,
    StoreExistsError,
    StoreIncompleteError,
    StoreNotFoundError,
)
from claimlib.schema import TABLES, Table
from claimlib.store.location import Location

# As in `redis://user:secret@host:6379/0` or `user:secret@host`.
_CREDENTIALS = re.compile(r":(//)?[^/]*@")

_TOO_MANY_BUCKETS = 10**9  # `buckets_of` takes nine digits
_ENTRIES_LOST = "; sweeps then refuse its groups until the next snapshot or import"


def check_options(buckets: int | None, source: str | None) -> None:
    """Refuse a number of buckets that no store can have, and a name that no source can have.

    Raises:
        RequestError: the number is not positive, or too large.  Or the name is empty, or contains
            credentials.
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


def check_properties(
    where: str, location: Location, present: Mapping[str, Mapping[str, str]]
) -> None:
    """Refuse a store that lacks tables, or was created by another version of the schema.

    Args:
        where: the location of the store, as the user wrote it.
        location: the same location, parsed.
        present: the properties of those of its tables that exist.

    Raises:
        StoreError: see `opening.open_store`.
    """
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
    if not schema.ranges_match_entries(present):
        raise other_entries_error(where)


def no_store_error(where: str, location: Location) -> StoreNotFoundError:
    """Return the error for a place without any table of a store."""
    return StoreNotFoundError(
        f"no store at {location.where}{_catalog_hint(location)}: create it with:"
        f" claimlib init {shlex.quote(where)}",
        where=where,
    )


def _catalog_hint(location: Location) -> str:
    return " (a catalog's schema; a folder is written ./name)" if location.is_namespace else ""


def other_entries_error(where: str) -> SchemaError:
    """Return the error for a table `entries` that is not the one that the proofs are about."""
    return SchemaError(
        f"the table entries of {where} is not the one whose entries are proven to be complete: it"
        " was dropped and created again, and a sweep would treat entries that it lacks as deleted."
        " Put the original table back; if you no longer have it, claimlib init"
        f" {shlex.quote(where)} --accept-replaced accepts this one, whose entries then do not count"
        f" as complete{_ENTRIES_LOST}",
        table="entries",
    )


def check_columns(structs: Sequence[StructType], tables: Collection[str] = tuple(TABLES)) -> None:
    """Refuse a store in which a column is missing, has another type, or allows unexpected nulls.

    Args:
        structs: the columns of each table, in the order of `tables`.
        tables: the names of the tables.

    Raises:
        SchemaError: there is such a column.  The message names the table and the column.
    """
    for name, struct in zip(tables, structs, strict=True):
        _check_columns(TABLES[name], struct)


def check_same(
    where: str,
    present: Mapping[str, Mapping[str, str]],
    buckets: int | None,
    source: str | None,
    filled_from: Callable[[], str | None],
) -> None:
    """Raise StoreExistsError if a store was created with other options.

    An option that is None is not compared.

    Args:
        filled_from: returns the source of the store's rows, for the message.  It returns None if no
            source has filled the store.
    """
    bucket_counts = {properties[schema.BUCKETS_PROPERTY] for properties in present.values()}
    others = set() if buckets is None else bucket_counts - {str(buckets)}
    declared = schema.declared_source(present.get("streams", {}))
    if others or (source is not None and "streams" in present and declared != source):
        existing = ", ".join(sorted(bucket_counts))
        if declared is not None:
            origin = f" and source {declared}"
        else:
            name = filled_from()
            origin = ", not yet filled from a source" if name is None else f", filled from {name}"
        raise StoreExistsError(
            f"{where} is already a store, with {existing} buckets{origin}: leave out --buckets and"
            " --source to use it as it is, or choose another location",
            where=where,
            buckets=existing,
            source=declared,
        )


def buckets_of(where: str, present: Mapping[str, Mapping[str, str]]) -> int | None:
    """Return the number of buckets of the tables that exist, or None if none exists.

    Raises:
        SchemaError: the tables have different numbers, or a property is not a valid number.
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
        listed = ", ".join(f"{name} {count}" for name, count in sorted(buckets_by_table.items()))
        raise SchemaError(
            f"the tables of {where} are divided into different numbers of buckets ({listed}): drop"
            " an empty table, and recreate it with claimlib init",
            where=where,
        )
    return next(map(int, buckets_by_table.values()), None)


def append_only_error(where: str, table: str) -> SchemaError:
    """Return the error for a command that must change rows of an append-only table."""
    return SchemaError(
        f"table {table} of {where} is append-only, and this command changes its rows: set its"
        f" property {schema.APPEND_ONLY_PROPERTY} to false",
        table=table,
    )


def check_versions(where: str, present: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse tables that have another schema version.

    Raises:
        SchemaVersionError: a table has another version.  The message names the table and both
            versions.
    """
    for name, properties in present.items():
        _check_version(where, name, properties)


def _check_version(where: str, table: str, properties: Mapping[str, str]) -> None:
    version = properties.get(schema.SCHEMA_VERSION_PROPERTY)
    if version in schema.UPGRADABLE:
        raise SchemaVersionError(
            f"table {table} of {where} has schema version {version}; this claimlib works with"
            f" version {schema.SCHEMA_VERSION}: run claimlib upgrade {shlex.quote(where)}",
            table=table,
            actual=version,
            expected=schema.SCHEMA_VERSION,
        )
    check_known_version(where, table, properties, {schema.SCHEMA_VERSION})


def check_known_version(
    where: str, table: str, properties: Mapping[str, str], known: Collection[str]
) -> None:
    """Refuse a table whose schema version is not one of `known`, or that lacks a property.

    Raises:
        SchemaVersionError: the table is refused.  The message names the table and its version.
    """
    version = properties.get(schema.SCHEMA_VERSION_PROPERTY)
    needed = (schema.BUCKETS_PROPERTY, schema.TABLE_ID_PROPERTY)
    if version not in known or any(name not in properties for name in needed):
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
