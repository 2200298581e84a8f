"""XAUTOCLAIM over a store: every entry of every requested group is deleted, claimed or left
alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from claimlib import kernel
from claimlib.commands import base, reply
from claimlib.commands.deciding import check_ms, few_held, look, near, sound_or_named
from claimlib.commands.paging import locate
from claimlib.commands.reply import Reply
from claimlib.errors import GlobError, RequestError
from claimlib.ids import to_bigint
from claimlib.model import AutoclaimRequest
from claimlib.names import glob_pattern, spell
from claimlib.plans import guards, journal_rows, pages, requests, survey, sweep
from claimlib.plans.keys import GROUP, KeyMode, bucket, group_key
from claimlib.plans.requests import Rule, guard_values
from claimlib.runs import Begun, Decision, Finished, Progress, begin_reading, run
from claimlib.runs.journal import Kind
from claimlib.store import Store

COMMAND = "xautoclaim"


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """One XAUTOCLAIM for all groups that the two globs match: a sweep, or with `autoclaim.count`
    one page of each.

    Attributes:
        cursor: the name under which the store keeps where each group's next page begins; null: it
            is not kept.
        resume: whether to begin there; else at `autoclaim.start`.
    """

    autoclaim: AutoclaimRequest
    stream_glob: str = "*"
    group_glob: str = "*"
    cursor: str | None = None
    resume: bool = False

    def __post_init__(self) -> None:
        """Refuse a glob before anything is read."""
        glob_pattern(self.stream_glob)
        glob_pattern(self.group_glob)
        if self.resume and self.cursor is None:
            raise RequestError("which cursor is it to go on from? Give its name", option="cursor")

    def as_json(self) -> dict[str, object]:
        """What is kept with the run."""
        given = guard_values(self.autoclaim.guards)
        return {
            "stream_glob": self.stream_glob,
            "group_glob": self.group_glob,
            "start": None if self.resume else str(self.autoclaim.start),
            **self._values(),
            # Left out where they are not given: the runs of before they were there stay the same.
            **({} if self.autoclaim.count is None else {"count": self.autoclaim.count}),
            **({} if self.cursor is None else {"cursor": self.cursor}),
            **{name: one for name, one in given.items() if one is not None},
        }

    def rule(self) -> Rule:
        """The request as a rule of a policy."""
        start = None if self.resume else self.autoclaim.start
        ids = {
            "start_ms": None if start is None else to_bigint(start.ms),
            "start_seq": None if start is None else to_bigint(start.seq),
        }
        page = {"count": self.autoclaim.count, "cursor": self.cursor}
        values = {**self._values(), **ids, **page, **guard_values(self.autoclaim.guards)}
        return Rule(self.stream_glob, self.group_glob, values)

    def _values(self) -> dict[str, object]:
        return {
            "consumer": spell(self.autoclaim.consumer),
            "min_idle_ms": self.autoclaim.min_idle_ms,
            "justid": self.autoclaim.justid,
            "idle_rule": str(self.autoclaim.idle_rule),
            "profile": str(self.autoclaim.profile),
        }


Asked = SweepRequest | Sequence[SweepRequest] | DataFrame
"""One request with globs; a policy, of which the first that matches a group applies; or a table."""


def explain(store: Store, policy: Sequence[SweepRequest]) -> DataFrame:
    """Which request each group gets: one row per (stream, consumer_group) of the store, with
    `request` (its number in the policy, from 1; null: none is for it) and its
    `plans.requests.REQUEST_COLUMNS`.  Reads only."""
    groups = store.read("groups").select(*GROUP)
    asked = requests.expand(groups, [one.rule() for one in policy])
    return groups.join(asked, on=list(GROUP), how="left")


def xautoclaim(
    store: Store,
    request: Asked,
    *,
    run_id: str | None = None,
    now_ms: int | None = None,
    dry_run: bool = False,
    incremental: bool = False,
    progress: Progress | None = None,
) -> Reply:
    """Apply XAUTOCLAIM's semantics to every requested (stream, consumer_group), in one run.

    As the command document and Valkey 9.1 do for one group: dangling entries leave the PEL (and
    become tombstones), entries idle enough go to the request's consumer, the others stay.

    Args:
        request: one request with globs; a policy of several, of which the first that matches a
            group applies; or a table with one row per (stream, consumer_group) and the columns of
            `plans.requests.REQUEST_COLUMNS`.
        run_id: the key of the run together with the command; the same key again changes nothing.
        now_ms: the instant for all groups, ms since the epoch; null: each group's snapshot instant.
        dry_run: decide and show, and write nothing.
        incremental: whether to look only at what may matter, where an earlier sweep tells that of
            a large store (see `base`).  It decides the same.
        progress: told each phase as it begins.

    Raises:
        RequestError: the request cannot be used.
        RunKeyConflictError, LostRaceError: see `runs.run`.
        UnfinishedRunError: in a dry run, an earlier run is not yet applied.
    """
    check_ms(now_ms=now_ms)
    if isinstance(request, DataFrame):
        request = requests.SWEEPS.checked(request)
    elif isinstance(request, SweepRequest):
        request = [request]
    elif not request:
        raise RequestError("the policy has no request: it would claim nothing")
    if dry_run:
        begun = begin_reading(store)
        decided = _decide(begun, request, now_ms, refuse_duplicates=True, incremental=incremental)
        return reply.of_plan(decided.rows, begun.read("entries"), decided.counts)

    def once(*, refuse_duplicates: bool) -> Finished:
        return run(
            store,
            command=COMMAND,
            request=_as_json(request),
            decide=partial(
                _decide,
                request=request,
                now_ms=now_ms,
                refuse_duplicates=refuse_duplicates,
                incremental=incremental,
            ),
            run_id=run_id,
            now_ms=now_ms,
            progress=progress,
        )

    return reply.of_finished(store, sound_or_named(once))


def _as_json(request: Sequence[SweepRequest] | DataFrame) -> dict[str, object]:
    if isinstance(request, DataFrame):
        return requests.SWEEPS.fingerprint(request)
    if len(request) == 1:
        return request[0].as_json()
    return {"policy": [one.as_json() for one in request]}


def _decide(
    begun: Begun,
    request: Sequence[SweepRequest] | DataFrame,
    now_ms: int | None,
    *,
    refuse_duplicates: bool,
    incremental: bool = False,
) -> Decision:
    """All journal rows of a sweep at pinned versions.

    One row per group passes through the driver (some 300 bytes): as literal rows the plan that
    decides the entries stays small, however often it joins them.
    """
    held = begun.store.held
    pending, entries = begun.read("pending"), begun.read("entries")
    known = requests.known_groups(begun.read("groups"), begun.read("streams"), begun.run_seq)
    asked, unrequested = _asked(request, known)
    if _may_resume(request):
        asked = requests.started(asked, begun.read("cursors"), begun.run_seq)
    targets = held(requests.standing(asked, known, now_ms))
    # Of a group with two cursors or two proven ranges nobody knows where its page lies.
    sound = targets.where(F.col("repeated_in").isNull())
    located = locate(begun.store, pending, sound) if _may_page(request) else None
    targets = requests.ended(targets, located.ends if located is not None else None)
    has_sweeps = located is None or not targets.where(_SWEEPS).isEmpty()
    if located is not None and not has_sweeps:
        # A sweep looks at all of pending, and so meets groups that are not known.
        unrequested = F.lit(False)
        pending, entries = located.pending, entries.where(located.bounds.condition())
    all_pending = pending
    pending, entries = few_held(begun.store, pending, entries)
    is_large = pending is all_pending
    if incremental and is_large and located is None:
        looked_at = base.since_base(begun, pending, entries, targets, _scope(request))
    else:
        looked_at = base.everything(pending, entries, targets)
    pending, entries, targets = looked_at.pending, looked_at.entries, looked_at.targets
    owners = survey.by_owner(pending, targets, begun.run_seq)
    is_known = F.col("in_groups").isNotNull()
    seen = look(begun.store, pending, owners, targets.where(is_known), entries)
    names, mode = seen.names, seen.names.mode
    judged, found = _fetched(begun, survey.judged(targets, seen.sums, unrequested), mode)
    lie_near = near(found)
    pending, entries = pending.where(lie_near), entries.where(lie_near)
    weigh = any(found[name].null_count < found.num_rows for name in requests.GUARDS)
    patterns = _patterns(judged) if weigh else None

    def examined_of(accepted: DataFrame) -> DataFrame:
        owners = (
            guards.owners(pending, begun.read("consumers"), accepted, patterns, mode)
            if patterns is not None
            else None
        )
        found = sweep.candidates(pending, entries, accepted, owners, mode)
        return found if located is None else pages.examined(found, has_sweeps=has_sweeps)

    if refuse_duplicates:
        touched = sweep.touched(examined_of(_accepted(judged)))
        judged, found = _fetched(begun, survey.without_duplicates(judged, touched, mode), mode)
    if weigh:
        examined = examined_of(_accepted(judged))
        weighed = guards.weighed(judged, examined, begun.read("pending"), mode)
        judged, found = _fetched(begun, weighed, mode)
    else:
        judged = guards.unweighed(judged)
    accepted = _accepted(judged)
    examined = examined_of(accepted)
    next_ids = pages.next_ids(examined) if located is not None else None
    decided = sweep.decisions(sweep.touched(examined), _requests(found), mode)
    parts = [
        journal_rows.decision_rows(decided, accepted, names.owners, mode),
        journal_rows.group_rows(judged),
        journal_rows.consumer_rows(accepted),
        journal_rows.cursor_rows(accepted, next_ids, mode),
    ]
    return Decision(
        journal_rows.union_rows(parts),
        key_mode=mode,
        counts={**_counts(found), **looked_at.counts},
        remark=looked_at.remark,
    )


def _scope(request: Sequence[SweepRequest] | DataFrame) -> base.Scope | None:
    """The globs of a policy."""
    if isinstance(request, DataFrame):
        return None
    return frozenset((one.stream_glob, one.group_glob) for one in request)


_SWEEPS = "consumer IS NOT NULL AND count IS NULL"


def _may_resume(request: Sequence[SweepRequest] | DataFrame) -> bool:
    """Whether a request may begin where a stored cursor stands."""
    return isinstance(request, DataFrame) or any(one.resume for one in request)


def _may_page(request: Sequence[SweepRequest] | DataFrame) -> bool:
    """Whether a request may be a page."""
    if isinstance(request, DataFrame):
        return True
    return any(one.autoclaim.count is not None for one in request)


_KINDS = (Kind.CLAIMED, Kind.DELETED, Kind.SWEPT, Kind.REFUSED, Kind.CURSOR)


def _fetched(begun: Begun, judged: DataFrame, mode: KeyMode) -> tuple[DataFrame, pa.Table]:
    """`Store.fetched` of `survey.judged`, with the groups' keys and buckets."""
    keys = {"group_key": group_key(mode), "bucket": bucket(begun.store.buckets)}
    return begun.store.fetched(judged.withColumns(keys))


def _requests(judged: pa.Table) -> pd.DataFrame:
    """The requests of the accepted groups, as the kernel takes them."""
    accepted = judged.filter(pc.field("reason").is_null())
    rows: pd.DataFrame = accepted.select(["group_key", *kernel.REQUEST]).to_pandas()
    return rows.set_index("group_key")


def _counts(judged: pa.Table) -> dict[str, int]:
    """What only the decision can count; and none of what the journal's rows may add."""
    found = {
        name: pc.sum(judged[name]).as_py() or 0 if name in judged.column_names else 0
        for name in ("delivered_later", "spared", "parked")
    }
    return {**dict.fromkeys(map(str, _KINDS), 0), **found}


def _patterns(asked: DataFrame) -> DataFrame:
    """One row per glob of `only_from`, with its pattern.

    Raises:
        RequestError: it is no glob.
    """
    globs = asked.where(F.col("only_from").isNotNull()).groupBy("only_from")
    found = globs.agg(F.min(F.concat_ws("/", *GROUP)).alias("group")).collect()
    known = [(row["only_from"], _pattern(row["only_from"], row["group"])) for row in found]
    return asked.sparkSession.createDataFrame(known, "only_from STRING, pattern STRING")


def _pattern(glob: str, group: str) -> str:
    try:
        return glob_pattern(glob)
    except GlobError as error:
        raise RequestError(
            f"no usable only_from in the request for {group}: {error.message}", column="only_from"
        ) from error


def _accepted(judged: DataFrame) -> DataFrame:
    return judged.where(F.col("reason").isNull())


def _asked(
    request: Sequence[SweepRequest] | DataFrame, known: DataFrame
) -> tuple[DataFrame, Column]:
    """The request table, and the condition under which a group that `groups` lacks is meant too."""
    if isinstance(request, DataFrame):
        return request, F.lit(False)
    policy = [one.rule() for one in request]
    return requests.expand(known, policy).drop("request"), requests.matched_by(policy)
