"""Define the command that reverses the changes of a run: undo."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from claimlib.cli.app import SectionOptions, command
from claimlib.cli.common import Common
from claimlib.cli.opened_store import check_local_store, opened_store
from claimlib.cli.options import DryRunOption, LimitOption, RunIdOption, StoreArgument, argument
from claimlib.config.sections import LockSection


@command("undo ./store xautoclaim:nightly-1 --dry-run")
def undo(
    store: StoreArgument,
    run: Annotated[
        str,
        argument(
            "RUN",
            "The xautoclaim, xclaim, xack, retire, reset-cursor or undo run: its number,"
            " command:run_id, or its run id.",
        ),
    ],
    *,
    lock: Annotated[SectionOptions, LockSection],
    run_id: RunIdOption = None,
    dry_run: DryRunOption = False,
    limit: LimitOption = None,
    common: Common,
) -> None:
    """Put back what a run changed in the store: owners, counts, deleted and acknowledged entries.

    Consumers, cursors and last delivered ids are put back, too. What has changed since the run
    stays as it is, and is listed. An undo is a run: to do the undone run again, undo the undo.
    """
    from claimlib.cli.output import show
    from claimlib.commands.undo import find_undoable
    from claimlib.commands.undo import undo as run_undo
    from claimlib.report.undo_report import COLUMNS, report_of_undo

    view = common.view(COLUMNS)
    rows = view.rows(limit)
    settings = common.settings(lock=lock)
    check_local_store(store, settings, writes=not dry_run)
    look = partial(find_undoable, run_name=run, run_id=run_id)
    with opened_store(store, settings, common, writes=not dry_run, look=look) as (opened, progress):
        reply = run_undo(opened, run, run_id=run_id, dry_run=dry_run, progress=progress)
        report = report_of_undo(reply, opened.where, rows)
    show(report, view)
