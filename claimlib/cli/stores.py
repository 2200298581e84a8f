"""The commands that make and fill a store: init, upgrade, snapshot, import; and check."""

from __future__ import annotations

import typer

from claimlib import process, terminal
from claimlib.cli.app import app
from claimlib.cli.common import Common, with_common
from claimlib.cli.opening import (
    check_local_store,
    check_new_store,
    definitions_of,
    opened_store,
)
from claimlib.cli.options import (
    AcceptReplacedOption,
    AllowEmptyOption,
    BucketsOption,
    CaFileOption,
    ConsumersOption,
    EntriesCompleteOption,
    EntriesOption,
    FieldsOption,
    GroupOption,
    GroupsOption,
    MapOption,
    MaxCommandsPerSecondOption,
    MaxRemovedShareOption,
    PasswordFileOption,
    PendingOption,
    PrintSqlOption,
    RunIdOption,
    SourceOption,
    StoreArgument,
    StreamOption,
    StreamsOption,
    UrlArgument,
)
from claimlib.errors import RequestError
from claimlib.live.address import is_server_url


@app.command(epilog="Example: claimlib init ./store --buckets 8")
@with_common
def init(
    store: StoreArgument,
    buckets: BucketsOption = None,
    source: SourceOption = None,
    accept_replaced: AcceptReplacedOption = False,
    print_sql: PrintSqlOption = False,
    *,
    common: Common,
) -> None:
    """Create the tables of a store.

    Tables that already exist are left unchanged; a table that the store has lost is created again,
    without rows. If that is entries, sweeps refuse the groups until the next snapshot or import.
    """
    from claimlib.cli.output import show
    from claimlib.commands.mirror import source_of
    from claimlib.report.store import COLUMNS, of_store
    from claimlib.schema import DEFAULT_BUCKETS
    from claimlib.store.checks import check_options
    from claimlib.store.creation import create, init_sql

    view = common.view(COLUMNS)
    settings = common.settings()
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
    with definitions_of(store, settings, common) as definitions:
        creation = create(
            definitions, buckets=buckets, source=source, accept_replaced=accept_replaced
        )
        result = of_store(creation, source_of(creation.store))
    show(result, view)


@app.command(epilog="Example: claimlib upgrade ./store")
@with_common
def upgrade(
    store: StoreArgument,
    *,
    common: Common,
) -> None:
    """Bring a store of an earlier version of claimlib to this version.

    Adds the columns that its tables lack, and changes no row. Run it while no other command works
    on the store. It is refused while a run is unfinished.
    """
    from claimlib.cli.output import show
    from claimlib.commands.upgrade import upgrade as run_upgrade
    from claimlib.report.store import COLUMNS, of_upgrade

    view = common.view(COLUMNS)
    settings = common.settings()
    check_local_store(store, settings, writes=True)
    with definitions_of(store, settings, common) as definitions:
        result = of_upgrade(run_upgrade(definitions))
    show(result, view)


@app.command(
    epilog="Example: claimlib snapshot redis://localhost:6379/0 ./store --stream 'orders:*'"
)
@with_common
def snapshot(
    url: UrlArgument,
    store: StoreArgument,
    stream: StreamOption = None,
    group: GroupOption = None,
    fields: FieldsOption = None,
    max_commands_per_second: MaxCommandsPerSecondOption = None,
    password_file: PasswordFileOption = None,
    ca_file: CaFileOption = None,
    allow_empty: AllowEmptyOption = None,
    max_removed_share: MaxRemovedShareOption = None,
    run_id: RunIdOption = None,
    *,
    common: Common,
) -> None:
    """Update a store to the current state of a server.

    Reads streams, groups, consumers and pending entries, page by page, and changes nothing on the
    server. Times come from the server's clock, in ms since the epoch.
    """
    from claimlib.cli.output import show
    from claimlib.commands.snapshot import snapshot as run_snapshot
    from claimlib.report.mirror import COLUMNS, of_snapshot

    view = common.view(COLUMNS)
    if is_server_url(store):
        raise RequestError("URL comes before STORE: claimlib snapshot redis://HOST:PORT ./store")
    options = {
        "stream": stream,
        "group": group,
        "fields": fields,
        "max_commands_per_second": max_commands_per_second,
    }
    limits = {"allow_empty": allow_empty, "max_removed_share": max_removed_share}
    settings = common.settings(snapshot=options, mirror=limits)
    reading = settings.snapshot.reading(url, password_file, ca_file)
    request = settings.snapshot.request(reading.label, settings.mirror.limits())
    check_local_store(store, settings, writes=True)
    reading.check()
    with opened_store(store, settings, common, writes=True, by_spark=True) as (
        opened,
        progress,
    ):
        reply = run_snapshot(opened, request, reading, run_id=run_id, progress=progress)
    show(of_snapshot(reply), view)


@app.command(
    name="import",
    epilog="Example: claimlib import ./store --entries lake.raw.entries --pending lake.raw.pending"
    " --entries-complete --map map.toml",
)
@with_common
def import_(
    store: StoreArgument,
    entries: EntriesOption,
    pending: PendingOption,
    groups: GroupsOption = None,
    consumers: ConsumersOption = None,
    streams: StreamsOption = None,
    entries_complete: EntriesCompleteOption = False,
    map_file: MapOption = None,
    allow_empty: AllowEmptyOption = None,
    max_removed_share: MaxRemovedShareOption = None,
    run_id: RunIdOption = None,
    *,
    common: Common,
) -> None:
    """Update a store from your own tables.

    Writes only the differences; rows that your tables no longer have are removed from the store.
    Times are timestamps, or milliseconds since the epoch (1970).
    """
    from claimlib.cli.output import show
    from claimlib.commands.imports import ImportRequest, import_tables
    from claimlib.config.import_map import load_map
    from claimlib.report.mirror import COLUMNS, of_import

    view = common.view(COLUMNS)
    limits = {"allow_empty": allow_empty, "max_removed_share": max_removed_share}
    settings = common.settings(mirror=limits)
    request = ImportRequest(
        entries=entries,
        pending=pending,
        groups=groups,
        consumers=consumers,
        streams=streams,
        entries_complete=entries_complete,
        limits=settings.mirror.limits(),
        maps={} if map_file is None else load_map(map_file),
    )
    with opened_store(store, settings, common, writes=True, by_spark=True) as (
        opened,
        progress,
    ):
        reply = import_tables(opened, request, run_id=run_id, progress=progress)
    show(of_import(reply), view)


@app.command(epilog="Example: claimlib check ./store --output json")
@with_common
def check(
    store: StoreArgument,
    *,
    common: Common,
) -> None:
    """Find problems in the tables of a store, the most serious first.

    Changes nothing. Exits with code 4 if a problem would make a sweep refuse groups, or keep it
    from using a table, and with 0 if there are only remarks. Counts are of rows, keys, groups or
    owners, as each line says.
    """
    from claimlib.cli.output import show
    from claimlib.commands.check import check as run_check
    from claimlib.report.store import of_check

    view = common.view()
    with opened_store(store, common.settings(), common) as (opened, _):
        problems = run_check(opened)
    show(of_check(opened.where, problems), view)
    if any(problem.refuses for problem in problems):
        raise typer.Exit(process.INPUT_REFUSED)
