"""The commands about runs: runs, abandon."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from claimlib import terminal
from claimlib.cli.app import app
from claimlib.cli.common import Common, with_common
from claimlib.cli.opening import looked_at_store, opened_store
from claimlib.cli.options import (
    AbandonedRunArgument,
    AsCommandsOption,
    ClaimedOption,
    DeletedOption,
    IdsOption,
    LostOption,
    RefusedOption,
    RunArgument,
    RunsLimitOption,
    StoreArgument,
)
from claimlib.config.settings import option_of
from claimlib.errors import RequestError
from claimlib.report.model import DEFAULT_LIMIT
from claimlib.report.text import not_shown

if TYPE_CHECKING:
    from claimlib.report.model import Report
    from claimlib.runs import Finished
    from claimlib.store.tables import Store


@app.command(epilog="Example: claimlib runs ./store xautoclaim:nightly-1 --claimed --limit 1000")
@with_common
def runs(
    store: StoreArgument,
    run: RunArgument = None,
    claimed: ClaimedOption = False,
    deleted: DeletedOption = False,
    lost: LostOption = False,
    refused: RefusedOption = False,
    ids: IdsOption = False,
    as_commands: AsCommandsOption = False,
    limit: RunsLimitOption = None,
    *,
    common: Common,
) -> None:
    """List finished runs, or show one.

    Times are in UTC; JSON has them in milliseconds since the epoch (1970).
    """
    from claimlib.cli.output import show
    from claimlib.commands import runs as history
    from claimlib.report.runs import of_run, of_runs

    view = common.view()
    rows = DEFAULT_LIMIT if limit is None else limit
    chosen = {
        "claimed": claimed,
        "deleted": deleted,
        "lost": lost,
        "ids": ids,
        "refused": refused,
        "as_commands": as_commands,
    }
    kinds = [name for name, is_chosen in chosen.items() if is_chosen]
    _refuse_unless_one([option_of(kind) for kind in kinds], run)
    if as_commands:
        view.check_lines("--as-commands")
    with looked_at_store(store, common.settings(), common) as opened:
        if run is None:
            result = of_runs(opened.where, history.list_runs(opened, rows))
        else:
            finished = history.find_run(opened, run)
            if as_commands:
                _print_commands(opened, finished, limit, quiet=common.quiet)
                return
            if kinds:
                result = _part(opened, finished, kinds[0], rows)
            else:
                result = of_run(finished, history.remark_on(opened, finished))
    show(result, view)


def _refuse_unless_one(options: Sequence[str], run: str | None) -> None:
    """One part of one run is shown at a time."""
    if len(options) > 1:
        raise RequestError(f"give only one of {', '.join(options)}", options=options)
    if options and run is None:
        raise RequestError(f"give a RUN with {options[0]}: claimlib runs STORE lists them")


def _part(opened: Store, finished: Finished, kind: str, limit: int) -> Report:
    """Entries, ids or refusals of a run.  What these need is slow to import."""
    from claimlib.commands.bulk_reply import BulkReply
    from claimlib.commands.reply import Reply
    from claimlib.report.bulk import of_bulk
    from claimlib.report.runs import of_entries, of_refused
    from claimlib.runs.journal import rows_of
    from claimlib.schema import Kind

    if kind == "refused":
        return of_refused(finished, rows_of(opened, finished.run_seq, Kind.REFUSED), limit)
    if kind != "ids":
        return of_entries(finished, kind, getattr(Reply.of_finished(opened, finished), kind), limit)
    if Kind.REQUESTED not in finished.counts:
        raise RequestError(f"the request of run {finished.key} names no ids: leave out --ids")
    return of_bulk(finished.command, BulkReply.of_finished(opened, finished), limit)


def _print_commands(opened: Store, finished: Finished, limit: int | None, *, quiet: bool) -> None:
    """Lines for redis-cli, and nothing else, on stdout.  They go into a file that is run as a
    whole, so nothing is cut off by itself, and never in silence."""
    from claimlib.commands.server_commands import server_commands

    commands = server_commands(opened, finished, limit)
    has_lines = False
    for line in commands.lines:
        terminal.out(line)
        has_lines = True
    terminal.say(*not_shown(commands.hidden, "command"))
    if not (has_lines or quiet):
        terminal.say("the run changed no entry, so there is no command")


@app.command(epilog="Example: claimlib abandon ./store snapshot:nightly-1")
@with_common
def abandon(
    store: StoreArgument,
    run: AbandonedRunArgument,
    *,
    common: Common,
) -> None:
    """Give up a snapshot or an import that cannot be finished.

    Use it only if the rows that the run had read were deleted before it was applied, and if no
    process is still working on the run. What the run has already written stays. Until the next
    snapshot or import, sweeps refuse the groups of its streams that have pending entries, because
    it is not known which of these entries still exist.
    """
    from claimlib.cli.output import show
    from claimlib.commands.runs import abandon as give_up
    from claimlib.report.runs import COLUMNS, of_run

    view = common.view(COLUMNS)
    with opened_store(store, common.settings(), common) as (opened, _):
        result = of_run(give_up(opened, run))
    show(result, view)
