"""What a run did about ids that were requested by name, as frames to read on with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from claimlib.commands.reply import near_claims, with_fields
from claimlib.plans.keys import GROUP, id_text
from claimlib.runs import Finished
from claimlib.runs.journal import Kind, rows_of
from claimlib.store.tables import Store

_ENTRY = [*GROUP, "id_ms", "id_seq"]
_IDS = (
    *(Kind.CLAIMED, Kind.FORCED, Kind.SUPERSEDED, Kind.DELETED, Kind.ACKED),
    *(Kind.LEFT, Kind.NOT_PENDING),
)
# What changes nothing cannot be lost.
_CHANGES = (Kind.CLAIMED, Kind.FORCED, Kind.SUPERSEDED, Kind.DELETED, Kind.ACKED)
_REQUESTS = (Kind.REQUESTED, Kind.REFUSED)
_NONE = {str(kind): 0 for kind in (*_IDS, *_REQUESTS, Kind.LOST)}
# What a claim gives to an id, and what is lost does not get.
_GOT = ("consumer", "delivery_time_ms", "delivery_count", "payload", "fields")


@dataclass(frozen=True, slots=True)
class BulkReply:
    """What XCLAIMs, XACKs or a retirement did (or, in a dry run, would do).  The frames are lazy,
    and follow from the journal, as those of `reply.Reply`.

    Attributes:
        run_seq: the run's number; null in a dry run.
        is_repeat: whether an earlier call with the same run id had done it.
        counts: of ids, as it was decided: claimed, forced, superseded, deleted, acked, left,
            not_pending; of these lost, and (only where it cannot be told) gone; of requests:
            requested (done) and refused; of a retirement: retired, whether the consumer is gone.
        requests: one row per request: request (its number), stream, consumer_group, consumer (null:
            XACK), status (`requested` or `refused`), reason (null unless refused), now_ms (the
            instant that it was done at).
        ids: one row per id that a request names (but of those refused), in the order of request and
            position (from 0): stream, consumer_group, id (text), id_ms, id_seq, status, consumer,
            delivery_time_ms and delivery_count (what it got; null: nothing), from_consumer,
            from_delivery_time_ms and from_delivery_count (as the run found it; null: it was not
            pending), at_ms, payload and fields (as in `reply.Reply.claimed`; of what was claimed).

            status: `claimed`; `forced` (it was not pending, and now is the consumer's);
            `superseded` (claimed, and claimed again later in the same run); `deleted` (the stream
            has it no more, and now it is not pending either); `acked`; `left` (not idle enough);
            `not_pending`; `lost` (somebody else changed it between decision and change: nothing was
            done to it).
    """

    run_id: str | None
    run_seq: int | None
    dry_run: bool
    is_repeat: bool
    counts: Mapping[str, int]
    requests: DataFrame
    ids: DataFrame


def of_finished(store: Store, finished: Finished) -> BulkReply:
    """The reply of a finished run, from its journal rows: the same whenever it is requested."""
    rows = rows_of(store, finished.run_seq, *_IDS)
    lost = rows_of(store, finished.run_seq, Kind.LOST).select(*_ENTRY, F.lit(True).alias("lost"))
    changed = F.col("status").isin([str(kind) for kind in _CHANGES])
    known = _ids(rows, near_claims(store, store.read("entries"), rows))
    is_lost = F.col("lost") & changed
    return BulkReply(
        run_id=finished.run_id,
        run_seq=finished.run_seq,
        dry_run=False,
        is_repeat=finished.is_repeat,
        counts={**_NONE, **finished.counts},
        requests=_requests(rows_of(store, finished.run_seq, *_REQUESTS)),
        ids=known.join(lost, on=_ENTRY, how="left")
        .withColumn("is_lost", F.coalesce(is_lost, F.lit(False)))
        .withColumn("status", F.when(F.col("is_lost"), "lost").otherwise(F.col("status")))
        .withColumns({name: F.when(~F.col("is_lost"), F.col(name)) for name in _GOT})
        .select(*known.columns)
        .orderBy("request", "position"),
    )


def of_plan(journal_rows: DataFrame, entries: DataFrame) -> BulkReply:
    """The reply of a dry run, from journal rows that nobody writes.  Runs the plan once, to
    count."""
    counted = {row["kind"]: row["count"] for row in journal_rows.groupBy("kind").count().collect()}
    rows = journal_rows.where(F.col("kind").isin([str(kind) for kind in _IDS]))
    of_requests = journal_rows.where(F.col("kind").isin([str(kind) for kind in _REQUESTS]))
    return BulkReply(
        run_id=None,
        run_seq=None,
        dry_run=True,
        is_repeat=False,
        counts={**_NONE, **{str(kind): counted.get(kind, 0) for kind in (*_IDS, *_REQUESTS)}},
        requests=_requests(of_requests),
        ids=_ids(rows, entries).orderBy("request", "position"),
    )


def _requests(rows: DataFrame) -> DataFrame:
    return rows.select(
        F.col("request_number").alias("request"),
        *(*GROUP, "consumer", F.col("kind").alias("status"), "reason"),
        F.col("at_ms").alias("now_ms"),
    )


def _ids(rows: DataFrame, entries: DataFrame) -> DataFrame:
    found = ("from_consumer", "from_delivery_time_ms", "from_delivery_count", "at_ms")
    kept = rows.select(
        F.col("request_number").alias("request"),
        *("position", *GROUP, id_text().alias("id"), "id_ms", "id_seq"),
        F.col("kind").alias("status"),
        *("consumer", "delivery_time_ms", "delivery_count", *found, "justid"),
    )
    return with_fields(kept, entries)
