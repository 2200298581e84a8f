"""The notebooks run from the first cell to the last."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))


class Widgets:
    """What Databricks gives a notebook as `dbutils.widgets`."""

    def __init__(self, **given: str) -> None:
        self._values = given

    def text(self, name: str, value: str, label: str) -> None:
        assert label
        self._values.setdefault(name, value)

    def get(self, name: str) -> str:
        return self._values[name]


def cells(path: Path) -> Iterator[str]:
    """The code cells of a notebook in Databricks' source format."""
    header, source = path.read_text(encoding="utf-8").split("\n", 1)
    assert header == "# Databricks notebook source"
    for cell in source.split("# COMMAND ----------"):
        if not cell.strip().startswith("# MAGIC %md"):
            assert "# MAGIC" not in cell, "a command that only Databricks has"
            yield cell.strip()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_did(
    path: Path, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "def " not in path.read_text(encoding="utf-8"), "a notebook defines nothing"
    assert spark is not None  # the session that open_session finds, as it does on Databricks
    names = {"dbutils": SimpleNamespace(widgets=Widgets(store=str(tmp_path / "store")))}
    for cell in cells(path):
        exec(cell, names)
    shown = capsys.readouterr().out
    assert "the same run again: True" in shown
    assert "'claimed': " in shown
    assert (tmp_path / "store" / "pending").is_dir()
