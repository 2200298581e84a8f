"""Measure small runs on one store, with and without `maintain`.

    python -m tests.bench.maintenance --runs 1000 --every 100

Each run claims a page of a few entries, with the embedded engine.  The first store is never
maintained.  The second is maintained after every so many runs.  Its tables keep no earlier
versions, so that files are removed as they are in a store that is older than its retention.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

from claimlib import terminal
from claimlib.commands.maintain import maintain
from claimlib.commands.sweep_request import SweepRequest
from claimlib.commands.xautoclaim import xautoclaim
from claimlib.schema import TABLES
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import AutoclaimRequest, Consumer, Group, PendingEntry
from claimlib.semantics.words import Keyspace, Stream
from claimlib.store.commits import change_table
from claimlib.store.creation import create
from claimlib.store.definitions import FolderDefinitions
from claimlib.store.opening import open_folder
from claimlib.store.tables import Store
from claimlib.testing.tables import write_keyspace

_NOW_MS = 1_750_000_000_000
_STREAMS, _ENTRIES, _PAGE = 4, 500, 5
_MEDIAN_OF = 9
_NO_RETENTION = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}


def main() -> None:
    """Do the runs on both stores, and print times, files and bytes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--every", type=int, default=100, help="runs between two maintenances")
    options = parser.parse_args()
    terminal.out(
        "maintained  runs  run 10 (s)  last run (s)  maintenance (s)  files  bytes  files on disk"
        "  bytes on disk"
    )
    with tempfile.TemporaryDirectory() as folder:
        for every in (None, options.every):
            terminal.out(_measured(Path(folder, f"{every}"), options.runs, every))


def _measured(where: Path, runs: int, every: int | None) -> str:
    """Do the runs on a new store, and return a line of figures."""
    definitions = FolderDefinitions.find(_no_session, str(where))
    if definitions is None:
        raise AssertionError(where)
    create(definitions, buckets=4)
    store = open_folder(_no_session, str(where), writes=True)
    if every is not None:
        for table in TABLES:
            change_table(where / table, store.logs.readable(table), (), _NO_RETENTION)
    write_keyspace(store, _keyspace(), _NOW_MS)
    seconds: list[float] = []
    maintained: list[float] = []
    for number in range(1, runs + 1):
        seconds.append(_seconds_of_a_run(store, number))
        if every is not None and number % every == 0:
            began = time.monotonic()
            maintain(store)
            maintained.append(time.monotonic() - began)
    sizes = [(file.size_bytes) for table in TABLES for file in store.writer.files(table)]
    on_disk = [path.stat().st_size for path in where.rglob("*") if path.is_file()]
    half = _MEDIAN_OF // 2
    first, last = seconds[9 - half : 10 + half], seconds[-_MEDIAN_OF:]
    costs = f"{statistics.median(maintained):.1f}" if maintained else "-"
    return (
        f"{f'every {every}' if every else 'never':10}  {runs:4}  {statistics.median(first):10.2f}"
        f"  {statistics.median(last):12.2f}  {costs:>15}  {len(sizes):5,}  {sum(sizes):,}"
        f"  {len(on_disk):,}  {sum(on_disk):,}"
    )


def _seconds_of_a_run(store: Store, number: int) -> float:
    """Claim a page of each group under a run id, and return how long it took."""
    words = AutoclaimRequest(b"consumer-%d" % (number % 7), 0, count=_PAGE)
    began = time.monotonic()
    xautoclaim(store, SweepRequest(words, cursor="page", resume=True), run_id=f"{number}")
    return time.monotonic() - began


def _keyspace() -> Keyspace:
    ids = [StreamId(number, 0) for number in range(1, _ENTRIES + 1)]
    group = Group(
        last_delivered_id=ids[-1],
        pending=tuple(PendingEntry(id_, b"dead", _NOW_MS - 60_000, 1) for id_ in ids),
        consumers=(Consumer(b"dead", _NOW_MS - 60_000, None),),
    )
    entries = dict.fromkeys(ids, (b"field", b"value"))
    return {b"stream-%d" % number: Stream(entries, {b"g": group}) for number in range(_STREAMS)}


def _no_session() -> SparkSession:
    raise AssertionError("Spark is not needed")


if __name__ == "__main__":
    main()
