"""The commands xautoclaim and reset-cursor."""

from __future__ import annotations

import typer

from claimlib import process, terminal
from claimlib.cli.app import app
from claimlib.cli.common import Common, with_common
from claimlib.cli.opening import opened_store
from claimlib.cli.options import (
    AllowNoneOption,
    ConsumerOption,
    CountOption,
    CursorArgument,
    CursorOption,
    CursorToOption,
    DryRunOption,
    ExplainOption,
    GroupOption,
    IdleRuleOption,
    JustidOption,
    LimitOption,
    MaxClaimsOption,
    MaxDeletedShareOption,
    MaxDeliveriesOption,
    MinIdleOption,
    NowOption,
    OnlyConsumersIdleOption,
    OnlyFromOption,
    ParkingConsumerOption,
    PolicyOption,
    ProfileOption,
    RunIdOption,
    StartOption,
    StoreArgument,
    StreamOption,
    glob_of,
)
from claimlib.config.settings import requests_of
from claimlib.semantics.ids import parse_id
from claimlib.semantics.model import parse_cursor
from claimlib.times import parse_instant_ms


@app.command(
    epilog="Example: claimlib xautoclaim ./store --consumer reclaimer --min-idle 15m --dry-run"
)
@with_common
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
    allow_none: AllowNoneOption = False,
    limit: LimitOption = None,
    *,
    common: Common,
) -> None:
    """Claim entries that were idle for too long, in all groups. Gives entries of the store that
    were idle for longer than --min-idle to --consumer. The server is not changed: claimlib runs
    STORE RUN --as-commands prints the commands for it.

    Does for each group what Redis' XAUTOCLAIM does. Pending entries whose stream entry no longer
    exists are removed from the pending entries list.
    """
    from claimlib.cli.output import show
    from claimlib.commands.reply import GROUPS_COLUMNS
    from claimlib.commands.server_view import only_in_store
    from claimlib.commands.xautoclaim import explain as explain_policy
    from claimlib.commands.xautoclaim import xautoclaim as run_xautoclaim
    from claimlib.report.sweep import COLUMNS, of_policy, of_reply, refusals

    view = common.view()
    rows = view.rows(limit)
    if not explain:
        view.check(COLUMNS, GROUPS_COLUMNS)
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
    settings = common.settings(xautoclaim=options)
    request = requests_of(settings, policy, options)
    now_ms = None if now is None else parse_instant_ms(now)
    if explain:
        with opened_store(store, settings, common) as (opened, _):
            show(of_policy(explain_policy(opened, request), rows), view)
        return
    with opened_store(store, settings, common, writes=not dry_run) as (opened, progress):
        reply = run_xautoclaim(
            opened,
            request,
            run_id=run_id,
            now_ms=now_ms,
            dry_run=dry_run,
            allow_none=allow_none,
            progress=progress,
        )
        unknown = None
        if reply.run_seq is not None:
            unknown = only_in_store(opened, reply.run_seq, reply.counts)
        result, refused = of_reply(reply, rows, store, unknown), refusals(reply)
    show(result, view)
    terminal.say(*refused)
    if refused:
        raise typer.Exit(process.SOME_REFUSED)


@app.command(
    name="reset-cursor", epilog="Example: claimlib reset-cursor ./store nightly --stream 'orders:*'"
)
@with_common
def reset_cursor(
    store: StoreArgument,
    cursor: CursorArgument,
    stream: StreamOption = None,
    group: GroupOption = None,
    to: CursorToOption = "0-0",
    run_id: RunIdOption = None,
    limit: LimitOption = None,
    *,
    common: Common,
) -> None:
    """Set where a cursor's next page begins.

    Sets it to the first entry, or to the id of --to, in each group that has this cursor and that
    --stream and --group match.
    """
    from claimlib.cli.output import show
    from claimlib.commands.reply import Reply
    from claimlib.commands.reset_cursor import reset_cursor as run_reset
    from claimlib.plans.differences import Scope
    from claimlib.report.cursors import COLUMNS, of_reset

    view = common.view(COLUMNS)
    rows = view.rows(limit)
    scope = Scope(glob_of(stream, "--stream"), glob_of(group, "--group"))
    cursor, first = parse_cursor(cursor), parse_id(to)
    with opened_store(store, common.settings(), common, writes=True) as (opened, progress):
        finished = run_reset(opened, cursor, scope, to=first, run_id=run_id, progress=progress)
        result = of_reset(finished, Reply.of_finished(opened, finished).cursors, rows)
    show(result, view)
