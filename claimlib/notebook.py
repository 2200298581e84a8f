"""What a notebook needs besides the library itself, on Databricks and anywhere else: what its
reader asks for, a place for sample data, and figures that can be seen."""

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
from claimlib.demo.sample import sample_keyspace
from claimlib.demo.series import write_series
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
"""The environment variable with the folder for figures, where a notebook runs as a script."""


class Figure(Protocol):
    """What a figure must be able to do; those of matplotlib are."""

    def savefig(self, fname: Any, *, format: str, dpi: float) -> None:  # noqa: A002 - matplotlib's own name
        """Write the figure as a picture."""


def widget_values(dbutils: Any, **widgets: tuple[str, str]) -> dict[str, str]:
    """Return what the reader of a notebook asks for, by name.

    Args:
        dbutils: Databricks' object of that name: each value gets a widget.  Null: there is none,
            and a value comes from the environment (`NOTEBOOK_STORE` for `store`), else it is the
            default.
        widgets: of each value its default and its label.
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
    """Return where a store with sample data may be made: a schema of the current catalog on
    Databricks, where a job can write to no folder; a temporary folder anywhere else. It is a
    new one each time, and stays: remove it by DROP SCHEMA … CASCADE, or as a folder.
    """
    if "DATABRICKS_RUNTIME_VERSION" in os.environ:
        return f"{spark.catalog.currentCatalog()}.claimlib_{name}_{uuid.uuid4().hex[:8]}"
    return str(Path(tempfile.mkdtemp(prefix=f"claimlib-{name}-")) / "store")


def new_sample_store(spark: SparkSession, where: str, name: str) -> Store:
    """Return a new store for sample data.

    Args:
        where: its place; empty: `sample_place`.
        name: what the sample is called.

    Raises:
        StoreExistsError: a table of a store is there already.  Nothing was written: a notebook
            that goes on to claim would claim the entries of that store, too.
    """
    if where and SparkDefinitions(spark, where).properties():
        raise StoreExistsError(
            f"{where} is a store already, and this notebook would write sample data into it and"
            " claim its entries. Nothing was done: give a new store, or leave `store` empty",
            where=where,
        )
    return Store.init(spark, where or sample_place(spark, name))


def show(figure: Figure, name: str) -> None:
    """Show a figure below the cell; where no notebook runs it, as a picture in a file, `name`.png
    in the folder `NOTEBOOK_PLOTS` (default: the temporary one), and say where."""
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
    """What `rows.show()` prints, but that names of others cannot drive the terminal."""
    with redirect_stdout(io.StringIO()) as shown:
        rows.show()
    terminal.out(shown.getvalue().rstrip("\n"))


def _is_notebook() -> bool:
    """Whether cells are being run: then IPython is at work, imported by whoever started it."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None
