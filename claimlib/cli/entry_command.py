"""Define the command that shows the history of an entry or of a consumer: entry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

from claimlib.cli.app import command
from claimlib.cli.common import Common
from claimlib.cli.opened_store import opened_store
from claimlib.cli.options import LimitOption, StoreArgument, argument
from claimlib.config.sections import SPELLED, Option
from claimlib.errors import RequestError
from claimlib.semantics.ids import StreamId, parse_id
from claimlib.semantics.names import unspell_shown

if TYPE_CHECKING:
    from claimlib.report.report_model import Report
    from claimlib.store.tables import Store


@command("entry ./store orders:eu 1767225600000-0")
def entry(
    store: StoreArgument,
    stream: Annotated[str | None, argument("STREAM", f"Name of the stream, {SPELLED}.")] = None,
    id_: Annotated[str | None, argument("ID", "Id of the entry: ms-seq.")] = None,
    group: Annotated[
        str | None, argument("GROUP", f"Name of one group, {SPELLED}. [default: all]")
    ] = None,
    *,
    consumer: Annotated[
        str | None,
        Option(
            "Instead of an entry: list the entries that runs took from this consumer or gave to it,"
            " in all streams, or in STREAM.",
            "NAME",
        ),
    ] = None,
    limit: LimitOption = None,
    common: Common,
) -> None:
    """Show the history of one entry: its owners, with times and runs, and its present state.

    Each row is an event: a run changed the entry, or a snapshot or an import read it. Times are in
    UTC. JSON has the request of each run.
    """
    from claimlib.cli.output import show
    from claimlib.report.entry_report import CONSUMER_COLUMNS, ENTRY_COLUMNS

    names = [None if name is None else unspell_shown(name) for name in (stream, group)]
    wanted = None if id_ is None else parse_id(id_)
    view = common.view(ENTRY_COLUMNS if consumer is None else CONSUMER_COLUMNS)
    rows = view.rows(limit)
    if consumer is None:
        build_report = _entry_report_builder(names, wanted)
    else:
        build_report = _consumer_report_builder(consumer, names, id_)
    with opened_store(store, common.settings(), common) as (opened, _):
        report = build_report(opened, rows)
    show(report, view)


_ReportBuilder = Callable[["Store", int | None], "Report"]


def _entry_report_builder(names: Sequence[bytes | None], wanted: StreamId | None) -> _ReportBuilder:
    from claimlib.commands.entry import entry_history
    from claimlib.report.entry_report import report_of_entry

    stream, group = names
    if stream is None or wanted is None:
        raise RequestError("name an entry: claimlib entry STORE STREAM ID, or give --consumer NAME")
    return lambda store, rows: report_of_entry(entry_history(store, stream, wanted, group), rows)


def _consumer_report_builder(
    name: str, names: Sequence[bytes | None], id_: str | None
) -> _ReportBuilder:
    from claimlib.commands.entry import consumer_history, refuse_unknown_names
    from claimlib.report.entry_report import report_of_consumer
    from claimlib.runs.maintenance import deleted_history

    if id_ is not None:
        raise RequestError("give an ID or --consumer, not both", option="consumer")
    consumer = unspell_shown(name)

    def build(store: Store, rows: int | None) -> Report:
        events = consumer_history(store, consumer, *names)
        report = report_of_consumer(name, events, rows, deleted_history(store))
        if not (report.document["lost"] or report.document["received"]):
            refuse_unknown_names(store, consumer, *names)
        return report

    return build
