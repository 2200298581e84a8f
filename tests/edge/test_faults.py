"""Places that cannot be a store, storage, tables and files that cannot be used, servers that do not
serve, rights that are missing: a command names cause and remedy in one line of ours.

Where no JVM is needed, none may start; the others get the session of the tests.
"""

import os
import re
import shutil
import socketserver
import subprocess
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import Consumer, Group, PendingEntry
from claimlib.semantics.words import Stream
from claimlib.testing.keyspace_rows import write_keyspace
from claimlib.testing.server_process import valkey_server
from tests.edge.conftest import Said
from tests.edge.processes import run_claimlib

NOW_MS = 1_750_000_000_000
NO_JAVA = {"JAVA_HOME": "/nowhere"}
SWEEP = ("--consumer", "c", "--min-idle", "1m")
# What only Java, Spark, or an error that nobody has thought of would say.
FOREIGN = re.compile(
    r"Py4J|Exception|java\.|org\.apache|com\.[a-z]|Traceback|unexpected error|SQLSTATE|Errno"
)


@dataclass(frozen=True)
class Fault:
    """A command that cannot do what is wanted; `{at}` in a word is the folder of the fault.

    Attributes:
        cause, remedy: what its one line says.
    """

    words: tuple[str, ...]
    code: int
    cause: str
    remedy: str
    variables: dict[str, str] = field(default_factory=dict)


def said_of(fault, at, said):
    """The one line that a command has said, once it is seen to be all, and ours."""
    assert said.out == "", said
    (line,) = said.err.splitlines()
    assert line.startswith("claimlib: error: "), line
    assert said.code == fault.code, line
    assert fault.cause.format(**at) in line, line
    assert fault.remedy.format(**at) in line, line
    assert not FOREIGN.search(line.replace(str(at["at"]), "")), line
    return line


def worded(fault, at):
    return [word.format(**at) for word in fault.words]


def of_process(process):
    return Said(process.returncode, process.stdout, process.stderr)


# ------------------------------------------------------------------- without a JVM

NEEDS_PLACE = "give a folder, a URL, or catalog.schema"
LONG = "x" * 300
WITHOUT_A_JVM = {
    "no store": Fault(
        ("runs", "{at}/absent"), 4, "no store at {at}/absent", "create it with: claimlib init"
    ),
    "a file": Fault(
        ("xpending", "{at}/file"), 4, "{at}/file is a file", "a store is a folder: give another"
    ),
    "below a file": Fault(
        ("check", "{at}/file/x"), 4, "{at}/file is a file", "a store is a folder: give another"
    ),
    "one table": Fault(
        ("runs", "{at}/store/runs"), 4, "is a single table", "did you mean {at}/store?"
    ),
    "to make one at a file": Fault(
        ("init", "{at}/file"), 4, "{at}/file is a file", "a store is a folder: give another"
    ),
    "to make one below a file": Fault(
        ("init", "{at}/file/x/y"), 4, "{at}/file is a file", "a store is a folder: give another"
    ),
    "an empty name": Fault(("runs", ""), 2, "STORE is empty", NEEDS_PLACE),
    "blanks": Fault(("init", "  "), 2, "STORE is empty", NEEDS_PLACE),
    "no schema": Fault(("runs", "lake."), 2, "which has no schema", "give catalog.schema"),
    "too long a name": Fault(
        ("runs", f"{{at}}/{LONG}"), 4, "(File name too long)", "or give another location"
    ),
    "to make one of too long a name": Fault(
        ("init", f"{{at}}/{LONG}"), 4, "(File name too long)", "or give another location"
    ),
    "a name with a line break": Fault(
        ("runs", "{at}/a\nb"), 4, "no store at {at}/a b: ", "create it with: claimlib init"
    ),
    "a name of bytes that are no text": Fault(
        ("runs", "{at}/a\udcff"),
        2,
        r"STORE is '{at}/a\udcff', which is not valid UTF-8, so that Spark cannot open it: ",
        "rename the folder",
    ),
    "a web server": Fault(
        ("runs", "https://host/x"), 2, "STORE begins with https://", "give a folder, a URL of"
    ),
    "a Redis": Fault(
        ("init", "redis://host:6379/0"), 2, "STORE begins with redis://", "give a folder, a URL of"
    ),
    "a secret": Fault(
        ("runs", "s3a://KEY:sesame@b/x"), 2, "STORE contains a secret", "remove it, and give it to"
    ),
    "a table on a web server": Fault(
        ("import", "{at}/store", "--entries", "http://host/x", "--pending", "p"),
        *(2, "a table's location begins with http://", "give a folder, a URL of storage"),
    ),
    "a policy that is a folder": Fault(
        ("xautoclaim", "{at}/store", "--policy", "{at}"),
        *(2, "the policy file {at} cannot be read: ", "it is a folder"),
    ),
    "no policy": Fault(
        ("xautoclaim", "{at}/store", "--policy", "{at}/none"),
        *(2, "the policy file {at}/none", "does not exist"),
    ),
    "a policy of bytes": Fault(
        ("xautoclaim", "{at}/store", "--policy", "{at}/bytes"),
        *(2, "{at}/bytes is not valid TOML", "position 0"),
    ),
    "no config": Fault(
        ("runs", "x", "--config", "{at}/none"), 2, "config file {at}/none", "does not exist"
    ),
    "a map that is a folder": Fault(
        ("import", "{at}/store", "--entries", "e", "--pending", "p", "--map", "{at}"),
        *(2, "the map file {at} cannot be read: ", "it is a folder"),
    ),
    "no password file": Fault(
        ("snapshot", "redis://127.0.0.1:1/0", "{at}/store", "--password-file", "{at}/none"),
        *(2, "{at}/none", "password"),
    ),
    "no CA file": Fault(
        ("snapshot", "rediss://127.0.0.1:1/0", "{at}/store", "--ca-file", "{at}/none"),
        *(2, "the certificate file {at}/none does not exist", "give a PEM file"),
    ),
    "no server": Fault(
        ("snapshot", "redis://127.0.0.1:1/0", "{at}/store"),
        *(75, "127.0.0.1:1/0 cannot be reached", "check host, port, TLS and network, and try"),
    ),
    "no host": Fault(
        ("snapshot", "redis://nowhere.invalid/0", "{at}/store"),
        *(75, "nowhere.invalid:6379/0 cannot be reached", "check host, port, TLS and network"),
    ),
    "another server": Fault(
        ("snapshot", "redis://127.0.0.1:{other_port}/0", "{at}/store"),
        *(75, "127.0.0.1:{other_port}/0", "try again"),
    ),
    "no password": Fault(
        ("snapshot", "{server}", "{at}/store"), 2, "refused", "check the user name and the password"
    ),
    "a wrong password": Fault(
        ("snapshot", "{server}", "{at}/store"),
        *(2, "refused the login", "check the user name and the password"),
        {"REDIS_PASSWORD": "wrong"},
    ),
}  # fmt: skip
WITHOUT_A_USABLE_JAVA = {
    "no Java": Fault(
        ("init", "{at}/new", "--engine", "spark"),
        *(2, "Spark needs Java 17 or newer, but JAVA_HOME=/nowhere has none", "install it"),
    ),
    "too old a Java": Fault(
        ("init", "{at}/new", "--engine", "spark"),
        *(2, "Java 17 or newer, but that of JAVA_HOME={at}/jdk is 11", "install it"),
        {"JAVA_HOME": "{at}/jdk"},
    ),
}  # fmt: skip
OLD_JAVA = "#!/bin/sh\necho '    java.specification.version = 11' >&2\n"


class _Web(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.recv(1000)
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.fixture(scope="module")
def at(tmp_path_factory):
    """The places of faults that need no JVM: `{at}` has a file, a table without rows and an old
    Java."""
    folder = tmp_path_factory.mktemp("faults")
    (folder / "file").write_text("text", encoding="utf-8")
    (folder / "bytes").write_bytes(b"\xff\x00")
    for table in ("runs", "journal"):
        (folder / "store" / table / "_delta_log").mkdir(parents=True)
    java = folder / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(OLD_JAVA, encoding="utf-8")
    java.chmod(0o755)
    with (
        valkey_server(password="sesame") as server,
        socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Web) as other,
    ):
        threading.Thread(target=other.serve_forever, daemon=True).start()
        yield {"at": folder, "server": server.url, "other_port": other.server_address[1]}
        other.shutdown()


@pytest.mark.parametrize("name", WITHOUT_A_JVM)
def test_a_fault_that_is_seen_without_a_jvm_is_one_line_that_names_cause_and_remedy(
    claimlib, monkeypatch, at, name
):
    def refused(*_arguments, **_options):
        raise AssertionError("Spark was started")

    fault = WITHOUT_A_JVM[name]
    for variable, value in fault.variables.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr("claimlib.session.open_session", refused)
    said_of(fault, at, claimlib(*worded(fault, at), "--quiet"))


@pytest.mark.parametrize("name", WITHOUT_A_USABLE_JAVA)
def test_a_java_that_spark_cannot_use_is_one_line_that_names_cause_and_remedy(at, name):
    fault = WITHOUT_A_USABLE_JAVA[name]
    variables = NO_JAVA | {key: text.format(**at) for key, text in fault.variables.items()}
    said_of(fault, at, of_process(run_claimlib(*worded(fault, at), "--quiet", **variables)))


# ------------------------------------------------------------------- missing rights


@contextmanager
def rights_taken_from(folder, mode):
    before = folder.stat().st_mode
    folder.chmod(mode)
    try:
        yield
    finally:
        folder.chmod(before)


def run_without_privileges(*words):
    """A process to which the rights of files apply, also where root starts it."""
    as_anybody = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--")
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("the rights of files do not apply to root, and setpriv is not installed")
    return run_claimlib(*words, before=as_anybody if os.geteuid() == 0 else (), **NO_JAVA)


@pytest.mark.parametrize(
    ("mode", "command", "cause"),
    [
        (0o000, "runs", "{at}/locked cannot be read (Permission denied)"),
        (0o000, "init", "{at}/locked/new cannot be read (Permission denied)"),
        (0o500, "init", "no permission to write to {at}/locked"),
    ],
)
def test_a_folder_without_the_right_to_use_it_is_named(tmp_path, mode, command, cause):
    locked = tmp_path / "locked"
    locked.mkdir()
    place = locked if command == "runs" else locked / "new"
    fault = Fault((command, str(place)), 4, cause, "or give another location")
    with rights_taken_from(locked, mode):
        process = run_without_privileges(*fault.words, "--quiet")
    said_of(fault, {"at": tmp_path}, of_process(process))


# ------------------------------------------------------------------- with a JVM


def log_of(table):
    """The commits of a table, the first one first; their checksums are forgotten."""
    log = table / "_delta_log"
    for checksum in log.glob("*.crc"):
        checksum.unlink()
    return sorted(log.glob("*.json"))


def no_json(table):
    log_of(table)[-1].write_text("no JSON\n", encoding="utf-8")


def no_first_commit(table):
    log_of(table)[0].unlink()


def a_gap(table):
    log_of(table)[1].unlink()


def newer_protocol(table):
    replace_in_log(table, r'"minReaderVersion":\d+', '"minReaderVersion":99')


def wrong_buckets(table):
    replace_in_log(table, 'claimlib.buckets":"8"', 'claimlib.buckets":"many"')


def replace_in_log(table, pattern, new):
    texts = {file: file.read_text(encoding="utf-8") for file in log_of(table)}
    assert any(re.search(pattern, text) for text in texts.values())
    for file, text in texts.items():
        file.write_text(re.sub(pattern, new, text), encoding="utf-8")


def data_of(table):
    """Files of Parquet, whose checksums are forgotten."""
    files = [file for file in table.rglob("*.parquet") if file.parent.name != "_delta_log"]
    assert files
    for file in files:
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    return files


def no_parquet(table):
    for file in data_of(table):
        file.write_bytes(b"no Parquet" * (file.stat().st_size // 10))


def half_parquet(table):
    for file in data_of(table):
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def parquet_gone(table):
    for file in data_of(table):
        file.unlink()


def a_file(table):
    shutil.rmtree(table)
    table.write_text("x", encoding="utf-8")


RESTORE = "restore it from a backup; if there is none, create another store"
UPGRADE = "upgrade delta-spark and pyspark"
UNREADABLE = " of the table pending cannot be read, because {store}/pending/"
OF_LOG = UNREADABLE + "_delta_log/0000000000000000000"
OF_FILE = UNREADABLE + "bucket="
DAMAGES = {
    no_json: (OF_LOG, RESTORE),
    no_first_commit: (OF_LOG, RESTORE),
    a_gap: (OF_LOG, RESTORE),
    newer_protocol: ("table {store}/pending needs a newer version of Delta", UPGRADE),
    wrong_buckets: ("property claimlib.buckets of table pending", "set it to what the other"),
    no_parquet: (OF_FILE, RESTORE),
    half_parquet: (OF_FILE, RESTORE),
    parquet_gone: (OF_FILE, RESTORE),
    shutil.rmtree: ("lacks pending", "claimlib init '{store}' creates what is missing"),
    a_file: ("lacks pending", "claimlib init '{store}' creates what is missing"),
}
GIVE_A_JAR = "add its jar (--spark-conf spark.jars.packages=…), or give another location"
ANOTHER = "give another location"
IMPORT = ("import", "{store}", "--pending", "{at}/table", "--entries")
WITH_A_JVM = {
    "gs": Fault(("runs", "gs://b/x"), 4, "(GoogleHadoopFileSystem)", GIVE_A_JAR),
    "abfss": Fault(
        ("init", "abfss://c@a.dfs.core.windows.net/x"), 4, "(SecureAzureBlobFileSystem)", GIVE_A_JAR
    ),
    "s3": Fault(
        ("runs", "s3://b/x"), 4, "two drivers can overwrite each other's commits", "Set spark.delta"
    ),
    "s3a": Fault(
        ("init", "s3a://b/x"), 4, "two drivers can overwrite each other's commits", "Set spark."
    ),
    "a scheme that nobody knows": Fault(
        ("runs", "nosuch://b/x"), 4, "Spark has no file system for nosuch://", GIVE_A_JAR
    ),
    "HDFS that is not there": Fault(
        ("runs", "webhdfs://127.0.0.1:1/x"), 75, "storage did not answer, ", "try again"
    ),
    "a file URL with a host": Fault(
        ("runs", "file://host/x"), 4, "not on the file system that Spark uses", "give a local path"
    ),
    "a storage that is not set up": Fault(
        ("runs", "viewfs://x/y"), 4, "the storage of this location cannot be used: ViewFs", ANOTHER
    ),
    "no catalog": Fault(
        ("runs", "nosuch.shop"), 4, "Spark knows no catalog `nosuch`", "name one that it knows, or"
    ),
    "no schema of the catalog": Fault(
        ("runs", "spark_catalog.nosuch"), 4, "no store at spark_catalog.nosuch", "create it with:"
    ),
    "a catalog that does not last": Fault(
        ("init", "spark_catalog.shop"),
        *(4, "would disappear when this Spark session ends", "give a folder"),
    ),
    "to make one in a table": Fault(
        ("init", "{store}/pending/x"), 4, "cannot be in the folder of a table", ANOTHER
    ),
    "no table to import": Fault(
        (*IMPORT, "{at}/none"), 4, "{at}/none", "no such file or folder"
    ),
    "a text to import": Fault(
        (*IMPORT, "{at}/text"), 4, "{at}/text is not a Parquet file", "give a Delta or"
    ),
    "an empty folder to import": Fault(
        (*IMPORT, "{at}/empty"), 4, "{at}/empty cannot be read as a table", "nor a folder with"
    ),
    "no name to import": Fault(
        (*IMPORT, "no.such.table"), 4, "no.such.table: no such file", "no table of this name in the"
    ),
    "a damaged table to import": Fault(
        (*IMPORT, "{at}/damaged"), 4, "a table is damaged, {at}/damaged/_delta_log", RESTORE
    ),
    "other columns to import": Fault(
        (*IMPORT, "{at}/table"), 2, "has no column stream", "the map assigns no column to"
    ),
    "no request table": Fault(
        ("xclaim", "{store}", "--requests", "{at}/none"),
        *(4, "{at}/none", "no such file or folder"),
    ),
    "a request table of other types": Fault(
        ("xclaim", "{store}", "--requests", "{at}/types"),
        *(2, "ids of the request table is string", "it must be ARRAY<STRING>"),
    ),
    "no right on a key": Fault(
        ("snapshot", "{poor}", "{empty}"),
        *(2, "on key s: ", "grant read access to the key"),
        {"REDIS_PASSWORD": "sesame"},
    ),
    "no right to a command": Fault(
        ("snapshot", "{poorer}", "{empty}"), 2, "no permission to run scan", "grant +scan",
        {"REDIS_PASSWORD": "sesame"},
    ),
} | {
    damage.__name__: Fault(("xpending", "{store}"), 4, cause, remedy)
    for damage, (cause, remedy) in DAMAGES.items()
}  # fmt: skip
USERS = (
    "poor on >sesame %R~x* -@all +scan +time +info +multi +exec +xinfo +xpending +xrange",
    "poorer on >sesame ~* -@all +time +info",
)


@pytest.fixture(scope="module")
def filled(open_store, empty_store, tmp_path_factory):
    """A store with an entry that is pending."""
    folder = shutil.copytree(empty_store, tmp_path_factory.mktemp("filled") / "store")
    pel = (PendingEntry(StreamId(1, 0), b"dead", NOW_MS - 90_000, 3),)
    group = Group(StreamId(9, 0), pel, (Consumer(b"dead", NOW_MS, None),))
    entries = {StreamId(1, 0): (b"field", b"value")}
    store = open_store(folder)
    for name in (b"s", b"t"):  # so that there is a commit between the first and the last
        write_keyspace(store, {name: Stream(entries, {b"g": group})}, NOW_MS)
    return folder


@pytest.fixture(scope="module")
def lake(spark, tmp_path_factory):
    """The places of faults that may need a JVM: tables, files, and a server with two users."""
    folder = tmp_path_factory.mktemp("with a JVM")
    (folder / "text").write_text("text\n", encoding="utf-8")
    (folder / "empty").mkdir()
    for name in ("table", "damaged"):
        spark.range(1).write.format("delta").save(str(folder / name))
    no_json(folder / "damaged")
    columns = ("request", "stream", "consumer_group", "consumer", "min_idle_ms", "ids", "force")
    types = ", ".join(f"'x' AS {name}" for name in (*columns, "justid", "idle_rule", "profile"))
    spark.sql(f"SELECT {types}").write.parquet(str(folder / "types"))
    with valkey_server(users=USERS) as server:
        with server.client() as client:
            client.xadd("s", {"f": "v"})
        urls = {user: server.url.replace("//", f"//{user}@") for user in ("poor", "poorer")}
        yield {"at": folder, **urls}


@pytest.mark.parametrize("name", WITH_A_JVM)
def test_a_fault_of_storage_or_a_table_is_one_line_that_names_cause_and_remedy(
    claimlib, monkeypatch, lake, empty_store, filled, tmp_path, name
):
    fault = WITH_A_JVM[name]
    for variable, value in fault.variables.items():
        monkeypatch.setenv(variable, value)
    at = lake | {"store": shutil.copytree(filled, tmp_path / "a store")}
    at["empty"] = shutil.copytree(empty_store, tmp_path / "empty")
    for damage in DAMAGES:
        if damage.__name__ == name:
            damage(at["store"] / "pending")
    said_of(fault, at, claimlib(*worded(fault, at), "--quiet"))


@pytest.mark.usefixtures("in_session")
def test_a_name_that_no_catalog_of_spark_has_is_named(claimlib, filled):
    pending = str(filled / "pending")
    words = ("import", str(filled), "--pending", pending, "--entries", "no.such.table")
    fault = Fault(words, 4, "Spark has no such catalog", "write a path as ./no.such")
    said_of(fault, {"at": filled}, claimlib(*words, "--quiet"))


# ------------------------------------------------------------------- a disk


@contextmanager
def disk(folder, options):
    """A small file system."""
    folder.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder))
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a file system, where it can")
    try:
        yield
    finally:
        subprocess.run(("umount", "--lazy", str(folder)), check=True)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("fault", "cause", "remedy"),
    [
        ("full", "a disk is full (No space left on device)", "make room, and try again"),
        ("read only", "is read-only: make it writable", "or give another location"),
    ],
)
def test_a_disk_that_takes_nothing_more_is_named(claimlib, filled, tmp_path, fault, cause, remedy):
    folder = tmp_path / "disk"
    with disk(folder, "size=4m"):
        shutil.copytree(filled, folder / "store")
        if fault == "full":
            with pytest.raises(OSError, match="No space"):
                (folder / "rest").write_bytes(b"0" * 4 * 2**20)
        else:
            subprocess.run(("mount", "-o", "remount,ro", str(folder)), check=True)
        words = ("xautoclaim", str(folder / "store"), *SWEEP)
        said = claimlib(*words, "--engine", "spark", "--quiet")
    said_of(Fault(words, 4, cause, remedy), {"at": folder}, said)


# ------------------------------------------------------------------- a JVM of one's own


def test_nothing_that_a_jvm_of_our_own_says_reaches_the_terminal(filled):
    # Delta prints six lines on standard output besides, of a place in the folder of a table.
    words = ("init", f"{filled}/pending/x", "--engine", "spark")
    fault = Fault(words, 4, "cannot be in the folder of a", ANOTHER)
    said_of(fault, {"at": filled}, of_process(run_claimlib(*fault.words, "--quiet")))


def test_spark_that_does_not_start_is_one_line(tmp_path):
    words = ("init", str(tmp_path / "new"), "--engine", "spark")
    words = (*words, "--spark-conf", "spark.driver.memory=many")
    fault = Fault(words, 2, "Spark does not start: Invalid maximum heap size", "check its settings")
    said_of(fault, {"at": tmp_path}, of_process(run_claimlib(*words, "--quiet")))


# ------------------------------------------------------------------- commands that need no JVM


@pytest.mark.parametrize(
    "words", [("xpending",), ("xpending", "s", "g"), ("xpending", "s", "g", "--count", "9")]
)
def test_what_is_pending_in_a_local_folder_is_shown_without_java(filled, words):
    command, *group = words
    process = run_claimlib(command, str(filled), *group, "--output", "csv", **NO_JAVA)
    assert (process.returncode, process.stderr) == (0, "")
    assert len(process.stdout.splitlines()) == (2 if group else 3)


def test_consumers_of_a_store_in_a_local_folder_are_shown_without_java(filled):
    process = run_claimlib("describe", str(filled), "--output", "csv", **NO_JAVA)
    assert (process.returncode, process.stderr) == (0, "")
    assert len(process.stdout.splitlines()) == 3
