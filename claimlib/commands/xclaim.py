"""Apply XCLAIM to a store: any number of requests, each for ids of one group, in one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from claimlib.commands.bulk import BulkRequests, decide, known, table_of
from claimlib.commands.bulk_reply import BulkReply
from claimlib.commands.preconditions import check_ms
from claimlib.commands.reply import Call, answer
from claimlib.commands.sharing import Sharing
from claimlib.engine.relation import Executor, Relation
from claimlib.errors import RequestError
from claimlib.plans import bulk_plan as bulk
from claimlib.plans.bulk_plan import CLAIM_COLUMNS, CLAIMS
from claimlib.runs import Begun, Decision, Progress
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import ClaimRequest
from claimlib.semantics.names import spell
from claimlib.store.tables import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COMMAND = "xclaim"


@dataclass(frozen=True, slots=True)
class NamedClaim:
    """State one XCLAIM: the stream, the group and the request.

    Examples:
        >>> claim = ClaimRequest(b"alice", min_idle_ms=0, ids=(parse_id("5-3"),))
        >>> NamedClaim(b"orders", b"workers", claim).claim.consumer
        b'alice'
    """

    stream: bytes
    group: bytes
    claim: ClaimRequest


def xclaim(
    store: Store,
    requests: Sequence[NamedClaim] | Relation | DataFrame,
    *,
    sharing: Sharing | None = None,
    run_id: str | None = None,
    now_ms: int | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> BulkReply:
    """Do XCLAIMs one after the other, all at the same time of the clock.

    This does what Redis' documentation of the command states and Valkey 9.1 does.  An id that the
    stream no longer has leaves the PEL, and becomes a tombstone.  An id that is idle enough, or has
    no owner, goes to the request's consumer.  An id that is not pending is skipped.  With FORCE, it
    is made pending first.  Several requests may name an id.  Each request finds the result of the
    request before it.

    The reply names the groups that are refused.  The requests for other groups are done.  A group
    is refused in these cases:

    - It is unknown, or has no snapshot time.
    - It has negative times or counts, or two rows of one id.
    - An id outside the range that is proven complete is pending, or would be made pending by FORCE.

    Args:
        requests: the requests in their order, or a table (a DataFrame or a relation).  A table has
            one row per request and the columns of `plans.bulk_plan.CLAIM_COLUMNS`.  Its requests
            are done in the order of `request`.  It must return the same rows each time it is read.
        sharing: the consumers that share the claimed entries of each group.  The consumers of the
            requests then get nothing.  A group in which no consumer can share them is refused, too.
        run_id: identifies the run, together with the command.  A repeat with the same run id
            changes nothing.
        now_ms: the time for all groups, ms since the epoch.  None means the time of each group's
            snapshot.
        dry_run: True to decide, but write nothing.
        progress: called as each phase begins, and again with each new detail.

    Raises:
        RequestError: a request cannot be used, or a request has a last id although `sharing` is
            given.  Then no request is done.
        RunKeyConflictError, LostRaceError: see `runs.run`.
        UnfinishedRunError: in a dry run, an earlier run is not yet applied.
    """
    check_ms(now_ms=now_ms)
    checked = CLAIMS.checked(table_of(store, requests, claim_table))
    if sharing is not None:
        if not checked.where("last_id IS NOT NULL").is_empty():
            raise RequestError(
                "--lastid cannot be combined with several consumers: raise the last delivered id by"
                " a request with one CONSUMER",
                option="lastid",
            )
        others = (name for name in CLAIM_COLUMNS if name != "consumer")
        checked = checked.select(*others, "CAST(NULL AS STRING) AS consumer")

    def decide_claims(begun: Begun, *, refuse_duplicates: bool) -> Decision:
        groups = known(begun)
        claims = bulk.claims(checked, groups, now_ms)
        bulk_requests = BulkRequests.of(claims, bulk.KINDS, sharing=sharing)
        return decide(begun, bulk_requests, groups, refuse_duplicates=refuse_duplicates).decision()

    def as_json() -> dict[str, object]:
        return {**CLAIMS.fingerprint(checked), **({} if sharing is None else sharing.as_json())}

    call = Call(run_id, now_ms, dry_run, progress)
    return answer(BulkReply, store, COMMAND, as_json, decide_claims, call)


def claim_table(engine: Executor, claims: Sequence[NamedClaim]) -> Relation:
    """Return the request table of some XCLAIMs, numbered from 1.

    Raises:
        RequestError: there is no XCLAIM.
    """
    if not claims:
        raise RequestError("there is no request: nothing would be claimed")
    rows = [
        (
            number,
            spell(named.stream),
            spell(named.group),
            spell(named.claim.consumer),
            named.claim.min_idle_ms,
            list(map(str, named.claim.ids)),
            named.claim.idle_ms,
            named.claim.time_ms,
            named.claim.retrycount,
            named.claim.force,
            named.claim.justid,
            _text(named.claim.last_id),
            str(named.claim.idle_rule),
            str(named.claim.profile),
        )
        for number, named in enumerate(claims, start=1)
    ]
    return CLAIMS.of_rows(engine, rows)


def _text(stream_id: StreamId | None) -> str | None:
    return None if stream_id is None else str(stream_id)
