"""From nothing to a result: `spark-submit` of a sweep of a small store, beside that of a job which
reads one Delta table and appends a row to another."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from claimlib.store.tables import Store
from tests.bench.check import Measured
from tests.bench.data import CONSUMER
from tests.bench.store import Watch, copied, make, medians_of

ROOT = Path(__file__).parents[2]
_SWEEP, _BARE = "spark-submit of a sweep", "spark-submit of next to nothing"


def run(
    spark: SparkSession, folder: str, rows: int, watch: Watch, *, data: str, times: int
) -> Measured:
    """The benchmark's document: medians of seconds, after one of each to warm the disk up."""
    del data
    made = f"{folder}/made"
    make(Store.init(spark, made), rows)
    for number in range(times + 1):
        swept = copied(spark, made, f"{folder}/swept").where
        bare = (ROOT / "tests" / "bench" / "bare.py", f"{made}/pending", f"{folder}/written")
        sweep = (
            *(ROOT / "jobs" / "xautoclaim.py", swept, "--consumer", CONSUMER),
            *("--min-idle", "1m", "--output", "json"),
        )
        watch.time(f"{_BARE} {number}", partial(_submit, *bare))
        watch.time(f"{_SWEEP} {number}", partial(_submit, *sweep))
        if Store.open(spark, swept).read("journal").where("kind = 'claimed'").isEmpty():
            raise AssertionError("the sweep has claimed nothing")
    medians = medians_of(watch, (_SWEEP, _BARE), times)
    ratio = round(medians[_SWEEP] / medians[_BARE], 2)
    return Measured({"rows": rows, "times": times, "seconds": medians, "ratio": ratio}, {})


def _submit(*words: str | Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK_", "SPARK_"))}
    done = subprocess.run(
        [
            *(Path(sys.executable).parent / "spark-submit", "--properties-file"),
            *(ROOT / "conf" / "spark-defaults.conf", "--conf"),
            *(f"spark.pyspark.python={sys.executable}", *words),
        ],
        env={**environment, "PYTHONPATH": str(ROOT)},
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise AssertionError(f"spark-submit ended with {done.returncode}: {done.stderr[-2000:]}")
