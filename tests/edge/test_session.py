import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from claimlib import session
from claimlib.cli.opened_store import session_of
from claimlib.config.settings import load
from claimlib.errors import ConfigError
from claimlib.session import class_archive
from claimlib.session.settings_file import is_set_by_user, settings_in_file
from tests.edge.documents import text_of
from tests.edge.processes import ROOT, run_python

_CONF = ROOT / "conf" / "spark-defaults.conf"


def _conf_settings():
    lines = _CONF.read_text(encoding="utf-8").splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))


@pytest.fixture
def fake_java(tmp_path, monkeypatch):
    """Makes a JAVA_HOME whose java says that it is of some version."""

    def make(version):
        java = tmp_path / "jdk" / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(f"#!/bin/sh\necho '    java.specification.version = {version}' >&2\n")
        java.chmod(java.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))

    return make


def test_spark_submit_gets_the_settings_of_our_own_session():
    conf = _conf_settings()
    others = {
        "spark.master",
        "spark.driver.memory",
        "spark.jars.packages",
        "spark.sql.shuffle.partitions",
        "spark.sql.warehouse.dir",
    }
    assert {k: v for k, v in conf.items() if k not in others} == session.LOCAL_SETTINGS


_PARALLEL, _G1, _SERIAL = (f"-XX:+Use{name}GC" for name in ("Parallel", "G1", "Serial"))


@pytest.mark.parametrize(
    ("options", "conf", "environment", "expected"),
    [
        ("", {}, {}, _PARALLEL),
        ("-Xmn1g -Dname=UseG1GC", {}, {}, f"{_PARALLEL} -Xmn1g -Dname=UseG1GC"),
        (f"-Xmn1g {_SERIAL}", {}, {}, f"-Xmn1g {_SERIAL}"),
        (f"{_SERIAL} -Xmn1g", {}, {"JAVA_TOOL_OPTIONS": f"-Xms1g {_G1}"}, "-Xmn1g"),
        (f"-Xmn1g {_SERIAL}", {}, {"JDK_JAVA_OPTIONS": _SERIAL}, f"-Xmn1g {_SERIAL}"),
        ("", {}, {"SPARK_SUBMIT_OPTS": _G1}, ""),
        ("-Xmn1g", {}, {"SPARK_CONF_DIR": "/settings"}, "-Xmn1g"),
        ("-Xmn1g", {"spark.driver.defaultJavaOptions": _G1}, {}, "-Xmn1g"),
        ("", {"spark.sql.shuffle.partitions": 8}, {}, _PARALLEL),
    ],
)
def test_java_is_given_one_garbage_collector_for_with_two_it_does_not_start(
    monkeypatch, options, conf, environment, expected
):
    for name in (*session._JAVA_OPTIONS, *session._SPARKS_OWN):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert session._with_collector(options, conf) == expected


def test_spark_submit_gets_the_jar_of_the_installed_delta(spark):
    release = ".".join(spark.version.split(".")[:2])
    expected = f"io.delta:delta-spark_{release}_2.13:{version('delta-spark')}"
    assert _conf_settings()["spark.jars.packages"] == expected


def test_the_documents_name_the_file_system_of_the_installed_sparks_hadoop():
    jars = Path(pyspark.__file__).parent / "jars"
    (client,) = jars.glob("hadoop-client-api-*.jar")
    hadoop = client.stem.removeprefix("hadoop-client-api-")
    (named,) = re.findall(r"org\.apache\.hadoop:hadoop-aws:([\d.]+)", text_of("docs/spark.md"))
    assert named == hadoop


def test_a_session_that_is_there_is_taken_also_where_delta_spark_is_not_installed(
    spark, monkeypatch
):
    monkeypatch.setitem(sys.modules, "delta", None)
    assert session.open_session(master="local[7]") is spark


def test_settings_go_to_java_in_a_file_for_this_user_alone_and_arrive_as_they_are(
    spark, monkeypatch
):
    conf = {"spark.a": "a \\b=c:d#!é", "spark.b c": " x", "spark.n": 7, "spark.e": ""}
    for before in (None, "--name 'a b' pyspark-shell"):
        monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
        if before is not None:
            monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", before)
        with settings_in_file(conf):
            option, path, *others = shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"])
            assert option == "--properties-file"
            assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
            properties = spark._jvm.org.apache.spark.util.Utils.getPropertiesFromFile(path)
            read = spark._jvm.scala.jdk.javaapi.CollectionConverters.asJava(properties)
            assert dict(read) == {k: str(v).strip() for k, v in conf.items()}
        assert others == ["--load-spark-defaults", *shlex.split(before or "pyspark-shell")]
        assert os.environ.get("PYSPARK_SUBMIT_ARGS") == before
        assert not Path(path).exists()


def test_what_the_user_tells_spark_submit_stays_but_for_what_settings_replace(
    spark, monkeypatch, tmp_path
):
    theirs = tmp_path / "theirs.conf"
    theirs.write_text("spark.a theirs\nspark.b theirs", encoding="utf-8")
    options = "--conf spark.c=theirs --conf=spark.d=theirs --driver-memory 1g pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--properties-file {theirs} {options}")
    with settings_in_file({"spark.b": "ours", "spark.c": "ours"}):
        option, path, *others = shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"])
        properties = spark._jvm.org.apache.spark.util.Utils.getPropertiesFromFile(path)
        read = dict(spark._jvm.scala.jdk.javaapi.CollectionConverters.asJava(properties))
    assert option == "--properties-file"
    assert read == {"spark.a": "theirs", "spark.b": "ours", "spark.c": "ours"}
    assert others == ["--conf", "spark.d=theirs", "--driver-memory", "1g", "pyspark-shell"]


def test_a_setting_of_the_user_is_found_where_spark_reads_it(monkeypatch, tmp_path):
    def is_set():
        return is_set_by_user("spark.sql.warehouse.dir")

    conf, defaults = tmp_path / "conf", tmp_path / "conf" / "spark-defaults.conf"
    conf.mkdir()
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    for variable, folder in (("SPARK_HOME", tmp_path), ("SPARK_CONF_DIR", conf)):
        monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
        monkeypatch.setenv(variable, str(folder))
        for text in ("", "spark.sql.warehouse.dirs /x", "# spark.sql.warehouse.dir /x"):
            defaults.write_text(text, encoding="utf-8")
            assert not is_set(), text
        for text in ("spark.a b\n  spark.sql.warehouse.dir /x", "spark.sql.warehouse.dir=/x"):
            defaults.write_text(text, encoding="utf-8")
            assert is_set(), text
        defaults.unlink()
    (conf / "hive-site.xml").touch()
    assert is_set()
    (conf / "hive-site.xml").unlink()
    theirs = tmp_path / "theirs.conf"
    theirs.write_text("spark.sql.warehouse.dir /x", encoding="utf-8")
    for arguments in ("--conf spark.sql.warehouse.dir=/x", f"--properties-file={theirs}"):
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{arguments} pyspark-shell")
        assert is_set(), arguments


def test_no_warehouse_is_left_in_the_current_folder_unless_the_user_chose_it(monkeypatch):
    opened = []
    monkeypatch.setattr("claimlib.session.open_session", lambda **chosen: opened.append(chosen))
    for is_set in (False, True):
        monkeypatch.setattr(
            "claimlib.cli.opened_store.is_set_by_user", lambda *_, said=is_set: said
        )
        session_of(load(), debug=True)
    session_of(load(spark={"conf": {"spark.sql.warehouse.dir": "/x"}}), debug=True)
    folders = [chosen["conf"].get("spark.sql.warehouse.dir") for chosen in opened]
    assert folders == [tempfile.gettempdir(), None, "/x"]


def test_a_secret_is_no_argument_and_a_jvm_without_memory_ends_with_what_to_do():
    """Java ends the one thread that lacks memory, and then the others wait for it."""
    process = run_python(ROOT / "tests" / "edge" / "without_memory.py", timeout=120)
    assert process.returncode == 2, process.stderr
    assert process.stdout == "the settings are there\n"
    assert "Spark ran out of memory: give it more" in process.stderr


def test_workers_run_this_python(spark):
    assert spark.sparkContext.pythonExec == sys.executable


def test_java_17_and_newer_will_do(fake_java):
    fake_java("21")
    session.check_java()


@pytest.mark.parametrize("version", ["11", "1.8"])
def test_an_old_java_is_refused_with_what_to_install(fake_java, version):
    fake_java(version)
    with pytest.raises(ConfigError, match=r"Java 17 or newer, but that of JAVA_HOME=.*openjdk-17"):
        session.check_java()


def test_a_java_home_without_java_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"JAVA_HOME=.* has none: install it"):
        session.check_java()


def test_no_java_at_all_is_refused(tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="PATH has none: install it"):
        session.check_java()


def test_what_a_jvm_says_is_not_shown_and_never_among_results(capfd):
    for muted, said in ((True, ""), (False, "noise\nmore\n")):
        with session._jvm_muted(muted=muted):
            os.write(2, b"noise\n")
            os.write(1, b"more\n")
        assert capfd.readouterr() == ("", said)
    os.write(1, b"a result\n")
    assert capfd.readouterr() == ("a result\n", "")


_GATEWAY = "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."
_CALL = "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n: "
NOT_STARTED = [
    (
        (
            'x\nException in thread "main" java.lang.RuntimeException: [unresolved dependency:'
            " no#such;1: not found]\n\tat x\n"
        ),
        _GATEWAY,
        "the package no:such:1 cannot be downloaded: check its name (spark.jars.packages)",
    ),
    (
        "Invalid maximum heap size: -Xmxmany\nError: Could not create the Java Virtual Machine.\n",
        _GATEWAY,
        "Invalid maximum heap size: -Xmxmany; check its settings (--spark-conf",
    ),
    (
        "log\n",
        f"{_CALL}org.apache.spark.SparkException: Could not parse Master URL: 'x'\n\tat y",
        "Could not parse Master URL: 'x'; check its settings",
    ),
    (
        "log\n",
        (
            f"{_CALL}java.net.BindException: Failed to bind to address /127.0.0.1:15002: Service"
            " 'org.apache.spark.sql.connect.service.SparkConnectService' failed after 0 retries"
        ),
        "port 15002 is in use on this machine, by another Connect server: wait until it has ended",
    ),
    ("first\nlast words.\n\n", _GATEWAY, "last words; check its settings"),
    ("", "", "RuntimeError; check its settings"),
]


@pytest.mark.parametrize(("log", "error", "said"), NOT_STARTED)
def test_why_spark_does_not_start_is_one_line_without_java_s_words(capfd, log, error, said):
    def start():
        os.write(2, log.encode())
        raise RuntimeError(error)

    with pytest.raises(ConfigError) as raised, session._jvm_muted(muted=True):
        start()
    assert capfd.readouterr() == ("", "")
    assert raised.value.message.startswith(f"Spark does not start: {said}")
    assert "\n" not in raised.value.message
    assert not re.search("java[.]|org[.]|Exception", raised.value.message)


def test_a_session_takes_spark_s_classes_from_the_archive_where_it_can(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "CLASS_ARCHIVE", tmp_path / "classes.jsa")
    assert session.archive_options() == ""
    session.CLASS_ARCHIVE.touch()
    assert f"-XX:SharedArchiveFile={tmp_path}/classes.jsa" in session.archive_options()
    with_blank = tmp_path / "a b"
    with_blank.touch()
    monkeypatch.setattr(session, "CLASS_ARCHIVE", with_blank)
    assert session.archive_options() == ""


def test_java_starts_without_a_word_where_the_archive_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "CLASS_ARCHIVE", tmp_path / "classes.jsa")
    session.CLASS_ARCHIVE.write_bytes(b"no archive" * 1000)
    java = shutil.which("java", path=f"{os.environ.get('JAVA_HOME', '')}/bin:{os.environ['PATH']}")
    without, done = (
        subprocess.run([java, *options, "-version"], capture_output=True, text=True, check=True)
        for options in ([], session.archive_options().split())
    )
    # The version tells whether classes are shared: of the default archive they still are.
    assert (done.stdout, done.stderr.split(",")[0]) == ("", without.stderr.split(",")[0])


def test_who_asks_for_help_about_the_archive_gets_it_and_the_archive_stays(monkeypatch, tmp_path):
    archive = tmp_path / "classes.jsa"
    archive.touch()
    monkeypatch.setattr(class_archive, "CLASS_ARCHIVE", archive)
    for words in (["--help"], ["--typo"]):
        monkeypatch.setattr(sys, "argv", ["class_archive", *words])
        with pytest.raises(SystemExit):
            class_archive.main()
    assert archive.exists()


def test_packages_that_settings_name_come_besides_that_of_delta():
    wanted = {
        "spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.5.0,io.delta:delta-spark_2.13:1.0",
        "spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:1",
    }
    ours = {"spark.a": "ours", "spark.hadoop.fs.s3a.endpoint": "ours"}
    options = session._with_delta(SparkSession.Builder(), ours, wanted)._options
    assert options["spark.a"] == "ours"
    assert "spark.hadoop.fs.s3a.endpoint" not in options, "it would come before that of the file"
    packages = options["spark.jars.packages"].split(",")
    assert "org.apache.hadoop:hadoop-aws:3.5.0" in packages
    assert [package.rpartition(":")[2] for package in packages if "delta-spark" in package] == [
        "4.4.0"
    ]


def test_where_settings_name_the_jar_of_delta_no_package_is_asked_for():
    wanted = {"spark.jars": "/jars/io.delta_delta-spark_4.2_2.13-4.4.0.jar,/jars/other.jar"}
    assert session._with_delta(SparkSession.Builder(), {}, wanted)._options == {}
    others = {"spark.jars": "/jars/other.jar"}
    options = session._with_delta(SparkSession.Builder(), {}, others)._options
    assert "delta-spark" in options["spark.jars.packages"]
