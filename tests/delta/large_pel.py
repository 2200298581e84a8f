"""Two pages of one large group, in a process of their own whose Spark writes an event log:
`large_pel.py FOLDER ROWS COUNT`.

Prints one JSON line: per page what it did, the most rows that one task read from a shuffle or wrote
to one, and the highest memory of this process so far, which decides the pages.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import functions as F

from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.semantics.model import AutoclaimRequest
from claimlib.session import open_session
from claimlib.store.tables import Store
from tests.bench import event_log
from tests.bench.memory import own_peak_mib
from tests.writing import append_rows

NOW_MS = 1_750_000_000_000
FIRST_MS = NOW_MS - 10**9
_PER_FILE = 1_000_000


def make(store: Store, rows: int) -> None:
    """One group: an entry a millisecond, every third idle for a minute, every seventh dangling."""
    numbers = store.spark.range(0, rows, 1, max(1, rows // _PER_FILE))
    ids = numbers.select(
        "id",
        F.lit("s").alias("stream"),
        (FIRST_MS + F.col("id")).alias("id_ms"),
        F.lit(0).alias("id_seq"),
        F.lit(0).alias("run_seq"),
    )
    state = {
        "consumer_group": F.lit("g"),
        "consumer": F.lit("dead"),
        "delivery_time_ms": NOW_MS - F.when(F.col("id") % 3 == 0, 60_000).otherwise(10),
        "delivery_count": F.lit(1),
    }
    append_rows(store, "pending", ids.withColumns(state).drop("id"))
    append_rows(store, "entries", ids.where("id % 7 <> 0").drop("id"))
    last_ms = FIRST_MS + rows - 1
    proven = ("complete_from_ms", "complete_from_seq", "complete_to_ms", "complete_to_seq")
    values = [("s", FIRST_MS, 0, last_ms, 0, 0)]
    append_rows(store, "streams", store.rows("streams", values, ["stream", *proven, "run_seq"]))
    last = ("last_delivered_ms", "last_delivered_seq", "snapshot_ms", "run_seq")
    groups = store.rows(
        "groups", [("s", "g", last_ms, 0, NOW_MS, 0)], ["stream", "consumer_group", *last]
    )
    append_rows(store, "groups", groups)
    cursor = ("name", "stream", "consumer_group", "next_ms", "next_seq", "run_seq")
    middle = [("middle", "s", "g", FIRST_MS + rows // 2, 0, 0)]
    append_rows(store, "cursors", store.rows("cursors", middle, cursor))


def main(folder: str, rows: int, count: int) -> None:
    events = Path(folder, "events")
    events.mkdir()
    spark = open_session(java_options=event_log.options(str(events)))
    store = Store.init(spark, f"{folder}/store")
    make(store, rows)
    pages = {}
    for name in ("first", "middle"):
        request = AutoclaimRequest(b"alice", 1000, count=count)
        since = time.time()
        reply = xautoclaim(store, SweepRequest(request, cursor=name, resume=True))
        pages[name] = {
            "span": (since * 1000, time.time() * 1000),
            "counts": dict(reply.counts),
            "claimed": [row["id_ms"] for row in reply.claimed.select("id_ms").collect()],
            "deleted": [row["id_ms"] for row in reply.deleted.select("id_ms").collect()],
            "next_ms": [row["next_ms"] for row in reply.cursors.collect()],
            "peak_mib": own_peak_mib(),
        }
    spark.stop()
    log = event_log.read(str(events))
    for page in pages.values():
        tasks = log.between(*page["span"]).tasks
        shuffled = (max(task.records_shuffled_in, task.records_shuffled_out) for task in tasks)
        page["most_rows_of_a_task"] = max(shuffled)
    print(json.dumps(pages))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
