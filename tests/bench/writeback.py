"""`python -m tests.bench.writeback --entries 1000000`: writebacks beside redis-py, and a rescue.

A server of its own has the entries in 20 streams.  Each part is measured on a new store, because a
run is written back once.  The document has medians:

- `seconds`: of the snapshot, the sweep, the writeback (of it: sending) and the rescue, and of
  redis-py that sends the same XCLAIMs without a fence, as many at once (floor);
- `cpu_seconds`: of this process and the server, which depend less on other processes;
- `probe_ms`: the longest time that another client waited for PING meanwhile;
- `script_ms`: the mean time of a script on the server;
- `peak_mib`: the most memory of this process.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from claimlib import terminal
from claimlib.commands.init import init
from claimlib.commands.rescue import rescue
from claimlib.commands.snapshot import SnapshotRequest, snapshot
from claimlib.commands.writeback import writeback
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.live.reading import ServerReading
from claimlib.live.writing import BATCHES_PER_PIPELINE, IDS_PER_BATCH
from claimlib.runs import Phase
from claimlib.semantics.model import AutoclaimRequest, RemovalLimits
from claimlib.store.definitions import FolderDefinitions
from claimlib.store.opening import open_folder
from claimlib.testing.server_process import Server, valkey_server
from tests.bench.memory import own_peak_mib

if TYPE_CHECKING:
    import redis
    from pyspark.sql import SparkSession

    from claimlib.store.tables import Store

_STREAMS = 20
_IDLE_MS = 3_600_000
_FAST = 1_000_000.0
_FILL = """
for i = ARGV[1] + 1, ARGV[1] + ARGV[2] do
  redis.call("XADD", KEYS[1], i .. "-0", "field", "value")
end
redis.call('XREADGROUP', 'GROUP', 'g', 'bob', 'COUNT', ARGV[2], 'STREAMS', KEYS[1], '>')
local words = {'XCLAIM', KEYS[1], 'g', 'bob', '0'}
for i = ARGV[1] + 1, ARGV[1] + ARGV[2] do words[#words + 1] = i .. '-0' end
for _, word in ipairs({"IDLE", ARGV[3], "RETRYCOUNT", "1", "JUSTID"}) do
  words[#words + 1] = word
end
redis.call(unpack(words))
"""
_AT_ONCE = 1000


@dataclass
class Figures:
    """Hold what was measured, by part: seconds, seconds of processors, and milliseconds."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    cpu_seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    probe_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    script_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def document(self) -> dict[str, dict[str, float]]:
        """Return the medians."""
        return {
            name: {part: round(statistics.median(all_of), 3) for part, all_of in measured.items()}
            for name, measured in vars(self).items()
        }


def measure(entries: int, times: int, folder: Path) -> dict[str, object]:
    """Return the document."""
    figures = Figures()
    empty = folder / "empty"
    definitions = FolderDefinitions.find(_no_session, str(empty))
    assert definitions is not None
    init(definitions)
    with valkey_server() as server, server.client() as client:
        for number in range(times):
            stores = [
                open_folder(_no_session, str(shutil.copytree(empty, folder / f"{name}{number}")))
                for name in ("parts", "rescue")
            ]
            _fill(client, entries)
            _parts(stores[0], server, client, figures, entries)
            _fill(client, entries)
            reading = ServerReading(server.url, max_commands_per_second=_FAST)
            with _timed(figures.seconds["rescue"]):
                reply = rescue(stores[1], reading, _sweep())
            assert (reply.stalled, reply.swept.counts["claimed"]) == (0, entries)
            _fill(client, entries)
            with _watched(server, client, figures, "floor"):
                _claim(client, entries)
    return {"entries": entries, "times": times, **figures.document(), "peak_mib": own_peak_mib()}


def _no_session() -> SparkSession:
    raise AssertionError("Spark is not needed")


def _sweep() -> SweepRequest:
    return SweepRequest(AutoclaimRequest(b"alice", _IDLE_MS // 4))


def _parts(
    store: Store, server: Server, client: redis.Redis, figures: Figures, entries: int
) -> None:
    reading = ServerReading(server.url, max_commands_per_second=_FAST)
    limits = RemovalLimits(max_removed_share=1)
    with _timed(figures.seconds["snapshot"]):
        snapshot(store, SnapshotRequest(reading.label, limits=limits), reading)
    with _timed(figures.seconds["sweep"]):
        xautoclaim(store, _sweep(), run_id="r")
    with _watched(server, client, figures, "writeback"):
        sending = _Sending()
        counts = writeback(store, "r", reading, progress=sending).counts
    figures.seconds["sending"].append(sending.ended - sending.began)
    assert counts["moved"] == counts["decided"] == entries
    of_scripts = client.info("commandstats")["cmdstat_eval"]
    figures.script_ms["writeback"].append(of_scripts["usec_per_call"] / 1000)


class _Sending:
    """Note when sending begins and ends."""

    began = ended = 0.0

    def __call__(self, phase: Phase, _detail: str) -> None:
        if phase == Phase.SEND:
            self.ended = time.perf_counter()
        elif not self.ended:
            self.began = time.perf_counter()


@contextmanager
def _timed(seconds: list[float]) -> Iterator[None]:
    began = time.perf_counter()
    yield
    seconds.append(time.perf_counter() - began)


@contextmanager
def _watched(server: Server, client: redis.Redis, figures: Figures, part: str) -> Iterator[None]:
    client.config_resetstat()
    before = _cpu_seconds(client)
    with _probed(server, figures.probe_ms[part]), _timed(figures.seconds[part]):
        yield
    figures.cpu_seconds[part].append(_cpu_seconds(client) - before)


def _cpu_seconds(client: redis.Redis) -> float:
    info = client.info("cpu")
    return float(info["used_cpu_user"] + info["used_cpu_sys"]) + time.process_time()


@contextmanager
def _probed(server: Server, longest_ms: list[float]) -> Iterator[None]:
    """Note the longest time that another client waits for an answer."""
    script = (
        "import sys, threading, time, redis\n"
        "client, longest, ended = redis.Redis(port=int(sys.argv[1])), 0, threading.Event()\n"
        "threading.Thread(target=lambda: (sys.stdin.read(), ended.set())).start()\n"
        "client.ping(); print(flush=True)\n"
        "while not ended.wait(0.001):\n"
        "    began = time.perf_counter(); client.ping()\n"
        "    longest = max(longest, time.perf_counter() - began)\n"
        "print(longest * 1000)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(server.port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as probe:
        assert probe.stdout is not None
        probe.stdout.readline()
        yield
        longest_ms.append(float(probe.communicate()[0]))


def _parts_of(entries: int, size: int) -> Iterator[tuple[str, int, int]]:
    per_stream = entries // _STREAMS
    for first in range(0, per_stream, size):
        for number in range(_STREAMS):
            yield f"s{number}", first, min(size, per_stream - first)


def _fill(client: redis.Redis, entries: int) -> None:
    client.flushall()
    for number in range(_STREAMS):
        client.xgroup_create(f"s{number}", "g", id="0", mkstream=True)
    for stream, first, number in _parts_of(entries, _AT_ONCE):
        client.eval(_FILL, 1, stream, first, number, _IDLE_MS)


def _claim(client: redis.Redis, entries: int) -> None:
    """Claim all entries by XCLAIM alone."""
    claimed, waiting = 0, 0
    pipeline = client.pipeline(transaction=False)
    for stream, first, number in _parts_of(entries, IDS_PER_BATCH):
        ids: list[Any] = [f"{n}-0" for n in range(first + 1, first + number + 1)]
        pipeline.xclaim(stream, "g", "alice", _IDLE_MS // 4, ids, retrycount=2, justid=True)
        waiting += 1
        if waiting == BATCHES_PER_PIPELINE:
            claimed, waiting = claimed + sum(map(len, pipeline.execute())), 0
    assert claimed + sum(map(len, pipeline.execute())) == entries


def main() -> None:
    """Measure, and print the document."""
    parser = argparse.ArgumentParser(prog="tests.bench.writeback")
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        document = measure(arguments.entries, arguments.times, Path(folder))
    terminal.out(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
