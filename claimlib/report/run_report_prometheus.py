"""Report one run as metrics for the textfile collector of Prometheus' node exporter.

The number of series does not depend on the number of groups, consumers or entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, write_to_textfile
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from claimlib.commands.report_run import RunReport
from claimlib.plans.run_report_plan import AFTER, CHANGES
from claimlib.schema import Kind

# The metric and its help text, by the name of the number in `RunReport.totals`.
_TOTALS = {
    "groups": ("groups", "Consumer groups of the store."),
    f"stalled_groups_{AFTER}": ("stalled_groups", "Groups with stalled entries after the run."),
    f"pending_{AFTER}": ("pending_entries", "Pending entries after the run."),
    f"stalled_{AFTER}": ("stalled_entries", "Pending entries that are stalled after the run."),
    f"delivered_5_plus_{AFTER}": (
        "pending_entries_delivered_5_plus",
        "Pending entries that were delivered 5 times or more.",
    ),
    f"highest_delivery_count_{AFTER}": (
        "pending_entry_deliveries_max",
        "The highest delivery count of a pending entry.",
    ),
}


def write_metrics(report: RunReport, path: Path) -> None:
    """Write the metrics of a run to a file.

    The file is replaced as a whole, so a reader never sees an incomplete one.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Metrics(report))
    write_to_textfile(str(path), registry)


class _Metrics(Collector):
    def __init__(self, report: RunReport) -> None:
        self._report = report

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics that have a known value."""
        report, run = self._report, self._report.run
        if run.ended_ms is not None and not run.is_abandoned:
            yield _command_gauge(
                "last_success_timestamp_seconds",
                "The end of the last reported run that was not abandoned.",
                run.command,
                run.ended_ms / 1000,
            )
        phases = GaugeMetricFamily(
            "claimlib_run_phase_duration_seconds",
            "The duration of each phase of the run.",
            labels=["command", "phase"],
        )
        for phase, ms in sorted(run.phase_ms.items()):
            phases.add_metric([run.command, phase], ms / 1000)
        yield phases
        changes = GaugeMetricFamily(
            "claimlib_run_entries",
            "Pending entries that the run changed, by kind of change.",
            labels=["command", "change"],
        )
        for kind in (*CHANGES, Kind.LOST):
            changes.add_metric([run.command, kind], report.totals[kind] or 0)
        refused = report.totals["refused"]
        if refused is not None:  # else the journal rows were deleted, so the changes are unknown
            yield changes
            text = "Groups that the run refused."
            yield _command_gauge("refused_groups", text, run.command, refused)
        for name, (metric, text) in _TOTALS.items():
            value = report.totals[name]
            if value is not None:
                yield GaugeMetricFamily(f"claimlib_{metric}", text, value)
        oldest_ms = report.totals[f"oldest_idle_ms_{AFTER}"]
        if oldest_ms is not None:
            yield GaugeMetricFamily(
                "claimlib_oldest_idle_seconds",
                "The longest idle time of a pending entry after the run.",
                oldest_ms / 1000,
            )
        yield GaugeMetricFamily(
            "claimlib_unfinished_runs",
            "Runs that are decided and not finished.",
            len(report.unfinished),
        )


def _command_gauge(name: str, text: str, command: str, value: float) -> GaugeMetricFamily:
    metric = GaugeMetricFamily(f"claimlib_run_{name}", text, labels=["command"])
    metric.add_metric([command], value)
    return metric
