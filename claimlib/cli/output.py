"""Print results on stdout: a table for people, JSON and CSV for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from claimlib import terminal
from claimlib.cli.options import Output, View
from claimlib.report.render import Shown, columns_of, record_lines, table_of, wrapped
from claimlib.report.report_model import (
    Report,
    as_text,
    csv_lines,
    json_chunks,
    json_lines,
    with_columns,
    with_names,
)
from claimlib.terminal import one_line

if TYPE_CHECKING:
    from claimlib.report.run_report import Section


def show(report: Report, view: View) -> None:
    """Print a report.

    If stdout is not a terminal, a table is printed as plain text, and all columns are shown.

    Raises:
        RequestError: a chosen column does not exist, or is named twice.  Nothing is printed then.
    """
    if view.output is Output.JSON:
        terminal.out_chunks(json_chunks(report.document))
    elif view.output is Output.TABLE:
        wanted = view.wanted
        chosen = report if wanted is None else with_columns(report, wanted)
        _show_table(chosen, needs_all_columns=wanted is not None)
    else:
        _show_records(report if view.wanted is None else with_names(report, view.wanted), view)


def show_sections(main: Report, parts: Sequence[Section], view: View) -> None:
    """Print a report that has several tables.

    Args:
        main: the table that is printed first.  For programs it has the document and the records of
            the whole report.
        parts: further tables for people.  If `main` has rows, the first of them is the same table
            and is skipped.
    """
    show(main, view)
    if view.output is Output.TABLE and view.columns is None:
        for section in parts[1 if main.rows else 0 :]:
            terminal.out("")
            show(section.table, view)


def _show_records(report: Report, view: View) -> None:
    """Print the rows alone on stdout, so that a program need not separate them from other text.

    The rows, unlike the JSON document, cannot show that a limit cut off other rows.  So stderr
    shows it, even with --quiet.
    """
    if view.output is Output.CSV:
        terminal.out_lines(csv_lines(report), are_exact=True)
    else:
        terminal.out_lines(json_lines(report))
    terminal.say(*(report.cut_off if view.quiet else report.below))


def _show_table(report: Report, *, needs_all_columns: bool) -> None:
    if not terminal.is_terminal():
        terminal.out(as_text(report))
        return
    console = terminal.console()
    width = console.width
    columns = columns_of(report, has_all=needs_all_columns)
    # With `soft_wrap`, no line break is inserted into a run's key, so it can be copied whole.
    console.print(_lines(one_line(report.title), width, "table.title"), soft_wrap=True)
    shown = table_of(columns, width, cell_len)
    if shown is None:
        for line in record_lines(columns, width, cell_len):
            console.print(Text(line), soft_wrap=True)
        console.print()
    else:
        console.print(_table(shown))
    for note in (*report.below, *_left_out(shown)):
        console.print(_lines(one_line(note), width), soft_wrap=True)


def _lines(text: str, width: int, style: str = "") -> Text:
    return Text("\n".join(wrapped(text, width, cell_len)), style)


def _table(shown: Shown) -> Table:
    table = Table()
    if shown.is_open:
        table = Table(box=SIMPLE, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for column in shown.columns:
        table.add_column(
            Text(column.heading),
            justify="right" if column.right else "left",
            width=column.width,
            no_wrap=True,
        )
    for row in zip(*(column.texts for column in shown.columns), strict=True):
        table.add_row(*map(Text, row))
    return table


def _left_out(shown: Shown | None) -> Iterable[str]:
    if shown is not None and shown.left_out:
        yield f"columns that do not fit: {', '.join(shown.left_out)}; choose with --columns"
