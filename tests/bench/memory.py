"""Measure the memory of processes, from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path


def peak_mib() -> dict[str, int]:
    """The largest resident size that this process' JVM, and any Python worker of it that still
    lives, had."""
    peaks = {"jvm": 0, "python worker": 0}
    statuses = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            statuses[folder.name] = _status(folder)
        except OSError:
            continue
    # The JVM is a child of this process, the workers' daemon one of the JVM, the workers of that.
    for pid, status in statuses.items():
        what = "jvm" if status["Name"] == "java" else "python worker"
        is_ours = what == "jvm" or status["Name"].startswith("python")
        if is_ours and "VmHWM" in status and str(os.getpid()) in _ancestors(pid, statuses):
            peaks[what] = max(peaks[what], _peak_mib_of(status))
    return peaks


def own_peak_mib() -> int:
    """The largest resident size that this process had.  `ru_maxrss` begins at its parent's."""
    return _peak_mib_of(_status(Path("/proc/self")))


def _status(process: Path) -> dict[str, str]:
    lines = (process / "status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def _peak_mib_of(status: Mapping[str, str]) -> int:
    return int(status["VmHWM"].split()[0]) // 1024


def _ancestors(pid: str, processes: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    while pid in processes:
        pid = processes[pid]["PPid"]
        yield pid
