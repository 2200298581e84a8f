"""Two processes share the tests, each with a Spark of its own, started by the first test that asks;
one store per test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.quick_spark import quick_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from claimlib.store import Store


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one file stay in one process, as do all that look at `one_run`; those that use Spark
    are dealt out first, for they take longest."""
    for item in items:
        one_run = "one_run" in getattr(item, "fixturenames", ())
        group = "one_run" if one_run else str(item.path.relative_to(Path(__file__).parent))
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=_is_quick)


def _is_quick(item: pytest.Item) -> bool:
    return item.path.parent.name == "unit" or item.path.stem in {"test_connection", "test_reader"}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = quick_session()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def empty_store(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a store as `init` leaves it; tests copy it, which is faster than making one."""
    from claimlib.store import Store

    where = tmp_path_factory.mktemp("empty") / "store"
    Store.init(spark, str(where))
    return where


@pytest.fixture
def store_path(empty_store: Path, tmp_path: Path) -> Path:
    """The folder of a new store."""
    return shutil.copytree(empty_store, tmp_path / "store")


@pytest.fixture
def store(spark: SparkSession, store_path: Path) -> Store:
    """A new store."""
    from claimlib.store import Store

    return Store.open(spark, str(store_path))
