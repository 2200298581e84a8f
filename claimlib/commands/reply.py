"""Build the replies of runs that claim, acknowledge or retire: their counts and relations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import ClassVar, Self, TypeVar

from claimlib.commands.preconditions import bounds_of_rows, retry_naming_duplicates
from claimlib.engine.relation import Relation
from claimlib.plans.journal_rows import of_kinds
from claimlib.plans.keys import GROUP, GROUP_SQL, id_text_sql, without
from claimlib.runs import Begun, Decision, FinishedRun, Progress, begin_dry_run, run
from claimlib.runs.journal import rows_of
from claimlib.schema import Kind
from claimlib.store.delta_errors import errors_mapped
from claimlib.store.tables import Store


# Instances have a __dict__, which keeps values that are computed once.
@dataclass(frozen=True)
class RunReply:
    """Hold the counts of a run, or of a dry run, and the sources of its relations.

    Attributes:
        run_seq: the run's number, or None in a dry run.
        is_repeat: True if an earlier call with the same run id did the run.
        journal: returns the run's journal rows of the given kinds.
        near: returns rows of `entries` that include the payloads of given journal rows.
        read: returns a table at the version that the dry run read.  None unless this is a dry run.
    """

    ZEROS: ClassVar[Mapping[str, int]]
    """Hold the counts of a run that did nothing."""

    run_id: str | None
    run_seq: int | None
    dry_run: bool
    is_repeat: bool
    counts: Mapping[str, int]
    journal: Callable[..., Relation] = field(repr=False)
    near: Callable[[Relation], Relation] = field(repr=False)
    read: Callable[[str], Relation] | None = field(default=None, repr=False)

    @classmethod
    def of_finished(cls, store: Store, finished: FinishedRun) -> Self:
        """Return the reply of a finished run.

        The reply is built from journal rows, so a later call returns the same reply.
        """
        return cls(
            run_id=finished.run_id,
            run_seq=finished.run_seq,
            dry_run=False,
            is_repeat=finished.is_repeat,
            counts={**cls.ZEROS, **finished.counts},
            journal=partial(rows_of, store, finished.run_seq),
            near=partial(_near, store),
        )

    @classmethod
    def of_decision(cls, begun: Begun, decision: Decision) -> Self:
        """Return the reply of a dry run, from journal rows that are not written.

        Raises:
            DuplicateRowsError: `pending` has two rows of one entry that the run would change.
        """
        with errors_mapped("pending"):
            rows = decision.rows.kept()
            number_by_kind = _number_by_kind(rows)
        return cls(
            run_id=None,
            run_seq=None,
            dry_run=True,
            is_repeat=False,
            # The journal also has rows about consumers, which are not counted.
            counts={
                **decision.counts,
                **{name: number_by_kind.get(name, 0) for name in cls.ZEROS},
            },
            journal=lambda *kinds: rows.where(of_kinds(*kinds)),
            near=lambda _: begun.relation("entries"),
            read=begun.relation,
        )

    @cached_property
    def losses(self) -> Relation:
        """Return one row per owner that loses entries.

        Columns: stream, consumer_group, from_consumer, claimed and deleted.  `claimed` is the
        number of entries that another consumer got.  `deleted` is the number of entries that were
        acknowledged, or that the stream no longer has.
        """
        lost_by_claim = f"kind IN ('{Kind.CLAIMED}', '{Kind.FORCED}')"
        return self.journal(*_CLAIMED, *_DELETED).sql(
            f"""
            SELECT {GROUP_SQL}, from_consumer, count_if({lost_by_claim}) AS claimed,
                count_if(NOT {lost_by_claim}) AS deleted
            FROM {{this}} AS this
            WHERE from_consumer IS NOT NULL AND (consumer IS NULL OR consumer <> from_consumer)
            GROUP BY {GROUP_SQL}, from_consumer
            """
        )

    def _lost(self) -> Relation | None:
        """Return the journal rows of lost decisions, or None if no decision was lost."""
        return self.journal(Kind.LOST) if self.counts["lost"] else None


@dataclass(frozen=True, slots=True)
class Call:
    """Hold the arguments that commands have in common.

    Attributes:
        run_id: identifies the run, together with the command.  None means that a run id is
            generated.
        now_ms: the time for all groups, ms since the epoch.  None means the time of each group's
            snapshot.
        dry_run: True to decide, but write nothing.
        progress: called as each phase begins.  If it is None, no progress is shown.
    """

    run_id: str | None
    now_ms: int | None
    dry_run: bool
    progress: Progress | None


_Reply = TypeVar("_Reply", bound=RunReply)


def answer(
    reply: type[_Reply],
    store: Store,
    command: str,
    request: Callable[[], Mapping[str, object]],
    decide: Callable[..., Decision],
    call: Call,
) -> _Reply:
    """Return the reply of a run, or of its decision in a dry run.

    Args:
        request: returns the JSON values that are stored with the run.  It is not called in a dry
            run.
        decide: returns the decision, from a `Begun` and the keyword `refuse_duplicates`.
    """
    if call.dry_run:
        begun = begin_dry_run(store, call.progress)

        def decide_only(*, refuse_duplicates: bool) -> _Reply:
            return reply.of_decision(begun, decide(begun, refuse_duplicates=refuse_duplicates))

        return retry_naming_duplicates(decide_only)
    # `run` may be called twice, and the values may be expensive to compute.
    request_values = request()

    def do_run(*, refuse_duplicates: bool) -> FinishedRun:
        return run(
            store,
            command=command,
            request=request_values,
            decide=partial(decide, refuse_duplicates=refuse_duplicates),
            run_id=call.run_id,
            now_ms=call.now_ms,
            progress=call.progress,
        )

    return reply.of_finished(store, retry_naming_duplicates(do_run))


GROUPS_COLUMNS = (
    *GROUP,
    "status",
    "reason",
    "pending_before",
    "claimed",
    "deleted",
    "lost",
    "pending_after",
    "at_boundary",
    "oldest_idle_ms",
    "highest_delivery_count",
    "spared",
    "parked",
    "now_ms",
    "next_id",
)
"""List the columns of `Reply.groups`, in order."""


@dataclass(frozen=True)
class Reply(RunReply):
    """Hold the result of a sweep, or of its dry run.

    The relations are computed from the journal, so they are the same at any time.  Only payloads
    are read from the current rows of `entries`.

    Attributes:
        run_id: identifies the run, together with the command.  None in a dry run.
        run_seq: the number of the run, or None in a dry run.
        dry_run: True if nothing was written.
        is_repeat: True if an earlier call with the same run id did the run.
        counts: numbers of entries and groups.
            claimed, deleted, lost, spared, parked: entries, see `groups`.
            gone: entries whose row of `pending` is missing.  It is unknown which writer removed it.
            delivered_later: entries that were delivered after the time of their group.  If there
            are any, this time is too early.
            swept, refused: groups.
            cursor: groups that got a page, or whose cursor is stored.
            without_request: groups that match no request of a policy.  Missing if there are none.
    """

    ZEROS = dict.fromkeys(
        (
            *map(str, (Kind.CLAIMED, Kind.DELETED, Kind.SWEPT, Kind.REFUSED, Kind.CURSOR)),
            "lost",
            "gone",
        ),
        0,
    )

    @cached_property
    def claimed(self) -> Relation:
        """Return one row per claimed entry.

        Columns: stream, consumer_group, id (text), id_ms, id_seq, consumer, delivery_time_ms,
        delivery_count, from_consumer, from_delivery_time_ms, from_delivery_count, at_ms,
        from_idle_ms, payload and fields.  at_ms is the time of the claim, and from_idle_ms the idle
        time of the entry then.  payload is one of:

        - `present`: fields has the payload.  Otherwise fields is None.
        - `not_kept`: the store has the entry without its payload.
        - `gone`: the store no longer has the entry.
        - None: the claim has JUSTID.
        """
        rows = self.journal(*_CLAIMED)
        has_claims = self.dry_run or any(self.counts.get(kind) for kind in _CLAIMED)
        # Without claims there are no payloads to find.
        entries = self.near(rows if has_claims else rows.limit(0))
        return _claimed(self._kept(rows), entries)

    @cached_property
    def deleted(self) -> Relation:
        """Return one row per deleted entry.

        Columns: stream, consumer_group, id (text), id_ms, id_seq, from_consumer,
        from_delivery_time_ms, from_delivery_count, at_ms and from_idle_ms (see `claimed`).
        """
        return _entries(self._kept(self.journal(*_DELETED)))

    @cached_property
    def lost(self) -> Relation:
        """Return one row per decision that was lost because another writer changed the row first.

        The columns are those of `deleted`.
        """
        return _entries(self.journal(Kind.LOST))

    @cached_property
    def cursors(self) -> Relation:
        """Return one row per group that got a page, or whose cursor is stored.

        Columns: stream, consumer_group, name, next_id (text), next_ms, next_seq.  name is None if
        the cursor is not stored.  next_id is 0-0 if the page reached the end.
        """
        return _cursors(self.journal(Kind.CURSOR))

    @cached_property
    def groups(self) -> Relation:
        """Return one row per (stream, consumer_group).

        Columns:
        status: `swept` or `refused`.
        reason: None unless refused.
        claimed, deleted, lost: numbers of entries.
        pending_before: the number of pending entries before the run.
        pending_after: this number without the entries that the run deleted.
        at_boundary: the number of entries that were idle for exactly min_idle_ms.
        oldest_idle_ms, highest_delivery_count: their values before the run.  None if no entry was
        pending.
        pending_*, at_boundary, oldest_idle_ms and highest_delivery_count are None for a page, which
        does not read the whole PEL.
        spared: the number of entries that were idle enough, but stayed with their owner because of
        a guard.
        parked: the number of entries that the run decided to give to the parking consumer.  Lost
        ones are included.
        spared and parked are None if the request has no guards, or the group was refused.
        now_ms: the time for which the idle times were computed.
        next_id: see `cursors`.  None if `cursors` has no row for the group.
        """
        return _groups(
            self.journal(Kind.SWEPT, Kind.REFUSED),
            self._kept(self.journal(*_CLAIMED)),
            self._kept(self.journal(*_DELETED)),
            self.journal(Kind.LOST),
            self.cursors,
        )

    def _kept(self, rows: Relation) -> Relation:
        """Return the journal rows of decisions that were not lost."""
        lost = self._lost()
        if lost is None:
            return rows
        return without(rows, lost)


_CLAIMED = (Kind.CLAIMED, Kind.FORCED)
_DELETED = (Kind.DELETED, Kind.ACKED)


def _number_by_kind(rows: Relation) -> Mapping[str, int]:
    """Return the number of rows of each kind."""
    by_kind = rows.sql("SELECT kind, count(*) AS number FROM {this} AS this GROUP BY kind")
    return {row["kind"]: row["number"] for row in by_kind.collect()}


def _near(store: Store, claimed: Relation) -> Relation:
    """Return the rows of `entries` within the bounds of the claimed entries.

    So other files of the table need not be read to show a reply.
    """
    return store.relation("entries").within(bounds_of_rows(claimed.where("NOT justid")))


def _cursors(rows: Relation) -> Relation:
    return rows.select(
        *GROUP,
        "cursor_name AS name",
        f"{id_text_sql('next_ms', 'next_seq')} AS next_id",
        "next_ms",
        "next_seq",
    )


PREVIOUS = (
    "from_consumer",
    "from_delivery_time_ms",
    "from_delivery_count",
    "at_ms",
    "try_subtract(at_ms, from_delivery_time_ms) AS from_idle_ms",
)
"""List SQL for the earlier state of an entry, the time of the decision, and the idle time then."""
_PREVIOUS_NAMES = (*PREVIOUS[:-1], "from_idle_ms")
_NEW = ("consumer", "delivery_time_ms", "delivery_count")
ENTRY_NAMES = (*GROUP, "id", *_PREVIOUS_NAMES)
"""List the names in the records of `Reply.deleted` and `Reply.lost`, in order."""
CLAIMED_NAMES = (*GROUP, "id", *_NEW, *_PREVIOUS_NAMES, "payload", "fields")
"""List the names in the records of `Reply.claimed`, in order."""


def _entries(rows: Relation) -> Relation:
    return rows.select(*GROUP, f"{id_text_sql()} AS id", "id_ms", "id_seq", *PREVIOUS)


def _claimed(rows: Relation, entries: Relation) -> Relation:
    """Return claimed entries with their payload, see `Reply.claimed`."""
    id_ = (f"{id_text_sql()} AS id", "id_ms", "id_seq")
    return with_fields(rows.select(*GROUP, *id_, *_NEW, *PREVIOUS, "justid"), entries)


def with_fields(rows: Relation, entries: Relation) -> Relation:
    """Return rows with `payload` and `fields` in place of `justid`, see `Reply.claimed`."""
    columns = (f"this.{name}" for name in rows.columns if name != "justid")
    return rows.sql(
        f"""
        WITH stored AS (
            SELECT stream, id_ms, id_seq, any_value(fields) AS fields, true AS is_there
            FROM {{entries}} AS entries GROUP BY stream, id_ms, id_seq
        )
        SELECT {", ".join(columns)},
            CASE WHEN justid IS NULL OR justid THEN NULL WHEN is_there IS NULL THEN 'gone'
                WHEN stored.fields IS NULL THEN 'not_kept' ELSE 'present' END AS payload,
            CASE WHEN NOT justid THEN stored.fields END AS fields
        FROM {{this}} AS this LEFT JOIN stored ON this.stream = stored.stream
            AND this.id_ms = stored.id_ms AND this.id_seq = stored.id_seq
        """,
        entries=entries,
    )


def _groups(
    groups: Relation,
    claimed: Relation,
    deleted: Relation,
    lost: Relation,
    cursors: Relation,
) -> Relation:
    of_journal = (
        "reason",
        "pending_before",
        "at_boundary",
        "highest_delivery_count",
        "spared",
        "parked",
    )
    return groups.sql(
        f"""
        WITH numbers AS (
            SELECT {GROUP_SQL}, sum(claimed) AS claimed, sum(deleted) AS deleted, sum(lost) AS lost
            FROM (
                SELECT {GROUP_SQL}, 1 AS claimed, 0 AS deleted, 0 AS lost FROM {{claimed}} AS c
                UNION ALL SELECT {GROUP_SQL}, 0, 1, 0 FROM {{deleted}} AS d
                UNION ALL SELECT {GROUP_SQL}, 0, 0, 1 FROM {{lost}} AS l
            ) AS each_entry GROUP BY {GROUP_SQL}
        ), counted AS (
            SELECT {GROUP_SQL}, {", ".join(of_journal)}, kind AS status, at_ms AS now_ms,
                try_subtract(at_ms, oldest_delivery_time_ms) AS oldest_idle_ms,
                coalesce(numbers.claimed, 0L) AS claimed,
                coalesce(numbers.deleted, 0L) AS deleted, coalesce(numbers.lost, 0L) AS lost
            FROM {{this}} AS this LEFT JOIN numbers USING ({GROUP_SQL})
        )
        SELECT {", ".join(GROUPS_COLUMNS)}
        FROM (
            SELECT counted.*, pending_before - deleted AS pending_after, next_id
            FROM counted LEFT JOIN {{cursors}} AS cursors USING ({GROUP_SQL})
        ) AS with_cursors
        """,
        claimed=claimed,
        deleted=deleted,
        lost=lost,
        cursors=cursors.select(*GROUP, "next_id"),
    )
