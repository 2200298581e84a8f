"""Build the replies of runs about ids that are requested by name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from claimlib.commands.reply import PREVIOUS, RunReply, with_fields
from claimlib.engine.relation import Relation
from claimlib.plans.keys import ENTRY, GROUP, id_text_sql, same_entry
from claimlib.schema import Kind

_IDS = (
    *(Kind.CLAIMED, Kind.FORCED, Kind.SUPERSEDED, Kind.DELETED, Kind.ACKED),
    *(Kind.LEFT, Kind.NOT_PENDING),
)
# Only these can be lost, because the other kinds change nothing.
_CHANGES = (Kind.CLAIMED, Kind.FORCED, Kind.SUPERSEDED, Kind.DELETED, Kind.ACKED)
_REQUESTS = (Kind.REQUESTED, Kind.REFUSED)
# The values that a claim gives to an id.  A lost id does not get them.
_GOT = ("consumer", "delivery_time_ms", "delivery_count", "payload", "fields")


@dataclass(frozen=True)
class BulkReply(RunReply):
    """Hold what XCLAIMs, XACKs or a retirement did, or would do in a dry run.

    The relations are built when they are requested.  They follow from the journal, as those of
    `reply.Reply` do.

    Attributes:
        run_id: the key of the run together with the command, or None in a dry run.
        run_seq: the number of the run, or None in a dry run.
        dry_run: True if nothing was written.
        is_repeat: True if an earlier call with the same run id had done the run.
        counts: of ids, as decided: claimed, forced, superseded, deleted, acked, left, not_pending.
            Of these: lost, and gone (only if the reason is unknown).  Of requests: requested (done)
            and refused.  Of a retirement: retired (consumers that are gone), and not_idle
            (consumers that stay because of its idle_ms).
    """

    ZEROS = dict.fromkeys(map(str, (*_IDS, *_REQUESTS, Kind.LOST)), 0)

    @cached_property
    def requests(self) -> Relation:
        """Return one row per request.

        Columns: request (its number), stream, consumer_group, consumer, status (`requested` or
        `refused`), reason (None unless refused), now_ms (the time at which it was done).  consumer
        is None for XACK, or if several consumers share the claimed entries.
        """
        return _requests(self.journal(*_REQUESTS))

    @cached_property
    def retired(self) -> Relation:
        """Return the keys of the consumers that a retirement decided to remove, one per row."""
        return self.journal(Kind.RETIRED).select(*GROUP, "consumer")

    @cached_property
    def ids(self) -> Relation:
        """Return one row per id that a request names, in the order of request and position.

        Ids of refused requests have no row.  position counts from 0.
        Columns: request, position, stream, consumer_group, id (text), id_ms, id_seq, status, and:
        consumer, delivery_time_ms, delivery_count: the new values.  None if there are none.
        from_consumer, from_delivery_time_ms, from_delivery_count: the values that the run found.
        None if the id was not pending.
        at_ms, from_idle_ms, payload, fields: as in `reply.Reply.claimed`.  Only claimed entries
        have a payload.

        status is one of these:
        `claimed`, `acked`, or `not_pending`.
        `forced`: the id was not pending, and now belongs to the consumer.
        `superseded`: claimed, and claimed again later in the same run.
        `deleted`: the stream no longer has the id, and now it is not pending either.
        `left`: not idle enough.
        `lost`: another writer changed it between decision and change.  The run did not change it.
        """
        rows = self.journal(*_IDS)
        ids, lost = _ids(rows, self.near(rows)), self._lost()
        known = ids if lost is None else _without_lost(ids, lost)
        return known.order_by("request", "position")


def _without_lost(ids: Relation, lost: Relation) -> Relation:
    """Return the ids, where lost ids have the status `lost` and no new values."""
    changes = ", ".join(f"'{kind}'" for kind in _CHANGES)
    is_lost = f"lost.is_lost IS NOT NULL AND this.status IN ({changes})"
    made = {
        "status": f"CASE WHEN {is_lost} THEN 'lost' ELSE this.status END",
        **{name: f"CASE WHEN NOT ({is_lost}) THEN this.{name} END" for name in _GOT},
    }
    columns = (f"{made.get(name, f'this.{name}')} AS {name}" for name in ids.columns)
    same = same_entry("this", "lost")
    return ids.sql(
        f"""
        SELECT {", ".join(columns)} FROM {{this}} AS this LEFT JOIN {{lost}} AS lost ON {same}
        """,
        lost=lost.select(*ENTRY, "true AS is_lost"),
    )


def _requests(rows: Relation) -> Relation:
    return rows.select(
        *("request_number AS request", *GROUP, "consumer", "kind AS status", "reason"),
        "at_ms AS now_ms",
    )


def _ids(rows: Relation, entries: Relation) -> Relation:
    kept = rows.select(
        *("request_number AS request", "position", *GROUP, f"{id_text_sql()} AS id"),
        *("id_ms", "id_seq", "kind AS status", "consumer", "delivery_time_ms", "delivery_count"),
        *(*PREVIOUS, "justid"),
    )
    return with_fields(kept, entries)
