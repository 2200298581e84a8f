"""Find problems in the tables of a store, before a sweep refuses groups because of them.

Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from claimlib.commands.mirror import IMPORT, SNAPSHOT, repairing_sql
from claimlib.engine.relation import Record, Relation, union_all
from claimlib.errors import DamagedTableError
from claimlib.plans import replay as plan
from claimlib.plans.check_plan import FOREIGN_RUNS, TABLES_READ, problems
from claimlib.plans.journal_rows import CHANGED, applied, of_kinds
from claimlib.plans.keys import GROUP
from claimlib.plans.server_view_plan import group_sources
from claimlib.runs import Begun, FinishedRun, pinned
from claimlib.runs.journal import COUNTED
from claimlib.runs.known import find_missing_rows
from claimlib.runs.maintenance import deleted_history, first_complete_run
from claimlib.runs.rollforward import NOT_ABANDONED
from claimlib.schema import Kind
from claimlib.store.opening import in_session
from claimlib.store.tables import Store


@dataclass(frozen=True, slots=True)
class Problem:
    """State a problem of a table.

    Attributes:
        table: the name of the table.
        what: the problem, in the words that a sweep uses when it refuses a group for it.
        refuses: True if a sweep refuses groups because of it, or cannot use the table.  False if it
            is a remark.
        count: the number of rows, keys, groups, owners or runs, as `what` states.
        example: one of them.
        remedy: the statement that repairs it.  None if no single statement does.
        is_difference: True if the replay found it.
    """

    table: str
    what: str
    refuses: bool
    count: int
    example: str
    remedy: str | None = None
    is_difference: bool = False


def check(store: Store, *, replay: bool = False) -> tuple[Problem, ...]:
    """Return the problems of a store at one moment, the most serious first.

    Args:
        replay: also compare `pending` and `tombstones` with the last snapshots or imports and the
            journal.  Compare the counts of runs with the journal, and generated columns with the
            names.  This reads all of these tables.  It is not done while a run is unfinished.

    Returns: the problems.  Empty if there is none.
    """
    try:
        return _problems(store, replay=replay)
    except DamagedTableError:
        if not store.is_embedded:
            raise
        # A text that is not UTF-8 is one of the problems.  Only Spark can read such a text.
        return _problems(in_session(store), replay=replay)


def _problems(store: Store, *, replay: bool) -> tuple[Problem, ...]:
    begun, unfinished = pinned(store, TABLES_READ)
    missing = find_missing_rows(store)
    # Rows of a run whose decision is missing are this store's own.  So only rows with a larger
    # run_seq count as those of another store (FOREIGN_RUNS).
    highest = max((of_table.runs[-1] for of_table in missing), default=0)
    begun = replace(begun, run_seq=max(begun.run_seq, highest + 1))
    tables = {name: begun.relation(name) for name in TABLES_READ}
    listed = [
        Problem(
            of_table.table,
            _MISSING,
            refuses=True,
            count=len(of_table.runs),
            example=of_table.example,
            remedy=of_table.remedy,
        )
        for of_table in missing
    ]
    listed += [
        _problem(
            row, remedy=repairing_sql(begun, row["table"]) if row["what"] == FOREIGN_RUNS else None
        )
        for row in problems(tables, begun.run_seq).collect()
    ]
    if unfinished:
        listed.append(
            Problem(
                "journal",
                _UNFINISHED,
                refuses=False,
                count=len(unfinished),
                example=unfinished[0].key,
            )
        )
    elif replay:
        listed += _replayed(begun)
    return tuple(listed)


def _problem(row: Record, remedy: str | None = None, *, is_difference: bool = False) -> Problem:
    columns = ("table", "what", "refuses", "count", "example")
    values = {name: row[name] for name in columns}
    return Problem(**values, remedy=remedy, is_difference=is_difference)


def _replayed(begun: Begun) -> Iterator[Problem]:
    """Yield the differences from a replay of the journal on the last snapshots or imports."""
    store, last_seq = begun.store, begun.run_seq - 1
    deleted = deleted_history(store)
    first_seq = 0 if deleted is None else first_complete_run(deleted)
    journal = store.relation("journal").where(f"run_seq <= {last_seq:d}L")
    changes = applied(journal.where(of_kinds(*CHANGED)), journal.where(of_kinds(Kind.LOST)))
    sources, base, missing = _bases(begun, journal)
    if missing:
        yield Problem(
            "pel_snapshots",
            _NO_BASE,
            refuses=False,
            count=len(missing),
            example=missing[0],
            is_difference=True,
        )
    generated = [
        plan.generated_columns(table, begun.relation(table), store.buckets)
        for table in ("pending", "entries")
    ]
    differences = union_all(
        [
            plan.pending_entries(begun.relation("pending"), base, changes, sources),
            plan.tombstones(
                # Tombstones of runs before first_seq cannot be checked: their journal rows are
                # deleted.  Changes are those of all runs, because an undo may return an entry that
                # such a run had deleted.
                changes,
                store.relation("tombstones").where(f"run_seq >= {first_seq:d}L"),
            ),
            # Entries that are gone have no journal rows.
            plan.counts(journal, _runs(begun), [kind for kind in COUNTED if kind != Kind.GONE]),
            *generated,
        ]
    )
    for row in differences.order_by("`table`", "what").collect():
        yield _problem(row, is_difference=True)


def _bases(begun: Begun, journal: Relation) -> tuple[Relation, Relation, Sequence[str]]:
    """Return the run that last read each group, the rows that it staged, and the runs whose staged
    rows are missing.

    These runs are snapshots and imports.
    """
    runs = _runs(begun).where(f"command IN ('{SNAPSHOT}', '{IMPORT}')")
    read = journal.where(f"kind = '{Kind.GROUP}'")
    sources = group_sources(begun.relation("groups"), runs.select("run_seq"), read).fetched()
    decided = journal.where(f"kind = '{Kind.RUN}' AND landing IS NOT NULL")
    staged = begun.store.relation("pel_snapshots").sql(
        "SELECT p.*, d.run_seq AS source_seq FROM {this} AS p JOIN {decided} AS d USING (landing)",
        decided=decided.select("landing", "run_seq"),
    )
    gone = plan.incomplete_sources(runs, sources, staged).collect()
    seqs = ", ".join(str(row["run_seq"]) for row in gone) or "-1"
    known = sources.where(f"source_seq NOT IN ({seqs})")
    base = staged.sql(
        f"SELECT b.* FROM {{this}} AS b LEFT SEMI JOIN {{known}} AS k"
        f" USING ({', '.join(GROUP)}, source_seq)",
        known=known,
    )
    return known, base, [FinishedRun.of(row).key for row in gone]


def _runs(begun: Begun) -> Relation:
    """Return the finished runs that were not abandoned."""
    return begun.store.relation("runs").where(f"run_seq < {begun.run_seq:d}L AND {NOT_ABANDONED}")


_NO_BASE = "snapshots or imports whose rows were deleted: their groups cannot be replayed"
_UNFINISHED = "runs are decided and not finished: the next run finishes them first"
_MISSING = (
    "runs whose rows are missing: they were deleted, or the table was restored to an earlier"
    " version"
)
