"""Claims, purges and acknowledgements: from journal rows into `pending`, and read back.

Each is a compare-and-set: a pending row changes only while owner, delivery time and delivery count
are what the decision saw, and no later run (nor this one) has written it.  What is forced comes by
an append of its own, unless the id has become pending since.  So a repeat changes nothing, and what
somebody else acknowledged or changed after the decision stays as they left it: that row is lost to
this run, reported, and not touched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from claimlib.errors import VerificationError
from claimlib.plans.keys import IdBounds, KeyMode
from claimlib.runs.journal import LOST_APP_ID, TOUCHING, Kind, RunRow, Tally, rows_of
from claimlib.runs.retry import retried
from claimlib.runs.writes import append_new
from claimlib.store import Store, Token

_KEY = ("stream", "consumer_group", "id_ms", "id_seq")
_STATE = ("consumer", "delivery_time_ms", "delivery_count")
_FROM = tuple(f"from_{name}" for name in _STATE)
# What ends as a row of `pending` with this run's number, and what ends as none.
_OWNED = (Kind.CLAIMED, Kind.FORCED)
_REMOVED = (Kind.DELETED, Kind.ACKED)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of what a run decided about entries.  decided = applied + lost + gone.

    Attributes:
        number_lost: how many somebody else forestalled.
        gone: of how many the row is away, and nobody can tell any more who took it.
        lost: the `lost` journal rows to write (null: nothing was lost).
    """

    number_lost: int = 0
    gone: int = 0
    lost: DataFrame | None = None

    def counts(self) -> dict[str, int]:
        """The counts of the run's report."""
        return {"lost": self.number_lost, "gone": self.gone}


def apply(store: Store, row: RunRow, decided: Tally) -> None:
    """Change `pending` as the journal says: one append of what is forced, and one MERGE of rows
    that are still as they were found."""
    if decided.of(Kind.FORCED):
        forced = rows_of(store, row.run_seq, Kind.FORCED).select(*_KEY, *_STATE, "bucket")
        append_new(store, "pending", forced, row, near=decided.bounds.condition())
    if not decided.of(*TOUCHING):
        return
    names = " AND t.stream = s.stream AND t.consumer_group = s.consumer_group"
    exact = names if row.key_mode is KeyMode.NAMES else ""
    # Literal bounds let Delta leave the files alone in which nothing can match.  The literal
    # run_seq is also how `verify` finds this commit in the table's history.
    statement = f"""
        MERGE INTO {store.identifier("pending")} t USING {{decided}} s
        ON {_bounds_sql(decided.bounds)} AND t.run_seq < {row.run_seq:d}
          AND t.stream_key = s.stream_key AND t.group_key = s.group_key
          AND t.id_ms = s.id_ms AND t.id_seq = s.id_seq{exact}
        WHEN MATCHED AND s.kind = 'claimed' AND {_AS_FOUND_SQL} THEN UPDATE SET
          consumer = s.consumer, delivery_time_ms = s.delivery_time_ms,
          delivery_count = s.delivery_count, run_seq = {row.run_seq:d}
        WHEN MATCHED AND s.kind <> 'claimed' AND {_AS_FOUND_SQL} THEN DELETE"""
    rows = rows_of(store, row.run_seq, *TOUCHING)
    retried(lambda: store.execute("pending", statement, decided=rows))


_AS_FOUND_SQL = (
    "t.consumer <=> s.from_consumer AND t.delivery_time_ms = s.from_delivery_time_ms"
    " AND t.delivery_count = s.from_delivery_count"
)


def _bounds_sql(bounds: IdBounds) -> str:
    parts = (
        f"(t.bucket = {bucket:d} AND t.id_ms BETWEEN {low:d} AND {high:d})"
        for bucket, low, high in bounds.by_bucket
    )
    return f"({' OR '.join(parts)})"


def verify(store: Store, row: RunRow, decided: Tally) -> Outcome:
    """Read `pending` back: what of the decision stands there, and what was lost to others.

    What is read is `pending` right after the run's own commit (and, for purges, right before it),
    so what others do later is not taken for a loss, whenever the run is verified.

    Raises:
        VerificationError: a row is as the decision found it, so it should have been changed.
    """
    if not decided.of(*_OWNED, *_REMOVED):
        return Outcome()
    current = store.version("pending")
    commits, all_known = _own_commits(store, row, current)
    merges = [commit for commit in commits if commit["operation"] == "MERGE"]
    appends = [commit for commit in commits if commit["operation"] != "MERGE"]
    # A MERGE that finds everything taken leaves no commit: right after the append, what was taken
    # since stands there still.
    last = merges or ([] if decided.of(*TOUCHING) else appends)
    pending = _readable(store, last[0]["version"], decided) if last else None
    if pending is None:
        pending = _touched_part(store, current, decided)
    claims, claims_gone = _verify_claims(store, row, decided, pending, appends)
    purges, purges_gone = _verify_purges(store, row, decided, pending, merges, all_known=all_known)
    lost = [rows for rows in (claims, purges) if rows is not None]
    outcome = Outcome(
        number_lost=sum(rows.count() for rows in lost),
        gone=claims_gone + purges_gone,
        lost=reduce(DataFrame.union, lost) if lost else None,
    )
    if outcome.lost is not None and outcome.number_lost:
        _journal_lost(store, row, outcome.lost)
    return outcome


def _journal_lost(store: Store, row: RunRow, lost: DataFrame) -> None:
    rows = lost.select(*_KEY, *_FROM, "at_ms").withColumns(
        {"kind": F.lit(str(Kind.LOST)), "run_seq": F.lit(row.run_seq)}
    )
    token = Token(LOST_APP_ID, row.run_seq)
    retried(lambda: store.append("journal", rows, token=token, note=f"{row.note}: lost"))


def _verify_claims(
    store: Store, row: RunRow, decided: Tally, pending: DataFrame, appends: list[Row]
) -> tuple[DataFrame | None, int]:
    """The claims that are not there (null: all are), and of how many nobody can tell: what was
    forced and is away may have been there.

    What was forced is looked for right after its own append: somebody may have acknowledged it
    before the MERGE.
    """
    wanted = decided.of(*_OWNED)
    ours = F.col("run_seq") == row.run_seq
    if wanted == 0 or pending.where(ours).count() == wanted:
        return None, 0
    claimed = _missed(store, row, Kind.CLAIMED, pending)
    _refuse_unapplied(claimed, row)
    appended = _readable(store, appends[0]["version"], decided) if appends else None
    forced = _missed(store, row, Kind.FORCED, pending if appended is None else appended)
    gone = 0
    if appended is None:
        is_away = F.col("now_run_seq").isNull()
        gone = forced.where(is_away).count()
        forced = forced.where(~is_away)
    columns = store.read("journal").columns
    return claimed.union(forced).select(columns), gone


def _missed(store: Store, row: RunRow, kind: Kind, pending: DataFrame) -> DataFrame:
    """The journal rows of a kind that `pending` does not show as this run's, beside what it
    shows."""
    found = _beside(rows_of(store, row.run_seq, kind), pending)
    return found.where(F.col("now_run_seq").isNull() | (F.col("now_run_seq") != row.run_seq))


def _verify_purges(
    store: Store,
    row: RunRow,
    decided: Tally,
    pending: DataFrame,
    commits: list[Row],
    *,
    all_known: bool,
) -> tuple[DataFrame | None, int]:
    """The purges that somebody else did or prevented, and how many nobody can tell about.

    That a row is away does not say who took it.  The run's own commit does: its row count is exact,
    and where that falls short, the table right before it shows which rows were there to be taken.
    """
    wanted = decided.of(*_REMOVED)
    deleted = sum(int(commit["operationMetrics"]["numTargetRowsDeleted"]) for commit in commits)
    if wanted in (0, deleted):
        return None, 0
    purges = rows_of(store, row.run_seq, *_REMOVED)
    found = _beside(purges, pending)
    still_there = found.where(F.col("now_run_seq").isNotNull())
    _refuse_unapplied(still_there, row)
    kept = still_there.select(purges.columns)
    away = found.where(F.col("now_run_seq").isNull()).select(purges.columns)
    if not commits and all_known:
        return kept.union(away), 0  # this run never deleted a row: all that are away were taken
    before = _readable(store, commits[-1]["version"] - 1, decided) if commits else None
    if before is None:
        return kept, away.count()
    not_ours = _beside(away, before).where(~F.coalesce(_as_found(), F.lit(False)))
    return kept.union(not_ours.select(purges.columns)), 0


def _own_commits(store: Store, row: RunRow, current: int) -> tuple[list[Row], bool]:
    """The commits of this run's MERGE and append on `pending`, newest first (as a rule one of each,
    or none where nothing matched), and whether the history still has all commits among which they
    would be."""
    literal = re.compile(rf"run_seq#?\d*L? < {row.run_seq}\b")
    since = current - row.pins.versions["pending"]
    commits = store.history("pending", limit=since) if since > 0 else []
    own = [
        commit
        for commit in commits
        if commit["userMetadata"] == row.note
        or (
            commit["operation"] == "MERGE"
            and literal.search(commit["operationParameters"].get("predicate", ""))
        )
    ]
    return own, len(commits) == max(since, 0)


def _touched_part(store: Store, version: int, decided: Tally) -> DataFrame:
    """`pending` at a version, where the decided entries lie: a page does not open other files."""
    return store.read_at("pending", version).where(decided.bounds.condition())


def _readable(store: Store, version: int, decided: Tally) -> DataFrame | None:
    """`_touched_part` at a version; null where its files are gone."""
    try:
        pending = _touched_part(store, version, decided)
        pending.limit(1).collect()
    except PySparkException:
        return None
    return pending


def _beside(rows: DataFrame, pending: DataFrame) -> DataFrame:
    """Journal rows with the state of the pending row of the same key (null: there is none)."""
    state = pending.select(
        *_KEY,
        F.col("consumer").alias("now_consumer"),
        F.col("delivery_time_ms").alias("now_delivery_time_ms"),
        F.col("delivery_count").alias("now_delivery_count"),
        F.col("run_seq").alias("now_run_seq"),
    )
    return rows.join(state, on=list(_KEY), how="left")


def _as_found() -> Column:
    return (
        F.col("now_consumer").eqNullSafe(F.col("from_consumer"))
        & (F.col("now_delivery_time_ms") == F.col("from_delivery_time_ms"))
        & (F.col("now_delivery_count") == F.col("from_delivery_count"))
    )


def _refuse_unapplied(missed: DataFrame, row: RunRow) -> None:
    older = F.col("now_run_seq") < row.run_seq
    unapplied = missed.where(older & _as_found()).first()
    if unapplied is not None:
        raise VerificationError(
            f"run {row.run_seq} ({row.key}) decided about {unapplied['stream']}/"
            f"{unapplied['consumer_group']} {unapplied['id_ms']}-{unapplied['id_seq']}, and pending"
            " still shows the row as it was: the run is not finished; start it again, and if this"
            " comes back, report it",
            run=row.key,
        )
