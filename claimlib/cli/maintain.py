"""The command that maintains a store: maintain."""

from __future__ import annotations

from typing import Annotated

from claimlib.cli.app import SectionOptions, command
from claimlib.cli.common import Common
from claimlib.cli.opening import opened_store
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
            "Delete the journal rows and the read pending entries of runs that ended more than"
            " DURATION ago (as in 90d). These runs can then not be undone, and the history of"
            " entries begins later. What a group needs since its last snapshot or import stays.",
            "DURATION",
            unset="keep all",
        ),
    ] = None,
    vacuum: Annotated[
        bool,
        Option(
            "Remove files that no version within the retention of a table has (7 days, its"
            " property delta.deletedFileRetentionDuration).",
            names=("--vacuum/--no-vacuum",),
        ),
    ] = True,
    lock: Annotated[SectionOptions, LockSection],
    run_id: RunIdOption = None,
    dry_run: DryRunOption = False,
    common: Common,
) -> None:
    """Compact the tables of a store, clean their logs, and remove old files.

    What is pending does not change. Staged rows that no run has used are deleted. History is
    deleted only with --keep-history. --dry-run says what would be lost.
    """
    from claimlib.cli.output import show
    from claimlib.commands.maintain import maintain as run_maintain
    from claimlib.report.maintain import COLUMNS, of_maintain

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
    show(of_maintain(reply), view)
