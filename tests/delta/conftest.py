"""Modules beside the tests (`pels`, `reading`) are imported by their plain names."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.delta.one_run import OneRun

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def one_run(
    spark: SparkSession, empty_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> OneRun:
    """The one run over all streams that can be swept together, for all tests that look at it."""
    from claimlib.store import Store
    from tests.delta.one_run import sweep_everything

    where = shutil.copytree(empty_store, tmp_path_factory.mktemp("one") / "store")
    return sweep_everything(Store.open(spark, str(where)))
