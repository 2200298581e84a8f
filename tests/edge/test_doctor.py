"""`claimlib doctor`: a line for each thing that is needed, and what to do where it is missing."""

import os
import re
import shutil
import signal
from functools import partial
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.errors import AnalysisException

from claimlib.cli.doctor_command import (
    _PACKAGES,
    Check,
    _class_archive,
    _clock,
    _delta,
    _disk,
    _guarded,
    _java,
    _package,
    _spark,
    _store,
    _workers,
)
from claimlib.config.settings import load
from claimlib.errors import ConfigError, install_command
from claimlib.live.address import source_label
from claimlib.testing.server_process import valkey_server
from tests.edge.documents import text_of
from tests.edge.processes import promptly, run_python, started_claimlib

DOCUMENTED = re.search(r"`ACL SETUSER (reader on >PASSWORD .+)`", text_of("docs/server.md"))[1]


@pytest.fixture(scope="module")
def server():
    with valkey_server(users=[DOCUMENTED]) as valkey:
        yield valkey


def checks(said):
    """State and text of each line by its name; a name that comes twice has both."""
    by_name = {}
    for line in said.out.splitlines():
        state, name, text = line[:6].strip(), line[7:23].strip(), line[24:]
        by_name.setdefault(name, []).append((state, text))
    return by_name


def test_where_all_is_there_every_line_is_ok(claimlib, spark, store, server, monkeypatch):
    assert spark is not None
    monkeypatch.setenv("REDIS_PASSWORD", "PASSWORD")
    url = server.url.replace("//", "//reader@")
    assert claimlib("snapshot", url, store.where).code == 0
    said = claimlib("doctor", store.where, url)
    by_name = checks(said)
    assert said.code == 0, said.out
    assert {state for lines in by_name.values() for state, _ in lines} == {"ok"}
    assert {
        "claimlib",
        "pyspark",
        "deltalake",
        "redis",
        "Java",
        "class archive",
        "disk",
    } <= by_name.keys()
    assert {"server", "clock", "rights", "Spark", "Delta", "workers", "store"} <= by_name.keys()
    ((_, text),) = by_name["store"]
    assert text == f"{store.where}: 1 run, 8 buckets, source {source_label(server.url)}"
    ((_, text),) = by_name["rights"]
    assert set(text.removeprefix("granted: ").split()) == documented_rights()


def test_a_store_that_mirrors_nothing_says_so(store):
    assert _store(store.spark, store.where) == f"{store.where}: 0 runs, 8 buckets, no source so far"


def documented_rights():
    return set(DOCUMENTED.split()) - {"reader", "on", ">PASSWORD", "-@all"}


def test_what_is_missing_says_what_to_do_and_the_other_checks_go_on(
    claimlib, spark, server, tmp_path
):
    assert spark is not None
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "poor", "on", "nopass", "~*", "+time", "+select")
    url = server.url.replace("redis://", "redis://poor@")
    said = claimlib("doctor", tmp_path / "absent", url)
    by_name = checks(said)
    assert said.code == 4
    assert by_name["+scan"] == [("TO DO", "not granted: without it, a snapshot fails; grant +scan")]
    lacking = documented_rights() - {"+time", "%R~*"}
    assert {name for name in by_name if name.startswith("+")} == lacking
    assert all(by_name[rule][0][1].endswith(f"; grant {rule}") for rule in lacking)
    states = {rule: by_name[rule][0][0] for rule in lacking}
    slower_but_enough = {"+eval_ro": "ok"}
    assert states == dict.fromkeys(lacking, "TO DO") | slower_but_enough
    ((state, text),) = by_name["store"]
    assert state == "TO DO"
    assert "create it with: claimlib init" in text
    assert said.err == "claimlib: 10 checks need attention: see the lines marked TO DO\n"


def test_a_user_who_may_do_nothing_at_all_is_told_every_right(claimlib, spark, server):
    assert spark is not None
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "nobody", "on", "nopass")
    by_name = checks(claimlib("doctor", server.url.replace("//", "//nobody@")))
    assert {name for name in by_name if name.startswith("+")} == documented_rights() - {"%R~*"}
    ((state, text),) = by_name["server"]
    assert (state, "grant +time" in text) == ("TO DO", True)


def test_the_rights_of_a_writeback_are_checked_instead_of_those_of_a_snapshot(
    claimlib, server, monkeypatch
):
    monkeypatch.setattr("claimlib.cli.doctor_command._spark", lambda *_words, **_options: iter(()))
    with server.client() as client:
        words = ("ACL", "SETUSER", "writer", "on", "nopass", "~*", "+@read", "+time", "+info")
        client.execute_command(*words, "+xclaim", "+xgroup|delconsumer")
    url = server.url.replace("//", "//writer@")
    said = claimlib("doctor", url, "--writeback")
    lacking = {name: lines for name, lines in checks(said).items() if name.startswith("+")}
    assert said.code == 4
    assert lacking == {
        rule: [("TO DO", f"not granted: without it, a writeback fails; grant {rule}")]
        for rule in ("+eval", "+xack")
    }
    said = claimlib("doctor", "--writeback")
    assert (said.code, said.out) == (2, "")
    assert "--writeback checks rights on a server: give its URL too" in said.err


def test_a_server_that_does_not_answer_is_named(claimlib, spark):
    assert spark is not None
    said = claimlib("doctor", "redis://127.0.0.1:1/0")
    ((state, text),) = checks(said)["server"]
    assert (said.code, state) == (4, "TO DO")
    assert "127.0.0.1:1/0 cannot be reached" in text


def test_a_package_that_is_missing_is_named_with_the_extra_that_brings_it(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("claimlib.cli.doctor_command.metadata.version", missing)
    by_name = {name: _package(name, extra) for extra, names in _PACKAGES.items() for name in names}
    assert by_name["deltalake"] == Check(
        "deltalake", f"is missing: {install_command('spark')}", is_ok=False
    )


def test_a_missing_class_archive_says_what_it_saves_and_is_no_error(tmp_path):
    archive = tmp_path / "claimlib-spark.jsa"
    missing = _class_archive(archive)
    assert missing.is_ok
    assert "11 to 13 s" in missing.result
    assert "python -m claimlib.session.class_archive" in missing.result
    archive.write_bytes(bytes(3 * 1024**2))
    assert _class_archive(archive) == Check("class archive", f"{archive}, 3 MB")


# ------------------------------------------------------------------- remedies, without a JVM


def test_where_there_is_no_java_it_says_what_to_install(monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    check = _guarded("Java", _java)
    assert not check.is_ok
    assert check.result.startswith("Spark needs Java 17 or newer, but JAVA_HOME=/nowhere has none")
    assert "apt-get install openjdk-17-jre-headless" in check.result


@pytest.mark.parametrize(("free", "is_ok"), [(2 * 2**30, True), (2 * 2**30 - 1, False)])
def test_a_disk_that_is_nearly_full_is_named_with_its_folder(monkeypatch, free, is_ok):
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: SimpleNamespace(free=free))
    text = f"2{'' if is_ok else '.0'} GiB free for temporary files in /some"
    expected = Check("disk", text if is_ok else f"{text}: make room", is_ok)
    assert _disk(Path("/some"), "temporary files") == expected


@pytest.mark.parametrize(("behind_s", "is_ok"), [(0, True), (0.9, True), (1.1, False)])
def test_clocks_that_differ_are_to_be_synchronized(monkeypatch, behind_s, is_ok):
    monkeypatch.setattr("time.time_ns", lambda: 1_750_000_000 * 10**9 + int(behind_s * 10**9))
    check = _clock([b"1750000000", b"0"])
    assert check.is_ok is is_ok
    assert ("synchronize both clocks (NTP)" in check.result) is not is_ok
    assert f"by {-int(behind_s * 1000):+,} ms" in check.result


def session(**methods):
    """As much of a session as a check asks."""
    return SimpleNamespace(**methods)


def worker(first):
    """A session whose worker answers, or raises, `first`."""
    frame = SimpleNamespace(first=first)
    return session(range=lambda _: SimpleNamespace(mapInPandas=lambda *_: frame))


def test_a_worker_of_another_python_is_told_by_its_version():
    check = _guarded("workers", partial(_workers, worker(lambda: {"python": "3.9.1"})))
    assert not check.is_ok
    assert "workers run Python 3.9.1" in check.result
    assert "set PYSPARK_PYTHON" in check.result


def test_a_worker_without_a_library_is_told_what_to_install():
    def fails():
        raise RuntimeError("ModuleNotFoundError: No module named 'pandas'")

    check = _guarded("workers", partial(_workers, worker(fails)))
    assert not check.is_ok
    assert "cannot import pandas: install it for the Python that they run" in check.result


def started(monkeypatch, session_of, settings=None):
    """The lines about Spark, where it is started so."""
    monkeypatch.setattr("claimlib.cli.doctor_command.session_of", session_of)
    return list(_spark(settings or load(None), "./store", debug=False))


def test_where_spark_does_not_start_it_says_why_and_nothing_else_of_it_is_looked_at(monkeypatch):
    def fails(_settings, **_options):
        raise ConfigError("Spark does not start: the package no:such:1 cannot be downloaded")

    (check,) = started(monkeypatch, fails)
    assert check == Check(
        "Spark", "Spark does not start: the package no:such:1 cannot be downloaded", is_ok=False
    )


def test_spark_is_started_with_the_settings_of_the_options(claimlib, monkeypatch, config_file):
    confs = []

    def fails(settings, **_options):
        confs.append(settings.spark.conf)
        raise ConfigError("seen")

    monkeypatch.setattr("claimlib.cli.doctor_command.session_of", fails)
    file = config_file('[spark.conf]\n"spark.a" = "of the file"\n"spark.b" = "of the file"\n')
    words = ("--spark-conf", "spark.b=given", "--spark-conf", "spark.c=x=y")
    said = claimlib("doctor", "--config", file, *words)
    assert checks(said)["Spark"] == [("TO DO", "seen")]
    assert {"spark.b": "given", "spark.c": "x=y"}.items() <= confs[0].items()
    assert claimlib("doctor", "--spark-conf", "spark.b").code == 2


def without_spark(monkeypatch):
    def fails(_settings, **_options):
        raise ConfigError("not looked at here")

    monkeypatch.setattr("claimlib.cli.doctor_command.session_of", fails)


def test_the_server_is_asked_with_the_password_of_the_file(claimlib, monkeypatch, tmp_path):
    without_spark(monkeypatch)
    monkeypatch.delenv("REDIS_PASSWORD", raising=False)
    file = tmp_path / "password"
    file.write_text("s3cret\n", encoding="utf-8")
    with valkey_server(password="s3cret") as server:
        by_name = checks(claimlib("doctor", server.url, "--password-file", file))
        without = checks(claimlib("doctor", server.url))
    assert (by_name["server"][0][0], by_name["rights"][0][0]) == ("ok", "ok")
    assert without["server"][0][0] == "TO DO"


def test_a_password_file_or_certificates_that_cannot_be_used_are_named_in_the_servers_line(
    claimlib, monkeypatch, tmp_path
):
    without_spark(monkeypatch)
    absent = tmp_path / "absent"
    for option, what in (("--password-file", "password"), ("--ca-file", "certificate")):
        said = claimlib("doctor", "rediss://127.0.0.1:1", option, absent)
        ((state, text),) = checks(said)["server"]
        assert (said.code, state) == (4, "TO DO")
        assert text.startswith(f"the {what} file {absent} ")


@pytest.mark.parametrize("option", ["--password-file", "--ca-file"])
def test_what_is_for_a_server_is_refused_without_one(claimlib, option):
    said = claimlib("doctor", "store", option, "some")
    assert (said.code, said.out) == (2, "")
    assert said.err == (
        "claimlib: error: --password-file and --ca-file are for a server: give its URL too\n"
    )


def raising(error):
    def sql(_statement):
        raise error

    return session(sql=sql)


# As Delta 4.4 and Spark 4.2 say it: a session has its catalog for as long as its JVM lives.
@pytest.mark.parametrize(
    "said",
    [
        "[DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG] This Delta operation requires",
        "[TABLE_OR_VIEW_NOT_FOUND] The table or view `DETAIL` cannot be found.",
    ],
)
def test_a_session_without_deltas_catalog_or_extension_is_told_how_to_get_it(said):
    check = _guarded("Delta", partial(_delta, raising(AnalysisException(said))))
    assert not check.is_ok
    assert "start it with Delta's jar (spark.jars.packages), spark.sql.ext" in check.result


def test_a_session_that_cannot_be_asked_is_not_said_to_have_delta():
    with pytest.raises(OSError, match="gone"):
        _guarded("Delta", partial(_delta, raising(OSError("gone"))))


WITHOUT_DELTA = """
from functools import partial
from pyspark.sql import SparkSession
from claimlib.cli.doctor_command import _delta, _guarded
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(_guarded("Delta", partial(_delta, spark)))
other = spark.newSession()
delta = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
other.conf.set("spark.sql.catalog.spark_catalog", delta)  # named, and its jar is not there
print(_guarded("Delta", partial(_delta, other)))
"""


@pytest.mark.slow
def test_a_session_without_delta_is_told_how_to_get_it():
    said = run_python("-c", WITHOUT_DELTA)
    assert said.stdout.count("is_ok=False") == 2, said.stderr
    assert said.stdout.count("the Spark session has no Delta: start it with Delta's jar") == 2


# ------------------------------------------------------------------- at once


HANGING_JAVA = """#!/bin/sh
case "$*" in *-version*) echo "    java.specification.version = 17" >&2 ;; *) exec sleep 600 ;; esac
"""


def test_what_is_known_without_spark_is_said_before_it_is_there(tmp_path):
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(HANGING_JAVA, encoding="utf-8")
    java.chmod(0o755)

    def first_lines():
        words = ("doctor", tmp_path / "store")
        with started_claimlib(*words, JAVA_HOME=str(java.parents[1])) as process:
            lines = [process.stdout.readline() for _ in range(13)]
            assert process.poll() is None
            os.killpg(process.pid, signal.SIGKILL)
        return lines

    lines = promptly(first_lines)
    assert all(line.startswith("ok ") for line in lines)
    told = [line.split()[1] for line in lines[-5:]]
    assert told == ["Java", "class", "permissions", "disk", "disk"]
