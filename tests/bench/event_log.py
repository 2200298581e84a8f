"""What Spark itself says that it read: the event log of a session, read once the session is over.

A session is told to write one before its JVM starts (`options`); nothing of a running Spark is
asked.  The log grows by some ten megabytes a run, for it has every plan.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claimlib.schema import TABLES

# What a scan's plan says of the place that it reads ends with the table's folder.
_LOCATION = re.compile(r"/(\w+)\]$")
_FILES, _FILE_BYTES = "number of files read", "size of files read"


@dataclass(frozen=True, slots=True)
class Scan:
    """One scan of one of a store's tables by one query.

    Attributes:
        at_ms: when the query began.
        files: the files that the scan opened.
        file_bytes: their sizes; of what is in them a scan reads the columns that it needs.
    """

    table: str
    at_ms: int
    files: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class Task:
    """One task.

    Attributes:
        at_ms: when it ended.
        bytes_read, bytes_written: of files, the table's log included.
        bytes_shuffled: what it wrote to a shuffle.
        bytes_spilled: what it put on disk for want of memory.
        records_shuffled_in, records_shuffled_out: rows that it read from, and wrote to, a shuffle.
    """

    at_ms: int
    bytes_read: int
    bytes_written: int
    bytes_shuffled: int
    bytes_spilled: int
    records_shuffled_in: int
    records_shuffled_out: int


@dataclass(frozen=True, slots=True)
class EventLog:
    """The scans and tasks of a session, and when each query (SQL execution) and each job began, ms
    since the epoch."""

    scans: tuple[Scan, ...]
    tasks: tuple[Task, ...]
    queries: tuple[int, ...]
    jobs: tuple[int, ...]

    def between(self, since_ms: float, until_ms: float) -> EventLog:
        """Those of a span of time, ms since the epoch."""
        return EventLog(
            tuple(scan for scan in self.scans if since_ms <= scan.at_ms <= until_ms),
            tuple(task for task in self.tasks if since_ms <= task.at_ms <= until_ms),
            tuple(at_ms for at_ms in self.queries if since_ms <= at_ms <= until_ms),
            tuple(at_ms for at_ms in self.jobs if since_ms <= at_ms <= until_ms),
        )


def options(folder: str) -> str:
    """`java_options` for `open_session`, under which Spark writes its event log into a folder (its
    name has no blank in it)."""
    settings = {"enabled": "true", "dir": folder, "compress": "false", "rolling.enabled": "false"}
    return " ".join(f"-Dspark.eventLog.{name}={value}" for name, value in settings.items())


def read(folder: str) -> EventLog:
    """The event log of the one session that wrote into a folder and is over."""
    (file,) = Path(folder).iterdir()
    begun: dict[int, int] = {}
    # Per query the scans in its plans: table, and the accumulators of the two metrics.
    planned: dict[int, set[tuple[str, int, int]]] = defaultdict(set)
    metrics: dict[int, dict[int, int]] = defaultdict(dict)
    tasks, jobs = [], []
    with file.open(encoding="utf-8") as lines:
        for event in map(json.loads, lines):
            kind, query = event["Event"].rpartition(".")[2], event.get("executionId")
            if kind == "SparkListenerTaskEnd":
                tasks.append(_task(event))
            elif kind == "SparkListenerJobStart":
                jobs.append(event["Submission Time"])
            elif kind == "SparkListenerDriverAccumUpdates":
                metrics[query].update(event["accumUpdates"])
            elif kind == "SparkListenerSQLExecutionStart":
                begun[query] = event["time"]
            if "sparkPlanInfo" in event:
                planned[query].update(_planned(event["sparkPlanInfo"]))
    scans = tuple(
        Scan(table, at_ms, metrics[query][files], metrics[query][file_bytes])
        for query, at_ms in begun.items()
        for table, files, file_bytes in sorted(planned[query])
        if files in metrics[query]  # a plan that was replaced was not run
    )
    return EventLog(scans, tuple(tasks), tuple(begun.values()), tuple(jobs))


def _task(event: dict[str, Any]) -> Task:
    # A task that failed at once has no metrics.
    metrics = event.get("Task Metrics") or {}
    shuffled = metrics.get("Shuffle Write Metrics", {})
    return Task(
        at_ms=event["Task Info"]["Finish Time"],
        bytes_read=metrics.get("Input Metrics", {}).get("Bytes Read", 0),
        bytes_written=metrics.get("Output Metrics", {}).get("Bytes Written", 0),
        bytes_shuffled=shuffled.get("Shuffle Bytes Written", 0),
        bytes_spilled=metrics.get("Disk Bytes Spilled", 0),
        records_shuffled_in=metrics.get("Shuffle Read Metrics", {}).get("Total Records Read", 0),
        records_shuffled_out=shuffled.get("Shuffle Records Written", 0),
    )


def _planned(plan: dict[str, Any]) -> Iterator[tuple[str, int, int]]:
    """The scans of a plan.  An adaptive plan comes several times, with the same accumulators."""
    location = _LOCATION.search(plan["metadata"].get("Location", ""))
    if location is not None and location[1] in TABLES:
        accumulators = {metric["name"]: metric["accumulatorId"] for metric in plan["metrics"]}
        yield location[1], accumulators[_FILES], accumulators[_FILE_BYTES]
    for child in plan["children"]:
        yield from _planned(child)
