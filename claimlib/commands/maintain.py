"""Maintain a store: compact its tables, delete old files, and delete old history on request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow.compute as pc

from claimlib.commands.mirror import IMPORT, SNAPSHOT
from claimlib.engine.relation import DESCENDING, Relation, union_all, union_by_name
from claimlib.plans import maintenance_plan as plan
from claimlib.plans.journal_rows import JOURNAL_ROW
from claimlib.plans.server_view_plan import group_sources
from claimlib.runs import Begun, Decision, Progress, begin_dry_run, run
from claimlib.runs.maintenance import (
    BYTES_REMOVED,
    COMMAND,
    COMPACTED,
    FILES_REMOVED,
    ROWS_DELETED,
    SIZES,
    STAGED,
    THROUGH,
    count_of,
    sizes,
    tidy,
)
from claimlib.runs.rollforward import NOT_ABANDONED, wall_ms
from claimlib.schema import TABLES, Kind
from claimlib.store.guards import check_changeable
from claimlib.store.lookups import readable_at
from claimlib.store.tables import Store
from claimlib.store.writer import to_compact

RUNS_DELETED, OLDEST_SOURCE = "runs_deleted", "oldest_source"
TABLE_COUNTS = (*SIZES, COMPACTED, ROWS_DELETED, FILES_REMOVED, BYTES_REMOVED)
"""List the counts that each table has."""


@dataclass(frozen=True)
class MaintainReply:
    """Hold what `maintain` did, or would do in a dry run.

    Attributes:
        run_seq: the number of the run, or None in a dry run.
        is_repeat: True if an earlier call with the same run id had done the run.
        counts: numbers by name:
            - expired: readings whose staged rows were deleted.
            - runs_deleted: runs whose journal rows were deleted.
            - deleted_through: the number of the last of these runs.  Missing if there is none.
            - oldest_source: the smallest of the numbers of the runs that were the last to read each
              group.  Journal rows from this run on stay, even if they are old.  0 if a group of a
              store with snapshots was never read, so that all old rows stay.  Missing if no old
              rows stay for this reason.
        tables: one row per table, with table, files_before, bytes_before, files_after, bytes_after,
            files_compacted, rows_deleted, files_removed, bytes_removed.  files_after and
            bytes_after are None in a dry run.  bytes_removed is None if it is unknown.
    """

    run_id: str | None
    run_seq: int | None
    dry_run: bool
    is_repeat: bool
    counts: Mapping[str, int]
    tables: Sequence[Mapping[str, int | str | None]]


def maintain(
    store: Store,
    *,
    keep_history_ms: int | None = None,
    vacuum: bool = True,
    run_id: str | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> MaintainReply:
    """Compact the tables of a store, clean their logs, and delete old files.

    A file is old if no version within the retention of its table uses it.  Staged rows that no run
    has used are deleted.  No other row is deleted without `keep_history_ms`.

    Args:
        keep_history_ms: delete the rows of `journal` and `pel_snapshots` of runs that ended more
            than this time ago.  None deletes no history.  The journal rows of kind `run` stay, and
            so do the rows since the last snapshot or import of each group.
        vacuum: delete old files.
        run_id: identifies the run, together with the command.  A repeat with the same run id
            changes nothing.
        dry_run: return what would be done, and write nothing.
        progress: called as each phase begins, and again with each new detail.

    Raises:
        RunKeyConflictError, LostRaceError: see `runs.run`.
        UnfinishedRunError: in a dry run, an earlier run is not yet applied.

    Examples:
        >>> maintain(open_store("./store"), dry_run=True).counts["runs_deleted"]
        0
    """

    def decide(begun: Begun) -> Decision:
        decision = _decide(begun, keep_history_ms)
        done = tidy(store, begun.run_seq, vacuum=vacuum, tell=begun.tell_detail)
        return replace(decision, counts={**decision.counts, **done})

    if dry_run:
        decision = _decide(begin_dry_run(store, progress), keep_history_ms)
        expired = decision.rows.where(f"kind = '{Kind.EXPIRED}'").count()
        counts = {**decision.counts, str(Kind.EXPIRED): expired}
        return _reply(None, None, {**counts, **_planned(store, vacuum=vacuum)})
    check_changeable(store, STAGED if keep_history_ms is None else (*STAGED, "journal"))
    done = run(
        store,
        command=COMMAND,
        request={"keep_history_ms": keep_history_ms, "vacuum": vacuum},
        decide=decide,
        run_id=run_id,
        progress=progress,
    )
    return _reply(done.run_id, done.run_seq, done.counts, is_repeat=done.is_repeat)


def _reply(
    run_id: str | None, run_seq: int | None, counts: Mapping[str, int], *, is_repeat: bool = False
) -> MaintainReply:
    is_done = run_seq is not None
    # In a dry run, one of these counts that is missing is unknown.  Other missing counts are 0.
    unknown = () if is_done else (*SIZES[2:], BYTES_REMOVED)

    def number(table: str, name: str) -> int | None:
        return counts.get(count_of(table, name), None if name in unknown else 0)

    others = {name: value for name, value in counts.items() if "." not in name}
    return MaintainReply(
        run_id=run_id,
        run_seq=run_seq,
        dry_run=not is_done,
        is_repeat=is_repeat,
        counts={str(Kind.EXPIRED): 0, RUNS_DELETED: 0, **others},
        tables=[
            {"table": table, **{name: number(table, name) for name in TABLE_COUNTS}}
            for table in TABLES
        ],
    )


def _decide(begun: Begun, keep_history_ms: int | None) -> Decision:
    store = begun.store
    counts = sizes(store, *SIZES[:2])
    through = 0
    if keep_history_ms is not None:
        through, source = _last_deleted(begun, wall_ms() - keep_history_ms)
        counts |= {THROUGH: through} if through else {}
        counts |= {OLDEST_SOURCE: source} if source is not None else {}
    journal = store.relation("journal")
    old = journal.where(plan.is_deleted(through))
    counted = old.sql("SELECT count(*) AS n, count(DISTINCT run_seq) AS runs FROM {this} AS this")
    (of_journal,) = counted.collect()
    decisions = journal.where(f"kind = '{Kind.RUN}'").select("run_seq", "landing")
    staged = {table: store.relation(table).select("landing") for table in STAGED}
    landings = union_all(list(staged.values())).distinct("landing").fetched()
    # With a lock, no other process can be reading a source now.
    ended = landings if store.lock.folder is not None else _staged_before(begun)
    expired = plan.expired_landings(landings, ended, decisions, through).fetched()
    deleted = {"journal": of_journal["n"]}
    for table, landed in staged.items():
        deleted[table] = landed.sql(
            "SELECT this.* FROM {this} AS this LEFT SEMI JOIN {expired} AS e USING (landing)",
            expired=expired,
        ).count()
    counts |= {count_of(table, ROWS_DELETED): number for table, number in deleted.items() if number}
    counts[RUNS_DELETED] = of_journal["runs"]
    rows = expired.select(f"'{Kind.EXPIRED}' AS kind", "landing")
    return Decision(union_by_name([rows], JOURNAL_ROW), counts=counts)


def _staged_before(begun: Begun) -> Relation:
    """Return the `landing` of the readings that had staged rows when the last `maintain` ended.

    Without a lock, another process may be staging rows of a source while `maintain` runs.  If a
    `maintain` ends meanwhile, that process discards its rows and reads its source again.  So no
    process needs rows that were staged before the last `maintain` ended.
    """
    store = begun.store
    done = begun.relation("runs").where(f"command = '{COMMAND}'")
    last = done.order_by(f"run_seq{DESCENDING}").first()
    versions = {} if last is None else last["output_versions"]
    before = [readable_at(store, table, versions.get(table)) for table in STAGED]
    nothing = store.rows("entry_landing", [], ["landing"])
    known = [rows.select("landing") for rows in before if rows is not None]
    return union_all([nothing, *known]).distinct("landing").fetched()


def _last_deleted(begun: Begun, before_ms: int) -> tuple[int, int | None]:
    """Return the last run whose journal rows are to be deleted, or 0 if there is none.

    The second result is `_oldest_source` if this run is the reason why old rows stay, else None.
    """
    (old,) = plan.old_runs(begun.relation("runs"), before_ms).collect()
    through = int(old["through"])
    source = _oldest_source(begun)
    if source is None or through < source:
        return through, None
    return max(source - 1, 0), source


def _oldest_source(begun: Begun) -> int | None:
    """Find the last run that read each group, and return the smallest of their numbers.

    The result is None if no run has read a group.  It is 0 if the store mirrors a server and a
    group was never read, because all changes of this group are then needed.
    """
    is_reading = f"command IN ('{SNAPSHOT}', '{IMPORT}') AND {NOT_ABANDONED}"
    runs = begun.relation("runs").where(is_reading).select("run_seq", "command").fetched()
    read = begun.store.relation("journal").where(f"kind = '{Kind.GROUP}'")
    sources = group_sources(begun.relation("groups"), runs.select("run_seq"), read).fetched()
    is_mirror = not runs.where(f"command = '{SNAPSHOT}'").is_empty()
    known: Relation = sources if is_mirror else sources.where("source_seq > 0")
    first: int | None = pc.min(known.arrow()["source_seq"]).as_py()
    return first


def _planned(store: Store, *, vacuum: bool) -> dict[str, int]:
    """Return the counts of files that would be compacted and removed."""
    counts: dict[str, int] = {}
    for table in TABLES:
        counts[count_of(table, COMPACTED)] = to_compact(table, store.writer.files(table))
        if vacuum:
            removed = store.writer.removable(table)
            counts[count_of(table, FILES_REMOVED)] = removed.files
            if removed.size_bytes is not None:
                counts[count_of(table, BYTES_REMOVED)] = removed.size_bytes
        else:
            counts[count_of(table, BYTES_REMOVED)] = 0
    return counts
