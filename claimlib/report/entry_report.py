"""Report the history of an entry, or of a consumer's entries, as a table and as a document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from claimlib.commands.entry import EntryHistory
from claimlib.engine.relation import Relation
from claimlib.plans.keys import GROUP, ID_ORDER, id_text_sql
from claimlib.report.headings import headings
from claimlib.report.report_model import DEFAULT_LIMIT, DEFAULT_PAYLOAD_BYTES, Cell, Report
from claimlib.report.rows import fetch_rows
from claimlib.report.text import instant, not_shown, plain_row, visible
from claimlib.runs.maintenance import DeletedHistory, first_complete_run
from claimlib.semantics.names import spell

_STATE = ("from_consumer", "from_delivery_count", "consumer", "delivery_time_ms", "delivery_count")
ENTRY_COLUMNS = headings("at_ms", "event", "run_seq", "key", "consumer_group", *_STATE)
CONSUMER_COLUMNS = headings("at_ms", "change", "event", "run_seq", "key", *GROUP, "id", *_STATE)
_TIMES = {"at_ms", "delivery_time_ms"}


_NEVER_SEEN = "no finished run changed it, and no snapshot or import found it pending"
_NOTHING_MOVED = "no finished run took an entry from it, or gave one to it"


def report_of_entry(history: EntryHistory, limit: int | None = DEFAULT_LIMIT) -> Report:
    """Return one row per event of an entry, the earliest first.

    The notes have the present state of the entry.

    Args:
        limit: the number of events to show at most, or None for all.
    """
    count = history.events.count()
    rows = fetch_rows(
        _with_names(history.events), ("run_seq", *GROUP, "event"), limit, count, plain_row
    )
    return Report(
        title=f"Entry {history.id} of {visible(history.stream)}",
        columns=ENTRY_COLUMNS,
        rows=tuple(_row(row, ENTRY_COLUMNS) for row in rows.shown),
        cut_off=tuple(not_shown(rows.hidden, "event", shown=len(rows.shown))),
        notes=(
            *_state(history),
            *_payload(history),
            *_no_events("entry", _NEVER_SEEN, count),
            *_complete(history.complete_from_run, history.deleted_by),
        ),
        document={
            "stream": history.stream,
            "id": str(history.id),
            "exists": history.exists,
            "fields": None if history.fields is None else _pairs(history.fields),
            "pending": list(history.pending),
            "events": rows.records,
            "events_not_shown": rows.hidden,
            "complete_from_run": history.complete_from_run,
        },
        records=rows.records,
        names=(*ENTRY_COLUMNS, "request"),
    )


def report_of_consumer(
    name: str,
    events: Relation,
    limit: int | None = DEFAULT_LIMIT,
    deleted: DeletedHistory | None = None,
) -> Report:
    """Return one row per entry that a run took from a consumer, or gave to it.

    Args:
        name: the consumer's spelled name.
        events: see `commands.entry.consumer_history`.
        limit: the number of rows to show at most, or None for all.
        deleted: the deleted part of the journal, or None if no part was deleted.
    """
    first_run = first_complete_run(deleted)
    by_change = "SELECT change, count(*) AS number FROM {this} AS this GROUP BY change"
    numbers = {row["change"]: row["number"] for row in events.sql(by_change).collect()}
    lost, received = (numbers.get(change, 0) for change in ("lost", "received"))
    order = ("run_seq", *GROUP, *ID_ORDER)
    rows = fetch_rows(_with_names(events), order, limit, lost + received, plain_row)
    return Report(
        title=f"Consumer {visible(name)}",
        columns=CONSUMER_COLUMNS,
        rows=tuple(_row(row, CONSUMER_COLUMNS) for row in rows.shown),
        cut_off=tuple(not_shown(rows.hidden, "entry", "entries", shown=len(rows.shown))),
        notes=(
            f"{lost:,} lost, {received:,} received by runs of this store",
            *_no_events("consumer", _NOTHING_MOVED, lost + received),
            *_complete(first_run, None if deleted is None else deleted.run),
        ),
        document={
            "consumer": name,
            "lost": lost,
            "received": received,
            "events": rows.records,
            "events_not_shown": rows.hidden,
            "complete_from_run": first_run,
        },
        records=rows.records,
        names=(*CONSUMER_COLUMNS, "request"),
    )


def _with_names(events: Relation) -> Relation:
    return events.select("*", f"{id_text_sql()} AS id", "concat(command, ':', run_id) AS key")


def _row(row: Mapping[str, Any], columns: Iterable[str]) -> tuple[Cell, ...]:
    return tuple(_cell(name, row[name]) for name in columns)


def _cell(name: str, value: Any) -> Cell:
    if name in _TIMES:
        return instant(value)
    return visible(value) if isinstance(value, str) else value


def _state(history: EntryHistory) -> Iterable[str]:
    for row in history.pending:
        since = instant(row["delivery_time_ms"])
        yield (
            f"now pending in {visible(row['consumer_group'])}: consumer {visible(row['consumer'])},"
            f" since {since}, deliveries {row['delivery_count']}"
        )
    if not history.pending:
        yield "now not pending"


def _no_events(what: str, meaning: str, events: int) -> Iterable[str]:
    """Yield a note with the reason if there are no events."""
    if not events:
        yield f"no event of this {what}: {meaning}"


def _complete(first_run: int, deleted_by: str | None) -> Iterable[str]:
    if deleted_by is not None:
        yield (
            f"the history is complete from run {first_run} on: run {deleted_by} deleted the journal"
            " rows of earlier runs"
        )


def _payload(history: EntryHistory) -> Iterable[str]:
    if not history.exists:
        yield "no payload: the store does not have this stream entry"
    elif history.fields is None:
        yield "no payload: the store never had it"
    else:
        text = "  ".join(f"{name}={value}" for name, value in _pairs(history.fields))
        hidden = len(text) - DEFAULT_PAYLOAD_BYTES
        more = f" … {hidden:,} more characters: --output json shows them" if hidden > 0 else ""
        yield f"payload: {visible(text[:DEFAULT_PAYLOAD_BYTES])}{more}"


def _pairs(fields: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    return [[spell(bytes(pair["name"])), spell(bytes(pair["value"]))] for pair in fields]
