"""Decide about ids that requests name, for XCLAIM, XACK and retirement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import pyarrow.compute as pc

from claimlib.commands.preconditions import ENTRY_IDS, near, owners_of
from claimlib.commands.sharing import Sharing
from claimlib.engine.relation import Executor, Relation, union_by_name
from claimlib.plans import assignment, previous
from claimlib.plans import bulk_plan as bulk
from claimlib.plans.journal_rows import JOURNAL_ROW
from claimlib.plans.keys import GROUP
from claimlib.plans.requests import known_groups
from claimlib.plans.survey import without_duplicates
from claimlib.runs import Begun, Decision
from claimlib.schema import BUCKET_SQL, Kind
from claimlib.semantics.model import Outcome
from claimlib.semantics.names import spell
from claimlib.store.tables import Store
from claimlib.terminal import number_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")


def table_of(
    store: Store,
    requests: Sequence[T] | Relation | DataFrame,
    table: Callable[[Executor, Sequence[T]], Relation],
) -> Relation:
    """Return the request table of some requests.

    Args:
        table: builds a table from requests in memory.
    """
    if isinstance(requests, Relation):
        return requests
    if isinstance(requests, Sequence):
        return table(store.engine, requests)
    return store.relation_of(requests)


@dataclass(frozen=True, slots=True)
class BulkRequests:
    """Hold requests that name ids.

    Attributes:
        requests: `plans.bulk_plan.claims` or `acks`, without the ids.
        ids: `plans.bulk_plan.named_ids` of the requests.
        kinds: the journal's kind for each outcome.
        looks: True if the decision depends on the entries that the streams still have.
        sharing: the consumers that share the claimed entries.  None if each request names one.
    """

    requests: Relation
    ids: Relation
    kinds: Mapping[Outcome, Kind]
    looks: bool = True
    sharing: Sharing | None = None

    @classmethod
    def of(
        cls,
        requests: Relation,
        kinds: Mapping[Outcome, Kind],
        *,
        looks: bool = True,
        sharing: Sharing | None = None,
    ) -> BulkRequests:
        """Separate requests and the ids that they name."""
        # `reused` computes few ids once.  `kept` does so for many ids in the embedded engine.
        ids = bulk.named_ids(requests).reused().kept()
        without_ids = requests.select(*bulk.REQUEST).reused()
        return cls(without_ids, ids, kinds, looks=looks, sharing=sharing)


@dataclass(frozen=True, slots=True)
class Decided:
    """Hold the decision so far.

    Attributes:
        judged: one row per group, in memory, with `reason`, which is None if the group is accepted.
        rows: rows of the journal.
    """

    judged: Relation
    rows: Relation

    def decision(self, *others: Relation) -> Decision:
        """Return the decision of a run, with further journal rows.

        The counts include kinds without rows, as 0.
        """
        counts = dict.fromkeys(map(str, _COUNTED_KINDS), 0)
        return Decision(union_by_name([self.rows, *others], JOURNAL_ROW), counts=counts)


_COUNTED_KINDS = (
    Kind.CLAIMED,
    Kind.DELETED,
    Kind.LEFT,
    Kind.NOT_PENDING,
    Kind.REQUESTED,
    Kind.REFUSED,
)


def known(begun: Begun) -> Relation:
    """Return `plans.requests.known_groups` of the pinned tables, in memory."""
    groups, streams = map(begun.relation, ("groups", "streams"))
    return known_groups(groups, streams, begun.run_seq).fetched()


def decide(
    begun: Begun, bulk_requests: BulkRequests, known: Relation, *, refuse_duplicates: bool
) -> Decided:
    """Return all journal rows of the requests, at pinned versions.

    One row per requested group passes through the driver.
    """
    looked_at = _look(begun, bulk_requests, known)
    recipients = None
    judged = _judge(begun, bulk_requests, looked_at, refuse_duplicates=refuse_duplicates)
    if bulk_requests.sharing is not None:
        targets = _sharing_by_group(looked_at.groups, bulk_requests.sharing)
        tables = map(begun.relation, ("consumers", "pending"))
        recipients = assignment.recipients(targets, *tables).fetched()
        judged = bulk.with_refusal_by_recipients(judged, targets, recipients).fetched()
    accepted = bulk.rows_of_accepted_groups(bulk_requests.requests, judged)
    ids = bulk.rows_of_accepted_groups(bulk_requests.ids, judged)
    entries = looked_at.entries if bulk_requests.looks else None
    decided = bulk.decisions(bulk.with_pending(ids, looked_at.pending, entries))
    decided = bulk.distributed(decided, recipients)
    parts = [
        bulk.entry_rows(decided, accepted, looked_at.owners, bulk_requests.kinds),
        bulk.request_rows(bulk_requests.requests, judged),
    ]
    if bulk_requests.looks:
        callers = (
            accepted if recipients is None else bulk.rows_of_accepted_groups(recipients, judged)
        )
        last_ids = bulk.last_id_rows(accepted)
        parts += [
            bulk.consumer_rows(accepted),
            last_ids,
            # The values before the run, which an undo puts back.
            previous.consumer_rows(
                callers.distinct(*GROUP, "consumer"), begun.relation("consumers")
            ),
            previous.group_rows(last_ids.select(*GROUP), begun.relation("groups")),
        ]
    return Decided(judged, union_by_name(parts, JOURNAL_ROW))


def _sharing_by_group(groups: Relation, sharing: Sharing) -> Relation:
    """Return `plans.assignment.shared` of the groups, in memory."""
    names = tuple(map(spell, sharing.consumers))
    return assignment.shared(groups, names, sharing.active_within_ms).fetched()


@dataclass(frozen=True, slots=True)
class _LookedAt:
    """Hold the rows that the requested ids may have in the tables.

    Attributes:
        groups: `bulk.groups`, with the groups' buckets, in memory.
        any_outside: True if an id is outside the proven range of its stream.
        pending, entries: the rows within the bounds of the ids.
        owners: see `preconditions.owners_of`.
    """

    groups: Relation
    any_outside: bool
    pending: Relation
    entries: Relation
    owners: Relation


def _look(begun: Begun, bulk_requests: BulkRequests, known: Relation) -> _LookedAt:
    """Do the first step: return the rows near the requested ids, and their owners."""
    bucket = BUCKET_SQL.format(buckets=begun.store.buckets)
    groups = bulk.groups(bulk_requests.ids).select("*", f"{bucket} AS bucket").fetched()
    fetched = groups.arrow()
    begun.tell_detail(number_of(pc.sum(fetched["number_of_ids"]).as_py() or 0, "id"))
    bounds = near(fetched)
    pending = begun.relation("pending").within(bounds).reused()
    entries = begun.relation("entries").within(bounds).select(*ENTRY_IDS)
    entries = entries.reused() if bulk_requests.looks else entries.where("false")
    owners = owners_of(pending, known, entries)
    any_outside = pc.any(pc.greater(fetched["outside"], 0)).as_py() or False
    return _LookedAt(groups, any_outside, pending, entries, owners)


def _judge(
    begun: Begun, bulk_requests: BulkRequests, looked_at: _LookedAt, *, refuse_duplicates: bool
) -> Relation:
    """Do the second step: return one row per group, in memory, with the reason of a refusal."""
    arguments = (looked_at.groups, bulk_requests.ids, looked_at.pending, begun.run_seq)
    if bulk_requests.looks:
        judged = bulk.judged(*arguments, any_outside=looked_at.any_outside)
    else:
        judged = bulk.with_refusal_by_name(*arguments)
    if refuse_duplicates:
        named = bulk.pending_of(bulk_requests.ids, looked_at.pending)
        judged = without_duplicates(judged, named)
    return judged.fetched()
