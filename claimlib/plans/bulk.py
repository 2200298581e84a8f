"""Ids that requests name, as of XCLAIM and XACK: what is found of each, and what becomes of
it.

All requests of a run are judged at once.  What happens to one id depends on nothing but that id and
the requests that name it, in their order; so the ids are spread over all tasks, and each is folded
over its requests (`kernel.fold_range`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from claimlib.plans import kernel
from claimlib.plans.column_readers import Shape, reader
from claimlib.plans.journal_rows import name_or_error
from claimlib.plans.keys import (
    CONSUMER_KEY,
    GROUP,
    GROUP_KEY,
    STREAM_KEY,
    divided,
    each,
    in_id_order,
    unsigned,
)
from claimlib.plans.request_table import RequestTable, is_beyond, is_none_of
from claimlib.plans.requests import (
    CALLER_IS_SEEN,
    FOR_RULES,
    PROVEN_RANGE,
    instant,
    is_no_spelling,
)
from claimlib.plans.survey import IS_INVALID, IS_PROVEN, refusal, refusal_by_name
from claimlib.plans.sweep import with_presence
from claimlib.schema import Kind
from claimlib.semantics.model import MAX_I64, IdleRule, Outcome, Profile

_ID = ("id_ms", "id_seq")


def _is_no_id(name: str) -> Column:
    return id_bits(F.col(name))["ms"].isNull() & F.col(name).isNotNull()


def _has_no_id(name: str) -> Column:
    return F.exists(F.col(name), lambda text: id_bits(text)["ms"].isNull())


def _is_second(name: str) -> Column:
    """Of IDLE and TIME one is given at most."""
    return F.col("idle_ms").isNotNull() & F.col(name).isNotNull()


_ROW_SQL = (
    "concat_ws('', 'request ', CAST(request AS STRING), ' (', stream, '/', consumer_group, ')')"
)
_REPEATED_HINT = "each request needs its own number"
_NAMES_HINT = "ids is a list (which may be empty) of ids ms-seq, none of them null"

CLAIM_COLUMNS = MappingProxyType(
    {
        "request": "BIGINT",
        "stream": "STRING",
        "consumer_group": "STRING",
        "consumer": "STRING",
        "min_idle_ms": "BIGINT",
        "ids": "ARRAY<STRING>",
        "idle_ms": "BIGINT",
        "time_ms": "BIGINT",
        "retrycount": "BIGINT",
        "force": "BOOLEAN",
        "justid": "BOOLEAN",
        "last_id": "STRING",
        "idle_rule": "STRING",
        "profile": "STRING",
    }
)
_CLAIM_OPTIONAL = ("idle_ms", "time_ms", "retrycount", "last_id")

CLAIMS = RequestTable(
    columns=CLAIM_COLUMNS,
    key=("request",),
    row_sql=_ROW_SQL,
    repeated_hint=_REPEATED_HINT,
    optional=_CLAIM_OPTIONAL,
    nullable=_CLAIM_OPTIONAL,
    hint=(
        f"{_NAMES_HINT}, last_id is an id, at most one of idle_ms and time_ms is given, retrycount"
        f" is at least 0, idle_rule is one of {', '.join(IdleRule)}, profile one of"
        f" {', '.join(Profile)}, consumer is a name spelled as in the tables"
    ),
    refusals={
        "consumer": is_no_spelling,
        "ids": _has_no_id,
        "last_id": _is_no_id,
        "time_ms": _is_second,
        "retrycount": is_beyond(0, MAX_I64),
        "idle_rule": is_none_of(IdleRule),
        "profile": is_none_of(Profile),
    },
)
"""The request table of `xclaim`: one row per XCLAIM; they are done in the order of `request`."""

ACK_COLUMNS = MappingProxyType({name: CLAIM_COLUMNS[name] for name in ("request", *GROUP, "ids")})

ACKS = RequestTable(
    columns=ACK_COLUMNS,
    key=("request",),
    row_sql=_ROW_SQL,
    repeated_hint=_REPEATED_HINT,
    optional=(),
    nullable=(),
    hint=_NAMES_HINT,
    refusals={"ids": _has_no_id},
)
"""The request table of `xack`: one row per XACK."""


def id_bits(text: Column) -> Column:
    """An id's text as the BIGINTs of its halves, `ms` and `seq`; both null: it is none."""
    read = reader(Shape.ID, [T.StringType()], id_bits=False)
    if read is None:
        raise AssertionError("an id can be a text")
    ms, seq = read([text])
    return F.struct(ms.alias("ms"), seq.alias("seq"))


# ------------------------------------------------------------------- requests


def claims(checked: DataFrame, known: DataFrame, now_ms: int | None) -> DataFrame:
    """One row per XCLAIM of a checked table: `request_number`, the names, `consumer`, `justid`,
    `profile`, `ids`, `last_ms` and `last_seq` (null: no LASTID), `request` (the other options, in
    JSON), what `known_groups` says of the group, and what the kernel needs: `now_ms` (the given
    instant, else that of the group's snapshot; null: there is none), `min_idle_ms` (a negative one
    is 0), `equal_counts`, `force`, `raise_by`, `retrycount` (-1: none), `new_delivery_time_ms`."""
    return _for_kernel(_of_groups(checked, known, now_ms))


def acks(checked: DataFrame, known: DataFrame, now_ms: int | None) -> DataFrame:
    """One row per XACK, with the columns of `claims`: what leaves the PEL whatever its idle time is
    to the kernel what the stream no longer has."""
    nobody = F.lit(None)
    constants = {
        "consumer": nobody.cast("STRING"),
        "min_idle_ms": F.lit(0).cast("BIGINT"),
        **{name: nobody.cast("BIGINT") for name in ("idle_ms", "time_ms", "retrycount")},
        **dict.fromkeys(("force", "justid"), F.lit(False)),
        "last_id": nobody.cast("STRING"),
        "idle_rule": F.lit(str(IdleRule.SERVER)),
        "profile": nobody.cast("STRING"),
    }
    return _for_kernel(_of_groups(checked, known, now_ms).withColumns(constants))


def _for_kernel(requests: DataFrame) -> DataFrame:
    return requests.withColumn("last", id_bits(F.col("last_id"))).selectExpr(
        *("request_number", *GROUP, "consumer", "justid", "profile", "ids"),
        *("last.ms AS last_ms", "last.seq AS last_seq"),
        *("request", "in_groups", "repeated_in", "ahead_in", *PROVEN_RANGE, "now_ms"),
        "greatest(min_idle_ms, 0L) AS min_idle_ms",
        *FOR_RULES,
        *("force", "coalesce(retrycount, -1L) AS retrycount"),
        f"{_NEW_DELIVERY_TIME_MS} AS new_delivery_time_ms",
    )


def _of_groups(checked: DataFrame, known: DataFrame, now_ms: int | None) -> DataFrame:
    said = [name for name in checked.columns if name not in {"request", *GROUP, "ids"}]
    values = ", ".join(("size(ids) AS ids", *said))
    return (
        checked.withColumnRenamed("request", "request_number")
        .withColumn("request", F.expr(f"to_json(struct({values}))"))
        .join(F.broadcast(known), on=list(GROUP), how="left")
        .withColumn("now_ms", F.expr(instant(now_ms)))
    )


# What IDLE or TIME says; now, where that is before 1970 or to come.  The difference leaves 64 bits
# from a negative IDLE, and then it lies in the future; or at an instant before 1970, whose group is
# refused.
_DATED_BACK = "CASE WHEN idle_ms >= 0 THEN try_subtract(now_ms, idle_ms) ELSE time_ms END"
_NEW_DELIVERY_TIME_MS = (
    f"CASE WHEN {_DATED_BACK} BETWEEN 0 AND now_ms THEN {_DATED_BACK} ELSE now_ms END"
)


def named_ids(requests: DataFrame) -> DataFrame:
    """One row per id that a request names, and one without id (null) for a request that names none:
    the request's columns, `position` (from 0), id_ms and id_seq."""
    kept = [name for name in requests.columns if name != "ids"]
    exploded = requests.selectExpr(*kept, "posexplode_outer(ids) AS (position, id)")
    read = exploded.withColumn("id", id_bits(F.col("id")))
    return read.selectExpr(*kept, "position", "id.ms AS id_ms", "id.seq AS id_seq")


def handed_over(
    owned: DataFrame, entries: DataFrame, claims: DataFrame, recipients: int
) -> DataFrame:
    """What a consumer has pending as `named_ids` of its recipients' requests: of what the stream
    still has the n-th by id goes to recipient n modulo their number, the rest is named by the
    first.

    Args:
        owned: the consumer's rows of pending.
        entries: those of its stream alone, so that hashes do not matter.
        claims: `claims`, numbered from 1, one per recipient.

    The n-th is counted in one task.
    """
    ids = with_presence(owned.select("stream_key", *_ID), entries, in_one_task=False)
    by_id = Window.partitionBy("present").orderBy(*in_id_order())
    n = F.row_number().over(by_id) - 1
    recipient = F.when(F.col("present"), n % recipients).otherwise(0)
    assigned = ids.withColumn("request_number", (recipient + 1).cast("BIGINT"))
    of_recipient = Window.partitionBy("request_number").orderBy(F.desc("present"), *in_id_order())
    numbered = assigned.select(
        *_ID,
        "request_number",
        (F.row_number().over(of_recipient) - 1).cast("BIGINT").alias("position"),
    )
    return claims.drop("ids").join(numbered, on="request_number", how="left")


# ------------------------------------------------------------------- groups


_IS_OUTSIDE = f"id_ms IS NOT NULL AND NOT {IS_PROVEN}"


def groups(ids: DataFrame) -> DataFrame:
    """One row per (stream, consumer_group) that is asked about: now_ms, what `known_groups` says
    of it, `number_of_ids` (that are named), `outside` (those outside the proven range), `low_ms`
    and `high_ms` (the smallest and the largest BIGINT in id_ms; null: no id).  One shuffle, of
    partial sums."""
    return ids.groupBy(*GROUP).agg(
        *each("max", "now_ms", "in_groups", "repeated_in", "ahead_in"),
        F.expr("count(id_ms) AS number_of_ids"),
        F.expr(f"count_if({_IS_OUTSIDE}) AS outside"),
        F.expr("min(id_ms) AS low_ms"),
        F.expr("max(id_ms) AS high_ms"),
    )


def judged(
    groups: DataFrame, ids: DataFrame, pending: DataFrame, run_seq: int, *, any_outside: bool
) -> DataFrame:
    """`groups` with `reason`: why the group is refused (null: it is accepted).

    An id outside the proven range refuses its group where it is pending, for it might be purged,
    and where it is to be forced; else nothing depends on it.
    """
    counted = groups.join(_unusable(ids, pending, run_seq), on=list(GROUP), how="left")
    if any_outside:
        key = [*GROUP, *_ID]
        outside = ids.where(_IS_OUTSIDE)
        is_pending = outside.join(pending.select(*key), on=key, how="left_semi")
        needed = outside.where("force").select(*key).union(is_pending.select(*key)).distinct()
        counted = counted.join(_number(needed, "unproven"), on=list(GROUP), how="left")
    else:
        counted = counted.withColumn("unproven", F.lit(0).cast("BIGINT"))
    counts = ["invalid", "ahead", "unproven"]
    return counted.fillna(0, counts).withColumn("reason", refusal())


def judged_by_name(
    groups: DataFrame, ids: DataFrame, pending: DataFrame, run_seq: int
) -> DataFrame:
    """`judged` for those who name what they remove (`survey.refusal_by_name`)."""
    counted = groups.join(_unusable(ids, pending, run_seq), on=list(GROUP), how="left")
    return counted.withColumn("reason", refusal_by_name())


def _unusable(ids: DataFrame, pending: DataFrame, run_seq: int) -> DataFrame:
    """One row per group of which a pending row that is requested cannot be used: how many rows are
    `invalid`, and `ahead` (see `survey.by_group`)."""
    key = [*GROUP, *_ID]
    is_ahead = f"run_seq >= {run_seq:d}"
    rows = pending.where(f"{IS_INVALID} OR {is_ahead}")
    named = rows.join(ids.select(*key), on=key, how="left_semi")
    return named.groupBy(*GROUP).agg(
        F.expr(f"count_if({IS_INVALID}) AS invalid"), F.expr(f"count_if({is_ahead}) AS ahead")
    )


def _number(rows: DataFrame, name: str) -> DataFrame:
    return rows.groupBy(*GROUP).agg(F.count("*").alias(name))


def of_accepted(rows: DataFrame, judged: DataFrame) -> DataFrame:
    """The rows (of requests, or of ids) whose group is not refused."""
    accepted = judged.where(F.col("reason").isNull()).select(*GROUP)
    return rows.join(F.broadcast(accepted), on=list(GROUP), how="left_semi")


# ------------------------------------------------------------------- ids


def with_pending(
    ids: DataFrame,
    pending: DataFrame,
    entries: DataFrame | None,
    *,
    in_one_task: bool,
) -> DataFrame:
    """One row per id that a request names, with `kernel.BULK_INPUT`.

    Args:
        entries: null: nobody asks whether the streams still have the ids; to the kernel they do
            not.
        in_one_task: see `with_presence`.
    """
    request = ("request_number", "position", *_ID, "now_ms", "min_idle_ms", "equal_counts")
    wanted = ids.where("id_ms IS NOT NULL").selectExpr(
        *(*request, "force", "raise_by", "retrycount", "new_delivery_time_ms"),
        f"{GROUP_KEY} AS group_key",
        f"{STREAM_KEY} AS stream_key",
    )
    state = pending.selectExpr(
        *(*kernel.KEY, f"{CONSUMER_KEY} AS consumer_key"),
        *("consumer IS NOT NULL AS is_owned", "true AS is_pending"),
        *("delivery_time_ms", "delivery_count"),
    )
    rows = (
        # By sort and merge, whatever Spark thinks of the size of pending, as in `with_presence`.
        wanted.join(state.hint("merge"), on=[*kernel.KEY], how="left")
        .fillna(False, ["is_owned", "is_pending"])
        .fillna(0, ["consumer_key", "delivery_time_ms", "delivery_count"])
    )
    if entries is None:
        rows = rows.withColumn("present", F.lit(False))
    else:
        rows = with_presence(rows, entries, in_one_task=in_one_task)
    return rows.selectExpr(*kernel.BULK_INPUT)


def pending_of(ids: DataFrame, pending: DataFrame) -> DataFrame:
    """The rows of pending that are requested, by `kernel.KEY`: as often as pending holds them."""
    named = ids.where("id_ms IS NOT NULL")
    wanted = named.selectExpr(f"{GROUP_KEY} AS group_key", *_ID)
    key = list(kernel.KEY)
    return pending.select(*key).join(wanted, on=key, how="left_semi")


def decisions(rows: DataFrame, *, in_one_task: bool) -> DataFrame:
    """One row per row, with `kernel.BULK_OUTPUT`.  One shuffle at most, into ranges of ids."""
    ranges = divided(rows, *kernel.KEY, in_one_task=in_one_task)
    order = ("group_key", *in_id_order(), "request_number", "position")
    ordered = ranges.sortWithinPartitions(*order)
    return ordered.mapInPandas(kernel.fold_range, _SCHEMA)


_SCHEMA = (
    "group_key BIGINT, id_ms BIGINT, id_seq BIGINT, request_number BIGINT, position BIGINT,"
    " outcome TINYINT, is_pending BOOLEAN, from_consumer_key BIGINT, from_delivery_time_ms BIGINT,"
    " from_delivery_count BIGINT, delivery_time_ms BIGINT, delivery_count BIGINT"
)


# ------------------------------------------------------------------- journal rows

KINDS: Mapping[Outcome, Kind] = MappingProxyType(
    {
        Outcome.CLAIMED: Kind.CLAIMED,
        Outcome.FORCED: Kind.FORCED,
        Outcome.SUPERSEDED: Kind.SUPERSEDED,
        Outcome.DELETED: Kind.DELETED,
        Outcome.LEFT: Kind.LEFT,
        Outcome.NOT_PENDING: Kind.NOT_PENDING,
    }
)
ACK_KINDS = MappingProxyType({**KINDS, Outcome.DELETED: Kind.ACKED})
_GOT = (Outcome.CLAIMED, Outcome.FORCED, Outcome.SUPERSEDED)


def entry_rows(
    decided: DataFrame,
    accepted: DataFrame,
    owners: DataFrame,
    kinds: Mapping[Outcome, Kind],
) -> DataFrame:
    """The journal's rows about ids, one per id that a request names: names put back.

    Args:
        decided: `decisions`.
        accepted: the requests of the groups that are not refused.
        owners: `keys.owners_of_keys`.
    """
    requests = accepted.selectExpr(
        *("request_number", f"{GROUP_KEY} AS group_key", *GROUP),
        *("consumer AS caller", "justid", "now_ms", "profile"),
    )
    got = f"outcome IN ({', '.join(f'{outcome:d}' for outcome in _GOT)})"
    from_consumer = name_or_error("from_consumer", "from_consumer_key", "is_known")
    of_outcome = " ".join(f"WHEN {outcome:d} THEN '{kind}'" for outcome, kind in kinds.items())
    return (
        # By both: should the table give other rows the second time, no request of another group is
        # taken for this one.
        decided.join(requests, on=["request_number", "group_key"], how="left")
        .join(owners, on="from_consumer_key", how="left")
        .selectExpr(
            f"CASE outcome {of_outcome} END AS kind",
            f"{name_or_error('stream', 'request_number', 'stream IS NOT NULL')} AS stream",
            *("consumer_group", *_ID, "request_number", "position"),
            f"CASE WHEN is_pending THEN {from_consumer} END AS from_consumer",
            *(
                f"CASE WHEN is_pending THEN {name} END AS {name}"
                for name in ("from_delivery_time_ms", "from_delivery_count")
            ),
            f"CASE WHEN {got} THEN caller END AS consumer",
            *(
                f"CASE WHEN {got} THEN {name} END AS {name}"
                for name in ("delivery_time_ms", "delivery_count", "justid")
            ),
            "now_ms AS at_ms",
            f"CASE WHEN {got} THEN now_ms END AS seen_time_ms",
            f"CASE WHEN {got} AND {CALLER_IS_SEEN} THEN now_ms END AS active_time_ms",
        )
    )


def request_rows(requests: DataFrame, judged: DataFrame) -> DataFrame:
    """The journal's `requested` and `refused` rows: one per request."""
    reasons = judged.selectExpr(*GROUP, "reason", "true AS is_judged")
    both = requests.join(F.broadcast(reasons), on=list(GROUP), how="left")
    return both.selectExpr(
        f"CASE WHEN reason IS NULL THEN '{Kind.REQUESTED}' ELSE '{Kind.REFUSED}' END AS kind",
        f"{name_or_error('stream', 'request_number', 'is_judged IS NOT NULL')} AS stream",
        *("request_number", "consumer_group", "consumer", "request", "reason", "now_ms AS at_ms"),
    )


def consumer_rows(accepted: DataFrame) -> DataFrame:
    """The journal's `consumer` rows: each caller, seen at the group's instant, also where it names
    no id.  Profile redis-7.0 knows a consumer only once it got an entry."""
    return (
        accepted.where(CALLER_IS_SEEN)
        .selectExpr(
            f"'{Kind.CONSUMER}' AS kind",
            *(*GROUP, "consumer", "now_ms AS at_ms", "now_ms AS seen_time_ms"),
        )
        .distinct()
    )


def last_id_rows(accepted: DataFrame) -> DataFrame:
    """The journal's `lastid` rows: one per group that is given one, the largest."""
    largest = F.max(F.struct(unsigned("last_ms").alias("ms"), unsigned("last_seq").alias("seq")))
    with_last_id = accepted.where("last_ms IS NOT NULL")
    return (
        with_last_id.groupBy(*GROUP)
        .agg(largest.alias("id"), F.max("now_ms").alias("at_ms"))
        .select(
            F.expr(f"'{Kind.LASTID}' AS kind"),
            *(*GROUP, "at_ms"),
            unsigned(F.col("id")["ms"]).alias("last_delivered_ms"),
            unsigned(F.col("id")["seq"]).alias("last_delivered_seq"),
        )
    )
