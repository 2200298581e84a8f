"""Define the commands that show pending entries and their owners: xpending and describe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from claimlib import process, terminal
from claimlib.cli.app import command
from claimlib.cli.common import Common
from claimlib.cli.opened_store import opened_store
from claimlib.cli.options import (
    ALL_ROWS,
    EndOption,
    LimitOption,
    NowOption,
    OneGroupArgument,
    Output,
    ScopeOptions,
    StartOption,
    StoreArgument,
    View,
    argument,
    glob_of,
)
from claimlib.config.sections import GLOB, SPELLED, Option
from claimlib.errors import RequestError
from claimlib.report.report_model import DEFAULT_PAYLOAD_BYTES, MOST_ROWS, Report
from claimlib.semantics.ids import parse_range_end, parse_range_start
from claimlib.semantics.model import PendingRange
from claimlib.semantics.names import unspell_shown
from claimlib.times import parse_duration_ms, parse_instant_ms

if TYPE_CHECKING:
    from claimlib.commands.xpending import MatchingEntries, Reading
    from claimlib.engine.relation import Relation
    from claimlib.plans.differences import Scope
    from claimlib.store.tables import Store


PendingView = Literal["server", "store"]


@dataclass(frozen=True, slots=True)
class RangeOptions:
    """Choose entries.  If no option is given, the command does not list entries."""

    count: Annotated[
        int | None,
        Option(
            f"List at most NUMBER entries (a table has at most {MOST_ROWS:,}); the report says how"
            " many more match.",
            "NUMBER",
            unset=f"{ALL_ROWS} (at most {MOST_ROWS:,} with --fields), if another option lists"
            " entries",
            least=1,
        ),
    ] = None
    start: StartOption = None
    end: EndOption = None
    idle: Annotated[
        str | None,
        Option("List only entries that have been idle for DURATION or longer.", "DURATION"),
    ] = None
    consumer: Annotated[str | None, Option("List only entries of this consumer.", "NAME")] = None
    min_deliveries: Annotated[
        int | None,
        Option("List only entries that were delivered NUMBER times or more.", "NUMBER", least=1),
    ] = None
    fields: Annotated[
        bool,
        Option(
            "List entries with their payload, with escapes for bytes that are no text. It is"
            " present, gone (the entry was deleted from its stream), or not_kept (the store never"
            " had it)."
        ),
    ] = False
    max_bytes: Annotated[
        int | None,
        Option(
            "With --fields, show at most NUMBER bytes of each payload; the report says how many"
            " more there are.",
            "NUMBER",
            unset=f"{DEFAULT_PAYLOAD_BYTES}",
            least=1,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class OverviewOptions:
    """Hold the options of the overview: the groups to show, and the limits for alarms."""

    scope: ScopeOptions = field(default_factory=ScopeOptions)
    fail_on_stalled: Annotated[
        str | None,
        Option(
            "Exit with code 3 if an entry has been idle for DURATION or longer, or if this is not"
            " known for a group. On a store that mirrors a server, this checks the entries that the"
            " server had at the snapshot, unless --view store is given. DURATION is also the limit"
            " for the columns that count idle entries and consumers (otherwise 15m).",
            "DURATION",
        ),
    ] = None
    fail_on_stale: Annotated[
        str | None,
        Option(
            "Exit with code 3 if the last snapshot of a group is older than DURATION (at --now, or"
            " else now), or its time is unknown, or there was none: snapshots may have stopped.",
            "DURATION",
        ),
    ] = None


@command("xpending ./store --fail-on-stalled 1h")
def xpending(
    store: StoreArgument,
    stream: Annotated[
        str | None, argument("STREAM", f"Name of one stream, {SPELLED}. [default: all]")
    ] = None,
    group: OneGroupArgument = None,
    *,
    entries: RangeOptions,
    groups: OverviewOptions,
    now: NowOption = None,
    as_of: Annotated[
        str | None,
        Option(
            "Show the store as it was after this run (its number, command:run_id, or its run id if"
            " only one run has it), or after the last run that had finished by this time (ISO 8601"
            " with a zone).",
            "RUN|TIME",
            unset="now",
        ),
    ] = None,
    pending_view: Annotated[
        PendingView | None,
        Option(
            "On a store that mirrors a server: server shows the entries that were pending on the"
            " server at the snapshot, store shows them after the runs since then.",
            "server|store",
            unset="server with --fail-on-stalled, else store",
            names=("--view",),
        ),
    ] = None,
    limit: Annotated[
        int | None,
        Option(
            "Show at most this number of groups.",
            "ROWS",
            unset=ALL_ROWS,
            names=("--limit", "--top"),
            least=1,
        ),
    ] = None,
    common: Common,
) -> None:
    """Show pending entries, the longest idle first.

    Without STREAM and GROUP, it shows all groups. With them, it shows one group as Redis' XPENDING
    does: the number of pending entries of each consumer. Idle times are computed for the time of
    the group's snapshot, or for --now; JSON has them in ms.

    --count, --idle, --consumer, --min-deliveries and --fields list the entries themselves: of one
    group by id, of all groups the longest idle first (with --min-deliveries, the most often
    delivered first). --stream and --group choose among all groups.

    On a store that mirrors a server, runs change only the store. --view server shows the
    entries of the server: at the last snapshot, and after the writebacks since. --fail-on-stalled
    checks these, unless --view store is given.
    """
    from claimlib.cli.output import show
    from claimlib.commands import server_view
    from claimlib.commands.xpending import TABLES, TABLES_OF_PAYLOADS, read_store, refuse_unknown
    from claimlib.report.runs_report import with_unfinished_note
    from claimlib.report.xpending_report import report_of_overview

    view = common.view()
    rows = view.rows(limit)
    settings, now_ms, at_ms = common.settings(), *_instants(now)
    scope, key = groups.scope.scope(), _group_key(stream, group, entries)
    listing = _listing_of(entries, view)
    _refuse_options_of_overview(key, listing, groups, limit)
    stalled, stale = groups.fail_on_stalled, groups.fail_on_stale
    stalled_ms = _stalled_ms(stalled)
    view.check(*_columns_of(key, listing, stalled_ms))
    if stale is not None:
        parse_duration_ms(stale)  # a wrong value is refused before Spark starts
    tables = TABLES if listing is None or listing.payload_bytes is None else TABLES_OF_PAYLOADS
    alarms: list[str] = []
    consumer = None if listing is None else listing.query.consumer

    def look(opened: Store) -> None:
        # The server may still have a consumer that the store has retired.
        owner = None if pending_view == "server" else consumer
        refuse_unknown(read_store(opened, as_of, TABLES), scope, key, owner)

    with opened_store(store, settings, common, look=look) as (opened, _):
        at = read_store(opened, as_of, tables)
        changes, shows_server = _changes(at, key, pending_view, stalled, counts=listing is None)
        if changes is not None and shows_server:
            at = server_view.as_on_server(at, changes)
        refuse_unknown(at, scope, key, consumer)
        if key is not None:
            result = _report_of_group(at, key, listing, now_ms, changes, shows_server=shows_server)
        elif listing is not None:
            result = _report_of_entries(at, scope, listing, now_ms, shows_server=shows_server)
        else:
            by_group = _overview(at, scope, stalled_ms, now_ms, changes, shows_server=shows_server)
            result = report_of_overview(
                opened.where,
                by_group,
                stalled_ms,
                rows,
                at_ms,
                as_of=_shown_run(at),
                shows_server=shows_server,
            )
            where = " on the server" if shows_server else ""
            if stalled is not None:
                alarms += _stalled_alarms(by_group, stalled, where)
            if stale is not None:
                alarms += _stale_alarms(at, by_group, at_ms, stale)
            terminal.say(*alarms)
    show(with_unfinished_note(result, at.unfinished), view)
    if alarms:
        raise typer.Exit(process.STALLED)


@command("describe ./store 'orders:*' workers")
def describe(
    store: StoreArgument,
    stream: Annotated[
        str, typer.Argument(metavar="STREAM_GLOB", help=f"Only these streams ({GLOB}).")
    ] = "*",
    group: Annotated[
        str, typer.Argument(metavar="GROUP_GLOB", help=f"Only these consumer groups ({GLOB}).")
    ] = "*",
    now: NowOption = None,
    limit: LimitOption = None,
    *,
    common: Common,
) -> None:
    """List consumers and cursors.

    Shows for each consumer how many entries it owns and when it was last active, and for each
    cursor where its next page begins. Idle times are computed for the time of the group's snapshot,
    or for --now. Changes nothing.
    """
    from claimlib.cli.output import show
    from claimlib.commands.describe import TABLES
    from claimlib.commands.describe import describe as run_describe
    from claimlib.commands.xpending import read_store, refuse_unknown
    from claimlib.plans.differences import Scope
    from claimlib.report.describe_report import COLUMNS, NAMES, report_of_description
    from claimlib.report.runs_report import with_unfinished_note

    view = common.view(COLUMNS, NAMES)
    rows = view.rows(limit)
    scope = Scope(glob_of(stream, "STREAM_GLOB"), glob_of(group, "GROUP_GLOB"))
    now_ms, at_ms = _instants(now)

    def look(opened: Store) -> None:
        refuse_unknown(read_store(opened), scope)

    with opened_store(store, common.settings(), common, look=look) as (opened, _):
        at = read_store(opened, tables=TABLES)
        refuse_unknown(at, scope)
        description = run_describe(at, scope, now_ms=now_ms)
        result = report_of_description(opened.where, description, at_ms, rows)
    show(with_unfinished_note(result, at.unfinished), view)


def _columns_of(
    key: tuple[bytes, bytes] | None, listing: _Listing | None, stalled_ms: int
) -> tuple[Mapping[str, str], Sequence[str]]:
    """Return the headings of the report by column, and the names of the values in its records."""
    from claimlib.plans.keys import GROUP
    from claimlib.report import xpending_report as report

    if listing is not None:
        keys = GROUP if key is None else ()
        return report.entry_columns(keys, has_payloads=listing.payload_bytes is not None)
    if key is not None:
        return report.SUMMARY_COLUMNS, ()
    return report.overview_columns(stalled_ms), report.OVERVIEW_NAMES


def _changes(
    at: Reading,
    key: tuple[bytes, bytes] | None,
    chosen: PendingView | None,
    fail_on_stalled: str | None,
    *,
    counts: bool,
) -> tuple[Relation | None, bool]:
    """Return the changes of runs, and True if entries are shown and checked as on the server.

    The changes are None in these cases:

    - The command does not need them.
    - The store mirrors no server.
    - They are unknown, and the report only counts them.  Then it is shown without their number.

    Args:
        key: the stream and the group whose changes are needed.  None for all groups.
        counts: True if the report shows the number of changes.

    Raises:
        RequestError: the server's view is needed, but the journal rows for it were deleted.  Or
            --view server is given, but the store mirrors no server.
    """
    from claimlib.commands import server_view

    needs_server = chosen == "server" or (chosen is None and fail_on_stalled is not None)
    if not needs_server and not counts:
        return None, False
    try:
        changes = server_view.changes_since_snapshot(at, key)
    except RequestError as error:
        if needs_server:
            raise
        terminal.say(f"claimlib: the number of entries changed by runs is unknown: {error.message}")
        return None, False
    if changes is None and chosen == "server":
        raise RequestError(
            f"{at.store.where} mirrors no server, so it has no view of one: leave out --view"
            " server",
            option="view",
        )
    return changes, needs_server and changes is not None


def _stalled_ms(fail_on_stalled: str | None) -> int:
    from claimlib.commands.xpending import DEFAULT_STALLED_MS

    return DEFAULT_STALLED_MS if fail_on_stalled is None else parse_duration_ms(fail_on_stalled)


def _overview(
    at: Reading,
    scope: Scope,
    stalled_ms: int,
    now_ms: int | None,
    changes: Relation | None,
    *,
    shows_server: bool,
) -> Relation:
    """Return the overview of the groups of a scope."""
    from claimlib.commands.xpending import pending_overview
    from claimlib.plans.server_view_plan import number_by_group

    return pending_overview(
        at,
        scope=scope,
        stalled_ms=stalled_ms,
        now_ms=now_ms,
        changed=None if changes is None else number_by_group(changes),
        shows_server=shows_server,
    )


def _shown_run(at: Reading) -> int | None:
    """Return the run of --as-of.  Another note tells of an unfinished run."""
    return None if at.unfinished else at.run_seq


def _report_of_group(
    at: Reading,
    key: tuple[bytes, bytes],
    listing: _Listing | None,
    now_ms: int | None,
    changes: Relation | None,
    *,
    shows_server: bool,
) -> Report:
    """Return the report of one group: the summary, or the entries of a range."""
    from claimlib.commands.xpending import matching_entries, pending_summary
    from claimlib.report.xpending_report import report_of_range, report_of_summary

    if listing is None:
        changed = None if changes is None else changes.count()
        summary = pending_summary(at, *key)
        return report_of_summary(
            *key, summary, changed, as_of=_shown_run(at), shows_server=shows_server
        )
    query, min_deliveries = listing.query, listing.min_deliveries
    matching = matching_entries(at, *key, query, now_ms=now_ms, min_deliveries=min_deliveries)
    matching = listing.with_payloads(at, matching)
    return report_of_range(*key, matching, listing.limit, shows_server=shows_server)


def _report_of_entries(
    at: Reading, scope: Scope, listing: _Listing, now_ms: int | None, *, shows_server: bool
) -> Report:
    """Return the report of entries of all groups of a scope."""
    from claimlib.commands.xpending import pending_entries
    from claimlib.report.xpending_report import report_of_entries

    query, min_deliveries = listing.query, listing.min_deliveries
    matching = pending_entries(at, scope, query, now_ms=now_ms, min_deliveries=min_deliveries)
    matching = listing.with_payloads(at, matching)
    return report_of_entries(at.store.where, matching, listing.limit, shows_server=shows_server)


def _stalled_alarms(groups: Relation, duration: str, where: str) -> Iterator[str]:
    """Yield the alarms of `--fail-on-stalled`, with one alarm for unknown idle times."""
    from claimlib.commands.xpending import stalled, without_idle_times
    from claimlib.report.text import entries_text, groups_text

    number, group_count = stalled(groups)
    if number:
        have = "has" if number == 1 else "have"
        yield (
            f"stalled{where}: {entries_text(number)} in {groups_text(group_count)} {have} been idle"
            f" for {duration} or longer"
        )
    if unknown := without_idle_times(groups):
        yield (
            f"unknown: for {groups_text(unknown)}, it is not known how long pending entries have"
            " been idle, because there is no snapshot time: set the time with --now, or import"
            " groups with their snapshot times"
        )


def _stale_alarms(at: Reading, groups: Relation, at_ms: int, duration: str) -> Iterator[str]:
    """Yield the alarms of `--fail-on-stale`.

    If the store has no groups, the time of its last snapshot or import counts.
    """
    from claimlib.commands.xpending import last_mirrored, stale
    from claimlib.report.text import groups_text

    if groups.is_empty():
        last, most_ms = last_mirrored(at), parse_duration_ms(duration)
        if last is None:
            yield "stale: the store has no snapshot, and no import"
        elif last["began_ms"] is None or at_ms - last["began_ms"] > most_ms:
            yield (
                "stale: the store has no consumer groups, and its last snapshot is older than"
                f" {duration}, or its time is unknown"
            )
    elif number := stale(groups, at_ms, parse_duration_ms(duration)).count():
        yield (
            f"stale: for {groups_text(number)}, the last snapshot is older than {duration}, or its"
            " time is unknown"
        )


def _instants(now: str | None) -> tuple[int | None, int]:
    """Return the time for idle times, and the time for the ages of snapshots.

    The first is None without --now, because each group's snapshot time then counts.
    """
    from claimlib.runs.rollforward import wall_ms

    if now is None:
        return None, wall_ms()
    now_ms = parse_instant_ms(now)
    return now_ms, now_ms


def _group_key(
    stream: str | None, group: str | None, entries: RangeOptions
) -> tuple[bytes, bytes] | None:
    """Return the names of the requested stream and group, or None for all groups."""
    if stream is not None and group is not None:
        return unspell_shown(stream), unspell_shown(group)
    if stream is not None:
        raise RequestError(
            "GROUP is missing: give STREAM and GROUP to show one group, or --stream to show the"
            " groups of some streams"
        )
    if entries.start is not None or entries.end is not None:
        raise RequestError(
            "--start and --end show a range of one group: give STREAM and GROUP too",
            option="end" if entries.start is None else "start",
        )
    return None


def _refuse_options_of_overview(
    key: tuple[bytes, bytes] | None,
    listing: _Listing | None,
    groups: OverviewOptions,
    limit: int | None,
) -> None:
    """Raise RequestError if an option of the overview is given, but the overview is not shown."""
    if key is not None and (groups != OverviewOptions() or limit is not None):
        raise RequestError(
            "--stream, --group, --fail-on-stalled, --fail-on-stale and --limit are for the overview"
            " of all groups: leave out STREAM and GROUP (--count says how many entries of one group"
            " to show)"
        )
    alarms = (groups.fail_on_stalled, groups.fail_on_stale)
    if listing is not None and (alarms != (None, None) or limit is not None):
        raise RequestError(
            "--fail-on-stalled, --fail-on-stale and --limit are for the overview of all groups, not"
            " for a list of entries: leave them out (--count says how many entries to list)"
        )


@dataclass(frozen=True, slots=True)
class _Listing:
    """Choose the entries to list.

    Attributes:
        limit: the largest number of entries to list, or None to list all.
        payload_bytes: the number of bytes of each payload to show.  None if no payload is
            requested.
    """

    query: PendingRange
    min_deliveries: int
    limit: int | None
    payload_bytes: int | None

    def with_payloads(self, at: Reading, entries: MatchingEntries) -> MatchingEntries:
        """Return the entries that are listed, with payloads if they are requested."""
        from claimlib.commands.xpending import with_payloads

        if self.payload_bytes is None:
            return entries
        return with_payloads(at, entries, self.limit, self.payload_bytes)


def _listing_of(entries: RangeOptions, view: View) -> _Listing | None:
    """Return the choice of entries to list, or None if no list is requested."""
    if entries == RangeOptions():
        return None
    if entries.consumer == "":
        raise RequestError.of_empty(
            "--consumer", "name whose entries to show, or leave it out", option="consumer"
        )
    count = entries.count
    if count is None:
        limit = view.rows(None)
        if limit is None and entries.fields:  # payloads take much memory
            limit = MOST_ROWS
    else:
        limit = min(count, MOST_ROWS) if view.output is Output.TABLE else count
    query = PendingRange(
        start=parse_range_start("-" if entries.start is None else entries.start),
        end=parse_range_end("+" if entries.end is None else entries.end),
        count=count or 0,
        min_idle_ms=None if entries.idle is None else parse_duration_ms(entries.idle),
        consumer=None if entries.consumer is None else unspell_shown(entries.consumer),
    )
    return _Listing(query, entries.min_deliveries or 0, limit, _payload_bytes(entries))


def _payload_bytes(entries: RangeOptions) -> int | None:
    """Return the number of bytes of each payload to show, or None if no payload is requested."""
    if entries.max_bytes is not None and not entries.fields:
        raise RequestError("--max-bytes goes with --fields: add --fields", option="max_bytes")
    if not entries.fields:
        return None
    return DEFAULT_PAYLOAD_BYTES if entries.max_bytes is None else entries.max_bytes
