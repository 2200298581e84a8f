"""`make bench ROWS=1000000`: a sweep over made-up rows, timed, and its result checked."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from claimlib import exits
from claimlib.commands.reply import Reply
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.model import AutoclaimRequest
from claimlib.plans.keys import bucket
from claimlib.schema import TABLES
from claimlib.session import open_session
from claimlib.store import Store, arranged
from claimlib.testing import bench_data, event_log
from claimlib.testing.bench_data import CONSUMER, MIN_IDLE_MS, NOW_MS
from claimlib.testing.event_log import EventLog

PAGE = SweepRequest(
    AutoclaimRequest(CONSUMER.encode(), MIN_IDLE_MS, count=100), stream_glob="stream-00000"
)
SWEEP = SweepRequest(AutoclaimRequest(CONSUMER.encode(), MIN_IDLE_MS))
_SMALL = 2000
T = TypeVar("T")
# When a part began and ended, ms since the epoch.
Span = tuple[float, float]


def main() -> int:
    """Make the rows, sweep them, check the result, say how long each part took; the exit code."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="pending entries")
    parser.add_argument("--shape", choices=["many"], default="many", help="many groups, one large")
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
        document = run(spark, folder, asked.rows, watch, flip=asked.flip)
        spark.stop()
        document["read"] = _read(event_log.read(str(events)), watch.spans)
    sys.stdout.write(f"{json.dumps(document)}\n")
    return exits.DONE if not document["streams_that_differ"] else exits.OUR_FAULT


@dataclass
class Watch:
    """What is measured while the parts of a benchmark run.

    Attributes:
        spans: when each part began and ended.
        phases: of each run the seconds of its phases.
        peak_mib: the highest resident size of the JVM and of a Python worker.
    """

    spans: dict[str, Span] = field(default_factory=dict)
    phases: dict[str, dict[str, float]] = field(default_factory=dict)
    peak_mib: dict[str, int] = field(default_factory=dict)

    def time(self, name: str, work: Callable[[], T]) -> T:
        """The result of a part."""
        since = time.time()
        result = work()
        self.spans[name] = since * 1000, time.time() * 1000
        return result

    def claim(self, name: str, store: Store, request: SweepRequest) -> Reply:
        """The reply of a run."""
        entered: list[tuple[str, float]] = []

        def enter(phase: str, detail: str) -> None:
            del detail
            entered.append((phase, time.monotonic()))
            # Not only at the end: a worker that has had nothing to do for a minute is gone.
            for process, mib in peak_mib().items():
                self.peak_mib[process] = max(mib, self.peak_mib.get(process, 0))

        reply = self.time(name, lambda: xautoclaim(store, request, progress=enter))
        enter("end", "")
        self.phases[name] = {
            phase: round(until - since, 2) for (phase, since), (_, until) in pairwise(entered)
        }
        return reply


def run(
    spark: SparkSession, folder: str, rows: int, watch: Watch, *, flip: bool
) -> dict[str, object]:
    """The benchmark's document: seconds by part and phase, and whether the result is right.

    A page, and what it is compared with (the same page of an empty store and of a small one), run
    twice: the second time in a warm JVM.  What pages have claimed, the sweep leaves alone.
    """
    store = watch.time("init", lambda: Store.init(spark, f"{folder}/store"))
    watch.time("make rows", lambda: _make(store, rows))
    empty, small = (Store.init(spark, f"{folder}/{name}") for name in ("empty", "small"))
    _make(small, _SMALL)
    pages = {"page": store, "page of an empty store": empty, f"page of {_SMALL} rows": small}
    for name, one in [*pages.items(), *pages.items()]:
        watch.claim(name, one, PAGE)
    reply = watch.claim("sweep", store, SWEEP)
    if flip:
        _flip(store)
    seconds = {
        name: round((until - since) / 1000, 2) for name, (since, until) in watch.spans.items()
    }
    return {
        "rows": rows,
        "groups": bench_data.groups_of(rows),
        "seconds": seconds,
        "seconds_by_phase": watch.phases,
        "counts": dict(sorted(reply.counts.items())),
        "peak_mib": watch.peak_mib,
        "streams_that_differ": bench_data.differences(spark, rows, store.read("pending")).count(),
    }


def _flip(store: Store) -> None:
    """Change the first row, so that the result is wrong."""
    first = store.read("pending").agg(F.min("id_ms").alias("id_ms")).first()
    store.spark.sql(
        f"UPDATE {store.identifier('pending')} SET delivery_count = delivery_count + 1"
        f" WHERE id_ms = {first['id_ms'] if first is not None else 0:d}"
    )


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


def _make(store: Store, rows: int) -> None:
    pending = bench_data.pending(store.spark, rows)
    kept = pending.drop("is_gone", "is_due").withColumn("run_seq", F.lit(0))
    kept = kept.withColumn("bucket", bucket(store.buckets))
    store.append("pending", arranged(TABLES["pending"], kept))
    entries = pending.where("NOT is_gone").select("stream", "id_ms", "id_seq")
    fields = F.array(
        F.struct(F.lit(b"field").alias("name"), F.encode("stream", "UTF-8").alias("value"))
    )
    entries = entries.withColumns({"fields": fields, "run_seq": F.lit(0)})
    entries = entries.withColumn("bucket", bucket(store.buckets))
    store.append("entries", arranged(TABLES["entries"], entries))
    # As a snapshot proves it: from the first to the last pending id.
    streams = pending.groupBy("stream").agg(
        F.count("*").alias("length"),
        *(F.min(f"id_{part}").alias(f"complete_from_{part}") for part in ("ms", "seq")),
        *(F.max(f"id_{part}").alias(f"complete_to_{part}") for part in ("ms", "seq")),
    )
    store.append("streams", streams.withColumn("run_seq", F.lit(0)))
    groups = streams.select(
        "stream",
        F.lit("workers").alias("consumer_group"),
        F.lit(-1).alias("last_delivered_ms"),
        F.lit(-1).alias("last_delivered_seq"),
        F.lit(NOW_MS).alias("snapshot_ms"),
        F.lit(0).alias("run_seq"),
    )
    store.append("groups", groups)


def peak_mib() -> dict[str, int]:
    """The largest resident size that this process' JVM, and any Python worker of it that still
    lives, had."""
    peaks = {"jvm": 0, "python worker": 0}
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            lines = (folder / "status").read_text().splitlines()
        except OSError:
            continue
        found[folder.name] = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    # The JVM is a child of this process, the workers' daemon one of the JVM, the workers of that.
    for pid, status in found.items():
        what = "jvm" if status["Name"] == "java" else "python worker"
        is_ours = what == "jvm" or status["Name"].startswith("python")
        if is_ours and "VmHWM" in status and str(os.getpid()) in _ancestors(pid, found):
            peaks[what] = max(peaks[what], int(status["VmHWM"].split()[0]) // 1024)
    return peaks


def _ancestors(pid: str, processes: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    while pid in processes:
        pid = processes[pid]["PPid"]
        yield pid


if __name__ == "__main__":
    sys.exit(exits.ending(main))
