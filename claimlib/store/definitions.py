"""Read, create and change the definitions of a store's tables, by Spark or by this process."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

from claimlib import schema
from claimlib.errors import StorageError, StoreNotFoundError
from claimlib.places import local_folder
from claimlib.schema import TABLES, Column
from claimlib.session import check_file_names
from claimlib.store.checks import no_store_error
from claimlib.store.commits import change_table, create_table
from claimlib.store.damage import check_commits, check_log
from claimlib.store.delta_errors import conflict, errors_mapped
from claimlib.store.local import LocalTable, newest
from claimlib.store.location import Location
from claimlib.store.sessions import (
    check_catalog,
    check_catalog_lasts,
    check_log_store,
    create_namespace,
    properties_of,
    struct_of,
)
from claimlib.store.tables import Store, has_embedded_packages
from claimlib.store.threads import concurrently

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Definitions(Protocol):
    """Read, create and change the definitions of a store's tables.

    Attributes:
        where: the location of the store, as the user wrote it.
        location: the same location, parsed.
    """

    where: str
    location: Location

    @property
    def folder(self) -> Path | None:
        """Return the store's folder, or None if it is not certain that this process can read it."""
        ...

    def check(self) -> None:
        """Check the place of a store.

        Raises:
            UnsafeLocationError: the store is on S3, and the session has no log store.
            ConfigError: Java and Python encode the name of a folder differently.
        """
        ...

    def properties(self, tables: Collection[str] = tuple(TABLES)) -> dict[str, dict[str, str]]:
        """Return the properties of the tables that exist, by name."""
        ...

    def structs(self, tables: Collection[str]) -> list[StructType]:
        """Return the columns of tables that exist, in the order of `tables`."""
        ...

    def create(self, properties: Mapping[str, Mapping[str, str]]) -> None:
        """Create tables, and the schema of a catalog, unless they exist.

        Args:
            properties: the properties of each table, by name (`schema.properties_of_new`).

        Raises:
            StoreNotFoundError: Spark does not know the catalog.
            UnsafeLocationError: the catalog exists only as long as the session.
        """
        ...

    def change(
        self, table: str, properties: Mapping[str, str], columns: Sequence[Column] = ()
    ) -> None:
        """Add columns to a table, then set properties.

        Raises:
            CommitConflictError: another writer changed the table meanwhile.
        """
        ...

    def handle(self, properties: Mapping[str, Mapping[str, str]]) -> Store:
        """Return a store without checking its tables.

        Args:
            properties: the properties of the tables that exist.
        """
        ...

    def missing_store(self) -> StoreNotFoundError:
        """Return the error for a place without any table of a store."""
        ...


class SparkDefinitions:
    """Define tables by SQL in a Spark session."""

    def __init__(self, spark: SparkSession, where: str) -> None:
        self._spark = spark
        self._folder: Path | None = None
        self.location = Location.parse(where)
        self.where = self.location.where

    @property
    def folder(self) -> Path | None:
        """See `Definitions`."""
        if self._folder is None:
            self._folder = shared_folder(self._spark, self.location)
        return self._folder

    def check(self) -> None:
        """See `Definitions`."""
        check_log_store(self._spark, self.location)
        check_file_names(self._spark, self.location.where)

    def properties(self, tables: Collection[str] = tuple(TABLES)) -> dict[str, dict[str, str]]:
        """See `Definitions`."""
        results = concurrently(
            partial(properties_of, self._spark, self.location.identifier(name)) for name in tables
        )
        pairs = zip(tables, results, strict=True)
        return {name: properties for name, properties in pairs if properties is not None}

    def structs(self, tables: Collection[str]) -> list[StructType]:
        """See `Definitions`."""
        identifiers = map(self.location.identifier, tables)
        return concurrently(partial(struct_of, self._spark, name) for name in identifiers)

    def create(self, properties: Mapping[str, Mapping[str, str]]) -> None:
        """See `Definitions`."""
        if self.location.is_namespace:
            check_catalog_lasts(self._spark, self.where)
            create_namespace(self._spark, self.where)
        statements = (
            schema.create_sql(TABLES[name], self.location.identifier(name), of_table)
            for name, of_table in properties.items()
        )
        concurrently(partial(self._spark.sql, statement) for statement in statements)

    def change(
        self, table: str, properties: Mapping[str, str], columns: Sequence[Column] = ()
    ) -> None:
        """See `Definitions`."""
        altered = f"ALTER TABLE {self.location.identifier(table)}"
        pairs = ", ".join(
            f"'{name}' = {schema.property_sql(value)}" for name, value in properties.items()
        )
        with errors_mapped(table):
            if columns:
                new = ", ".join(schema.column_sql(column, buckets=0) for column in columns)
                self._spark.sql(f"{altered} ADD COLUMNS ({new})")
            self._spark.sql(f"{altered} SET TBLPROPERTIES ({pairs})")

    def handle(self, properties: Mapping[str, Mapping[str, str]]) -> Store:
        """See `Definitions`."""
        return Store(lambda: self._spark, self.location, properties, self.folder)

    def missing_store(self) -> StoreNotFoundError:
        """See `Definitions`.

        Raises:
            StoreNotFoundError: Spark does not know the catalog.
        """
        if self.location.is_namespace:
            check_catalog(self._spark, self.where)
        return no_store_error(self.where, self.location)


class FolderDefinitions:
    """Define tables by commits in a folder of this machine.

    Args:
        start: opens a session, if the store needs one later.
    """

    def __init__(self, start: Callable[[], SparkSession], where: str, folder: Path) -> None:
        self._start = start
        self.folder = folder
        self.location = Location.parse(where)
        self.where = self.location.where

    @classmethod
    def find(cls, start: Callable[[], SparkSession], where: str) -> FolderDefinitions | None:
        """Return the definitions of a store, or None if only Spark can change them.

        Only Spark can change them in these cases:

        - The embedded engine cannot work at the location (`embedded_folder`).
        - delta-rs cannot read the log of a table.
        - A table has a constraint, or a feature that no table of a store has.
        """
        folder = embedded_folder(where)
        if folder is None:
            return None
        known = all_local(folder)
        has_logs = any((folder / name / "_delta_log").exists() for name in TABLES)
        if has_logs and not known:
            return None
        if not all(
            table.is_readable_as_files() and table.is_writable(table.struct.names)
            for table in known.values()
        ):
            return None
        return cls(start, where, folder)

    def check(self) -> None:
        """See `Definitions`."""

    def properties(self, tables: Collection[str] = tuple(TABLES)) -> dict[str, dict[str, str]]:
        """See `Definitions`."""
        known = {name: newest(self.folder / name) for name in tables}
        return {name: dict(table.properties) for name, table in known.items() if table is not None}

    def structs(self, tables: Collection[str]) -> list[StructType]:
        """See `Definitions`."""
        known = all_local(self.folder)
        return [known[name].struct for name in tables]

    def create(self, properties: Mapping[str, Mapping[str, str]]) -> None:
        """See `Definitions`.

        Raises:
            StorageError: the store would be in the folder of a table.  Or see `create_table`.
        """
        within = (self.folder, *self.folder.parents)
        if any((folder / "_delta_log").is_dir() for folder in within):
            raise StorageError(
                "a store cannot be in the folder of a table: give another location",
                folder=str(self.folder),
            )
        for name, of_table in properties.items():
            create_table(self.folder, TABLES[name], of_table)

    def change(
        self, table: str, properties: Mapping[str, str], columns: Sequence[Column] = ()
    ) -> None:
        """See `Definitions`.

        Raises:
            StorageError: see `change_table`.
        """
        local = newest(self.folder / table)
        if local is None:
            raise conflict(table)
        change_table(self.folder / table, local, columns, properties)

    def handle(self, properties: Mapping[str, Mapping[str, str]]) -> Store:
        """See `Definitions`."""
        return Store(self._start, self.location, properties, self.folder, is_embedded=True)

    def missing_store(self) -> StoreNotFoundError:
        """See `Definitions`."""
        return no_store_error(self.where, self.location)


# If a path has one of these characters, Spark or delta-rs may open another path, or fail.
_OTHER_PATH = re.compile(r"[%\\{}\[\]*?^|]")


def embedded_folder(where: str) -> Path | None:
    """Return the folder of a store, or None if the embedded engine cannot work there.

    The embedded engine needs a folder of this machine, and its packages must be installed.
    """
    folder = local_folder(Location.parse(where).where)
    return None if _OTHER_PATH.search(where) or not has_embedded_packages() else folder


def shared_folder(spark: SparkSession, location: Location) -> Path | None:
    """Return the folder of a store, or None if Spark and this process may use different folders.

    Spark may read the path in another file system, or may run on another machine.  delta-rs reads a
    % in a path as the beginning of an encoded character.
    """
    folder = local_folder(location.where)
    if folder is None or is_remote() or "%" in location.where:
        return None
    try:
        log = next((folder / "streams" / "_delta_log").glob("*.json"), None)
        files = [] if log is None else spark.read.text(str(log)).inputFiles()
    except Exception:  # noqa: BLE001 - the caller uses Spark, which reports why
        return None
    return folder if [file.partition(":")[0] for file in files] == ["file"] else None


def all_local(folder: Path) -> dict[str, LocalTable]:
    """Return the tables of a store that exist, without a query, in the order of `TABLES`.

    Return no tables if delta-rs cannot read one of them.  Then the caller uses Spark for all.

    Raises:
        DamagedTableError: see `check_commits` and `check_log`.
    """
    tables = {name: newest(folder / name) for name in TABLES}
    known = {name: table for name, table in tables.items() if table is not None}
    for name, table in tables.items():
        if table is None:
            check_log(folder / name)
        else:
            check_commits(folder / name, table.version)
    is_known = all(name in known or not (folder / name / "_delta_log").exists() for name in TABLES)
    return known if is_known else {}
