"""`make bench ROWS=1000000`: a sweep over made-up rows, timed, and its result checked."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from claimlib import exits
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.model import AutoclaimRequest
from claimlib.plans.keys import bucket
from claimlib.schema import TABLES
from claimlib.session import open_session
from claimlib.store import Store, arranged
from claimlib.testing import bench_data
from claimlib.testing.bench_data import CONSUMER, MIN_IDLE_MS, NOW_MS

_PAGE = 100
T = TypeVar("T")


def main() -> int:
    """Make the rows, sweep them, check the result, say how long each part took; the exit code."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="pending entries")
    parser.add_argument("--shape", choices=["many"], default="many", help="many groups, one large")
    parser.add_argument("--driver-memory", default="4g")
    parser.add_argument("--flip", action="store_true", help="spoil one row: the check must see it")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spark = open_session(driver_memory=asked.driver_memory, muted=True)
        document = run(spark, f"{folder}/store", asked.rows, flip=asked.flip)
    sys.stdout.write(f"{json.dumps(document)}\n")
    return exits.DONE if not document["streams_that_differ"] else exits.OUR_FAULT


def run(spark: SparkSession, where: str, rows: int, *, flip: bool) -> dict[str, object]:
    """The benchmark's document: seconds by part and phase, and whether the result is right."""
    seconds: dict[str, float] = {}
    store = _timed(seconds, "init", lambda: Store.init(spark, where))
    _timed(seconds, "make rows", lambda: _make(store, rows))
    page = SweepRequest(
        AutoclaimRequest(CONSUMER.encode(), MIN_IDLE_MS, count=_PAGE), stream_glob="stream-00000"
    )
    _timed(seconds, "page, dry run", lambda: xautoclaim(store, page, dry_run=True))
    sweep = SweepRequest(AutoclaimRequest(CONSUMER.encode(), MIN_IDLE_MS))
    entered: list[tuple[str, float]] = []

    def enter(phase: str, detail: str) -> None:
        del detail
        entered.append((phase, time.monotonic()))

    reply = _timed(seconds, "sweep", lambda: xautoclaim(store, sweep, progress=enter))
    enter("end", "")
    if flip:
        first = store.read("pending").agg(F.min("id_ms").alias("id_ms")).first()
        spark.sql(
            f"UPDATE {store.identifier('pending')} SET delivery_count = delivery_count + 1"
            f" WHERE id_ms = {first['id_ms'] if first is not None else 0:d}"
        )
    differing = bench_data.differences(spark, rows, store.read("pending")).count()
    return {
        "rows": rows,
        "groups": bench_data.groups_of(rows),
        "seconds": seconds,
        "seconds_by_phase": {
            phase: round(until - since, 2) for (phase, since), (_, until) in pairwise(entered)
        },
        "counts": dict(sorted(reply.counts.items())),
        "peak_mib": _peak_mib(),
        "streams_that_differ": differing,
    }


def _timed(seconds: dict[str, float], name: str, work: Callable[[], T]) -> T:
    since = time.monotonic()
    result = work()
    seconds[name] = round(time.monotonic() - since, 2)
    return result


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
    streams = pending.groupBy("stream").agg(
        F.count("*").alias("length"),
        *(F.lit(0).alias(f"complete_from_{part}") for part in ("ms", "seq")),
        *(F.lit(-1).alias(f"complete_to_{part}") for part in ("ms", "seq")),
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


def _peak_mib() -> dict[str, int]:
    """The largest resident size that the JVM, and any Python worker that still lives, had."""
    peaks = {"jvm": 0, "python worker": 0}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = dict(
                line.split(":", 1) for line in (folder / "status").read_text().splitlines()
            )
            command = (folder / "cmdline").read_text()
        except OSError:
            continue
        if "VmHWM" not in status or int(folder.name) == os.getpid():
            continue
        peak = int(status["VmHWM"].split()[0]) // 1024
        if "org.apache.spark.deploy.SparkSubmit" in command:
            peaks["jvm"] = max(peaks["jvm"], peak)
        elif "pyspark.daemon" in command or "pyspark/daemon" in command:
            peaks["python worker"] = max(peaks["python worker"], peak)
    return peaks


if __name__ == "__main__":
    sys.exit(exits.ending(main))
