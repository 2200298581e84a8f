"""`make bench ROWS=1000000`: a sweep over made-up rows, timed, and its result checked."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from claimlib import process, terminal
from claimlib.commands.reply import Reply
from claimlib.commands.xautoclaim import xautoclaim
from claimlib.runs import Progress
from claimlib.session import open_session
from claimlib.store.tables import Store
from tests.bench import check, claims, cold, data, event_log, fixed, flat, load, rivals
from tests.bench.check import Measured, Result
from tests.bench.event_log import EventLog
from tests.bench.result import History
from tests.bench.store import PAGE, Span, Watch, make, seconds_of, sweep

_PAGES = 2
_SMALL = 2000
# Each repeats what it compares.
_COMPARED = {
    "rivals": rivals,
    "fixed": fixed,
    "flat": flat,
    "load": load,
    "cold": cold,
}


def main() -> int:
    """Make the rows, sweep them, check the result, say how long each part took; the exit code."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="pending entries")
    parser.add_argument(
        "--shape",
        choices=["many", "claims", *_COMPARED],
        default="many",
        help="many: a sweep of many groups, one of them large; claims: the same claims by XCLAIM;"
        " rivals: the sweep beside plain Spark SQL and DuckDB;"
        " fixed: each command on a small store, beside an append; flat:"
        " run after run on one store; load: an import and a snapshot beside plain Spark SQL;"
        " cold: a sweep by spark-submit beside a job that does next to nothing",
    )
    parser.add_argument(
        "--data",
        choices=data.SHAPES,
        default="half",
        help="of rivals: half of the rows due, all in one group, in 200,000 groups"
        " (wider: a million), one in a hundred due (or the first hundredth: old), or streams with"
        " 20 entries for each that is pending",
    )
    parser.add_argument(
        "--times",
        type=int,
        default=3,
        help="of all but many and claims, after one (of flat, ten) to warm up",
    )
    parser.add_argument("--driver-memory", default="4g")
    parser.add_argument(
        "--max-result-size", default="1g", help="spark.driver.maxResultSize; 1g is Spark's default"
    )
    parser.add_argument(
        "--flip",
        choices=check.CHECKED,
        metavar="TABLE",
        help=f"spoil one row of {', '.join(check.CHECKED)}: the check must see it",
    )
    arguments = parser.parse_args()
    if arguments.shape != "many" and arguments.flip == "cursors":
        parser.error(f"there are no pages in the shape {arguments.shape}: no cursor can be spoilt")
    with tempfile.TemporaryDirectory() as folder:
        events = Path(folder, "events")
        events.mkdir()
        spark = open_session(
            driver_memory=arguments.driver_memory,
            java_options=event_log.options(str(events)),
            conf={"spark.driver.maxResultSize": arguments.max_result_size},
        )
        watch = Watch()
        shapes: dict[str, Callable[[SparkSession, str, int, Watch], Measured]] = {
            "many": run,
            "claims": claims.run,
            **{
                name: partial(module.run, data=arguments.data, times=arguments.times)
                for name, module in _COMPARED.items()
            },
        }
        measured = shapes[arguments.shape](spark, folder, arguments.rows, watch)
        if arguments.flip is not None:
            for result in measured.results.values():
                check.spoil(result.store, arguments.flip)
        differ = {**check.differ(measured.results), **measured.differ}
        spark.stop()
        checked = {"differ": differ, "read": _read(event_log.read(str(events)), watch.spans)}
    if arguments.shape == "rivals":
        terminal.err(rivals.markdown(measured.document))
    terminal.out(json.dumps(measured.document | checked))
    return process.DONE if not any(differ.values()) else process.OUR_FAULT


def run(spark: SparkSession, folder: str, rows: int, watch: Watch) -> Measured:
    """The benchmark's document (seconds by part and phase, and what was counted), and the result.

    A page, and what it is compared with (the same page of an empty store and of a small one), run
    twice: the second time in a warm JVM, and from where the first has ended.  What pages have
    claimed, the sweep leaves alone.
    """
    store = watch.time("init", lambda: Store.init(spark, f"{folder}/store"))
    watch.time("make rows", lambda: make(store, rows))
    empty, small = (Store.init(spark, f"{folder}/{name}") for name in ("empty", "small"))
    make(small, _SMALL)
    pages = {"page": store, "page of an empty store": empty, f"page of {_SMALL} rows": small}
    for name, paged in [*pages.items()] * _PAGES:
        watch.run(name, partial(_page, paged))
    reply = watch.run("sweep", partial(sweep, store))
    document: dict[str, object] = {
        "rows": rows,
        "groups": data.HALF.groups_of(rows),
        "seconds": seconds_of(watch),
        "seconds_by_phase": watch.phases,
        "counts": dict(sorted(reply.counts.items())),
        "peak_mib": watch.peak_mib,
    }
    return Measured(document, {"": Result(store, History(rows, pages=_PAGES))})


def _page(store: Store, progress: Progress) -> Reply:
    return xautoclaim(store, PAGE, progress=progress)


def _read(log: EventLog, spans: Mapping[str, Span]) -> dict[str, dict[str, float]]:
    """What each part did to the stores' tables: how often a file was opened, how large those files
    are, the bytes that were read and written (the tables' logs included), shuffled and spilled, and
    the queries (SQL executions) and jobs that it took."""
    return {name: _totals(log.between(*span)) for name, span in spans.items()}


def _totals(log: EventLog) -> dict[str, float]:
    return {
        "files": sum(scan.files for scan in log.scans),
        "files_mib": _mib(scan.file_bytes for scan in log.scans),
        **{f"{what}_mib": _mib(getattr(t, f"bytes_{what}") for t in log.tasks) for what in _BYTES},
        "queries": len(log.queries),
        "jobs": len(log.jobs),
    }


_BYTES = ("read", "written", "shuffled", "spilled")


def _mib(numbers: Iterable[int]) -> float:
    return round(sum(numbers) / 2**20, 1)


if __name__ == "__main__":
    sys.exit(process.ending(main))
