"""What benchmarks have in common: stores of made-up rows, and what is measured of their parts."""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import TypeVar

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from claimlib.commands.reply import Reply
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.runs import Progress
from claimlib.schema import BUCKET_SQL, TABLES
from claimlib.semantics.model import AutoclaimRequest
from claimlib.store.spark_writer import arranged
from claimlib.store.tables import Store
from tests.bench import data
from tests.bench.data import (
    CONSUMER,
    COUNT,
    CURSOR,
    GROUP,
    HALF,
    LARGEST,
    MIN_IDLE_MS,
    NOW_MS,
    Shape,
)
from tests.bench.memory import peak_mib
from tests.writing import append_rows

SWEEP = SweepRequest(AutoclaimRequest(CONSUMER.encode(), MIN_IDLE_MS))
PAGE = SweepRequest(
    AutoclaimRequest(CONSUMER.encode(), MIN_IDLE_MS, count=COUNT),
    stream_glob=LARGEST,
    cursor=CURSOR,
    resume=True,
)
_HOUR_MS = 3_600_000
_END = "end"
_BETWEEN_LOOKS_S = 1.0
UNIT = "append of one row"
"""The unit of fixed cost: `append_one_row`."""
T = TypeVar("T")
# When a part began and ended, ms since the epoch.
Span = tuple[float, float]


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

    def run(self, name: str, work: Callable[[Progress], T]) -> T:
        """The result of a run, which is handed what it tells its phases to."""
        entered: list[tuple[str, float]] = []
        looked = 0.0

        def enter(phase: str, detail: str) -> None:
            nonlocal looked
            del detail
            now = time.monotonic()
            entered.append((phase, now))
            # Not only at the end: a worker that has had nothing to do for a minute is gone.  But
            # not each time: a snapshot tells each page, and a look takes some milliseconds.
            if now - looked > _BETWEEN_LOOKS_S or phase == _END:
                looked = now
                for process, mib in peak_mib().items():
                    self.peak_mib[process] = max(mib, self.peak_mib.get(process, 0))

        result = self.time(name, lambda: work(enter))
        enter(_END, "")
        seconds: defaultdict[str, float] = defaultdict(float)
        for (phase, since), (_, until) in pairwise(entered):
            seconds[phase] += until - since  # it is told again with each new detail
        self.phases[name] = {phase: round(took, 2) for phase, took in seconds.items()}
        return result


def seconds_of(watch: Watch) -> dict[str, float]:
    """How long each part took."""
    return {name: round((until - since) / 1000, 2) for name, (since, until) in watch.spans.items()}


def medians_of(watch: Watch, names: Iterable[str], times: int) -> dict[str, float]:
    """The median seconds of parts that ran several times, by the names `NAME 1`, `NAME 2` and so
    on; number 0 has warmed up."""
    seconds = seconds_of(watch)
    numbers = range(1, times + 1)
    return {name: round(median(seconds[f"{name} {n}"] for n in numbers), 2) for name in names}


def copied(spark: SparkSession, made: str, where: str) -> Store:
    """A copy of a store in a folder, whatever was there."""
    shutil.rmtree(where, ignore_errors=True)
    shutil.copytree(made, where)
    return Store.open(spark, where)


def make(store: Store, rows: int, shape: Shape = HALF) -> None:
    """Fill a new store (see `bench_data`)."""
    pending = data.pending(store.spark, rows, shape)
    kept = pending.drop("is_gone", "is_due").withColumn("run_seq", F.lit(0))
    kept = kept.withColumn("bucket", F.expr(BUCKET_SQL.format(buckets=store.buckets)))
    append_rows(store, "pending", arranged(TABLES["pending"], kept, store.buckets))
    entries = pending.select(
        *("stream", "id_ms", "is_gone"),
        F.explode(F.sequence(F.lit(0), F.lit(shape.entries_of - 1))).alias("id_seq"),
    )
    entries = entries.where("NOT (is_gone AND id_seq = 0)").drop("is_gone")
    entries = entries.withColumns({"fields": payload(), "run_seq": F.lit(0)})
    entries = entries.withColumn("bucket", F.expr(BUCKET_SQL.format(buckets=store.buckets)))
    append_rows(store, "entries", arranged(TABLES["entries"], entries, store.buckets))
    # As a snapshot proves it: from the first to the last pending id.
    streams = pending.groupBy("stream").agg(
        (F.count("*") * shape.entries_of).alias("length"),
        *(F.min(f"id_{part}").alias(f"complete_from_{part}") for part in ("ms", "seq")),
        *(F.max(f"id_{part}").alias(f"complete_to_{part}") for part in ("ms", "seq")),
    )
    append_rows(store, "streams", streams.withColumn("run_seq", F.lit(0)))
    groups = streams.select(
        "stream",
        F.lit(GROUP).alias("consumer_group"),
        F.lit(-1).alias("last_delivered_ms"),
        F.lit(-1).alias("last_delivered_seq"),
        F.lit(NOW_MS).alias("snapshot_ms"),
        F.lit(0).alias("run_seq"),
    )
    append_rows(store, "groups", groups)


def payload() -> Column:
    """The fields of an entry: one, with the name of its stream."""
    return F.array(
        F.struct(F.lit(b"field").alias("name"), F.encode("stream", "UTF-8").alias("value"))
    )


def hours_later_ms(number: int) -> int:
    """The instant of a run, by its number: what the run before it has claimed is due again."""
    return NOW_MS + (number + 1) * _HOUR_MS


def append_one_row(spark: SparkSession, where: str) -> None:
    """Append a row to a Delta table of its own."""
    spark.range(1).write.format("delta").mode("append").save(where)


def sweep(store: Store, progress: Progress) -> Reply:
    """Claim all that is due, whatever the group."""
    return xautoclaim(store, SWEEP, progress=progress)
