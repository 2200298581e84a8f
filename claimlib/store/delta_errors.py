"""Map errors of Delta and Spark to errors of claimlib.

Delta's conflict exceptions have no common parent.  `_CONFLICTS` is the only list of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from delta import exceptions as delta_errors
from pyspark.errors import PySparkException

from claimlib.errors import CommitConflictError, DuplicateRowsError, SchemaError, StorageError
from claimlib.process import FULL_DISK

_CONFLICTS = (
    delta_errors.ConcurrentWriteException,
    delta_errors.MetadataChangedException,
    delta_errors.ProtocolChangedException,
    delta_errors.ConcurrentAppendException,
    delta_errors.ConcurrentDeleteReadException,
    delta_errors.ConcurrentDeleteDeleteException,
    delta_errors.ConcurrentTransactionException,
    delta_errors.DeltaConcurrentModificationException,
)


def conflict(table: str) -> CommitConflictError:
    """Return the error for a write that failed because another writer changed the table."""
    return CommitConflictError(
        f"another writer changed {table} at the same time, so nothing of this write was kept: run"
        " the command again",
        table=table,
    )


@contextmanager
def errors_mapped(table: str, version: int | None = None) -> Iterator[None]:
    """Raise a claimlib error for an error of Delta, Spark or the storage in a write to a table.

    Args:
        version: the version that the embedded engine writes.  None for Spark.

    Raises:
        StorageError: the storage refuses to write a file of this version.
        CommitConflictError: another writer has committed meanwhile.
        SchemaError: the table has a constraint that the rows do not meet.
        DuplicateRowsError: `pending` has two rows with one key.
    """
    try:
        yield
    except _CONFLICTS as error:
        raise conflict(table) from error
    except Exception as error:
        # The text is searched, because it alone contains the errors that Spark's tasks raised.
        if DuplicateRowsError.IN_WORKER in str(error):
            raise DuplicateRowsError(
                "pending has more than one row for a key (stream, consumer_group, id): claimlib"
                " check shows an example; delete all rows of the key but one",
                table="pending",
            ) from error
        storage_error = None if version is None else _storage_error(str(error), table, version)
        if storage_error is not None:
            raise storage_error from error
        if message := _constraint_message(str(error)):
            raise SchemaError(
                f"a constraint of the table {table} refuses rows that a run writes ({message}):"
                " drop it (ALTER TABLE … DROP CONSTRAINT …), and run the command again. Until then"
                " no other run can begin, because each run first finishes a run that was decided",
                table=table,
            ) from error
        raise


def _storage_error(text: str, table: str, version: int) -> StorageError | None:
    """Return the error if the storage refused a file, or None if the text has another cause."""
    for pattern, cause, remedy in _REFUSALS_OF_STORAGE:
        if match := pattern.search(text):
            return StorageError(
                f"version {version} of the table {table} could not be written, because"
                f" {cause} ({match[0]}): {remedy}, and run the same command again",
                table=table,
            )
    return None


_REFUSALS_OF_STORAGE = (
    (FULL_DISK, "a disk is full", "make room"),
    (re.compile("Read-only file system"), "the storage is read-only", "make it writable"),
    (
        # The match includes the path, as in `Cannot open file "/s/x.parquet": Permission denied`.
        re.compile(r"(?:(?:Cannot|Unable to) open file [^\n]*?: )?Permission denied"),
        "a permission is missing",
        "change the permissions",
    ),
)
# The line with the first mark is preferred, because it names the constraint.
_CONSTRAINT_MARKS = ("DELTA_VIOLATE_CONSTRAINT", "DELTA_REPLACE_WHERE_MISMATCH")


def _constraint_message(text: str) -> str | None:
    """Return Delta's message about a constraint, or None if there is no such message.

    The message is one line, without the values of the row.
    """
    lines = [line for mark in _CONSTRAINT_MARKS for line in text.splitlines() if mark in line]
    if not lines:
        return None
    return lines[0].partition("]")[2].strip(" .:").removesuffix(" by row with values")


_NO_SUCH_VERSION = "DELTA_VERSION_NOT_FOUND"
_LATEST = re.compile(rf"\[{_NO_SUCH_VERSION}\].* Available versions: \[\d+, (\d+)\]")


def latest_version(error: Exception) -> int | None:
    """Return the newest version of a table from Delta's error about a version that is too high.

    Return None for any other error.  The version is taken from the error's text, because PySpark is
    slow to fetch the error's parameters from the JVM.
    """
    match = _LATEST.search(str(error))
    return None if match is None else int(match[1])


def says_expired(error: PySparkException) -> bool:
    """Return True if an error means that a version is too old to be read."""
    text = f"{error.getCondition() or ''} {error}"
    return any(mark in text for mark in _EXPIRED)


# Delta's errors about a version whose files or commits are no longer kept.  The last one is Spark's
# error about a file that VACUUM has deleted.
_EXPIRED = (
    "BEYOND_DELETED_FILE_RETENTION",
    _NO_SUCH_VERSION,
    "DELTA_NO_REPRODUCIBLE_HISTORY_FOUND",
    "DELTA_VERSIONS_NOT_CONTIGUOUS",
    "DELTA_TRUNCATED_TRANSACTION_LOG",
    "FILE_NOT_EXIST",
)
