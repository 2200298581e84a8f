"""Write a report on one run, or on the runs of a period, as one HTML document."""

from __future__ import annotations

from claimlib.commands.report_period import PeriodReport
from claimlib.commands.report_run import RunReport
from claimlib.report import period_report
from claimlib.report.page import Page, render
from claimlib.report.run_report import full_report_of_run, name_of, sections
from claimlib.report.text import instant


def as_html(report: RunReport) -> str:
    """Return the HTML document of a report on one run."""
    return render(page_of_run(report))


def page_of_run(report: RunReport) -> Page:
    """Return the page of a report on one run."""
    main = full_report_of_run(report)
    heading = f"claimlib report: {name_of(report)}"
    return Page(heading, main.title, _times(report), main.notes, sections(report))


def period_as_html(report: PeriodReport) -> str:
    """Return the HTML document of a report on a period."""
    main = period_report.report_of_period(report)
    about = f"From {instant(report.since_ms)} to {instant(report.until_ms)}, store {report.where}."
    heading = "claimlib report: runs of a period"
    return render(Page(heading, main.title, about, main.notes, period_report.sections(report)))


def _times(report: RunReport) -> str:
    run = report.run
    times = [
        f"{event} {instant(ms)}"
        for event, ms in (("Began", run.began_ms), ("ended", run.ended_ms))
        if ms is not None
    ]
    return f"{', '.join([*times, f'store {report.where}'])}."
