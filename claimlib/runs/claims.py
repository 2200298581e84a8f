"""Apply the journal rows of a run to `pending`, and verify the result.

Each change is a compare-and-set.  Changes are claims, acknowledgements, purges (removals of entries
that their stream no longer has), and rows that a mirrored source replaced or removed.  A pending
row changes only while its owner, delivery time and delivery count are those of the decision.  It
does not change if this run or a later one has written it.  Forced rows are appended separately,
unless the id has become pending since.

So a repeat changes nothing.  A row that another writer acknowledged or changed after the decision
stays as it is.  That row is lost to this run, and is reported.
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
# The kinds of journal rows whose row of `pending` gets the run's run_seq.
_MARKED = (*UPDATING, *ADDED)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Hold the result of what a run decided about entries.  decided = applied + lost + gone.

    Attributes:
        number_lost: the number of rows that another writer changed first.
        gone: the number of rows that are missing, if it is unknown which writer removed them.  (The
            outcome `gone` of a writeback is another one: it is about the server.)
        lost: the `lost` journal rows, which have been written.  None or empty if nothing was lost.
        version: the version of `pending` right after the run.  None if it was not looked up.
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
    new_near: IdBounds | None = None,
) -> int | None:
    """Apply the journal rows of a run to `pending`.

    Return the number of rows that a MERGE has changed or deleted, or None if there was no MERGE.

    Args:
        new: rows of a source.  A row is appended if its id is not pending.  None means the forced
            rows, if there are any.
        new_near: the bounds of the new rows.  None means anywhere.
    """
    if new is None and decided.of(*ADDED):
        new = decided.rows(*ADDED).select(*_KEY, *STATE, "bucket")
        new_near = decided.pending
    return apply_changes(store, _changes(row, decided, new, new_near), row)


def _changes(
    row: RunRow, decided: Decided, new: Relation | None, new_near: IdBounds | None
) -> Changes:
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
        # A store that is compared with a source may hold a key twice, in different states.  Then
        # the key has two journal rows.  Runs that claim refuse such groups, so their join is
        # simpler.
        may_repeat=row.is_mirror,
        number_of_rows=number,
        new=new,
        near=decided.pending.sql("t."),
        new_near=new_near,
        since_pin=row.is_mirror,
        buckets=_buckets(decided),
    )


# Keys that are numbers, because joins by numbers are faster than joins by names.
_MERGE_KEY = ("stream_key", "group_key", "id_ms", "id_seq")


def _buckets(decided: Decided) -> list[int]:
    """Return the buckets in which rows change."""
    return sorted({bucket for bucket, _, _ in decided.pending.by_bucket})


IS_UNCHANGED = (
    "{now}consumer <=> {before}from_consumer AND {now}delivery_time_ms ="
    " {before}from_delivery_time_ms AND {now}delivery_count = {before}from_delivery_count"
)


def verify(store: Store, row: RunRow, decided: Decided, *, changed: int | None = None) -> Outcome:
    """Compare `pending` with the decision, and return what was lost to other writers.

    In these cases no row can be lost, so no states are compared:

    - Only this run has committed since the decision, and its MERGE changed as many rows as decided.
    - That number is unknown, but the run's commit is the newest, and directly follows the version
      that the run was decided from.
    - The run deletes no rows, and all rows that it claimed or forced have its run_seq.

    In other cases this reads `pending` right after the run's own commit.  For purges it also reads
    the version right before that commit.  So later changes by other writers do not count as lost.

    Args:
        changed: the result of `apply`.  None means unknown.

    Raises:
        VerificationError: the run should have changed a row, but the row is still as the decision
            found it.
    """
    if not decided.of(*_MARKED, *DELETING):
        return Outcome()
    if not row.is_mirror:
        undisturbed = _undisturbed_version(store, row, decided, changed)
        if undisturbed is not None or _is_surely_complete(store, row, decided, changed):
            return Outcome(version=undisturbed)
    since, all_known = commits_since(store, row, "pending")
    # A commit without the name of its operation may be the run's own.
    all_known = all_known and all(commit["operation"] for commit in since)
    commits = [commit for commit in since if is_own(commit, row)]
    appends = [commit for commit in commits if _is_append(commit)]
    changes = [commit for commit in commits if not _is_append(commit)]
    # A MERGE that finds no row to change leaves no commit.  Then the newest version is read: the
    # version right after the append still has the rows that other writers removed before the MERGE.
    last = next(iter(changes or ([] if decided.of(*TOUCHING) else appends)), None)
    pending = None if last is None else _right_after(store, last, since[0], decided)
    if pending is None:
        pending = _now(store, decided)
    claims, claims_gone = _verify_claims(store, row, decided, pending, appends)
    purges, purges_gone = _verify_purges(
        *(store, row, decided, pending, changes),
        all_known=all_known,
        was_undisturbed=all_known and _no_change_before(since, commits, row),
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


def _is_surely_complete(store: Store, row: RunRow, decided: Decided, changed: int | None) -> bool:
    """Return True if it is certain, without a comparison of states, that no row is lost.

    This is so if the run's commit is the first after the decision, and the newest.  It is also so
    if the run deletes no rows, and all rows that it claimed or forced have its run_seq now.
    """
    if changed is None and _is_newest_and_next(store, row):
        return True
    return not decided.of(*DELETING) and _all_are_marked(row, decided, _now(store, decided))


def _is_newest_and_next(store: Store, row: RunRow) -> bool:
    """Return True if the run's commit directly follows the version that the run was decided from.

    The commit must also be the newest one of `pending`.  Then every row was as the decision had
    found it, and is now as the decision states.
    """
    if not row.pins.is_same_table("pending", store):
        return False
    version, note = store.logs.newest_note("pending")
    return version == row.pins.versions["pending"] + 1 and note == row.note


def _undisturbed_version(
    store: Store, row: RunRow, decided: Decided, changed: int | None
) -> int | None:
    """Return the version of `pending` that the run has just made.

    Return None if another writer has made a version since the decision.  Return None too if the
    MERGE of the run has not changed as many rows as it was to change.  The run makes one version by
    an append of forced rows, and one by a MERGE.

    The number of rows that the MERGE changed proves nothing by itself.  It is also correct if
    another writer has added a copy of one row and has removed another row.
    """
    if changed != decided.of(*TOUCHING) or not row.pins.is_same_table("pending", store):
        return None
    own = bool(decided.of(*ADDED)) + bool(decided.of(*TOUCHING))
    expected = row.pins.versions["pending"] + own
    return expected if store.version("pending") == expected else None


def _now(store: Store, decided: Decided) -> Relation:
    """Return `_touched_part` of the newest version of `pending`."""
    return _touched_part(store.relation("pending"), decided)


def _all_are_marked(row: RunRow, decided: Decided, pending: Relation) -> bool:
    """Return True if each entry that a run was to claim, or to force, has its run_seq.

    This counts entries, not rows, because an entry may have two rows.
    """
    wanted = decided.of(*_MARKED)
    if wanted == 0:
        return True
    # A sort-merge join, as in `Changes.after`.
    marked = decided.rows(*_MARKED).sql(
        f"SELECT /*+ MERGE(t) */ this.* FROM {{this}} AS this LEFT SEMI JOIN {{of_run}} AS t"
        f" ON {same_key('pending', 'this')}",
        of_run=pending.where(f"run_seq = {row.run_seq:d}L"),
    )
    return marked.count() == wanted


_LOST_TYPES = {name: JOURNAL.types[name] for name in (*_KEY, *_FROM, "at_ms")}


def _journal_lost(store: Store, row: RunRow, lost: Relation) -> None:
    rows = lost.select("*", f"'{Kind.LOST}' AS kind", f"{row.run_seq:d}L AS run_seq")
    token = Token(LOST_APP_ID, row.run_seq)
    retried(lambda: store.writer.append("journal", rows, token=token, note=f"{row.note}: lost"))


def _verify_claims(
    store: Store, row: RunRow, decided: Decided, pending: Relation, appends: Sequence[CommitInfo]
) -> tuple[Relation | None, int]:
    """Return the journal rows whose claim is missing from `pending`, or None if none is missing.

    Also return the number of missing forced entries that another writer may have removed.  If the
    version right after the append is not readable, it is unknown.

    Forced entries are read right after their own append, because another writer may have
    acknowledged them before the MERGE.
    """
    if not decided.of(*_MARKED):
        return None, 0
    # New rows of a mirrored source have this run_seq too, so there it proves nothing.
    if not row.is_mirror and _all_are_marked(row, decided, pending):
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
    """Return the journal rows whose row of `pending` does not have this run's number.

    Each has the state of its row of `pending`, as in `_beside`.
    """
    joined = _beside(claims, pending)
    return _each_once(joined.where(f"now_run_seq IS NULL OR now_run_seq <> {row.run_seq:d}L"))


def _each_once(joined: Relation) -> Relation:
    """Return each journal row once, after a join with `pending`.

    The join returns a journal row twice if its entry has two rows of `pending`.
    """
    key = ", ".join((*_KEY, *_FROM))
    others = (name for name in joined.columns if name not in {*_KEY, *_FROM})
    values = ", ".join(f"any_value({name}) AS {name}" for name in others)
    return joined.sql(f"SELECT {key}, {values} FROM {{this}} AS this GROUP BY {key}")


def _no_change_before(since: Sequence[CommitInfo], own: Sequence[CommitInfo], row: RunRow) -> bool:
    """Return True if no other writer changed a row before the last of the run's own commits.

    Only commits since the decision count.
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
    was_undisturbed: bool,
) -> tuple[Relation | None, int]:
    """Return the purges that another writer did or prevented, and a number of undecided purges.

    An undecided purge is one whose row is missing, and it is unknown which writer removed it.  If
    the run's own commit came first, the number of rows that it deleted is sufficient.  If not, the
    version right before that commit shows which rows existed then.
    """
    wanted = decided.of(*DELETING)
    if wanted == 0:
        return None, 0
    # One journal row may delete several rows of a key.  A mirrored store may hold the key more than
    # once, and another writer may have added a copy.
    if not row.is_mirror and was_undisturbed:
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
        # This run never deleted a row, so other writers removed all missing rows.
        return union_by_name([kept, away], _LOST_TYPES), 0
    before = _readable(store, commits[-1]["version"] - 1, decided) if commits else None
    if before is None:
        return kept, away.count()
    not_ours = _beside(away.select(*purges.columns), before).where(
        f"NOT coalesce({_IS_AS_FOUND}, false)"
    )
    return union_by_name([kept, _each_once(not_ours)], _LOST_TYPES), 0


def _deleted_by(store: Store, commit: CommitInfo, decided: Decided) -> int | None:
    """Return the number of rows that a commit of a run has deleted, or None if it is unknown."""
    if commit["operation"] == "MERGE":
        # If `spark.databricks.delta.history.metricsEnabled` is off, a commit has no numbers.
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
    """Return the commits on a table since the run pinned it, newest first.

    Also return True if the history still has all of them, else False.
    """
    pinned = row.pins.versions[table]
    limit = _RECENT
    commits = store.logs.history(table, limit=limit)
    # A commit between two reads pushes the oldest commit out of a list of limited length.  So the
    # list itself must show how many commits there are.
    while len(commits) == limit and _newer(commits, pinned) > limit:
        limit = _newer(commits, pinned) + _RECENT
        commits = store.logs.history(table, limit=limit)
    since = [commit for commit in commits if commit["version"] > pinned]
    return since, _newer(commits, pinned) == len(since)


def _newer(commits: Sequence[CommitInfo], pinned: int) -> int:
    """Return the number of versions that a table has had since the pinned version.

    The number is negative if the table was created again.
    """
    return int(commits[0]["version"]) - pinned


# Usually fewer commits than this follow a run's decision, so that one read returns all of them.
_RECENT = 20


def is_own(commit: CommitInfo, row: RunRow) -> bool:
    """Return True if a commit is this run's."""
    return run_of(commit) == row.run_seq


def run_of(commit: CommitInfo) -> int | None:
    """Return the run_seq of the run that made a commit, or None if the commit names no run.

    A MERGE has the number as a literal in its predicate.  An append or a rewrite has the run's
    note.
    """
    # The predicate is text such as "(t.run_seq#1234L < 7)".
    of_merge = re.search(r"run_seq#?\d*L? < (\d+)\b", _parameter(commit, "predicate"))
    if commit["operation"] == "MERGE" and of_merge is not None:
        return int(of_merge[1])
    return run_in_note(commit["userMetadata"])


def is_housekeeping(commit: CommitInfo) -> bool:
    """Return True if the operation of a commit is one that changes no row."""
    return (commit["operation"] or "").startswith(_HOUSEKEEPING)


_HOUSEKEEPING = ("OPTIMIZE", "VACUUM", "SET TBLPROPERTIES", "UPGRADE PROTOCOL", "ADD COLUMNS")


def _is_append(commit: CommitInfo) -> bool:
    return _parameter(commit, "mode") == "Append"


def _parameter(commit: CommitInfo, name: str) -> str:
    """Return a parameter of the operation of a commit, or an empty text if it is missing.

    It is missing if the writer wrote no `commitInfo`, which is optional in Delta.
    """
    return (commit["operationParameters"] or {}).get(name) or ""


def _touched_part(rows: Relation, decided: Decided) -> Relation:
    """Return the part of `pending` within the bounds of the decided entries.

    So a run that changes few ids, as a page of a sweep, opens few files.
    """
    return rows.within(decided.pending)


def _readable(store: Store, version: int, decided: Decided) -> Relation | None:
    """Return `_touched_part` at a version, or None if that version is no longer readable."""
    rows = readable_at(store, "pending", version)
    return None if rows is None else _touched_part(rows, decided)


def _right_after(
    store: Store, commit: CommitInfo, newest: CommitInfo, decided: Decided
) -> Relation | None:
    """Return `_readable` at a commit.

    The newest version is not tried first, because all its files exist.
    """
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
    """Return the end of a message that says how to abandon a run.

    It is empty if the run cannot be abandoned, because it does not mirror a source.
    """
    return "" if not row.is_mirror else f", and continue with: {abandon_command(store, row)}"


def abandon_command(store: Store, row: RunRow) -> str:
    """Return the shell command that abandons a run."""
    return shlex.join(("claimlib", "abandon", store.where, row.key))
