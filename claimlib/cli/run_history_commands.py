"""Define the commands about runs: runs, abandon."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Annotated

from claimlib import terminal
from claimlib.cli.app import SectionOptions, command
from claimlib.cli.common import Common
from claimlib.cli.opened_store import opened_store
from claimlib.cli.options import EndOption, ScopeOptions, StartOption, StoreArgument, argument
from claimlib.config.sections import LockSection, Option, option_of
from claimlib.errors import RequestError
from claimlib.report.report_model import DEFAULT_LIMIT
from claimlib.semantics.ids import parse_range_end, parse_range_start

if TYPE_CHECKING:
    from claimlib.commands.runs import EntryFilter
    from claimlib.report.report_model import Report
    from claimlib.runs import FinishedRun
    from claimlib.store.tables import Store


@dataclass(frozen=True, slots=True)
class PartOptions:
    """Choose the part of a run to list.  At most one option may be given."""

    claimed: Annotated[bool, Option("List the entries that RUN claimed.")] = False
    deleted: Annotated[
        bool,
        Option(
            "List the pending entries that RUN deleted, because their stream entries no longer"
            " existed."
        ),
    ] = False
    lost: Annotated[
        bool,
        Option(
            "List the entries that RUN did not change, because another writer had changed them"
            " first."
        ),
    ] = False
    refused: Annotated[bool, Option("List the groups or requests that RUN refused, and why.")] = (
        False
    )
    ids: Annotated[
        bool,
        Option("Show what happened to each id named in RUN's requests (xclaim, xack, retire)."),
    ] = False
    as_commands: Annotated[
        bool,
        Option(
            "Print the commands that repeat on the server what RUN (xautoclaim, xclaim, xack,"
            " retire) did in the store, one per line for redis-cli. Nothing is sent: review them,"
            " then run them."
        ),
    ] = False


@command("runs ./store xautoclaim:nightly-1 --claimed --limit 1000")
def runs(
    store: StoreArgument,
    run: Annotated[
        str | None,
        argument(
            "RUN",
            "One run: its number, command:run_id, or its run id if only one run has it."
            " [default: list all]",
        ),
    ] = None,
    *,
    parts: PartOptions,
    scope: ScopeOptions,
    start: StartOption = None,
    end: EndOption = None,
    limit: Annotated[
        int | None,
        Option(
            "Show at most this number of rows, or of commands.",
            "ROWS",
            unset=f"{DEFAULT_LIMIT} rows in a table; all rows in json, csv and jsonl; all commands",
            least=1,
        ),
    ] = None,
    common: Common,
) -> None:
    """List finished runs, or show one.

    --claimed, --deleted, --lost, --ids, --refused and --as-commands list what the run did to
    entries. --stream, --group, --start and --end choose which of these entries are listed.

    Times are in UTC; JSON has them in milliseconds since the epoch (1970).
    """
    from claimlib.cli.output import show
    from claimlib.commands import runs as history
    from claimlib.report.runs_report import report_of_runs
    from claimlib.runs.maintenance import check_not_deleted

    view = common.view()
    rows = limit if parts.as_commands else view.rows(limit)
    kinds = [part.name for part in fields(parts) if getattr(parts, part.name)]
    _refuse_unless_one([option_of(kind) for kind in kinds], run)
    if parts.as_commands:
        view.check_lines("--as-commands")
    else:
        view.check(*_columns_of(run, kinds))
    filters = {"--stream": scope.streams, "--group": scope.groups, "--start": start, "--end": end}
    _refuse_filters(kinds, [name for name, value in filters.items() if value is not None])
    chosen = history.EntryFilter(
        scope.scope(),
        start=None if start is None else parse_range_start(start),
        end=None if end is None else parse_range_end(end),
    )
    look = None if run is None else partial(history.find_run, name=run)
    with opened_store(store, common.settings(), common, look=look) as (opened, _):
        if run is None:
            result = report_of_runs(opened.where, history.list_runs(opened, rows))
        else:
            finished = history.find_run(opened, run)
            if kinds:
                check_not_deleted(opened, finished.run_seq, finished.key, "be listed in detail")
            if not parts.as_commands:
                result = _report_of(opened, finished, kinds, rows, chosen)
    # This follows the `with`, in which printed lines go to stderr if a terminal shows progress.
    if parts.as_commands:
        _print_commands(opened, finished, limit, chosen, quiet=common.quiet)
    else:
        show(result, view)


def _columns_of(run: str | None, kinds: Sequence[str]) -> tuple[Mapping[str, str], Sequence[str]]:
    """Return the headings of the report by column, and the names of the values in its records."""
    from claimlib.report import bulk_report as bulk
    from claimlib.report import runs_report as report

    match list(kinds):
        case []:
            is_list = run is None
            return (report.LIST_COLUMNS, report.LIST_NAMES) if is_list else (report.COLUMNS, ())
        case ["ids"]:
            return bulk.COLUMNS, bulk.NAMES
        case ["refused"]:
            return report.REFUSED_COLUMNS, ()
        case [kind]:
            return report.entry_columns(kind)
    raise AssertionError(kinds)


def _refuse_unless_one(options: Sequence[str], run: str | None) -> None:
    """Raise RequestError if several parts are chosen, or a part without a run."""
    if len(options) > 1:
        raise RequestError(f"give only one of {', '.join(options)}", options=options)
    if options and run is None:
        raise RequestError(f"give a RUN with {options[0]}: claimlib runs STORE lists them")


def _refuse_filters(kinds: Sequence[str], filters: Sequence[str]) -> None:
    """Raise RequestError if a filter does not fit the part that is listed.

    A filter needs a part.  --start and --end do not fit --refused, which does not list entries.
    """
    if filters and not kinds:
        raise RequestError(
            f"{filters[0]} chooses entries of one run: give a RUN, and one of --claimed, --deleted,"
            " --lost, --ids, --refused and --as-commands",
            option=filters[0].removeprefix("--"),
        )
    bounds = [name for name in filters if name in {"--start", "--end"}]
    if bounds and kinds[0] == "refused":
        raise RequestError(
            f"{bounds[0]} cannot be combined with --refused, which lists groups and requests, not"
            f" entries: leave out {bounds[0]}",
            option=bounds[0].removeprefix("--"),
        )


def _report_of(
    opened: Store,
    finished: FinishedRun,
    kinds: Sequence[str],
    limit: int | None,
    chosen: EntryFilter,
) -> Report:
    """Return the report of a run, or of its entries, ids or refusals.

    The modules of these reports are imported here, because the import is slow.
    """
    from claimlib.report.runs_report import report_of_run

    if not kinds:
        return report_of_run(finished)
    (kind,) = kinds
    from claimlib.commands.bulk_reply import BulkReply
    from claimlib.commands.reply import Reply
    from claimlib.report.bulk_report import report_of_bulk
    from claimlib.report.runs_report import report_of_entries, report_of_refused
    from claimlib.runs.journal import rows_of
    from claimlib.schema import Kind

    if kind == "refused":
        refused = rows_of(opened, finished.run_seq, Kind.REFUSED)
        return report_of_refused(finished, chosen.of(refused), limit)
    if kind != "ids":
        entries = getattr(Reply.of_finished(opened, finished), kind)
        return report_of_entries(finished, kind, chosen.of(entries), limit)
    if Kind.REQUESTED not in finished.counts:
        raise RequestError(f"the request of run {finished.key} names no ids: leave out --ids")
    reply = BulkReply.of_finished(opened, finished)
    return report_of_bulk(finished.command, reply, limit, chosen=chosen.of(reply.ids))


def _print_commands(
    opened: Store, finished: FinishedRun, limit: int | None, chosen: EntryFilter, *, quiet: bool
) -> None:
    """Print lines for redis-cli, and nothing else, on stdout.

    Users save the lines in a file and run the whole file.  So all commands are printed by default.
    If --limit leaves commands out, stderr shows their number.
    """
    from claimlib.commands.server_commands import server_commands
    from claimlib.report.text import not_shown

    commands = server_commands(opened, finished, limit, chosen)
    has_lines = False
    for line in commands.lines:
        terminal.out(line)
        has_lines = True
    terminal.say(*not_shown(commands.hidden, "command"), *_warn_if_outdated(opened, finished))
    if not (has_lines or quiet):
        terminal.say("the run changed no matching entry, so there is no command to print")


def _warn_if_outdated(opened: Store, finished: FinishedRun) -> Iterable[str]:
    """Yield a warning if the run was undone or written back."""
    from claimlib.commands.runs import last_undo_of, writeback_of

    undo = last_undo_of(opened, finished.run_seq)
    if undo is not None:
        yield f"run {undo.run_seq} ({undo.key}) has undone this run: these commands would repeat it"
    writeback = writeback_of(opened, finished.run_seq)
    if writeback is not None:
        seq, key = writeback.run_seq, writeback.key
        yield f"run {seq} ({key}) has written this run back: do not send these commands again"


@command("abandon ./store snapshot:nightly-1")
def abandon(
    store: StoreArgument,
    run: Annotated[
        str,
        argument(
            "RUN",
            "The unfinished run: its number, command:run_id, or its run id. claimlib runs lists"
            " it.",
        ),
    ],
    *,
    lock: Annotated[SectionOptions, LockSection],
    common: Common,
) -> None:
    """Give up a snapshot or an import that cannot be finished.

    Use it only if the rows that the run had read were deleted before it was applied, and if no
    process is still working on the run. What the run has already written stays. Until the next
    snapshot or import, sweeps refuse the groups of its streams that have pending entries, because
    it is not known which of these entries still exist.
    """
    from claimlib.cli.output import show
    from claimlib.commands.runs import abandon as run_abandon
    from claimlib.commands.runs import find_unfinished
    from claimlib.report.runs_report import COLUMNS, report_of_run

    view = common.view(COLUMNS)
    settings = common.settings(lock=lock)
    look = partial(find_unfinished, name=run)
    with opened_store(store, settings, common, writes=True, look=look) as (opened, progress):
        result = report_of_run(run_abandon(opened, run, progress=progress))
    show(result, view)
