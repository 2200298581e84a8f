"""A check: what a store's tables lack, before a sweep refuses groups for it.  Reads only."""

from __future__ import annotations

from dataclasses import dataclass

from claimlib.commands.mirror import repairing_sql
from claimlib.plans.checks import FOREIGN_RUNS, TABLES_READ, problems
from claimlib.runs import pinned
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
    begun, unfinished = pinned(store, TABLES_READ)
    tables = {name: begun.read(name) for name in TABLES_READ}
    of_tables = [
        Problem(
            *(row["table"], row["what"], row["refuses"], row["count"], row["example"]),
            remedy=repairing_sql(begun, row["table"]) if row["what"] == FOREIGN_RUNS else None,
        )
        for row in problems(tables, begun.run_seq).collect()
    ]
    if not unfinished:
        return tuple(of_tables)
    last = Problem("journal", _UNFINISHED, False, len(unfinished), unfinished[0].key)
    return (*of_tables, last)


_UNFINISHED = "runs are decided and not finished: the next run finishes them first"
