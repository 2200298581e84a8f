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
