"""A check: what a store's tables lack, before a sweep refuses groups for it.  Reads only."""

from __future__ import annotations

from dataclasses import dataclass, replace

from claimlib.commands.mirror import repairing_sql
from claimlib.errors import DamagedTableError
from claimlib.plans.checks import FOREIGN_RUNS, TABLES_READ, problems
from claimlib.runs import pinned
from claimlib.runs.known import find_missing_rows
from claimlib.store.opening import in_session
from claimlib.store.tables import Store


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that a table lacks.

    Attributes:
        table: of which table.
        what: what is wrong, in the words of a sweep's refusals.
        refuses: whether a sweep refuses groups for it, or cannot use the table; else a remark.
        count: how many rows, keys, groups, owners or runs, as `what` says.
        example: one of them.
        remedy: the statement that repairs it; null: there is no single one.
    """

    table: str
    what: str
    refuses: bool
    count: int
    example: str
    remedy: str | None = None


def check(store: Store) -> tuple[Problem, ...]:
    """What is found in a store, the worst first; empty: all is sound.  Of one moment: a run that is
    decided while the tables are looked at makes it look again."""
    try:
        return _problems(store)
    except DamagedTableError:
        if not store.is_embedded:
            raise
        # A text that is not UTF-8 is one of the problems.  Only Spark reads it.
        return _problems(in_session(store))


def _problems(store: Store) -> tuple[Problem, ...]:
    begun, unfinished = pinned(store, TABLES_READ)
    missing = find_missing_rows(store)
    # Numbers of runs whose decision is missing are not those of another store.
    highest = max((of_table.runs[-1] for of_table in missing), default=0)
    begun = replace(begun, run_seq=max(begun.run_seq, highest + 1))
    tables = {name: begun.relation(name) for name in TABLES_READ}
    listed = [
        Problem(
            *(of_table.table, _MISSING, True, len(of_table.runs), of_table.example, of_table.remedy)
        )
        for of_table in missing
    ]
    listed += [
        Problem(
            *(row["table"], row["what"], row["refuses"], row["count"], row["example"]),
            remedy=repairing_sql(begun, row["table"]) if row["what"] == FOREIGN_RUNS else None,
        )
        for row in problems(tables, begun.run_seq).collect()
    ]
    if unfinished:
        listed.append(Problem("journal", _UNFINISHED, False, len(unfinished), unfinished[0].key))
    return tuple(listed)


_UNFINISHED = "runs are decided and not finished: the next run finishes them first"
_MISSING = (
    "runs whose rows are missing: they were deleted, or the table was restored to an earlier"
    " version"
)
