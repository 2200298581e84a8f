"""Define the command that takes a snapshot, claims and writes back: rescue."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from claimlib import process, terminal
from claimlib.cli.app import SectionOptions, command
from claimlib.cli.common import Common
from claimlib.cli.opened_store import check_local_store, definitions_of, locked, opened_store
from claimlib.cli.options import RunIdOption, ServerOptions, StoreArgument, argument
from claimlib.config.sections import (
    LockSection,
    Option,
    OptionGroup,
    SnapshotSection,
    WritebackSection,
    XautoclaimSection,
    options_of,
)
from claimlib.config.settings import Config
from claimlib.errors import RequestError, StoreNotFoundError
from claimlib.live.address import is_server_url


@command("rescue redis://localhost:6379/0 ./store --consumer reclaimer --min-idle 15m")
def rescue(
    url: Annotated[
        str,
        argument(
            "URL",
            "redis://[USER@]HOST[:PORT][/DB], of a server or any node of a cluster, or"
            " redis+sentinel://[USER@]HOST[:PORT]/MASTER[/DB]; rediss for TLS; without a password.",
        ),
    ],
    store: StoreArgument,
    *,
    consumer: Annotated[list[str] | None, options_of(XautoclaimSection)["consumer"]] = None,
    assign: Annotated[str | None, options_of(XautoclaimSection)["assign"]] = None,
    min_idle: Annotated[str | None, options_of(XautoclaimSection)["min_idle"]] = None,
    extent: Annotated[SectionOptions, SnapshotSection],
    max_latency: Annotated[str | None, options_of(WritebackSection)["max_latency"]] = None,
    server: ServerOptions,
    lock: Annotated[SectionOptions, LockSection],
    run_id: RunIdOption = None,
    dry_run: Annotated[
        bool,
        Option(
            "Take a snapshot, and show how much would be claimed. Claims nothing, and writes"
            " nothing to the server.",
            group=OptionGroup.RUN,
        ),
    ] = False,
    common: Common,
) -> None:
    """Rescue the stalled entries of a server: snapshot, xautoclaim and writeback in one command.

    Creates the store if it does not exist. The three runs have the same run id. Repeat the command
    with this run id to continue after an error.
    """
    from claimlib.cli.output import show
    from claimlib.commands.rescue import rescue as run_rescue
    from claimlib.report.rescue_report import COLUMNS, report_of_rescue
    from claimlib.report.sweep_report import refusals

    view = common.view(COLUMNS)
    if is_server_url(store):
        raise RequestError("URL comes before STORE: claimlib rescue redis://HOST:PORT ./store")
    sweep = {"consumer": consumer, "assign": assign, "min_idle": min_idle}
    settings = common.settings(
        snapshot=extent, xautoclaim=sweep, writeback={"max_latency": max_latency}, lock=lock
    )
    reading = replace(
        settings.snapshot.reading(url, server.password_file, server.ca_file),
        max_latency_ms=settings.writeback.max_latency_ms,
    )
    request = replace(
        settings.xautoclaim.request(),
        stream_glob=reading.stream_glob,
        group_glob=reading.group_glob,
    )
    is_missing = _is_missing(store, settings)
    reading.check()
    if is_missing:
        _create(store, settings, common)
    with opened_store(store, settings, common, writes=True) as (opened, progress):
        reply = run_rescue(
            opened,
            reading,
            request,
            run_id=run_id,
            limits=settings.mirror.limits(),
            dry_run=dry_run,
            progress=progress,
        )
        result, refused = report_of_rescue(reply, opened.where), refusals(reply.swept)
    show(result, view)
    terminal.say(*refused)
    if refused:
        raise typer.Exit(process.SOME_REFUSED)


def _is_missing(store: str, settings: Config) -> bool:
    """Return True if a store does not exist, although its place is on this machine.

    Raises:
        StorageError: the process has no permission to write to the store.
    """
    try:
        check_local_store(store, settings, writes=True)
    except StoreNotFoundError:
        return True
    return False


def _create(store: str, settings: Config, common: Common) -> None:
    from claimlib.commands.init import init

    with (
        definitions_of(store, settings, common) as (definitions, progress),
        locked("init", store, settings, progress, is_repair=False),
    ):
        init(definitions)
