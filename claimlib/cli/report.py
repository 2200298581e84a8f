"""The command that reports on a run: report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from claimlib import terminal
from claimlib.cli.app import command
from claimlib.cli.common import Common
from claimlib.cli.opening import opened_store
from claimlib.cli.options import Output, StoreArgument, argument
from claimlib.config.sections import Option, OptionGroup
from claimlib.errors import RequestError

if TYPE_CHECKING:
    from claimlib.commands.run_report import RunReport


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

    The report has the same size for any number of groups and entries: it names the worst groups,
    and counts the others. csv and jsonl have only these groups.
    """
    from claimlib.cli.output import show
    from claimlib.commands.run_report import find_reported, run_report
    from claimlib.report.run_report import of_run_report, sections

    view = common.view()
    writers = list(_writers(html, prometheus))
    look = partial(find_reported, run=run)
    with opened_store(store, common.settings(), common, look=look) as (opened, _):
        reported = run_report(opened, run)
    for write in writers:
        write(reported)
    show(of_run_report(reported), view)
    if view.output is Output.TABLE and view.columns is None:
        for section in sections(reported)[1:]:
            terminal.out("")
            show(section.table, view)


def _writers(html: Path | None, prometheus: Path | None) -> Iterator[Callable[[RunReport], None]]:
    """Yield the functions that write the files of a report.

    Raises:
        RequestError: a path cannot be a file.
        ModuleNotFoundError: the extra `report` is not installed.
    """
    for option, path in (("html", html), ("prometheus", prometheus)):
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            raise RequestError(
                f"--{option}: {path} is a folder, or is in a folder that does not exist: name a"
                " file in an existing folder",
                option=option,
            )
    if html is not None:
        from claimlib.report.run_report_html import write_html

        yield partial(write_html, path=html)
    if prometheus is not None:
        from claimlib.report.run_report_prometheus import write_metrics

        yield partial(write_metrics, path=prometheus)
