"""Runs commands and jobs in this process; nothing of the user's environment reaches them."""

import os
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _nothing_of_ours_is_exported(monkeypatch):
    for name in list(os.environ):
        if name.upper().startswith("CLAIMLIB_"):
            monkeypatch.delenv(name)


def _set_has_session(monkeypatch, answer):
    for module in ("session", "cli.opened_store"):
        monkeypatch.setattr(f"claimlib.{module}.has_session", lambda: answer)


@pytest.fixture(autouse=True)
def _no_session(monkeypatch):
    """A command does not see the session of the tests, so that it is in a process of its own.

    `--engine spark` gets that session, which takes no time to start.
    """
    _set_has_session(monkeypatch, answer=False)


@pytest.fixture
def in_session(spark, monkeypatch):  # noqa: ARG001 - the session is there while the test runs
    """A command is in a process with a Spark session, as in a notebook."""
    _set_has_session(monkeypatch, answer=True)


@dataclass(frozen=True, slots=True)
class Said:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


@pytest.fixture
def claimlib(monkeypatch, capsys):
    """Runs the command line in this process, which has a Spark session or needs none."""
    from claimlib import cli

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["claimlib", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return Said(ended.value.code, *capsys.readouterr())

    return run


@pytest.fixture
def job(monkeypatch, capsys):
    """Runs a job of `jobs/` in this process, which has a Spark session or needs none."""

    def run(name, *words):
        script = Path(__file__).parents[2] / "jobs" / f"{name}.py"
        monkeypatch.setattr(sys, "argv", [str(script), *map(str, words)])
        capsys.readouterr()
        try:
            runpy.run_path(str(script), run_name="__main__")
        except SystemExit as ended:
            return Said(ended.code, *capsys.readouterr())
        return Said(0, *capsys.readouterr())

    return run


@pytest.fixture
def config_file(tmp_path):
    """Writes a TOML file."""

    def write(text):
        file = tmp_path / "some.toml"
        file.write_text(text, encoding="utf-8")
        return file

    return write
