"""Read the logs of a store's tables: versions, properties, commits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from claimlib import schema
from claimlib.engine import limits
from claimlib.engine.newest_versions import NewestVersions
from claimlib.errors import SchemaError, VersionExpiredError
from claimlib.schema import TABLES
from claimlib.store.delta_errors import latest_version, says_expired
from claimlib.store.local import LocalTable, commits_of, newest
from claimlib.store.location import Location
from claimlib.store.sessions import properties_of

# The fields of a commit in the history.
CommitInfo = Mapping[str, Any]
# Later than any version of a table.
_NO_VERSION = 2**62


class Logs:
    """Read the logs of the tables of a store.

    Args:
        start: opens the Spark session, or returns the one that is open.
        folder: the folder of the store, or None if this process cannot read it.
        table_ids: the id of each table.
    """

    def __init__(
        self,
        start: Callable[[], SparkSession],
        location: Location,
        folder: Path | None,
        table_ids: Mapping[str, str],
    ) -> None:
        self._start = start
        self._location = location
        self._local_folder = folder
        self._newest = NewestVersions(newest)
        self._table_ids = table_ids

    def local(self, table: str) -> LocalTable | None:
        """Return a table at its newest version, or None if only Spark can read its log.

        The result is also None if the table was replaced after the store was opened.
        """
        local = None if self._local_folder is None else self._newest.of(self._local_folder / table)
        if local is None:
            return None
        table_id = local.properties.get(schema.TABLE_ID_PROPERTY)
        return local if table_id == self._table_ids[table] else None

    def readable(self, table: str) -> LocalTable:
        """Return a table at its newest version.

        Raises:
            SchemaError: only Spark can read the table's log, or the table was replaced.
        """
        local = self.local(table)
        if local is None:
            raise SchemaError(
                f"the table {table} of {self._location.where} cannot be read as files any more:"
                " another writer has replaced it or changed its features. Run the command again",
                table=table,
            )
        return local

    def forget(self, table: str) -> None:
        """Make the next read of a table look up its newest version again."""
        if self._local_folder is not None:
            self._newest.forget(self._local_folder / table)

    def is_small(self, table: str) -> bool:
        """Return True if the log shows without a query that a table has few rows."""
        local = self.local(table)
        return local is not None and local.is_small(limits.LIMITS.session_rows)

    def read_at(self, table: str, version: int | None) -> DataFrame:
        """Return a table at one of its versions.

        Args:
            version: None means the newest version when the frame is computed.

        Raises:
            VersionExpiredError: the version no longer exists.
        """
        name = self._location.identifier(table)
        if version is None:
            return self._start().table(name)
        try:
            return self._start().sql(f"SELECT * FROM {name} VERSION AS OF {version:d}")
        except PySparkException as error:
            if not says_expired(error):
                raise
            raise VersionExpiredError.of(table, version) from error

    def version(self, table: str) -> int:
        """Return the current version of a table.

        Without files, a version that cannot exist is read, because Delta's error names the current
        version without a query.  DESCRIBE HISTORY is slower.
        """
        local = self.local(table)
        if local is not None:
            return local.version
        name = self._location.identifier(table)
        try:
            # Connect analyzes a query only when its schema is needed.
            _ = self._start().sql(f"SELECT 1 FROM {name} VERSION AS OF {_NO_VERSION:d}").schema
        except Exception as error:  # noqa: BLE001 - then DESCRIBE HISTORY raises a clear error
            latest = latest_version(error)
            if latest is not None:
                return latest
        return int(self.history(table, limit=1)[0]["version"])

    def properties(self, table: str) -> Mapping[str, str]:
        """Return the properties of a table as it is now."""
        local = self.local(table)
        if local is not None:
            return local.properties
        return properties_of(self._start(), self._location.identifier(table)) or {}

    def newest_note(self, table: str) -> tuple[int, str | None]:
        """Return the newest version of a table, and the user metadata of its commit."""
        local = self.local(table)
        notes = None if local is None else local.notes(1)
        if local is not None and notes:
            return local.version, notes[0]
        newest = self.history(table, limit=1)[0]
        return newest["version"], newest["userMetadata"]

    def notes(self, table: str) -> Sequence[str | None]:
        """Return the user metadata of all commits that the history of a table still has."""
        local = self.local(table)
        notes = None if local is None else local.notes()
        if notes is None:
            return [commit["userMetadata"] for commit in self.history(table)]
        return notes

    def history(self, table: str, limit: int | None = None) -> Sequence[CommitInfo]:
        """Return the commits of a table, newest first.

        Each commit has `version`, `operation`, `operationParameters`, `operationMetrics` and
        `userMetadata`.  A value is None if the commit lacks it.

        Args:
            limit: the number of newest commits to return.  None means all.
        """
        limit_clause = "" if limit is None else f" LIMIT {limit:d}"
        name = self._location.identifier(table)
        commits = self._start().sql(f"DESCRIBE HISTORY {name}{limit_clause}").collect()
        return [commit.asDict() for commit in commits]

    def added_columns(self, table: str) -> set[str]:
        """Return the columns that the user has added to a table.

        A rewrite of the table would empty these columns.
        """
        local = self.local(table)
        names = self.read_at(table, None).columns if local is None else local.struct.names
        return set(names) - {column.name for column in TABLES[table].columns}


class FolderLogs(Logs):
    """Read the logs of tables in a folder, without Spark."""

    def __init__(
        self,
        start: Callable[[], SparkSession],
        location: Location,
        folder: Path,
        table_ids: Mapping[str, str],
    ) -> None:
        super().__init__(start, location, folder, table_ids)
        self._folder = folder

    def history(self, table: str, limit: int | None = None) -> Sequence[CommitInfo]:
        """See `Logs`."""
        return commits_of(self._folder / table, limit)
