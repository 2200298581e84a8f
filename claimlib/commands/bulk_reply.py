"""What a run did about ids that were requested by name, as frames to read on with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from claimlib.commands.reply import PREVIOUS, RunReply, with_fields
from claimlib.plans.keys import GROUP, id_text
from claimlib.schema import Kind

_ENTRY = [*GROUP, "id_ms", "id_seq"]
_IDS = (
    *(Kind.CLAIMED, Kind.FORCED, Kind.SUPERSEDED, Kind.DELETED, Kind.ACKED),
    *(Kind.LEFT, Kind.NOT_PENDING),
)
# What changes nothing cannot be lost.
_CHANGES = (Kind.CLAIMED, Kind.FORCED, Kind.SUPERSEDED, Kind.DELETED, Kind.ACKED)
_REQUESTS = (Kind.REQUESTED, Kind.REFUSED)
# What a claim gives to an id, and what is lost does not get.
_GOT = ("consumer", "delivery_time_ms", "delivery_count", "payload", "fields")


@dataclass(frozen=True)
class BulkReply(RunReply):
    """What XCLAIMs, XACKs or a retirement did (or, in a dry run, would do).  The frames are made
    when they are requested, and follow from the journal, as those of `reply.Reply`.

    Attributes:
        counts: of ids, as it was decided: claimed, forced, superseded, deleted, acked, left,
            not_pending; of these lost, and (only where it cannot be told) gone; of requests:
            requested (done) and refused; of a retirement: retired, whether the consumer is gone.
    """

    ZEROS = dict.fromkeys(map(str, (*_IDS, *_REQUESTS, Kind.LOST)), 0)

    @cached_property
    def requests(self) -> DataFrame:
        """One row per request: request (its number), stream, consumer_group, consumer (null: XACK),
        status (`requested` or `refused`), reason (null unless refused), now_ms (the instant that it
        was done at)."""
        return _requests(self.journal(*_REQUESTS))

    @cached_property
    def ids(self) -> DataFrame:
        """One row per id that a request names (but of those refused), in the order of request and
        position (from 0): stream, consumer_group, id (text), id_ms, id_seq, status, consumer,
        delivery_time_ms and delivery_count (what it got; null: nothing), from_consumer,
        from_delivery_time_ms and from_delivery_count (as the run found it; null: it was not
        pending), at_ms, payload and fields (as in `reply.Reply.claimed`; of what was claimed).

        status: `claimed`; `forced` (it was not pending, and now is the consumer's); `superseded`
        (claimed, and claimed again later in the same run); `deleted` (the stream has it no more,
        and now it is not pending either); `acked`; `left` (not idle enough); `not_pending`; `lost`
        (somebody else changed it between decision and change: nothing was done to it)."""
        rows = self.journal(*_IDS)
        ids, lost = _ids(rows, self.near(rows)), self._lost()
        known = ids if lost is None else _without_lost(ids, lost)
        return known.orderBy("request", "position")


def _without_lost(ids: DataFrame, lost: DataFrame) -> DataFrame:
    """The ids, with nothing got of what was lost."""
    changed = F.col("status").isin([str(kind) for kind in _CHANGES])
    is_lost = F.coalesce(F.col("lost") & changed, F.lit(False))
    return (
        ids.join(lost.select(*_ENTRY, F.lit(True).alias("lost")), on=_ENTRY, how="left")
        .withColumn("is_lost", is_lost)
        .withColumn("status", F.when(F.col("is_lost"), "lost").otherwise(F.col("status")))
        .withColumns({name: F.when(~F.col("is_lost"), F.col(name)) for name in _GOT})
        .select(*ids.columns)
    )


def _requests(rows: DataFrame) -> DataFrame:
    return rows.select(
        F.col("request_number").alias("request"),
        *(*GROUP, "consumer", F.col("kind").alias("status"), "reason"),
        F.col("at_ms").alias("now_ms"),
    )


def _ids(rows: DataFrame, entries: DataFrame) -> DataFrame:
    kept = rows.select(
        F.col("request_number").alias("request"),
        *("position", *GROUP, id_text().alias("id"), "id_ms", "id_seq"),
        F.col("kind").alias("status"),
        *("consumer", "delivery_time_ms", "delivery_count", *PREVIOUS, "justid"),
    )
    return with_fields(kept, entries)
