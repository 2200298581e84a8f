"""Apply XAUTOCLAIM to a store.

Every entry of every requested group is deleted, claimed or left.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyspark.sql import DataFrame

from claimlib.commands.preconditions import check_ms
from claimlib.commands.reply import Call, Reply, answer
from claimlib.commands.sweep_decision import decide
from claimlib.commands.sweep_request import Policy, SweepRequest, as_json, checked
from claimlib.engine.relation import Relation
from claimlib.plans import requests
from claimlib.plans.keys import GROUP
from claimlib.runs import Begun, Decision, Progress
from claimlib.store.tables import Store

__all__ = ["COMMAND", "SweepRequest", "explain", "xautoclaim"]

COMMAND = "xautoclaim"
EXPLAINED_COLUMNS = (*requests.REQUEST_COLUMNS, *requests.ASSIGNMENT, "request")
"""List the columns of `explain`, in order."""


def explain(store: Store, policy: Sequence[SweepRequest]) -> Relation:
    """Return the request that applies to each group, without changing anything.

    There is one row per (stream, consumer_group) of the store.  Columns: `request`, and the columns
    `plans.requests.REQUEST_COLUMNS` and `ASSIGNMENT` of the request.  `request` is the number of
    the request in the policy, from 1.  The columns are None if no request matches.
    """
    groups = store.relation("groups").select(*GROUP)
    matched = requests.by_policy(groups, [request.rule() for request in policy])
    return matched.select(*EXPLAINED_COLUMNS)


def xautoclaim(
    store: Store,
    request: SweepRequest | Policy | DataFrame,
    *,
    run_id: str | None = None,
    now_ms: int | None = None,
    dry_run: bool = False,
    allow_none: bool = True,
    progress: Progress | None = None,
) -> Reply:
    """Apply XAUTOCLAIM's semantics to every requested (stream, consumer_group), in one run.

    For each group, this does what Redis' documentation of the command states and Valkey 9.1 does.
    Entries that their stream no longer has leave the PEL, and become tombstones.  Entries that are
    idle enough go to the request's consumer.  The other entries stay.

    Args:
        request: one request with globs, or a policy of several requests.  The first request that
            matches a group applies.  It can also be a table (a DataFrame or a relation) with one
            row per (stream, consumer_group) and the columns of `plans.requests.REQUEST_COLUMNS`.
        run_id: identifies the run, together with the command.  A repeat with the same run id
            changes nothing.
        now_ms: the time for all groups, ms since the epoch.  None means the time of each group's
            snapshot.
        dry_run: True to decide, but write nothing.
        allow_none: True to accept globs that match no group.  False to raise an error then, and
            write nothing.
        progress: called as each phase begins, and again with each new detail.

    Raises:
        RequestError: the request cannot be used, or matches no group although allow_none is False.
        RunKeyConflictError, LostRaceError: see `runs.run`.
        UnfinishedRunError: in a dry run, an earlier run is not yet applied.
    """
    check_ms(now_ms=now_ms)
    policy = checked(store.relation_of(request) if isinstance(request, DataFrame) else request)

    def decide_sweep(begun: Begun, *, refuse_duplicates: bool) -> Decision:
        return decide(
            begun, policy, now_ms, refuse_duplicates=refuse_duplicates, allow_none=allow_none
        )

    call = Call(run_id, now_ms, dry_run, progress)
    return answer(Reply, store, COMMAND, partial(as_json, policy), decide_sweep, call)
