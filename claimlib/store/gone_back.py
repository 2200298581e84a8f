"""Tables that have gone back: they are at an earlier version than a run has seen.

Somebody has dropped such a table and created it again, or has put an older copy in its place.  What
it lacks would be taken for somebody's wish: of `entries`, for entries that were deleted.  So runs
refuse it until `init` has accepted it as it is.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from claimlib.errors import SchemaError

ACCEPTED_PROPERTY = "claimlib.acceptedTables"
"""Of `streams`: what `init` has accepted (`Accepted`), as JSON."""
PROVING = frozenset({"entries", "streams"})
"""Where one of these has gone back, no proof of absence holds."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Which versions of tables a run has seen: those right after it; of one that is decided and not
    finished, those that it was decided from."""

    run_seq: int
    versions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Accepted:
    """What `init` has accepted.

    Attributes:
        after: the last run that was decided by then; 0: it never has.
        versions: those of all tables then.
    """

    after: int = 0
    versions: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Accepted:
        """Return what the properties of `streams` say."""
        text = properties.get(ACCEPTED_PROPERTY)
        return cls() if text is None else cls(**json.loads(text))

    def properties(self) -> dict[str, str]:
        """Return the same, as properties of `streams`: none, if nothing was accepted."""
        if not self.after:
            return {}
        said = {"after": self.after, "versions": dict(self.versions)}
        return {ACCEPTED_PROPERTY: json.dumps(said)}

    def seen_by(self, run: Seen) -> Mapping[str, int]:
        """Return what a run has seen of the tables as they are now."""
        return self.versions if run.run_seq <= self.after else run.versions


def gone_back(
    versions: Mapping[str, int], runs: Iterable[Seen], accepted: Accepted
) -> dict[str, str]:
    """Return the tables that have gone back, each with what a run has seen of it, in words.

    Args:
        versions: those of tables now.
        runs: the newest finished run, and all that are not finished.
        accepted: what `init` has accepted.
    """
    return {
        table: f"at version {versions[table]}, but run {run.run_seq} has used version {seen}"
        for run in runs
        for table, seen in accepted.seen_by(run).items()
        if table in versions and versions[table] < seen
    }


def error_of(where: str, older: Mapping[str, str]) -> SchemaError:
    """Return the error of tables that have gone back."""
    said = "; ".join(f"{table} is {what}" for table, what in older.items())
    proofs = (
        "; its entries then do not count as complete, and sweeps refuse its groups until the next"
        " snapshot or import"
    )
    return SchemaError(
        f"tables of {where} are at earlier versions than runs have used ({said}): they were dropped"
        " and created again, or replaced by older copies, so that rows are missing. Nothing more"
        " was done. Put the original tables back; if you no longer have them, claimlib init"
        f" {shlex.quote(where)} --accept-replaced accepts the present ones"
        f"{proofs if PROVING & {*older} else ''}",
        table=next(iter(older)),
    )
