"""The commands about ids or consumers that are named: xclaim, xack, retire."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from claimlib import exits, terminal
from claimlib.cli.app import app
from claimlib.cli.opening import opened_store
from claimlib.cli.options import (
    ConfigOption,
    DebugOption,
    DryRunOption,
    ForceOption,
    GroupOfConsumerArgument,
    HeirsOption,
    IdleAfterwardsOption,
    IdleRuleOption,
    IdsArgument,
    IdsFromOption,
    JustidFlag,
    LastIdOption,
    LimitOption,
    MinIdleOption,
    NewOwnerArgument,
    NowOption,
    OneGroupArgument,
    OneStreamArgument,
    Output,
    OutputOption,
    ProfileOption,
    RequestsOption,
    RetiredArgument,
    RetrycountOption,
    RunIdOption,
    StoreArgument,
    StreamOfGroupArgument,
    TimeOption,
)
from claimlib.config import load
from claimlib.layout import DEFAULT_LIMIT, Report
from claimlib.names import unspell
from claimlib.times import parse_instant_ms

if TYPE_CHECKING:
    from claimlib.commands.asked_reply import AskedReply

__all__ = ["app"]  # with all commands: those here, too


@app.command(
    epilog="Example: claimlib xclaim ./store orders:eu workers alice --min-idle 15m 1767225600000-0"
)
def xclaim(
    store: StoreArgument,
    stream: OneStreamArgument = None,
    group: OneGroupArgument = None,
    consumer: NewOwnerArgument = None,
    ids: IdsArgument = None,
    min_idle: MinIdleOption = None,
    ids_from: IdsFromOption = None,
    requests: RequestsOption = None,
    idle: IdleAfterwardsOption = None,
    time: TimeOption = None,
    retrycount: RetrycountOption = None,
    force: ForceOption = False,
    justid: JustidFlag = False,
    lastid: LastIdOption = None,
    idle_rule: IdleRuleOption = None,
    profile: ProfileOption = None,
    run_id: RunIdOption = None,
    now: NowOption = None,
    dry_run: DryRunOption = False,
    limit: LimitOption = DEFAULT_LIMIT,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
    debug: DebugOption = False,
) -> None:
    """Claim entries by their ids.

    As Redis' XCLAIM does, for any number of ids: those idle for longer than --min-idle go to
    CONSUMER; those that are not pending are shown as such.
    """
    from claimlib.asked_options import ClaimOptions, Named, claim_of, requests_of
    from claimlib.commands.xclaim import claim_table
    from claimlib.commands.xclaim import xclaim as run_xclaim

    named = Named((stream, group, consumer), ids or (), ids_from, requests)
    options = ClaimOptions(
        *(min_idle, idle, time, retrycount, force, justid, lastid, idle_rule, profile)
    )
    claim, now_ms = claim_of(named, options), _instant(now)
    with opened_store(store, load(config), debug=debug) as (opened, progress):
        asked = requests_of(opened.spark, named, claim, claim_table)
        reply = run_xclaim(
            opened, asked, run_id=run_id, now_ms=now_ms, dry_run=dry_run, progress=progress
        )
        said = _said("xclaim", reply, limit)
    _end(*said, output)


@app.command(epilog="Example: claimlib xack ./store orders:eu workers 1767225600000-0")
def xack(
    store: StoreArgument,
    stream: OneStreamArgument = None,
    group: OneGroupArgument = None,
    ids: IdsArgument = None,
    ids_from: IdsFromOption = None,
    requests: RequestsOption = None,
    run_id: RunIdOption = None,
    dry_run: DryRunOption = False,
    limit: LimitOption = DEFAULT_LIMIT,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
    debug: DebugOption = False,
) -> None:
    """Acknowledge entries by their ids.

    As Redis' XACK does, for any number of ids. Refused on a store that mirrors a server:
    acknowledge there.
    """
    from claimlib.asked_options import Named, ack_of, requests_of
    from claimlib.commands.xack import ack_table
    from claimlib.commands.xack import xack as run_xack

    named = Named((stream, group), ids or (), ids_from, requests)
    ack = ack_of(named)
    with opened_store(store, load(config), debug=debug) as (opened, progress):
        asked = requests_of(opened.spark, named, ack, ack_table)
        reply = run_xack(opened, asked, run_id=run_id, dry_run=dry_run, progress=progress)
        said = _said("xack", reply, limit)
    _end(*said, output)


@app.command(epilog="Example: claimlib retire ./store orders:eu workers bob --to alice --to carol")
def retire(
    store: StoreArgument,
    stream: StreamOfGroupArgument,
    group: GroupOfConsumerArgument,
    consumer: RetiredArgument,
    to: HeirsOption,
    run_id: RunIdOption = None,
    now: NowOption = None,
    dry_run: DryRunOption = False,
    limit: LimitOption = DEFAULT_LIMIT,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
    debug: DebugOption = False,
) -> None:
    """Hand over all that a consumer has pending, and remove it.

    Delivery counts stay. Nothing is dropped, as the server's XGROUP DELCONSUMER does; on the server
    itself the consumer stays.
    """
    from claimlib.commands.retire import Retirement
    from claimlib.commands.retire import retire as run_retire

    names = (unspell(stream), unspell(group), unspell(consumer))
    retirement, now_ms = Retirement(*names, heirs=tuple(map(unspell, to))), _instant(now)
    with opened_store(store, load(config), debug=debug) as (opened, progress):
        reply = run_retire(
            opened, retirement, run_id=run_id, now_ms=now_ms, dry_run=dry_run, progress=progress
        )
        said = _said("retire", reply, limit)
    _end(*said, output)


def _instant(now: str | None) -> int | None:
    return None if now is None else parse_instant_ms(now)


def _said(command: str, reply: AskedReply, limit: int) -> tuple[Report, list[str]]:
    """What is to be shown of a reply, and which requests were refused."""
    from claimlib.asked_report import of_asked, refused_requests

    return of_asked(command, reply, limit), refused_requests(reply)


def _end(report: Report, refused: list[str], output: Output) -> None:
    """Show a reply; the exit code says whether requests were refused."""
    from claimlib.cli.output import show

    show(report, output)
    terminal.say(*refused)
    if refused:
        raise typer.Exit(exits.SOME_REFUSED)
