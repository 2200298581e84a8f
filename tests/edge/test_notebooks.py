"""The notebooks run from the first cell to the last: with Databricks' widgets, and as scripts."""

from __future__ import annotations

import re
import runpy
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from claimlib import AutoclaimRequest, SweepRequest, notebook, xautoclaim
from claimlib.commands.snapshot import snapshot
from claimlib.demo.demo_series import write_series
from claimlib.demo.sample import sample_keyspace
from claimlib.errors import StoreExistsError
from claimlib.semantics.words import Keyspace
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace
from claimlib.times import parse_instant_ms
from tests.delta.snapshots import ANY, source, stream

ROOT = Path(__file__).parents[2]
NOW_MS = parse_instant_ms("2026-01-01T12:00:00Z")
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))
STALLED, MIN_IDLE = (ROOT / "notebooks" / f"{name}.py" for name in ("02_stalled", "03_min_idle"))
WITH_SAMPLES = [path for path in NOTEBOOKS if path.stem in {"01_quickstart", "04_recovery"}]
# What Databricks does itself; to Python they are comments.
MAGIC = (
    "# MAGIC %md\n",
    '# MAGIC %pip install --quiet --editable "..[notebook]"\n',
    "# MAGIC %restart_python\n",
)
SHOWN = {
    "01_quickstart": ("the same run again: True", "'claimed': 61"),
    "02_stalled": ("|emails|        sender|", "02_idle_times.png", "02_over_time.png"),
    "03_min_idle": ("done_twice", "min-idle 15m", "03_min_idle.png"),
    "04_recovery": ("unfinished runs: ('xautoclaim:noon',)", "changes nothing: True True"),
}
# Serverless compute has none of these.
CLASSIC_ONLY = re.compile(r"sparkContext|_jvm|_jsc|\.rdd\b|\.conf\b|\.cache\(|\.persist\(|%sql")


class Widgets:
    """What Databricks gives a notebook as `dbutils.widgets`."""

    def __init__(self, **values: str) -> None:
        self._values = values

    def text(self, name: str, value: str, label: str) -> None:
        assert label
        self._values.setdefault(name, value)

    def get(self, name: str) -> str:
        return self._values[name]


def code_cells(path: Path) -> Iterator[str]:
    """The code cells of a notebook in Databricks' source format."""
    header, source = path.read_text(encoding="utf-8").split("\n", 1)
    assert header == "# Databricks notebook source"
    for cell in source.split("# COMMAND ----------\n"):
        if not f"{cell.strip()}\n".startswith(MAGIC):
            assert "# MAGIC" not in cell, "a command that only Databricks has"
            yield cell.strip()


def run_cells(path: Path, **widgets: str) -> dict[str, Any]:
    """Run a notebook as Databricks does, with what its reader has put into the widgets; the
    variables afterwards."""
    names = {"dbutils": SimpleNamespace(widgets=Widgets(**widgets))}
    for cell in code_cells(path):
        exec(cell, names)
    return names


@pytest.fixture(scope="module")
def sampled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The place of a store with the sample's series of snapshots."""
    store = Store.init(spark, str(tmp_path_factory.mktemp("series") / "store"))
    write_series(store, NOW_MS)
    return store.where


@pytest.fixture
def plots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where figures go."""
    monkeypatch.setenv(notebook.PLOTS, str(tmp_path / "plots"))
    return tmp_path / "plots"


def assert_shown(path: Path, out: str, plots: Path) -> None:
    for text in SHOWN[path.stem]:
        assert text in out
    for figure in set(re.findall(r"show\(figure, \"(\w+)\"\)", path.read_text(encoding="utf-8"))):
        assert (plots / f"{figure}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_defines_nothing_and_asks_for_nothing_that_serverless_lacks(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "def " not in text, "a notebook defines nothing"
    assert not CLASSIC_ONLY.search(text)
    assert text.count("# MAGIC %pip") == text.count("# MAGIC %restart_python") == 1
    assert all(len(line) <= 110 for line in text.splitlines())


@pytest.mark.parametrize(
    "path",
    [NOTEBOOKS[0], *(pytest.param(path, marks=pytest.mark.long) for path in NOTEBOOKS[1:])],
    ids=lambda path: path.stem,
)
def test_a_notebook_runs_with_widgets_and_shows_what_it_did(
    path: Path,
    spark: SparkSession,
    sampled: str,
    tmp_path: Path,
    plots: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert spark is not None  # the session that open_session finds, as it does on Databricks
    reads_only = path in {STALLED, MIN_IDLE}
    where = sampled if reads_only else str(tmp_path / "store")
    run_cells(path, store=where)
    assert_shown(path, capsys.readouterr().out, plots)
    assert (Path(where) / "pending").is_dir()


@pytest.mark.parametrize("left", ["all of its tables", "one of its tables"])
@pytest.mark.parametrize("path", WITH_SAMPLES, ids=lambda path: path.stem)
def test_a_notebook_that_writes_samples_refuses_a_store_that_is_there_and_leaves_it_as_it_is(
    path: Path, left: str, spark: SparkSession, store_path: Path
) -> None:
    assert spark is not None
    if left == "one of its tables":
        (store_path / "pending").rename(store_path.parent / "pending")
        shutil.rmtree(store_path)
        store_path.mkdir()
        (store_path.parent / "pending").rename(store_path / "pending")
    before = files(store_path)
    with pytest.raises(StoreExistsError, match=r"is a store already.*give a new store"):
        run_cells(path, store=str(store_path))
    assert files(store_path) == before


def files(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.long
@pytest.mark.parametrize("keyspace", [{}, sample_keyspace(NOW_MS)], ids=["nothing", "entries"])
@pytest.mark.parametrize("path", [STALLED, MIN_IDLE], ids=lambda path: path.stem)
def test_of_a_store_without_a_snapshot_a_notebook_says_so_and_has_no_chart_over_time(
    path: Path, keyspace: Keyspace, store: Store, plots: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_keyspace(store, keyspace, NOW_MS)
    run_cells(path, store=store.where)
    out = capsys.readouterr().out
    assert (
        "The store has no finished snapshot with a time, so there is nothing to show over time.\n"
    ) in out
    assert "nan" not in out
    drawn = {"02_idle_times.png", "02_delivery_counts.png"} if path == STALLED else set()
    assert {plot.name for plot in plots.glob("*")} == drawn


@pytest.mark.long
@pytest.mark.usefixtures("plots")
def test_names_that_mean_something_to_a_plot_or_a_terminal_are_shown_as_they_are_or_written_out(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    owners = {b"_": b"a$_$b", b"$x_$ s": b"c", b"\x1b[31mred": b"\x1b[0m"}
    batches = [
        stream(name, dict.fromkeys(range(1, count), owner), set(range(1, count)), NOW_MS)
        for count, (name, owner) in zip((4, 3, 2), owners.items(), strict=True)
    ]
    snapshot(store, ANY, lambda _: source(*batches))
    variables = run_cells(STALLED, store=store.where)
    shown = ["_ / a$_$b", "$x_$ s / c", r"\u001b[31mred / \u001b[0m"]
    assert [panel.get_ylabel() for panel in variables["panels"]] == shown
    assert [text.get_text() for text in variables["above"].get_legend().get_texts()] == shown
    run_cells(MIN_IDLE, store=store.where)
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.usefixtures("plots")
def test_what_a_sweep_deleted_does_not_count_as_acknowledged_by_its_owner(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """The documented loop on a trimmed stream: snapshot, sweep, its commands, snapshot."""
    hour_ms, owners = 3_600_000, dict.fromkeys(range(1, 6), b"bob")
    snapshot(store, ANY, lambda _: source(stream(b"s", owners, {1, 5}, hour_ms)))
    sweep = SweepRequest(AutoclaimRequest(b"r", 60_000))
    assert xautoclaim(store, sweep).counts["deleted"] == 3
    later = stream(b"s", {}, {1, 5}, 2 * hour_ms)
    snapshot(store, ANY, lambda _: source(later))
    (row,) = run_cells(MIN_IDLE, store=store.where, values="15m")["table"].to_dict("records")
    assert (row["claimed"], row["acknowledged"], row["deleted"]) == (5, 2, 3)
    assert row["done_twice"] == "40%"
    assert "deleted" in capsys.readouterr().out


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.long
def test_a_notebook_runs_as_a_script(
    path: Path,
    spark: SparkSession,
    sampled: str,
    tmp_path: Path,
    plots: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert spark is not None
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    is_given = (
        path.stem == "03_min_idle"
    )  # it makes the sample of 02_stalled, or takes what is given
    if is_given:
        monkeypatch.setenv("NOTEBOOK_STORE", sampled)
    if path.stem == "04_recovery":  # nothing of its sample has been idle for so long
        monkeypatch.setenv("NOTEBOOK_MIN_IDLE", "1h")
    runpy.run_path(str(path), run_name="__main__")
    out = capsys.readouterr().out
    assert_shown(path, out, plots)
    assert f"the store: {sampled if is_given else tmp_path}" in out


# ------------------------------------------------------------------- claimlib.notebook


def test_without_widgets_a_value_comes_from_the_environment_else_it_is_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NOTEBOOK_MIN_IDLE", "1h")
    values = notebook.widget_values(None, min_idle=("15m", "how long"), consumer=("carol", "who"))
    assert values == {"min_idle": "1h", "consumer": "carol"}


def test_with_widgets_a_value_is_theirs() -> None:
    dbutils = SimpleNamespace(widgets=Widgets(store="main.streams"))
    values = notebook.widget_values(dbutils, store=("", "store"), min_idle=("15m", "how long"))
    assert values == {"store": "main.streams", "min_idle": "15m"}


def test_a_sample_is_a_new_schema_of_the_current_catalog_on_databricks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    spark = SimpleNamespace(catalog=SimpleNamespace(currentCatalog=lambda: "main"))
    places = {notebook.sample_place(spark, "series") for _ in range(2)}
    assert len(places) == 2
    assert all(re.fullmatch(r"main\.claimlib_series_[0-9a-f]{8}", place) for place in places)


class Drawn:
    """A figure."""

    def savefig(self, fname: object, *, format: str, dpi: float) -> None:  # noqa: A002 - matplotlib's own name
        assert (format, dpi > 0) == ("png", True)
        fname.write(b"picture")


def test_in_a_notebook_a_figure_is_displayed(monkeypatch: pytest.MonkeyPatch, plots: Path) -> None:
    displayed: list[object] = []
    ipython = ModuleType("IPython")
    ipython.get_ipython = object
    display = ModuleType("IPython.display")
    display.display, display.Image = displayed.append, lambda data: ("image", data)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    notebook.show(Drawn(), "some")
    assert displayed == [("image", b"picture")]
    assert not plots.exists()


def test_anywhere_else_it_is_a_file_that_is_named(
    monkeypatch: pytest.MonkeyPatch, plots: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    notebook.show(Drawn(), "some")
    assert (plots / "some.png").read_bytes() == b"picture"
    assert capsys.readouterr().out == f"figure: {plots / 'some.png'}\n"
