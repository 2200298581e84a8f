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
from collections.abc import Sequence
from dataclasses import dataclass

from claimlib.engine.changes import Changes, same_key
from claimlib.engine.relation import IdBounds, Relation, union_by_name
from claimlib.errors import VerificationError, VersionExpiredError
from claimlib.plans.journal_rows import ADDED, of_kinds
from claimlib.plans.keys import GROUP, id_text_sql
from claimlib.runs.journal import (
    DELETING,
    LOST_APP_ID,
    TOUCHING,
    UPDATING,
    Decided,
    RunRow,
    run_in_note,
)
from claimlib.runs.writes import apply as apply_changes
from claimlib.schema import JOURNAL, Kind
from claimlib.store.local import Token
from claimlib.store.logs import CommitInfo
from claimlib.store.lookups import readable_at
from claimlib.store.retry import retried
from claimlib.store.tables import Store
from claimlib.store.writer import in_buckets

_KEY = ("stream", "consumer_group", "id_ms", "id_seq")
STATE = ("consumer", "delivery_time_ms", "delivery_count")
_FROM = tuple(f"from_{name}" for name in STATE)
# What ends as a row of `pending` with this run's number.
_OWNED = (*UPDATING, *ADDED)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of what a run decided about entries.  decided = applied + lost + gone.

    Attributes:
        number_lost: how many rows another writer changed first.
        gone: of how many the row is away, and nobody can tell any more who took it.
        lost: the `lost` journal rows to write.  None means nothing was lost.
        version: that of `pending` right after the run, where it has just been looked up; null: it
            has not.
    """

    number_lost: int = 0
    gone: int = 0
    lost: Relation | None = None
    version: int | None = None

    def counts(self) -> dict[str, int]:
        """Return the counts of the run's report."""
        return {"lost": self.number_lost, "gone": self.gone}


def apply(
    store: Store,
    row: RunRow,
    decided: Decided,
    new: Relation | None = None,
    near: IdBounds | None = None,
) -> int | None:
    """Change `pending` as the journal says.

    How many rows a MERGE has changed or deleted, or None if it was none.

    Args:
        new: rows that a source has, of which those are appended whose ids are not pending; null:
            what is forced, if anything is.
        near: the bounds of the new rows; None means anywhere.
    """
    if new is None and decided.of(*ADDED):
        new = decided.rows(*ADDED).select(*_KEY, *STATE, "bucket")
        near = decided.pending
    return apply_changes(store, _changes(row, decided, new, near), row)


def _changes(row: RunRow, decided: Decided, new: Relation | None, near: IdBounds | None) -> Changes:
    number = decided.of(*TOUCHING)
    is_updated = f"s.{of_kinds(*UPDATING)}"
    return Changes(
        "pending",
        row.run_seq,
        decided.rows(*TOUCHING).select(*_MERGE_KEY, *_FROM, *STATE, "kind") if number else None,
        _MERGE_KEY,
        is_due=IS_UNCHANGED.format(now="t.", before="s."),
        values={name: f"s.{name}" for name in STATE},
        is_removed=f"NOT {is_updated}",
        # A source is compared with a store that may hold a key twice, each time otherwise: then
        # there are two journal rows of the key.  Runs that claim refuse such groups; for them the
        # join is kept short.
        may_repeat=row.staged is not None,
        number_of_rows=number,
        new=new,
        near=decided.pending.sql("t."),
        new_near=near,
        since_pin=row.staged is not None,
        buckets=_buckets(decided),
    )


# As numbers, by which a join is quicker than by names.
_MERGE_KEY = ("stream_key", "group_key", "id_ms", "id_seq")


def _buckets(decided: Decided) -> list[int]:
    """Return the buckets of which something changes."""
    return sorted({bucket for bucket, _, _ in decided.pending.by_bucket})


IS_UNCHANGED = (
    "{now}consumer <=> {before}from_consumer AND {now}delivery_time_ms ="
    " {before}from_delivery_time_ms AND {now}delivery_count = {before}from_delivery_count"
)


def verify(store: Store, row: RunRow, decided: Decided, *, changed: int | None = None) -> Outcome:
    """Return what of the decision stands in `pending`, and what was lost to others.

    As a rule nobody else has written meanwhile, and the run's own MERGE has just changed each row
    that it was to change, and says so, or the buckets were rewritten right after the version that
    the run was decided from.
    Else what is read is `pending` right after the run's own commit (and, for purges, right before
    it), so what others do later is not taken for a loss, whenever the run is verified.

    Args:
        changed: the result of `apply`.  None means unknown.

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
    all_lost = union_by_name(lost, _LOST_TYPES).fetched() if lost else None
    outcome = Outcome(
        number_lost=0 if all_lost is None else all_lost.count(),
        gone=claims_gone + purges_gone,
        lost=all_lost,
    )
    if outcome.lost is not None and outcome.number_lost:
        _journal_lost(store, row, outcome.lost)
    return outcome


def _is_complete(store: Store, row: RunRow, decided: Decided, changed: int | None) -> bool:
    """Return True if this run took every row that it was to take, and what it forced bears its
    number now: then nothing is lost, whatever else has happened.
    """
    if changed is None and _came_next(store, row):
        return True
    # Where there is nothing to delete, the number that rows bear says it all.
    return not decided.of(*DELETING) and _all_stand(row, decided, _now(store, decided))


def _came_next(store: Store, row: RunRow) -> bool:
    """Return True if the run's commit is the very next one after the version of `pending` that it
    was decided from, and the newest: then every row was as the decision had found it, and is now as
    it says.
    """
    if not row.pins.is_same_table("pending", store):
        return False
    version, note = store.logs.newest_note("pending")
    return version == row.pins.versions["pending"] + 1 and note == row.note


def _alone_at(store: Store, row: RunRow, decided: Decided, changed: int | None) -> int | None:
    """Return the version of `pending` that the run has just made, by an append of what is forced
    and a MERGE that has changed as many rows as it was to change, if nobody else has made one since
    the decision, or None if somebody has, or rows are missing.

    Of what others have written the MERGE's number tells nothing: where somebody has added a copy of
    one row and has taken another, it is right all the same.
    """
    if changed != decided.of(*TOUCHING) or not row.pins.is_same_table("pending", store):
        return None
    own = bool(decided.of(*ADDED)) + bool(decided.of(*TOUCHING))
    expected = row.pins.versions["pending"] + own
    return expected if store.version("pending") == expected else None


def _now(store: Store, decided: Decided) -> Relation:
    """`_touched_part` as it is now."""
    return _touched_part(store.relation("pending"), decided)


def _all_stand(row: RunRow, decided: Decided, pending: Relation) -> bool:
    """Return True if each entry that a run was to claim, or to force, bears its number.

    It is entries that are counted: of one there may be two rows.
    """
    wanted = decided.of(*_OWNED)
    if wanted == 0:
        return True
    # By sort and merge, as in `Changes.after`.
    standing = decided.rows(*_OWNED).sql(
        f"SELECT /*+ MERGE(t) */ this.* FROM {{this}} AS this LEFT SEMI JOIN {{owned}} AS t"
        f" ON {same_key('pending', 'this')}",
        owned=pending.where(f"run_seq = {row.run_seq:d}L"),
    )
    return standing.count() == wanted


_LOST_TYPES = {name: JOURNAL.types[name] for name in (*_KEY, *_FROM, "at_ms")}


def _journal_lost(store: Store, row: RunRow, lost: Relation) -> None:
    rows = lost.select("*", f"'{Kind.LOST}' AS kind", f"{row.run_seq:d}L AS run_seq")
    token = Token(LOST_APP_ID, row.run_seq)
    retried(lambda: store.writer.append("journal", rows, token=token, note=f"{row.note}: lost"))


def _verify_claims(
    store: Store, row: RunRow, decided: Decided, pending: Relation, appends: Sequence[CommitInfo]
) -> tuple[Relation | None, int]:
    """Return the claims that are not there (null: all are), and of how many nobody can tell: what
    was forced and is away may have been there.

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
    forced = _missed(row, decided.rows(*ADDED), pending if appended is None else appended)
    gone = 0
    if appended is None:
        gone = forced.where("now_run_seq IS NULL").count()
        forced = forced.where("now_run_seq IS NOT NULL")
    return union_by_name([claimed, forced], _LOST_TYPES), gone


def _missed(row: RunRow, claims: Relation, pending: Relation) -> Relation:
    """Return the journal rows that `pending` does not show as this run's, beside what it shows."""
    joined = _beside(claims, pending)
    return _each_once(joined.where(f"now_run_seq IS NULL OR now_run_seq <> {row.run_seq:d}L"))


def _each_once(joined: Relation) -> Relation:
    """Journal rows that were joined with `pending`, once each: of an entry there may be two."""
    key = ", ".join((*_KEY, *_FROM))
    others = (name for name in joined.columns if name not in {*_KEY, *_FROM})
    values = ", ".join(f"any_value({name}) AS {name}" for name in others)
    return joined.sql(f"SELECT {key}, {values} FROM {{this}} AS this GROUP BY {key}")


def _came_first(since: Sequence[CommitInfo], own: Sequence[CommitInfo], row: RunRow) -> bool:
    """Return True if nobody else has changed a row between the decision and the last of the run's
    own commits.
    """
    if not own:
        return False
    until = own[0]["version"]
    before = (commit for commit in since if commit["version"] < until)
    return all(is_own(commit, row) or is_housekeeping(commit) for commit in before)


def _verify_purges(
    store: Store,
    row: RunRow,
    decided: Decided,
    pending: Relation,
    commits: Sequence[CommitInfo],
    *,
    all_known: bool,
    is_alone: bool,
) -> tuple[Relation | None, int]:
    """Return the purges that somebody else did or prevented, and how many nobody can tell about.

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
    still_there = joined.where("now_run_seq IS NOT NULL")
    _refuse_unapplied(store, still_there, row)
    kept = _each_once(still_there)
    away = joined.where("now_run_seq IS NULL")
    if not commits and all_known:
        # This run never deleted a row: all that are away were taken.
        return union_by_name([kept, away], _LOST_TYPES), 0
    before = _readable(store, commits[-1]["version"] - 1, decided) if commits else None
    if before is None:
        return kept, away.count()
    not_ours = _beside(away.select(*purges.columns), before).where(
        f"NOT coalesce({_IS_AS_FOUND}, false)"
    )
    return union_by_name([kept, _each_once(not_ours)], _LOST_TYPES), 0


def _deleted_by(store: Store, commit: CommitInfo, decided: Decided) -> int | None:
    """Return how many rows a commit of a run has deleted, or None if nobody can tell any more."""
    if commit["operation"] == "MERGE":
        # Where `spark.databricks.delta.history.metricsEnabled` is off, a commit has no numbers.
        deleted = (commit["operationMetrics"] or {}).get("numTargetRowsDeleted")
        if deleted is not None:
            return int(deleted)
    elif decided.of(*ADDED):
        return None  # the commit has added rows too
    version = commit["version"]
    states = [readable_at(store, "pending", at) for at in (version - 1, version)]
    where = in_buckets(_buckets(decided))
    numbers = [rows.where(where).count() for rows in states if rows is not None]
    return numbers[0] - numbers[1] if len(numbers) == len(states) else None


def commits_since(store: Store, row: RunRow, table: str) -> tuple[Sequence[CommitInfo], bool]:
    """Return the commits on a table since the run pinned it, newest first, and whether the history
    still has all of them.
    """
    pinned = row.pins.versions[table]
    limit = _RECENT
    commits = store.logs.history(table, limit=limit)
    # Who commits between two looks pushes the oldest commit out of a list of a given length: it is
    # the list itself that tells how many there are.
    while _newer(commits, pinned) > limit == len(commits):
        limit = _newer(commits, pinned) + _RECENT
        commits = store.logs.history(table, limit=limit)
    since = [commit for commit in commits if commit["version"] > pinned]
    return since, _newer(commits, pinned) == len(since)


def _newer(commits: Sequence[CommitInfo], pinned: int) -> int:
    """Return how many versions a table has had since one was pinned; negative: it was made
    again.
    """
    return int(commits[0]["version"]) - pinned


# As a rule there are fewer commits than that since a run was decided: one question tells them all.
_RECENT = 20


def is_own(commit: CommitInfo, row: RunRow) -> bool:
    """Return True if a commit is this run's."""
    return run_of(commit) == row.run_seq


def run_of(commit: CommitInfo) -> int | None:
    """Return the run_seq of the run that made a commit, or None if no run has, or the commit does
    not say who has. A MERGE bears it as a literal, what is appended or rewritten bears the run's
    note.
    """
    of_merge = re.search(r"run_seq#?\d*L? < (\d+)\b", _parameter(commit, "predicate"))
    if commit["operation"] == "MERGE" and of_merge is not None:
        return int(of_merge[1])
    return run_in_note(commit["userMetadata"])


def is_housekeeping(commit: CommitInfo) -> bool:
    """Return True if a commit leaves every row as it was, and says so."""
    return (commit["operation"] or "").startswith(_HOUSEKEEPING)


_HOUSEKEEPING = ("OPTIMIZE", "VACUUM", "SET TBLPROPERTIES", "UPGRADE PROTOCOL", "ADD COLUMNS")


def _is_append(commit: CommitInfo) -> bool:
    return _parameter(commit, "mode") == "Append"


def _parameter(commit: CommitInfo, name: str) -> str:
    """Return what a commit says of how it was made; empty: it does not say it, as one that a writer
    made without `commitInfo`, all of which is optional in Delta.
    """
    return (commit["operationParameters"] or {}).get(name) or ""


def _touched_part(rows: Relation, decided: Decided) -> Relation:
    """Return the part of `pending` where the decided entries lie: a page does not open other
    files.
    """
    return rows.within(decided.pending)


def _readable(store: Store, version: int, decided: Decided) -> Relation | None:
    """`_touched_part` at a version, or None if that version cannot be read any more."""
    rows = readable_at(store, "pending", version)
    return None if rows is None else _touched_part(rows, decided)


def _right_after(
    store: Store, commit: CommitInfo, newest: CommitInfo, decided: Decided
) -> Relation | None:
    """`_readable` at a commit; the newest version needs no trial, for its files are all there."""
    if commit["version"] != newest["version"]:
        return _readable(store, commit["version"], decided)
    try:
        return _touched_part(store.relation("pending", commit["version"]), decided).reused()
    except VersionExpiredError:  # it was the newest a moment ago
        return _readable(store, commit["version"], decided)


def _beside(rows: Relation, pending: Relation) -> Relation:
    """Return journal rows with the state of the pending row of the same key.

    The state is None if there is no such row.
    """
    now = ", ".join(f"t.{name} AS now_{name}" for name in (*STATE, "run_seq"))
    return rows.sql(
        f"SELECT this.*, {now} FROM {{this}} AS this LEFT JOIN {{pending}} AS t"
        f" ON {same_key('pending', 'this')}",
        pending=pending,
    )


_IS_AS_FOUND = IS_UNCHANGED.format(now="now_", before="")


def _refuse_unapplied(store: Store, missed: Relation, row: RunRow) -> None:
    older = f"now_run_seq < {row.run_seq:d}L AND {_IS_AS_FOUND}"
    unapplied = missed.where(older).select(*GROUP, f"{id_text_sql()} AS id").first()
    if unapplied is not None:
        raise VerificationError(
            f"run {row.run_seq} ({row.key}) decided to change the entry {unapplied['id']} of"
            f" {unapplied['stream']} / {unapplied['consumer_group']}, but pending still has the row"
            " as it was. The run stays unfinished: start it again. If this happens again, report"
            f" it{_or_abandon(store, row)}",
            run=row.key,
        )


def _or_abandon(store: Store, row: RunRow) -> str:
    """Return how to continue without a run, if it can be given up."""
    return "" if row.staged is None else f", and continue with: {abandon_command(store, row)}"


def abandon_command(store: Store, row: RunRow) -> str:
    """Return the command that gives a run up, as a shell takes it."""
    return shlex.join(("claimlib", "abandon", store.where, row.key))
