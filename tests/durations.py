"""The time that each file of tests takes, beside the time that is written down in durations.json.

A plugin of pytest for `make test`.  A file that takes much more than its share fails the run, so
that the tests stay quick.  The times are compared as shares of the whole run, because machines are
not equally fast.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).with_name("durations.json")
MOST = 3
"""A file may take this many times its share."""
SPARE_S = 60
"""And so many seconds more: the first file of a process that needs Spark waits for it to start."""


USES_SPARK = ("fixture", "spark")
"""The property of a test that uses Spark."""
STARTERS: set[str] = set()
"""The files with a test that called `spark_if_needed`, in this process."""


class Durations:
    """Measure the files of a run."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.on_spark: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the time of a part of a test."""
        file = report.nodeid.partition("::")[0]
        self.seconds[file] += report.duration
        if USES_SPARK in report.user_properties:
            self.on_spark.add(file)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run if a file is over its budget."""
        if hasattr(session.config, "workerinput"):
            return
        if session.config.getoption("--write-durations"):
            rounded = {name: round(of) for name, of in sorted(self.seconds.items())}
            values = {"seconds": rounded, "spark": sorted(self.on_spark)}
            FILE.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
        elif any(over_budget(self.seconds, recorded())) and not session.testsfailed:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the files that are over their budgets."""
        for text in over_budget(self.seconds, recorded()):
            terminalreporter.write_line(text, red=True)


def recorded() -> Mapping[str, float]:
    """Return the seconds of each file that are written down."""
    times: dict[str, float] = _written_down()["seconds"]
    return times


def on_spark() -> Collection[str]:
    """Return the files with a test that uses Spark, as they are written down."""
    files: list[str] = _written_down()["spark"]
    return files


@cache
def _written_down() -> dict[str, Any]:
    values: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return values


def over_budget(seconds: Mapping[str, float], known: Mapping[str, float]) -> Iterator[str]:
    """Yield a message for each file that took much more than its share of the time.

    Args:
        seconds: by file, how long its tests took.
        known: by file, how long they took when that was written down.  Other files have the share
            of a file of no time.  Without any, no file has a budget.
    """
    if not known:
        return
    both = seconds.keys() & known.keys()
    scale = sum(seconds[name] for name in both) / max(sum(known[name] for name in both), 1)
    for name, took in sorted(seconds.items()):
        most = MOST * scale * known.get(name, 0) + SPARE_S * max(scale, 1)
        if took > most:
            yield (
                f"{name} took {took:.0f} s, more than its budget of {most:.0f} s: make its tests"
                " quicker, mark second proofs as long, or run make durations"
            )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-durations", action="store_true", help="write the durations down as the new budgets"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Durations(), "durations of files")
