"""Report on the runs of a period, on groups that get worse, and on consumers that lose entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from claimlib.commands.preconditions import check_ms
from claimlib.commands.series import series_of
from claimlib.engine.relation import DESCENDING, Record, Relation
from claimlib.plans import period_report_plan as plan
from claimlib.plans import snapshots
from claimlib.plans.journal_rows import applied, of_kinds
from claimlib.plans.keys import GROUP
from claimlib.runs.maintenance import deleted_history, first_complete_run
from claimlib.runs.rollforward import FinishedRun, wall_ms
from claimlib.schema import Kind
from claimlib.store.tables import Store

MOST_RUNS = 50
MOST_ROWS = 20
"""Limit the numbers of runs, and of groups or consumers, that a report names."""


@dataclass(frozen=True, slots=True)
class PeriodReport:
    """Hold the report on the finished runs of a period.

    Attributes:
        where: the location of the store.
        since_ms, until_ms: the period, ms since the epoch.
        totals: the number of `runs`, and the sums of their counts: claimed, deleted, acked, lost,
            refused, and `claimed_again` (see `runs`).
        runs: one row per run, the newest first: run_seq, key, ended_ms, the counts, and `pending`
            and `claimed_again`: see `plans.period_report_plan.by_run`.
        worse_groups: one row per group, the largest increase first: see
            `plans.period_report_plan.worse_groups`.
        losing_consumers: one row per consumer, the most runs first: see
            `plans.period_report_plan.losing_consumers`.
        acknowledged: one row per group whose snapshots show that entries were acknowledged in the
            period, the longest median time first: see `plans.snapshots.acknowledged`.
        not_shown: the number of further `runs`, `worse_groups`, `losing_consumers` and groups of
            `acknowledged`.
        complete_from_run: the first run whose journal rows all exist.  Earlier runs have only their
            counts.
    """

    where: str
    since_ms: int
    until_ms: int
    totals: Mapping[str, int]
    runs: Sequence[Record]
    worse_groups: Sequence[Record]
    losing_consumers: Sequence[Record]
    acknowledged: Sequence[Record]
    not_shown: Mapping[str, int]
    complete_from_run: int


def period_report(store: Store, since_ms: int, until_ms: int | None = None) -> PeriodReport:
    """Return the report on the runs that ended in a period.

    Args:
        since_ms: the start of the period, ms since the epoch.
        until_ms: the end of the period.  None means now.

    Raises:
        RequestError: a time is before 1970.

    Examples:
        >>> period_report(open_store("./store"), 0).totals["runs"]
        0
    """
    end_ms = wall_ms() if until_ms is None else until_ms
    check_ms(since_ms=since_ms, until_ms=end_ms)
    ended = store.relation("runs").where(f"ended_ms BETWEEN {since_ms:d}L AND {end_ms:d}L")
    (totals,) = plan.totals(ended).collect()
    first, last = totals.pop("first_run") or 0, totals.pop("last_run") or 0
    in_range = store.relation("journal").of_runs(first, last)
    # A run between them may have ended later, or not at all.
    journal = in_range.sql(
        "SELECT this.* FROM {this} AS this LEFT SEMI JOIN {ended} AS ended"
        " ON this.run_seq = ended.run_seq",
        ended=ended.select("run_seq"),
    )
    claims = applied(
        journal.where(of_kinds(Kind.CLAIMED)), journal.where(of_kinds(Kind.LOST))
    ).reused()
    swept = journal.where(of_kinds(Kind.SWEPT)).reused()
    by_run = plan.by_run(claims, swept).kept()
    (claimed_again,) = by_run.select("coalesce(sum(claimed_again), 0L) AS claimed_again").collect()
    runs = [
        FinishedRun.of(row)
        for row in ended.order_by(f"run_seq{DESCENDING}").limit(MOST_RUNS).collect()
    ]
    worse = plan.worse_groups(swept).kept()
    losing = plan.losing_consumers(claims).kept()
    increase = f"pending_last - pending_first{DESCENDING}"
    worst = _first(worse, increase, *GROUP)
    losers = _first(losing, f"runs{DESCENDING}", f"entries{DESCENDING}", *GROUP, "consumer")
    acknowledged = _acknowledged(store, since_ms, end_ms).kept()
    slowest = _first(acknowledged, f"median_ms{DESCENDING}", *GROUP)
    deleted = deleted_history(store)
    return PeriodReport(
        where=store.where,
        since_ms=since_ms,
        until_ms=end_ms,
        totals={**totals, **claimed_again},
        runs=_with_counts(runs, by_run),
        worse_groups=worst,
        losing_consumers=losers,
        acknowledged=slowest,
        not_shown={
            "runs": totals["runs"] - len(runs),
            "worse_groups": worse.count() - len(worst),
            "losing_consumers": losing.count() - len(losers),
            "acknowledged": acknowledged.count() - len(slowest),
        },
        complete_from_run=first_complete_run(deleted),
    )


def _acknowledged(store: Store, since_ms: int, until_ms: int) -> Relation:
    """Return `snapshots.acknowledged` of the entries that readings of the period no longer have."""
    series = series_of(store)
    read = series.read.where(f"next_at_ms BETWEEN {since_ms:d}L AND {until_ms:d}L")
    return snapshots.acknowledged(series.pel, read, series.deleted, series.moved)


def _first(rows: Relation, *order: str) -> list[Record]:
    """Return at most `MOST_ROWS` rows, the first in an order."""
    return rows.order_by(*order).limit(MOST_ROWS).collect()


def _with_counts(runs: Sequence[FinishedRun], by_run: Relation) -> list[Record]:
    numbers = ", ".join(str(run.run_seq) for run in runs) or "0"
    known = {row["run_seq"]: row for row in by_run.where(f"run_seq IN ({numbers})").collect()}
    nothing = {"pending": None, "claimed_again": 0}
    return [
        {
            "run_seq": run.run_seq,
            "key": run.key,
            "ended_ms": run.ended_ms,
            **{name: run.counts.get(name, 0) for name in plan.COUNTS},
            **{name: known.get(run.run_seq, nothing)[name] for name in nothing},
        }
        for run in runs
    ]
