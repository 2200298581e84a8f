"""Decide a sweep in steps.

The first steps find the request of each group, and the rows that the requests reach.  Then each
group is accepted or refused, and the guards are applied to its entries.  The last step returns the
journal rows.

One row per group, of some 300 bytes, passes through the driver.  These rows then are literals in
the plan that decides the entries.  So this plan stays small, although it joins them several times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from claimlib.commands.paging import Pages, locate
from claimlib.commands.preconditions import (
    ENTRY_IDS,
    near,
    nothing_matches,
    refuse_shared_hashes,
)
from claimlib.commands.reply import Reply
from claimlib.commands.sweep_request import (
    Policy,
    SweepRequest,
    chosen_groups,
    is_for_all,
    may_page,
    may_resume,
    scope,
)
from claimlib.engine.relation import Relation, Rows, union_all, union_by_name
from claimlib.errors import GlobError, RequestError
from claimlib.plans import (
    assignment,
    journal_rows,
    kernel,
    pages,
    previous,
    requests,
    survey,
)
from claimlib.plans import (
    guards_plan as guards,
)
from claimlib.plans import (
    sweep_plan as sweep,
)
from claimlib.plans.keys import (
    GROUP_KEY,
    GROUP_SQL,
    IS_SHARED,
    STREAM_KEY,
    named_keys,
    owners_of_keys,
)
from claimlib.runs import Begun, Decision
from claimlib.schema import BUCKET_SQL
from claimlib.semantics.names import glob_pattern
from claimlib.terminal import number_of


def decide(
    begun: Begun,
    request: Policy,
    now_ms: int | None,
    *,
    refuse_duplicates: bool,
    allow_none: bool = True,
) -> Decision:
    """Return the decision of a sweep, from tables at their pinned versions.

    Args:
        now_ms: the time for all groups.  None means the time of each group's snapshot.
        refuse_duplicates: True to find groups with two rows of one entry, and to refuse them.
        allow_none: see `commands.xautoclaim`.

    Raises:
        RequestError: the globs match no group, and allow_none is False.
    """
    requested = requested_of(begun, request, now_ms)
    judged = judge(begun, requested, *rows_reached(begun, requested))
    counts = {}
    if requested.without_request:
        counts["without_request"] = requested.without_request
    number_of_entries = pc.sum(judged.fetched["pending_before"]).as_py() or 0
    begun.tell_detail(number_of(number_of_entries, "pending entry", "pending entries"))
    if not (allow_none or judged.fetched.num_rows or is_for_all(request)):
        _refuse_no_match(begun, request)
    if refuse_duplicates:
        judged = without_duplicates(judged)
    judged = weighed(judged)
    return Decision(rows_of(judged), counts={**_counts(judged.fetched), **counts})


@dataclass(frozen=True, slots=True)
class Requested:
    """Hold the request of each group.

    Attributes:
        targets: `requests.standing` with `assignment.counted` and `requests.ended`.
        recipients: `assignment.recipients`, in memory, or None if each request names one consumer.
        unrequested: the SQL condition for groups that are requested although `groups` lacks them.
        pages: the bounds and rows of the pages, or None if no request is a page.
        has_sweeps: True if some request is not for a page, so it reaches the end of the pending
            entries list.
        without_request: the number of groups that match no request of a policy.  It is 0 for a
            single request, because its globs choose the groups.
    """

    targets: Relation
    recipients: Relation | None
    unrequested: str
    pages: Pages | None
    has_sweeps: bool
    without_request: int = 0


def requested_of(begun: Begun, request: Policy, now_ms: int | None) -> Requested:
    """Do the first step: return the request of each group, and the bounds of its page."""
    groups, streams, cursors = map(begun.relation, ("groups", "streams", "cursors"))
    known = requests.known_groups(groups, streams, begun.run_seq)
    requests_of_groups, unrequested = _requests_of_groups(request, known)
    if may_resume(request):
        requests_of_groups = requests.started(requests_of_groups, cursors, begun.run_seq)
    targets = requests.standing(requests_of_groups, now_ms).fetched()
    is_policy = not isinstance(request, Relation) and len(request) > 1
    without_request = int(targets.arrow()["idle_rule"].null_count) if is_policy else 0
    recipients = _recipients(begun, targets)
    targets = assignment.counted(targets, recipients)
    # A group with two cursors or two proven ranges has no definite page, and will be refused.
    sound = targets.where("repeated_in IS NULL")
    pending, buckets = begun.relation("pending"), begun.store.buckets
    located = locate(pending, sound, buckets) if may_page(request) else None
    if located is None:
        return Requested(
            requests.ended(targets, None),
            recipients,
            unrequested,
            pages=None,
            has_sweeps=True,
            without_request=without_request,
        )
    targets = requests.ended(targets, located.ends).fetched()
    has_sweeps = not targets.where(_IS_SWEEP).is_empty()
    return Requested(
        targets,
        recipients,
        # Only a sweep reads the rows of groups that the table `groups` lacks.
        unrequested if has_sweeps else "false",
        located,
        has_sweeps,
        without_request,
    )


_IS_SWEEP = f"{requests.IS_REQUESTED} AND count IS NULL"


def _recipients(begun: Begun, targets: Relation) -> Relation | None:
    """Return `assignment.recipients`, in memory, or None if each request names one consumer."""
    fetched = targets.arrow()
    if all(fetched[name].null_count == fetched.num_rows for name in requests.ASSIGNMENT):
        return None
    consumers, pending = begun.relation("consumers"), begun.relation("pending")
    return assignment.recipients(targets, consumers, pending).fetched()


def _requests_of_groups(request: Policy, known: Relation) -> tuple[Relation, str]:
    """Return the known groups with their requests.

    Also return the SQL condition for groups that are requested although `groups` lacks them.
    """
    if isinstance(request, Relation):
        return requests.by_table(known, request), "false"
    policy = [part.rule() for part in request]
    return requests.by_policy(known, policy), requests.matched_by(policy)


def rows_reached(begun: Begun, requested: Requested) -> tuple[Relation, Relation]:
    """Do the second step: return the rows of `pending` and `entries` that the requests reach."""
    pending, entries = begun.relation("pending"), begun.relation("entries")
    if requested.pages is not None and not requested.has_sweeps:
        near = entries.within(requested.pages.bounds)
        return requested.pages.pending, near.select(*ENTRY_IDS).reused()
    return pending.reused(), entries.select(*ENTRY_IDS).reused()


@dataclass(frozen=True, slots=True)
class Judged:
    """State which groups are refused, and hold the rows from which entries are decided.

    Attributes:
        owners: `keys.owners_of_keys`.
        recipients: see `Requested`.
        groups: `survey.judged`, with the groups' keys and buckets, in memory.
        pending, entries: the rows within the bounds of the groups' entries.
        patterns: one row per glob of a guard, or None if no request has guards.
    """

    begun: Begun
    owners: Relation
    recipients: Relation | None
    groups: Relation
    pending: Relation
    entries: Relation
    has_pages: bool
    patterns: Relation | None = None

    @property
    def fetched(self) -> pa.Table:
        """Return the rows of `groups`."""
        return self.groups.arrow()

    @property
    def accepted(self) -> Relation:
        """Return the groups that are not refused."""
        return self.groups.where("reason IS NULL")

    def rejudged(self, groups: Relation) -> Judged:
        """Return a copy with other rows of `groups`, by one query."""
        return replace(self, groups=groups.fetched())

    def examined(self) -> Relation:
        """Return `sweep.candidates`: one row per entry that the accepted requests may reach."""
        owners = None
        if self.patterns is not None:
            consumers = self.begun.relation("consumers")
            owners = guards.owners(self.pending, consumers, self.accepted, self.patterns)
        candidates = sweep.candidates(self.pending, self.entries, self.accepted, owners)
        return pages.examined(candidates) if self.has_pages else candidates


def judge(begun: Begun, requested: Requested, pending: Relation, entries: Relation) -> Judged:
    """Do the third step: decide which groups are refused.

    All rows are read once.  This also finds the names that share a hash, and the bounds of the
    entries.

    Raises:
        HashCollisionError: two names share a hash.
    """
    surveyed = survey.surveyed_of(requested.targets)
    sums = survey.by_group(pending, surveyed, begun.run_seq).fetched()
    names = named_keys(sums, pending, requested.targets, entries).fetched()
    refuse_shared_hashes(names.where(IS_SHARED).collect())
    key = (
        f"{STREAM_KEY} AS stream_key",
        f"{GROUP_KEY} AS group_key",
        f"{BUCKET_SQL.format(buckets=begun.store.buckets)} AS bucket",
    )
    judged = survey.judged(requested.targets, sums, requested.unrequested)
    groups = judged.select("*", *key).fetched()
    fetched = groups.arrow()
    has_guards = any(fetched[name].null_count < fetched.num_rows for name in requests.GUARDS)
    bounds = near(fetched)
    return Judged(
        begun=begun,
        owners=owners_of_keys(names),
        recipients=requested.recipients,
        groups=groups,
        pending=pending.within(bounds),
        entries=entries.within(bounds),
        has_pages=requested.pages is not None,
        patterns=_patterns(groups) if has_guards else None,
    )


def without_duplicates(judged: Judged) -> Judged:
    """Return `judged` with the groups refused that have two rows of one entry."""
    touched = sweep.touched(judged.examined())
    return judged.rejudged(survey.without_duplicates(judged.groups, touched))


def weighed(judged: Judged) -> Judged:
    """Do the fourth step: apply the guards.

    Without guards, no rows are read.
    """
    if judged.patterns is None:
        return replace(judged, groups=guards.without_guards(judged.groups))
    pending = judged.begun.relation("pending")
    return judged.rejudged(guards.weighed(judged.groups, judged.examined(), pending))


def rows_of(judged: Judged) -> Relation:
    """Do the last step: return the journal rows about entries, groups, consumers and cursors."""
    accepted, examined = judged.accepted, judged.examined()
    next_ids = pages.next_ids(examined) if judged.has_pages else None
    decided = sweep.decisions(sweep.touched(examined), _requests(judged.fetched))
    decided = assignment.with_recipient(decided, judged.recipients)
    # All rows of a group, and the entries of its stream, are in one bucket.  So each bucket can be
    # computed by itself.
    return union_by_name(
        [
            journal_rows.decision_rows(decided, accepted, judged.owners),
            journal_rows.group_rows(judged.groups),
            journal_rows.consumer_rows(accepted),
            journal_rows.cursor_rows(accepted, next_ids),
            *_previous_rows(judged),
        ],
        journal_rows.JOURNAL_ROW,
    ).made_by("bucket")


def _previous_rows(judged: Judged) -> list[Relation]:
    """Return the current rows of the consumers and cursors that the run may change."""
    begun, accepted = judged.begun, judged.accepted
    place = ", ".join(journal_rows.PLACE)
    owners = accepted.sql(
        f"SELECT {place}, consumer FROM {{this}} AS this UNION"
        f" SELECT {place}, parking_consumer FROM {{this}} AS this"
    ).where("consumer IS NOT NULL")
    if judged.recipients is not None:
        sharing = accepted.sql(
            f"SELECT {place}, r.consumer FROM {{this}} AS this JOIN {{r}} AS r USING ({GROUP_SQL})",
            r=judged.recipients,
        )
        owners = union_all([owners, sharing])
    cursors = accepted.where("cursor IS NOT NULL").select(place, "cursor AS name")
    return [
        previous.consumer_rows(owners, begun.relation("consumers")),
        previous.cursor_rows(cursors, begun.relation("cursors")),
    ]


def refuse_unmatched(begun: Begun, request: Sequence[SweepRequest]) -> None:
    """Raise RequestError if the globs match no group of the store."""
    if is_for_all(request):
        return
    # The sweep itself refuses a group that is only in `pending`, and names it.
    tables = map(begun.relation, ("groups", "pending"))
    if all(chosen_groups(request, table).is_empty() for table in tables):
        _refuse_no_match(begun, request)


def _refuse_no_match(begun: Begun, request: Policy) -> NoReturn:
    globs = [" / ".join(pair) for pair in sorted(scope(request) or ())]
    groups = begun.relation("groups")
    raise RequestError(
        f"{nothing_matches(begun.store.where, groups, globs)}. Nothing was done;"
        " use --allow-none if no match is acceptable",
        globs=globs,
    )


def _requests(judged: pa.Table) -> pd.DataFrame:
    """Return the requests of the accepted groups, in the form that the kernel needs."""
    accepted = judged.filter(pc.field("reason").is_null())
    rows: pd.DataFrame = accepted.select(["group_key", *kernel.REQUEST]).to_pandas()
    return rows.set_index("group_key")


def _counts(judged: pa.Table) -> Mapping[str, int]:
    """Return the counts that only the decision knows.

    The counts by kind of journal row are 0 here.  The run's report replaces them.
    """
    counts = {
        name: pc.sum(judged[name]).as_py() or 0 if name in judged.column_names else 0
        for name in ("delivered_later", "spared", "parked")
    }
    return {**Reply.ZEROS, **counts}


def _patterns(judged: Relation) -> Relation:
    """Return one row per glob of `only_from`, with its pattern.

    Raises:
        RequestError: a value is not a glob.
    """
    rows = judged.where("only_from IS NOT NULL").sql(
        f"SELECT only_from, min(concat_ws('/', {GROUP_SQL})) AS example FROM {{this}} AS this"
        " GROUP BY only_from"
    )
    pattern_by_glob = {
        row["only_from"]: _pattern(row["only_from"], row["example"]) for row in rows.collect()
    }
    table = {
        "only_from": pa.array(list(pattern_by_glob), pa.string()),
        "pattern": pa.array(list(pattern_by_glob.values()), pa.string()),
    }
    return Relation(judged.engine, Rows(pa.table(table)))


def _pattern(glob: str, group: str) -> str:
    try:
        return glob_pattern(glob)
    except GlobError as error:
        raise RequestError(
            f"invalid only_from in the request for {group}: {error.message}", column="only_from"
        ) from error
