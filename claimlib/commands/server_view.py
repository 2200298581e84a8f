"""Separate the pending entries of a mirrored server from the changes of runs in the store."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow.compute as pc

from claimlib.commands.mirror import IMPORT, SNAPSHOT
from claimlib.commands.xpending import Reading
from claimlib.engine.relation import Relation
from claimlib.errors import RequestError
from claimlib.plans import server_view_plan as plan
from claimlib.plans.keys import is_group
from claimlib.runs.maintenance import deleted_part_with_run, first_complete_run
from claimlib.runs.rollforward import NOT_ABANDONED
from claimlib.schema import Kind
from claimlib.semantics.names import spell
from claimlib.store.tables import Store


def changes_since_snapshot(at: Reading, key: tuple[bytes, bytes] | None = None) -> Relation | None:
    """Return one row per entry that runs changed since its group was read from the server.

    The columns are those of `plans.server_view_plan.changes_since`.  The result is None if the
    store mirrors no server.

    Args:
        key: the stream and the group.  None for all groups.

    Raises:
        RequestError: journal rows that the comparison needs were deleted.
    """
    read = sources_of_groups(at)
    if read is None:
        return None
    if key is not None:
        read = read.where(is_group(*map(spell, key))).fetched()
    first_seq = _first_seq(read)
    needs_rows = first_seq < at.last_seq and not read.is_empty()
    deleted = deleted_part_with_run(at.store, first_seq + 1) if needs_rows else None
    if deleted is not None:
        raise RequestError(
            f"the store after run {at.last_seq} cannot be compared with the server, because run"
            f" {deleted.run} deleted journal rows that were older than --keep-history. The journal"
            f" is complete from run {first_complete_run(deleted)} on. Leave out --as-of, or give it"
            " a later run",
        )
    return changes_since(at, read)


def changes_since(at: Reading, read: Relation) -> Relation:
    """Return `plans.server_view_plan.changes_since` for the store of a reading.

    Args:
        read: `sources_of_groups`.
    """
    journal = at.store.relation("journal").of_runs(_first_seq(read) + 1)
    return plan.changes_since(journal, read, at.last_seq).reused()


def only_in_store(
    store: Store, run_seq: int, counts: Mapping[str, int]
) -> Mapping[str, int] | None:
    """Return the numbers of entries that runs changed in the store, but not on the server.

    The keys are `claimed`, `restored` (an undo gave the entries back to their earlier owners, or
    made them pending again) and `deleted`.  The result is None if the store mirrors no server.

    Args:
        run_seq, counts: the number and the counts of the last run that is considered.
    """
    at = Reading(store, dict(store.pin(("groups",)).versions), run_seq)
    read = sources_of_groups(at)
    if read is None:
        return None
    runs = _runs(at)
    first_seq = _first_seq(read)
    others = runs.where(f"run_seq > {first_seq:d}L AND run_seq <> {run_seq:d}L")
    # If this run alone has changed entries since the groups were read, its own counts are right.
    # Otherwise the changes must be counted.
    if first_seq >= run_seq or counts.get("lost") or not others.is_empty():
        by_kind = changes_since(at, read).sql(
            "SELECT kind, count(*) AS number FROM {this} AS this GROUP BY kind"
        )
        counts = {row["kind"]: row["number"] for row in by_kind.collect()}
    return {
        name: sum(counts.get(str(kind), 0) for kind in kinds)
        for name, kinds in _KINDS_BY_COUNT.items()
    }


_KINDS_BY_COUNT = {
    "claimed": (Kind.CLAIMED, Kind.FORCED),
    "restored": (Kind.RESTORED, Kind.RETURNED),
    "deleted": (Kind.DELETED, Kind.ACKED, Kind.WITHDRAWN),
}


def as_on_server(at: Reading, changes: Relation) -> Reading:
    """Return the reading with `pending` as the server had it when its groups were read.

    Args:
        changes: `changes_since_snapshot`.
    """
    return at.with_tables(pending=plan.as_on_server(at.read("pending"), changes))


def _runs(at: Reading) -> Relation:
    return at.store.relation("runs").where(f"run_seq <= {at.last_seq:d}L")


def _first_seq(read: Relation) -> int:
    """Return the number of the first run that read one of the groups, or 0 if there is no group.

    Args:
        read: `sources_of_groups`.
    """
    return pc.min(read.arrow()["source_seq"]).as_py() or 0


def sources_of_groups(at: Reading) -> Relation | None:
    """Return `plans.server_view_plan.group_sources`, or None if the store mirrors no server."""
    sources = (
        _runs(at)
        .where(f"command IN ('{SNAPSHOT}', '{IMPORT}') AND {NOT_ABANDONED}")
        .select("run_seq", "command")
    )
    if sources.where(f"command = '{SNAPSHOT}'").is_empty():
        return None
    groups = at.read("groups")
    read = at.store.relation("journal").where(f"kind = '{Kind.GROUP}'")
    written_by_claims = groups.sql(
        "SELECT 1 AS one FROM {this} AS this LEFT ANTI JOIN {sources} AS sources USING (run_seq)",
        sources=sources,
    )
    if written_by_claims.is_empty():
        read = read.limit(0)  # each row of `groups` names its source, so the journal is not needed
    return plan.group_sources(groups, sources, read).fetched()
