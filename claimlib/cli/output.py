"""Results on stdout: a table for people, JSON for programs."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from claimlib import terminal
from claimlib.cli.options import Output
from claimlib.layout import Report, as_json, as_text, cell_text, is_numeric
from claimlib.terminal import one_line


def show(report: Report, output: Output) -> None:
    """Print a report; a table that does not go to a terminal is plain text of any width."""
    if output is Output.JSON:
        terminal.out(as_json(report))
    elif terminal.is_terminal():
        _show_table(report)
    else:
        terminal.out(as_text(report))


def _show_table(report: Report) -> None:
    table = Table(title=Text(one_line(report.title)), title_justify="left")
    for at, name in enumerate(report.columns):
        table.add_column(name, justify="right" if is_numeric(report, at) else "left")
    for row in report.rows:
        table.add_row(*(Text(cell_text(cell)) for cell in row))
    console = terminal.console()
    console.print(table)
    for note in report.notes:
        console.print(Text(one_line(note)))
