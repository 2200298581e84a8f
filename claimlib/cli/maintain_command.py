"""Define the command that maintains a store: maintain."""

from __future__ import annotations

from typing import Annotated

from claimlib.cli.app import SectionOptions, command
from claimlib.cli.common import Common
from claimlib.cli.opened_store import opened_store
from claimlib.cli.options import DryRunOption, RunIdOption, StoreArgument
from claimlib.config.sections import LockSection, Option
from claimlib.times import parse_duration_ms


@command("maintain ./store --dry-run")
def maintain(
    store: StoreArgument,
    *,
    keep_history: Annotated[
        str | None,
        Option(
            "Delete the rows of journal and pel_snapshots of runs that ended more than DURATION ago"
            " (as in 90d). These runs can then no longer be undone, written back or listed in"
            " detail. Rows since the last snapshot or import of each group stay.",
            "DURATION",
            unset="keep all",
        ),
    ] = None,
    vacuum: Annotated[
        bool,
        Option(
            "Delete files that no version of the last 7 days uses. The table property"
            " delta.deletedFileRetentionDuration can set another time.",
            names=("--vacuum/--no-vacuum",),
        ),
    ] = True,
    lock: Annotated[SectionOptions, LockSection],
    run_id: RunIdOption = None,
    dry_run: DryRunOption = False,
    common: Common,
) -> None:
    """Compact the tables of a store, clean their logs, and delete old files.

    Pending entries do not change. Rows that a killed snapshot or import has staged are deleted.
    History is deleted only with --keep-history. --dry-run shows what would be lost.
    """
    from claimlib.cli.output import show
    from claimlib.commands.maintain import maintain as run_maintain
    from claimlib.report.maintain_report import COLUMNS, report_of_maintain

    view = common.view(COLUMNS)
    keep_ms = None if keep_history is None else parse_duration_ms(keep_history)
    settings = common.settings(lock=lock)
    with opened_store(store, settings, common, writes=not dry_run) as (opened, progress):
        reply = run_maintain(
            opened,
            keep_history_ms=keep_ms,
            vacuum=vacuum,
            run_id=run_id,
            dry_run=dry_run,
            progress=progress,
        )
    show(report_of_maintain(reply), view)
