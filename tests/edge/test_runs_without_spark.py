"""Commands that look at a store in a folder start no JVM, and say to the byte what they say by
Spark."""

import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.runs import Phase
from claimlib.schema import SCHEMA_VERSION, UPGRADABLE
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import AutoclaimRequest, Consumer, Group, PendingEntry
from claimlib.semantics.words import Stream
from claimlib.session import reads_paths_as_local_folders
from claimlib.store.opening import open_folder
from claimlib.testing.keyspace_rows import write_keyspace
from claimlib.testing.server_process import valkey_server
from tests.edge.processes import promptly, run_claimlib
from tests.limits import set_limits

NOW_MS = 1_750_000_000_000
SWEEP = SweepRequest(AutoclaimRequest(b"c\xff", 60_000))
NO_COLUMNS = "claimlib: error: --columns goes with"
OUTPUTS = ("table", "json", "csv", "jsonl")
EACH_OUTPUT = pytest.mark.parametrize(
    "output",
    [pytest.param(output, marks=pytest.mark.long) for output in OUTPUTS],
)
LISTED = [(), ("--limit", "1"), ("--limit", "1", "--quiet")]
SHOWN = [
    *(("1",), ("xautoclaim:it's",), ("xautoclaim:\x1bé", "--columns", "value")),
    *(("1", f"--{kind}") for kind in ("claimed", "deleted", "lost", "refused")),
]
REFUSED = [("7",), ("xautoclaim:none",), ("none",), ("99999999999999999999",), ("--limit", "0")]
NO_JAVA = {"JAVA_HOME": "/nowhere"}
EXPLAINED = ("--consumer", "c", "--min-idle", "1m", "--stream", "s*", "--explain")
LOOKED_AT = {"check": ((), 4), "xautoclaim": (EXPLAINED, 0)}
"""The options of commands, and what they end with."""
TAKES_PATHS = "claimlib.cli.opened_store.reads_paths_as_local_folders"


def by_runs(store):
    """A store with three runs, of which one refused a group, and a fourth that is unfinished."""
    pel = tuple(PendingEntry(StreamId(n, 0), b"dead", NOW_MS - 90_000, 3) for n in (1, 2))
    group = Group(StreamId(9, 0), pel, (Consumer(b"dead", NOW_MS, None),))
    entries = {StreamId(1, 0): (b"f", b"\xff")}
    write_keyspace(store, {b"s\n": Stream(entries, {b"g": group})}, NOW_MS)
    write_keyspace(store, {b"unproven": Stream({}, {b"g": group})}, NOW_MS, proven=None)
    xautoclaim(store, SWEEP, run_id="it's")
    xautoclaim(store, SWEEP, run_id="\x1bé")

    def stop(phase, detail):
        if phase == Phase.APPLY:
            raise InterruptedError(detail)

    with pytest.raises(InterruptedError):
        xautoclaim(store, SWEEP, run_id="unfinished", progress=stop)
    return Path(store.where)


@pytest.fixture(scope="module")
def filled(open_store, empty_store, tmp_path_factory):
    where = shutil.copytree(empty_store, tmp_path_factory.mktemp("a b") / "store é")
    return by_runs(open_store(where))


def by_spark(claimlib, monkeypatch, *words, command="runs"):
    """What a command says where Spark reads all tables."""
    with monkeypatch.context() as patched:
        patched.setattr("claimlib.store.definitions.shared_folder", lambda _spark, _location: None)
        patched.setattr(TAKES_PATHS, lambda _master, _conf: False)
        return claimlib(command, *words)


def by_delta_rs(claimlib, monkeypatch, *words, command="runs"):
    """What a command says in a process that may not start Spark."""

    def refused(*_arguments, **_options):
        raise AssertionError("Spark was started")

    with monkeypatch.context() as patched:
        patched.setattr(TAKES_PATHS, lambda _master, _conf: True)
        patched.setattr("claimlib.session.open_session", refused)
        return claimlib(command, *words)


def without_progress(text):
    told = ("claimlib: starting Spark", "claimlib: reading the store")
    return [line for line in text.splitlines() if line not in told]


@EACH_OUTPUT
def test_all_outputs_are_to_the_byte_what_they_are_by_spark(claimlib, monkeypatch, filled, output):
    for words in (*LISTED, *SHOWN, *REFUSED):
        arguments = (filled, *words, "--output", output)
        said = by_delta_rs(claimlib, monkeypatch, *arguments)
        expected = by_spark(claimlib, monkeypatch, *arguments)
        assert (said.code, said.out) == (expected.code, expected.out), words
        assert said.err.splitlines() == without_progress(expected.err), words
        assert said.code == (2 if words in REFUSED or said.err.startswith(NO_COLUMNS) else 0)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("command", ["xautoclaim", pytest.param("check", marks=pytest.mark.long)])
def test_a_command_that_looks_at_tables_says_to_the_byte_what_it_says_by_spark(
    claimlib, monkeypatch, filled, command
):
    options, code = LOOKED_AT[command]
    for output in OUTPUTS:
        words = (filled, *options, "--output", output)
        said = by_delta_rs(claimlib, monkeypatch, *words, command=command)
        expected = by_spark(claimlib, monkeypatch, *words, command=command)
        assert (said.code, said.out) == (expected.code, expected.out), output
        assert said.err.splitlines() == without_progress(expected.err)
        assert said.code == code
    process = run_claimlib(command, filled, *words[1:], **NO_JAVA)
    assert (process.returncode, process.stdout) == (code, said.out), process.stderr


@pytest.mark.long
def test_a_process_that_has_no_java_lists_runs_and_shows_one(claimlib, monkeypatch, filled):
    for words in ((), ("1", "--claimed", "--output", "json"), ("1", "--as-commands"), ("none",)):
        said = promptly(lambda words=words: run_claimlib("runs", filled, *words, **NO_JAVA))
        expected = by_spark(claimlib, monkeypatch, filled, *words)
        assert (said.returncode, said.stdout) == (expected.code, expected.out), said.stderr
        assert said.stderr.splitlines() == without_progress(expected.err)
    assert (
        "xautoclaim:unfinished is unfinished: its decision was written"
        in claimlib("runs", filled).out
    )


@pytest.mark.usefixtures("in_session")
def test_what_delta_rs_cannot_read_is_read_by_spark(claimlib, monkeypatch, filled):
    expected = claimlib("runs", filled)
    monkeypatch.setattr(TAKES_PATHS, lambda _master, _conf: True)
    without = claimlib("runs", filled)
    assert (without.out, without.err) == (expected.out, "")
    set_limits(monkeypatch, session_rows=0)
    assert claimlib("runs", filled) == without
    monkeypatch.setattr("deltalake.DeltaTable.__init__", _raise)
    assert claimlib("runs", filled) == expected


def _raise(*_arguments, **_options):
    raise OSError("the log cannot be read")


VERSION = f'"claimlib.schemaVersion":"{SCHEMA_VERSION}"'


def lacking(store):
    shutil.rmtree(store / "journal")


def of_another_version(store):
    replace_in_log(store / "streams", VERSION, '"claimlib.schemaVersion":"1"')


def of_an_earlier_version(store):
    replace_in_log(store / "groups", VERSION, f'"claimlib.schemaVersion":"{min(UPGRADABLE)}"')


def of_no_version(store):
    replace_in_log(store / "runs", VERSION, VERSION.replace("schemaVersion", "other"))


def with_other_buckets(store):
    replace_in_log(store / "entries", '"claimlib.buckets":"8"', '"claimlib.buckets":"7"')


def without_a_column(store):
    replace_in_log(store / "groups", r"\"consumer_group\"", r"\"consumer_grupp\"")


def with_a_column_of_another_type(store):
    old = r"\"name\":\"next_ms\",\"type\":\"long\""
    replace_in_log(store / "cursors", old, old.replace("long", "string"))


def with_a_column_that_may_hold_null(store):
    old = r"\"name\":\"id_ms\",\"type\":\"long\",\"nullable\":false"
    replace_in_log(store / "pending", old, old.replace("false", "true"))


def replace_in_log(table, old, new):
    """Change what the log of a table says, and forget its checksums."""
    log = table / "_delta_log"
    for checksum in log.glob("*.crc"):
        checksum.unlink()
    (first,) = log.glob("0*0.json")
    text = first.read_text(encoding="utf-8")
    assert old in text
    first.write_text(text.replace(old, new), encoding="utf-8")


DAMAGES = [
    lacking,
    of_another_version,
    of_an_earlier_version,
    of_no_version,
    with_other_buckets,
    without_a_column,
    with_a_column_of_another_type,
    with_a_column_that_may_hold_null,
]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_store_that_cannot_be_used_is_refused_in_the_same_words(
    claimlib, monkeypatch, store_path, damage
):
    damage(store_path)
    said = by_delta_rs(claimlib, monkeypatch, store_path)
    assert (said.code, said.out) == (4, "")
    (error,) = said.err.splitlines()
    assert without_progress(by_spark(claimlib, monkeypatch, store_path).err) == [error]
    process = run_claimlib("runs", store_path, **NO_JAVA)
    assert (process.returncode, process.stderr) == (4, f"{error}\n")


# ------------------------------------------------------------------- where a path may be another


@pytest.fixture
def nothing_provided(monkeypatch):
    """This process has no session, and nothing in its environment is about Spark."""
    for name in list(os.environ):
        if name.startswith(("SPARK_", "PYSPARK_", "HADOOP_", "YARN_", "DATABRICKS_", "JAVA_TOOL")):
            monkeypatch.delenv(name)


@pytest.mark.usefixtures("nothing_provided")
def test_a_path_is_a_folder_here_to_a_local_session_of_our_own():
    assert reads_paths_as_local_folders("local[*]", {})
    assert reads_paths_as_local_folders("local", {"spark.sql.shuffle.partitions": "8"})


@pytest.mark.usefixtures("nothing_provided")
@pytest.mark.parametrize("master", ["yarn", "spark://host:7077", "k8s://host"])
def test_elsewhere_spark_says_what_a_path_is(master):
    assert not reads_paths_as_local_folders(master, {})


@pytest.mark.usefixtures("nothing_provided")
@pytest.mark.parametrize(
    "setting",
    [
        *("spark.hadoop.fs.defaultFS", "spark.hadoop.fs.file.impl", "spark.jars"),
        *("spark.jars.packages", "spark.driver.extraClassPath", "spark.driver.extraJavaOptions"),
        *("spark.plugins", "spark.extraListeners", "spark.files"),
    ],
)
def test_settings_that_could_give_spark_another_file_system_are_left_to_spark(
    setting,
):
    assert not reads_paths_as_local_folders("local[*]", {setting: "x"})


@pytest.mark.usefixtures("nothing_provided")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("SPARK_REMOTE", "sc://host"), ("PYSPARK_GATEWAY_PORT", "1"), ("SPARK_HOME", "/x")),
        *(("SPARK_CONF_DIR", "/x"), ("HADOOP_CONF_DIR", "/x"), ("YARN_CONF_DIR", "/x")),
        *(("PYSPARK_SUBMIT_ARGS", "--conf x"), ("DATABRICKS_RUNTIME_VERSION", "17")),
        ("JAVA_TOOL_OPTIONS", "-Dspark.hadoop.fs.defaultFS=hdfs://x"),
    ],
)
def test_what_has_settings_of_spark_in_the_environment_is_left_to_spark(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert not reads_paths_as_local_folders("local[*]", {})


@pytest.mark.usefixtures("in_session")
def test_a_session_that_is_there_is_asked():
    assert not reads_paths_as_local_folders("local[*]", {})


@pytest.mark.parametrize("name", ["a%20b", "a[b]", "a{b}", "a?b", "a*b", "a\\b"])
def test_a_path_that_a_reader_may_take_for_another_is_left_to_spark(
    spark, empty_store, tmp_path, name
):
    place = shutil.copytree(empty_store, tmp_path / name)
    started = []
    open_folder(lambda: started.append(1) or spark, str(place))
    assert started


def test_threads_that_need_the_session_at_a_time_get_one(spark):
    from claimlib.cli.opened_store import _Once

    opened = []

    def start():
        time.sleep(0.05)
        opened.append(spark)
        return spark

    once = _Once(start)
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda _: once(), range(4))) == [spark] * 4
    assert len(opened) == 1


def test_a_process_that_has_no_java_mirrors_a_server_and_claims(tmp_path):
    """Run init, snapshot and a sweep, while the server continues to work."""
    store = tmp_path / "store é"

    def said(*words):
        process = run_claimlib(*words, "--output", "json", **NO_JAVA)
        assert process.returncode == 0, process.stderr
        return json.loads(process.stdout)

    with valkey_server() as server, redis.Redis(server.host, server.port) as client:
        url = f"redis://{server.host}:{server.port}/0"
        for name in (b"orders:1", b"a'\\\xff"):
            client.xgroup_create(name, b"g", mkstream=True)
            for number in range(5):
                client.xadd(name, {"field": number}, id=f"{number + 1}-0")
            client.xreadgroup(b"g", b"dead", {name: ">"}, count=4)
        client.xdel(b"orders:1", "2-0")
        said("init", store, "--buckets", 2)
        counts = said("snapshot", url, store)["counts"]
        assert (counts["pending_read"], counts["pending_new"]) == (8, 8)
        swept = said("xautoclaim", store, "--consumer", "alive", "--min-idle", "0ms")
        assert (swept["counts"]["claimed"], swept["counts"]["deleted"]) == (7, 1)
        client.xack(b"orders:1", b"g", "1-0")
        client.xreadgroup(b"g", b"late", {b"orders:1": ">"})
        counts = said("snapshot", url, store)["counts"]
        changed = ("pending_new", "pending_removed", "pending_replaced", "claims_replaced")
        assert tuple(counts.get(name, 0) for name in changed) == (2, 1, 6, 6)
    assert said("check", store)["problems"] == []
    assert [row["command"] for row in said("runs", store)["runs"]] == [
        *("snapshot", "xautoclaim", "snapshot"),
    ]
