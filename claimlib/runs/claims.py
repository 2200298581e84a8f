"""What a run changes in `pending`: from journal rows into the table, and read back.

Claims, purges, acknowledgements, and what a mirrored source replaced or removed: each is a
compare-and-set.  A pending row changes only while owner, delivery time and delivery count are what
the decision saw, and no later run (nor this one) has written it.  What is forced comes by an append
of its own, unless the id has become pending since.  So a repeat changes nothing, and what somebody
else acknowledged or changed after the decision stays as they left it: that row is lost to this run,
reported, and not touched.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from claimlib.errors import VerificationError, VersionExpiredError
from claimlib.plans.keys import GROUP, id_text
from claimlib.runs.journal import (
    DELETING,
    LOST_APP_ID,
    TOUCHING,
    UPDATING,
    Decided,
    RunRow,
    run_in_note,
)
from claimlib.runs.retry import retried
from claimlib.runs.writes import append_new, replace_once, rewritten, to_rewrite
from claimlib.schema import TABLES, Kind
from claimlib.store.local import Token
from claimlib.store.tables import Store, arranged, in_buckets

_KEY = ("stream", "consumer_group", "id_ms", "id_seq")
STATE = ("consumer", "delivery_time_ms", "delivery_count")
_FROM = tuple(f"from_{name}" for name in STATE)
# What ends as a row of `pending` with this run's number.
_OWNED = (*UPDATING, Kind.FORCED)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of what a run decided about entries.  decided = applied + lost + gone.

    Attributes:
        number_lost: how many rows another writer changed first.
        gone: of how many the row is away, and nobody can tell any more who took it.
        lost: the `lost` journal rows to write (null: nothing was lost).
        version: that of `pending` right after the run, where it has just been looked up; null: it
            has not.
    """

    number_lost: int = 0
    gone: int = 0
    lost: DataFrame | None = None
    version: int | None = None

    def counts(self) -> dict[str, int]:
        """The counts of the run's report."""
        return {"lost": self.number_lost, "gone": self.gone}


def apply(
    store: Store,
    row: RunRow,
    decided: Decided,
    new: DataFrame | None = None,
    near: Column | None = None,
) -> int | None:
    """Change `pending` as the journal says: one append of what is new, and one MERGE of rows that
    are still as they were found, or the buckets rewritten; of a small `pending` both by one commit.
    How many rows a MERGE has changed or deleted; null: it was none.

    Args:
        new: rows that a source has, of which those are appended whose ids are not pending; null:
            what is forced, if anything is.
        near: where they lie, as literals.
    """
    are_few = store.is_held(decided.journal if new is None else new)
    if new is None and decided.of(Kind.FORCED):
        new = decided.rows(Kind.FORCED).select(*_KEY, *STATE, "bucket")
        near = decided.pending.condition()
    has_changes = bool(decided.of(*TOUCHING))
    if has_changes and are_few and (new is not None or row.staged is not None):

        def at_once() -> bool:
            return rewritten(store, "pending", row, lambda now: _after(now, row, decided), new)

        if retried(at_once):
            return None
    if new is not None:
        since_pin = row.staged is not None
        append_new(store, "pending", new, row, near=near, since_pin=since_pin, are_few=are_few)
    return retried(lambda: _changed(store, row, decided)) if has_changes else 0


def _changed(store: Store, row: RunRow, decided: Decided) -> int | None:
    """One try of it: somebody may have added a column to the table since the last one."""
    if _is_rewritten(store, row, decided):
        _rewrite(store, row, decided)
        return None
    return _merge(store, row, decided)


# From so many rows on, and where one in so many of the buckets' rows changes, writing the buckets
# again is quicker than a MERGE, which finds the rows, copies them and marks the old ones: of 10
# million rows half took 24 to 32 s, not 53 to 65 s.  So it is where all of `pending` is small: one
# join and one commit are four queries, a MERGE is fifteen.
_MANY_ROWS = 100_000
_ROWS_PER_CHANGE = 4


def _is_rewritten(store: Store, row: RunRow, decided: Decided) -> bool:
    """Whether the buckets are rewritten: they are small, or much of them changes.

    Not where rows have been appended under the run's token: what bears it a second time is skipped.
    Nor of a source's run, which may or may not have appended some.
    """
    changed = decided.of(*TOUCHING)
    if decided.of(Kind.FORCED) or row.staged is not None:
        return False
    is_small = store.is_small("pending")
    if not (is_small or changed >= _MANY_ROWS) or store.columns_of_others("pending"):
        return False
    return (
        is_small
        or store.read("pending").where(in_buckets(_buckets(decided))).count()
        <= _ROWS_PER_CHANGE * changed
    )


def _buckets(decided: Decided) -> list[int]:
    """The buckets of which something changes."""
    return sorted({bucket for bucket, _, _ in decided.pending.by_bucket})


def _rewrite(store: Store, row: RunRow, decided: Decided) -> None:
    """What the MERGE does, by one join and one commit, under the run's token: a repeat is skipped.

    `pending` is read as it is when Delta writes, or at the version after which alone it is written:
    who changes these buckets in between has the commit refused.
    """
    buckets = _buckets(decided)
    pending, version = to_rewrite(store, "pending")
    kept = _after(pending.where(in_buckets(buckets)), row, decided)
    rows = arranged(TABLES["pending"], kept, store.buckets) if version is None else kept
    replace_once(store, "pending", rows, row, after=version, buckets=buckets)


def _after(pending: DataFrame, row: RunRow, decided: Decided) -> DataFrame:
    """Rows of `pending` as they are once those are changed that are as they were found."""
    key = ("stream_key", "group_key", "id_ms", "id_seq")
    changes = decided.rows(*TOUCHING).select(
        *(F.col(name).alias(f"changed_{name}") for name in key),
        *(*_FROM, "kind"),
        *(F.col(name).alias(f"new_{name}") for name in STATE),
    )
    same = [F.col(name) == F.col(f"changed_{name}") for name in key]
    is_older = F.col("run_seq") < row.run_seq
    is_unchanged = is_older & F.expr(_IS_UNCHANGED.format(now="", before=""))
    if row.staged is not None:
        # A source is compared with a store that may hold a key twice, each time otherwise: then
        # there are two journal rows of the key.
        same.append(is_unchanged)
    # By sort and merge: Spark takes millions of ids for a few megabytes, and would broadcast them.
    both = pending.join(changes.hint("merge"), on=reduce(and_, same), how="left")
    is_ours = F.coalesce(F.col("kind").isNotNull() & is_unchanged, F.lit(False))
    is_updated = is_ours & F.col("kind").isin([str(kind) for kind in UPDATING])
    updated = {
        name: F.when(is_updated, F.col(f"new_{name}")).otherwise(F.col(name)) for name in STATE
    }
    updated["run_seq"] = F.when(is_updated, F.lit(row.run_seq)).otherwise(F.col("run_seq"))
    return both.where(~is_ours | is_updated).withColumns(updated).select(pending.columns)


def _merge(store: Store, row: RunRow, decided: Decided) -> int:
    # A source is compared with a store that may hold a key twice, each time otherwise: then there
    # are two journal rows of the key, and Delta refuses a row that two match by the join.  Runs
    # that claim refuse such groups; for them the join is kept short.
    unchanged = f" AND {_IS_UNCHANGED_SQL}" if row.staged is not None else ""
    # Literal bounds let Delta leave the files alone in which nothing can match.  The literal
    # run_seq is also how `verify` finds this commit in the table's history.
    statement = f"""
        MERGE INTO {{table}} t USING {{decided}} s
        ON {decided.pending.sql("t.")} AND t.run_seq < {row.run_seq:d}
          AND t.stream_key = s.stream_key AND t.group_key = s.group_key
          AND t.id_ms = s.id_ms AND t.id_seq = s.id_seq{unchanged}
        WHEN MATCHED AND s.kind IN ({_UPDATING_SQL}) AND {_IS_UNCHANGED_SQL} THEN UPDATE SET
          consumer = s.consumer, delivery_time_ms = s.delivery_time_ms,
          delivery_count = s.delivery_count, run_seq = {row.run_seq:d}
        WHEN MATCHED AND {_IS_UNCHANGED_SQL} THEN DELETE"""
    rows = decided.rows(*TOUCHING)
    said = store.execute("pending", statement, decided=rows)
    return int(said["num_affected_rows"])


_UPDATING_SQL = ", ".join(f"'{kind}'" for kind in UPDATING)
_IS_UNCHANGED = (
    "{now}consumer <=> {before}from_consumer AND {now}delivery_time_ms ="
    " {before}from_delivery_time_ms AND {now}delivery_count = {before}from_delivery_count"
)
_IS_UNCHANGED_SQL = _IS_UNCHANGED.format(now="t.", before="s.")


def verify(store: Store, row: RunRow, decided: Decided, *, changed: int | None = None) -> Outcome:
    """What of the decision stands in `pending`, and what was lost to others.

    As a rule nobody else has written meanwhile, and the run's own MERGE has just changed each row
    that it was to change, and says so, or the buckets were rewritten right after the version that
    the run was decided from.
    Else what is read is `pending` right after the run's own commit (and, for purges, right before
    it), so what others do later is not taken for a loss, whenever the run is verified.

    Args:
        changed: what `apply` gave a moment ago; null: nobody knows.

    Raises:
        VerificationError: a row is as the decision found it, so it should have been changed.
    """
    if not decided.of(*_OWNED, *DELETING):
        return Outcome()
    if row.staged is None:
        alone_at = _alone_at(store, row, decided, changed)
        if alone_at is not None or _is_complete(store, row, decided, changed):
            return Outcome(version=alone_at)
    since, all_known = commits_since(store, row, "pending")
    # A commit that does not say what it is may be the run's own.
    all_known = all_known and all(commit["operation"] for commit in since)
    commits = [commit for commit in since if is_own(commit, row)]
    appends = [commit for commit in commits if _is_append(commit)]
    changes = [commit for commit in commits if not _is_append(commit)]
    # A MERGE that finds everything taken leaves no commit: right after the append, what was taken
    # since stands there still.
    last = changes or ([] if decided.of(*TOUCHING) else appends)
    pending = _right_after(store, last[0], since[0], decided) if last else None
    if pending is None:
        pending = _now(store, decided)
    claims, claims_gone = _verify_claims(store, row, decided, pending, appends)
    purges, purges_gone = _verify_purges(
        *(store, row, decided, pending, changes),
        all_known=all_known,
        is_alone=all_known and _came_first(since, commits, row),
    )
    lost = [rows for rows in (claims, purges) if rows is not None]
    outcome = Outcome(
        number_lost=sum(rows.count() for rows in lost),
        gone=claims_gone + purges_gone,
        lost=reduce(DataFrame.union, lost) if lost else None,
    )
    if outcome.lost is not None and outcome.number_lost:
        _journal_lost(store, row, outcome.lost)
    return outcome


def _is_complete(store: Store, row: RunRow, decided: Decided, changed: int | None) -> bool:
    """Whether this run took every row that it was to take, and what it forced bears its number
    now: then nothing is lost, whatever else has happened."""
    if changed is None and _came_next(store, row):
        return True
    # Where there is nothing to delete, the number that rows bear says it all.
    return not decided.of(*DELETING) and _all_stand(row, decided, _now(store, decided))


def _came_next(store: Store, row: RunRow) -> bool:
    """Whether the run's commit is the very next one after the version of `pending` that it was
    decided from, and the newest: then every row was as the decision had found it, and is now as it
    says."""
    if not store.is_same_table("pending", row.pins):
        return False
    version, note = store.last_note("pending")
    return version == row.pins.versions["pending"] + 1 and note == row.note


def _alone_at(store: Store, row: RunRow, decided: Decided, changed: int | None) -> int | None:
    """The version of `pending` that the run has just made, by an append of what is forced and a
    MERGE that has changed as many rows as it was to change, if nobody else has made one since the
    decision; null: somebody has, or rows are missing.

    Of what others have written the MERGE's number tells nothing: where somebody has added a copy of
    one row and has taken another, it is right all the same.
    """
    if changed != decided.of(*TOUCHING) or not store.is_same_table("pending", row.pins):
        return None
    own = bool(decided.of(Kind.FORCED)) + bool(decided.of(*TOUCHING))
    expected = row.pins.versions["pending"] + own
    return expected if store.version("pending") == expected else None


def _now(store: Store, decided: Decided) -> DataFrame:
    """`_touched_part` as it is now."""
    return _touched_part(store.now("pending"), decided)


def _all_stand(row: RunRow, decided: Decided, pending: DataFrame) -> bool:
    """Whether each entry that a run was to claim, or to force, bears its number.  It is entries
    that are counted: of one there may be two rows."""
    wanted = decided.of(*_OWNED)
    if wanted == 0:
        return True
    # By sort and merge, as in `_after`.
    owned = pending.where(F.col("run_seq") == row.run_seq).select(*_KEY).hint("merge")
    standing = decided.rows(*_OWNED).join(owned, on=list(_KEY), how="left_semi")
    return standing.count() == wanted


def _journal_lost(store: Store, row: RunRow, lost: DataFrame) -> None:
    rows = lost.select(*_KEY, *_FROM, "at_ms").withColumns(
        {"kind": F.lit(str(Kind.LOST)), "run_seq": F.lit(row.run_seq)}
    )
    token = Token(LOST_APP_ID, row.run_seq)
    retried(lambda: store.append("journal", rows, token=token, note=f"{row.note}: lost"))


def _verify_claims(
    store: Store, row: RunRow, decided: Decided, pending: DataFrame, appends: list[Row]
) -> tuple[DataFrame | None, int]:
    """The claims that are not there (null: all are), and of how many nobody can tell: what was
    forced and is away may have been there.

    What was forced is looked for right after its own append: somebody may have acknowledged it
    before the MERGE.
    """
    if not decided.of(*_OWNED):
        return None, 0
    # New rows of a mirrored source bear this run's number too: there it tells nothing.
    if row.staged is None and _all_stand(row, decided, pending):
        return None, 0
    claimed = _missed(row, decided.rows(*UPDATING), pending)
    _refuse_unapplied(store, claimed, row)
    appended = _readable(store, appends[0]["version"], decided) if appends else None
    forced = _missed(row, decided.rows(Kind.FORCED), pending if appended is None else appended)
    gone = 0
    if appended is None:
        is_away = F.col("now_run_seq").isNull()
        gone = forced.where(is_away).count()
        forced = forced.where(~is_away)
    columns = store.read("journal").columns
    return claimed.union(forced).select(columns), gone


def _missed(row: RunRow, claims: DataFrame, pending: DataFrame) -> DataFrame:
    """The journal rows that `pending` does not show as this run's, beside what it shows."""
    joined = _beside(claims, pending)
    missed = joined.where(F.col("now_run_seq").isNull() | (F.col("now_run_seq") != row.run_seq))
    return _each_once(missed)


def _each_once(joined: DataFrame) -> DataFrame:
    """Journal rows that were joined with `pending`, once each: of an entry there may be two."""
    return joined.dropDuplicates([*_KEY, *_FROM])


def _came_first(since: list[Row], own: list[Row], row: RunRow) -> bool:
    """Whether nobody else has changed a row between the decision and the last of the run's own
    commits."""
    if not own:
        return False
    until = own[0]["version"]
    before = (commit for commit in since if commit["version"] < until)
    return all(is_own(commit, row) or is_housekeeping(commit) for commit in before)


def _verify_purges(
    store: Store,
    row: RunRow,
    decided: Decided,
    pending: DataFrame,
    commits: list[Row],
    *,
    all_known: bool,
    is_alone: bool,
) -> tuple[DataFrame | None, int]:
    """The purges that somebody else did or prevented, and how many nobody can tell about.

    That a row is away does not say who took it.  The run's own commit does: its row count is exact,
    if it came first; else the table right before it shows which rows were there to be taken.
    """
    wanted = decided.of(*DELETING)
    if wanted == 0:
        return None, 0
    # One journal row may delete several rows of a key: a mirrored store may hold it more than once,
    # and another writer may have added a copy.
    if row.staged is None and is_alone:
        deleted = [_deleted_by(store, commit, decided) for commit in commits]
        known = [number for number in deleted if number is not None]
        if len(known) == len(deleted) and wanted == sum(known):
            return None, 0
    purges = decided.rows(*DELETING)
    joined = _beside(purges, pending)
    still_there = joined.where(F.col("now_run_seq").isNotNull())
    _refuse_unapplied(store, still_there, row)
    kept = _each_once(still_there).select(purges.columns)
    away = joined.where(F.col("now_run_seq").isNull()).select(purges.columns)
    if not commits and all_known:
        return kept.union(away), 0  # this run never deleted a row: all that are away were taken
    before = _readable(store, commits[-1]["version"] - 1, decided) if commits else None
    if before is None:
        return kept, away.count()
    not_ours = _beside(away, before).where(~F.coalesce(_is_unchanged(), F.lit(False)))
    return kept.union(_each_once(not_ours).select(purges.columns)), 0


def _deleted_by(store: Store, commit: Row, decided: Decided) -> int | None:
    """How many rows a commit of a run has deleted; null: nobody can tell any more."""
    if commit["operation"] == "MERGE":
        # Where `spark.databricks.delta.history.metricsEnabled` is off, a commit has no numbers.
        deleted = (commit["operationMetrics"] or {}).get("numTargetRowsDeleted")
        if deleted is not None:
            return int(deleted)
    elif decided.of(Kind.FORCED):
        return None  # the commit has added rows too
    version = commit["version"]
    states = [store.readable_at("pending", at) for at in (version - 1, version)]
    where = in_buckets(_buckets(decided))
    numbers = [rows.where(where).count() for rows in states if rows is not None]
    return numbers[0] - numbers[1] if len(numbers) == len(states) else None


def commits_since(store: Store, row: RunRow, table: str) -> tuple[list[Row], bool]:
    """The commits on a table since the run pinned it, newest first, and whether the history still
    has all of them."""
    pinned = row.pins.versions[table]
    limit = _RECENT
    commits = store.history(table, limit=limit)
    # Who commits between two looks pushes the oldest commit out of a list of a given length: it is
    # the list itself that tells how many there are.
    while _newer(commits, pinned) > limit == len(commits):
        limit = _newer(commits, pinned) + _RECENT
        commits = store.history(table, limit=limit)
    since = [commit for commit in commits if commit["version"] > pinned]
    return since, _newer(commits, pinned) == len(since)


def _newer(commits: list[Row], pinned: int) -> int:
    """How many versions a table has had since one was pinned; negative: it was made again."""
    return int(commits[0]["version"]) - pinned


# As a rule there are fewer commits than that since a run was decided: one question tells them all.
_RECENT = 20


def is_own(commit: Row, row: RunRow) -> bool:
    """Whether a commit is this run's."""
    return run_of(commit) == row.run_seq


def run_of(commit: Row) -> int | None:
    """The run_seq of the run that made a commit; null: no run has, or the commit does not say who
    has.  A MERGE bears it as a literal, what is appended or rewritten bears the run's note."""
    of_merge = re.search(r"run_seq#?\d*L? < (\d+)\b", _parameter(commit, "predicate"))
    if commit["operation"] == "MERGE" and of_merge is not None:
        return int(of_merge[1])
    return run_in_note(commit["userMetadata"])


def is_housekeeping(commit: Row) -> bool:
    """Whether a commit leaves every row as it was, and says so."""
    return (commit["operation"] or "").startswith(_HOUSEKEEPING)


_HOUSEKEEPING = ("OPTIMIZE", "VACUUM", "SET TBLPROPERTIES", "UPGRADE PROTOCOL", "ADD COLUMNS")


def _is_append(commit: Row) -> bool:
    return _parameter(commit, "mode") == "Append"


def _parameter(commit: Row, name: str) -> str:
    """What a commit says of how it was made; empty: it does not say it, as one that a writer made
    without `commitInfo`, all of which is optional in Delta."""
    return (commit["operationParameters"] or {}).get(name) or ""


def _touched_part(rows: DataFrame, decided: Decided) -> DataFrame:
    """The part of `pending` where the decided entries lie: a page does not open other files."""
    return rows.where(decided.pending.condition())


def _readable(store: Store, version: int, decided: Decided) -> DataFrame | None:
    """`_touched_part` at a version; null: that version cannot be read any more."""
    rows = store.readable_at("pending", version)
    return None if rows is None else _touched_part(rows, decided)


def _right_after(store: Store, commit: Row, newest: Row, decided: Decided) -> DataFrame | None:
    """`_readable` at a commit; the newest version needs no trial, for its files are all there."""
    if commit["version"] != newest["version"]:
        return _readable(store, commit["version"], decided)
    try:
        return _touched_part(store.read_at("pending", commit["version"]), decided)
    except VersionExpiredError:  # it was the newest a moment ago
        return _readable(store, commit["version"], decided)


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


def _is_unchanged() -> Column:
    return F.expr(_IS_UNCHANGED.format(now="now_", before=""))


def _refuse_unapplied(store: Store, missed: DataFrame, row: RunRow) -> None:
    older = F.col("now_run_seq") < row.run_seq
    unapplied = missed.where(older & _is_unchanged()).select(*GROUP, id_text().alias("id")).first()
    if unapplied is not None:
        raise VerificationError(
            f"run {row.run_seq} ({row.key}) decided to change the entry {unapplied['id']} of"
            f" {unapplied['stream']} / {unapplied['consumer_group']}, but pending still has the row"
            " as it was. The run stays unfinished: start it again. If this happens again, report"
            f" it{_or_abandon(store, row)}",
            run=row.key,
        )


def _or_abandon(store: Store, row: RunRow) -> str:
    """How to continue without a run, if it can be given up."""
    return "" if row.staged is None else f", and continue with: {abandon_command(store, row)}"


def abandon_command(store: Store, row: RunRow) -> str:
    """The command that gives a run up, as a shell takes it."""
    return shlex.join(("claimlib", "abandon", store.where, row.key))
