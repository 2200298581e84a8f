"""Create, open and upgrade a store by its location."""

from __future__ import annotations

from os import PathLike, fspath
from threading import Lock

from pyspark.sql import SparkSession

from claimlib.commands.init import init as init_tables
from claimlib.commands.upgrade import Upgrade
from claimlib.commands.upgrade import upgrade as upgrade_tables
from claimlib.session import open_session, reads_paths_as_local_folders
from claimlib.store.creation import repair_lock
from claimlib.store.definitions import Definitions, FolderDefinitions, SparkDefinitions
from claimlib.store.opening import checked
from claimlib.store.tables import Store

__all__ = ["Upgrade", "init", "open_store", "upgrade"]


def init(
    where: str | PathLike[str],
    *,
    spark: SparkSession | None = None,
    buckets: int | None = None,
    source: str | None = None,
    accept_replaced: bool = False,
) -> Store:
    """Create the tables of a store that do not exist, and open it.

    A repeat changes nothing.

    Args:
        where: a folder (a text or a path), or `catalog.schema`.
        spark: see `open_store`.
        buckets: the number of partitions of the large tables.  It cannot be changed later.  None
            means 8, or the number of a store that exists.
        source: the name of the source of imports.  In a store that snapshots have filled, it is the
            new address of the server.  A new store that snapshots will fill needs no name.
        accept_replaced: True to accept tables that were created again or restored.

    Raises:
        RequestError: a store cannot have this number of buckets, or this name of a source.
        StoreExistsError: a store with other buckets or another source exists.
        StoreError: the tables cannot be created, or an existing table cannot be used.

    Examples:
        >>> store = init("./new", buckets=2)
        >>> read_store(store).last_seq
        0
    """
    definitions = _definitions(where, spark)
    is_repair = accept_replaced or source is not None
    with repair_lock(definitions.folder, is_repair=is_repair).held_for("init"):
        creation, _ = init_tables(
            definitions, buckets=buckets, source=source, accept_replaced=accept_replaced
        )
    return creation.store


def open_store(where: str | PathLike[str], *, spark: SparkSession | None = None) -> Store:
    """Open a store.

    A store in a folder of this machine is opened with the embedded engine, which needs no JVM.  It
    is opened in Spark if the process has a session, or if only Spark can write to its tables.

    Args:
        where: a folder (a text or a path), or `catalog.schema`.
        spark: the session.  If it is None and a session is needed, `open_session` opens it.

    Raises:
        StoreNotFoundError: no store exists there.
        SchemaVersionError: the store has the schema of another version of claimlib.
        StoreError: the tables of the store cannot be used.

    Examples:
        >>> store = open_store("./store")
        >>> store.relation("groups").select("stream").order_by("stream").first()
        {'stream': 'clicks'}
        >>> open_store("./stor")
        Traceback (most recent call last):
        claimlib.errors.StoreNotFoundError: ...
    """
    definitions = _definitions(where, spark)
    definitions.check()
    return checked(definitions)


def upgrade(where: str | PathLike[str], *, spark: SparkSession | None = None) -> Upgrade:
    """Add the columns that a store of an earlier version of claimlib lacks.

    Rows stay as they are.  A repeat changes nothing.

    Args:
        where: a folder (a text or a path), or `catalog.schema`.
        spark: see `open_store`.

    Raises:
        StoreNotFoundError: no store exists there.
        SchemaVersionError: the version of the store cannot be upgraded.
        UnfinishedRunError: a run is decided, but not finished.
        CommitConflictError: another writer changed a table meanwhile.
        StoreError: the tables of the store cannot be used.

    Examples:
        >>> upgrade("./store").columns
        ()
    """
    return upgrade_tables(_definitions(where, spark))


def _definitions(place: str | PathLike[str], spark: SparkSession | None) -> Definitions:
    where = fspath(place)
    # If this is not certain, only Spark knows which place a path means.
    if spark is None and reads_paths_as_local_folders("local[*]", {}):
        in_folder = FolderDefinitions.find(_session, where)
        if in_folder is not None:
            return in_folder
    return SparkDefinitions(spark or _session(), where)


_SESSION_LOCK = Lock()


def _session() -> SparkSession:
    """Return the session of this process.

    Only one thread starts it.  Other threads that need it wait until it has started.
    """
    with _SESSION_LOCK:
        return open_session()
