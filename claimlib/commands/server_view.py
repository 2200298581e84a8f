"""Separate what a mirrored server has pending from what runs have changed in the store."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from claimlib.commands.mirror import IMPORT, SNAPSHOT
from claimlib.commands.xpending import Reading
from claimlib.plans import server_view as plan
from claimlib.runs.rollforward import ABANDONED
from claimlib.schema import Kind
from claimlib.store.local import Condition
from claimlib.store.tables import Store

_COMMANDS = (SNAPSHOT, IMPORT)


def changes_since_snapshot(at: Reading) -> DataFrame | None:
    """Return one row per entry that runs changed since its group was read from the server.

    See `plans.server_view.changes_since`.  None if the store mirrors no server.
    """
    runs = at.store.now("runs").where(f"run_seq <= {at.last_seq:d}")
    if not _mirrors_a_server(runs):
        return None
    sources = _sources(runs)
    read = at.store.held(_group_sources(at, sources))
    first_seq = _first_seq(read)
    journal = at.store.now("journal", Condition("run_seq", first_seq, is_above=True))
    return at.store.few_or_all(plan.changes_since(journal, read, at.last_seq))


def only_in_store(
    store: Store, run_seq: int, counts: Mapping[str, int]
) -> Mapping[str, int] | None:
    """Return how many entries runs have claimed and deleted in the store only, not on the server.

    The keys are `claimed` and `deleted`.  None if the store mirrors no server.

    Args:
        run_seq, counts: of the last run that counts.
    """
    at = Reading(store, dict(store.pin(("groups",)).versions), run_seq)
    runs = store.now("runs").where(f"run_seq <= {run_seq:d}")
    if not _mirrors_a_server(runs):
        return None
    first_seq = _first_seq(store.held(_group_sources(at, _sources(runs))))
    others = runs.where(f"run_seq > {first_seq:d} AND run_seq <> {run_seq:d}")
    if first_seq < run_seq and not counts.get("lost") and others.isEmpty():
        # Nothing else has happened since all groups were read: the run's own counts say it all.
        return {
            name: sum(counts.get(str(kind), 0) for kind in kinds) for name, kinds in _KINDS.items()
        }
    changes = changes_since_snapshot(at)
    if changes is None:
        return None
    counted = {row["kind"]: row["count"] for row in changes.groupBy("kind").count().collect()}
    return {
        name: sum(counted.get(str(kind), 0) for kind in kinds) for name, kinds in _KINDS.items()
    }


_KINDS = {"claimed": (Kind.CLAIMED, Kind.FORCED), "deleted": (Kind.DELETED, Kind.ACKED)}


def as_on_server(at: Reading, changes: DataFrame) -> Reading:
    """Return the reading with `pending` as the server had it when its groups were read.

    Args:
        changes: `changes_since_snapshot`.
    """
    return at.with_pending(plan.as_on_server(at.read("pending"), changes))


def _mirrors_a_server(runs: DataFrame) -> bool:
    return not _sources(runs).where(F.col("command") == SNAPSHOT).isEmpty()


def _sources(runs: DataFrame) -> DataFrame:
    """Return the snapshots and imports that were not abandoned: run_seq, command."""
    is_source = F.col("command").isin(*_COMMANDS) & F.col("counts")[ABANDONED].isNull()
    return runs.where(is_source).select("run_seq", "command")


def _first_seq(read: DataFrame) -> int:
    """Return the first of the runs that read the groups."""
    first = read.agg(F.min("source_seq")).first()
    return 0 if first is None else first[0] or 0


def _group_sources(at: Reading, sources: DataFrame) -> DataFrame:
    groups = at.read("groups")
    read = at.store.rows("journal", [], ["stream", "consumer_group", "run_seq"])
    if not groups.join(sources, on="run_seq", how="left_anti").isEmpty():
        read = at.store.now("journal", Condition("kind", str(Kind.GROUP)))
        read = read.join(sources, on="run_seq", how="left_semi")
    return plan.group_sources(groups, sources, read)
