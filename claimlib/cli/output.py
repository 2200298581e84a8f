"""Results on stdout: a table for people, JSON for programs."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from claimlib.cli.options import Output
from claimlib.layout import Report, as_json, as_text, cell_text, is_numeric


def show(report: Report, output: Output) -> None:
    """Print a report; a table that does not go to a terminal is plain text of any width."""
    if output is Output.JSON:
        print(as_json(report))  # noqa: T201 - the result
    elif sys.stdout.isatty():
        _show_table(report)
    else:
        print(as_text(report))  # noqa: T201 - the result


def say(text: str) -> None:
    """One line for people, on stderr."""
    Console(stderr=True, soft_wrap=True, highlight=False).print(Text(f"claimlib: {text}"))


def _show_table(report: Report) -> None:
    table = Table(title=Text(report.title), title_justify="left")
    for at, name in enumerate(report.columns):
        table.add_column(name, justify="right" if is_numeric(report, at) else "left")
    for row in report.rows:
        table.add_row(*(Text(cell_text(cell)) for cell in row))
    console = Console()
    console.print(table)
    for note in report.notes:
        console.print(Text(note))
