"""Find replaced tables, which are at an earlier version than a run has seen.

A user has dropped such a table and created it again, or has put an older copy in its place.  Rows
that the table lacks would seem to be deleted on purpose.  For example, entries that `entries` lacks
would count as deleted.  So runs refuse the table until `init` has accepted it as it is.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from claimlib.errors import SchemaError

ACCEPTED_PROPERTY = "claimlib.acceptedTables"
"""A property of `streams`: the tables that `init` has accepted (`Accepted`), as JSON."""
PROVING = frozenset({"entries", "streams"})
"""If one of these tables was replaced, no proof that an entry was deleted is valid."""


@dataclass(frozen=True, slots=True)
class Seen:
    """State the versions of tables that a run has seen.

    For a finished run, they are the versions right after the run.  For an unfinished run, they are
    the versions from which the run was decided.
    """

    run_seq: int
    versions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Accepted:
    """State the tables that `init` has accepted.

    Attributes:
        after: the number of the last run that was decided before `init` accepted tables.  0 if
            `init` has never accepted a table.
        versions: the versions of all tables when `init` accepted tables.
    """

    after: int = 0
    versions: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Accepted:
        """Return the accepted tables that the properties of `streams` name."""
        text = properties.get(ACCEPTED_PROPERTY)
        return cls() if text is None else cls(**json.loads(text))

    def properties(self) -> dict[str, str]:
        """Return the accepted tables as properties of `streams`, or {} if there are none."""
        if not self.after:
            return {}
        value = {"after": self.after, "versions": dict(self.versions)}
        return {ACCEPTED_PROPERTY: json.dumps(value)}

    def seen_by(self, run: Seen) -> Mapping[str, int]:
        """Return the versions that the tables must have at least, because of a run.

        If `init` accepted tables after the run, the accepted versions replace those of the run.
        """
        return self.versions if run.run_seq <= self.after else run.versions


def find_replaced(
    versions: Mapping[str, int], runs: Iterable[Seen], accepted: Accepted
) -> dict[str, str]:
    """Return the replaced tables, each with a text that names a version that a run has used.

    Args:
        versions: the versions of the tables now.
        runs: the newest finished run, and all unfinished runs.
        accepted: the tables that `init` has accepted.
    """
    return {
        table: f"at version {versions[table]}, but run {run.run_seq} has used version {seen}"
        for run in runs
        for table, seen in accepted.seen_by(run).items()
        if table in versions and versions[table] < seen
    }


def error_of(where: str, older: Mapping[str, str]) -> SchemaError:
    """Return the error for replaced tables.

    Args:
        older: the result of `find_replaced`.
    """
    listed = "; ".join(f"{table} is {versions}" for table, versions in older.items())
    proofs = (
        "; its entries then do not count as complete, and sweeps refuse its groups until the next"
        " snapshot or import"
    )
    return SchemaError(
        f"tables of {where} are at earlier versions than runs have used ({listed}): they were"
        " dropped and created again, or replaced by older copies, so that rows are missing."
        " Nothing more was done. Put the original tables back; if you no longer have them, claimlib"
        f" init {shlex.quote(where)} --accept-replaced accepts the present ones"
        f"{proofs if PROVING & {*older} else ''}",
        table=next(iter(older)),
    )
