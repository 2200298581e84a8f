"""Replies of runs that claim: their numbers, and relations of what they did."""

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


# Instances have a __dict__, in which what is computed once is kept.
@dataclass(frozen=True)
class RunReply:
    """Hold the numbers of a run, or of a dry run, and what its relations are made from.

    Attributes:
        run_seq: the run's number, or None in a dry run.
        is_repeat: True if an earlier call with the same run id had done it.
        journal: of some kinds: the journal rows of the run.
        near: of rows of the journal: the part of `entries` in which their payload lies.
    """

    ZEROS: ClassVar[Mapping[str, int]]
    """The counts of a run that did nothing."""

    run_id: str | None
    run_seq: int | None
    dry_run: bool
    is_repeat: bool
    counts: Mapping[str, int]
    journal: Callable[..., Relation] = field(repr=False)
    near: Callable[[Relation], Relation] = field(repr=False)

    @classmethod
    def of_finished(cls, store: Store, finished: FinishedRun) -> Self:
        """Return the reply of a finished run, from its journal rows: the same whenever it is
        requested.
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
        )

    @cached_property
    def losses(self) -> Relation:
        """One row per owner that loses entries: stream, consumer_group, from_consumer, claimed (by
        another consumer) and deleted (their stream entry no longer exists, or acknowledged)."""
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
        run_id: the key of the run together with the command, or None: one is made up.
        now_ms: the instant for all groups, ms since the epoch, or None: each group's snapshot.
        dry_run: whether to decide and show, and to write nothing.
        progress: told each phase as it begins, or None.
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
        request: makes what is kept with the run.
        decided: decides, of a `Begun` and whether to `refuse_duplicates`.
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
"""Of `Reply.groups`, in this order."""


@dataclass(frozen=True)
class Reply(RunReply):
    """Hold what a sweep did, or would do in a dry run.  The relations follow from the journal, so
    they are the same whenever they are computed; but payloads are those of `entries` then.

    Attributes:
        run_id: the key of the run together with the command, or None in a dry run.
        run_seq: the number of the run, or None in a dry run.
        dry_run: True if nothing was written.
        is_repeat: True if an earlier call with the same run id had done the run.
        counts: claimed, deleted, lost, gone (entries), swept, refused (groups), cursor (groups that
            got a page, or whose cursor is kept), delivered_later (entries delivered after the
            instant of their group: that instant is too early), spared and parked (see `groups`),
            without_request (groups that match no request of a policy; missing: none).
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
        """One row per claimed entry: stream, consumer_group, id (text), id_ms, id_seq, consumer,
        delivery_time_ms, delivery_count, from_consumer, from_delivery_time_ms, from_delivery_count,
        at_ms, from_idle_ms (how long it was idle at at_ms), payload (`present`; `not_kept`: the
        store never had it; `gone`: the store no longer has the entry; null with JUSTID) and fields
        (null unless the payload is present)."""
        rows = self.journal(*_CLAIMED)
        has_claims = self.dry_run or any(self.counts.get(kind) for kind in _CLAIMED)
        # Without claims nobody needs to look where their payloads lie.
        entries = self.near(rows if has_claims else rows.limit(0))
        return _claimed(self._kept(rows), entries)

    @cached_property
    def deleted(self) -> Relation:
        """One row per deleted entry: the same key, the from_* columns, at_ms."""
        return _entries(self._kept(self.journal(*_DELETED)))

    @cached_property
    def lost(self) -> Relation:
        """One row per decision that was not applied because another writer changed the row
        first: the key, the from_* columns."""
        return _entries(self.journal(Kind.LOST))

    @cached_property
    def cursors(self) -> Relation:
        """One row per group that got a page, or whose cursor is kept: stream, consumer_group, name
        (null: it is not kept), next_id (text; 0-0: the page reached the end), next_ms, next_seq."""
        return _cursors(self.journal(Kind.CURSOR))

    @cached_property
    def groups(self) -> Relation:
        """One row per (stream, consumer_group): status (`swept` or `refused`), reason (null unless
        refused), pending_before, claimed, deleted, lost, pending_after (what was pending, without
        what this run deleted), at_boundary (idle for exactly min_idle_ms), oldest_idle_ms and
        highest_delivery_count as found (null where nothing was pending; these, pending_* and
        at_boundary are null for a page, which does not look at the whole PEL), spared (idle enough,
        and left to its owner by a guard) and parked (of the claimed, as decided; both null: no
        guards, or refused), now_ms (the instant that the group was judged at), next_id (the cursor;
        null: there is none)."""
        return _groups(
            self.journal(Kind.SWEPT, Kind.REFUSED),
            self._kept(self.journal(*_CLAIMED)),
            self._kept(self.journal(*_DELETED)),
            self.journal(Kind.LOST),
            self.cursors,
        )

    def _kept(self, rows: Relation) -> Relation:
        """Decisions, without those that were lost."""
        lost = self._lost()
        if lost is None:
            return rows
        return without(rows, lost)


_CLAIMED = (Kind.CLAIMED, Kind.FORCED)
_DELETED = (Kind.DELETED, Kind.ACKED)


def _counted(rows: Relation) -> Mapping[str, int]:
    """Count the rows of each kind."""
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
"""What an entry was before the decision, the instant of that, and how long it was idle then."""
_PREVIOUS_NAMES = (*PREVIOUS[:-1], "from_idle_ms")
_NEW = ("consumer", "delivery_time_ms", "delivery_count")
ENTRY_NAMES = (*GROUP, "id", *_PREVIOUS_NAMES)
"""The names in the records of `Reply.deleted` and `Reply.lost`, in order."""
CLAIMED_NAMES = (*GROUP, "id", *_NEW, *_PREVIOUS_NAMES, "payload", "fields")
"""The names in the records of `Reply.claimed`, in order."""


def _entries(rows: Relation) -> Relation:
    return rows.select(*GROUP, f"{id_text_sql()} AS id", "id_ms", "id_seq", *PREVIOUS)


def _claimed(rows: Relation, entries: Relation) -> Relation:
    """Claimed entries with their payload, joined back after the claim; none with JUSTID."""
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
