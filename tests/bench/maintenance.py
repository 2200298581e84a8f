"""Measure small runs on one store, with and without `maintain`.

    python -m tests.bench.maintenance --runs 1000 --every 100 --write

Each run claims a page of a few entries, with the embedded engine, and opens the store anew as a
command does.  The first store is never maintained.  The second is maintained after every so many
runs.  Its tables keep no earlier versions, so that files are removed as they are in a store that is
older than its retention.  `--write` puts the figures into docs/figures/maintenance.json, and
`make figures` draws them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from claimlib import terminal
from claimlib.commands.maintain import maintain
from claimlib.commands.sweep_request import SweepRequest
from claimlib.commands.xautoclaim import xautoclaim
from claimlib.commands.xpending import pending_overview, read_store
from claimlib.schema import TABLES
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import AutoclaimRequest, Consumer, Group, PendingEntry
from claimlib.semantics.words import Keyspace, Stream
from claimlib.store.commits import change_table
from claimlib.store.creation import create
from claimlib.store.definitions import FolderDefinitions
from claimlib.store.opening import open_folder
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace

_NOW_MS = 1_750_000_000_000
_STREAMS, _ENTRIES, _PAGE = 4, 500, 5
_FIRST, _MEDIAN_OF = 10, 9
FILE = Path(__file__).parents[2] / "docs" / "figures" / "maintenance.json"
Figures = dict[str, float]
_NO_RETENTION = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}


def main() -> None:
    """Do the runs on both stores, and print times, files and bytes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--every", type=int, default=100, help="runs between two maintenances")
    parser.add_argument("--write", action="store_true", help="write the figures of the documents")
    options = parser.parse_args()
    terminal.out(
        "maintained  runs  run (s)  xpending (s)  run (CPU s)  maintain (s)  files  bytes on disk"
    )
    measured: dict[str, list[Figures]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, is_maintained in (("never", False), (f"every {options.every}", True)):
            measured[name] = []
            for figures in _measured(Path(folder, name), options, is_maintained=is_maintained):
                measured[name].append(figures)
                terminal.out(_line(name, figures))
    if options.write:
        FILE.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


def _line(name: str, figures: Figures) -> str:
    return (
        f"{name:10}  {figures['runs']:4}  {figures['run_s']:7.2f}  {figures['xpending_s']:12.2f}"
        f"  {figures['run_cpu_s']:11.2f}  {figures['maintain_s']:12.1f}  {figures['files']:5,}"
        f"  {figures['bytes']:13,}"
    )


def _measured(
    where: Path, options: argparse.Namespace, *, is_maintained: bool
) -> Iterator[Figures]:
    """Do the runs on a new store, and yield figures after each part of them.

    Yields:
        `runs` so far; `run_s`, `xpending_s`, `run_cpu_s`: medians of the latest runs and readings,
        in seconds on the clock and of the processors;
        `maintain_s`: how long the maintenance took after them, 0 without; `files` and `bytes` on
        disk.
    """
    _create(where, keeps_versions=not is_maintained)
    latest: deque[float] = deque(maxlen=_MEDIAN_OF)
    latest_cpu: deque[float] = deque(maxlen=_MEDIAN_OF)
    for number in range(1, options.runs + 1):
        cpu_before = time.process_time()
        latest.append(_seconds_of_a_run(where, number))
        latest_cpu.append(time.process_time() - cpu_before)
        is_last_of_a_part = number % options.every == 0
        if is_last_of_a_part and is_maintained:
            maintained_s = _seconds(lambda: maintain(_opened(where)))
        if is_last_of_a_part or number == _FIRST:
            on_disk = [path.stat().st_size for path in where.rglob("*") if path.is_file()]
            yield {
                "runs": number,
                "run_s": statistics.median(latest),
                "xpending_s": statistics.median(
                    _seconds(lambda: pending_overview(read_store(_opened(where))).collect())
                    for _ in range(_MEDIAN_OF)
                ),
                "run_cpu_s": statistics.median(latest_cpu),
                "maintain_s": maintained_s if is_last_of_a_part and is_maintained else 0,
                "files": len(on_disk),
                "bytes": sum(on_disk),
            }


def _create(where: Path, *, keeps_versions: bool) -> None:
    definitions = FolderDefinitions.find(_no_session, str(where))
    if definitions is None:
        raise AssertionError(where)
    create(definitions, buckets=4)
    store = _opened(where)
    if not keeps_versions:
        for table in TABLES:
            change_table(where / table, store.logs.readable(table), (), _NO_RETENTION)
    write_keyspace(store, _keyspace(), _NOW_MS)


def _opened(where: Path) -> Store:
    return open_folder(_no_session, str(where), writes=True)


def _seconds_of_a_run(where: Path, number: int) -> float:
    """Claim a page of each group under a run id, and return how long it took."""
    words = AutoclaimRequest(b"consumer-%d" % (number % 7), 0, count=_PAGE)
    request = SweepRequest(words, cursor="page", resume=True)
    return _seconds(lambda: xautoclaim(_opened(where), request, run_id=f"{number}"))


def _seconds(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
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
