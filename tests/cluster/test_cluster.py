"""A sweep on a standalone cluster, whose executors have the package from --py-files alone."""

import shutil

import pytest

from claimlib.store.tables import Store
from tests.bench.check import Result, differ
from tests.bench.data import CONSUMER, MIN_IDLE_MS
from tests.bench.result import History
from tests.bench.store import make
from tests.cluster.standalone import bare_python, package_zip, standalone, submit

ROWS = 2000
SWEEP = ("--consumer", CONSUMER, "--min-idle", f"{MIN_IDLE_MS}ms", "--run-id", "r")


@pytest.fixture(scope="module")
def made(spark, empty_store, tmp_path_factory):
    where = shutil.copytree(empty_store, tmp_path_factory.mktemp("made") / "store")
    make(Store.open(spark, str(where)), ROWS)
    return where


@pytest.fixture(scope="module")
def cluster():
    with standalone(workers=2) as one:
        yield one


def killing_a_worker_at(process, cluster, *phases):
    """What the process said; as each of the phases begins a worker is killed, and replaced."""
    said, left = [], list(phases)
    for line in process.stdout:
        said.append(line)
        if left and line.startswith(f"claimlib: {left[0]}"):
            left.pop(0)
            cluster.kill_worker()
            cluster.add_worker()
    return "".join(said)


def test_a_sweep_whose_workers_are_killed_decides_and_writes_what_the_formula_says(
    spark, cluster, made, tmp_path
):
    where = shutil.copytree(made, tmp_path / "store")
    package = package_zip(tmp_path / "claimlib.zip")
    words = ("xautoclaim.py", str(where), *SWEEP)
    with submit(cluster, package, bare_python(tmp_path), *words) as process:
        said = killing_a_worker_at(process, cluster, "decide", "apply")
    assert process.returncode == 0, said
    assert "claimlib: apply" in said
    store = Store.open(spark, str(where))
    found = differ({"": Result(store, History(ROWS))})
    assert {table: n for table, n in found.items() if n} == {}


def test_executors_without_the_package_are_named_with_the_remedy_and_nothing_is_written(
    spark, cluster, made, tmp_path
):
    where = shutil.copytree(made, tmp_path / "store")
    with submit(
        cluster, None, bare_python(tmp_path), "xautoclaim.py", str(where), *SWEEP
    ) as process:
        said, _ = process.communicate(timeout=600)
    assert process.returncode == 1, said
    (error,) = [line for line in said.splitlines() if line.startswith("claimlib: error: ")]
    assert "spark-submit --py-files claimlib.zip" in error
    assert Store.open(spark, str(where)).read("runs").isEmpty()
