"""Separate what a mirrored server has pending from what runs have changed in the store."""

from __future__ import annotations

from collections.abc import Mapping

from claimlib.commands.mirror import IMPORT, SNAPSHOT
from claimlib.commands.xpending import Reading
from claimlib.engine.relation import Relation
from claimlib.plans import server_view as plan
from claimlib.runs.rollforward import ABANDONED
from claimlib.schema import Kind
from claimlib.store.tables import Store

_COMMANDS = (SNAPSHOT, IMPORT)


def changes_since_snapshot(at: Reading) -> Relation | None:
    """Return one row per entry that runs changed since its group was read from the server.

    See `plans.server_view.changes_since`.  None if the store mirrors no server.
    """
    runs = at.store.relation("runs").where(f"run_seq <= {at.last_seq:d}")
    if not _mirrors_a_server(runs):
        return None
    read = _group_sources(at, _sources(runs)).fetched()
    journal = at.store.relation("journal").where(f"run_seq > {_first_seq(read):d}")
    return plan.changes_since(journal, read, at.last_seq).reused()


def only_in_store(
    store: Store, run_seq: int, counts: Mapping[str, int]
) -> Mapping[str, int] | None:
    """Return how many entries runs have claimed and deleted in the store only, not on the server.

    The keys are `claimed` and `deleted`.  None if the store mirrors no server.

    Args:
        run_seq, counts: of the last run that counts.
    """
    at = Reading(store, dict(store.pin(("groups",)).versions), run_seq)
    runs = store.relation("runs").where(f"run_seq <= {run_seq:d}")
    if not _mirrors_a_server(runs):
        return None
    first_seq = _first_seq(_group_sources(at, _sources(runs)))
    others = runs.where(f"run_seq > {first_seq:d} AND run_seq <> {run_seq:d}")
    if first_seq < run_seq and not counts.get("lost") and others.is_empty():
        # Nothing else has happened since all groups were read: the run's own counts say it all.
        return {
            name: sum(counts.get(str(kind), 0) for kind in kinds) for name, kinds in _KINDS.items()
        }
    changes = changes_since_snapshot(at)
    if changes is None:
        return None
    rows = changes.sql(
        "SELECT kind, count(*) AS number FROM {this} AS this GROUP BY kind"
    ).collect()
    counted = {row["kind"]: row["number"] for row in rows}
    return {
        name: sum(counted.get(str(kind), 0) for kind in kinds) for name, kinds in _KINDS.items()
    }


_KINDS = {"claimed": (Kind.CLAIMED, Kind.FORCED), "deleted": (Kind.DELETED, Kind.ACKED)}


def as_on_server(at: Reading, changes: Relation) -> Reading:
    """Return the reading with `pending` as the server had it when its groups were read.

    Args:
        changes: `changes_since_snapshot`.
    """
    return at.with_tables(pending=plan.as_on_server(at.read("pending"), changes))


def _mirrors_a_server(runs: Relation) -> bool:
    return not _sources(runs).where(f"command = '{SNAPSHOT}'").is_empty()


def _sources(runs: Relation) -> Relation:
    """Return the snapshots and imports that were not abandoned: run_seq, command."""
    commands = ", ".join(f"'{command}'" for command in _COMMANDS)
    return runs.where(f"command IN ({commands}) AND counts['{ABANDONED}'] IS NULL").select(
        "run_seq", "command"
    )


def _first_seq(read: Relation) -> int:
    """Return the first of the runs that read the groups."""
    (row,) = read.select("min(source_seq) AS first_seq").collect()
    return row["first_seq"] or 0


def _group_sources(at: Reading, sources: Relation) -> Relation:
    groups = at.read("groups")
    read = at.store.relation("journal").where(f"kind = '{Kind.GROUP}'")
    of_others = groups.sql(
        "SELECT 1 AS one FROM {this} AS this LEFT ANTI JOIN {sources} AS sources USING (run_seq)",
        sources=sources,
    )
    if of_others.is_empty():
        read = read.limit(0)  # nobody has written a group after it was read
    read = read.sql(
        "SELECT this.* FROM {this} AS this LEFT SEMI JOIN {sources} AS sources USING (run_seq)",
        sources=sources,
    )
    return plan.group_sources(groups, sources, read)
