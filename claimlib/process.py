"""End a process with one clear line on stderr and an exit code.

The table of exit codes is in `errors`.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from threading import current_thread, main_thread
from traceback import walk_tb
from types import FrameType
from urllib.parse import unquote

from claimlib import terminal
from claimlib.errors import (
    ClaimlibError,
    DamagedTableError,
    InputError,
    MissingExtraError,
    SparkEndedError,
    SparkMemoryError,
    StorageError,
    StoreUnreachableError,
    UnsupportedTableError,
    WorkerError,
)

DONE = 0
OUR_FAULT = 1
STALLED = 3
INPUT_REFUSED = 4
SOME_REFUSED = 6
INTERRUPTED = 130
TERMINATED = 143

MEANINGS: Mapping[int, str] = {
    DONE: "done",
    OUR_FAULT: "internal error",
    2: "usage or configuration error",
    STALLED: "stalled entries, outdated snapshots or differences found (xpending, check --replay)",
    INPUT_REFUSED: "input refused, or `check` found problems that make runs refuse groups",
    5: "overtaken by concurrent runs, or another process still writes after --wait, or an earlier"
    " run is unfinished",
    SOME_REFUSED: "done but some groups refused or left",
    75: "server or storage unreachable (try again)",
    INTERRUPTED: "interrupted",
    TERMINATED: "terminated",
}
"""The meaning of each exit code."""

# Java's errors for storage that did not answer.  Python gets only the texts of such errors.
_NETWORK_ERRORS = (
    "java.net.ConnectException",
    "java.net.NoRouteToHostException",
    "java.net.SocketException",
    "java.net.SocketTimeoutException",
    "java.net.UnknownHostException",
)

# The extra of claimlib that installs a package, by package.
_EXTRAS = {
    "delta": "spark",
    "jinja2": "report",
    "numpy": "spark",
    "openlineage": "lineage",
    "pandas": "spark",
    "prometheus_client": "report",
    "pyarrow": "spark",
    "pydantic": "spark",
    "pydantic_settings": "spark",
    "pyspark": "spark",
    "redis": "redis",
    "requests": "lineage",
    "rich": "cli",
    "starlette": "serve",
    "typer": "cli",
    "uvicorn": "serve",
}


def _no_run() -> str:
    return "no run had begun"


class _Signals:
    """Hold the signal that ended this process, and a function that describes the store's state."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.state: Callable[[], str] = _no_run

    def catch(self, number: int, _frame: FrameType | None) -> None:
        """Store the signal, and raise KeyboardInterrupt.

        Spark may replace this error by another one.  The stored signal shows that it was an
        interruption.
        """
        self.received = number
        raise KeyboardInterrupt


_signals = _Signals()


def catch_signals() -> None:
    """Make Ctrl-C and SIGTERM end this process in order.

    Call this again after Spark has started, because pyspark installs a handler of its own.  That
    handler sends a command to the JVM, which the same Ctrl-C may already have ended.
    """
    if current_thread() is main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _signals.catch)


def set_state_text(state: Callable[[], str]) -> None:
    """Set the text about the state of the store that is printed if this process is interrupted.

    Args:
        state: returns the text.  It is called only after an interruption, and must not raise.
    """
    _signals.state = state


def ending(work: Callable[[], int], *, debug: Callable[[], bool] | None = None) -> int:
    """Do the work of this process, and return its exit code.  Print an error on stderr.

    Args:
        work: does the work.  It returns the exit code, or raises an error.
        debug: returns True if a traceback is printed, too.  It is called only after an error.  None
            means that the process has no option for it.
    """
    _signals.received, _signals.state = None, _no_run
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    catch_signals()
    try:
        with terminal.guarded():
            return _ending(work, debug)
    finally:
        if current_thread() is main_thread():
            for number, handler in handlers.items():
                signal.signal(number, handler)


def _ending(work: Callable[[], int], debug: Callable[[], bool] | None) -> int:
    try:
        return work()
    except KeyboardInterrupt:
        return _interrupted()
    except Exception as raised:  # noqa: BLE001 - this is where a process ends
        if _signals.received is not None or _was_raised_during_interrupt(raised):
            return _interrupted()
        has_traceback = debug is not None and debug()
        if has_traceback:
            terminal.err(traceback.format_exc().rstrip("\n"))
        error = translated(raised)
        terminal.say(f"error: {_named(error, has_debug=debug is not None and not has_traceback)}")
        return error.exit_code if isinstance(error, ClaimlibError) else OUR_FAULT


def _interrupted() -> int:
    if _signals.received == signal.SIGTERM:
        terminal.say(f"terminated: {_signals.state()}")
        return TERMINATED
    terminal.say(f"interrupted: {_signals.state()}")
    return INTERRUPTED


def _was_raised_during_interrupt(error: BaseException) -> bool:
    """Return True if an error was raised while an interrupt passed through the code.

    Spark reports the interrupt to the JVM.  If the connection is in the middle of a command, this
    raises another error.
    """
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if isinstance(cause, KeyboardInterrupt):
            return True
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    return False


def translated(error: Exception) -> Exception:
    """Return the error of claimlib for an error of a library, or the error itself if it is unknown.

    If a package is not installed, the new error names the extra that installs it.  If storage did
    not answer, the new error tells the user to try again.
    """
    package = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
    if package in _EXTRAS and isinstance(error, ModuleNotFoundError):
        return MissingExtraError.for_package(_EXTRAS[package], package)
    if isinstance(error, ClaimlibError):
        return error
    known = _spark_ended(error) or _error_of_text(str(error), _KNOWN_TEXTS)
    if known is not None:
        return known
    by_java = any(name in str(error) for name in _NETWORK_ERRORS)
    if by_java or isinstance(error, ConnectionError | TimeoutError):
        cause = without_classes(_most_specific_line(error))
        return StoreUnreachableError(f"storage did not answer, try again: {cause}")
    # Damaged files come last, because the texts above may also say that a file cannot be read.
    return (
        _error_of_text(unquote(str(error)), _UNREADABLE)
        or _error_of_text(str(error), _DAMAGES)
        or error
    )


def _spark_ended(error: Exception) -> ClaimlibError | None:
    """Return an error if the JVM that this process started has ended.

    Return None if the JVM runs, or if this process started no JVM.
    """
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    jvm = getattr(getattr(context, "_gateway", None), "proc", None)
    timeout_s = _JVM_END_TIMEOUT_S if _may_have_lost_jvm(error) else 0
    try:
        code = None if jvm is None else jvm.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
    if code is None:
        return None
    if code == _JVM_OUT_OF_MEMORY:
        return SparkMemoryError(_MORE_MEMORY)
    cause = f"was killed by signal {-code}" if code < 0 else f"has ended with code {code}"
    return SparkEndedError(
        f"Spark's Java process {cause}: try again. If it was the machine that had no memory left,"
        " give Spark less (--spark-conf spark.driver.memory=…)"
    )


def _may_have_lost_jvm(error: Exception) -> bool:
    """Return True if the error may mean that the connection to the JVM is lost.

    An error of a connection to storage does not mean this.
    """
    modules = (frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__))
    by_py4j = any(name.startswith("py4j.") for name in modules)
    name = type(error).__name__
    return by_py4j and (isinstance(error, ConnectionError) or name in _LOST_BY_PY4J)


# `Py4JJavaError` is not among them, because the JVM runs if Java itself raised an error.
_LOST_BY_PY4J = ("Py4JError", "Py4JNetworkError")
# The time in seconds to wait for the end of the JVM, because its connection is lost earlier.
_JVM_END_TIMEOUT_S = 10
# The exit code `SparkExitCode.OOM`.
_JVM_OUT_OF_MEMORY = 52
_MORE_MEMORY = (
    "Spark ran out of memory: give it more, for example --spark-conf spark.driver.memory=8g"
    " (spark-submit: --driver-memory 8g; a cluster's executors: spark.executor.memory), or process"
    " fewer groups at once (--stream, --group)"
)
_KnownText = tuple[str, type[ClaimlibError], str]
"""A pattern for the text of an error, the error of claimlib for it, and the message for users.

The groups of the pattern fill the placeholders of the message.
"""


def _error_of_text(text: str, known: tuple[_KnownText, ...]) -> ClaimlibError | None:
    """Return the error for the first pattern that the text matches, or None if it matches none."""
    for pattern, kind, message in known:
        match = re.search(pattern, text)
        if match:
            return kind(message.format(*match.groups()))
    return None


FULL_DISK = re.compile(r"(No space left on device|Disk quota exceeded|File too large)")
_PERMISSIONS = "claimlib needs permission to read, and to write for commands that change the store"
_JARS = "add its jar (--spark-conf spark.jars.packages=…), or give another location"
# The texts of errors of Java or of a worker.
_KNOWN_TEXTS: tuple[_KnownText, ...] = (
    (
        r"ModuleNotFoundError: No module named '(claimlib[\w.]*)'",
        WorkerError,
        (
            "Spark's Python workers cannot import {0}: install the package on every node, or send"
            " it to the executors (spark-submit --py-files claimlib.zip; make zip builds it)"
        ),
    ),
    (
        r"ModuleNotFoundError: No module named '([\w.]+)'",
        WorkerError,
        (
            "Spark's Python workers cannot import {0}: install it for the Python that they run"
            " (spark.pyspark.python)"
        ),
    ),
    (
        r"of \d+ tasks? \((.+?)\) is bigger than spark\.driver\.maxResultSize \((.+?)\)",
        SparkMemoryError,
        (
            "the results that pass through Spark's driver take {0}, which is more than"
            " spark.driver.maxResultSize allows ({1}): allow more (--spark-conf, or --conf of"
            " spark-submit: spark.driver.maxResultSize=4g), or process fewer groups at once"
            " (--stream, --group)"
        ),
    ),
    (
        r"OutOfMemoryError: (?:Java h|GC )|Not enough memory to build and|\[UNABLE_TO_ACQUIRE_MEM",
        SparkMemoryError,
        _MORE_MEMORY,
    ),
    (
        r'No FileSystem for scheme "?([\w+.-]+)',
        StorageError,
        "Spark has no file system for {0}://: " + _JARS,
    ),
    (
        r"ClassNotFoundException: Class (?:[\w$]+\.)*(\w+) not found",
        StorageError,
        "Spark lacks the jar for this storage ({0}): " + _JARS,
    ),
    (
        r"\[DELTA_CANNOT_CREATE_LOG_PATH\] Cannot create (\S+)/[^/\s]+/_delta_log",
        StorageError,
        (
            "{0} cannot be created: part of the path is a file, a name is too long, or there is no"
            " permission to write; give another location"
        ),
    ),
    (
        r"\[DELTA_INVALID_PARTITION_PATH\]",
        StorageError,
        "a store cannot be in the folder of a table: give another location",
    ),
    (
        r"UnknownStoreException: `(s3[an]?://[^/'\s]+)",
        StorageError,
        (
            "the bucket {0} does not exist: create it, or give another one. If the server is not"
            " AWS, set spark.hadoop.fs.s3a.endpoint to its address"
        ),
    ),
    (
        r"NoAuthWithAWSException: ",
        StorageError,
        (
            "no credentials for S3 were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or"
            " configure a provider (spark.hadoop.fs.s3a.aws.credentials.provider)"
        ),
    ),
    (
        r"AccessDeniedException: (\S+): [^\n]*\(Service: S3, Status Code: (\d+)",
        StorageError,
        "S3 denies access to {0} (status {1}): the credentials are wrong, or do not allow it",
    ),
    (
        r"\(Service: S3, Status Code: (5\d\d)",
        StoreUnreachableError,
        "S3 could not serve a request (status {0}), try again",
    ),
    (
        r"\bApiCallTimeoutException: ([^\n]*)",
        StoreUnreachableError,
        "storage did not answer, try again: {0}",
    ),
    (
        r"SdkClientException: Unable to execute HTTP request: ([^\n]*?) \(SDK Attempt Count",
        StoreUnreachableError,
        "storage did not answer, try again: {0}",
    ),
    (
        r"(?:AccessDenied|AccessControl|Forbidden)\w*: ([^\n]*)",
        StorageError,
        "the storage denies access: {0}; " + _PERMISSIONS,
    ),
    (
        r"(?:^|[\s:])([^\s:][^\n:]*) \(Permission denied\)",
        StorageError,
        "the storage denies access: {0}; " + _PERMISSIONS,
    ),
    (
        r"(?:to open file|open file \") ?([^\n]+?)(?:\"|#\d+): Permission denied",
        StorageError,
        "the storage denies access: {0}; " + _PERMISSIONS,
    ),
    (
        r"Permission denied: '([^'\n]+)'",
        StorageError,
        "the storage denies access: {0}; " + _PERMISSIONS,
    ),
    (
        FULL_DISK.pattern,
        StorageError,
        "a disk is full ({0}): make room, and try again",
    ),
    (
        r"Read-only file system",
        StorageError,
        "the storage is read-only: make it writable, or give another location",
    ),
    (
        r"Mkdirs failed to create (?:file:/*(?=/))?([^\s(]+)",
        StorageError,
        (
            "no folder can be created at {0}: the storage is read-only, or this user has no"
            " permission to write; change the permissions, or give another location"
        ),
    ),
    (
        r"Wrong FS: (\S+?)(?:/\w+/_delta_log\S*)?, expected: (\S+)",
        StorageError,
        ("{0} is not on the file system that Spark uses ({1}): give a local path without file://"),
    ),
    (
        r"UnknownHostException: ([^\s:]+)",
        StoreUnreachableError,
        (
            "storage did not answer, try again: the host {0} is unknown; check the name and the"
            " network"
        ),
    ),
    (
        r"Call From \S+ to (\S+) failed on [^:\n]*: (?:[\w.]+: )?([^;\n]*)",
        StoreUnreachableError,
        "storage did not answer, try again: {0}: {1}",
    ),
)
RESTORE = (
    "restore it from a backup; if there is none, create another store (claimlib init) and fill it"
    " again"
)
"""The remedy for a table with a damaged file."""
_NEWER = (
    "table {0} needs a newer version of Delta Lake than the installed one: upgrade delta-spark and"
    " pyspark"
)
# An optional `file:` or `file://` before an absolute path.
_FILE = "(?:file:/*(?=/))?"
_READING = rf" Encountered error while reading file {_FILE}"
# The texts of errors of Spark about a file.  They have the path as in a URL, so they are unquoted.
_UNREADABLE: tuple[_KnownText, ...] = (
    (
        r"\[FAILED_READ_FILE\.CANNOT_READ_FILE_FOOTER\]" + _READING + r"(.+?)\. ",
        InputError,
        "{0} is not a Parquet file: give a Delta or Parquet table",
    ),
    (
        r"\[FAILED_READ_FILE\.FILE_NOT_EXIST\]" + _READING + r"(.+?)\. ",
        DamagedTableError,
        "{0} is missing, although the log of its table refers to it: " + RESTORE,
    ),
    (
        r"\[FAILED_READ_FILE\.\w+\]" + _READING + r"(.+?/_delta_log/.+?)\. ",
        DamagedTableError,
        "the log of a table is damaged, {0} cannot be read: " + RESTORE,
    ),
    (
        r"\[FAILED_READ_FILE\.\w+\]" + _READING + r"(.+?)\. ",
        DamagedTableError,
        "a file of a table is damaged, {0} cannot be read: " + RESTORE,
    ),
)
_DAMAGES: tuple[_KnownText, ...] = (
    # A text of DuckDB.
    (
        r"No files found that match the pattern \"(.+?)\"",
        DamagedTableError,
        "{0} is missing, although the log of its table refers to it: " + RESTORE,
    ),
    (
        r"(?:No magic bytes found at end of file|Error: File) '(.+?\.parquet)'",
        DamagedTableError,
        "a file of a table is damaged, {0} cannot be read: " + RESTORE,
    ),
    (
        r"(TProtocolException|Snappy decompression|decompression failed)",
        DamagedTableError,
        "a file of a table is damaged ({0}): " + RESTORE,
    ),
    (
        rf"\[DELTA_TRUNCATED_TRANSACTION_LOG\] {_FILE}(.+?): Unable",
        DamagedTableError,
        "part of the log of a table is missing ({0}): " + RESTORE,
    ),
    (
        r"\[DELTA_VERSIONS_NOT_CONTIGUOUS\] ([^\n]*?)\.? ",
        DamagedTableError,
        "the log of a table has a gap: " + RESTORE,
    ),
    (
        rf"FileNotFoundException: (?:File )?{_FILE}(\S.*?) does not exist",
        DamagedTableError,
        "{0} is missing, although the log of its table refers to it: " + RESTORE,
    ),
    (
        rf"Unsupported Delta protocol version: table \"?{_FILE}(.+?)\"? requires",
        UnsupportedTableError,
        _NEWER,
    ),
    (
        rf"Unsupported Delta (?:read|write|table) feature: table \"?{_FILE}(.+?)\"? requires",
        UnsupportedTableError,
        _NEWER,
    ),
    (
        r"\A(?:An error occurred while calling [^\n]*\n: )?java\.io\.IOException: ([^\n]+)",
        StorageError,
        "the storage of this location cannot be used: {0}; give another location",
    ),
)


def without_classes(text: str) -> str:
    """Return a line of an error of Java without the class names of errors."""
    return re.sub(r"(?:(?:[\w$]+\.)+[\w$]*(?:Exception|Error): )+", "", text)


def _most_specific_line(error: Exception) -> str:
    """Return the most specific line of an error.

    For an error of Java, this is the line after the first line, which py4j adds.  For an error of a
    Python worker, it is the last line of its traceback.
    """
    lines = str(error).strip().splitlines() or [""]
    raised_in_worker = [line.strip() for line in lines if _RAISED_IN_PYTHON.match(line.strip())]
    if "Python worker" in lines[0] and raised_in_worker:
        return raised_in_worker[-1]
    if lines[0].startswith("An error occurred while calling") and len(lines) > 1:
        return lines[1].removeprefix(": ")
    return lines[0]


_RAISED_IN_PYTHON = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception): ")


def in_one_line(error: Exception) -> str:
    """Return the message of an error that `translated` returned, in one line.

    The line has neither the class name of the error nor a stack trace of Java.
    """
    if isinstance(error, ClaimlibError):
        return " ".join(line.strip() for line in error.message.split("\n"))
    return _most_specific_line(error)


def _named(error: Exception, *, has_debug: bool) -> str:
    if isinstance(error, ClaimlibError):
        return in_one_line(error)
    more = "; run again with --debug for the traceback" if has_debug else ""
    return f"{type(error).__name__}: {in_one_line(error)} (unexpected error{more})"
