"""Define every error that claimlib raises on purpose.

    ClaimlibError                       exit code 1
    ├── RequestError                    2   a request cannot be used
    │   ├── IdError                         a text is not a stream id
    │   │   └── IntervalError               an exclusive range bound has no neighbor
    │   ├── DurationError                   a text is not a duration
    │   ├── InstantError                    a text is not an instant
    │   ├── GlobError                       a glob cannot be matched
    │   ├── NameSpellingError               a text is not the spelling of a name
    │   └── ConfigError                     a configuration value cannot be used
    ├── MissingExtraError               2   an optional package is not installed
    ├── GuardError                      4   a request would do more than its guards allow
    │   └── EmptySourceError                a source has no stream or group that matches
    ├── StateError                      4   a pending entry, consumer or group is impossible
    ├── StoreError                      4   the tables cannot be used
    │   ├── StoreNotFoundError              there is no store at this place
    │   ├── StoreIncompleteError            some of the store's tables are missing
    │   ├── StoreExistsError                there is another store at this place
    │   ├── UnsafeLocationError             commits could be lost, or the tables would not last
    │   ├── StorageError                    the storage is missing, refuses access, or is full
    │   ├── DamagedTableError               a file of a table is missing, or cannot be read
    │   ├── UnsupportedTableError           a table needs a newer Delta
    │   ├── StoreUnreachableError       75  the storage did not answer: try again
    │   ├── SchemaVersionError              the store has another schema version
    │   ├── SchemaError                     a column is missing, or has another type
    │   ├── SourceMismatchError             the store mirrors another server
    │   ├── NotAMirrorError                 the store has rows of its own, and mirrors no server
    │   ├── ForeignRunSeqError              rows bear the run numbers of another store
    │   ├── MissingRowsError                rows that a run wrote were deleted
    │   ├── VersionExpiredError             an earlier version of a table is no longer kept
    │   ├── DuplicateRowsError              two rows have one key
    │   └── HashCollisionError              two names have one hash
    ├── InputError                      4   a given table cannot be used
    ├── RunError                        5   a run did not finish
    │   ├── LostRaceError                   other runs decided first, again and again
    │   ├── StoreBusyError                  another process writes to the store
    │   ├── UnfinishedRunError              an earlier run is decided but not applied
    │   ├── CommitConflictError             another writer committed at the same time
    │   ├── RunKeyConflictError         2   the run's key was used for another request
    │   └── RunAbandonedError           2   the run with this key was abandoned
    ├── SparkUnreachableError          75  the Spark Connect server did not answer: try again
    ├── SparkEndedError                75  Spark has ended: try again
    ├── SparkMemoryError                2  Spark's memory, or its limit for results, was too small
    ├── WorkerError                     1   a Python worker of Spark lacks a package or library
    ├── VerificationError               1   the tables do not have what was decided
    ├── SourceError                     75  the server cannot be read
    │   ├── SourceUnreachableError          there is no connection, or the connection broke
    │   ├── AuthenticationFailedError   2   wrong user or password
    │   ├── PermissionDeniedError       2   the user has no right to a command or a key
    │   └── WrongTypeError              4   a key is not a stream
    ├── ReplyError                      2   a server replies, or would reply, with an error
    └── LineageError                   75  the OpenLineage server did not accept an event: try again

A number is the exit code of a class, and of all classes below it that show no number.  All exit
codes are:

    0    done
    1    internal error
    2    usage or configuration error
    3    stalled entries, outdated snapshots or differences found (xpending, check --replay)
    4    input refused, or `check` found problems that make runs refuse groups
    5    overtaken by concurrent runs, or another process still writes after --wait, or an earlier
         run is unfinished
    6    done but some groups refused or left
    75   server or storage unreachable (try again)
    130  interrupted
    143  terminated
"""

from __future__ import annotations

from typing import Any, ClassVar, Self


class ClaimlibError(Exception):
    """The base class of all errors that claimlib raises on purpose.

    Attributes:
        message: what is wrong and what to do about it.
        fields: the values that the message is about, by name (table, column, text …).  Each can
            also be read as an attribute of the error: `error.table`.

    Examples:
        >>> try:
        ...     parse_duration_ms("15")
        ... except ClaimlibError as error:
        ...     print(error.exit_code, error.message, error.text, sep=" | ")
        2 | '15' has no unit: give a unit, as in 15ms or 15m | 15
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, **fields: object) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields

    def __getattr__(self, name: str) -> Any:
        """Return a field by its name."""
        try:
            return self.__dict__["fields"][name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}") from None


class RequestError(ClaimlibError):
    """A request, an option, an id, a duration, a glob or a config value cannot be used."""

    exit_code = 2

    @classmethod
    def of_empty(cls, what: str, remedy: str, **fields: object) -> Self:
        """Return the error of an empty text, for example of a script's variable that is not set."""
        return cls(f"{what} is empty (in a script: is its variable set?): {remedy}", **fields)


class IdError(RequestError):
    """A text is not a stream id, or a number is not half of one."""


class IntervalError(IdError):
    """An exclusive range bound has no neighbor: nothing is after the largest id or before 0-0."""


class DurationError(RequestError):
    """A text is not a valid duration: a number without a unit, for example."""


class InstantError(RequestError):
    """A text is not a valid instant: a time without a zone, for example."""


class GlobError(RequestError):
    """A glob cannot be matched: it is empty, a class is not closed, or a backslash ends it."""


class NameSpellingError(RequestError):
    """A text is not the spelling of any name."""


class ConfigError(RequestError):
    """A configuration key is unknown, or its value cannot be used."""


def install_command(*extras: str) -> str:
    """Return the instruction to install claimlib with extras.

    The command names no package of an index, because the project publishes none there.
    """
    return f"pip install 'PATH[{','.join(extras)}]', where PATH is claimlib's checkout or wheel"


class MissingExtraError(ClaimlibError):
    """An optional package is needed here and is not installed."""

    exit_code = 2

    @classmethod
    def for_package(cls, extra: str, package: str) -> Self:
        """Return the error that names the extra with `package`."""
        return cls(
            f"{package} is not installed: {install_command(extra)}",
            extra=extra,
            package=package,
        )


class GuardError(ClaimlibError):
    """A request would claim, delete or remove more than its guards allow; nothing is done."""

    exit_code = 4


class EmptySourceError(GuardError):
    """A source has no stream and no group that matches the request.  Nothing is removed."""


class StateError(ClaimlibError):
    """A pending entry, a consumer or a group is impossible: out of order, or out of range."""

    exit_code = 4


class StoreError(ClaimlibError):
    """The store's tables cannot be used as they are."""

    exit_code = 4


class StoreNotFoundError(StoreError):
    """There is no store at this place."""


class StoreIncompleteError(StoreError):
    """Some of the store's tables are missing."""


class StoreExistsError(StoreError):
    """There is already a store at this place, with other options or other rows."""


class UnsafeLocationError(StoreError):
    """Two drivers could overwrite each other's commits, or the tables would not last."""


class StorageError(StoreError):
    """Storage cannot be used: Spark has no jar for it, or it refuses access, or it is full."""


class DamagedTableError(StoreError):
    """A file of a table is missing, or is damaged."""


class UnsupportedTableError(StoreError):
    """A table uses a feature that the installed Delta does not have."""


class SparkUnreachableError(ClaimlibError):
    """No Spark Connect server answers.  Trying again may help."""

    exit_code = 75


class SparkEndedError(ClaimlibError):
    """The JVM that this process started was killed, or has ended.

    Trying again may help.
    """

    exit_code = 75


class SparkMemoryError(ClaimlibError):
    """Spark's memory, or its limit for results that pass through the driver, was too small."""

    exit_code = 2


class WorkerError(ClaimlibError):
    """A Python worker of Spark lacks something: the package, or a library."""


class StoreUnreachableError(StoreError):
    """The storage did not answer.  Trying again may help."""

    exit_code = 75


class SchemaVersionError(StoreError):
    """The store has another version of the schema."""


class SchemaError(StoreError):
    """A column is missing, or has another type or nullability."""


class SourceMismatchError(StoreError):
    """The store mirrors another server or database."""


class NotAMirrorError(StoreError):
    """The store has rows of its own and mirrors no server, so a snapshot would replace them."""


class ForeignRunSeqError(StoreError):
    """Rows have a run_seq that no run of the store has had, so no run would change them."""


class MissingRowsError(StoreError):
    """The table `runs` or `journal` lacks rows that a run wrote there."""


class VersionExpiredError(StoreError):
    """An earlier version of a table is no longer kept."""

    @classmethod
    def of(cls, table: str, version: int) -> Self:
        """Return the error of one version of a table."""
        return cls(
            f"version {version} of {table} can no longer be read: versions other than the newest"
            " are kept for 7 days, or as long as the table's delta.deletedFileRetentionDuration"
            " says",
            table=table,
            version=version,
        )


class DuplicateRowsError(StoreError):
    """Two rows of a table have one key.

    Attributes:
        IN_WORKER: the message that a Python worker of Spark raises.  It reaches the driver as text
            only.
    """

    IN_WORKER = "claimlib: two pending rows have one key"


class HashCollisionError(StoreError):
    """Two names of a store, or of a store and its source, have the same hash.

    Attributes:
        names: both names, as users spell them.
    """


class InputError(ClaimlibError):
    """A table or a file of the user does not exist, is empty, or has unusable rows."""

    exit_code = 4


class RunError(ClaimlibError):
    """A run did not finish, because of other runs or writers."""

    exit_code = 5


class LostRaceError(RunError):
    """Other runs decided first, again and again."""


class StoreBusyError(RunError):
    """Another process still writes to the store after the time to wait.

    Attributes:
        where: the store's folder.
        run: the key of the other process's run, or its command.
        process, host: the id of the process, and the name of its machine.
        since_ms: the time when it took the lock, ms since the epoch.

    All but `where` are None if the other process is unknown.
    """


class UnfinishedRunError(RunError):
    """An earlier run is decided but not finished, and this command does not finish it."""


class CommitConflictError(RunError):
    """Another writer committed to the same table at the same time, so this write was not kept."""


class RunKeyConflictError(RunError):
    """The key of this run belongs to an earlier run with another request."""

    exit_code = 2


class RunAbandonedError(RunError):
    """The run with this key was abandoned, so it did not do what was requested."""

    exit_code = 2


class VerificationError(ClaimlibError):
    """A table does not have the rows that the run decided."""


class SourceError(ClaimlibError):
    """The server cannot be read."""

    exit_code = 75


class SourceUnreachableError(SourceError):
    """The server did not answer, or the connection broke."""


class AuthenticationFailedError(SourceError):
    """The server does not accept the user or the password."""

    exit_code = 2


class PermissionDeniedError(SourceError):
    """The server does not let this user run a command or read a key."""

    exit_code = 2


class WrongTypeError(SourceError):
    """A key on the server is not a stream."""

    exit_code = 4


class ReplyError(ClaimlibError):
    """A server replies, or would reply, with an error.

    `message` is the reply word for word, with its prefix (ERR, NOGROUP).  Bytes of a name that are
    not UTF-8 are decoded with `surrogateescape`.
    """

    exit_code = 2


class LineageError(ClaimlibError):
    """The OpenLineage server did not accept an event."""

    exit_code = 75
