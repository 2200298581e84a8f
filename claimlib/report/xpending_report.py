"""Report XPENDING to people and to programs: the overview, one group, or a range of its entries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from claimlib.commands.xpending import MatchingEntries
from claimlib.engine.relation import DESCENDING, Relation
from claimlib.plans.keys import GROUP, ID_ORDER
from claimlib.plans.xpending_plan import CHANGED, OFTEN, OVERVIEW, VERY_OFTEN
from claimlib.report.headings import headings
from claimlib.report.report_model import MOST_ROWS, Cell, Report
from claimlib.report.rows import FetchedRows, Record, fetch_rows
from claimlib.report.sweep_report import MAXIMA
from claimlib.report.text import (
    counted,
    duration,
    entries_text,
    groups_text,
    idle,
    missing_payloads,
    not_shown,
    unowned,
    visible,
    with_times,
)
from claimlib.semantics.ids import StreamId, from_bigint
from claimlib.semantics.model import PendingSummary
from claimlib.semantics.names import spell
from claimlib.terminal import number_of
from claimlib.times import format_duration_ms

_OVERVIEW_SUMS = (
    "pending",
    "stalled",
    "delivered_5_plus",
    "delivered_10_plus",
    "owners",
)


def report_of_overview(
    where: str,
    groups: Relation,
    stalled_ms: int,
    limit: int | None,
    at_ms: int | None = None,
    *,
    as_of: int | None = None,
    shows_server: bool = False,
) -> Report:
    """Return one row per group with the numbers of its pending entries, the worst group first.

    The groups are sorted by their longest idle time, and then by their highest delivery count.
    Groups with unknown idle times follow, and then groups without pending entries.

    Args:
        limit: the most groups to show, or None for all.
        at_ms: the time at which the age of the snapshots is computed.  None hides the age.
        as_of: the number of the run whose result is shown.  None means now.
        shows_server: True if the entries are those of the server at the snapshots.
    """
    (totals,) = groups.select(
        "count(*) AS groups",
        "count_if(now_ms IS NULL AND pending > 0) AS groups_without_instant",
        "count_if(NOT is_known) AS groups_not_known",
        *map(_sum, _OVERVIEW_SUMS),
        *map(_sum_of_known, ("idle_owners", "unknown_owners")),
        f"sum({CHANGED}) AS {CHANGED}",
        *(f"max({name}) AS {name}" for name in MAXIMA),
        "min(snapshot_ms) AS oldest_snapshot_ms",
    ).collect()
    rows = fetch_rows(groups, _WORST_FIRST, limit, totals["groups"], with_times)
    oldest = _age(totals["oldest_snapshot_ms"], at_ms)
    # This column is shown only if the store mirrors a server.
    changed = () if totals[CHANGED] is None else (CHANGED,)
    total = ("total", groups_text(totals["groups"]), *_overview_numbers(totals, changed), oldest)
    return Report(
        title=f"Pending in {where}{_as_of(as_of)}{_ON_SERVER if shows_server else ''}",
        columns=overview_columns(stalled_ms, changed),
        rows=(
            *(
                (
                    visible(row["stream"]),
                    visible(row["consumer_group"]),
                    *_overview_numbers(row, changed),
                    _age(row["snapshot_ms"], at_ms),
                )
                for row in rows.shown
            ),
            total,
        ),
        cut_off=tuple(not_shown(rows.hidden, "group", shown=len(rows.shown))),
        notes=(
            *counted(
                totals["groups_without_instant"],
                f"group {_NO_TIME[0]}",
                f"groups {_NO_TIME[1]}",
            ),
            *counted(
                totals["groups_not_known"],
                "group has pending entries but is missing from the table groups",
                "groups have pending entries but are missing from the table groups",
            ),
            *([] if totals["groups"] else [_NO_GROUP]),
            *([] if shows_server else _only_in_store(totals[CHANGED] or 0, as_of)),
        ),
        document={
            "command": "xpending",
            "view": "server" if shows_server else "store",
            "stalled_after_ms": stalled_ms,
            "totals": totals,
            "groups": rows.records,
            "groups_not_shown": rows.hidden,
        },
        records=rows.records,
        names=OVERVIEW_NAMES,
    )


def overview_columns(stalled_ms: int, changed: Sequence[str] = (CHANGED,)) -> dict[str, str]:
    """Return the headings of the overview of all groups, by column.

    Args:
        stalled_ms: the idle time in ms from which an entry counts as stalled.
        changed: the column of changes in the store.  Empty if the store mirrors no server.
    """
    since = format_duration_ms(stalled_ms)
    return headings(
        *GROUP,
        "pending",
        "stalled",
        "oldest_idle_ms",
        "highest_delivery_count",
        "delivered_5_plus",
        "delivered_10_plus",
        "owners",
        "idle_owners",
        "unknown_owners",
        *changed,
        "snapshot_ms",
        stalled=f"idle {since}+",
        delivered_5_plus=f"{OFTEN}+ deliveries",
        delivered_10_plus=f"{VERY_OFTEN}+ deliveries",
        idle_owners=f"owners idle {since}+",
    )


OVERVIEW_NAMES = (*GROUP, *OVERVIEW, "oldest_delivery_time")

_WORST_FIRST = (
    f"pending > 0{DESCENDING}",
    f"oldest_idle_ms{DESCENDING}",
    f"highest_delivery_count{DESCENDING}",
    *GROUP,
)
_ON_SERVER = " on the server: at the last snapshot, and after the writebacks since"


def _as_of(run_seq: int | None) -> str:
    return "" if run_seq is None else f", as run {run_seq} left it"


def _only_in_store(number: int, as_of: int | None) -> Iterable[str]:
    if not number:
        return
    entries = number_of(number, "entry was", "entries were")
    if as_of is not None:
        yield f"at the end of run {as_of}, {entries} changed by runs only in this store"
    else:
        yield (
            f"{entries} changed by runs since the snapshot, only in this store. --view server shows"
            " them as the server had them. claimlib writeback makes the changes of a run on the"
            " server"
        )


_NO_GROUP = "the store has no consumer groups yet: take a snapshot or an import first"
# The texts for one group and for several groups.
_NO_TIME = tuple(
    f"{has} no snapshot time, so the idle times of {whose} entries are unknown; set the time with"
    " --now"
    for has, whose in (("has", "its"), ("have", "their"))
)


def _sum(name: str) -> str:
    """Return the SQL of a sum: null if no group has a known value, and 0 if there is no group."""
    return f"CASE WHEN count(*) = 0 THEN 0L ELSE sum({name}) END AS {name}"


def _sum_of_known(name: str) -> str:
    """Return the SQL of a sum: null if the value of any group is unknown."""
    return f"CASE WHEN count({name}) = count(*) THEN coalesce(sum({name}), 0L) END AS {name}"


def _age(snapshot_ms: int | None, at_ms: int | None) -> str | None:
    if snapshot_ms is None or at_ms is None:
        return None
    return duration(max(at_ms - snapshot_ms, 0))


def _overview_numbers(row: Mapping[str, Any], others: Iterable[str]) -> tuple[Cell, ...]:
    return (
        row["pending"],
        row["stalled"],
        idle(row["oldest_idle_ms"]),
        row["highest_delivery_count"],
        row["delivered_5_plus"],
        row["delivered_10_plus"],
        row["owners"],
        row["idle_owners"],
        row["unknown_owners"],
        *(row[name] for name in others),
    )


def report_of_summary(
    stream: bytes,
    group: bytes,
    summary: PendingSummary,
    changed: int | None = None,
    *,
    as_of: int | None = None,
    shows_server: bool = False,
) -> Report:
    """Report the summary form of XPENDING for one group.

    Args:
        changed: the number of entries that runs changed since the snapshot.  None if it is unknown,
            or if the store mirrors no server.
        as_of: the number of the run whose result is shown.  None means now.
        shows_server: True if the entries are those of the server at the snapshots.
    """
    ids = [None if id_ is None else str(id_) for id_ in (summary.smallest, summary.largest)]
    owners = [(spell(name), number) for name, number in summary.consumers]
    without_owner = summary.number - sum(number for _, number in owners)
    return Report(
        title=f"Pending in {visible(spell(stream))} / {visible(spell(group))}: {summary.number:,}"
        + (f", from {ids[0]} to {ids[1]}" if summary.number else "")
        + _as_of(as_of)
        + (_ON_SERVER if shows_server else ""),
        columns=SUMMARY_COLUMNS,
        rows=tuple((visible(name), number) for name, number in owners),
        notes=(
            *unowned(without_owner),
            *(() if shows_server else _only_in_store(changed or 0, as_of)),
        ),
        document={
            "command": "xpending",
            "view": "server" if shows_server else "store",
            "stream": spell(stream),
            "consumer_group": spell(group),
            "pending": summary.number,
            "changed_by_runs": changed,
            "smallest_id": ids[0],
            "largest_id": ids[1],
            "consumers": dict(owners),
            "pending_without_owner": without_owner,
        },
        records=[{"consumer": name, "pending": number} for name, number in owners],
    )


SUMMARY_COLUMNS = headings("consumer", "pending")


def report_of_range(
    stream: bytes,
    group: bytes,
    entries: MatchingEntries,
    limit: int | None,
    *,
    shows_server: bool = False,
) -> Report:
    """Report the range form of XPENDING for one group.

    `next_start` in the document is the start of the range of the entries that are not shown.  It is
    None if all entries are shown, or if none is shown (a count of 0).

    Args:
        limit: the most entries to show, or None for all.
        shows_server: True if the entries are those of the server at the snapshots.
    """
    fetched = _fetch_entries(entries, limit)
    number = entries.total - fetched.hidden
    last_id = _last_id(entries.rows, fetched.shown, number) if fetched.hidden and number else None
    next_start = None if last_id is None else f"({last_id}"
    hint = "" if next_start is None else f"; --start '{next_start}' shows the next"
    title = f"Pending in {visible(spell(stream))} / {visible(spell(group))}"
    about = {"stream": spell(stream), "consumer_group": spell(group)}
    report = _entries_report(title, (), entries, fetched, hint, about, shows_server=shows_server)
    return replace(report, document={**report.document, "next_start": next_start})


def report_of_entries(
    where: str, entries: MatchingEntries, limit: int | None, *, shows_server: bool = False
) -> Report:
    """Report pending entries of all groups of a scope, in the order of `entries`.

    Args:
        where: the store.
        limit: the most entries to show, or None for all.
        shows_server: True if the entries are those of the server at the snapshots.
    """
    fetched = _fetch_entries(entries, limit)
    title = f"Pending in {where}: {entries_text(entries.total)}"
    if entries.total:
        title += f" in {groups_text(entries.groups)}"
    hint = "use --count to show more"
    if len(fetched.shown) >= MOST_ROWS:
        hint += f", with --output json, csv or jsonl (a table has at most {MOST_ROWS:,} rows)"
    about = {"entries": entries.total, "groups": entries.groups}
    return _entries_report(
        title, GROUP, entries, fetched, f"; {hint}", about, shows_server=shows_server
    )


def _fetch_entries(entries: MatchingEntries, limit: int | None) -> FetchedRows:
    record = partial(_entry_record, most_bytes=entries.most_bytes)
    return fetch_rows(entries.rows, entries.order, limit, entries.total, record)


def _entries_report(
    title: str,
    keys: Sequence[str],
    entries: MatchingEntries,
    fetched: FetchedRows,
    hint: str,
    about: Mapping[str, object],
    *,
    shows_server: bool,
) -> Report:
    """Report entries.

    Args:
        keys: the columns of the table that name the group of an entry.
        hint: the text after the number of shown entries, if not all are shown.  It names the option
            that shows more.
        about: the fields of the document that describe all entries.
    """
    columns, names = entry_columns(keys, has_payloads=entries.most_bytes is not None)
    number = entries.total - fetched.hidden
    hidden = [f"{number:,} of {entries_text(entries.total)} shown{hint}"] if fetched.hidden else []
    return Report(
        title=title + (_ON_SERVER if shows_server else ""),
        columns=columns,
        rows=tuple(tuple(_entry_cell(row, name) for name in columns) for row in fetched.shown),
        cut_off=(*hidden, *_cut_payloads(fetched.shown, entries.most_bytes)),
        notes=(
            *([] if entries.total else ["no entry matches"]),
            *missing_payloads(fetched.shown),
            *counted(
                entries.without_idle_time,
                "more entry may match: its group has no snapshot time, so its idle time is"
                " unknown; set the time with --now",
                "more entries may match: their groups have no snapshot time, so their idle times"
                " are unknown; set the time with --now",
            ),
        ),
        document={
            "command": "xpending",
            "view": "server" if shows_server else "store",
            **about,
            **({} if entries.most_bytes is None else {"max_bytes": entries.most_bytes}),
            "rows": fetched.records,
            "rows_not_shown": fetched.hidden,
        },
        records=fetched.records,
        names=names,
    )


def entry_columns(
    keys: Sequence[str], *, has_payloads: bool
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the headings of a list of entries by column, and the names in its records.

    Args:
        keys: the columns that name the group of an entry.  Empty for a list of one group.
    """
    columns = headings(*keys, "id", "consumer", "idle_ms", "delivery_count")
    if not has_payloads:
        return columns, _ENTRY_NAMES
    return columns | headings("payload", "fields"), (*_ENTRY_NAMES, *_PAYLOAD_NAMES)


_ENTRY_NAMES = (
    *GROUP,
    "id",
    "consumer",
    "idle_ms",
    "delivery_time_ms",
    "delivery_time",
    "delivery_count",
)
_PAYLOAD_NAMES = ("payload", "payload_bytes", "bytes_not_shown", "fields")


def _entry_cell(row: Record, name: str) -> Cell:
    match name:
        case "stream" | "consumer_group" | "consumer":
            return visible(row[name])
        case "idle_ms":
            return idle(row[name])
        case "fields":
            return _fields_text(row)
        case _:
            value: Cell = row[name]
            return value


def _fields_text(row: Record) -> str | None:
    """Return the fields as `name=value  name=value`, or None if there is no payload.

    The number of bytes that are not shown follows, if there are any.
    """
    if row["fields"] is None:
        return None
    shown = "  ".join(f"{name}={value}" for name, value in row["fields"])
    if not row["bytes_not_shown"]:
        return shown
    return f"{shown} ... {row['bytes_not_shown']:,} of {row['payload_bytes']:,} bytes not shown"


def _cut_payloads(shown: Sequence[Record], most_bytes: int | None) -> Iterable[str]:
    number = sum(bool(row.get("bytes_not_shown")) for row in shown)
    return counted(
        number,
        f"payload is cut to its first {most_bytes} bytes; use --max-bytes to show more",
        f"payloads are cut to their first {most_bytes} bytes; use --max-bytes to show more",
    )


def _last_id(rows: Relation, shown: Sequence[Record], number: int) -> str:
    """Return the id of the last row in the report, which has the first `number` rows by id.

    If the rows are streamed, this takes another query.
    """
    if shown:
        return str(shown[-1]["id"])
    first = rows.order_by(*ID_ORDER).limit(number)
    (last,) = first.order_by(*(f"{half}{DESCENDING}" for half in ID_ORDER)).limit(1).collect()
    return _id_text(last)


def _id_text(row: Record) -> str:
    return str(StreamId(from_bigint(row["id_ms"]), from_bigint(row["id_seq"])))


def _entry_record(row: dict[str, Any], most_bytes: int | None) -> Record:
    values = {**with_times(row), "id": _id_text(row)}
    record = {name: values[name] for name in _ENTRY_NAMES}
    return record if most_bytes is None else {**record, **_payload_record(row, most_bytes)}


def _payload_record(row: Record, most_bytes: int) -> Record:
    """Return the state and the size of a payload, and its first bytes, spelled like names."""
    fields, bytes_left = [], most_bytes
    for field in row["fields"] or ():
        if not bytes_left:
            break
        name = bytes(field["name"])[:bytes_left]
        value = bytes(field["value"])[: bytes_left - len(name)]
        bytes_left -= len(name) + len(value)
        fields.append([spell(name), spell(value)])
    size = row["payload_bytes"]
    return {
        "payload": row["payload"],
        "payload_bytes": size,
        "bytes_not_shown": None if size is None else size - (most_bytes - bytes_left),
        "fields": None if row["fields"] is None else fields,
    }
