"""Check an open store before a run changes it, and before the run ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from claimlib.places import check_writable
from claimlib.schema import TABLES
from claimlib.store.checks import append_only_error
from claimlib.store.replaced_tables import Accepted, Seen, error_of, find_replaced
from claimlib.store.sessions import check_reads_all
from claimlib.store.tables import Store


def check_session(store: Store) -> None:
    """Raise ConfigError if Spark may skip files of the store."""
    # The embedded engine has no settings that skip files.
    if not store.is_embedded:
        check_reads_all(store.spark)


def check_folder(store: Store) -> None:
    """Raise StorageError if this user has no permission to write to the store's local folder."""
    if store.folder is not None:
        check_writable(store.folder, TABLES)


def check_changeable(store: Store, tables: Iterable[str]) -> None:
    """Refuse append-only tables, because a decision to change them could never be applied.

    Raises:
        SchemaError: one of the tables is append-only.
    """
    for table in tables:
        if table in store.append_only:
            raise append_only_error(store.where, table)


def check_not_replaced(store: Store, versions: Mapping[str, int], runs: Collection[Seen]) -> None:
    """Refuse tables that are at an earlier version than a run has seen.

    Args:
        versions: the versions of the tables now.
        runs: the newest finished run, and all unfinished runs.

    Raises:
        SchemaError: a table was replaced.  The message names the tables, and the command that
            accepts them as they are.
    """
    if find_replaced(versions, runs, store.accepted):
        # `init` may have accepted the tables since the store was opened.
        older = find_replaced(versions, runs, accepted_now(store))
        if older:
            raise error_of(store.where, older)


def accepted_now(store: Store) -> Accepted:
    """Return the tables that `init` has accepted until now."""
    return Accepted.of(store.logs.properties("streams"))
