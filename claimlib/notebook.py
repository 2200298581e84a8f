"""Support notebooks, on Databricks and elsewhere.

This module reads the values that the user of a notebook chooses.  It also finds a place for sample
data, and shows figures.  It re-exports the functions of other modules that the notebooks use, so
that they import only this module.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
import uuid
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from claimlib import terminal
from claimlib.demo.death import Killed, die_at
from claimlib.demo.demo_series import write_series
from claimlib.demo.sample import sample_keyspace
from claimlib.errors import StoreExistsError
from claimlib.store.definitions import SparkDefinitions
from claimlib.store.tables import Store
from claimlib.terminal import one_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "PLOTS",
    "Figure",
    "Killed",
    "die_at",
    "new_sample_store",
    "one_line",
    "sample_keyspace",
    "sample_place",
    "show",
    "show_rows",
    "widget_values",
    "write_series",
]

_PREFIX = "NOTEBOOK_"
PLOTS = f"{_PREFIX}PLOTS"
"""The environment variable with the folder for figures, if a notebook runs as a script."""


class Figure(Protocol):
    """Define the method that a figure must have.  Figures of matplotlib have it."""

    def savefig(self, fname: Any, *, format: str, dpi: float) -> None:  # noqa: A002 - matplotlib's own name
        """Write the figure as a picture."""


def widget_values(dbutils: Any, **widgets: tuple[str, str]) -> dict[str, str]:
    """Return the values that the user of a notebook chooses, by name.

    Without Databricks, a value comes from its environment variable (`NOTEBOOK_STORE` for `store`),
    or is the default.

    Args:
        dbutils: Databricks' object of this name, which gets a widget for each value.  None outside
            Databricks.
        widgets: the default and the label of each value.
    """
    if dbutils is None:
        return {
            name: os.environ.get(f"{_PREFIX}{name.upper()}", default)
            for name, (default, _) in widgets.items()
        }
    for name, (default, label) in widgets.items():
        dbutils.widgets.text(name, default, label)
    return {name: dbutils.widgets.get(name) for name in widgets}


def sample_place(spark: SparkSession, name: str) -> str:
    """Return a new place for a store with sample data.

    On Databricks, the place is a schema of the current catalog, because a job cannot write to a
    local folder there.  Elsewhere, it is a temporary folder.  Each call returns another place.  It
    is not deleted automatically.  Remove it by DROP SCHEMA … CASCADE, or delete the folder.
    """
    if "DATABRICKS_RUNTIME_VERSION" in os.environ:
        return f"{spark.catalog.currentCatalog()}.claimlib_{name}_{uuid.uuid4().hex[:8]}"
    return str(Path(tempfile.mkdtemp(prefix=f"claimlib-{name}-")) / "store")


def new_sample_store(spark: SparkSession, where: str, name: str) -> Store:
    """Return a new store for sample data.

    Args:
        where: the place of the store.  If it is empty, `sample_place` chooses one.
        name: the name of the sample.

    Raises:
        StoreExistsError: a table of a store already exists there.  Nothing was written.  Without
            this error, the notebook would also claim the entries of that store.
    """
    if where and SparkDefinitions(spark, where).properties():
        raise StoreExistsError(
            f"{where} is a store already, and this notebook would write sample data into it and"
            " claim its entries. Nothing was done: give a new store, or leave `store` empty",
            where=where,
        )
    return Store.init(spark, where or sample_place(spark, name))


def show(figure: Figure, name: str) -> None:
    """Show a figure below the cell.

    Outside a notebook, write the picture `name`.png into a folder, and print its path.  The
    environment variable NOTEBOOK_PLOTS names the folder.  The default is the folder for temporary
    files.
    """
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    if _is_notebook():
        ipython = import_module("IPython.display")
        ipython.display(ipython.Image(data=picture.getvalue()))
        return
    folder = Path(os.environ.get(PLOTS) or tempfile.gettempdir())
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.png"
    file.write_bytes(picture.getvalue())
    terminal.out(f"figure: {file}")


def show_rows(rows: DataFrame) -> None:
    """Print rows as `rows.show()` does, with escapes for characters that control the terminal."""
    with redirect_stdout(io.StringIO()) as shown:
        rows.show()
    terminal.out(shown.getvalue().rstrip("\n"))


def _is_notebook() -> bool:
    """Return True if this process runs the cells of a notebook.

    In such a process, IPython is imported and active, because it runs the cells.
    """
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None
