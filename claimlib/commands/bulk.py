"""The decision about ids that requests name: what XCLAIM, XACK and retirement have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow.compute as pc
from pyspark.sql import DataFrame

from claimlib.commands.bulk_reply import BulkReply
from claimlib.commands.preconditions import (
    ENTRY_IDS,
    are_decided_by_few,
    are_few,
    few_near,
    near,
    owners_of,
    retry_naming_duplicates,
)
from claimlib.engine.interpreted import MOST_ROWS
from claimlib.plans import bulk
from claimlib.plans.journal_rows import union_rows
from claimlib.plans.keys import bucket
from claimlib.plans.requests import known_groups
from claimlib.plans.survey import without_duplicates
from claimlib.runs import Begun, Decision, Finished, Progress, begin_dry_run, run
from claimlib.schema import Kind
from claimlib.semantics.model import Outcome
from claimlib.store.tables import Store
from claimlib.terminal import number_of


@dataclass(frozen=True, slots=True)
class BulkRequests:
    """Requests that name ids.

    Attributes:
        requests: `plans.bulk.claims` or `acks`.
        ids: `plans.bulk.named_ids` of them.
        kinds: the journal's kind for each outcome.
        looks: whether it matters if the streams still have the ids.
    """

    requests: DataFrame
    ids: DataFrame
    kinds: Mapping[Outcome, Kind]
    looks: bool = True

    @classmethod
    def of(
        cls,
        store: Store,
        requests: DataFrame,
        kinds: Mapping[Outcome, Kind],
        *,
        are_named: bool,
        looks: bool = True,
    ) -> BulkRequests:
        """Requests and the ids that they name, in the driver's memory where they are few.

        Args:
            are_named: whether the caller has named the requests, so that they are in memory anyway;
                each row of a table may name very many ids.
        """
        requests = store.held(requests) if are_named else requests
        return cls(requests, store.few_or_all(bulk.named_ids(requests)), kinds, looks=looks)


@dataclass(frozen=True, slots=True)
class Call:
    """How a command is called: see `xclaim`."""

    run_id: str | None
    now_ms: int | None
    dry_run: bool
    progress: Progress | None


@dataclass(frozen=True, slots=True)
class Decided:
    """What is decided so far: the groups' verdicts, and journal rows.

    Attributes:
        judged: one row per group, with `reason` (null: accepted); in the driver's memory.
        rows, are_few, made_of: see `Decision`.
    """

    judged: DataFrame
    rows: DataFrame
    are_few: bool
    made_of: tuple[DataFrame, ...]

    def decision(self, *others: DataFrame) -> Decision:
        """The decision of a run, with further journal rows; what no row counts is 0."""
        rows = union_rows([self.rows, *others])
        counts = dict.fromkeys(map(str, _KINDS), 0)
        return Decision(rows, self.are_few, self.made_of, counts=counts)


_KINDS = (Kind.CLAIMED, Kind.DELETED, Kind.LEFT, Kind.NOT_PENDING, Kind.REQUESTED, Kind.REFUSED)


def are_few_named(requests: Sequence[object] | DataFrame) -> bool:
    """Whether the caller has named the requests, and few of them; a table may have any number."""
    return not isinstance(requests, DataFrame) and len(requests) <= MOST_ROWS


def known(begun: Begun) -> DataFrame:
    """`known_groups`, in the driver's memory."""
    groups, streams = begun.read("groups"), begun.read("streams")
    return begun.store.held(known_groups(groups, streams, begun.run_seq))


def decide(
    begun: Begun, bulk_requests: BulkRequests, known: DataFrame, *, refuse_duplicates: bool
) -> Decided:
    """All journal rows of the requests, at pinned versions.  One row per requested group passes
    through the driver."""
    are_few_ids = begun.store.is_held(bulk_requests.ids)
    with begun.interpreted(are_few=are_few_ids):
        looked_at = _look(begun, bulk_requests, known, are_few_ids=are_few_ids)
    pending, entries = looked_at.pending, looked_at.entries
    with begun.interpreted(pending, entries, are_few=are_few_ids):
        judged = _judge(begun, bulk_requests, looked_at, refuse_duplicates=refuse_duplicates)
    accepted = bulk.of_accepted(bulk_requests.requests, judged)
    ids = bulk.of_accepted(bulk_requests.ids, judged)
    in_one_task = are_few(begun.store, bulk_requests.ids, pending, entries)
    looked_in = entries if bulk_requests.looks else None
    named = bulk.with_pending(ids, pending, looked_in, in_one_task=in_one_task)
    parts = [
        bulk.entry_rows(
            bulk.decisions(named, in_one_task=in_one_task),
            accepted,
            looked_at.owners,
            bulk_requests.kinds,
        ),
        bulk.request_rows(bulk_requests.requests, judged),
    ]
    if bulk_requests.looks:
        parts += [bulk.consumer_rows(accepted), bulk.last_id_rows(accepted)]
    by_few = are_few_ids and are_decided_by_few(begun.store, pending, entries)
    return Decided(judged, union_rows(parts), by_few, (pending, entries))


@dataclass(frozen=True, slots=True)
class _LookedAt:
    """What the ids are looked for in.

    Attributes:
        groups: `bulk.groups`, with the groups' buckets; in the driver's memory.
        any_outside: whether an id lies outside the proven range of its stream.
        pending, entries: the rows that lie where the ids do.
        owners: see `preconditions.owners_of`.
    """

    groups: DataFrame
    any_outside: bool
    pending: DataFrame
    entries: DataFrame
    owners: DataFrame


def _look(
    begun: Begun, bulk_requests: BulkRequests, known: DataFrame, *, are_few_ids: bool
) -> _LookedAt:
    """The first step: which rows the requests reach, and who owns them."""
    by_group = bulk.groups(bulk_requests.ids).withColumn("bucket", bucket(begun.store.buckets))
    groups, fetched = begun.store.fetched(by_group)
    begun.tell_size(number_of(pc.sum(fetched["number_of_ids"]).as_py() or 0, "id"))
    pending, entries = begun.read("pending"), begun.read("entries", ENTRY_IDS)
    if not bulk_requests.looks:
        entries = entries.limit(0)
    pending, entries = few_near(begun.store, near(fetched), pending, entries)
    with begun.interpreted(pending, entries, are_few=are_few_ids):
        owners = owners_of(begun.store, pending, known, entries)
    any_outside = pc.any(pc.greater(fetched["outside"], 0)).as_py() or False
    return _LookedAt(groups, any_outside, pending, entries, owners)


def _judge(
    begun: Begun, bulk_requests: BulkRequests, looked_at: _LookedAt, *, refuse_duplicates: bool
) -> DataFrame:
    """The second step: which groups are refused; in the driver's memory."""
    about = (looked_at.groups, bulk_requests.ids, looked_at.pending, begun.run_seq)
    if bulk_requests.looks:
        judged = bulk.judged(*about, any_outside=looked_at.any_outside)
    else:
        judged = bulk.judged_by_name(*about)
    if refuse_duplicates:
        named = bulk.pending_of(bulk_requests.ids, looked_at.pending)
        judged = without_duplicates(judged, named)
    return begun.store.held(judged)


def answer(
    store: Store,
    command: str,
    request: Callable[[], Mapping[str, object]],
    decided: Callable[..., Decision],
    call: Call,
) -> BulkReply:
    """The reply to the requests: of a run, or in a dry run of its decision.

    Args:
        request: what is kept with the run.
        decided: of a `Begun`, and whether to `refuse_duplicates`: the decision.
    """
    if call.dry_run:
        begun = begin_dry_run(store, call.progress)

        def would(*, refuse_duplicates: bool) -> BulkReply:
            return BulkReply.of_decision(begun, decided(begun, refuse_duplicates=refuse_duplicates))

        return retry_naming_duplicates(would)
    kept = request()

    def once(*, refuse_duplicates: bool) -> Finished:
        return run(
            store,
            command=command,
            request=kept,
            decide=partial(decided, refuse_duplicates=refuse_duplicates),
            run_id=call.run_id,
            now_ms=call.now_ms,
            progress=call.progress,
        )

    return BulkReply.of_finished(store, retry_naming_duplicates(once))
