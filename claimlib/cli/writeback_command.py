"""Define the command that writes a run back to the server: writeback.

Other commands can end with a writeback, too.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

from claimlib import terminal
from claimlib.cli.app import SectionOptions, command
from claimlib.cli.common import Common
from claimlib.cli.opened_store import check_local_store, opened_store
from claimlib.cli.options import (
    DryRunOption,
    LimitOption,
    RunIdOption,
    ServerOptions,
    StoreArgument,
    argument,
)
from claimlib.config.sections import LockSection, WritebackSection
from claimlib.errors import RequestError
from claimlib.live.address import is_server_url

if TYPE_CHECKING:
    from claimlib.commands.writeback import WritebackReply
    from claimlib.config.settings import Config
    from claimlib.engine.relation import Relation
    from claimlib.live.access import ServerAccess
    from claimlib.runs import Progress
    from claimlib.store.tables import Store


@command("writeback ./store xautoclaim:nightly-1 redis://localhost:6379/0")
def writeback(
    store: StoreArgument,
    run: Annotated[
        str,
        argument(
            "RUN",
            "The xautoclaim, xclaim, xack, retire or undo run: its number, command:run_id, or its"
            " run id.",
        ),
    ],
    url: Annotated[
        str,
        argument(
            "URL",
            "The server that the store mirrors: redis://[USER@]HOST[:PORT][/DB], or rediss:// for"
            " TLS; without a password.",
        ),
    ],
    *,
    server: ServerOptions,
    extent: Annotated[SectionOptions, WritebackSection],
    lock: Annotated[SectionOptions, LockSection],
    run_id: RunIdOption = None,
    dry_run: DryRunOption = False,
    limit: LimitOption = None,
    common: Common,
) -> None:
    """Make the claims, deletions and acknowledgements of a run on the server that the store
    mirrors.

    Changes only entries that no other client changed since the snapshot. Deletions are
    acknowledged if the server, too, no longer has the stream entry. A retired consumer is removed
    if it has nothing pending. Write each run back before the next snapshot.
    """
    from claimlib.cli.output import show
    from claimlib.commands.writeback import find_run_to_write_back
    from claimlib.commands.writeback import writeback as run_writeback
    from claimlib.report.writeback_report import COLUMNS, report_of_writeback

    view = common.view(COLUMNS)
    rows = view.rows(limit)
    if is_server_url(store) or is_server_url(run):
        raise RequestError("URL comes last: claimlib writeback ./store RUN redis://HOST:PORT")
    settings = common.settings(writeback=extent, lock=lock)
    access = settings.writeback.access(url, server.password_file, server.ca_file)
    check_local_store(store, settings, writes=not dry_run)
    access.check()
    look = partial(find_run_to_write_back, run_name=run)
    with opened_store(store, settings, common, writes=not dry_run, look=look) as (opened, progress):
        reply = run_writeback(
            opened,
            run,
            access,
            run_id=run_id,
            max_age_ms=_max_age_ms(settings),
            dry_run=dry_run,
            progress=progress,
        )
        report = report_of_writeback(reply, rows)
    show(report, view)


def _max_age_ms(settings: Config) -> int:
    from claimlib.commands.writeback import DEFAULT_MAX_AGE_MS

    chosen = settings.writeback.max_age_ms
    return DEFAULT_MAX_AGE_MS if chosen is None else chosen


def check_target(
    store: Store,
    command: str,
    run_id: str | None,
    access: ServerAccess | None,
    settings: Config,
    chosen: Callable[[Relation], Relation],
) -> None:
    """Refuse a server to which the run cannot be written back, before the run begins.

    Args:
        access: the server, or None if the run is not written back.
        chosen: returns the rows of the table `groups` that belong to the groups of the run.

    Raises:
        SourceMismatchError, NotAMirrorError: the store does not mirror this server.
        GuardError: the last snapshot of a group is too old.
    """
    from claimlib.commands.first_look import look_before_run
    from claimlib.commands.writeback import check_before_run

    if access is not None:
        check = partial(
            check_before_run, server=access, max_age_ms=_max_age_ms(settings), chosen=chosen
        )
        look_before_run(store, command=command, run_id=run_id, check=check)


def write_back(
    store: Store,
    command: str,
    run_id: str | None,
    access: ServerAccess | None,
    settings: Config,
    progress: Progress,
) -> WritebackReply | None:
    """Write a finished run back under its run id.

    On an error, print the command with which a user can write the run back later.

    Args:
        access: the server, or None if the run is not written back.
    """
    from claimlib.commands.writeback import writeback as run_writeback

    if access is None:
        return None
    key = f"{command}:{run_id}"
    try:
        return run_writeback(
            store,
            key,
            access,
            run_id=run_id,
            max_age_ms=_max_age_ms(settings),
            progress=progress,
        )
    except BaseException:
        words = ("claimlib", "writeback", store.where, key, access.url, "--run-id", str(run_id))
        terminal.say(
            f"run {key} is done in the store, but not written back. To write it back, run:"
            f" {shlex.join(words)}"
        )
        raise
