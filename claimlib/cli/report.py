"""The command that reports on a run, or on the runs of a period: report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

from claimlib.cli.app import command
from claimlib.cli.common import Common
from claimlib.cli.opening import opened_store
from claimlib.cli.options import StoreArgument, View, argument
from claimlib.config.sections import Option, OptionGroup
from claimlib.errors import RequestError
from claimlib.times import parse_duration_ms


@command("report ./store xautoclaim:nightly-1 --html report.html")
def report(
    store: StoreArgument,
    run: Annotated[
        str | None,
        argument(
            "RUN",
            "A finished run: its number, command:run_id, or its run id if only one run has it."
            " [default: the last finished run]",
        ),
    ] = None,
    *,
    since: Annotated[
        str | None,
        Option("Instead of RUN: report on the runs that ended within this time.", "DURATION"),
    ] = None,
    html: Annotated[
        Path | None,
        Option(
            "Also write the report to this file, as one HTML page that needs no network.",
            "FILE",
            group=OptionGroup.OUTPUT,
        ),
    ] = None,
    prometheus: Annotated[
        Path | None,
        Option(
            "Also write metrics to this file, for the textfile collector of the node exporter.",
            "FILE",
            group=OptionGroup.OUTPUT,
        ),
    ] = None,
    common: Common,
) -> None:
    """Report on one run: what it changed, and the pending entries before and after it.

    With --since, the report shows all runs of a period, the groups whose pending entries increased,
    and the consumers from which several runs took entries.

    The report has the same size for any number of groups and entries: it names the worst groups,
    and counts the others. --output csv and jsonl print only the worst groups or, with --since, the
    runs.
    """
    view = common.view()
    html, prometheus = _file("html", html), _file("prometheus", prometheus)
    if since is None:
        _report_run(store, run, html, prometheus, common, view)
        return
    if run is not None or prometheus is not None:
        raise RequestError(
            "--since reports on all runs of a period: leave out RUN and --prometheus",
            option="since",
        )
    _report_period(store, parse_duration_ms(since), html, common, view)


def _report_run(
    store: str,
    run: str | None,
    html: Path | None,
    prometheus: Path | None,
    common: Common,
    view: View,
) -> None:
    from claimlib.cli.output import show_sections
    from claimlib.commands.run_report import find_reported, run_report
    from claimlib.report.run_report import full_report_of_run, sections

    # A package that is missing is named before the store is read.
    if html is not None:
        from claimlib.report.run_report_html import as_html, write_html
    if prometheus is not None:
        from claimlib.report.run_report_prometheus import write_metrics

    look = partial(find_reported, run=run)
    with opened_store(store, common.settings(), common, look=look) as (opened, _):
        reported = run_report(opened, run)
    show_sections(full_report_of_run(reported), sections(reported), view)  # refuses unknown columns
    if html is not None:
        with _writing("html", html):
            write_html(as_html(reported), html)
    if prometheus is not None:
        with _writing("prometheus", prometheus):
            write_metrics(reported, prometheus)


def _report_period(
    store: str, since_ms: int, html: Path | None, common: Common, view: View
) -> None:
    from claimlib.cli.output import show_sections
    from claimlib.commands.period_report import period_report
    from claimlib.report.period_report import report_of_period, sections
    from claimlib.runs.rollforward import wall_ms

    if html is not None:
        from claimlib.report.run_report_html import period_as_html, write_html

    now_ms = wall_ms()
    with opened_store(store, common.settings(), common) as (opened, _):
        reported = period_report(opened, max(now_ms - since_ms, 0), now_ms)
    show_sections(report_of_period(reported), sections(reported), view)
    if html is not None:
        with _writing("html", html):
            write_html(period_as_html(reported), html)


@contextmanager
def _writing(option: str, path: Path) -> Iterator[None]:
    """Raise RequestError if the file of an option cannot be written."""
    try:
        yield
    except OSError as error:
        raise RequestError(
            f"--{option}: {path} cannot be written: {error.strerror}. Name another file",
            option=option,
        ) from error


def _file(option: str, path: Path | None) -> Path | None:
    """Return the file that a path leads to.  It is replaced, so it must not be a link.

    Raises:
        RequestError: the path leads to a folder or a device, or its folder does not exist.
    """
    target = None if path is None else path.resolve()
    if target is not None and (
        (target.exists() and not target.is_file()) or not target.parent.is_dir()
    ):
        raise RequestError(
            f"--{option}: {path} is a folder or a device, or is in a folder that does not exist:"
            " name a file in an existing folder",
            option=option,
        )
    return target
