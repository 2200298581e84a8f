import logging
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import pytest
from pyspark import SparkContext

from claimlib import process, terminal
from claimlib.cli.doctor_command import Check
from claimlib.errors import (
    ClaimlibError,
    LostRaceError,
    RequestError,
    SourceUnreachableError,
    StoreNotFoundError,
    VerificationError,
)


def _raising(error):
    def work():
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RequestError("no"), 2),
        (StoreNotFoundError("no"), 4),
        (LostRaceError("no"), 5),
        (SourceUnreachableError("no"), 75),
        (VerificationError("no"), 1),
        (ClaimlibError("no"), 1),
    ],
)
def test_an_error_of_ours_is_one_line_on_stderr_and_its_exit_code(capsys, error, code):
    assert process.ending(_raising(error)) == code
    assert capsys.readouterr() == ("", "claimlib: error: no\n")


@contextmanager
def unread(monkeypatch, *names):
    """These streams are a pipe whose reader has gone.  No fixture: between it and the test pytest
    sets the streams anew."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", encoding="utf-8") as stream, monkeypatch.context() as patched:
        for name in names:
            patched.setattr(sys, name, stream)
        yield stream


@pytest.mark.parametrize("at_once", [False, True])
def test_a_command_whose_results_nobody_reads_says_its_refusals_and_ends_as_ever(
    claimlib, monkeypatch, at_once
):
    out = terminal.out
    monkeypatch.setattr(terminal, "out", lambda text, **_: out(text, at_once=at_once))
    failing = [Check("Java", "is missing", is_ok=False), Check("Spark", "4")]
    monkeypatch.setattr("claimlib.cli.doctor_command._checks", lambda *_, **__: failing)
    with unread(monkeypatch, "stdout") as stream:
        said = claimlib("doctor")
        stream.write("what is written later goes nowhere")
    assert said.code == process.INPUT_REFUSED
    assert said.err == "claimlib: 1 check needs attention: see the lines marked TO DO\n"


def test_rows_that_nobody_reads_end_no_command(claimlib, monkeypatch):
    with unread(monkeypatch, "stdout"):
        assert claimlib("init", "store", "--print-sql").code == process.DONE
    with unread(monkeypatch, "stdout"):
        many = ["row\n" * 10_000] * 2  # more than a buffer holds
        assert process.ending(lambda: terminal.out_chunks(many) or process.STALLED) == 3


def test_remarks_that_nobody_reads_end_no_command_either(monkeypatch):
    with unread(monkeypatch, "stdout", "stderr"):
        code = process.ending(lambda: terminal.say("a", "b") or process.STALLED)
    assert code == process.STALLED


def test_a_process_that_has_no_streams_works_as_ever(monkeypatch):
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    assert process.ending(lambda: terminal.out("a") or terminal.say("b") or process.DONE) == 0


def test_an_unexpected_error_is_our_fault_and_says_how_to_see_more(capsys):
    assert process.ending(_raising(KeyError("k\nmore")), debug=lambda: False) == 1
    err = capsys.readouterr().err
    assert err.startswith("claimlib: error: KeyError: ")
    assert err.count("\n") == 1
    assert "--debug" in err


def test_a_process_without_the_option_does_not_speak_of_debug(capsys):
    assert process.ending(_raising(KeyError("k"))) == 1
    assert capsys.readouterr().err == "claimlib: error: KeyError: 'k' (unexpected error)\n"


def test_storage_that_does_not_answer_can_be_tried_again(capsys):
    for error in (ConnectionRefusedError("no"), RuntimeError("x: java.net.ConnectException: no")):
        assert process.ending(_raising(error)) == 75
    assert process.ending(_raising(FileNotFoundError("no"))) == 1
    said = capsys.readouterr().err.splitlines()
    assert ["storage did not answer, try again: " in line for line in said] == [True, True, False]


class Ended:
    """A JVM that this process has started, as pyspark keeps it."""

    def __init__(self, code):
        self.code = code
        self.waited_s = []

    def wait(self, timeout):
        self.waited_s.append(timeout)
        if self.code is None:
            raise subprocess.TimeoutExpired("java", timeout)
        return self.code


def _lost_by_py4j(error):
    """Raises it where py4j does."""
    place = {"__name__": "py4j.java_gateway", "error": error}
    exec("def work():\n    raise error", place)
    return place["work"]


class Py4JNetworkError(Exception):
    """Named as py4j's."""


@pytest.mark.parametrize("error", [Py4JNetworkError("no"), ConnectionRefusedError("no")])
@pytest.mark.parametrize(
    ("code", "exit_code", "said"),
    [
        (52, 2, "Spark ran out of memory: give it more, for example --spark-conf spark.driver."),
        (-9, 75, "Spark's Java process was killed by signal 9: try again."),
        (1, 75, "Spark's Java process has ended with code 1: try again."),
    ],
)
def test_a_jvm_that_has_ended_is_said_to_have_with_what_to_do(
    capsys, monkeypatch, error, code, exit_code, said
):
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=Ended(code)))
    assert process.ending(_lost_by_py4j(error)) == exit_code
    assert capsys.readouterr().err.startswith(f"claimlib: error: {said}")


def test_a_connection_to_storage_that_is_lost_does_not_wait_for_the_jvm(capsys, monkeypatch):
    running = Ended(None)
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=running))
    assert process.ending(_raising(ConnectionRefusedError("no"))) == 75
    assert running.waited_s == [0]
    assert process.ending(_lost_by_py4j(Py4JNetworkError("no"))) == 1
    assert running.waited_s[1] > 0
    assert "storage did not answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "results of 2 tasks (7 MiB) is bigger than spark.driver.maxResultSize (6 MiB)",
            r"take 7 MiB, which is more than spark\.driver\.maxResultSize allows \(6 MiB\): ",
        ),
        ("java.lang.OutOfMemoryError: Java heap space", "Spark ran out of memory: give it more"),
        ("Not enough memory to build and broadcast the table", "Spark ran out of memory: give it"),
    ],
)
def test_too_little_memory_is_said_with_the_setting_that_gives_more(capsys, text, said):
    assert process.ending(_raising(RuntimeError(text))) == 2
    assert re.search(said, capsys.readouterr().err)


def test_debug_shows_the_traceback_too(capsys):
    assert process.ending(_raising(RequestError("no")), debug=lambda: True) == 2
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert err.endswith("claimlib: error: no\n")


@pytest.mark.parametrize(
    ("package", "extra"),
    [("pyspark", "spark"), ("delta.tables", "spark"), ("redis", "redis"), ("typer", "cli")],
)
def test_a_missing_package_is_the_extra_that_brings_it(capsys, package, extra):
    missing = ModuleNotFoundError(f"No module named {package!r}", name=package)
    assert process.ending(_raising(missing)) == 2
    assert f"pip install 'PATH[{extra}]'" in capsys.readouterr().err


def test_another_missing_module_is_our_fault(capsys):
    missing = ModuleNotFoundError("No module named 'claimlib.nowhere'", name="claimlib.nowhere")
    assert process.ending(_raising(missing)) == 1
    assert "pip install" not in capsys.readouterr().err


def _while_interrupted(error):
    """`error`, as it comes out where an interrupt is on its way up."""

    def work():
        try:
            _raising(KeyboardInterrupt())()
        except KeyboardInterrupt:
            try:
                _raising(error)()
            except type(error) as first:
                raise LostRaceError("no") from first

    return work


@pytest.mark.parametrize(
    "work", [_raising(KeyboardInterrupt()), _while_interrupted(RuntimeError("broken"))]
)
def test_an_interrupt_has_the_shells_exit_code_whatever_becomes_of_it_on_its_way(capsys, work):
    assert process.ending(work, debug=lambda: False) == 130
    said = capsys.readouterr().err
    assert said == "claimlib: interrupted: no run had begun\n"


def test_what_py4j_logs_of_a_broken_connection_is_not_said_besides(capsys):
    def work():
        named = {"pathname": "site-packages/py4j/java_gateway.py", "levelno": logging.ERROR}
        logging.getLogger().handle(logging.makeLogRecord({"msg": "noise", **named}))
        raise KeyboardInterrupt

    assert process.ending(work) == 130
    assert "noise" not in capsys.readouterr().err


_CALL = "An error occurred while calling o58.sql.\n: "
_CANNOT_CREATE = "[DELTA_CANNOT_CREATE_LOG_PATH] Cannot create"
_WORKER = "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
_LOOKED = "getFileStatus on s3a://b/x: software.amazon.awssdk"
_FAILED = "[FAILED_READ_FILE.{}] Encountered error while reading file {}. "
_AWAITED = "org.apache.spark.SparkException: Exception thrown in awaitResult: \nCaused by: "
_BY_S3 = "S3Exception: m (Service: S3, Status Code:"
JAVA = [
    (
        (
            "org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme"
            ' "foo"\n\tat x'
        ),
        4,
        "Spark has no file system for foo://: add its jar",
    ),
    (
        (
            "java.lang.RuntimeException: java.lang.ClassNotFoundException: Class"
            " org.apache.hadoop.fs.s3a.S3AFileSystem not found\n\tat x"
        ),
        4,
        "Spark lacks the jar for this storage (S3AFileSystem)",
    ),
    (
        (
            f"org.apache.spark.sql.delta.DeltaIOException: {_CANNOT_CREATE}"
            " file:/data/file/streams/_delta_log\n\tat x"
        ),
        4,
        "file:/data/file cannot be created: part of the path is a file, a name is too long, or",
    ),
    (
        "java.nio.file.AccessDeniedException: s3a://b/x: 403 Forbidden\n\tat x",
        4,
        "the storage denies access: s3a://b/x: 403 Forbidden; claimlib needs permission to",
    ),
    (
        "java.io.FileNotFoundException: /data/x.parquet (Permission denied)\n\tat x",
        4,
        "the storage denies access: /data/x.parquet; claimlib needs permission to read",
    ),
    ("java.io.IOException: No space left on device\n\tat x", 4, "a disk is full"),
    (
        "[DELTA_INVALID_PARTITION_PATH] A partition path fragment should be the form like `a=b`.",
        4,
        "error: a store cannot be in the folder of a table: give another location",
    ),
    (
        (
            "org.apache.hadoop.fs.s3a.UnknownStoreException: `s3a://b/x/_delta_log':"
            f" {_LOOKED}.services.s3.model.NoSuchBucketException: no\n\tat x"
        ),
        4,
        "error: the bucket s3a://b does not exist: create it, or give another",
    ),
    (
        (
            f"java.nio.file.AccessDeniedException: s3a://b/x: {_LOOKED}.services.s3.model."
            f"{_BY_S3} 403, Request ID: i):null\n\tat x"
        ),
        4,
        "error: S3 denies access to s3a://b/x (status 403): the credentials are wrong, or",
    ),
    (
        (
            "java.nio.file.AccessDeniedException: x/part-1.parquet: Writing Object on"
            f" x/part-1.parquet: software.amazon.awssdk.services.s3.model.{_BY_S3} 403,"
            " Request ID: i):AccessDenied"
        ),
        4,
        "error: S3 denies access to x/part-1.parquet (status 403): the credentials are wrong, or",
    ),
    (
        (
            "java.nio.file.AccessDeniedException: s3a://b/x: org.apache.hadoop.fs.s3a.auth."
            "NoAuthWithAWSException: No AWS Credentials provided by P\n\tat x"
        ),
        4,
        "error: no credentials for S3 were found: set AWS_ACCESS_KEY_ID and",
    ),
    (
        (
            f"org.apache.hadoop.fs.s3a.AWSServiceThrottledException: {_LOOKED}.services.s3.model."
            f"{_BY_S3} 503, Request ID: null):null: Service Unavailable\n\tat x"
        ),
        75,
        "error: S3 could not serve a request (status 503), try again",
    ),
    (
        (
            f"org.apache.hadoop.fs.s3a.AWSStatus500Exception: {_LOOKED}.services.s3.model."
            f"{_BY_S3} 500, Request ID: null):null\n\tat x"
        ),
        75,
        "error: S3 could not serve a request (status 500), try again",
    ),
    (
        (
            f"org.apache.hadoop.fs.s3a.AWSApiCallTimeoutException: {_LOOKED}.core.exception."
            "ApiCallTimeoutException: Client execution did not complete before 15000 millis\n\tat x"
        ),
        75,
        "error: storage did not answer, try again: Client execution did not complete before 15000",
    ),
    (
        (
            f"java.net.ConnectException: {_LOOKED}.core.exception.SdkClientException: Unable to"
            " execute HTTP request: Connect to 127.0.0.1:9 [/127.0.0.1] failed: Connection refused"
            " (SDK Attempt Count: 3):    x: Connection refused\n\tat x"
        ),
        75,
        (
            "error: storage did not answer, try again: Connect to 127.0.0.1:9 [/127.0.0.1] failed:"
            " Connection refused\n"
        ),
    ),
    (
        "java.net.UnknownHostException: nowhere.invalid\n\tat x",
        75,
        "error: storage did not answer, try again: the host nowhere.invalid is unknown; check",
    ),
    (
        (
            "java.net.ConnectException: Call From a/1 to b:1 failed on connection exception:"
            " java.net.ConnectException: Connection refused; For more details see: http://x\n"
        ),
        75,
        "error: storage did not answer, try again: b:1: Connection refused\n",
    ),
    (
        "java.net.ConnectException: Connection refused\n\tat x",
        75,
        "error: storage did not answer, try again: Connection refused\n",
    ),
    (
        f"{_FAILED.format('NO_HINT', 'file:///d/a%20b/runs/_delta_log/0.json')}  SQLSTATE: KD001\n",
        4,
        "the log of a table is damaged, /d/a b/runs/_delta_log/0.json cannot be read: restore it",
    ),
    (
        f"{_AWAITED}{_FAILED.format('NO_HINT', 's3a://b/runs/part-0.parquet')}  SQLSTATE: KD001\n",
        4,
        "a file of a table is damaged, s3a://b/runs/part-0.parquet cannot be read: restore it",
    ),
    (
        f"{_FAILED.format('FILE_NOT_EXIST', 'file:/d/part-0.parquet')} File does not exist. It\n",
        4,
        "/d/part-0.parquet is missing, although the log of its table refers to it: restore it",
    ),
    (
        f"{_FAILED.format('CANNOT_READ_FILE_FOOTER', 'file:/d/x.csv')} Could not read footer.\n",
        4,
        "/d/x.csv is not a Parquet file: give a Delta or Parquet table",
    ),
    (
        # What storage says of itself goes before the file that could not be read.
        f"{_FAILED.format('NO_HINT', 's3a://b/x')} \nCaused by: java.net.ConnectException: no\n",
        75,
        "storage did not answer, try again: ",
    ),
    (
        (
            "org.apache.spark.sql.delta.DeltaFileNotFoundException:"
            " [DELTA_TRUNCATED_TRANSACTION_LOG] file:/d/00.json: Unable to reconstruct\n"
        ),
        4,
        "part of the log of a table is missing (/d/00.json): restore it",
    ),
    (
        "[DELTA_VERSIONS_NOT_CONTIGUOUS] Versions (0, 2) are not contiguous. A gap\n\tat x",
        4,
        "the log of a table has a gap: restore it",
    ),
    (
        f"{_AWAITED}java.io.FileNotFoundException: File file:/d/vector_1.bin does not exist\n",
        4,
        "/d/vector_1.bin is missing, although the log of its table refers to it: restore it",
    ),
    (
        (
            "[DELTA_INVALID_PROTOCOL_VERSION] Unsupported Delta protocol version: table"
            ' "file:/d/runs" requires reader version 99\n\tat x'
        ),
        4,
        "table /d/runs needs a newer version of Delta Lake than the installed one: upgrade",
    ),
    (
        (
            "[DELTA_UNSUPPORTED_FEATURES_FOR_READ] Unsupported Delta read feature: table"
            ' "file:/d/runs" requires reader table feature(s)\n\tat x'
        ),
        4,
        "table /d/runs needs a newer version of Delta Lake than the installed one: upgrade",
    ),
    (
        f"{_AWAITED}java.io.IOException: Mkdirs failed to create file:/d/runs (exists=false, x)\n",
        4,
        "no folder can be created at /d/runs: the storage is read-only, or this user has no",
    ),
    (
        f"{_AWAITED}java.io.IOException: /d/x: Read-only file system\n\tat x",
        4,
        "the storage is read-only: make it writable, or give another location",
    ),
    (
        "IllegalArgumentException: Wrong FS: file://host/x/runs/_delta_log, expected: file:/// ",
        4,
        "file://host/x is not on the file system that Spark uses (file:///): give a local",
    ),
    (
        "java.io.IOException: ViewFs: Cannot initialize: Empty Mount table\n\tat x",
        4,
        "location cannot be used: ViewFs: Cannot initialize: Empty Mount table; give",
    ),
    (
        "java.lang.IllegalStateException: strange\n\tat x",
        1,
        "RuntimeError: java.lang.IllegalStateException: strange (unexpected error)",
    ),
]


@pytest.mark.parametrize(("text", "code", "said"), JAVA)
def test_what_java_says_of_a_storage_is_one_line_that_names_cause_and_remedy(
    capsys, text, code, said
):
    assert process.ending(_raising(RuntimeError(_CALL + text))) == code
    (line,) = capsys.readouterr().err.splitlines(keepends=True)
    assert said in line
    is_ours = code != process.OUR_FAULT
    assert not (is_ours and re.search(r"Exception|Py4J|\bjava[.]|org[.]apache", line))


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ("ModuleNotFoundError: No module named 'claimlib'", "spark-submit --py-files claimlib.zip"),
        ("ModuleNotFoundError: No module named 'pandas'", "cannot import pandas: install it"),
        ("ValueError: strange", "ValueError: strange (unexpected error)"),
    ],
)
def test_an_error_of_a_python_worker_is_named_by_the_end_of_its_traceback(capsys, last, said):
    error = RuntimeError(f'{_WORKER}  File "x.py", line 1, in f\n    f()\n{last}\n')
    assert process.ending(_raising(error)) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_process_with_its_code_whatever_error_comes_of_it(capsys, number, code):
    def work():
        process.set_state_text(lambda: "run 2 is decided")
        with suppress(KeyboardInterrupt):  # as where the JVM is gone: another error comes of it
            signal.raise_signal(number)
        raise RuntimeError("connection reset")

    before = signal.getsignal(number)
    assert process.ending(work) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("ed: run 2 is decided")
    assert signal.getsignal(number) == before
    assert process.ending(_raising(RuntimeError("later"))) == 1
