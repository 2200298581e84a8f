"""Read the history of one entry, or of the entries of one consumer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from claimlib.commands.preconditions import (
    names_like,
    refuse_unknown_consumer,
    refuse_unknown_group,
)
from claimlib.engine.relation import IdBounds, Record, Relation
from claimlib.errors import RequestError
from claimlib.plans import history_plan as plan
from claimlib.plans.journal_rows import of_kinds
from claimlib.plans.keys import GROUP, bigint_sql, is_group, is_stream
from claimlib.runs.known import load_known_runs
from claimlib.runs.maintenance import deleted_history, first_complete_run
from claimlib.schema import Kind, quote_text
from claimlib.semantics.ids import StreamId, to_bigint
from claimlib.semantics.names import spell
from claimlib.store.tables import Store
from claimlib.terminal import one_line

_PENDING_COLUMNS = (*GROUP, "consumer", "delivery_time_ms", "delivery_count", "run_seq")


@dataclass(frozen=True)
class EntryHistory:
    """Hold the history and the present state of one entry.

    Attributes:
        stream: the spelled name.
        pending: one row per group in which the entry is pending now.  Columns: stream,
            consumer_group, consumer, delivery_time_ms, delivery_count and run_seq.  run_seq is the
            run that wrote the row, or 0 if no run of the store wrote it.
        exists: True if the store has the stream entry now.
        fields: the payload, pairs of name and value (bytes).  None if the store has no payload.
        events: one row per event, the earliest first.  See `plans.history_plan.entry_events`.
        complete_from_run: the first run whose events are all known.
        deleted_by: the run of `maintain` that deleted the events of earlier runs.  None if no
            events were deleted.
    """

    stream: str
    id: StreamId
    pending: Sequence[Record]
    exists: bool
    fields: Sequence[Record] | None
    events: Relation
    complete_from_run: int
    deleted_by: str | None


def entry_history(
    store: Store, stream: bytes, stream_id: StreamId, group: bytes | None = None
) -> EntryHistory:
    """Return the present state of an entry, and the events in which runs changed or read it.

    Args:
        group: the consumer group, or None for all groups of the stream.

    Raises:
        RequestError: the store has no such stream or group, and no event of the entry.  It is not
            raised while a run is unfinished, or if `maintain` has deleted history.

    Examples:
        >>> entry_history(open_store("./store"), b"orders", parse_id("1-0")).pending
        []
    """
    name, bounds = spell(stream), _bounds(store, stream, stream_id)
    ms, seq = (bigint_sql(to_bigint(half)) for half in stream_id)
    is_entry = f"stream = {quote_text(name)} AND id_ms = {ms} AND id_seq = {seq}"
    is_in_group = is_entry if group is None else f"{is_entry} AND {is_group(name, spell(group))}"

    def rows(table: str, condition: str) -> Relation:
        return store.relation(table).within(bounds).where(condition)

    changes = rows("journal", f"{is_in_group} AND {of_kinds(*plan.EVENTS)}").fetched()
    read = rows("pel_snapshots", is_in_group).fetched()
    events = plan.entry_events(changes, read, _decisions(store))
    entry = rows("entries", is_entry).select("fields").first()
    deleted = deleted_history(store)
    pending = rows("pending", is_in_group).select(*_PENDING_COLUMNS).order_by(*GROUP).collect()
    is_seen = pending or not changes.is_empty() or not read.is_empty()
    if not (is_seen or (entry is not None and group is None) or _may_have_been_known(store)):
        _refuse_unknown_place(store, stream, group)
    return EntryHistory(
        stream=name,
        id=stream_id,
        pending=pending,
        exists=entry is not None,
        fields=None if entry is None else entry["fields"],
        events=events.order_by("run_seq", *GROUP, "event").fetched(),
        complete_from_run=first_complete_run(deleted),
        deleted_by=None if deleted is None else deleted.run,
    )


def consumer_history(
    store: Store, consumer: bytes, stream: bytes | None = None, group: bytes | None = None
) -> Relation:
    """Return the entries that runs took from a consumer or gave to it.

    Args:
        stream: None for all streams.
        group: None for all groups.

    Returns: one row per entry and run, the earliest first.  The columns are those of
    `plans.history_plan.consumer_events`.

    Examples:
        >>> consumer_history(open_store("./store"), b"worker-9").count()
        0
    """
    name = quote_text(spell(consumer))
    conditions = [of_kinds(*plan.EVENTS), f"(consumer = {name} OR from_consumer = {name})"]
    if stream is not None:
        conditions.append(is_stream(spell(stream), store.buckets))
    if group is not None:
        conditions.append(f"consumer_group = {quote_text(spell(group))}")
    changes = store.relation("journal").where(" AND ".join(conditions))
    return plan.consumer_events(changes, _decisions(store), name)


def refuse_unknown_names(
    store: Store, consumer: bytes, stream: bytes | None = None, group: bytes | None = None
) -> None:
    """Raise RequestError if a store has no such consumer, group or stream.

    Without this check, a mistyped name would look like a consumer without a history.

    Args:
        stream: None for all streams.
        group: None for all groups.

    Raises:
        RequestError: the store lacks one of the names.  The message has similar names.  It is not
            raised while a run is unfinished, or if `maintain` has deleted history.
    """
    if _may_have_been_known(store):
        return
    if stream is not None:
        _refuse_unknown_place(store, stream, group)
    consumers, pending = store.relation("consumers"), store.relation("pending")
    place = "no consumer group has a consumer"
    refuse_unknown_consumer(consumers, pending, spell(consumer), place)


def _refuse_unknown_place(store: Store, stream: bytes, group: bytes | None) -> None:
    name, groups, streams = spell(stream), store.relation("groups"), store.relation("streams")
    bucket = IdBounds.of_buckets([store.bucket_of(name)])
    pending, entries = (store.relation(table).within(bucket) for table in ("pending", "entries"))
    if group is not None:
        if pending.where(is_group(name, spell(group))).is_empty():
            refuse_unknown_group(groups, stream, group)
        return
    is_wanted = f"stream = {quote_text(name)}"
    if all(rows.where(is_wanted).is_empty() for rows in (groups, streams, pending, entries)):
        known = groups.sql(
            "SELECT stream FROM {this} AS this UNION SELECT stream FROM {streams} AS streams",
            streams=streams,
        )
        raise RequestError(
            f"{store.where} has no stream {one_line(name)}; {names_like(known, 'stream', name)}",
            stream=name,
        )


def _may_have_been_known(store: Store) -> bool:
    """Return True if the tables may lack a name that the store has or had.

    An unfinished run has not written all its rows yet, and `maintain` may have deleted the history
    of a deleted stream.
    """
    return bool(load_known_runs(store).unfinished) or deleted_history(store) is not None


def _decisions(store: Store) -> Relation:
    """Return one row per run: run_seq, command, run_id, landing, request."""
    names = ("run_seq", "command", "run_id", "landing", "request")
    return store.relation("journal").where(f"kind = '{Kind.RUN}'").select(*names)


def _bounds(store: Store, stream: bytes, stream_id: StreamId) -> IdBounds:
    ms = to_bigint(stream_id.ms)
    return IdBounds(((store.bucket_of(spell(stream)), ms, ms),))
