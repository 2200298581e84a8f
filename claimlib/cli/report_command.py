"""Define the command that reports on a run, or on the runs of a period: report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from claimlib.cli.app import command
from claimlib.cli.common import Common
from claimlib.cli.opened_store import opened_store
from claimlib.cli.options import StoreArgument, View, argument
from claimlib.config.sections import Option, OptionGroup
from claimlib.errors import RequestError
from claimlib.places import is_url
from claimlib.report.report_file import write_file
from claimlib.times import parse_duration_ms

if TYPE_CHECKING:
    from claimlib.commands.report_run import RunReport


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Choose further outputs of the report.  An output is None if it is not requested."""

    html: Annotated[
        Path | None,
        Option(
            "Also write the report to this file, as one HTML page that needs no network.",
            "FILE",
            group=OptionGroup.OUTPUT,
        ),
    ] = None
    prometheus: Annotated[
        Path | None,
        Option(
            "Also write metrics to this file, for the textfile collector of the node exporter.",
            "FILE",
            group=OptionGroup.OUTPUT,
        ),
    ] = None
    openlineage: Annotated[
        str | None,
        Option(
            "Also send the run as an event to this OpenLineage server, or write the event to this"
            " file. If the server needs a key, put it in the environment variable"
            " OPENLINEAGE_API_KEY.",
            "URL|FILE",
            group=OptionGroup.OUTPUT,
        ),
    ] = None


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
    files: FileOptions,
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
    if since is None:
        _report_run(store, run, list(_writers(files)), common, view)
        return
    if run is not None or files.prometheus is not None or files.openlineage is not None:
        raise RequestError(
            "--since reports on all runs of a period: leave out RUN, --prometheus and"
            " --openlineage",
            option="since",
        )
    _report_period(store, parse_duration_ms(since), report_file("html", files.html), common, view)


def _writers(files: FileOptions) -> Iterator[Callable[[RunReport], None]]:
    """Yield a function for each further output.  It writes the file, or sends the event.

    If a package is missing, or a path cannot be a file, the error is raised at once, before the
    store is read.
    """
    html, prometheus = report_file("html", files.html), report_file("prometheus", files.prometheus)
    if html is not None:
        from claimlib.report.run_report_html import as_html

        yield lambda report: write_report("html", html, partial(write_file, as_html(report)))
    if prometheus is not None:
        from claimlib.report.run_report_prometheus import write_metrics

        yield lambda report: write_report("prometheus", prometheus, partial(write_metrics, report))
    target = files.openlineage
    if target is None:
        return
    from claimlib.report.run_report_openlineage import as_json, checked_url, send

    if is_url(target):
        yield partial(send, url=checked_url(target))
    elif (path := report_file("openlineage", Path(target))) is not None:
        yield lambda report: write_report("openlineage", path, partial(write_file, as_json(report)))


def _report_run(
    store: str,
    run: str | None,
    writers: Sequence[Callable[[RunReport], None]],
    common: Common,
    view: View,
) -> None:
    from claimlib.cli.output import show_sections
    from claimlib.commands.report_run import find_reported, run_report
    from claimlib.report.run_report import full_report_of_run, sections

    look = partial(find_reported, run=run)
    with opened_store(store, common.settings(), common, look=look) as (opened, _):
        reported = run_report(opened, run)
    # This comes first, because it refuses unknown columns, and then no file must be written.
    show_sections(full_report_of_run(reported), sections(reported), view)
    for write in writers:
        write(reported)


def _report_period(
    store: str, since_ms: int, html: Path | None, common: Common, view: View
) -> None:
    from claimlib.cli.output import show_sections
    from claimlib.commands.report_period import period_report
    from claimlib.report.period_report import report_of_period, sections
    from claimlib.runs.rollforward import wall_ms

    if html is not None:  # a missing package is an error before the store is read
        from claimlib.report.run_report_html import period_as_html

    now_ms = wall_ms()
    with opened_store(store, common.settings(), common) as (opened, _):
        reported = period_report(opened, max(now_ms - since_ms, 0), now_ms)
    show_sections(report_of_period(reported), sections(reported), view)
    if html is not None:
        write_report("html", html, partial(write_file, period_as_html(reported)))


def write_report(option: str, path: Path, write: Callable[[Path], None]) -> None:
    """Write the file of an option.

    Raises:
        RequestError: the file cannot be written.
    """
    try:
        write(path)
    except OSError as error:
        raise RequestError(
            f"--{option}: {path} cannot be written: {error.strerror}. Name another file",
            option=option,
        ) from error


def report_file(option: str, path: Path | None) -> Path | None:
    """Return the file that a path leads to, with links resolved.

    The caller replaces this file.  If the path were a link, only the link would be replaced.

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
