"""A check: what a store's tables lack, before a sweep refuses groups for it.  Reads only."""

from __future__ import annotations

from dataclasses import dataclass

from claimlib.commands.runs import list_runs
from claimlib.plans.findings import TABLES_READ, findings
from claimlib.store import Store


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a table lacks.

    Attributes:
        table: of which table.
        what: what is wrong, in the words of a sweep's refusals.
        refuses: whether a sweep refuses groups for it, or cannot use the table; else a remark.
        count: how many rows, keys, groups, owners or runs, as `what` says.
        example: one of them.
    """

    table: str
    what: str
    refuses: bool
    count: int
    example: str


def check(store: Store) -> tuple[Finding, ...]:
    """What is found in a store, the worst first; empty: all is sound."""
    found = findings({name: store.read(name) for name in TABLES_READ}).collect()
    of_tables = [
        Finding(row["table"], row["what"], row["refuses"], row["count"], row["example"])
        for row in found
    ]
    unfinished = list_runs(store, 1).unfinished
    if not unfinished:
        return tuple(of_tables)
    last = Finding("journal", _UNFINISHED, False, len(unfinished), unfinished[0])
    return (*of_tables, last)


_UNFINISHED = "runs are decided and not finished: the next run does it"
