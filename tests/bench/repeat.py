"""A sweep after a sweep: incremental beside full, on copies of one store, in one process.

The first sweep finds nothing due and deletes what is dangling.  Then a thousandth of the entries is
deleted, and what has been idle for an hour becomes due.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.plans.journal_rows import OF_WHOLE_PELS
from claimlib.runs import Progress
from claimlib.semantics.model import AutoclaimRequest
from claimlib.store.tables import Store
from tests.bench.check import Measured, differing
from tests.bench.data import CONSUMER, SHAPES
from tests.bench.store import SWEEP, Watch, copied, make, medians_of

INCREMENTAL, FULL = "incremental", "full"
_NOTHING_DUE = SweepRequest(AutoclaimRequest(CONSUMER.encode(), 2 * 3_600_000))
_DELETED = "DELETE FROM {table} WHERE pmod(xxhash64('deleted', id_ms), 1000) = 0"


def run(
    spark: SparkSession, folder: str, rows: int, watch: Watch, *, data: str, times: int
) -> Measured:
    """The benchmark's document: medians of seconds, after one of each to warm up."""
    made = f"{folder}/made"
    store = Store.init(spark, made)
    watch.time("make rows", lambda: make(store, rows, SHAPES[data]))
    watch.run("first sweep", lambda tell: xautoclaim(store, _NOTHING_DUE, progress=tell))
    watch.time("delete entries", lambda: store.execute("entries", _DELETED))
    stores: dict[str, Store] = {}
    for number in range(times + 1):
        for name in (INCREMENTAL, FULL):
            stores[name] = copied(spark, made, f"{folder}/{name}")
            watch.run(f"{name} {number}", partial(_sweep, stores[name], name == INCREMENTAL))
    medians = medians_of(watch, (INCREMENTAL, FULL), times)
    document: dict[str, object] = {
        "rows": rows,
        "data": data,
        "times": times,
        "seconds": medians,
        "share": round(medians[INCREMENTAL] / medians[FULL], 3),
        "seconds_by_phase": watch.phases,
        "peak_mib": watch.peak_mib,
    }
    return Measured(document, {}, _differ(stores))


def _sweep(store: Store, incremental: bool, progress: Progress) -> None:
    counts = xautoclaim(store, SWEEP, incremental=incremental, progress=progress).counts
    if ("base_run" in counts) != incremental:
        raise AssertionError("an incremental sweep was full, or a full one was not")


def _differ(stores: Mapping[str, Store]) -> dict[str, int]:
    """Of how many streams the two sweeps say something else."""
    return {
        name: differing(name, *(_rows(stores[how], name) for how in (INCREMENTAL, FULL)))
        for name in ("journal", "pending", "tombstones")
    }


def _rows(store: Store, table: str) -> DataFrame:
    if table == "journal":
        # Of the runs themselves something must differ: how they were decided.
        return store.read(table).where("kind <> 'run'").drop(*OF_WHOLE_PELS)
    return store.read(table)
