"""Build the replies of runs that claim, with their counts and their relations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import ClassVar, Self, TypeVar

from claimlib.commands.preconditions import retry_naming_duplicates, where_ids_lie
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
        is_repeat: True if an earlier call with the same run id had done it.
        journal: returns the journal rows of the run of some kinds.
        near: returns the part of `entries` that has the payloads of given journal rows.
        read: returns a table as the dry run has read it.  None if the reply is of a run.
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

        It is built from journal rows, so it is the same at any time.
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
            counted = _counted(rows)
        return cls(
            run_id=None,
            run_seq=None,
            dry_run=True,
            is_repeat=False,
            # The journal also has rows about consumers, which are not counted.
            counts={**decision.counts, **{name: counted.get(name, 0) for name in cls.ZEROS}},
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
        """Return the rows that another writer changed first, or None if there are none."""
        return self.journal(Kind.LOST) if self.counts["lost"] else None


@dataclass(frozen=True, slots=True)
class Call:
    """Hold how a command is called.

    Attributes:
        run_id: the key of the run together with the command.  None means that one is generated.
        now_ms: the time for all groups, ms since the epoch.  None means the time of each group's
            snapshot.
        dry_run: True to decide and show, and to write nothing.
        progress: called as each phase begins.  None shows nothing.
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
    decided: Callable[..., Decision],
    call: Call,
) -> _Reply:
    """Return the reply of a run, or of its decision in a dry run.

    Args:
        request: returns the JSON values that are stored with the run.
        decided: decides, from a `Begun` and the option `refuse_duplicates`.
    """
    if call.dry_run:
        begun = begin_dry_run(store, call.progress)

        def would(*, refuse_duplicates: bool) -> _Reply:
            return reply.of_decision(begun, decided(begun, refuse_duplicates=refuse_duplicates))

        return retry_naming_duplicates(would)
    kept = request()

    def once(*, refuse_duplicates: bool) -> FinishedRun:
        return run(
            store,
            command=command,
            request=kept,
            decide=partial(decided, refuse_duplicates=refuse_duplicates),
            run_id=call.run_id,
            now_ms=call.now_ms,
            progress=call.progress,
        )

    return reply.of_finished(store, retry_naming_duplicates(once))


GROUPS_COLUMNS = (
    *(*GROUP, "status", "reason", "pending_before", "claimed", "deleted", "lost", "pending_after"),
    *("at_boundary", "oldest_idle_ms", "highest_delivery_count", "spared", "parked", "now_ms"),
    "next_id",
)
"""List the columns of `Reply.groups`, in order."""


@dataclass(frozen=True)
class Reply(RunReply):
    """Hold what a sweep did, or would do in a dry run.

    The relations follow from the journal, so they are the same at any time.  Only payloads come
    from `entries` as it is when they are computed.

    Attributes:
        run_id: the key of the run together with the command, or None in a dry run.
        run_seq: the number of the run, or None in a dry run.
        dry_run: True if nothing was written.
        is_repeat: True if an earlier call with the same run id had done the run.
        counts: of entries: claimed, deleted, lost, gone, spared and parked (see `groups`).
            `delivered_later` counts entries delivered after the time of their group, which is then
            too early.  Of groups: swept and refused.  `cursor` counts groups that got a page, or
            whose cursor is stored.  `without_request` counts groups that match no request of a
            policy.  It is missing if there are none.
    """

    ZEROS = dict.fromkeys(
        (
            *map(str, (Kind.CLAIMED, Kind.DELETED, Kind.SWEPT, Kind.REFUSED, Kind.CURSOR)),
            *("lost", "gone"),
        ),
        0,
    )

    @cached_property
    def claimed(self) -> Relation:
        """Return one row per claimed entry.

        Columns: stream, consumer_group, id (text), id_ms, id_seq, consumer, delivery_time_ms,
        delivery_count, from_consumer, from_delivery_time_ms, from_delivery_count, at_ms,
        from_idle_ms, payload and fields.  from_idle_ms is its idle time at at_ms.  payload is
        `present`, `not_kept` or `gone`.  `not_kept` means that the store never had the payload.
        `gone` means that the store no longer has the entry.  payload is None with JUSTID.  fields
        is None unless the payload is present.
        """
        rows = self.journal(*_CLAIMED)
        has_claims = self.dry_run or any(self.counts.get(kind) for kind in _CLAIMED)
        # Without claims there are no payloads to find.
        entries = self.near(rows if has_claims else rows.limit(0))
        return _claimed(self._kept(rows), entries)

    @cached_property
    def deleted(self) -> Relation:
        """Return one row per deleted entry: the same key, the from_* columns, at_ms."""
        return _entries(self._kept(self.journal(*_DELETED)))

    @cached_property
    def lost(self) -> Relation:
        """Return one row per decision that was lost because another writer changed the row first.

        Columns: the key, the from_* columns.
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
        pending_before, pending_after: the numbers of pending entries before the run, and without
        the entries that the run deleted.
        at_boundary: the number of entries that were idle for exactly min_idle_ms.
        oldest_idle_ms, highest_delivery_count: as the run found them.  None if no entry was
        pending.
        pending_*, at_boundary, oldest_idle_ms and highest_delivery_count are None for a page, which
        does not read the whole PEL.
        spared: the number of entries that were idle enough, and that a guard left to their owner.
        parked: the number of claimed entries that were parked, as decided.
        spared and parked are None if there are no guards, or the group was refused.
        now_ms: the time at which the group was judged.
        next_id: the cursor.  None if there is none.
        """
        return _groups(
            self.journal(Kind.SWEPT, Kind.REFUSED),
            self._kept(self.journal(*_CLAIMED)),
            self._kept(self.journal(*_DELETED)),
            self.journal(Kind.LOST),
            self.cursors,
        )

    def _kept(self, rows: Relation) -> Relation:
        """Return decisions without those that were lost."""
        lost = self._lost()
        if lost is None:
            return rows
        return without(rows, lost)


_CLAIMED = (Kind.CLAIMED, Kind.FORCED)
_DELETED = (Kind.DELETED, Kind.ACKED)


def _counted(rows: Relation) -> Mapping[str, int]:
    """Return the number of rows of each kind."""
    counted = rows.sql("SELECT kind, count(*) AS n FROM {this} AS this GROUP BY kind").collect()
    return {row["kind"]: row["n"] for row in counted}


def _near(store: Store, claimed: Relation) -> Relation:
    """Return the part of `entries` that holds the payloads of the claimed entries.

    Then no other files are read when a reply is shown.
    """
    return store.relation("entries").within(where_ids_lie(claimed.where("NOT justid")))


def _cursors(rows: Relation) -> Relation:
    return rows.select(
        *GROUP,
        "cursor_name AS name",
        f"{id_text_sql('next_ms', 'next_seq')} AS next_id",
        *("next_ms", "next_seq"),
    )


PREVIOUS = (
    *("from_consumer", "from_delivery_time_ms", "from_delivery_count", "at_ms"),
    "try_subtract(at_ms, from_delivery_time_ms) AS from_idle_ms",
)
"""List the columns of the earlier state of an entry, the time of the decision, and the idle time
at that time."""
_PREVIOUS_NAMES = (*PREVIOUS[:-1], "from_idle_ms")
_NEW = ("consumer", "delivery_time_ms", "delivery_count")
ENTRY_NAMES = (*GROUP, "id", *_PREVIOUS_NAMES)
"""List the names in the records of `Reply.deleted` and `Reply.lost`, in order."""
CLAIMED_NAMES = (*GROUP, "id", *_NEW, *_PREVIOUS_NAMES, "payload", "fields")
"""List the names in the records of `Reply.claimed`, in order."""


def _entries(rows: Relation) -> Relation:
    return rows.select(*GROUP, f"{id_text_sql()} AS id", "id_ms", "id_seq", *PREVIOUS)


def _claimed(rows: Relation, entries: Relation) -> Relation:
    """Return claimed entries with their payload, which is joined after the claim.

    With JUSTID there is no payload.
    """
    id_ = (f"{id_text_sql()} AS id", "id_ms", "id_seq")
    return with_fields(rows.select(*GROUP, *id_, *_NEW, *PREVIOUS, "justid"), entries)


def with_fields(rows: Relation, entries: Relation) -> Relation:
    """Return rows with `payload` and `fields` (see `Reply.claimed`) for `justid`."""
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
    told = ("reason", "pending_before", "at_boundary", "highest_delivery_count", "spared", "parked")
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
            SELECT {GROUP_SQL}, {", ".join(told)}, kind AS status, at_ms AS now_ms,
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
