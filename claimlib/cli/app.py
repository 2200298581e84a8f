"""The commands of the command line: options in, one command, a report out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from claimlib import __version__, exits
from claimlib.cli.options import (
    ConfigOption,
    DebugOption,
    GroupOption,
    LimitOption,
    Output,
    OutputOption,
    RunIdOption,
    StoreArgument,
    StreamOption,
)
from claimlib.config import Config, load
from claimlib.errors import RequestError
from claimlib.model import IdleRule
from claimlib.times import parse_instant_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from claimlib.runs import Progress
    from claimlib.store import Store

_DEFAULT_LIMIT = 50

app = typer.Typer(
    name="claimlib",
    help="XAUTOCLAIM for all consumer groups of Redis streams at once, on Delta tables, by Spark.",
    epilog="Exit codes: 0 done, 1 our fault, 2 usage or configuration, 4 input refused, 5 lost to"
    " concurrent runs, 6 done but some groups refused, 75 server unreachable (try again).",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # brackets stand for themselves in the help
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
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
    buckets: Annotated[
        int,
        typer.Option(
            "--buckets", metavar="NUMBER", min=1, help="Partitions of the large tables; for good."
        ),
    ] = 8,
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="NAME",
            help="What the store mirrors, if that is no server. [default: the first"
            " snapshot's server]",
            show_default=False,
        ),
    ] = None,
    print_sql: Annotated[
        bool,
        typer.Option("--print-sql", help="Print the statements that create the tables; no more."),
    ] = False,
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
            typer.echo(f"{statement};\n")
        return
    made = Store.init(_session(settings, debug=debug), store, buckets=buckets, source=source)
    show(report.of_store(made.where, made.buckets, made.declared_source), output)


@app.command(
    epilog="Example: claimlib snapshot redis://localhost:6379/0 ./store --stream 'orders:*'"
)
def snapshot(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="redis://[USER@]HOST[:PORT][/DB], or rediss:// for TLS; without a password.",
            show_default=False,
        ),
    ],
    store: StoreArgument,
    stream: StreamOption = None,
    group: GroupOption = None,
    fields: Annotated[
        bool | None,
        typer.Option(
            "--fields/--no-fields",
            help="Read the payload of pending entries too. [default: fields]",
            show_default=False,
        ),
    ] = None,
    max_commands_per_second: Annotated[
        float | None,
        typer.Option(
            "--max-commands-per-second",
            metavar="NUMBER",
            help="Commands sent per second at most; a page of rows is one. [default: 500]",
            show_default=False,
        ),
    ] = None,
    password_file: Annotated[
        Path | None,
        typer.Option(
            "--password-file",
            metavar="FILE",
            help="Holds the password and nothing else. [default: the variable REDIS_PASSWORD]",
            show_default=False,
        ),
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option(
            "--ca-file",
            metavar="FILE",
            help="Certificates to trust for TLS, besides the system's.",
            show_default=False,
        ),
    ] = None,
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
    settings = load(config, snapshot=options)
    reading = ServerReading(url, settings.snapshot, password_file, ca_file)
    request = settings.snapshot.request(reading.label)
    reading.check()
    with _opened(store, settings, debug=debug) as (opened, progress):
        reply = run_snapshot(opened, request, reading, run_id=run_id, progress=progress)
    show(report.of_snapshot(reply), output)


@app.command(
    epilog="Example: claimlib xautoclaim ./store --consumer reclaimer --min-idle 15m --dry-run"
)
def xautoclaim(
    store: StoreArgument,
    consumer: Annotated[
        str | None,
        typer.Option(
            "--consumer",
            metavar="NAME",
            help="Who gets the entries. A backslash is written twice, a byte that is not UTF-8 as"
            r" \xhh: as in the tables.",
            show_default=False,
        ),
    ] = None,
    min_idle: Annotated[
        str | None,
        typer.Option(
            "--min-idle",
            metavar="DURATION",
            help="How long an entry must have been idle, with a unit (ms, s, m, h, d, w): 15m,"
            " 1h30m, 0ms.",
            show_default=False,
        ),
    ] = None,
    stream: StreamOption = None,
    group: GroupOption = None,
    start: Annotated[
        str, typer.Option("--start", metavar="ID", help="The first id to look at: ms-seq, or -.")
    ] = "-",
    justid: Annotated[
        bool | None,
        typer.Option(
            "--justid/--no-justid",
            help="Leave delivery counts as they are. [default: no-justid]",
            show_default=False,
        ),
    ] = None,
    idle_rule: Annotated[
        IdleRule | None,
        typer.Option(
            "--idle-rule",
            help="At exactly --min-idle: `documented` leaves an entry, `server` claims it."
            " [default: documented]",
            show_default=False,
        ),
    ] = None,
    run_id: RunIdOption = None,
    now: Annotated[
        str | None,
        typer.Option(
            "--now",
            metavar="INSTANT",
            help="The time to judge by: ISO 8601 with a zone, or ms since the epoch."
            " [default: that of each group's snapshot]",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done; write nothing.")
    ] = False,
    limit: LimitOption = _DEFAULT_LIMIT,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
    debug: DebugOption = False,
) -> None:
    """Claim what was idle too long, in all groups.

    As Redis' XAUTOCLAIM does for one group: pending entries that were idle for longer than
    --min-idle go to --consumer, those whose stream entry is gone leave the pending entries list.
    """
    from claimlib import report
    from claimlib.cli.output import say, show
    from claimlib.commands.xautoclaim import xautoclaim as run_xautoclaim

    options = {
        "consumer": consumer,
        "min_idle": min_idle,
        "stream": stream,
        "group": group,
        "justid": justid,
        "idle_rule": idle_rule,
    }
    settings = load(config, xautoclaim=options)
    request = settings.xautoclaim.request(start)
    now_ms = None if now is None else parse_instant_ms(now)
    with _opened(store, settings, debug=debug) as (opened, progress):
        reply = run_xautoclaim(
            opened, request, run_id=run_id, now_ms=now_ms, dry_run=dry_run, progress=progress
        )
        result, refused = report.of_reply(reply, limit), report.refusals(reply)
    show(result, output)
    for line in refused:
        say(line)
    if refused:
        raise typer.Exit(exits.SOME_REFUSED)


@app.command(epilog="Example: claimlib runs ./store xautoclaim:nightly-1 --claimed --limit 1000")
def runs(
    store: StoreArgument,
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="One run: its number, or command:run_id. [default: list all]",
            show_default=False,
        ),
    ] = None,
    claimed: Annotated[bool, typer.Option("--claimed", help="Entries that RUN claimed.")] = False,
    deleted: Annotated[bool, typer.Option("--deleted", help="Entries that RUN purged.")] = False,
    lost: Annotated[
        bool, typer.Option("--lost", help="Entries that somebody else changed before RUN did.")
    ] = False,
    limit: LimitOption = _DEFAULT_LIMIT,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
    debug: DebugOption = False,
) -> None:
    """List finished runs, or show one.

    Instants are UTC, in JSON milliseconds since the epoch (1970).
    """
    from claimlib import report
    from claimlib.cli.output import show
    from claimlib.commands import runs as history
    from claimlib.commands.reply import of_finished

    asked = {"claimed": claimed, "deleted": deleted, "lost": lost}
    kinds = [name for name, is_asked in asked.items() if is_asked]
    if len(kinds) > 1 or (kinds and run is None):
        raise RequestError("give a RUN and one of --claimed, --deleted, --lost")
    with _opened(store, load(config), debug=debug) as (opened, _):
        if run is None:
            result = report.of_runs(opened.where, history.list_runs(opened, limit))
        else:
            finished = history.find_run(opened, run)
            result = report.of_run(finished)
            if kinds:
                rows = getattr(of_finished(opened, finished), kinds[0])
                result = report.of_entries(finished, kinds[0], rows, limit)
    show(result, output)


@contextmanager
def _opened(store: str, settings: Config, *, debug: bool) -> Iterator[tuple[Store, Progress]]:
    """The store, and the callback that shows a run's progress."""
    from claimlib.cli.progress import shown
    from claimlib.store import Store

    spark = _session(settings, debug=debug)
    with shown(spark) as progress:
        yield Store.open(spark, store), progress


def _session(settings: Config, *, debug: bool) -> SparkSession:
    from claimlib.session import open_session

    return open_session(**settings.spark.model_dump(), muted=not debug)
