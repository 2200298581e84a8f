"""The command that carries a run to the server: writeback."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from claimlib.cli.app import SectionOptions, command
from claimlib.cli.common import Common
from claimlib.cli.opening import check_local_store, opened_store
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


@command("writeback ./store xautoclaim:nightly-1 redis://localhost:6379/0")
def writeback(
    store: StoreArgument,
    run: Annotated[
        str,
        argument(
            "RUN",
            "The xautoclaim, xclaim or retire run: its number, command:run_id, or its run id.",
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
    """Make the claims and deletions of a run on the server that the store mirrors.

    Changes only entries that no other client changed since the snapshot. Deletions are
    acknowledged if the server, too, no longer has the stream entry. A retired consumer is removed
    if it has nothing pending. Write each run back before the next snapshot.
    """
    from claimlib.cli.output import show
    from claimlib.commands.writeback import DEFAULT_MAX_AGE_MS, find_written
    from claimlib.commands.writeback import writeback as run_writeback
    from claimlib.report.writeback import COLUMNS, of_writeback

    view = common.view(COLUMNS)
    rows = view.rows(limit)
    if is_server_url(store) or is_server_url(run):
        raise RequestError("URL comes last: claimlib writeback ./store RUN redis://HOST:PORT")
    settings = common.settings(writeback=extent, lock=lock)
    chosen = settings.writeback
    access = chosen.access(url, server.password_file, server.ca_file)
    max_age_ms = DEFAULT_MAX_AGE_MS if chosen.max_age_ms is None else chosen.max_age_ms
    check_local_store(store, settings, writes=not dry_run)
    access.check()
    look = partial(find_written, run_name=run)
    with opened_store(store, settings, common, writes=not dry_run, look=look) as (opened, progress):
        reply = run_writeback(
            opened,
            run,
            access,
            run_id=run_id,
            max_age_ms=max_age_ms,
            dry_run=dry_run,
            progress=progress,
        )
        report = of_writeback(reply, rows)
    show(report, view)
