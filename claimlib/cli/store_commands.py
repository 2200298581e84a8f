"""Define the commands that create, fill and check a store.

The commands are init, upgrade, snapshot, import and check.
"""

from __future__ import annotations

from dataclasses import astuple, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from claimlib import process, terminal
from claimlib.cli.app import SectionOptions, command
from claimlib.cli.common import Common
from claimlib.cli.opened_store import (
    check_local_store,
    check_new_store,
    definitions_of,
    locked,
    opened_store,
)
from claimlib.cli.options import RunIdOption, ServerOptions, StoreArgument, argument
from claimlib.config.sections import LockSection, MirrorSection, Option, SnapshotSection
from claimlib.errors import RequestError
from claimlib.live.address import is_server_url


@command("init ./store --buckets 8")
def init(
    store: StoreArgument,
    buckets: Annotated[
        int | None,
        Option(
            "Number of partitions of the large tables; cannot be changed later.",
            "NUMBER",
            unset="8, or what the store has",
            least=1,
        ),
    ] = None,
    source: Annotated[
        str | None,
        Option(
            "For imports: a name for the source, shown in reports. For snapshots: leave it out for"
            " a new store. If the server of a store has moved since, give its new address,"
            " HOST:PORT/DB.",
            "NAME",
            unset="import",
        ),
    ] = None,
    accept_replaced: Annotated[
        bool,
        Option(
            "Accept tables that were dropped and created again, or replaced by older copies, as"
            " they are now. Commands refuse them otherwise, and so does init."
        ),
    ] = False,
    print_sql: Annotated[
        bool,
        Option(
            "Print the SQL statements that create the tables (with 8 buckets, or what --buckets"
            " says), and stop."
        ),
    ] = False,
    *,
    lock: Annotated[SectionOptions, LockSection],
    common: Common,
) -> None:
    """Create the tables of a store.

    Tables that already exist are left unchanged; a table that the store has lost is created again,
    without rows. If the lost table is entries or streams,
    sweeps refuse the groups until the next snapshot or import.
    """
    from claimlib.cli.output import show
    from claimlib.commands.init import init as run_init
    from claimlib.commands.sources import source_of
    from claimlib.report.store import COLUMNS, report_of_store
    from claimlib.schema import DEFAULT_BUCKETS
    from claimlib.store.checks import check_options
    from claimlib.store.creation import init_sql

    view = common.view(COLUMNS)
    settings = common.settings(lock=lock)
    if print_sql:
        view.check_lines("--print-sql")
        if accept_replaced:
            raise RequestError(
                "--accept-replaced cannot be combined with --print-sql, which changes no store",
                option="accept_replaced",
            )
        for statement in init_sql(store, buckets=buckets or DEFAULT_BUCKETS, source=source):
            terminal.out(f"{statement};\n")
        return
    check_options(buckets, source)
    check_new_store(store, settings)
    with (
        definitions_of(store, settings, common) as (definitions, progress),
        locked(
            "init",
            store,
            settings,
            progress,
            is_repair=accept_replaced or source is not None,  # these change a complete store, too
        ),
    ):
        creation, renamed = run_init(
            definitions, buckets=buckets, source=source, accept_replaced=accept_replaced
        )
        result = report_of_store(creation, source_of(creation.store), renamed)
    show(result, view)


@command("upgrade ./store")
def upgrade(
    store: StoreArgument,
    lock: Annotated[SectionOptions, LockSection],
    *,
    common: Common,
) -> None:
    """Bring a store of an earlier version of claimlib to this version.

    Adds the columns that its tables lack, and changes no row. Run it while no other command works
    on the store. It is refused while a run is unfinished.
    """
    from claimlib.cli.output import show
    from claimlib.commands.upgrade import upgrade as run_upgrade
    from claimlib.report.store import COLUMNS, report_of_upgrade

    view = common.view(COLUMNS)
    settings = common.settings(lock=lock)
    check_local_store(store, settings, writes=True)
    with (
        definitions_of(store, settings, common) as (definitions, progress),
        locked("upgrade", store, settings, progress),
    ):
        result = report_of_upgrade(run_upgrade(definitions))
    show(result, view)


@command("snapshot redis://localhost:6379/0 ./store --stream 'orders:*'")
def snapshot(
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
    extent: Annotated[SectionOptions, SnapshotSection],
    server: ServerOptions,
    limits: Annotated[SectionOptions, MirrorSection],
    lock: Annotated[SectionOptions, LockSection],
    run_id: RunIdOption = None,
    common: Common,
) -> None:
    """Update a store to the current state of a server.

    Reads streams, groups, consumers and pending entries, page by page, and changes nothing on the
    server. Times come from the server's clock, in ms since the epoch.
    """
    from claimlib.cli.output import show
    from claimlib.commands.first_look import look_before_run
    from claimlib.commands.snapshot import snapshot as run_snapshot
    from claimlib.commands.sources import refuse_other_server
    from claimlib.report.mirror_report import COLUMNS, report_of_snapshot
    from claimlib.runs.journal import ServerIdentity

    view = common.view(COLUMNS)
    if is_server_url(store):
        raise RequestError("URL comes before STORE: claimlib snapshot redis://HOST:PORT ./store")
    settings = common.settings(snapshot=extent, mirror=limits, lock=lock)
    reading = replace(
        settings.snapshot.reading(url, server.password_file, server.ca_file),
        needs_all_masters=False,  # the streams of a master that does not answer stay as they are
    )
    request = settings.snapshot.request(reading.label, settings.mirror.limits())
    check_local_store(store, settings, writes=True)
    server_ids = reading.check()
    look = partial(
        look_before_run,
        command="snapshot",
        run_id=run_id,
        check=partial(
            refuse_other_server, source=reading.label, server=ServerIdentity(*astuple(server_ids))
        ),
    )
    with opened_store(store, settings, common, writes=True, look=look) as (opened, progress):
        reply = run_snapshot(opened, request, reading, run_id=run_id, progress=progress)
    show(report_of_snapshot(reply), view)
    terminal.say(
        *(f"streams of a master were left as they were: {reason}" for reason in reply.masters_down)
    )
    if reply.counts.get("master_down"):
        raise typer.Exit(process.SOME_REFUSED)


@command(
    "import ./store --entries lake.raw.entries --pending lake.raw.pending"
    " --entries-complete --map map.toml"
)
def import_(
    store: StoreArgument,
    *,
    entries: Annotated[
        str,
        Option(
            "The table of stream entries: catalog.schema.table, or a folder or file of Delta or"
            " Parquet (in the current folder: ./NAME).",
            "TABLE",
        ),
    ],
    pending: Annotated[
        str, Option("The table of pending entries; given as for --entries.", "TABLE")
    ],
    groups: Annotated[
        str | None,
        Option(
            "The table of consumer groups.", "TABLE", unset="the groups that have pending entries"
        ),
    ] = None,
    consumers: Annotated[
        str | None,
        Option("The table of consumers.", "TABLE", unset="the store keeps its consumers"),
    ] = None,
    streams: Annotated[
        str | None,
        Option(
            "The table of streams, with the id range over which --entries is complete.", "TABLE"
        ),
    ] = None,
    entries_complete: Annotated[
        bool,
        Option(
            "You guarantee that --entries has exactly the ids of the streams, so that a missing id"
            " means a deleted entry."
        ),
    ] = False,
    map_file: Annotated[
        Path | None,
        Option(
            "TOML file that maps claimlib's columns to yours. The section [pending] is for the"
            ' table of --pending. There, consumer = "owner" means that your column owner has the'
            " consumers.",
            "FILE",
            unset="the columns have claimlib's names",
            names=("--map",),
        ),
    ] = None,
    limits: Annotated[SectionOptions, MirrorSection],
    lock: Annotated[SectionOptions, LockSection],
    run_id: RunIdOption = None,
    common: Common,
) -> None:
    """Update a store from your own tables.

    Writes only the differences; rows that your tables no longer have are removed from the store.
    Times are timestamps, or milliseconds since the epoch (1970).
    """
    from claimlib.cli.output import show
    from claimlib.commands.first_look import look_before_run
    from claimlib.commands.imports import ImportRequest, import_tables
    from claimlib.commands.sources import refuse_import
    from claimlib.config.import_map import load_import_map
    from claimlib.report.mirror_report import COLUMNS, report_of_import

    view = common.view(COLUMNS)
    settings = common.settings(mirror=limits, lock=lock)
    request = ImportRequest(
        entries=entries,
        pending=pending,
        groups=groups,
        consumers=consumers,
        streams=streams,
        entries_complete=entries_complete,
        limits=settings.mirror.limits(),
        maps={} if map_file is None else load_import_map(map_file),
    )
    look = partial(look_before_run, command="import", run_id=run_id, check=refuse_import)
    inputs = request.places().values()
    with opened_store(store, settings, common, writes=True, inputs=inputs, look=look) as (
        opened,
        progress,
    ):
        reply = import_tables(opened, request, run_id=run_id, progress=progress)
    show(report_of_import(reply), view)


@command("check ./store --output json")
def check(
    store: StoreArgument,
    *,
    replay: Annotated[
        bool,
        Option(
            "Also compare pending and tombstones with the last snapshots or imports and the"
            " journal. Compare the counts of runs with the journal, and the generated columns with"
            " the names. Exits with code 3 if something differs. This reads all of these tables."
        ),
    ] = False,
    common: Common,
) -> None:
    """Find problems in the tables of a store, the most serious first.

    Changes nothing. Exits with code 4 if a problem would make a sweep refuse groups, or keep it
    from using a table, and with 0 if there are only remarks. Counts are of rows, keys, groups or
    owners, as each line says.
    """
    from claimlib.cli.output import show
    from claimlib.commands.check import check as run_check
    from claimlib.report.store import CHECK_COLUMNS, CHECK_NAMES, report_of_check

    view = common.view(CHECK_COLUMNS, CHECK_NAMES)
    with opened_store(store, common.settings(), common) as (opened, _):
        problems = run_check(opened, replay=replay)
    show(report_of_check(opened.where, problems), view)
    if any(problem.refuses for problem in problems):
        raise typer.Exit(process.INPUT_REFUSED)
    if any(problem.is_difference for problem in problems):
        raise typer.Exit(process.STALLED)
