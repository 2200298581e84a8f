"""Raise GuardError if a source would remove too many rows without an explanation.

A snapshot or an import removes rows that its source no longer has.  Rows are explained if they were
acknowledged, deleted or trimmed (`plans.differences`).  Rows of a stream that another stream of the
same name has replaced are not explained (`semantics.stream_life`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, Row

from claimlib.errors import GuardError
from claimlib.plans import differences
from claimlib.plans.differences import Scope
from claimlib.plans.keys import sortable_as_id
from claimlib.runs import Begun
from claimlib.semantics.ids import StreamId, from_bigint
from claimlib.semantics.stream_life import MissingEntries, StreamCounters, is_other_stream
from claimlib.terminal import number_of


@dataclass(frozen=True, slots=True)
class SourceState:
    """Hold what is known of a source besides its rows.

    Attributes:
        name: the source.
        scope: the streams and groups that were requested.
        groups, streams: one row per group and per stream that was read, as journal rows.
        closing: the counters of each stream, by its name in the tables, read after its entries.  A
            stream without counters is missing.
        is_other_server: True if both the run id and the replication id differ from those of the
            last snapshot.
        is_same_process: True if the run id is known and both ids equal those of the last snapshot.
        would_explain: by table (pending, entries) what the caller could give besides, so that the
            source shows why rows are gone.
    """

    name: str
    scope: Scope
    groups: DataFrame
    streams: DataFrame
    closing: Mapping[str, StreamCounters]
    is_other_server: bool
    is_same_process: bool
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
    begun: Begun, source: SourceState, due: Mapping[str, DataFrame], limit: float
) -> Removals:
    """Return what a source removes without an explanation.

    If the server is still the same process, a stream that it no longer has was deleted, for example
    because each job has its own stream.  It counts only for the share of all streams together.

    Args:
        due: by table (pending, entries) the sums per group or stream (`Comparison.by_key`), for
            tables of which rows are removed.
        limit: the share of the rows that may be removed without an explanation; 1 means any.

    Raises:
        GuardError: a larger share of one stream, or of all streams together, is not explained.
    """
    if not due:
        return Removals()
    replaced = _replaced_streams(begun, source, due)
    names = begun.store.rows("streams", [(name,) for name in replaced], ["stream"])
    unexplained = 0
    for table, by_key in due.items():
        by_stream = _unexplained(source, table, by_key, names)
        (share,) = differences.largest_share(by_stream, _gone(source, by_key), limit).collect()
        is_above_in_all = share["unexplained"] > limit * share["stored"]
        if limit < 1 and (share["above"] or is_above_in_all):
            raise GuardError(
                _too_much(source, table, share, limit),
                guard="max_removed_share",
                table=table,
                stream=share["worst"]["stream"] if share["above"] else None,
            )
        unexplained += share["unexplained"]
    return Removals(tuple(replaced), unexplained)


def _replaced_streams(begun: Begun, source: SourceState, due: Mapping[str, DataFrame]) -> list[str]:
    """Return the streams that lose rows and have replaced another stream since the last
    snapshot."""
    touched = reduce(
        DataFrame.union, (rows.where("removed > 0").select("stream") for rows in due.values())
    )
    stored = begun.read("streams").join(touched.distinct(), on="stream", how="left_semi")
    missing = _missing_by_stream(due)
    return sorted(
        row["stream"]
        for row in stored.select("stream", *_COUNTERS).collect()
        if _is_replaced(row, source, missing.get(row["stream"], MissingEntries()))
    )


_COUNTERS = ("length", "entries_added", "last_generated_ms", "last_generated_seq")


def _is_replaced(stored: Row, source: SourceState, missing: MissingEntries) -> bool:
    now = source.closing.get(stored["stream"])
    if now is None:
        return False
    if stored["last_generated_ms"] is None or stored["length"] is None:
        return source.is_other_server
    last = StreamId(*(from_bigint(stored[f"last_generated_{half}"]) for half in ("ms", "seq")))
    before = StreamCounters(stored["length"], last, stored["entries_added"])
    is_other = is_other_stream(before, now, missing)
    return source.is_other_server if is_other is None else is_other


def _missing_by_stream(due: Mapping[str, DataFrame]) -> dict[str, MissingEntries]:
    if "entries" not in due:
        return {}
    rows = due["entries"].where("missing > 0").select("stream", "missing", "last_missing")
    return {
        row["stream"]: MissingEntries(row["missing"], sortable_as_id(row["last_missing"]))
        for row in rows.collect()
    }


def _gone(source: SourceState, by_key: DataFrame) -> DataFrame:
    """Return the deleted streams if the server is still the same process and all groups were
    requested; else none."""
    streams = by_key.select("stream").distinct()
    if not source.is_same_process or source.scope.group_glob != "*":
        return streams.where("false")
    return streams.join(source.streams.select("stream"), on="stream", how="left_anti")


def _unexplained(
    source: SourceState, table: str, by_key: DataFrame, replaced: DataFrame
) -> DataFrame:
    """Return one row per stream: how many of its removed rows the source does not explain."""
    compared, rows = {
        "pending": (differences.PENDING, source.groups),
        "entries": (differences.ENTRIES, source.streams),
    }[table]
    return compared.unexplained(by_key, rows.join(replaced, on="stream", how="left_anti"))


def _too_much(source: SourceState, table: str, share: Row, limit: float) -> str:
    explaining = source.would_explain.get(table)
    return (
        f"guard max_removed_share: {source.name} no longer has {_removed(table, share)}, and does"
        " not show why: their stream or group is gone, or was recreated. This is more than the"
        f" limit of {limit:g}, so nothing was changed."
        + (f" Give {explaining}; or, if" if explaining else " If")
        + " the removal is intended, run the command again with --max-removed-share 1"
    )


def _removed(table: str, share: Row) -> str:
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
