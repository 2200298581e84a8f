"""What the reading of a source changes in a store: computed against pinned tables, row by row.

`staged` is what was read of the source, `stored` the part of a pinned table that the request was
for.  A difference of `pending` is one of

    new        the source has the row and the store does not
    replaced   both have it, with another owner, delivery time or delivery count
    removed    the store has it and the source does not

Entries are the same, but what is `filled` has a payload that the store lacks, or another one.  Rows
that are replaced, filled or removed are named in the journal, with what the store held; new rows
are not: the landing has them.

A removed row is EXPLAINED if the source shows why it is gone: its group is still there and has
delivered up to the last removed row (so consumers have acknowledged them), or, for an entry, its
stream is still there and has generated ids up to the last removed one (so they were deleted or
trimmed).  The removal is not explained if the stream or the group is gone, or if another stream has
replaced the stream (`semantics.stream_life`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from claimlib.plans.keys import (
    GROUP,
    bucket_of,
    glob_sql,
    id_at_least,
    id_at_most,
    unsigned,
)
from claimlib.plans.requests import PROVEN_RANGE
from claimlib.schema import Kind, quote_text
from claimlib.semantics.names import literal_name, spell

_ID = ("id_ms", "id_seq")
_STATE = ("consumer", "delivery_time_ms", "delivery_count")
DIGEST = ("rows", "high", "low")
"""The fields of `digest`."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which rows a snapshot or an import is for: Redis' globs on stream and group."""

    stream_glob: str
    group_glob: str

    def has_stream(self) -> Column:
        """Whether a row's stream was asked for."""
        return F.expr(_matches_sql("stream", self.stream_glob))

    def has_group(self) -> Column:
        """Whether a row's (stream, consumer_group) was asked for."""
        return F.expr(self.has_group_sql())

    def has_group_sql(self) -> str:
        """`has_group` as SQL."""
        stream = _matches_sql("stream", self.stream_glob)
        return f"({stream} AND {_matches_sql('consumer_group', self.group_glob)})"

    def has_whole_stream(self) -> Column:
        """Whether a row's stream was asked for with all of its groups: where only some were, a
        stream that was not seen may be there all the same."""
        return self.has_stream() if self.group_glob == "*" else F.lit(False)

    def lies_in(self, buckets: int) -> Column:
        """Where the rows lie in a table with buckets: one bucket, where one stream is named."""
        return F.expr(self.lies_in_sql(buckets))

    def lies_in_sql(self, buckets: int) -> str:
        """`lies_in` as SQL."""
        name = literal_name(self.stream_glob)
        return "true" if name is None else f"bucket = {bucket_of(spell(name), buckets)}"


EVERYTHING = Scope("*", "*")


def _matches_sql(column: str, glob: str) -> str:
    name = literal_name(glob)
    return glob_sql(column, glob) if name is None else f"{column} = {quote_text(spell(name))}"


@dataclass(frozen=True, slots=True)
class Digest:
    """Some rows by number and content, whatever their order: two sums of halves of their hashes."""

    rows: int = 0
    high: int = 0
    low: int = 0

    def as_json(self) -> list[int]:
        """The digest as the journal keeps it."""
        return [self.rows, self.high, self.low]


def digest(content: Column, counted: Column | None = None) -> Column:
    """The aggregate behind a `Digest`, as a struct: rows, high, low; of the rows that are counted.

    `content` is `pending_content` or `entry_content`.
    """
    of_row = content if counted is None else F.when(counted, content)
    # 32 bits each, so that no sum of them leaves 64 bits.
    halves = (F.shiftright(of_row, 32), of_row.bitwiseAND(F.lit(2**32 - 1)))
    high, low = (F.coalesce(F.sum(half), F.lit(0)) for half in halves)
    return F.struct(F.count(of_row).alias("rows"), high.alias("high"), low.alias("low"))


def digest_of(table: str) -> Column:
    """`digest` of all rows of `pending` or of `entries`, or of what is staged for them."""
    return digest(pending_content() if table == "pending" else entry_content(payload_hash()))


def pending_content(key: str = "group_key") -> Column:
    """The hash of a pending row's key and state.  A hash skips nulls, so nobody has a mark."""
    return F.xxhash64(key, *_ID, F.col("consumer").isNull(), *_STATE)


def entry_content(fields: Column) -> Column:
    """The hash of an entry's key and payload; `fields` is `payload_hash`."""
    return F.xxhash64("stream_key", *_ID, fields)


def payload_hash(fields: str = "fields") -> Column:
    """The hash of a payload; null: none is kept."""
    return F.when(F.col(fields).isNotNull(), F.xxhash64(fields))


def left_alone(pending: DataFrame, scope: Scope) -> DataFrame:
    """One row per stream that was requested of which other groups have pending entries: `low` and
    `high`, the first and the last of these as structs that sort as ids do."""
    id_ = F.struct(unsigned("id_ms").alias("ms"), unsigned("id_seq").alias("seq"))
    others = pending.where(scope.has_stream() & ~scope.has_group())
    return others.groupBy("stream").agg(F.min(id_).alias("low"), F.max(id_).alias("high"))


# ------------------------------------------------------------------- pending


def compared_pending(staged: DataFrame, stored: DataFrame) -> DataFrame:
    """One row per pending entry that the source or the store has (a repeated row of the store
    counts each time).

    Columns: group_key, id_ms, id_seq; `difference` (null: both have the same); the staged consumer,
    delivery_time_ms and delivery_count; and as the store has it, `stored_stream` and
    `stored_consumer_group` (null: it does not), from_consumer, from_delivery_time_ms,
    from_delivery_count, `stored_run_seq` and `stored_is_claim`.  One shuffle of both sides.

    Args:
        stored: rows of pending, with `is_claim`: whether a run of the store wrote the row, and not
            its source (null: no).
    """
    of_source = staged.select("group_key", *_ID, *_STATE, F.lit(True).alias("l"))
    of_store = stored.select(
        *("group_key", *_ID),
        *(F.col(name).alias(f"stored_{name}") for name in (*GROUP, "run_seq", "is_claim")),
        *(F.col(name).alias(f"from_{name}") for name in _STATE),
    )
    same = [F.col(name).eqNullSafe(F.col(f"from_{name}")) for name in _STATE]
    difference = (
        F.when(F.col("stored_stream").isNull(), "new")
        .when(F.col("l").isNull(), "removed")
        .when(~(same[0] & same[1] & same[2]), "replaced")
    )
    both = of_source.join(of_store, on=["group_key", *_ID], how="full")
    return both.withColumn("difference", difference).drop("l")


def replaced_and_removed(compared: DataFrame) -> DataFrame:
    """The journal's `pending_replaced` and `pending_removed` rows.

    Each once: a repeated row of the store is changed by the same journal row.
    """
    is_replaced = F.col("difference") == "replaced"
    kinds = {"replaced": Kind.PENDING_REPLACED, "removed": Kind.PENDING_REMOVED}
    changed = _of_kinds(compared, kinds)
    return changed.select(
        "kind",
        *(F.col(f"stored_{name}").alias(name) for name in GROUP),
        *_ID,
        *(f"from_{name}" for name in _STATE),
        *(F.when(is_replaced, F.col(name)).alias(name) for name in _STATE),
    ).distinct()


def _of_kinds(compared: DataFrame, kinds: Mapping[str, Kind]) -> DataFrame:
    """The rows with some differences, each with its `kind` of journal row."""
    of_difference = (
        F.when(F.col("difference") == difference, str(kind)) for difference, kind in kinds.items()
    )
    return compared.withColumn("kind", F.coalesce(*of_difference)).where("kind IS NOT NULL")


def _is_claim_taken_back() -> Column:
    """Whether a run of the store gave a row to a consumer, and its source shows another one.  Where
    the same commands were run on the server only the delivery times differ."""
    has_other_owner = ~F.col("consumer").eqNullSafe(F.col("from_consumer"))
    is_replaced = F.col("difference") == "replaced"
    return is_replaced & F.col("stored_is_claim") & has_other_owner


def pending_by_group(compared: DataFrame) -> DataFrame:
    """One row per (stream, consumer_group) of the store, and one (null) for all that is new.

    Columns: `stored`, `new`, `replaced`, `removed` (rows), `claims` (of the replaced, those that a
    run of the store had given to another consumer), `last`, the largest removed id as a struct
    that sorts as ids do (null: none is removed), `last_run_seq` (the largest of the stored rows)
    and `after`, the `Digest` of what the store will hold.  One shuffle, of partial sums.
    """
    names = [F.col(f"stored_{name}").alias(name) for name in GROUP]
    return compared.groupBy(*names).agg(
        *_sums("new", "replaced", "removed"),
        F.count_if(_is_claim_taken_back()).alias("claims"),
        digest(pending_content(), _stays()).alias("after"),
    )


# ------------------------------------------------------------------- entries


BOUNDS = (*PROVEN_RANGE, "first_ms", "first_seq")
"""Columns of a stream that was read: the bounds of the ids that were read (null if none were), and
the smallest id that it has (0-0 if it is empty; null if unknown)."""


def with_known_absence(stored: DataFrame) -> DataFrame:
    """Replace the `BOUNDS` of stored entries by `absence_is_known`.

    It is true if an entry that was not read cannot exist in the source.  Only a part of a stream is
    read; an entry outside this part may still exist.
    """
    from_ms, from_seq, to_ms, to_seq, *first = BOUNDS
    was_read = (
        f"{id_at_least('id_ms', 'id_seq', from_ms, from_seq)}"
        f" AND {id_at_most('id_ms', 'id_seq', to_ms, to_seq)}"
    )
    is_before_first = f"NOT {id_at_least('id_ms', 'id_seq', *first)}"
    is_known = f"(first_ms = 0 AND first_seq = 0) OR {was_read} OR {is_before_first}"
    known = F.expr(f"coalesce({is_known}, false)")
    return stored.withColumn("absence_is_known", known).drop(*BOUNDS)


def compared_entries(staged: DataFrame, stored: DataFrame) -> DataFrame:
    """One row per entry that the source or the store has.

    Columns: stream_key, id_ms, id_seq; `difference` (null: nothing changes); `payload` and
    `from_payload`, the hashes of the payload that the store will hold and of the one that it holds
    (null: none); `stored_stream` and `stored_run_seq` (null: the store does not have it), and
    `absence_is_known`.  One shuffle of both sides, without payloads.

    Args:
        stored: rows of `with_known_absence`.
    """
    of_source = staged.select(
        *("stream_key", *_ID, payload_hash().alias("staged_payload")), F.lit(True).alias("l")
    )
    of_store = stored.select(
        *("stream_key", *_ID, payload_hash().alias("from_payload")),
        *(F.col(name).alias(f"stored_{name}") for name in ("stream", "run_seq")),
        "absence_is_known",
    )
    filled = F.col("staged_payload").isNotNull() & ~F.col("staged_payload").eqNullSafe(
        F.col("from_payload")
    )
    difference = (
        F.when(F.col("stored_stream").isNull(), "new")
        .when(F.col("l").isNull(), "removed")
        .when(filled, "filled")
    )
    both = of_source.join(of_store, on=["stream_key", *_ID], how="full")
    return both.select(
        *("stream_key", *_ID, difference.alias("difference")),
        F.coalesce("staged_payload", "from_payload").alias("payload"),
        *("from_payload", "stored_stream", "stored_run_seq", "absence_is_known"),
    )


def filled_and_removed(compared: DataFrame) -> DataFrame:
    """The journal's `entry_filled` and `entry_removed` rows, each once."""
    kinds = {"filled": Kind.ENTRY_FILLED, "removed": Kind.ENTRY_REMOVED}
    changed = _of_kinds(compared, kinds)
    stream = F.col("stored_stream").alias("stream")
    return changed.select("kind", stream, *_ID, "from_payload").distinct()


def entries_by_stream(compared: DataFrame) -> DataFrame:
    """Return the columns of `pending_by_group`, one row per stream of the store, with `filled`
    instead of `replaced`.

    `missing` counts the removed entries that are known not to exist in the source.  `last_missing`
    is the largest id of these.
    """
    is_missing = (F.col("difference") == "removed") & F.col("absence_is_known")
    return compared.groupBy(F.col("stored_stream").alias("stream")).agg(
        *_sums("new", "filled", "removed"),
        F.countDistinct(F.when(is_missing, F.struct(*_ID))).alias("missing"),
        F.max(F.when(is_missing, _sortable_id())).alias("last_missing"),
        digest(entry_content(F.col("payload")), _stays()).alias("after"),
    )


def _sums(*differences: str) -> list[Column]:
    return [
        F.count("stored_stream").alias("stored"),
        *(F.count_if(F.col("difference") == name).alias(name) for name in differences),
        F.max(F.when(F.col("difference") == "removed", _sortable_id())).alias("last"),
        F.max("stored_run_seq").alias("last_run_seq"),
    ]


def _sortable_id() -> Column:
    return F.struct(unsigned("id_ms").alias("ms"), unsigned("id_seq").alias("seq"))


def _stays() -> Column:
    return F.coalesce(F.col("difference") != "removed", F.lit(True))


# ------------------------------------------------------------------- what nothing explains


def unexplained_pending(removed: DataFrame, groups: DataFrame) -> DataFrame:
    """One row per stream of `pending_by_group`: `stored` and `unexplained` (rows of pending).

    `groups`: one row per group of the source, with last_delivered_ms and last_delivered_seq.
    """
    return _unexplained(removed, groups, GROUP, "last_delivered")


def unexplained_entries(removed: DataFrame, streams: DataFrame) -> DataFrame:
    """One row per stream of `entries_by_stream`: `stored` and `unexplained` (rows of entries).

    `streams`: one row per stream of the source, with last_generated_ms and last_generated_seq
    (null: the source does not say, and so explains nothing).
    """
    return _unexplained(removed, streams, ("stream",), "last_generated")


def _unexplained(
    removed: DataFrame, source: DataFrame, key: tuple[str, ...], upto: str
) -> DataFrame:
    reached = F.struct(unsigned(f"{upto}_ms").alias("ms"), unsigned(f"{upto}_seq").alias("seq"))
    known = F.when(F.col(f"{upto}_ms").isNotNull(), reached).alias("upto")
    of_store = removed.where(F.col("stored") > 0)
    both = of_store.join(source.select(*key, known), on=list(key), how="left")
    is_explained = F.coalesce(F.col("last") <= F.col("upto"), F.lit(False))
    left = F.when(is_explained, 0).otherwise(F.col("removed"))
    return both.groupBy("stream").agg(
        F.sum("stored").alias("stored"), F.sum(left).alias("unexplained")
    )


def largest_share(by_stream: DataFrame, gone: DataFrame, limit: float) -> DataFrame:
    """Return one row that sums up `unexplained_pending` or `unexplained_entries`.

    Columns: `stored`; `unexplained`; `above`, the number of streams whose unexplained share exceeds
    `limit`; `worst`, a struct (share, unexplained, stored, stream) of the stream with the largest
    share, or None if there is none.

    Args:
        gone: the streams that count only for all streams together.
    """
    share = F.try_divide("unexplained", "stored")
    worst = F.struct(share.alias("share"), "unexplained", "stored", "stream")
    judged = by_stream.join(gone.withColumn("is_gone", F.lit(True)), on="stream", how="left")
    is_judged = F.col("is_gone").isNull()
    return judged.agg(
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in ("stored", "unexplained")),
        F.count_if((share > limit) & is_judged).alias("above"),
        F.max(F.when(is_judged, worst)).alias("worst"),
    )


# ------------------------------------------------------------------- both tables alike


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the staged rows of a table are compared with the stored ones.

    Attributes:
        name: of the table.
        changed: the difference of a row that both have (`replaced`, or `filled`).
        compared: from staged and stored rows to one row per difference.
        by_key: sums of what `compared` gives, one row per group or stream.
        journal_rows: of what `compared` gives, the rows that a run changes.
        unexplained: from `by_key` and one row per group or stream of the source to what nothing
            explains, one row per stream.
    """

    name: str
    changed: str
    compared: Callable[[DataFrame, DataFrame], DataFrame]
    by_key: Callable[[DataFrame], DataFrame]
    journal_rows: Callable[[DataFrame], DataFrame]
    unexplained: Callable[[DataFrame, DataFrame], DataFrame]


PENDING = Comparison(
    "pending",
    "replaced",
    compared_pending,
    pending_by_group,
    replaced_and_removed,
    unexplained_pending,
)
ENTRIES = Comparison(
    "entries",
    "filled",
    compared_entries,
    entries_by_stream,
    filled_and_removed,
    unexplained_entries,
)
