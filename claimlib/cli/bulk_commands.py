"""Define the commands about ids or consumers that the user names: xclaim, xack, retire."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from claimlib import process, terminal
from claimlib.cli.app import SectionOptions, command
from claimlib.cli.common import Common
from claimlib.cli.opened_store import Look, opened_store
from claimlib.cli.options import (
    ClaimOptions,
    DryRunOption,
    IdsArgument,
    IdsFromOption,
    LimitOption,
    NowOption,
    OneGroupArgument,
    OneStreamArgument,
    RequestsOption,
    RunIdOption,
    StoreArgument,
    View,
    WritebackOptions,
    argument,
)
from claimlib.cli.writeback_command import check_target, write_back
from claimlib.config.sections import (
    GLOB,
    SPELLED,
    LockSection,
    Option,
    OptionGroup,
    XautoclaimSection,
    options_of,
)
from claimlib.report.report_model import Report
from claimlib.semantics.names import unspell_shown
from claimlib.times import parse_duration_ms, parse_instant_ms

if TYPE_CHECKING:
    from claimlib.cli.bulk_options import Named
    from claimlib.commands.bulk_reply import BulkReply
    from claimlib.commands.writeback import WritebackReply
    from claimlib.runs import Begun
    from claimlib.store.tables import Store


@command("xclaim ./store orders:eu workers alice --min-idle 15m 1767225600000-0")
def xclaim(
    store: StoreArgument,
    stream: OneStreamArgument = None,
    group: OneGroupArgument = None,
    consumer: Annotated[
        str | None,
        argument(
            "CONSUMER",
            "The consumer that gets the entries; it is created if it does not exist. Leave it out"
            " with --consumer or --assign.",
        ),
    ] = None,
    ids: IdsArgument = None,
    *,
    min_idle: Annotated[str | None, options_of(XautoclaimSection)["min_idle"]] = None,
    ids_from: IdsFromOption = None,
    requests: RequestsOption = None,
    options: ClaimOptions,
    lock: Annotated[SectionOptions, LockSection],
    back: WritebackOptions,
    run_id: RunIdOption = None,
    now: NowOption = None,
    dry_run: DryRunOption = False,
    limit: LimitOption = None,
    common: Common,
) -> None:
    """Claim entries by their ids. Gives entries of the store that were idle for longer than
    --min-idle to CONSUMER. The server is changed only with --writeback.

    Does what Redis' XCLAIM does, for any number of ids. Ids that are not pending are reported as
    not pending.
    """
    from claimlib.cli.bulk_options import (
        chosen_groups,
        claim_of,
        id_list,
        named_claim,
        requests_of,
        sharing_of,
        tables_of,
    )
    from claimlib.commands.xclaim import claim_table
    from claimlib.commands.xclaim import xclaim as run_xclaim
    from claimlib.plans.bulk_plan import CLAIMS

    view = _view(common)
    rows = view.rows(limit)
    named = named_claim((stream, group, consumer), ids, ids_from, requests, options)
    claim, now_ms = claim_of(named, min_idle, options), _parsed_instant(now)
    sharing = sharing_of(min_idle, options)
    settings = common.settings(lock=lock, writeback=back.extent)
    access = back.access(settings, dry_run=dry_run)
    listed, look = id_list(named), _look("xclaim", named, run_id)
    with opened_store(
        store,
        settings,
        common,
        writes=not dry_run,
        inputs=tables_of(named, listed),
        look=look,
    ) as (opened, progress):
        if look is not None:  # `opened_store` may not have called it
            look(opened)
        batch = requests_of(opened, named, listed, claim, claim_table)
        chosen = partial(chosen_groups, named, batch, CLAIMS)
        check_target(opened, "xclaim", run_id, access, settings, chosen)
        reply = run_xclaim(
            opened,
            batch,
            sharing=sharing,
            run_id=run_id,
            now_ms=now_ms,
            dry_run=dry_run,
            progress=progress,
        )
        written = write_back(opened, "xclaim", reply.run_id, access, settings, progress)
        report, refused = _report("xclaim", reply, written, rows, opened)
    _show(report, refused, view)


@command("xack ./store orders:eu workers 1767225600000-0")
def xack(
    store: StoreArgument,
    stream: OneStreamArgument = None,
    group: OneGroupArgument = None,
    ids: IdsArgument = None,
    ids_from: IdsFromOption = None,
    requests: RequestsOption = None,
    run_id: RunIdOption = None,
    dry_run: DryRunOption = False,
    limit: LimitOption = None,
    *,
    lock: Annotated[SectionOptions, LockSection],
    back: WritebackOptions,
    common: Common,
) -> None:
    """Acknowledge entries by their ids.

    Does what Redis' XACK does, for any number of ids. A store that mirrors a server needs
    --writeback, which acknowledges the entries there, too.
    """
    from claimlib.cli.bulk_options import (
        Named,
        ack_of,
        chosen_groups,
        id_list,
        requests_of,
        tables_of,
    )
    from claimlib.commands.xack import ack_table
    from claimlib.commands.xack import xack as run_xack
    from claimlib.plans.bulk_plan import ACKS

    view = _view(common)
    rows = view.rows(limit)
    named = Named((stream, group), ids or (), ids_from, requests)
    ack = ack_of(named)
    settings = common.settings(lock=lock, writeback=back.extent)
    access = back.access(settings, dry_run=dry_run)
    listed, look = id_list(named), _look("xack", named, run_id)
    with opened_store(
        store,
        settings,
        common,
        writes=not dry_run,
        inputs=tables_of(named, listed),
        look=look,
    ) as (opened, progress):
        if look is not None:  # `opened_store` may not have called it
            look(opened)
        batch = requests_of(opened, named, listed, ack, ack_table)
        chosen = partial(chosen_groups, named, batch, ACKS)
        check_target(opened, "xack", run_id, access, settings, chosen)
        reply = run_xack(
            opened,
            batch,
            run_id=run_id,
            dry_run=dry_run,
            to_write_back=back.writeback is not None,
            progress=progress,
        )
        written = write_back(opened, "xack", reply.run_id, access, settings, progress)
        report, refused = _report("xack", reply, written, rows, opened)
    _show(report, refused, view)


@command("retire ./store orders:eu workers 'worker-7f9c*' --to alice --to carol --idle 1h")
def retire(
    store: StoreArgument,
    stream: Annotated[str, argument("STREAM", f"The stream, {SPELLED}.")],
    group: Annotated[str, argument("GROUP", "The consumer group.")],
    consumer: Annotated[
        str,
        argument(
            "CONSUMER",
            f"The consumer to remove; with *, ? or [ it is a glob for several ({GLOB}).",
        ),
    ],
    to: Annotated[
        list[str],
        Option(
            "A consumer that gets the entries. Can be repeated: the entries are then distributed"
            " in turn, in the order of their ids.",
            "NAME",
            group=OptionGroup.WHO,
        ),
    ],
    idle: Annotated[
        str | None,
        Option(
            "Remove only consumers that have asked for no entry for DURATION or longer (before the"
            " snapshot, or --now).",
            "DURATION",
            group=OptionGroup.WHICH,
        ),
    ] = None,
    run_id: RunIdOption = None,
    now: NowOption = None,
    dry_run: DryRunOption = False,
    limit: LimitOption = None,
    *,
    lock: Annotated[SectionOptions, LockSection],
    back: WritebackOptions,
    common: Common,
) -> None:
    """Remove one or several consumers, and give their pending entries to other consumers.

    Delivery counts stay the same. Unlike the server's XGROUP DELCONSUMER, this drops no entry. On a
    server that the store mirrors, consumers are removed only with --writeback.
    """
    from claimlib.cli.bulk_options import group_row
    from claimlib.commands.first_look import look_before_run
    from claimlib.commands.retire import Retirement, matching_consumers
    from claimlib.commands.retire import retire as run_retire

    view = _view(common)
    rows = view.rows(limit)
    retirement = Retirement(
        unspell_shown(stream),
        unspell_shown(group),
        # The text of a glob, or the bytes of a name.
        consumer if set("*?[").intersection(consumer) else unspell_shown(consumer),
        recipients=tuple(map(unspell_shown, to)),
        idle_ms=None if idle is None else parse_duration_ms(idle),
    )
    now_ms = _parsed_instant(now)
    settings = common.settings(lock=lock, writeback=back.extent)
    access = back.access(settings, dry_run=dry_run)
    check = partial(matching_consumers, retirement=retirement)
    look = partial(look_before_run, command="retire", run_id=run_id, check=check)
    writes = not dry_run
    with opened_store(store, settings, common, writes=writes, look=look) as (opened, progress):
        chosen = partial(group_row, retirement.stream, retirement.group)
        check_target(opened, "retire", run_id, access, settings, chosen)
        reply = run_retire(
            opened, retirement, run_id=run_id, now_ms=now_ms, dry_run=dry_run, progress=progress
        )
        written = write_back(opened, "retire", reply.run_id, access, settings, progress)
        report, refused = _report("retire", reply, written, rows, opened)
    _show(report, refused, view)


def _look(command: str, named: Named, run_id: str | None) -> Look | None:
    """Return a function that refuses an unknown group, or None if no argument names a group."""
    from claimlib.commands.first_look import look_before_run
    from claimlib.commands.preconditions import refuse_unknown_group

    if named.requests is not None:
        return None

    def check(begun: Begun) -> None:
        refuse_unknown_group(begun.relation("groups"), named.bytes_of(0), named.bytes_of(1))

    return partial(look_before_run, command=command, run_id=run_id, check=check)


def _parsed_instant(now: str | None) -> int | None:
    return None if now is None else parse_instant_ms(now)


def _view(common: Common) -> View:
    from claimlib.report.bulk_report import COLUMNS, NAMES

    return common.view(COLUMNS, NAMES)


def _report(
    command: str,
    reply: BulkReply,
    written: WritebackReply | None,
    limit: int | None,
    opened: Store,
) -> tuple[Report, list[str]]:
    """Return the report of a reply, and the refused requests."""
    from claimlib.commands.server_view import only_in_store
    from claimlib.report.bulk_report import refused_requests, report_of_bulk
    from claimlib.report.writeback_report import with_writeback

    not_on_server = None
    if (last := written or reply).run_seq is not None:
        not_on_server = only_in_store(opened, last.run_seq, last.counts)
    report = report_of_bulk(command, reply, limit, opened.where, not_on_server)
    return with_writeback(report, written), refused_requests(reply)


def _show(report: Report, refused: list[str], view: View) -> None:
    """Show a report, and exit with `process.SOME_REFUSED` if requests were refused."""
    from claimlib.cli.output import show

    show(report, view)
    terminal.say(*refused)
    if refused:
        raise typer.Exit(process.SOME_REFUSED)
