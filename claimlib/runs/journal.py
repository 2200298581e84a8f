"""Read the decision of a run from the journal.

A decision is one `run` row and rows of other kinds, which one commit appends.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import zip_longest
from typing import Any

from pyspark.sql import Row

from claimlib.engine.relation import IdBounds, Relation
from claimlib.errors import VerificationError
from claimlib.plans.differences import Digest
from claimlib.plans.journal_rows import ADDED, REMOVED, UPDATED, of_kinds
from claimlib.schema import Kind
from claimlib.store.local import Condition, Token
from claimlib.store.lookups import find
from claimlib.store.replaced_tables import Seen
from claimlib.store.tables import Pins, Store

# All kinds of runs on a store share one transaction id, which serializes them.
APP_ID = "claimlib"
# The start of the user metadata of a run's commits.  The number of the run follows.
NOTE = "claimlib run"
# The `lost` rows of a run have their own transaction id.  Under APP_ID Delta would skip them as a
# repeat of the decision.
LOST_APP_ID = "claimlib-lost"


# The kinds for rows of `pending` that get a new state, and for rows that are deleted.  A row is
# changed only if it still has the state that the decision found.
UPDATING = (*UPDATED, Kind.PENDING_REPLACED)
DELETING = (*REMOVED, Kind.PENDING_REMOVED)
TOUCHING = (*UPDATING, *DELETING)
# The kinds that a run's report counts.  Rows of the other kinds have values of consumers, groups,
# streams and cursors, or are counted elsewhere (`lost`, `retired`).
COUNTED = tuple(
    kind
    for kind in Kind
    if kind
    not in {
        Kind.RUN,
        Kind.LOST,
        Kind.CONSUMER,
        Kind.LASTID,
        Kind.RETIRED,
        Kind.GROUP,
        Kind.STREAM,
        Kind.CONSUMER_BEFORE,
        Kind.CURSOR_BEFORE,
        Kind.GROUP_BEFORE,
        Kind.CONSUMER_RESTORED,
        Kind.CURSOR_RESTORED,
        Kind.GROUP_RESTORED,
    }
)


@dataclass(frozen=True, slots=True)
class Staged:
    """Describe the rows that were staged for a decision, and the store after it is applied.

    Attributes:
        uuid: the value of `landing` in the staged rows of `pel_snapshots` and `entry_landing`.
        versions: the versions of these two tables, right after the last row was staged.
        pending, entries: the digests of the staged rows.
        small: the numbers of groups, consumers and streams that were read, by table.  They are
            stored as rows of the journal.
        pending_after, entries_after: the digests of the store's rows in the scope of the request,
            after the run is applied.
    """

    uuid: str
    versions: Mapping[str, int]
    pending: Digest
    entries: Digest
    small: Mapping[str, int]
    pending_after: Digest
    entries_after: Digest

    @classmethod
    def of(cls, uuid: str, stated: Mapping[str, Any]) -> Staged:
        """Return the description that the `run` row of a decision contains."""
        digests = {name: Digest(*stated[name]) for name in _DIGESTS}
        return cls(uuid, stated["versions"], small=stated["small"], **digests)

    def as_json(self) -> dict[str, object]:
        """Return the description as the journal stores it, without the uuid."""
        digests = {name: getattr(self, name).as_json() for name in _DIGESTS}
        return {"versions": dict(self.versions), "small": dict(self.small), **digests}


_DIGESTS = ("pending", "entries", "pending_after", "entries_after")


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """Hold the ids of the server process that a snapshot read, and of its replication history.

    For a cluster each attribute has the ids of all masters, separated by spaces
    (`live.batches.SourceOpened`).

    Attributes:
        run_id: the id that a server generates when it starts.  None if unknown.
        replication_id: the id of the replication history that the server continues.  None if
            unknown.
        former_replication_id: the id of the history that the server continued before, for example
            as a replica.  None if there was none, or if it is unknown.  The journal does not store
            this id.
    """

    run_id: str | None = None
    replication_id: str | None = None
    former_replication_id: str | None = field(default=None, compare=False)

    @property
    def _ids(self) -> tuple[str | None, ...]:
        return (self.run_id, self.replication_id, self.former_replication_id)

    def proof_of(self, earlier: ServerIdentity) -> ServerProof | None:
        """Return the proof that this is the server of an earlier reading, or None without a proof.

        In a cluster each master must be proven.
        """
        run_ids, replication_ids = map(_split_ids, (earlier.run_id, earlier.replication_id))
        nodes = list(zip_longest(*map(_split_ids, self._ids)))
        if nodes and all(run_id in run_ids for run_id, _, _ in nodes):
            return ServerProof.RUN_ID
        are_proven = (
            run_id in run_ids or not {*histories}.isdisjoint(replication_ids)
            for run_id, *histories in nodes
        )
        return ServerProof.REPLICATION_ID if nodes and all(are_proven) else None

    def with_missing(self, earlier: ServerIdentity, number: int) -> ServerIdentity:
        """Return the ids of the masters that were read and of the masters that do not answer.

        A later proof needs both, because the store still has the streams of all these masters.

        Args:
            earlier: the ids of the last snapshot.
            number: the number of masters that do not answer.  If `earlier` has a different number
                of masters that were not read, it is unknown which masters do not answer.  Then the
                identity is returned unchanged.
        """
        nodes = list(zip(*map(_split_ids, self._ids), strict=False))
        known = {id_ for node in nodes for id_ in node}
        earlier_nodes = zip(
            *map(_split_ids, (earlier.run_id, earlier.replication_id)), strict=False
        )
        missing = [(*node, _NO_ID) for node in earlier_nodes if known.isdisjoint(node)]
        if not nodes or len(missing) != number:
            return self
        columns = zip(*sorted([*nodes, *missing]), strict=True)
        return ServerIdentity(*map(" ".join, columns))


# The former replication id of a master that has none (`live.batches.SourceOpened`).
_NO_ID = "-"


def _split_ids(ids: str | None) -> list[str]:
    """Return the ids of the masters of a cluster, or the id of a single server.  Empty if None."""
    return [] if ids is None else ids.split()


class ServerProof(StrEnum):
    """Name the proofs that a server is the server of an earlier reading.

    The counts of a run have these names.
    """

    RUN_ID = "same_run_id"
    REPLICATION_ID = "same_replication_id"


@dataclass(frozen=True, slots=True)
class RunRow:
    """Hold the `run` row of one decision.

    The row has the key and the request of the run, and the versions that the run read.

    Attributes:
        attempt: a uuid that differs for each attempt to write a decision.
        pins: the versions that the run read.
        has_previous: False if an earlier version of claimlib wrote the decision.  Then the decision
            does not have the earlier values of consumers, cursors and groups.
    """

    run_seq: int
    command: str
    run_id: str
    attempt: str
    request: str
    request_hash: str
    staged: Staged | None
    now_ms: int | None
    source: str | None
    server: ServerIdentity
    pins: Pins
    counts: Mapping[str, int]
    began_ms: int | None = None
    has_previous: bool = True

    @property
    def key(self) -> str:
        """Return the name of the run in messages."""
        return f"{self.command}:{self.run_id}"

    @property
    def is_mirror(self) -> bool:
        """Return True if the run makes the store equal to a source: a snapshot or an import."""
        return self.staged is not None

    @property
    def seen(self) -> Seen:
        """Return the versions from which the run was decided."""
        return Seen(self.run_seq, self.pins.versions)

    @property
    def note(self) -> str:
        """Return the user metadata of the run's commits."""
        return f"{NOTE} {self.run_seq} {self.key}"

    @property
    def token(self) -> Token:
        """Return the token by which Delta accepts each of the run's commits only once."""
        return Token(APP_ID, self.run_seq)

    @classmethod
    def of(cls, row: Row | Mapping[str, Any]) -> RunRow:
        """Return the run of a journal row of kind `run`."""
        inputs = json.loads(row["inputs"])
        return cls(
            run_seq=row["run_seq"],
            command=row["command"],
            run_id=row["run_id"],
            attempt=row["attempt"],
            request=row["request"],
            request_hash=row["request_hash"],
            staged=row["landing"] and Staged.of(row["landing"], inputs["staged"]),
            now_ms=row["now_ms"],
            source=row["source"],
            server=ServerIdentity(**inputs["server"]),
            pins=Pins(versions=inputs["versions"], table_ids=inputs["table_ids"]),
            counts=inputs["counts"],
            began_ms=inputs.get("began_ms"),
            has_previous=inputs.get("has_previous", False),
        )

    def values(self) -> dict[str, object]:
        """Return the values that the journal stores, by column."""
        inputs = {
            "versions": dict(self.pins.versions),
            "table_ids": dict(self.pins.table_ids),
            "staged": self.staged and self.staged.as_json(),
            "server": {
                "run_id": self.server.run_id,
                "replication_id": self.server.replication_id,
            },
            "counts": dict(self.counts),
            "began_ms": self.began_ms,
            "has_previous": self.has_previous,
        }
        return {
            "run_seq": self.run_seq,
            "kind": str(Kind.RUN),
            "command": self.command,
            "run_id": self.run_id,
            "attempt": self.attempt,
            "landing": self.staged and self.staged.uuid,
            "request": self.request,
            "request_hash": self.request_hash,
            "now_ms": self.now_ms,
            "source": self.source,
            "inputs": json.dumps(inputs, sort_keys=True),
        }


@dataclass(frozen=True, slots=True)
class Decided:
    """Hold the rows of a run's decision in the journal.

    Attributes:
        row: the decision's `run` row.
        journal: the journal rows of the run.  The rows of a small run are usually in the driver's
            memory.
        counts: the number of rows of each kind.
        pending, entries: the bounds of the ids of the rows that the run changes in these tables.
    """

    row: RunRow
    journal: Relation
    counts: Mapping[str, int]
    pending: IdBounds
    entries: IdBounds

    def of(self, *kinds: Kind) -> int:
        """Return the number of journal rows of some kinds."""
        return sum(self.counts.get(str(kind), 0) for kind in kinds)

    def rows(self, *kinds: Kind) -> Relation:
        """Return the journal rows of some kinds."""
        return self.journal.where(of_kinds(*kinds))


_IS_DECISION = Condition("kind", str(Kind.RUN))


def run_in_note(note: str | None) -> int | None:
    """Return the run_seq that the user metadata of a commit names, or None if it names none."""
    match = re.match(rf"{NOTE} (\d+) ", note or "")
    return None if match is None else int(match[1])


def run_rows(store: Store, after_seq: int) -> list[RunRow]:
    """Return the `run` rows of the decisions after run `after_seq`, in order."""
    later = Condition("run_seq", after_seq, is_above=True)
    rows = find(store, "journal", _IS_DECISION, later)
    return sorted(map(RunRow.of, rows), key=lambda run: run.run_seq)


def rows_of(store: Store, run_seq: int, *kinds: Kind) -> Relation:
    """Return the journal rows of one run that have one of some kinds.

    Reading them scans the journal, except for files that statistics exclude.
    """
    return _of_run(store, run_seq).where(of_kinds(*kinds))


def _of_run(store: Store, run_seq: int) -> Relation:
    return store.relation("journal").of_runs(run_seq, run_seq)


def decided_by(store: Store, run_seq: int) -> Decided:
    """Return the decision of a run, which must exist.

    Raises:
        VerificationError: the journal has no `run` row of this run, or several.
    """
    decided = find_decided(store, run_seq)
    if decided is None:
        raise _number_error(0, run_seq)
    return decided


def find_decided(store: Store, run_seq: int) -> Decided | None:
    """Return the decision of a run, or None if the journal has none.

    If the run is small, one query brings all its rows to the driver.  If it is large, the driver
    gets at most one row per kind and bucket, besides the `run` row.

    Raises:
        VerificationError: the journal has several `run` rows of this run.
    """
    journal = _of_run(store, run_seq).reused()
    counted = journal.sql(
        "SELECT kind, bucket, count(*) AS n, min(id_ms) AS low, max(id_ms) AS high"
        " FROM {this} AS this GROUP BY kind, bucket"
    )
    decisions, summed = journal.where(of_kinds(Kind.RUN)), counted.collect()
    return _build_decided(_single_run_row(decisions.collect(), run_seq), journal, summed)


def _single_run_row(decisions: Sequence[Mapping[str, Any]], run_seq: int) -> RunRow | None:
    if len(decisions) > 1:
        raise _number_error(len(decisions), run_seq)
    return RunRow.of(decisions[0]) if decisions else None


def _number_error(number: int, run_seq: int) -> VerificationError:
    return VerificationError(
        f"the table journal has {number} rows of kind run for run {run_seq}, but a run"
        " writes exactly one: was the table copied from another store, or were rows deleted?"
        " Correct the table, and start the run again",
        table="journal",
        run_seq=run_seq,
    )


def _build_decided(
    row: RunRow | None, journal: Relation, counted: Sequence[Mapping[str, Any]]
) -> Decided | None:
    """Build a decision from its journal rows, or return None if `row` is None.

    Args:
        counted: the number of rows, and the smallest and the largest id_ms, per kind and bucket.
    """
    if row is None:
        return None
    counts: Counter[str] = Counter()
    for row_count in counted:
        counts[row_count["kind"]] += row_count["n"]
    return Decided(
        row,
        journal,
        counts,
        pending=_bounds(counted, (*TOUCHING, *ADDED)),
        entries=_bounds(counted, (Kind.ENTRY_FILLED, Kind.ENTRY_REMOVED)),
    )


def _bounds(counted: Sequence[Mapping[str, Any]], kinds: Collection[Kind]) -> IdBounds:
    """Return the smallest and the largest id_ms of the rows of some kinds, per bucket."""
    bounds: dict[int, tuple[int, int]] = {}
    for row in counted:
        if row["kind"] in kinds:
            low, high = bounds.get(row["bucket"], (row["low"], row["high"]))
            bounds[row["bucket"]] = (min(low, row["low"]), max(high, row["high"]))
    return IdBounds(tuple((bucket, *bounds[bucket]) for bucket in sorted(bounds)))
