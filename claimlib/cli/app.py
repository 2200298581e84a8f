"""The commands of the command line: options in, one command, a report out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from claimlib import __version__, exits, terminal
from claimlib.cli.opening import opened_store, session_of
from claimlib.cli.options import (
    AbandonedRunArgument,
    AllowEmptyOption,
    AsOfOption,
    BucketsOption,
    CaFileOption,
    ClaimedOption,
    ConfigOption,
    ConsumerOption,
    ConsumersOption,
    CountOption,
    CursorOption,
    DebugOption,
    DeletedOption,
    DryRunOption,
    EndOption,
    EntriesCompleteOption,
    EntriesOption,
    ExplainOption,
    FailOnStalledOption,
    FieldsOption,
    GroupArgument,
    GroupOption,
    GroupsOption,
    IdleOption,
    IdleRuleOption,
    IdsOption,
    IncrementalOption,
    JustidOption,
    LimitOption,
    LostOption,
    MapOption,
    MaxClaimsOption,
    MaxCommandsPerSecondOption,
    MaxDeletedShareOption,
    MaxDeliveriesOption,
    MaxRemovedShareOption,
    MinIdleOption,
    NowOption,
    OnlyConsumersIdleOption,
    OnlyFromOption,
    Output,
    OutputOption,
    OwnerOption,
    ParkingConsumerOption,
    PasswordFileOption,
    PendingOption,
    PolicyOption,
    PrintSqlOption,
    ProfileOption,
    RowsOption,
    RunArgument,
    RunIdOption,
    SourceOption,
    StartOption,
    StoreArgument,
    StreamArgument,
    StreamOption,
    StreamsOption,
    UrlArgument,
)
from claimlib.config import load, requests_of
from claimlib.errors import RequestError
from claimlib.ids import parse_range_end, parse_range_start
from claimlib.layout import DEFAULT_LIMIT, MOST_ROWS
from claimlib.model import PendingRange
from claimlib.names import unspell
from claimlib.times import parse_duration_ms, parse_instant_ms

app = typer.Typer(
    name="claimlib",
    help="XAUTOCLAIM for all consumer groups of Redis streams at once, on Delta tables, by Spark.",
    epilog="Exit codes: 0 done, 1 our fault, 2 usage or configuration, 3 stalled work found,"
    " 4 input refused, or `check` found what makes runs refuse, 5 lost to concurrent runs,"
    " 6 done but some groups refused, 75 server unreachable (try again), 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # brackets stand for themselves in the help
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        terminal.out(__version__)
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del version


@app.command(epilog="Example: claimlib init ./store --buckets 8")
def init(
    store: StoreArgument,
    buckets: BucketsOption = 8,
    source: SourceOption = None,
    print_sql: PrintSqlOption = False,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
    debug: DebugOption = False,
) -> None:
    """Create the tables of a store.

    What is there already stays as it is.
    """
    from claimlib import report
    from claimlib.cli.output import show
    from claimlib.store import Store, init_sql

    settings = load(config)
    if print_sql:
        for statement in init_sql(store, buckets=buckets, source=source):
            terminal.out(f"{statement};\n")
        return
    made = Store.init(session_of(settings, debug=debug), store, buckets=buckets, source=source)
    show(report.of_store(made.where, made.buckets, made.declared_source), output)


@app.command(
    epilog="Example: claimlib snapshot redis://localhost:6379/0 ./store --stream 'orders:*'"
)
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
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
    debug: DebugOption = False,
) -> None:
    """Bring a store to what a server says.

    Reads streams, groups, consumers and pending entries, page by page, and changes nothing on the
    server. Times are the server's, in ms since the epoch.
    """
    from claimlib import report
    from claimlib.cli.output import show
    from claimlib.commands.snapshot import snapshot as run_snapshot
    from claimlib.reading import ServerReading

    options = {
        "stream": stream,
        "group": group,
        "fields": fields,
        "max_commands_per_second": max_commands_per_second,
    }
    limits = {"allow_empty": allow_empty, "max_removed_share": max_removed_share}
    settings = load(config, snapshot=options, mirror=limits)
    reading = ServerReading(url, settings.snapshot, password_file, ca_file)
    request = settings.snapshot.request(reading.label, settings.mirror.limits())
    reading.check()
    with opened_store(store, settings, debug=debug) as (opened, progress):
        reply = run_snapshot(opened, request, reading, run_id=run_id, progress=progress)
    show(report.of_snapshot(reply), output)


@app.command(
    name="import",
    epilog="Example: claimlib import ./store --entries lake.raw.entries --pending lake.raw.pending"
    " --entries-complete --map map.toml",
)
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
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
    debug: DebugOption = False,
) -> None:
    """Bring a store to what your own tables say.

    Writes the differences only; what the tables no longer have is removed. Times are timestamps or
    milliseconds since the epoch (1970).
    """
    from claimlib import report
    from claimlib.cli.output import show
    from claimlib.commands.imports import ImportRequest, import_tables
    from claimlib.mapping import load_map

    limits = {"allow_empty": allow_empty, "max_removed_share": max_removed_share}
    settings = load(config, mirror=limits)
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
    with opened_store(store, settings, debug=debug) as (opened, progress):
        reply = import_tables(opened, request, run_id=run_id, progress=progress)
    show(report.of_import(reply), output)


@app.command(
    epilog="Example: claimlib xautoclaim ./store --consumer reclaimer --min-idle 15m --dry-run"
)
def xautoclaim(
    store: StoreArgument,
    consumer: ConsumerOption = None,
    min_idle: MinIdleOption = None,
    stream: StreamOption = None,
    group: GroupOption = None,
    start: StartOption = None,
    count: CountOption = None,
    cursor: CursorOption = None,
    justid: JustidOption = None,
    idle_rule: IdleRuleOption = None,
    profile: ProfileOption = None,
    max_claims: MaxClaimsOption = None,
    max_deleted_share: MaxDeletedShareOption = None,
    only_from: OnlyFromOption = None,
    only_consumers_idle: OnlyConsumersIdleOption = None,
    max_deliveries: MaxDeliveriesOption = None,
    parking_consumer: ParkingConsumerOption = None,
    policy: PolicyOption = None,
    explain: ExplainOption = False,
    run_id: RunIdOption = None,
    now: NowOption = None,
    dry_run: DryRunOption = False,
    incremental: IncrementalOption = False,
    limit: LimitOption = DEFAULT_LIMIT,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
    debug: DebugOption = False,
) -> None:
    """Claim what was idle too long, in all groups.

    As Redis' XAUTOCLAIM does for one group: pending entries that were idle for longer than
    --min-idle go to --consumer, those whose stream entry is gone leave the pending entries list.
    """
    from claimlib import report
    from claimlib.cli.output import show
    from claimlib.commands.xautoclaim import explain as explain_policy
    from claimlib.commands.xautoclaim import xautoclaim as run_xautoclaim

    options = {
        "consumer": consumer,
        "min_idle": min_idle,
        "stream": stream,
        "group": group,
        "start": start,
        "count": count,
        "cursor": cursor,
        "justid": justid,
        "idle_rule": idle_rule,
        "profile": profile,
        "max_claims": max_claims,
        "max_deleted_share": max_deleted_share,
        "only_from": only_from,
        "only_consumers_idle": only_consumers_idle,
        "max_deliveries": max_deliveries,
        "parking_consumer": parking_consumer,
    }
    settings = load(config, xautoclaim=options)
    request = requests_of(settings, policy, options)
    now_ms = None if now is None else parse_instant_ms(now)
    if explain:
        with opened_store(store, settings, debug=debug) as (opened, _):
            show(report.of_policy(explain_policy(opened, request), limit), output)
        return
    with opened_store(store, settings, debug=debug) as (opened, progress):
        reply = run_xautoclaim(
            opened,
            request,
            run_id=run_id,
            now_ms=now_ms,
            dry_run=dry_run,
            incremental=incremental,
            progress=progress,
        )
        result, refused = report.of_reply(reply, limit), report.refusals(reply)
    show(result, output)
    terminal.say(*refused)
    if refused:
        raise typer.Exit(exits.SOME_REFUSED)


@app.command(epilog="Example: claimlib check ./store --output json")
def check(
    store: StoreArgument,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
    debug: DebugOption = False,
) -> None:
    """Say what a store lacks, the worst first.

    Reads only. Ends with 4 where a sweep would refuse groups for it, or could not use a table; with
    0 where there are remarks only. Counts are of rows, keys, groups or owners, as it says.
    """
    from claimlib import report
    from claimlib.cli.output import show
    from claimlib.commands.check import check as run_check

    with opened_store(store, load(config), debug=debug) as (opened, _):
        found = run_check(opened)
    show(report.of_check(opened.where, found), output)
    if any(one.refuses for one in found):
        raise typer.Exit(exits.INPUT_REFUSED)


@app.command(epilog="Example: claimlib xpending ./store --fail-on-stalled 1h")
def xpending(
    store: StoreArgument,
    stream: StreamArgument = None,
    group: GroupArgument = None,
    count: RowsOption = None,
    start: StartOption = None,
    end: EndOption = None,
    idle: IdleOption = None,
    consumer: OwnerOption = None,
    fail_on_stalled: FailOnStalledOption = None,
    now: NowOption = None,
    as_of: AsOfOption = None,
    limit: LimitOption = DEFAULT_LIMIT,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
    debug: DebugOption = False,
) -> None:
    """Show what is pending, the longest idle first.

    Of one group as Redis' XPENDING does: how much, and whose; with --count the entries, 100,000 of
    them at most at once. Idle times are those at the group's snapshot, or at --now, in JSON in ms.
    """
    from claimlib import report
    from claimlib.cli.output import show
    from claimlib.commands import xpending as command

    code = exits.DONE
    settings, now_ms = load(config), None if now is None else parse_instant_ms(now)
    key = _group_key(stream, group, given=[count, start, end, idle, consumer])
    stalled_ms = command.DEFAULT_STALLED_MS
    if fail_on_stalled is not None:
        stalled_ms = parse_duration_ms(fail_on_stalled)
    asked = _range_of(count, start, end, idle, consumer)
    with opened_store(store, settings, debug=debug) as (opened, _):
        at = command.reading(opened, as_of)
        if key is None:
            groups = command.overview(at, stalled_ms=stalled_ms, now_ms=now_ms)
            result = report.of_overview(opened.where, groups, stalled_ms, limit)
            if fail_on_stalled is not None and command.is_stalled(groups):
                code = exits.STALLED
                terminal.say(f"stalled: entries have been idle for {fail_on_stalled} or longer")
        elif asked is None:
            result = report.of_summary(*key, command.summary(at, *key))
        else:
            found = command.shown_range(at, *key, asked, most=MOST_ROWS, now_ms=now_ms)
            result = report.of_range(*key, found)
    show(result, output)
    if code:
        raise typer.Exit(code)


def _group_key(
    stream: str | None, group: str | None, given: Sequence[object]
) -> tuple[bytes, bytes] | None:
    """The one group that is asked about; null: all are."""
    if stream is not None and group is not None:
        return unspell(stream), unspell(group)
    if stream is not None or any(one is not None for one in given):
        raise RequestError("of which group? Give STREAM and GROUP; without options, all are shown")
    return None


def _range_of(
    count: int | None, start: str | None, end: str | None, idle: str | None, consumer: str | None
) -> PendingRange | None:
    """The entries that are asked for; null: none."""
    if count is None:
        if any(one is not None for one in (start, end, idle, consumer)):
            raise RequestError("how many entries are to be shown? Give --count", option="count")
        return None
    return PendingRange(
        start=parse_range_start(start or "-"),
        end=parse_range_end(end or "+"),
        count=count,
        min_idle_ms=None if idle is None else parse_duration_ms(idle),
        consumer=None if consumer is None else unspell(consumer),
    )


@app.command(epilog="Example: claimlib runs ./store xautoclaim:nightly-1 --claimed --limit 1000")
def runs(
    store: StoreArgument,
    run: RunArgument = None,
    claimed: ClaimedOption = False,
    deleted: DeletedOption = False,
    lost: LostOption = False,
    ids: IdsOption = False,
    limit: LimitOption = DEFAULT_LIMIT,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
    debug: DebugOption = False,
) -> None:
    """List finished runs, or show one.

    Instants are UTC, in JSON milliseconds since the epoch (1970).
    """
    from claimlib import report
    from claimlib.asked_report import of_asked
    from claimlib.cli.output import show
    from claimlib.commands import runs as history
    from claimlib.commands.asked_reply import of_finished as of_asked_ids
    from claimlib.commands.reply import of_finished
    from claimlib.runs.journal import Kind

    asked = {"claimed": claimed, "deleted": deleted, "lost": lost, "ids": ids}
    kinds = [name for name, is_asked in asked.items() if is_asked]
    if len(kinds) > 1 or (kinds and run is None):
        raise RequestError("give a RUN and one of --claimed, --deleted, --lost, --ids")
    with opened_store(store, load(config), debug=debug) as (opened, _):
        if run is None:
            result = report.of_runs(opened.where, history.list_runs(opened, limit))
        else:
            finished = history.find_run(opened, run)
            result = report.of_run(finished, history.remark_on(opened, finished))
            if ids and Kind.ASKED not in finished.counts:
                raise RequestError(f"{finished.key} was asked for no ids: leave out --ids")
            if ids:
                result = of_asked(finished.command, of_asked_ids(opened, finished), limit)
            elif kinds:
                rows = getattr(of_finished(opened, finished), kinds[0])
                result = report.of_entries(finished, kinds[0], rows, limit)
    show(result, output)


@app.command(epilog="Example: claimlib abandon ./store snapshot:nightly-1")
def abandon(
    store: StoreArgument,
    run: AbandonedRunArgument,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
    debug: DebugOption = False,
) -> None:
    """Give up a snapshot or an import that cannot be finished.

    Only for a run that was decided, and whose rows were deleted before it was applied, and when no
    driver of it is alive any more. What it had written stays; no proof of absence holds for its
    streams, so that their groups are refused, until the next snapshot or import.
    """
    from claimlib import report
    from claimlib.cli.output import show
    from claimlib.commands.runs import abandon as give_up

    with opened_store(store, load(config), debug=debug) as (opened, _):
        result = report.of_run(give_up(opened, run))
    show(result, output)
