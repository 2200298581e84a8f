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

# Java's errors for storage that did not answer.  They reach Python as text only.
_NETWORK_ERRORS = (
    "java.net.ConnectException",
    "java.net.NoRouteToHostException",
    "java.net.SocketException",
    "java.net.SocketTimeoutException",
    "java.net.UnknownHostException",
)

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
    """Hold the signal that asked this process to end, and the text on the state of the store."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.state: Callable[[], str] = _no_run

    def catch(self, number: int, _frame: FrameType | None) -> None:
        """Store the signal, because an interrupt becomes another error on its way through Spark."""
        self.received = number
        raise KeyboardInterrupt


_signals = _Signals()


def catch_signals() -> None:
    """Make Ctrl-C and SIGTERM end this process in order.

    Call this again once Spark has started, because pyspark installs a handler of its own.  That
    handler sends a command to a JVM that the same Ctrl-C has ended.
    """
    if current_thread() is main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _signals.catch)


def tell_state(state: Callable[[], str]) -> None:
    """Set the text on the state of the store for the message of an interruption.

    Args:
        state: returns the text.  It is called only after an interruption, and raises nothing.
    """
    _signals.state = state


def ending(work: Callable[[], int], *, debug: Callable[[], bool] | None = None) -> int:
    """Return the exit code of `work`, and print the error that it raises on stderr.

    Args:
        work: returns the exit code if nothing is raised.
        debug: returns True if a traceback is wanted, too.  It is called once something was raised.
            None if the process has no option for it.
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
        if _signals.received is not None or _comes_of_an_interrupt(raised):
            return _interrupted()
        says_all = debug is not None and debug()
        if says_all:
            terminal.err(traceback.format_exc().rstrip("\n"))
        error = translated(raised)
        terminal.say(f"error: {_named(error, can_say_more=debug is not None and not says_all)}")
        return error.exit_code if isinstance(error, ClaimlibError) else OUR_FAULT


def _interrupted() -> int:
    if _signals.received == signal.SIGTERM:
        terminal.say(f"terminated: {_signals.state()}")
        return TERMINATED
    terminal.say(f"interrupted: {_signals.state()}")
    return INTERRUPTED


def _comes_of_an_interrupt(error: BaseException) -> bool:
    """Return True if an error was raised while an interrupt passed through the code.

    Spark reports the interrupt to the JVM.  The connection may be in the middle of a command, and
    then another error is raised.
    """
    seen: set[int] = set()
    before: BaseException | None = error
    while before is not None and id(before) not in seen:
        if isinstance(before, KeyboardInterrupt):
            return True
        seen.add(id(before))
        before = before.__cause__ or before.__context__
    return False


def translated(error: Exception) -> Exception:
    """Return the error of claimlib for an error of a library, or the error itself if there is none.

    For a package that is not installed, the error names the extra that installs it.  For storage
    that did not answer, the error tells the user to try again.
    """
    package = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
    if package in _EXTRAS and isinstance(error, ModuleNotFoundError):
        return MissingExtraError.for_package(_EXTRAS[package], package)
    if isinstance(error, ClaimlibError):
        return error
    known = _spark_ended(error) or _known(str(error), _KNOWN_CAUSES)
    if known is not None:
        return known
    by_java = any(name in str(error) for name in _NETWORK_ERRORS)
    if by_java or isinstance(error, ConnectionError | TimeoutError):
        cause = without_classes(_cause(error))
        return StoreUnreachableError(f"storage did not answer, try again: {cause}")
    # These come last, because other errors of storage also say that a file cannot be read.
    return _known(unquote(str(error)), _UNREADABLE) or _known(str(error), _DAMAGES) or error


def _spark_ended(error: Exception) -> ClaimlibError | None:
    """Return the error of a JVM that this process started and that has ended.

    Return None if the JVM runs, or if this process started none.
    """
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    jvm = getattr(getattr(context, "_gateway", None), "proc", None)
    try:
        code = None if jvm is None else jvm.wait(_JVM_ENDS_S if _is_of_py4j(error) else 0)
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


def _is_of_py4j(error: Exception) -> bool:
    """Return True if the connection to the JVM may be lost, and not a connection to storage."""
    modules = (frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__))
    by_py4j = any(name.startswith("py4j.") for name in modules)
    name = type(error).__name__
    return by_py4j and (isinstance(error, ConnectionError) or name in _LOST_BY_PY4J)


# Not `Py4JJavaError`, which is an error that Java itself raised.
_LOST_BY_PY4J = ("Py4JError", "Py4JNetworkError")
# A connection is lost some time before the process has ended.
_JVM_ENDS_S = 10
# `SparkExitCode.OOM`.
_JVM_OUT_OF_MEMORY = 52
_MORE_MEMORY = (
    "Spark ran out of memory: give it more, for example --spark-conf spark.driver.memory=8g"
    " (spark-submit: --driver-memory 8g; a cluster's executors: spark.executor.memory), or process"
    " fewer groups at once (--stream, --group)"
)
_Cause = tuple[str, type[ClaimlibError], str]


def _known(text: str, causes: tuple[_Cause, ...]) -> ClaimlibError | None:
    """Return the error for a text that has one of these causes, or None if it has none of them."""
    for pattern, kind, said in causes:
        match = re.search(pattern, text)
        if match:
            return kind(said.format(*match.groups()))
    return None


FULL_DISK = re.compile(r"(No space left on device|Disk quota exceeded|File too large)")
_PERMISSIONS = "claimlib needs permission to read, and to write for commands that change the store"
_JARS = "add its jar (--spark-conf spark.jars.packages=…), or give another location"
# The text of Java or of a worker, and the message for users.  The first match counts.
_KNOWN_CAUSES: tuple[_Cause, ...] = (
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
_FILE = "(?:file:/*(?=/))?"
_READING = rf" Encountered error while reading file {_FILE}"
# Spark writes the names of these files as in a URL.
_UNREADABLE: tuple[_Cause, ...] = (
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
_DAMAGES: tuple[_Cause, ...] = (
    # The text of DuckDB.
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
    """Return a line of Java without the class names of its errors."""
    return re.sub(r"(?:(?:[\w$]+\.)+[\w$]*(?:Exception|Error): )+", "", text)


def _cause(error: Exception) -> str:
    """Return the most specific line of an error.

    For an error of Java, this is the line behind the line of py4j.  For an error of a worker, it is
    the last line of its traceback.
    """
    lines = str(error).strip().splitlines() or [""]
    of_worker = [line.strip() for line in lines if _RAISED_IN_PYTHON.match(line.strip())]
    if "Python worker" in lines[0] and of_worker:
        return of_worker[-1]
    if lines[0].startswith("An error occurred while calling") and len(lines) > 1:
        return lines[1].removeprefix(": ")
    return lines[0]


_RAISED_IN_PYTHON = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception): ")


def in_one_line(error: Exception) -> str:
    """Return the message of an error that `translated` returned, in one line.

    The line has no class name of the error, and no stack trace of Java.
    """
    if isinstance(error, ClaimlibError):
        return " ".join(line.strip() for line in error.message.split("\n"))
    return _cause(error)


def _named(error: Exception, *, can_say_more: bool) -> str:
    if isinstance(error, ClaimlibError):
        return in_one_line(error)
    more = "; run again with --debug for the traceback" if can_say_more else ""
    return f"{type(error).__name__}: {in_one_line(error)} (unexpected error{more})"
