"""A sweep on a standalone cluster, whose executors have the package from --py-files alone."""

import shutil
from zipfile import ZipFile

import pytest

from claimlib.store.tables import Store
from tests.bench.check import Result, differ
from tests.bench.data import CONSUMER, MIN_IDLE_MS
from tests.bench.result import History
from tests.bench.store import make
from tests.cluster.jars import copy_jars
from tests.cluster.standalone import (
    bare_python,
    killing_workers,
    package_zip,
    standalone,
    submit,
)

pytestmark = pytest.mark.environment

# More than `FEW_ROWS`: fewer would be applied by the driver alone.
ROWS = 60_000
SWEEP = ("--consumer", CONSUMER, "--min-idle", f"{MIN_IDLE_MS}ms", "--run-id", "r")


@pytest.fixture(scope="module")
def made(spark, empty_store, tmp_path_factory):
    where = shutil.copytree(empty_store, tmp_path_factory.mktemp("made") / "store")
    make(Store.open(spark, str(where)), ROWS)
    return where


@pytest.fixture(scope="module")
def cluster():
    with standalone(workers=2) as running:
        yield running


@pytest.fixture(scope="module")
def renamed_wheel(wheel, tmp_path_factory):
    """The wheel under a name with which Spark puts it on the path of the executors."""
    return shutil.copy(wheel, tmp_path_factory.mktemp("renamed") / "claimlib.zip")


def test_a_wheel_has_all_that_make_zip_packs(renamed_wheel, tmp_path):
    with ZipFile(renamed_wheel) as wheel, ZipFile(package_zip(tmp_path / "claimlib.zip")) as made:
        packed = {name: made.read(name) for name in made.namelist()}
        assert {name: wheel.read(name) for name in packed} == packed


def test_a_sweep_whose_workers_are_killed_decides_and_writes_what_the_formula_says(
    spark, cluster, made, renamed_wheel, tmp_path
):
    where, ivy = shutil.copytree(made, tmp_path / "store"), tmp_path / "ivy"
    # As on a host without a way to Maven Central, which has a wheel and what `make jars` copies.
    jars = ",".join(map(str, copy_jars(spark, tmp_path / "jars")))
    conf = {"spark.jars": jars, "spark.jars.packages": "", "spark.jars.ivy": str(ivy)}
    words = ("xautoclaim.py", str(where), *SWEEP)
    with submit(cluster, renamed_wheel, bare_python(tmp_path), *words, conf=conf) as process:
        said = killing_workers(process, cluster, "decide", "apply")
    assert process.returncode == 0, said
    assert not ivy.exists()
    store = Store.open(spark, str(where))
    differing = differ({"": Result(store, History(ROWS))})
    assert {table: n for table, n in differing.items() if n} == {}


def test_executors_without_the_package_are_named_with_the_remedy_and_nothing_is_written(
    spark, cluster, made, tmp_path
):
    where = shutil.copytree(made, tmp_path / "store")
    # Python workers that lack the package lack it at each attempt.
    once = {"spark.task.maxFailures": "1"}
    words = ("xautoclaim.py", str(where), *SWEEP)
    with submit(cluster, None, bare_python(tmp_path), *words, conf=once) as process:
        said, _ = process.communicate(timeout=600)
    assert process.returncode == 1, said
    (error,) = [line for line in said.splitlines() if line.startswith("claimlib: error: ")]
    assert "spark-submit --py-files claimlib.zip" in error
    assert Store.open(spark, str(where)).read("runs").isEmpty()


def test_a_store_that_is_not_there_ends_spark_submit_with_the_code_of_the_command(
    cluster, tmp_path
):
    words = ("xautoclaim.py", str(tmp_path / "absent"), *SWEEP)
    with submit(cluster, None, bare_python(tmp_path), *words) as process:
        said, _ = process.communicate(timeout=600)
    assert process.returncode == 4, said
    assert f"claimlib: error: no store at {tmp_path / 'absent'}" in said
