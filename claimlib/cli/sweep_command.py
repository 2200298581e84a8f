"""Define the commands xautoclaim and reset-cursor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from claimlib import process, terminal
from claimlib.cli.app import SectionOptions, command
from claimlib.cli.common import Common
from claimlib.cli.opened_store import opened_store
from claimlib.cli.options import (
    DryRunOption,
    LimitOption,
    NowOption,
    RunIdOption,
    ScopeOptions,
    StoreArgument,
    View,
    WritebackOptions,
    argument,
)
from claimlib.cli.report_command import report_file, write_report
from claimlib.cli.writeback_command import check_target, write_back
from claimlib.config.sections import LockSection, Option, OptionGroup, XautoclaimSection
from claimlib.config.settings import requests_of
from claimlib.errors import RequestError
from claimlib.semantics.ids import parse_id
from claimlib.semantics.model import parse_cursor
from claimlib.times import parse_instant_ms

if TYPE_CHECKING:
    from claimlib.commands.reply import Reply
    from claimlib.commands.sweep_request import SweepRequest
    from claimlib.config.settings import Config
    from claimlib.store.tables import Store


@command("xautoclaim ./store --consumer reclaimer --min-idle 15m --dry-run")
def xautoclaim(
    store: StoreArgument,
    *,
    options: Annotated[SectionOptions, XautoclaimSection],
    lock: Annotated[SectionOptions, LockSection],
    back: WritebackOptions,
    policy: Annotated[
        Path | None,
        Option(
            "TOML file with one [[request]] per kind of group; each group gets the first one that"
            " matches. Replaces the options of a single request, and [xautoclaim] of the"
            " configuration (guards there are refused).",
            "FILE",
            group=OptionGroup.WHICH,
        ),
    ] = None,
    explain: Annotated[
        bool, Option("Show which request each group gets, and stop.", group=OptionGroup.RUN)
    ] = False,
    run_id: RunIdOption = None,
    now: NowOption = None,
    dry_run: DryRunOption = False,
    claimed: Annotated[
        bool,
        Option(
            "With --dry-run: list the entries that would be claimed, and their owners.",
            group=OptionGroup.OUTPUT,
        ),
    ] = False,
    deleted: Annotated[
        bool,
        Option(
            "With --dry-run: list the pending entries that would be deleted, because their stream"
            " entries no longer exist.",
            group=OptionGroup.OUTPUT,
        ),
    ] = False,
    html: Annotated[
        Path | None,
        Option(
            "With --dry-run: also write a report on what would be done to this file, as one HTML"
            " page, like claimlib report --html.",
            "FILE",
            group=OptionGroup.OUTPUT,
        ),
    ] = None,
    allow_none: Annotated[
        bool,
        Option(
            "Succeed even if --stream, --group or the policy match no consumer group.",
            group=OptionGroup.RUN,
        ),
    ] = False,
    limit: LimitOption = None,
    common: Common,
) -> None:
    """Claim entries that were idle for too long, in all groups. Gives entries of the store that
    were idle for longer than --min-idle to --consumer. The server is changed only with --writeback.
    claimlib runs STORE RUN --as-commands prints commands that do the same.

    Does for each group what Redis' XAUTOCLAIM does. Pending entries whose stream entry no longer
    exists are removed from the pending entries list.
    """
    from claimlib.cli.output import show
    from claimlib.commands.first_look import look_before_run
    from claimlib.commands.reply import GROUPS_COLUMNS
    from claimlib.commands.server_view import only_in_store
    from claimlib.commands.sweep_decision import refuse_unmatched
    from claimlib.commands.sweep_request import chosen_groups
    from claimlib.commands.xautoclaim import EXPLAINED_COLUMNS
    from claimlib.commands.xautoclaim import xautoclaim as run_xautoclaim
    from claimlib.report.runs_report import entry_columns, report_of_dry_run
    from claimlib.report.sweep_report import (
        COLUMNS,
        POLICY_COLUMNS,
        refusals,
        report_of_reply,
    )
    from claimlib.report.writeback_report import with_writeback

    view = common.view()
    rows = view.rows(limit)
    kind = _listed_kind(claimed=claimed, deleted=deleted, dry_run=dry_run, explain=explain)
    write_page = _page_writer(html, dry_run=dry_run, explain=explain)
    if explain:
        view.check(POLICY_COLUMNS, EXPLAINED_COLUMNS)
    elif kind:
        view.check(*entry_columns(kind))
    else:
        view.check(COLUMNS, GROUPS_COLUMNS)
    settings = common.settings(xautoclaim=options, lock=lock, writeback=back.extent)
    request = requests_of(settings, policy, options)
    now_ms = None if now is None else parse_instant_ms(now)
    access = back.access(settings, dry_run=dry_run or explain)
    look = None
    # --explain shows a policy that matches no group, instead of refusing it.
    if not (allow_none or (explain and policy is not None)):
        check = partial(refuse_unmatched, request=request)
        look = partial(look_before_run, command="xautoclaim", run_id=run_id, check=check)
    if explain:
        _explain(store, settings, common, look, request, view, rows)
        return
    writes = not dry_run
    with opened_store(store, settings, common, writes=writes, look=look) as (opened, progress):
        chosen = partial(chosen_groups, request)
        check_target(opened, "xautoclaim", run_id, access, settings, chosen)
        reply = run_xautoclaim(
            opened,
            request,
            run_id=run_id,
            now_ms=now_ms,
            dry_run=dry_run,
            allow_none=allow_none,
            progress=progress,
        )
        written = write_back(opened, "xautoclaim", reply.run_id, access, settings, progress)
        not_on_server = None
        if (last := written or reply).run_seq is not None:
            not_on_server = only_in_store(opened, last.run_seq, last.counts)
        result = (
            report_of_dry_run("xautoclaim", kind, getattr(reply, kind), rows)
            if kind
            else with_writeback(report_of_reply(reply, rows, opened.where, not_on_server), written)
        )
        refused = refusals(reply)
        write_page(opened, reply, now_ms)
    show(result, view)
    terminal.say(*refused)
    if refused:
        raise typer.Exit(process.SOME_REFUSED)


def _explain(
    store: str,
    settings: Config,
    common: Common,
    look: Callable[[Store], None] | None,
    request: Sequence[SweepRequest],
    view: View,
    rows: int | None,
) -> None:
    """Print the request that each group gets."""
    from claimlib.cli.output import show
    from claimlib.commands.xautoclaim import explain
    from claimlib.report.sweep_report import report_of_policy

    with opened_store(store, settings, common, look=look) as (opened, _):
        if look is not None:  # `opened_store` may not have called it
            look(opened)
        explained = report_of_policy(explain(opened, request), rows)
    show(explained, view)


def _page_writer(
    html: Path | None, *, dry_run: bool, explain: bool
) -> Callable[[Store, Reply, int | None], None]:
    """Return a function that writes the report on a dry run to a file.

    Without a file, the function does nothing.

    Raises:
        RequestError: this is not a dry run, or the file cannot be written.
        MissingExtraError: jinja2 is not installed.
    """
    path = report_file("html", html)
    if path is None:
        return lambda *_: None
    if explain or not dry_run:
        raise RequestError(
            "--html reports on a dry run: add --dry-run, and leave out --explain. Of a finished"
            " run, claimlib report STORE RUN --html writes one",
            option="html",
        )
    from claimlib.commands.report_run import dry_run_report
    from claimlib.report.report_file import write_file
    from claimlib.report.run_report_html import as_html

    def write(store: Store, reply: Reply, now_ms: int | None) -> None:
        text = as_html(dry_run_report(store, reply, now_ms=now_ms))
        write_report("html", path, partial(write_file, text))

    return write


def _listed_kind(*, claimed: bool, deleted: bool, dry_run: bool, explain: bool) -> str | None:
    """Return the kind of entries that a dry run lists, or None if it reports on groups.

    Raises:
        RequestError: both kinds are requested, or this is not a dry run.
    """
    kinds = [name for name, is_wanted in (("claimed", claimed), ("deleted", deleted)) if is_wanted]
    if len(kinds) > 1:
        raise RequestError("give only one of --claimed and --deleted", option="deleted")
    if kinds and (explain or not dry_run):
        (kind,) = kinds
        remedies = {"add --dry-run": not dry_run, "leave out --explain": explain}
        remedy = " and ".join(text for text, is_needed in remedies.items() if is_needed)
        raise RequestError(
            f"--{kind} lists the entries of a dry run: {remedy}. Of a"
            f" finished run, claimlib runs STORE RUN --{kind} lists them",
            option=kind,
        )
    return kinds[0] if kinds else None


@command("reset-cursor ./store nightly --stream 'orders:*'")
def reset_cursor(
    store: StoreArgument,
    cursor: Annotated[str, argument("CURSOR", "The cursor's name.")],
    *,
    scope: ScopeOptions,
    to: Annotated[str, Option("The first id of the next page: ms-seq.", "ID")] = "0-0",
    lock: Annotated[SectionOptions, LockSection],
    run_id: RunIdOption = None,
    limit: LimitOption = None,
    common: Common,
) -> None:
    """Set where a cursor's next page begins.

    Sets it to the first entry, or to the id of --to, in each group that has this cursor and that
    --stream and --group match.
    """
    from claimlib.cli.output import show
    from claimlib.commands.first_look import look_before_run
    from claimlib.commands.reply import Reply
    from claimlib.commands.reset_cursor import groups_with_cursor
    from claimlib.commands.reset_cursor import reset_cursor as run_reset
    from claimlib.report.cursors import COLUMNS, report_of_reset

    view = common.view(COLUMNS)
    rows = view.rows(limit)
    groups, cursor, first = scope.scope(), parse_cursor(cursor), parse_id(to)
    settings = common.settings(lock=lock)
    look = partial(
        look_before_run,
        command="reset-cursor",
        run_id=run_id,
        check=partial(groups_with_cursor, name=cursor, scope=groups),
    )
    with opened_store(store, settings, common, writes=True, look=look) as (opened, progress):
        finished = run_reset(opened, cursor, groups, to=first, run_id=run_id, progress=progress)
        result = report_of_reset(finished, Reply.of_finished(opened, finished).cursors, rows)
    show(result, view)
