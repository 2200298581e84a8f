"""XCLAIM beside a sweep that claims as many, and XPENDING, over the same made-up rows.

A tenth of the rows is due.  A sweep claims them in one store; in a copy of it XCLAIMs, one request
per group, claim them by their ids.  Both must leave what a formula says.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial

from pyspark.sql import SparkSession

from claimlib.commands.input_tables import read_input
from claimlib.commands.xclaim import xclaim
from claimlib.commands.xpending import pending_overview, pending_range, read_store
from claimlib.runs import Progress
from claimlib.semantics.ids import MAX_ID, MIN_ID
from claimlib.semantics.model import PendingRange
from claimlib.store.tables import Store
from tests.bench import data
from tests.bench.check import Measured, Result
from tests.bench.data import GROUP, Shape
from tests.bench.result import History
from tests.bench.store import Watch, make, seconds_of, sweep

TENTH = Shape(due_of=10)
RANGE = PendingRange(MIN_ID, MAX_ID, 100)
_SMALL = 2000


def run(spark: SparkSession, folder: str, rows: int, watch: Watch) -> Measured:
    """The benchmark's document (seconds by part and phase), and the two results.

    All of it is done with a small store first, so that the JVM is warm for both.
    """
    compared(spark, f"{folder}/small", _SMALL, Watch())
    results = compared(spark, f"{folder}/large", rows, watch)
    seconds = seconds_of(watch)
    document: dict[str, object] = {
        "rows": rows,
        "requests": TENTH.groups_of(rows),
        "seconds": seconds,
        "seconds_by_phase": watch.phases,
        "xclaim_of_sweep": round(seconds["xclaim"] / seconds["sweep"], 2),
        "peak_mib": watch.peak_mib,
    }
    return Measured(document, results)


def compared(spark: SparkSession, where: str, rows: int, watch: Watch) -> dict[str, Result]:
    """The store that was swept, and the one on which the same was claimed by ids."""
    swept = watch.time("init", lambda: Store.init(spark, f"{where}/swept"))
    watch.time("make rows", lambda: make(swept, rows, TENTH))
    shutil.copytree(f"{where}/swept", f"{where}/claimed")
    claimed = Store.open(spark, f"{where}/claimed")
    data.claims(spark, rows, TENTH).write.parquet(f"{where}/requests")
    watch.time("xpending", _overview(swept))
    watch.time("xpending of a group", _range(swept))
    watch.run("sweep", partial(sweep, swept))
    watch.run("xclaim", partial(_claim, claimed, f"{where}/requests"))
    return {
        "of the sweep": Result(swept, History(rows, TENTH)),
        "of xclaim": Result(claimed, History(rows, TENTH, command="xclaim")),
    }


def _overview(store: Store) -> Callable[[], object]:
    return lambda: pending_overview(read_store(store)).count()


def _range(store: Store) -> Callable[[], object]:
    stream, group = b"stream-00001", GROUP.encode()
    return lambda: pending_range(read_store(store), stream, group, RANGE).collect()


def _claim(store: Store, requests: str, progress: Progress) -> object:
    return xclaim(store, read_input(store, requests), progress=progress)
