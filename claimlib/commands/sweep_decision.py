"""How a sweep is decided, in steps: what is requested of each group, which rows that reaches, what
each group is judged, which entries are examined; then all of it as rows of the journal.

One row per group passes through the driver (some 300 bytes): as literal rows the plan that decides
the entries stays small, however often it joins them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from claimlib.commands.paging import Pages, locate
from claimlib.commands.preconditions import (
    ENTRY_IDS,
    are_decided_by_few,
    are_few,
    few_held,
    few_near,
    look,
    near,
    nothing_matches,
)
from claimlib.commands.reply import Reply
from claimlib.commands.sweep_request import Policy, is_for_all, may_page, may_resume, scope
from claimlib.engine.spark import relation_of
from claimlib.errors import GlobError, RequestError
from claimlib.local_rows import frame_of
from claimlib.plans import guards, journal_rows, kernel, pages, requests, survey, sweep
from claimlib.plans.keys import GROUP, GROUP_KEY, bucket
from claimlib.runs import Begun, Decision
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
    """All journal rows of a sweep at pinned versions.

    Args:
        now_ms: the instant for all groups; null: that of each group's snapshot.
        refuse_duplicates: whether groups with two rows of one entry are looked for, and refused.
        allow_none: see `commands.xautoclaim`.

    Raises:
        RequestError: the globs match no group.
    """
    requested = requested_of(begun, request, now_ms)
    made_of = rows_reached(begun, requested)
    # What the caller's own table requests may be many groups.
    with begun.interpreted(*made_of, are_few=not isinstance(request, DataFrame)):
        judged = judge(begun, requested, *made_of)
    counts = {}
    if requested.without_request:
        counts["without_request"] = requested.without_request
    # One row per group, which need not stay in memory while the entries are decided.
    del requested
    looked_at = pc.sum(judged.fetched["pending_before"]).as_py() or 0
    begun.tell_size(number_of(looked_at, "pending entry", "pending entries"))
    if not (allow_none or judged.fetched.num_rows or is_for_all(request)):
        raise _no_match(begun, request)
    if refuse_duplicates:
        judged = without_duplicates(judged)
    judged = weighed(judged)
    counts = {**_counts(judged.fetched), **counts}
    by_few = are_decided_by_few(begun.store, *made_of)
    rows = rows_of(judged)
    return Decision(rows, by_few, made_of, counts=counts)


@dataclass(frozen=True, slots=True)
class Requested:
    """What is requested of each group.

    Attributes:
        targets: `requests.standing`, in the driver's memory; of pages with where they end.
        unrequested: the condition under which a group that `groups` lacks is meant too.
        pages: where the pages lie; null: no request is a page.
        has_sweeps: whether a request reaches to the end of a pending entries list.
        without_request: how many groups match no request of a policy; of one request, which has its
            globs for that, it is not counted.
    """

    targets: DataFrame
    unrequested: Column
    pages: Pages | None
    has_sweeps: bool
    without_request: int = 0


def requested_of(begun: Begun, request: Policy, now_ms: int | None) -> Requested:
    """The first step: the request of each group, and where its page lies."""
    known = requests.known_groups(begun.read("groups"), begun.read("streams"), begun.run_seq)
    of_groups, unrequested = _of_groups(request, known)
    if may_resume(request):
        of_groups = requests.started(of_groups, begun.read("cursors"), begun.run_seq)
    targets, fetched = begun.store.fetched(requests.standing(of_groups, now_ms))
    is_policy = not isinstance(request, DataFrame) and len(request) > 1
    missed = int(fetched["consumer"].null_count) if is_policy else 0
    # Of a group with two cursors or two proven ranges nobody knows where its page lies.
    sound = targets.where(F.col("repeated_in").isNull())
    located = locate(begun.store, begun.read("pending"), sound) if may_page(request) else None
    if located is None:
        ended = requests.ended(targets, None)
        return Requested(ended, unrequested, None, has_sweeps=True, without_request=missed)
    targets = requests.ended(targets, located.ends)
    has_sweeps = not targets.where(_IS_SWEEP).isEmpty()
    # A sweep looks at all of pending, and so meets groups that are not known; a page does not.
    meant = unrequested if has_sweeps else F.lit(False)
    return Requested(targets, meant, located, has_sweeps, without_request=missed)


_IS_SWEEP = "consumer IS NOT NULL AND count IS NULL"


def _of_groups(request: Policy, known: DataFrame) -> tuple[DataFrame, Column]:
    """What is known of the groups, with their requests; and the condition under which a group that
    `groups` lacks is meant too."""
    if isinstance(request, DataFrame):
        return requests.by_table(known, request), F.lit(False)
    policy = [part.rule() for part in request]
    return requests.by_policy(known, policy), requests.matched_by(policy)


def rows_reached(begun: Begun, requested: Requested) -> tuple[DataFrame, DataFrame]:
    """The second step: the rows of `pending` and `entries` that the requests reach; of few rows
    from the driver's memory."""
    pending, entries = begun.read("pending"), begun.read("entries", ENTRY_IDS)
    if requested.pages is not None and not requested.has_sweeps:
        pending = requested.pages.pending
        (entries,) = few_near(begun.store, requested.pages.bounds, entries)
    # A sweep needs all of `pending`: its log says, without a query, whether that is many rows.
    elif not begun.store.is_large("pending"):
        pending, entries = few_held(begun.store, pending, entries)
    return pending, entries


@dataclass(frozen=True, slots=True)
class Judged:
    """What each group is judged, and the rows that its entries are decided from.

    Attributes:
        owners: see `preconditions.owners_of`.
        groups: `survey.judged`, with the groups' keys and buckets.
        fetched: the same rows in the driver's memory.
        pending, entries: the rows that lie where the groups' entries do.
        in_one_task: whether both are few.
        patterns: one row per glob of a guard; null: no request has guards.
    """

    begun: Begun
    owners: DataFrame
    groups: DataFrame
    fetched: pa.Table
    pending: DataFrame
    entries: DataFrame
    in_one_task: bool
    pages: Pages | None
    has_sweeps: bool
    patterns: DataFrame | None = field(default=None)

    @property
    def accepted(self) -> DataFrame:
        """The groups that are not refused."""
        return self.groups.where(F.col("reason").isNull())

    def rejudged(self, groups: DataFrame) -> Judged:
        """The same with other judgements: one query."""
        rows, fetched = _fetched(self.begun, groups)
        return replace(self, groups=rows, fetched=fetched)

    def examined(self) -> DataFrame:
        """One row per pending entry that the accepted requests may get to (`sweep.candidates`)."""
        owners = None
        if self.patterns is not None:
            consumers = self.begun.read("consumers")
            owners = guards.owners(self.pending, consumers, self.accepted, self.patterns)
        candidates = sweep.candidates(
            *(self.pending, self.entries, self.accepted, owners), in_one_task=self.in_one_task
        )
        return (
            candidates
            if self.pages is None
            else pages.examined(candidates, has_sweeps=self.has_sweeps)
        )


def judge(begun: Begun, requested: Requested, pending: DataFrame, entries: DataFrame) -> Judged:
    """The third step: one look at all rows says which groups are refused, who owns the entries,
    and where they lie."""
    seen = look(begun.store, pending, requested.targets, entries, begun.run_seq)
    judged = survey.judged(requested.targets, seen.sums, requested.unrequested)
    groups, fetched = _fetched(begun, judged)
    has_guards = any(fetched[name].null_count < fetched.num_rows for name in requests.GUARDS)
    where = near(fetched).condition()
    return Judged(
        begun=begun,
        owners=seen.owners,
        groups=groups,
        fetched=fetched,
        pending=pending.where(where),
        entries=entries.where(where),
        in_one_task=are_few(begun.store, pending, entries),
        pages=requested.pages,
        has_sweeps=requested.has_sweeps,
        patterns=_patterns(groups) if has_guards else None,
    )


def without_duplicates(judged: Judged) -> Judged:
    """Refuse the groups that have two rows of one entry."""
    touched = sweep.touched(judged.examined())
    return judged.rejudged(survey.without_duplicates(judged.groups, touched))


def weighed(judged: Judged) -> Judged:
    """The fourth step: what the guards refuse.  Without guards nothing is computed."""
    if judged.patterns is None:
        return replace(judged, groups=guards.unweighed(judged.groups))
    pending = judged.begun.read("pending")
    return judged.rejudged(guards.weighed(judged.groups, judged.examined(), pending))


def rows_of(judged: Judged) -> DataFrame:
    """The last step: the decisions about entries, groups, consumers and cursors, as rows of the
    journal."""
    accepted, examined = judged.accepted, judged.examined()
    next_ids = pages.next_ids(examined) if judged.pages is not None else None
    decided = sweep.decisions(sweep.touched(examined), _requests(judged.fetched))
    return journal_rows.union_rows(
        [
            journal_rows.decision_rows(decided, accepted, judged.owners),
            journal_rows.group_rows(judged.groups),
            journal_rows.consumer_rows(accepted),
            journal_rows.cursor_rows(accepted, next_ids),
        ]
    )


def _no_match(begun: Begun, request: Policy) -> RequestError:
    globs = [" / ".join(pair) for pair in sorted(scope(request) or ())]
    groups = relation_of(begun.read("groups"))
    return RequestError(
        f"{nothing_matches(begun.store.where, groups, globs)}. Nothing was done;"
        " use --allow-none if no match is acceptable",
        globs=globs,
    )


def _fetched(begun: Begun, judged: DataFrame) -> tuple[DataFrame, pa.Table]:
    """`Store.fetched` of `survey.judged`, with the groups' keys and buckets."""
    keys = {"group_key": F.expr(GROUP_KEY), "bucket": bucket(begun.store.buckets)}
    return begun.store.fetched(judged.withColumns(keys))


def _requests(judged: pa.Table) -> pd.DataFrame:
    """The requests of the accepted groups, as the kernel takes them."""
    accepted = judged.filter(pc.field("reason").is_null())
    rows: pd.DataFrame = accepted.select(["group_key", *kernel.REQUEST]).to_pandas()
    return rows.set_index("group_key")


def _counts(judged: pa.Table) -> Mapping[str, int]:
    """What only the decision can count; and none of what the journal's rows may add."""
    counts = {
        name: pc.sum(judged[name]).as_py() or 0 if name in judged.column_names else 0
        for name in ("delivered_later", "spared", "parked")
    }
    return {**Reply.ZEROS, **counts}


def _patterns(judged: DataFrame) -> DataFrame:
    """One row per glob of `only_from`, with its pattern.

    Raises:
        RequestError: it is no glob.
    """
    globs = judged.where(F.col("only_from").isNotNull()).groupBy("only_from")
    rows = globs.agg(F.min(F.concat_ws("/", *GROUP)).alias("group")).collect()
    known = [(row["only_from"], _pattern(row["only_from"], row["group"])) for row in rows]
    return frame_of(judged.sparkSession, known, "only_from STRING, pattern STRING")


def _pattern(glob: str, group: str) -> str:
    try:
        return glob_pattern(glob)
    except GlobError as error:
        raise RequestError(
            f"invalid only_from in the request for {group}: {error.message}", column="only_from"
        ) from error
