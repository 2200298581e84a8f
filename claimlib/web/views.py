"""Build the pages of `claimlib serve`.  Each function reads a store and returns a page.

The addresses of a store's pages differ only in their last part.  So a link from one page to another
is the name of the page and a query.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from urllib.parse import urlencode

from claimlib.commands.advise import DEFAULT_MIN_IDLES_MS, advise
from claimlib.commands.entry import entry_history
from claimlib.commands.report_run import dry_run_report, run_report
from claimlib.commands.runs import list_runs
from claimlib.commands.sweep_request import SweepRequest
from claimlib.commands.xautoclaim import xautoclaim
from claimlib.commands.xpending import (
    DEFAULT_STALLED_MS,
    matching_entries,
    pending_entries,
    pending_overview,
    pending_summary,
    read_store,
    refuse_unknown,
)
from claimlib.engine.relation import DESCENDING
from claimlib.errors import ClaimlibError, RequestError
from claimlib.plans.differences import EVERYTHING
from claimlib.plans.keys import GROUP, ID_ORDER
from claimlib.process import translated
from claimlib.report.advise_report import report_of_advice
from claimlib.report.advise_report import sections as sections_of_advice
from claimlib.report.entry_report import report_of_entry
from claimlib.report.headings import headings
from claimlib.report.page import Field, Form, Link, Page
from claimlib.report.report_model import Report
from claimlib.report.run_report import Section
from claimlib.report.run_report_html import page_of_run
from claimlib.report.runs_report import report_of_runs, with_unfinished_note
from claimlib.report.text import idle, not_shown, visible
from claimlib.report.xpending_report import report_of_entries, report_of_overview, report_of_summary
from claimlib.runs.rollforward import wall_ms
from claimlib.semantics.ids import MAX_ID, MIN_ID, parse_id
from claimlib.semantics.model import AutoclaimRequest, PendingRange
from claimlib.semantics.names import unspell_shown
from claimlib.store.tables import Store
from claimlib.times import parse_duration_ms

MOST_ROWS = 100
"""The largest number of rows of one table on a page."""
_LONGEST_HREF = 8_000
"""The most characters of a link.  The server refuses requests whose head has 16 KiB or more."""
_PARTS = {
    "groups": "Groups",
    "entries": "Longest idle entries",
    "runs": "Runs",
    "advice": "Which min-idle",
    "dry-run": "Dry run",
}
"""The pages of a store that the navigation names, with their titles."""

Query = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ServedStore:
    """Hold a store and its name on the pages.

    Attributes:
        name: the location of the store, as the user wrote it.
    """

    name: str
    store: Store


_FLEET_COLUMNS = ("store", "groups", "pending", "stalled", "oldest_idle_ms", "unfinished")


def fleet(stores: Sequence[ServedStore]) -> Page:
    """Return the page with one row per store."""
    columns = headings(*_FLEET_COLUMNS)
    rows = [_fleet_row(served) for served in stores]
    table = Report("Stores", columns, tuple(rows), (), {}, [])
    links = tuple(f"stores/{number}/groups" for number in range(len(stores)))
    return Page(
        "claimlib", "Stores and their pending entries", sections=[Section(table, (), links)]
    )


def _fleet_row(served: ServedStore) -> tuple[str | int | None, ...]:
    try:
        reading = read_store(served.store)
        groups = pending_overview(reading, stalled_ms=DEFAULT_STALLED_MS)
        (totals,) = groups.select(
            "count(*) AS groups",
            "coalesce(sum(pending), 0L) AS pending",
            "CASE WHEN count(*) = 0 THEN 0L ELSE sum(stalled) END AS stalled",
            "max(oldest_idle_ms) AS oldest_idle_ms",
        ).collect()
    except Exception as error:  # noqa: BLE001 - the page must still show the other stores
        known = translated(error)
        why = str(known) if isinstance(known, ClaimlibError) else f"unexpected error: {error!r}"
        return (f"{visible(served.name)}: {why}", *(None for _ in _FLEET_COLUMNS[1:]))
    numbers = (totals[name] for name in ("groups", "pending", "stalled"))
    return (
        visible(served.name),
        *numbers,
        idle(totals["oldest_idle_ms"]),
        len(reading.unfinished),
    )


def groups(served: ServedStore, query: Query) -> Page:
    """Return the page with the groups of a store, the longest idle first."""
    del query
    reading = read_store(served.store)
    overview = pending_overview(reading, stalled_ms=DEFAULT_STALLED_MS)
    report = report_of_overview(served.name, overview, DEFAULT_STALLED_MS, MOST_ROWS, wall_ms())
    report = with_unfinished_note(report, reading.unfinished)
    return _page(served, "groups", report, _group_links(report))


def group(served: ServedStore, query: Query) -> Page:
    """Return the page of one group: its owners, and its entries, the longest idle first.

    Args:
        query: `stream` and `group`.  `min_idle` chooses entries, and so does `owner` (in a link) or
            `consumer` (from the form).  An empty `consumer` means all consumers, but an empty
            `owner` means the consumer whose name is empty.
    """
    key = _group_key(query)
    reading = read_store(served.store)
    shown_owner = query.get("owner", query.get("consumer") or None)
    owner = None if shown_owner is None else unspell_shown(shown_owner)
    refuse_unknown(reading, EVERYTHING, key, owner)
    wanted = PendingRange(
        MIN_ID,
        MAX_ID,
        MOST_ROWS,
        consumer=owner,
        min_idle_ms=parse_duration_ms(query["min_idle"]) if query.get("min_idle") else None,
    )
    owners = report_of_summary(*key, pending_summary(reading, *key))
    matching = replace(
        matching_entries(reading, *key, wanted),
        order=(f"idle_ms{DESCENDING}", f"delivery_count{DESCENDING}", *ID_ORDER),
    )
    entries = report_of_entries(served.name, matching, MOST_ROWS)
    names = {"stream": query["stream"], "group": query["group"]}
    owner_links = [_href("group", {**names, "owner": row["consumer"]}) for row in owners.records]
    return Page(
        f"{visible(query['stream'])} / {visible(query['group'])}",
        owners.title,
        links=_navigation(None),
        form=Form(
            "group",
            [
                Field("consumer", "Consumer", shown_owner or ""),
                Field("min_idle", "Idle for at least, as 15m", query.get("min_idle", "")),
            ],
            "Choose entries",
            tuple(names.items()),
        ),
        sections=[
            Section(
                _retitled(_with_first_rows(owners), "Owners"), ("pending",), tuple(owner_links)
            ),
            Section(
                _retitled(_without_group(entries), "Entries, the longest idle first"),
                (),
                _entry_links(entries),
            ),
        ],
    )


def entries(served: ServedStore, query: Query) -> Page:
    """Return the page with the longest idle entries of all groups."""
    del query
    reading = read_store(served.store)
    report = report_of_entries(served.name, pending_entries(reading), MOST_ROWS)
    shown = with_unfinished_note(report, reading.unfinished)
    return _page(served, "entries", shown, _entry_links(report))


def entry(served: ServedStore, query: Query) -> Page:
    """Return the page with the history of one entry.

    Args:
        query: `stream` and `id`.  Without `group`, the page shows all groups.
    """
    if "stream" not in query or "id" not in query:
        raise RequestError("name an entry: stream and id")
    stream, group_name = query["stream"], query.get("group")
    history = entry_history(
        served.store,
        unspell_shown(stream),
        parse_id(query["id"]),
        None if group_name is None else unspell_shown(group_name),
    )
    report = report_of_entry(history, MOST_ROWS)
    run_links = tuple(
        None if row["run_seq"] is None else _href("run", {"run": str(row["run_seq"])})
        for row in report.records
    )
    return Page(
        report.title,
        report.notes[0] if report.notes else report.title,
        notes=report.notes[1:],
        links=_navigation(None),
        sections=[Section(replace(_retitled(report, "Events"), notes=()), (), run_links)],
    )


def runs(served: ServedStore, query: Query) -> Page:
    """Return the page with the newest runs."""
    del query
    report = report_of_runs(served.name, list_runs(served.store, MOST_ROWS))
    links = [_href("run", {"run": str(row["run_seq"])}) for row in report.records]
    return _page(served, "runs", report, links)


def run(served: ServedStore, query: Query) -> Page:
    """Return the page with the report on one run.

    Args:
        query: `run`, the number or the key of a run.  Without it, the page is about the last
            finished run.
    """
    return replace(page_of_run(run_report(served.store, query.get("run"))), links=_navigation(None))


def advice(served: ServedStore, query: Query) -> Page:
    """Return the page that compares values of min-idle.

    Args:
        query: `min_idle`, values that are separated by spaces.  Without it, the page compares the
            default values.
    """
    texts = query.get("min_idle", "").split()
    values = [parse_duration_ms(text) for text in texts] or DEFAULT_MIN_IDLES_MS
    compared = advise(served.store, values)
    main = report_of_advice(compared)
    return Page(
        _PARTS["advice"],
        main.title,
        notes=main.notes,
        links=_navigation("advice"),
        form=Form(
            "advice", [Field("min_idle", "Values, as 5m 15m 1h", " ".join(texts))], "Compare"
        ),
        sections=sections_of_advice(compared),
    )


def dry_run(served: ServedStore, query: Query) -> Page:
    """Return the page with the report on a dry run of xautoclaim.

    Args:
        query: `consumer`, which is `reclaimer` by default, and `min_idle`.  Without `min_idle`, the
            page has only the form.
    """
    consumer, min_idle = query.get("consumer") or "reclaimer", query.get("min_idle", "")
    form = Form(
        "dry-run",
        [
            Field("consumer", "New owner", consumer),
            Field("min_idle", "Idle for longer than", min_idle or "15m"),
        ],
        "Show what would be done",
    )
    page = Page(_PARTS["dry-run"], "A dry run changes nothing. Choose the new owner and min-idle.")
    if min_idle:
        name = unspell_shown(consumer)
        request = SweepRequest(AutoclaimRequest(name, parse_duration_ms(min_idle)))
        reply = xautoclaim(served.store, request, dry_run=True)
        page = page_of_run(dry_run_report(served.store, reply))
    return replace(page, form=form, links=_navigation("dry-run"))


PAGES = {
    "groups": groups,
    "group": group,
    "entries": entries,
    "entry": entry,
    "runs": runs,
    "run": run,
    "advice": advice,
    "dry-run": dry_run,
}
"""The functions that return pages, by the name of the page."""


def _page(served: ServedStore, name: str, report: Report, links: Iterable[str | None] = ()) -> Page:
    section = Section(_retitled(report, _PARTS[name]), (), tuple(links))
    about = f"store {served.name}"
    return Page(_PARTS[name], report.title, about, (), [section], _navigation(name))


def _navigation(current: str | None) -> tuple[Link, ...]:
    parts = (Link(title, None if name == current else name) for name, title in _PARTS.items())
    return (Link("All stores", "../../"), *parts)


def _group_key(query: Query) -> tuple[bytes, bytes]:
    if "stream" not in query or "group" not in query:
        raise RequestError("name a group: stream and group")
    return unspell_shown(query["stream"]), unspell_shown(query["group"])


def _href(name: str, query: Mapping[str, str | None]) -> str | None:
    """Return a link, or None if the link is so long that the server would refuse it."""
    known = {key: value for key, value in query.items() if value is not None}
    href = f"{name}?{urlencode(known)}"
    return href if len(href) <= _LONGEST_HREF else None


def _group_links(report: Report) -> tuple[str | None, ...]:
    """Return links to the pages of groups, one per row, and None for the row with the totals."""
    links = (
        _href("group", {"stream": row["stream"], "group": row["consumer_group"]})
        for row in report.records
    )
    return (*links, None)


def _entry_links(report: Report) -> tuple[str | None, ...]:
    """Return links to the histories of entries, one per row."""
    return tuple(
        _href(
            "entry", {"stream": row["stream"], "group": row["consumer_group"], "id": str(row["id"])}
        )
        for row in report.records
    )


def _retitled(report: Report, title: str) -> Report:
    """Return a report under another title, and without the options that show more rows."""
    rows = sum(1 for _ in report.records)  # `records` omits the row with the totals
    cut_off = (f"only the first {rows} rows are shown",) if report.cut_off else ()
    return replace(report, title=title, cut_off=cut_off)


def _with_first_rows(report: Report) -> Report:
    """Return the report with at most `MOST_ROWS` rows.  Each of its rows must be a record."""
    hidden = not_shown(len(report.rows) - MOST_ROWS, "row", shown=MOST_ROWS)
    return replace(report, rows=report.rows[:MOST_ROWS], cut_off=tuple(hidden))


def _without_group(report: Report) -> Report:
    """Return a report without its first columns, which name the group."""
    columns = dict(islice(report.columns.items(), len(GROUP), None))
    return replace(report, columns=columns, rows=tuple(row[len(GROUP) :] for row in report.rows))
