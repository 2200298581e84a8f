"""Advise on the minimum idle time of claims, from the series of snapshots in a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from claimlib.commands.preconditions import check_ms
from claimlib.commands.series import check_min_idles, series_of
from claimlib.commands.xpending import TABLES, read_store, refuse_unknown
from claimlib.engine.relation import DESCENDING, Record
from claimlib.errors import RequestError
from claimlib.plans import snapshots as plan
from claimlib.plans.differences import EVERYTHING, Scope
from claimlib.plans.keys import GROUP, GROUP_SQL
from claimlib.store.tables import Store

_MINUTE_MS = 60_000
DEFAULT_MIN_IDLES_MS = tuple(n * _MINUTE_MS for n in (1, 5, 10, 15, 30, 45, 60, 90, 120, 180, 240))
DEFAULT_MAX_DONE_TWICE = 0.1
DEFAULT_GROUPS = 20
COUNTS = ("claimed", *plan.OUTCOMES)


@dataclass(frozen=True, slots=True)
class GroupAdvice:
    """Hold the claims that each minimum idle time would have made in one group, or in all groups.

    Attributes:
        stream, consumer_group: the spelled names.  None for all groups together.
        choices: one row per minimum idle time, the smallest first.  Columns: min_idle_ms, claimed,
            the number of entries with each outcome, and wait_ms (see
            `plans.snapshots.choices_by_group`).
        recommended: the row of the smallest value that claims entries, and whose owners
            acknowledged few enough of them.  None if there is no such value.
    """

    stream: str | None
    consumer_group: str | None
    choices: Sequence[Record]
    recommended: Record | None


@dataclass(frozen=True, slots=True)
class Advice:
    """Hold the advice on the minimum idle times of the groups of a store.

    Attributes:
        where: the location of the store.
        snapshots: the number of snapshots and imports that the advice is based on.
        first_ms, last_ms: the times of the first and of the last of them, ms since the epoch.
        max_done_twice: the largest allowed share, from 0 to 1, of claimed entries that their owners
            acknowledged afterwards.
        all_groups: the advice for one value for all groups.
        groups: the advice per group.  The group in which the smallest value claims most is first.
        not_shown: the number of further groups with claims.
    """

    where: str
    snapshots: int
    first_ms: int
    last_ms: int
    max_done_twice: float
    all_groups: GroupAdvice
    groups: Sequence[GroupAdvice]
    not_shown: int


def advise(
    store: Store,
    min_idles_ms: Sequence[int] = DEFAULT_MIN_IDLES_MS,
    *,
    scope: Scope = EVERYTHING,
    since_ms: int = 0,
    max_done_twice: float = DEFAULT_MAX_DONE_TWICE,
    most_groups: int = DEFAULT_GROUPS,
) -> Advice:
    """Recommend a minimum idle time, from the claims that each value would have made.

    Nothing is written.  More frequent snapshots make idle times and outcomes more exact.

    Args:
        min_idles_ms: the values to compare.
        scope: the globs of the streams and groups.
        since_ms: use only readings of groups since this time, ms since the epoch.
        max_done_twice: see `Advice`.
        most_groups: the largest number of groups to return.

    Raises:
        RequestError: there is no value, or a value is negative.  Or the share is not from 0 to 1.
            Or no group matches the scope, or the store has no snapshot of such a group.
    """
    values = sorted(set(min_idles_ms))
    check_min_idles(values)
    check_ms(since_ms=since_ms)
    if not 0 <= max_done_twice <= 1:
        raise RequestError(
            f"--max-done-twice {max_done_twice:g}: give a share from 0 to 1, as 0.1",
            option="max_done_twice",
        )
    series = series_of(store)
    read = series.read
    if since_ms or scope != EVERYTHING:
        read = read.where(f"at_ms >= {since_ms:d}L AND {scope.has_group()}")
    read = read.kept()
    (extent,) = read.sql(
        "SELECT count(DISTINCT landing) AS snapshots, min(at_ms) AS first_ms,"
        " max(at_ms) AS last_ms FROM {this} AS this"
    ).collect()
    if not extent["snapshots"]:
        refuse_unknown(read_store(store, tables=TABLES), scope)
        raise RequestError(
            f"{store.where} has no snapshot or import of these groups with a known time"
            f"{' since then' if since_ms else ''}: run claimlib snapshot regularly, then ask again"
        )
    claiming = plan.claiming_readings(series.pel, read, series.deleted, series.moved, values)
    counted = plan.choices_by_group(
        claiming.select("group_key", "idle_ms", "exceeded", "exceeded_before", "outcome").kept(),
        read,
        values,
    ).kept()
    # The smallest value claims all entries that larger values claim.  So each group with claims has
    # a row for it.
    groups = counted.where(f"min_idle_ms = {values[0]:d}L AND stream IS NOT NULL")
    with_most_claims = groups.order_by(f"claimed{DESCENDING}", *GROUP).limit(most_groups).fetched()
    rows = counted.sql(
        "SELECT this.* FROM {this} AS this"
        f" LEFT SEMI JOIN {{listed}} AS listed USING ({GROUP_SQL})",
        listed=with_most_claims,
    ).collect()
    keys = [tuple(row[name] for name in GROUP) for row in with_most_claims.collect()]
    by_key: dict[tuple[str | None, ...], dict[int, Record]] = {key: {} for key in keys}
    for row in rows:
        by_key[tuple(row[name] for name in GROUP)][row["min_idle_ms"]] = row
    total = {row["min_idle_ms"]: row for row in counted.where("stream IS NULL").collect()}
    # One snapshot does not show what became of an entry.
    limit = max_done_twice if extent["snapshots"] > 1 else None
    return Advice(
        where=store.where,
        **extent,
        max_done_twice=max_done_twice,
        all_groups=_advice((None, None), total, values, limit),
        groups=[_advice(key, known, values, limit) for key, known in by_key.items()],
        not_shown=groups.count() - len(keys),
    )


def _advice(
    key: tuple[str | None, ...],
    known: Mapping[int, Record],
    min_idles_ms: Sequence[int],
    max_done_twice: float | None,
) -> GroupAdvice:
    """Return the advice for a group.

    Args:
        max_done_twice: see `Advice`.  None means that no value can be recommended.
        known: the counts by minimum idle time.  A value that claims nothing is missing.
    """
    nothing = {**dict.fromkeys(COUNTS, 0), "wait_ms": None}
    choices = [
        {"min_idle_ms": value, **{name: known.get(value, nothing)[name] for name in nothing}}
        for value in min_idles_ms
    ]
    fitting = (
        row
        for row in choices
        if max_done_twice is not None
        and row["claimed"]
        and row["acknowledged"] / row["claimed"] <= max_done_twice
    )
    stream, consumer_group = key
    return GroupAdvice(stream, consumer_group, choices, next(fitting, None))
