"""Open a store after checks of its tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import SparkSession

from claimlib.schema import TABLES
from claimlib.store.checks import check_columns, check_properties
from claimlib.store.definitions import (
    Definitions,
    FolderDefinitions,
    SparkDefinitions,
    all_local,
    embedded_folder,
)
from claimlib.store.local import LocalTable
from claimlib.store.tables import Store
from claimlib.store.writer import names_of


def open_store(spark: SparkSession, where: str) -> Store:
    """Open a store in a Spark session.

    Raises:
        StoreNotFoundError: none of the store's tables exists.
        StoreIncompleteError: some of the store's tables are missing.
        SchemaVersionError: the store has another schema version.
        SchemaError: a column is missing, has another type, or allows unexpected nulls.  Or the
            tables have different numbers of buckets.  Or `entries` was created again.
        UnsafeLocationError: the store is on S3, and the session has no log store.
        ConfigError: Java and Python encode the name of the store's folder differently.
    """
    definitions = SparkDefinitions(spark, where)
    definitions.check()
    return checked(definitions)


def open_folder(start: Callable[[], SparkSession], where: str, *, writes: bool = False) -> Store:
    """Open a store for the embedded engine if it can work on the store, else in a session.

    Args:
        start: opens the session when one is needed.  Several threads may call it, and get one
            session.
        writes: True if the embedded engine must be able to write to the tables.

    Raises:
        StoreError: see `open_store`.
    """
    embedded = find_embedded(start, where, writes=writes)
    return open_store(start(), where) if embedded is None else embedded


def find_embedded(
    start: Callable[[], SparkSession], where: str, *, writes: bool = False
) -> Store | None:
    """Open a store for the embedded engine, or return None if it cannot work on the store.

    The embedded engine cannot work on a store that is not in a folder of this machine, or on a
    table that it cannot read or write.  Call this only if a path is the same folder for a Spark
    session and for this process (`session.reads_paths_as_local_folders`).

    Args:
        start: see `open_folder`.
        writes: see `open_folder`.

    Raises:
        StoreError: see `open_store`.
    """
    folder = embedded_folder(where)
    local = {} if folder is None else all_local(folder)
    if folder is None or not local:
        return None
    if not all(table.is_readable_as_files() for table in local.values()):
        return None
    store = _checked(FolderDefinitions(start, where, folder), local)
    if writes and not all(table.is_writable(names_of(name)) for name, table in local.items()):
        return None
    return store


def in_session(store: Store) -> Store:
    """Return the store, or open it in a Spark session if the embedded engine executes it now."""
    if not store.is_embedded:
        return store
    opened = open_store(store.spark, store.where)
    opened.lock.wait_ms = store.lock.wait_ms
    return opened


def checked(definitions: Definitions) -> Store:
    """Check the tables of a store, and open it.

    Raises:
        StoreError: see `open_store`.
    """
    folder = definitions.folder
    return _checked(definitions, {} if folder is None else all_local(folder))


def _checked(definitions: Definitions, local: Mapping[str, LocalTable]) -> Store:
    """Check the tables of a store, and open it.

    Args:
        local: the tables as this process reads them.  Empty if this process cannot read them.
    """
    present = {name: dict(table.properties) for name, table in local.items()}
    present = present or definitions.properties()
    if not present:
        raise definitions.missing_store()
    check_properties(definitions.where, definitions.location, present)
    structs = [table.struct for table in local.values()]
    check_columns(structs or definitions.structs(TABLES))
    return definitions.handle(present)
