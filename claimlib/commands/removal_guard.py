"""Raise GuardError if a source would remove too many rows without an explanation.

A snapshot or an import removes rows that its source no longer has.  Rows are explained if they were
acknowledged, deleted or trimmed (`plans.differences`).  Rows of a stream that another stream of the
same name has replaced are not explained (`semantics.stream_life`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from claimlib.engine.changes import lacking
from claimlib.engine.relation import Record, Relation, union_by_name
from claimlib.errors import GuardError
from claimlib.plans import differences
from claimlib.plans.differences import Scope
from claimlib.plans.keys import sortable_as_id
from claimlib.runs import Begun
from claimlib.runs.journal import ServerIdentity
from claimlib.runs.rollforward import NOT_ABANDONED
from claimlib.semantics.ids import StreamId, from_bigint
from claimlib.semantics.stream_life import MissingEntries, StreamCounters, is_other_stream
from claimlib.terminal import listed, number_of, one_line


@dataclass(frozen=True, slots=True)
class SourceState:
    """Hold the facts about a source that can explain why rows are missing.

    Attributes:
        name: the name of the source.
        scope: the streams and groups that were requested.
        groups, streams: one row per group and per stream that was read, as journal rows.
        closing: the counters of each stream, by its name in the tables, read after its entries.
            Streams whose counters are unknown are missing.
        server: the server process that was read.  Its ids are None if they are unknown, or if the
            source consists of tables.
        would_explain: by table (pending, entries), the input that the caller could add.  With this
            input, the source shows why rows were removed.
    """

    name: str
    scope: Scope
    groups: Relation
    streams: Relation
    closing: Mapping[str, StreamCounters]
    server: ServerIdentity
    would_explain: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Removals:
    """Hold the removals without an explanation that the limit allows.

    Attributes:
        replaced_streams: the streams that have replaced another stream of the same name since the
            last snapshot.
        unexplained: the number of rows of pending and entries together.
    """

    replaced_streams: tuple[str, ...] = ()
    unexplained: int = 0


def check_removals(
    begun: Begun, source: SourceState, due: Mapping[str, Relation], limit: float
) -> Removals:
    """Return the removals that the source does not explain, or raise an error if they are too many.

    If the server is still the same process, a stream that it no longer has was deleted.  This
    happens, for example, if each job has its own stream.  Such a stream counts only for the share
    of all streams together.

    Args:
        due: by table (pending, entries), the sums per group or stream (`Comparison.by_key`).
            Tables from which no rows are removed are missing.
        limit: the share of the rows that may be removed without an explanation.  1 allows any
            removal.

    Raises:
        GuardError: a larger share of one stream, or of all streams together, is not explained.
    """
    if not due:
        return Removals()
    stored = _stored_streams(begun, due, source.streams)
    missing = _missing_by_stream(due)
    replaced = sorted(
        row["stream"]
        for row in stored
        if _is_replaced(row, source, missing.get(row["stream"], MissingEntries()))
    )
    deleted = [row["stream"] for row in stored if _is_deleted(row, source)]
    replaced_names, deleted_names = (
        begun.store.rows("streams", [(name,) for name in names], ["stream"])
        for names in (replaced, deleted)
    )
    unexplained = 0
    for table, by_key in due.items():
        by_stream = _unexplained(source, table, by_key, replaced_names)
        (share,) = differences.largest_share(by_stream, deleted_names, limit).collect()
        is_total_above = share["unexplained"] > limit * share["stored"]
        if limit < 1 and (share["above"] or is_total_above):
            raise GuardError(
                _message(source, table, share, limit, _gone_streams_text(stored, source)),
                guard="max_removed_share",
                table=table,
                stream=share["worst"]["stream"] if share["above"] else None,
            )
        unexplained += share["unexplained"]
    return Removals(tuple(replaced), unexplained)


def _stored_streams(begun: Begun, due: Mapping[str, Relation], read: Relation) -> list[Record]:
    """Return the stored rows of the streams that lose rows, each with the ids of its server.

    The column `is_read` is True if the source still has the stream.

    Args:
        read: one row per stream that the source has.
    """
    touched = [rows.where("removed > 0").select("stream") for rows in due.values()]
    # An abandoned run also writes rows of `streams`, to invalidate proofs.  The counters in these
    # rows are from an earlier run, so the server of the abandoned run does not belong to them.
    servers = begun.relation("runs").where(NOT_ABANDONED).select("run_seq", *_SERVER)
    joined = begun.relation("streams").sql(
        f"SELECT this.stream, {', '.join((*_COUNTERS, *_SERVER))},"
        " read.stream IS NOT NULL AS is_read FROM {this} AS this"
        " LEFT SEMI JOIN {touched} AS touched ON this.stream = touched.stream"
        " LEFT JOIN {servers} AS servers ON this.run_seq = servers.run_seq"
        " LEFT JOIN (SELECT DISTINCT stream FROM {read} AS read) AS read"
        " ON this.stream = read.stream",
        read=read,
        touched=union_by_name(touched, {"stream": "STRING"}),
        servers=servers,
    )
    return joined.collect()


_COUNTERS = ("length", "entries_added", "last_generated_ms", "last_generated_seq")
_SERVER = ("server_run_id", "replication_id")


def _is_replaced(stored: Record, source: SourceState, missing: MissingEntries) -> bool:
    """Return True if another stream has replaced the stored one since it was read."""
    now = source.closing.get(stored["stream"])
    if now is None:
        return False
    is_other: bool | None = None
    if stored["last_generated_ms"] is not None and stored["length"] is not None:
        last = StreamId(*(from_bigint(stored[f"last_generated_{half}"]) for half in ("ms", "seq")))
        before = StreamCounters(stored["length"], last, stored["entries_added"])
        is_other = is_other_stream(before, now, missing)
    return _is_other_server(stored, source.server) if is_other is None else is_other


def _is_other_server(stored: Record, server: ServerIdentity) -> bool:
    """Return True if the server is not the one from which the stored stream was read.

    Return False if the process or the history of either server is unknown.
    """
    read = _server_of_stream(stored)
    ids = (read.run_id, read.replication_id, server.run_id, server.replication_id)
    return None not in ids and server.proof_of(read) is None


def _is_deleted(stored: Record, source: SourceState) -> bool:
    """Return True if the source no longer has a stream, and the process that had it still runs."""
    is_gone = not stored["is_read"] and source.scope.group_glob == "*"
    read = _server_of_stream(stored)
    return is_gone and read.run_id is not None and read == source.server


def _server_of_stream(stored: Record) -> ServerIdentity:
    """Return the identity of the server from which a stored stream was read."""
    return ServerIdentity(*(stored[name] for name in _SERVER))


def _missing_by_stream(due: Mapping[str, Relation]) -> dict[str, MissingEntries]:
    if "entries" not in due:
        return {}
    rows = due["entries"].where("missing > 0").select("stream", "missing", "last_missing")
    return {
        row["stream"]: MissingEntries(row["missing"], sortable_as_id(row["last_missing"]))
        for row in rows.collect()
    }


def _unexplained(source: SourceState, table: str, by_key: Relation, replaced: Relation) -> Relation:
    """Return the number of removed rows that the source does not explain, one row per stream."""
    compared, rows = {
        "pending": (differences.PENDING, source.groups),
        "entries": (differences.ENTRIES, source.streams),
    }[table]
    return compared.unexplained(by_key, lacking("streams", rows, replaced))


def _gone_streams_text(stored: Iterable[Record], source: SourceState) -> str:
    """Return a sentence that names the streams that the source no longer has.

    The text is empty if there are no such streams, or if they are unknown.
    """
    names = sorted(row["stream"] for row in stored if not row["is_read"])
    if not names or source.scope.group_glob != "*":
        return ""
    shown = [one_line(name) for name in names[:_MOST_SHOWN]]
    return f" These streams are gone: {listed(shown, len(names))}."


_MOST_SHOWN = 6


def _message(source: SourceState, table: str, share: Record, limit: float, gone: str) -> str:
    explaining = source.would_explain.get(table)
    return (
        f"guard max_removed_share: {source.name} no longer has {_removed(table, share)}, and does"
        f" not show why: their stream or group is gone, or was recreated.{gone} This is more than"
        f" the limit of {limit:g}, so nothing was changed."
        + (f" Give {explaining}; or, if" if explaining else " If")
        + " the removal is intended, run the command again with --max-removed-share 1"
    )


def _removed(table: str, share: Record) -> str:
    of_all = f"{share['unexplained']:,} of {number_of(share['stored'], 'row')}"
    if not share["above"]:
        return f"{of_all} of {table} in all streams"
    worst = share["worst"]
    more = number_of(share["above"] - 1, "more stream is", "more streams are")
    others = f"; {more} above the limit, too" if share["above"] > 1 else ""
    return (
        f"{worst['unexplained']:,} of {number_of(worst['stored'], 'row')} of {table} of stream"
        f" {worst['stream']} ({share['unexplained']:,} of {share['stored']:,} in all"
        f" streams{others})"
    )
