"""Write tables with the embedded engine.

Each write is one commit of this process, or none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from claimlib.engine.changes import Changes
from claimlib.engine.embedded import EmbeddedEngine
from claimlib.engine.folder import DataFile
from claimlib.engine.relation import Relation
from claimlib.errors import SchemaError
from claimlib.schema import TABLES
from claimlib.store.delta_errors import conflict, errors_mapped
from claimlib.store.local import Commit, Condition, LocalTable, StoredFile, Token
from claimlib.store.lookups import readable_at
from claimlib.store.threads import WRITES
from claimlib.store.writer import (
    Removed,
    RunCommit,
    completed_rows,
    names_of,
    target_bytes,
    without_pinned,
)

if TYPE_CHECKING:
    from claimlib.store.tables import Store

# The number of attempts to append rows to a table while other writers commit to it.
_MAX_ATTEMPTS = 20


def _removed(files: Mapping[Path, int]) -> Removed:
    return Removed(len(files), sum(files.values()))


def _check_not_null(table: str, files: Sequence[DataFile]) -> None:
    """Refuse rows that lack a value of a column without nulls, as Delta does in Spark.

    Nulls in columns of maps are not found.
    """
    nulls = sum((file.nulls for file in files), Counter[str]())
    for column in TABLES[table].columns:
        if nulls[column.name] and not column.nullable:
            raise SchemaError(
                f"rows for the table {table} lack a value in the column {column.name}, which is"
                f" NOT NULL ({nulls[column.name]:,} of them): nothing was written to the table."
                " Report this as an error of claimlib, with the command",
                table=table,
                column=column.name,
            )


class FolderWriter:
    """Write by commits of this process, see `Writer`.

    Methods also raise SchemaError if only Spark can write the table, or read its log.
    """

    def __init__(self, store: Store, engine: EmbeddedEngine) -> None:
        self._store = store
        self._engine = engine

    def append(
        self, table: str, rows: Relation, *, token: Token | None = None, note: str | None = None
    ) -> None:
        """See `Writer`."""
        how = Commit("append", token=token, note=note)
        files: Sequence[DataFile] | None = None
        for _ in range(_MAX_ATTEMPTS):
            local = self._writable(table)
            if token is not None and local.has_used(token):
                if files is None:
                    return
                # Another process has used the token since.  A repeat then returns above.
                break
            files = self._write_files(table, rows, local) if files is None else files
            if self._try_commit(table, local, files, how):
                return
        self._engine.discard(table, files or ())
        raise conflict(table)

    def delete(self, table: str, *conditions: Condition, note: str | None = None) -> None:
        """See `Writer`."""
        local = self._writable(table)
        with self._locked(table, local) as is_alone:
            if not is_alone or not local.delete(conditions, note):
                self._store.logs.forget(table)
                raise conflict(table)

    def update(self, table: str, values: Mapping[str, str], condition: str) -> None:
        """See `Writer`."""
        local = self._writable(table)
        columns = (
            f"CASE WHEN {condition} THEN {values[name]} ELSE {name} END AS {name}"
            if name in values
            else name
            for name in names_of(table)
        )
        rows = self._store.relation(table, local.version).select(*columns)
        self._commit_after(table, rows, Commit("overwrite"), local)

    def apply(self, changes: Changes, commit: RunCommit) -> None:
        """See `Writer`.

        One commit writes the new and changed rows, right after the version from which they were
        computed.  If Spark has already appended the new rows of this run, the token was used.  Then
        the changed rows are written without a token.
        """
        if changes.rows is None and changes.new is None:
            return
        table = changes.table
        local = self._writable(table)
        current = self._store.relation(table, local.version)
        is_used = local.has_used(commit.token)
        if is_used:
            changes = changes.due(current)
            if changes.rows is None or changes.rows.is_empty():
                return
        if changes.since_pin and local.version != commit.pinned:
            changes = without_pinned(changes, readable_at(self._store, table, commit.pinned))
        token = None if is_used else commit.token
        if changes.rows is not None:
            how = Commit("overwrite", changes.buckets, token, commit.note)
            self._commit_after(table, changes.after(current), how, local)
            return
        added = changes.added(current)
        if added is not None:
            self._commit_after(table, added, Commit("append", None, token, commit.note), local)

    def files(self, table: str) -> list[StoredFile]:
        """See `Writer`."""
        return self._store.logs.readable(table).files()

    def compact(self, table: str, note: str) -> int:
        """See `Writer`."""
        local = self._writable(table)
        size = target_bytes(table, local.files())
        with self._locked(table, local) as is_alone:
            replaced = local.compact(size, note) if is_alone else None
        if replaced is None:
            self._store.logs.forget(table)
            raise conflict(table)
        return replaced

    def clean_log(self, table: str) -> None:
        """See `Writer`."""
        local = self._writable(table)
        with errors_mapped(table, local.version):
            local.clean_log()
        self._store.logs.forget(table)

    def removable(self, table: str) -> Removed:
        """See `Writer`."""
        return _removed(self._store.logs.readable(table).removable())

    def vacuum(self, table: str) -> Removed:
        """See `Writer`.

        This process deletes the files, because delta-rs would also delete deletion vectors that are
        in use.  It also deletes the checksums that Spark wrote beside the files.
        """
        files = self._store.logs.readable(table).removable()
        for path in files:
            # First the checksum, because a file that is left is deleted the next time.
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
            path.unlink(missing_ok=True)
        return _removed(files)

    def _commit_after(self, table: str, rows: Relation, how: Commit, local: LocalTable) -> None:
        """Commit rows as the version after `local`, or raise CommitConflictError.

        Do nothing if the token of the commit was used.
        """
        if how.token is not None and local.has_used(how.token):
            return
        files = self._write_files(table, rows, local)
        if not self._try_commit(table, local, files, how):
            self._engine.discard(table, files)
            raise conflict(table)

    def _try_commit(
        self, table: str, local: LocalTable, files: Sequence[DataFile], how: Commit
    ) -> bool:
        """Commit files as the version after `local`.  Return False if there was a conflict."""
        with self._locked(table, local) as is_alone:
            is_committed = is_alone and local.commit(files, how)
        if not is_committed:
            self._store.logs.forget(table)
        return is_committed

    def _write_files(self, table: str, rows: Relation, local: LocalTable) -> Sequence[DataFile]:
        """Write rows with all columns of a table into files that no version contains yet."""
        completed = completed_rows(TABLES[table], rows, self._store.buckets)
        with errors_mapped(table, local.version + 1):
            partition = TABLES[table].partitioned_by
            files = self._engine.write(completed.node, table, partition, local.compared)
        try:
            _check_not_null(table, files)
        except SchemaError:
            self._engine.discard(table, files)
            raise
        return files

    @contextmanager
    def _locked(self, table: str, local: LocalTable) -> Iterator[bool]:
        """Lock a table for the commit of its next version, and yield True.

        Yield False if Spark writes to the table.  Errors name the table and this version.
        """
        lock = WRITES.alone(self._store.identifier(table))
        with lock as is_alone, errors_mapped(table, local.version + 1):
            yield is_alone

    def _writable(self, table: str) -> LocalTable:
        local = self._store.logs.readable(table)
        if not local.is_writable(names_of(table)):
            raise SchemaError(
                f"the table {table} of {self._store.where} has a constraint, a column or a feature"
                " that only Spark can write: run the command again with --engine spark",
                table=table,
            )
        return local
