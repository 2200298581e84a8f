"""Upgrade a store of an earlier schema version to the current one."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from claimlib.errors import UnfinishedRunError
from claimlib.runs.known import load_known_runs
from claimlib.schema import SCHEMA_VERSION, SCHEMA_VERSION_PROPERTY, TABLES, UPGRADABLE
from claimlib.store.checks import check_known_version
from claimlib.store.creation import repair_lock
from claimlib.store.definitions import Definitions
from claimlib.store.guards import check_session
from claimlib.store.tables import Store


@dataclass(frozen=True, slots=True)
class Upgrade:
    """State the result of `upgrade`.

    Attributes:
        where: the location of the store.
        tables: the tables that had an earlier schema version.
        columns: the columns that were added, as `table.column`.
    """

    where: str
    tables: tuple[str, ...]
    columns: tuple[str, ...]


def upgrade(definitions: Definitions) -> Upgrade:
    """Add the columns that a store of an earlier schema version lacks.

    Rows stay as they are.  Their new columns are None.  A repeat changes nothing, or completes an
    upgrade that was interrupted.

    Raises:
        StoreNotFoundError: there is no store.
        SchemaVersionError: the version of the store cannot be upgraded.
        UnfinishedRunError: a run is decided, but not finished.
        CommitConflictError: another writer changed a table meanwhile.
        UnsafeLocationError, ConfigError, StorageError: see `Definitions`.
    """
    definitions.check()
    with repair_lock(definitions.folder).held_for("upgrade"):
        return _upgrade_tables(definitions)


def _upgrade_tables(definitions: Definitions) -> Upgrade:
    where, present = definitions.where, definitions.properties()
    if not present:
        raise definitions.missing_store()
    for table, properties in present.items():
        check_known_version(where, table, properties, {SCHEMA_VERSION, *UPGRADABLE})
    versions = {table: properties[SCHEMA_VERSION_PROPERTY] for table, properties in present.items()}
    outdated = tuple(table for table in versions if versions[table] != SCHEMA_VERSION)
    # Check this only if no table is upgraded yet.  Otherwise the upgrade must be completed, because
    # the earlier version of claimlib can no longer open the store to finish its runs.
    if len(outdated) == len(present) and {"streams", "journal", "runs"} <= present.keys():
        _refuse_unfinished(definitions.handle(present), where)
    added = [
        f"{table}.{name}"
        for table in outdated
        for name in _upgrade_table(definitions, table, versions[table])
    ]
    return Upgrade(definitions.location.where, outdated, tuple(added))


def _upgrade_table(definitions: Definitions, table: str, version: str) -> list[str]:
    """Upgrade a table, and return the names of the columns that were added."""
    (struct,) = definitions.structs([table])
    # Spark adds the columns before it sets the version, and may be interrupted in between.
    lacking = [
        column for column in TABLES[table].added_since(version) if column.name not in struct.names
    ]
    definitions.change(table, {SCHEMA_VERSION_PROPERTY: SCHEMA_VERSION}, lacking)
    return [column.name for column in lacking]


def _refuse_unfinished(store: Store, where: str) -> None:
    check_session(store)
    unfinished = load_known_runs(store).unfinished
    if not unfinished:
        return
    run = unfinished[0]
    raise UnfinishedRunError(
        f"run {run.run_seq} ({run.key}) is unfinished, so nothing was upgraded. Finish it with the"
        f" version of claimlib that has decided it: claimlib {run.command} … --run-id"
        f" {shlex.quote(run.run_id)}. Then run claimlib upgrade {shlex.quote(where)} again",
        run=run.key,
    )
