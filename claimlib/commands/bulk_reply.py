"""Build the replies of runs whose requests name ids."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from claimlib.commands.reply import PREVIOUS, RunReply, with_fields
from claimlib.engine.relation import Relation
from claimlib.plans.keys import ENTRY, GROUP, id_text_sql, same_entry
from claimlib.schema import Kind

# Only changes can be lost to another writer.
_CHANGING_KINDS = (Kind.CLAIMED, Kind.FORCED, Kind.SUPERSEDED, Kind.DELETED, Kind.ACKED)
_ID_KINDS = (*_CHANGING_KINDS, Kind.LEFT, Kind.NOT_PENDING)
_REQUEST_KINDS = (Kind.REQUESTED, Kind.REFUSED)
# The values that a claim gives to an id.  A lost id does not get them.
_CLAIMED_VALUES = ("consumer", "delivery_time_ms", "delivery_count", "payload", "fields")


@dataclass(frozen=True)
class BulkReply(RunReply):
    """Hold what XCLAIMs, XACKs or a retirement did, or would do in a dry run.

    Each relation is built when it is first used.  Like those of `reply.Reply`, the relations follow
    from the journal.

    Attributes:
        run_id: identifies the run, together with the command.  None in a dry run.
        run_seq: the number of the run, or None in a dry run.
        dry_run: True if nothing was written.
        is_repeat: True if an earlier call with the same run id had done the run.
        counts: numbers by name:
            - claimed, forced, superseded, deleted, acked, left, not_pending: ids, as decided.
            - lost: those of these ids that another writer changed first.
            - gone: those of these ids whose rows are missing, if it is unknown which writer removed
              them.
            - requested, refused: requests that were done, and that were refused.
            - retired, not_idle (only for a retirement): consumers that were removed, and consumers
              that stay because of its idle_ms.
    """

    ZEROS = dict.fromkeys(map(str, (*_ID_KINDS, *_REQUEST_KINDS, Kind.LOST)), 0)

    @cached_property
    def requests(self) -> Relation:
        """Return one row per request.

        Columns:

        - request: its number.
        - stream, consumer_group.
        - consumer: None for XACK, or if several consumers share the claimed entries.
        - status: `requested` or `refused`.
        - reason: why the request was refused.  None if it was done.
        - now_ms: the time for which idle times were computed.
        """
        return _requests(self.journal(*_REQUEST_KINDS))

    @cached_property
    def retired(self) -> Relation:
        """Return the keys of the consumers that a retirement decided to remove, one per row."""
        return self.journal(Kind.RETIRED).select(*GROUP, "consumer")

    @cached_property
    def ids(self) -> Relation:
        """Return one row per id that a request names, in the order of request and position.

        Ids of refused requests have no row.  Columns:

        - request, position (from 0), stream, consumer_group, id (text), id_ms, id_seq.
        - status: see below.
        - consumer, delivery_time_ms, delivery_count: the new values, or None if the id has none.
        - from_consumer, from_delivery_time_ms, from_delivery_count: the values that the run found,
          or None if the id was not pending.
        - at_ms, from_idle_ms, payload, fields: as in `reply.Reply.claimed`.  Only claimed entries
          have a payload.

        The status is one of these:

        - `claimed`, `acked`, or `not_pending`.
        - `forced`: the id was not pending, and now belongs to the consumer.
        - `superseded`: the id was claimed, and claimed again later in the same run.
        - `deleted`: the stream no longer has the id.  Now the id is not pending, either.
        - `left`: the id was not idle enough.
        - `lost`: another writer changed the id after the decision, so the run did not change it.
        """
        rows = self.journal(*_ID_KINDS)
        ids, lost = _ids(rows, self.near(rows)), self._lost()
        known = ids if lost is None else _with_lost_status(ids, lost)
        return known.order_by("request", "position")


def _with_lost_status(ids: Relation, lost: Relation) -> Relation:
    """Return the ids.  Lost ids get the status `lost`, and no new values."""
    changes = ", ".join(f"'{kind}'" for kind in _CHANGING_KINDS)
    is_lost = f"lost.is_lost IS NOT NULL AND this.status IN ({changes})"
    expressions = {
        "status": f"CASE WHEN {is_lost} THEN 'lost' ELSE this.status END",
        **{name: f"CASE WHEN NOT ({is_lost}) THEN this.{name} END" for name in _CLAIMED_VALUES},
    }
    columns = (f"{expressions.get(name, f'this.{name}')} AS {name}" for name in ids.columns)
    same = same_entry("this", "lost")
    return ids.sql(
        f"""
        SELECT {", ".join(columns)} FROM {{this}} AS this LEFT JOIN {{lost}} AS lost ON {same}
        """,
        lost=lost.select(*ENTRY, "true AS is_lost"),
    )


def _requests(rows: Relation) -> Relation:
    return rows.select(
        "request_number AS request",
        *GROUP,
        "consumer",
        "kind AS status",
        "reason",
        "at_ms AS now_ms",
    )


def _ids(rows: Relation, entries: Relation) -> Relation:
    kept = rows.select(
        "request_number AS request",
        "position",
        *GROUP,
        f"{id_text_sql()} AS id",
        "id_ms",
        "id_seq",
        "kind AS status",
        "consumer",
        "delivery_time_ms",
        "delivery_count",
        *PREVIOUS,
        "justid",
    )
    return with_fields(kept, entries)
