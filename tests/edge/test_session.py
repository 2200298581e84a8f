import os
import stat
import sys
from importlib.metadata import version

import pytest
from processes import ROOT

from claimlib import session
from claimlib.errors import ConfigError

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
    }
    assert {k: v for k, v in conf.items() if k not in others} == session.LOCAL_SETTINGS


def test_spark_submit_gets_the_jar_of_the_installed_delta(spark):
    release = ".".join(spark.version.split(".")[:2])
    expected = f"io.delta:delta-spark_{release}_2.13:{version('delta-spark')}"
    assert _conf_settings()["spark.jars.packages"] == expected


def test_a_session_that_is_there_is_taken(spark):
    assert session.open_session(master="local[7]") is spark


def test_workers_run_this_python(spark):
    assert spark.sparkContext.pythonExec == sys.executable


def test_java_17_and_newer_will_do(fake_java):
    fake_java("21")
    session.check_java()


@pytest.mark.parametrize("version", ["11", "1.8"])
def test_an_old_java_is_refused_with_what_to_install(fake_java, version):
    fake_java(version)
    with pytest.raises(ConfigError, match=r"Java 17 or newer, and that of JAVA_HOME=.*openjdk-17"):
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


def test_what_a_jvm_says_is_shown_only_if_it_does_not_start(capfd):
    with session._jvm_muted(muted=True):
        os.write(2, b"noise\n")
    assert capfd.readouterr().err == ""
    with pytest.raises(ZeroDivisionError), session._jvm_muted(muted=True):
        _ = os.write(2, b"reason\n") / 0
    assert capfd.readouterr().err == "reason\n"
