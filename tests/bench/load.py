"""What it costs to fill a store: an import and a snapshot beside plain SQL that lands the same rows
and merges them, each into a new store.

The snapshot's source is no server: its batches are made as they are read, which takes a time of its
own (`batches`, which the ratio leaves out).  They are as many rows, in 200 streams of one size.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from claimlib.commands.imports import ImportRequest, import_tables
from claimlib.commands.snapshot import SnapshotRequest, snapshot
from claimlib.live.batches import (
    Batch,
    ConsumerRow,
    Counts,
    EntryPage,
    EntryRow,
    GroupDone,
    PendingPage,
    PendingRow,
    SourceDone,
    StreamDone,
)
from claimlib.runs import Progress
from claimlib.schema import BUCKET_SQL, TABLES
from claimlib.semantics.ids import StreamId
from claimlib.store.spark_writer import arranged
from claimlib.store.tables import Store
from tests.bench.check import Measured, differing
from tests.bench.data import GROUP, NOW_MS, pending
from tests.bench.store import Watch, copied, medians_of, payload, seconds_of
from tests.writing import execute_sql

_TABLES = ("pending", "entries")
_STREAMS = 200
_PAGE = 1000
_FIELDS = ((b"field", b"value"),)
_SOURCE = SnapshotRequest("server:6379/0")


def run(
    spark: SparkSession, folder: str, rows: int, watch: Watch, *, data: str, times: int
) -> Measured:
    """The benchmark's document: medians of seconds, after one of each to warm up, and the ratios
    to the floor."""
    del data
    empty = f"{folder}/empty"
    Store.init(spark, empty)
    tables = watch.time("make rows", partial(_make, spark, folder, rows))
    stores: dict[str, Store] = {}
    for number in range(times + 1):
        for name in ("import", "floor", "snapshot"):
            stores[name] = copied(spark, empty, f"{folder}/{name}")
        own = (tables["entries"], tables["pending"], tables["groups"])
        request = ImportRequest(*own, entries_complete=True)
        watch.run(f"import {number}", partial(_imported, stores["import"], request))
        watch.time(f"floor {number}", partial(_floor, stores["floor"], tables, folder))
        watch.time(f"batches {number}", lambda: sum(1 for _ in _batches(rows)))
        watch.run(f"snapshot {number}", partial(_snapshot, stores["snapshot"], rows))
    medians = medians_of(watch, ("import", "floor", "batches", "snapshot"), times)
    document: dict[str, object] = {
        "rows": rows,
        "times": times,
        "seconds": medians,
        "times the floor": {
            "import": round(medians["import"] / medians["floor"], 2),
            "snapshot": round((medians["snapshot"] - medians["batches"]) / medians["floor"], 2),
        },
        "make_rows_seconds": seconds_of(watch)["make rows"],
        "seconds_by_phase": watch.phases,
        "peak_mib": watch.peak_mib,
    }
    return Measured(document, {}, {name: _differ(stores, name) for name in _TABLES})


def _make(spark: SparkSession, folder: str, rows: int) -> dict[str, str]:
    """Somebody's own tables, in Delta; where they are."""
    made = pending(spark, rows)
    fields = payload().alias("fields")
    instant = F.lit(NOW_MS).alias("snapshot_ms")
    last = (F.max(name).alias(f"last_delivered_{half}") for half, name in _HALVES.items())
    frames = {
        "pending": made.drop("is_gone", "is_due"),
        "entries": made.where("NOT is_gone").select("stream", "id_ms", "id_seq", fields),
        "groups": made.groupBy("stream", "consumer_group").agg(*last).select("*", instant),
    }
    places = {name: f"{folder}/own/{name}" for name in frames}
    for name, frame in frames.items():
        frame.write.format("delta").save(places[name])
    return places


_HALVES = {"ms": "id_ms", "seq": "id_seq"}


def _imported(store: Store, request: ImportRequest, progress: Progress) -> None:
    import_tables(store, request, progress=progress)


def _snapshot(store: Store, rows: int, progress: Progress) -> None:
    snapshot(store, _SOURCE, lambda _: _batches(rows), progress=progress)


def _floor(store: Store, tables: dict[str, str], folder: str) -> None:
    """Both tables landed, then merged."""
    for name in _TABLES:
        landed = f"{folder}/landed-{name}"
        shutil.rmtree(landed, ignore_errors=True)
        rows = store.spark.read.format("delta").load(tables[name])
        rows.withColumn("run_seq", F.lit(1)).write.format("delta").save(landed)
        there = store.spark.read.format("delta").load(landed)
        bucket = f"{BUCKET_SQL.format(buckets=store.buckets)} AS bucket"
        divided = arranged(TABLES[name], there.selectExpr("*", bucket), store.buckets)
        columns = ", ".join(column.name for column in TABLES[name].written)
        same = " AND ".join(f"t.{key_column} = s.{key_column}" for key_column in TABLES[name].key)
        execute_sql(
            store,
            name,
            f"MERGE INTO {{table}} t USING {{landed}} s ON {same} WHEN NOT MATCHED THEN"
            f" INSERT ({columns}) VALUES ({columns})",
            landed=divided.select(*(column.name for column in TABLES[name].written)),
        )


def _batches(rows: int) -> Iterator[Batch]:
    """So many pending entries (or some less, for 200 streams of one size), all of which are
    there."""
    each = rows // _STREAMS
    total = each * _STREAMS
    consumers = tuple(ConsumerRow(b"consumer-%d" % n, NOW_MS, None) for n in range(20))
    for number in range(_STREAMS):
        name = b"stream-%05d" % number
        ids = [StreamId(NOW_MS - 10**9 + n, 0) for n in range(each)]
        pages = [ids[first : first + _PAGE] for first in range(0, each, _PAGE)]
        for page in pages:
            owned = tuple(
                PendingRow(stream_id, consumers[n % 20].name, NOW_MS - 1000, 1)
                for n, stream_id in enumerate(page)
            )
            yield PendingPage(name, GROUP.encode(), NOW_MS, owned)
        yield GroupDone(name, GROUP.encode(), NOW_MS, ids[-1], consumers, each)
        for page in pages:
            yield EntryPage(name, tuple(EntryRow(stream_id, _FIELDS) for stream_id in page))
        yield StreamDone(name, each, ids[-1], ids[0], ids[-1], NOW_MS, 1, each, each)
    yield SourceDone(Counts(streams=_STREAMS, groups=_STREAMS, pending=total, entries=total))


def _differ(stores: dict[str, Store], table: str) -> int:
    """In how many streams import and floor say something else."""
    return differing(table, *(_rows(stores[name], table) for name in ("import", "floor")))


def _rows(store: Store, table: str) -> DataFrame:
    return store.read(table).drop("run_seq")
