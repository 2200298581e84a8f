"""Compute owners over time, and values of min-idle, from the series of snapshots in a store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from claimlib.commands.preconditions import check_ms
from claimlib.commands.xpending import DEFAULT_STALLED_MS
from claimlib.engine.relation import Relation
from claimlib.errors import RequestError
from claimlib.plans import snapshots
from claimlib.store.tables import Store


@dataclass(frozen=True, slots=True)
class Series:
    """Hold the series of snapshots of a store: the inputs of `plans.snapshots`.

    Attributes:
        pel: the table pel_snapshots.
        read: `plans.snapshots.readings`.
        deleted: `plans.snapshots.deletions`.
        moved: `plans.snapshots.moves`.
    """

    pel: Relation
    read: Relation
    deleted: Relation
    moved: Relation


def series_of(store: Store) -> Series:
    """Return the series of snapshots of a store."""
    journal = store.relation("journal")
    return Series(
        store.relation("pel_snapshots"),
        snapshots.readings(journal, store.relation("runs")),
        snapshots.deletions(journal, store.relation("tombstones")),
        snapshots.moves(journal),
    )


def pending_over_time(store: Store, stalled_ms: int = DEFAULT_STALLED_MS) -> Relation:
    """Return the number of entries that each consumer owned at each finished snapshot or import.

    There is one row per snapshot, group and consumer.  Columns: landing_ms (the time of the
    snapshot, ms since the epoch), stream, consumer_group, consumer, and the numbers of entries
    `pending` and `stalled`.  A group without pending entries has one row, whose consumer is None.

    Args:
        stalled_ms: how long an entry must have been idle to count as stalled.
    """
    series = series_of(store)
    return snapshots.over_time(series.pel, series.read, stalled_ms)


def claims_by_min_idle(store: Store, min_idles_ms: Sequence[int]) -> Relation:
    """Return the entries that a sweep after each snapshot would have claimed, and their outcomes.

    There is one row per minimum idle time and entry, at the first snapshot at which the entry was
    idle for longer.  Columns: min_idle_ms, stream, consumer_group, id_ms, id_seq, from_consumer,
    claimed_ms, idle_ms and `outcome`.  The outcome is `acknowledged`, `deleted`, `taken_over`,
    `still_pending` or `unknown`, see `plans.snapshots.claims`.

    Args:
        min_idles_ms: the minimum idle times to compare.

    Raises:
        RequestError: no minimum idle time is given, or one is negative or too large.
    """
    check_min_idles(min_idles_ms)
    series = series_of(store)
    return snapshots.claims(series.pel, series.read, series.deleted, series.moved, min_idles_ms)


def compare_min_idles(claims: Relation, min_idles_ms: Sequence[int]) -> Relation:
    """Return one row per minimum idle time, the shortest first.

    Columns: min_idle_ms, `claimed` (the number of claims), the number of claims with each outcome,
    and wait_ms.  wait_ms is the median idle time of the claims whose outcome is neither
    acknowledged nor deleted, or None if there are none.

    Args:
        claims: the rows of `claims_by_min_idle`.
        min_idles_ms: the minimum idle times.  A time without claims gets a row, too.

    Raises:
        RequestError: no minimum idle time is given, or one is negative or too large.
    """
    check_min_idles(min_idles_ms)
    return snapshots.choices(claims, min_idles_ms)


def check_min_idles(min_idles_ms: Sequence[int]) -> None:
    """Refuse minimum idle times that cannot be compared.

    Raises:
        RequestError: no minimum idle time is given, or one is negative or too large.
    """
    check_ms(**{f"min_idle_ms {value}": value for value in min_idles_ms})
    if not min_idles_ms:
        raise RequestError("name at least one minimum idle time", option="min_idle")
