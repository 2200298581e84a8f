"""Run after run on one store: what has gathered in its journal and its versions must not make the
next one slower."""

from __future__ import annotations

from functools import partial
from statistics import median

from pyspark.sql import SparkSession

from claimlib.commands.xautoclaim import xautoclaim
from claimlib.store.tables import Store
from tests.bench.check import Measured
from tests.bench.store import SWEEP, UNIT, Watch, append_one_row, hours_later_ms, make, seconds_of

_WARM_UP = 10
_MOST_COMPARED = 20


def run(
    spark: SparkSession, folder: str, rows: int, watch: Watch, *, data: str, times: int
) -> Measured:
    """The benchmark's document: medians of the first and of the last sweeps of `times` (and ten to
    warm up), and of the appends of one row to a table of their own that came between them.

    Raises:
        ValueError: there are not two sweeps to be compared.
    """
    if times < 2:
        raise ValueError(f"--times {times}: at least 2 sweeps can be compared")
    del data
    store = Store.init(spark, f"{folder}/store")
    watch.time("make rows", partial(make, store, rows))
    for number in range(_WARM_UP + times):
        sweep = partial(xautoclaim, store, SWEEP, now_ms=hours_later_ms(number))
        reply = watch.time(f"sweep {number}", sweep)
        if not reply.counts["claimed"]:
            raise AssertionError(f"sweep {number} has claimed nothing")
        watch.time(f"{UNIT} {number}", partial(append_one_row, spark, f"{folder}/unit"))
    seconds = seconds_of(watch)
    counted = range(_WARM_UP, _WARM_UP + times)
    compared = min(_MOST_COMPARED, times // 2)
    first, last = counted[:compared], counted[-compared:]
    document: dict[str, object] = {
        "rows": rows,
        "times": times,
        "seconds": {
            f"{which} {compared} of {name}": round(
                median(seconds[f"{name} {number}"] for number in numbers), 2
            )
            for name in ("sweep", UNIT)
            for which, numbers in (("first", first), ("last", last))
        },
        "peak_mib": watch.peak_mib,
    }
    return Measured(document, {}, {})
