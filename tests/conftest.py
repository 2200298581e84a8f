"""One Spark for the whole run, started by the first test that asks; one store per test."""

from __future__ import annotations

import gc
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import durations, examples
from tests.limits import set_limits
from tests.quick_spark import APP_NAME, quick_session

if TYPE_CHECKING:
    import redis
    from pyspark.sql import SparkSession

    from claimlib.engine.relation import Executor
    from claimlib.store.tables import Store
    from claimlib.testing.server_process import Server
    from tests.delta.own_rows import Opener


__all__ = ["examples"]  # imported for the profiles that it registers


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--engine",
        choices=["embedded", "spark"],
        default="spark" if "SPARK_REMOTE" in os.environ else "embedded",
        help="the engine of a store whose test does not choose one",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the files: first those that use Spark, then the longest and the new ones.

    The times are those of durations.json.  Coverage is measured in the unit tests only, because it
    slows down every call.
    """
    seconds = durations.recorded()
    for item in items:
        if not item.nodeid.startswith("tests/unit/"):
            item.add_marker("no_cover")
        if "spark" in getattr(item, "fixturenames", ()):
            item.user_properties.append(durations.USES_SPARK)

    def order(item: pytest.Item) -> tuple[bool, float, str]:
        file = _file(item.nodeid)
        return file not in durations.on_spark(), -seconds.get(file, math.inf), file

    items.sort(key=order)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Give all files that use Spark to one of two workers, so that Spark starts once.

    It takes `--dist loadfile`.  Every other file is a group of its own.  With `--engine spark`, all
    files need Spark.
    """
    if config.getoption("dist") != "loadfile" or config.getoption("engine") != "embedded":
        return None
    from xdist.scheduler.loadscope import LoadScopeScheduling

    def group_of(nodeid: str) -> str:
        file = _file(nodeid)
        return "spark" if file in durations.on_spark() else file

    scheduler = LoadScopeScheduling(config, log)
    # The method that subclasses override, as pytest-xdist documents.
    scheduler._split_scope = group_of
    return scheduler


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = quick_session()
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _starts_no_other_spark(request: pytest.FixtureRequest) -> Iterator[None]:
    """A Spark that a test starts by itself would be the one of all tests after it."""
    yield
    if _file(request.node.nodeid) in durations.STARTERS:
        request.node.user_properties.append(durations.USES_SPARK)
    core = sys.modules.get("pyspark.core.context")
    context = core.SparkContext._active_spark_context if core else None
    if context is not None and context.appName != APP_NAME:
        context.stop()
        pytest.fail("The test started Spark: it needs the fixture `spark`.")


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A real Valkey server; `client` empties it."""
    from claimlib.testing.server_process import valkey_server

    with valkey_server() as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    """Another client of the server, which is empty and lets it do anything."""
    with server.client() as connected:
        connected.flushall()
        yield connected


@pytest.fixture(scope="module", params=["embedded", pytest.param("spark", marks=pytest.mark.long)])
def engine(request: pytest.FixtureRequest) -> Executor:
    """Each engine by itself, for relations of rows in memory."""
    from tests.spark.literal import LiteralStore

    is_spark = request.param == "spark"
    spark = request.getfixturevalue("spark") if is_spark else None
    return LiteralStore(spark, request.param).engine


@pytest.fixture(scope="module", autouse=True)
def _frames_are_let_go() -> Iterator[None]:
    """The JVM keeps the plan of each DataFrame, and what Delta knows of its tables, for as long as
    Python has the object.  Python looks for what is no longer used ever less often; meanwhile the
    JVM's heap fills, and half of its time goes into looking for room in it."""
    yield
    gc.collect()


def by_spark_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No table is taken for small, and nothing is computed without Spark."""
    set_limits(monkeypatch, session_rows=0, fetched_rows=0, table_bytes=0)
    monkeypatch.setattr("claimlib.store.tables.has_embedded_packages", lambda: False)


@pytest.fixture
def large_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark reads the two tables that grow, however few rows they have."""
    from claimlib.store.logs import Logs

    local = Logs.local
    set_limits(monkeypatch, fetched_rows=0)
    monkeypatch.setattr(
        Logs,
        "local",
        lambda self, table: None if table in {"pending", "entries"} else local(self, table),
    )


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a store as `init` leaves it; tests copy it, which is faster than making one."""
    from claimlib.store.creation import create
    from claimlib.store.definitions import FolderDefinitions

    where = tmp_path_factory.mktemp("empty") / "store"
    definitions = FolderDefinitions.find(_no_session, str(where))
    assert definitions is not None
    create(definitions)
    return where


def _no_session() -> SparkSession:
    raise AssertionError("Spark is not needed")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the package."""
    folder = tmp_path_factory.mktemp("dist")
    root = Path(__file__).parents[1]
    words = ("uv", "build", "--quiet", "--wheel", "--out-dir", str(folder), str(root))
    subprocess.run(words, check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture
def store_path(empty_store: Path, tmp_path: Path) -> Path:
    """The folder of a new store."""
    return shutil.copytree(empty_store, tmp_path / "store")


@pytest.fixture(scope="session")
def spark_if_needed(request: pytest.FixtureRequest) -> Callable[[], SparkSession]:
    """Start Spark when the function is called."""

    def start() -> SparkSession:
        durations.STARTERS.add(_file(os.environ["PYTEST_CURRENT_TEST"]))
        session: SparkSession = request.getfixturevalue("spark")
        return session

    return start


@pytest.fixture(scope="session")
def open_store(
    request: pytest.FixtureRequest, spark_if_needed: Callable[[], SparkSession]
) -> Opener:
    """Open a store in a folder with the engine of `--engine`."""
    from claimlib.store.opening import open_folder
    from claimlib.store.tables import Store

    if request.config.getoption("--engine") == "spark":
        return lambda where: Store.open(spark_if_needed(), str(where))
    return lambda where: open_folder(spark_if_needed, str(where))


@pytest.fixture
def store(open_store: Opener, store_path: Path) -> Store:
    """A new store, of the engine of `--engine`."""
    return open_store(store_path)


@pytest.fixture
def folder_store(spark_if_needed: Callable[[], SparkSession], store_path: Path) -> Store:
    """Create a store of the embedded engine, even with `--engine spark`."""
    from claimlib.store.opening import open_folder

    return open_folder(spark_if_needed, str(store_path))


@pytest.fixture(params=["few rows", pytest.param("many rows", marks=pytest.mark.long)])
def each_store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Create a store, of the engine of `--engine`, and one that Spark treats as large."""
    if request.param == "few rows":
        return request.getfixturevalue("store")
    by_spark_alone(monkeypatch)
    return request.getfixturevalue("spark_store")


@pytest.fixture
def spark_store(spark: SparkSession, store_path: Path) -> Store:
    """A new store, open in Spark: for tests of what only Spark does."""
    from claimlib.store.tables import Store

    return Store.open(spark, str(store_path))
