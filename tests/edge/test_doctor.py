"""`claimlib doctor`: a line for each thing that is needed, and what to do where it is missing."""

import os
import signal
from importlib import metadata

import pytest

from claimlib.cli.doctor import _PACKAGES, Check, _package
from claimlib.testing.server import valkey_server
from tests.edge.processes import started_claimlib


@pytest.fixture(scope="module")
def server():
    with valkey_server() as one:
        yield one


def checks(said):
    """State and text of each line by its name; a name that comes twice has both."""
    found = {}
    for line in said.out.splitlines():
        state, name, text = line[:6].strip(), line[7:21].strip(), line[22:]
        found.setdefault(name, []).append((state, text))
    return found


def test_where_all_is_there_every_line_is_ok(claimlib, spark, store, server):
    assert spark is not None
    said = claimlib("doctor", store.where, server.url)
    found = checks(said)
    assert said.code == 0, said.out
    assert {state for lines in found.values() for state, _ in lines} == {"ok"}
    assert {"claimlib", "pyspark", "deltalake", "redis", "Java", "disk"} <= found.keys()
    assert {"server", "clock"} <= found.keys()
    assert {"+info", "+eval_ro", "Spark", "workers", "store"} <= found.keys()
    ((_, text),) = found["store"]
    assert text == f"{store.where}: 0 runs, 8 buckets, no source declared"


def test_what_is_missing_says_what_to_do_and_the_other_checks_go_on(
    claimlib, spark, server, tmp_path
):
    assert spark is not None
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "poor", "on", "nopass", "~*", "+time", "+select")
    url = server.url.replace("redis://", "redis://poor@")
    said = claimlib("doctor", tmp_path / "absent", url)
    found = checks(said)
    assert said.code == 4
    ((state, text),) = found["+info"]
    assert (state, text) == (
        "TO DO",
        "not granted: without it, the server cannot be identified; grant +info",
    )
    ((state, text),) = found["store"]
    assert state == "TO DO"
    assert "create it with: claimlib init" in text
    assert found["+eval_ro"][0][0] == "ok"  # slower, and enough
    assert said.err == "claimlib: 2 checks need attention: see the lines marked TO DO\n"


def test_a_server_that_does_not_answer_is_named(claimlib, spark):
    assert spark is not None
    said = claimlib("doctor", "redis://127.0.0.1:1/0")
    ((state, text),) = checks(said)["server"]
    assert (said.code, state) == (4, "TO DO")
    assert "127.0.0.1:1/0 cannot be reached" in text


def test_a_package_that_is_missing_is_named_with_the_extra_that_brings_it(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("claimlib.cli.doctor.metadata.version", missing)
    found = {name: _package(name, extra) for extra, names in _PACKAGES.items() for name in names}
    assert found["deltalake"] == Check(
        "deltalake", "is missing: pip install 'claimlib[spark]'", is_ok=False
    )


HANGING_JAVA = """#!/bin/sh
case "$*" in *-version*) echo "    java.specification.version = 17" >&2 ;; *) exec sleep 600 ;; esac
"""


def test_what_is_known_without_spark_is_said_before_it_is_there(tmp_path):
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(HANGING_JAVA, encoding="utf-8")
    java.chmod(0o755)
    with started_claimlib("doctor", tmp_path / "store", JAVA_HOME=str(java.parents[1])) as process:
        lines = [process.stdout.readline() for _ in range(11)]
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
    assert all(line.startswith("ok ") for line in lines)
    assert [line.split()[1] for line in lines[-3:]] == ["Java", "disk", "disk"]
