"""The notebooks run from the first cell to the last."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import nbclient
import nbformat
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))

# What Databricks gives a notebook: its widgets.
DBUTILS = """
import types

class Widgets:
    given = {given!r}

    def text(self, name, value, label=""):
        self.given.setdefault(name, value)

    def get(self, name):
        return self.given[name]

dbutils = types.SimpleNamespace(widgets=Widgets())
"""


def cells(path: Path) -> Iterator[nbformat.NotebookNode]:
    """The code cells of a notebook in Databricks' source format."""
    header, source = path.read_text(encoding="utf-8").split("\n", 1)
    assert header == "# Databricks notebook source"
    for cell in source.split("# COMMAND ----------"):
        if not cell.strip().startswith("# MAGIC %md"):
            yield nbformat.v4.new_code_cell(cell.strip())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_did(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    notebook = nbformat.v4.new_notebook(cells=list(cells(path)))
    assert "def " not in path.read_text(encoding="utf-8"), "a notebook defines nothing"
    given = {"store": str(tmp_path / "store")}
    notebook.cells.insert(0, nbformat.v4.new_code_cell(DBUTILS.format(given=given)))
    nbclient.NotebookClient(
        notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    shown = "".join(
        output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", [])
    )
    assert "the same run again: True" in shown
    assert "'claimed': " in shown
    assert (tmp_path / "store" / "pending").is_dir()
