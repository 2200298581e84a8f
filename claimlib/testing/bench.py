"""`make bench ROWS=1000000`: a sweep over made-up rows, timed, and its result checked."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from claimlib import exits
from claimlib.commands.reply import Reply
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.model import AutoclaimRequest
from claimlib.runs import Progress
from claimlib.session import open_session
from claimlib.store import Store
from claimlib.testing import bench_claims, bench_data, event_log
from claimlib.testing.bench_data import CONSUMER, MIN_IDLE_MS
from claimlib.testing.bench_store import Span, Watch, flip_first, make, seconds_of
from claimlib.testing.event_log import EventLog

PAGE = SweepRequest(
    AutoclaimRequest(CONSUMER.encode(), MIN_IDLE_MS, count=100), stream_glob="stream-00000"
)
SWEEP = SweepRequest(AutoclaimRequest(CONSUMER.encode(), MIN_IDLE_MS))
_SMALL = 2000


def main() -> int:
    """Make the rows, sweep them, check the result, say how long each part took; the exit code."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="pending entries")
    parser.add_argument(
        "--shape",
        choices=["many", "claims"],
        default="many",
        help="many: a sweep of many groups, one of them large; claims: the same claims by XCLAIM",
    )
    parser.add_argument("--driver-memory", default="4g")
    parser.add_argument("--flip", action="store_true", help="spoil one row: the check must see it")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        events = Path(folder, "events")
        events.mkdir()
        spark = open_session(
            driver_memory=asked.driver_memory,
            java_options=event_log.options(str(events)),
            muted=True,
        )
        watch = Watch()
        if asked.shape == "claims":
            document = bench_claims.run(spark, folder, asked.rows, watch, flip=asked.flip)
        else:
            document = run(spark, folder, asked.rows, watch, flip=asked.flip)
        spark.stop()
        document["read"] = _read(event_log.read(str(events)), watch.spans)
    sys.stdout.write(f"{json.dumps(document)}\n")
    return exits.DONE if not document["streams_that_differ"] else exits.OUR_FAULT


def run(
    spark: SparkSession, folder: str, rows: int, watch: Watch, *, flip: bool
) -> dict[str, object]:
    """The benchmark's document: seconds by part and phase, and whether the result is right.

    A page, and what it is compared with (the same page of an empty store and of a small one), run
    twice: the second time in a warm JVM.  What pages have claimed, the sweep leaves alone.
    """
    store = watch.time("init", lambda: Store.init(spark, f"{folder}/store"))
    watch.time("make rows", lambda: make(store, rows))
    empty, small = (Store.init(spark, f"{folder}/{name}") for name in ("empty", "small"))
    make(small, _SMALL)
    pages = {"page": store, "page of an empty store": empty, f"page of {_SMALL} rows": small}
    for name, one in [*pages.items(), *pages.items()]:
        watch.run(name, _claim(one, PAGE))
    reply = watch.run("sweep", _claim(store, SWEEP))
    if flip:
        flip_first(store)
    return {
        "rows": rows,
        "groups": bench_data.groups_of(rows),
        "seconds": seconds_of(watch),
        "seconds_by_phase": watch.phases,
        "counts": dict(sorted(reply.counts.items())),
        "peak_mib": watch.peak_mib,
        "streams_that_differ": bench_data.differences(
            spark, bench_data.expected(spark, rows), store.read("pending")
        ).count(),
    }


def _claim(store: Store, request: SweepRequest) -> Callable[[Progress], Reply]:
    return lambda progress: xautoclaim(store, request, progress=progress)


def _read(log: EventLog, spans: Mapping[str, Span]) -> dict[str, dict[str, float]]:
    """What each part read of the stores' tables: how often a file was opened, how large those files
    are, and the bytes that were read (the tables' logs included)."""
    return {name: _totals(log.between(*span)) for name, span in spans.items()}


def _totals(log: EventLog) -> dict[str, float]:
    return {
        "files": sum(scan.files for scan in log.scans),
        "files_mib": round(sum(scan.file_bytes for scan in log.scans) / 2**20, 1),
        "read_mib": round(sum(task.bytes_read for task in log.tasks) / 2**20, 1),
    }


if __name__ == "__main__":
    sys.exit(exits.ending(main))
