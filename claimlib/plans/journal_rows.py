"""Decisions as rows of the journal: names put back, one row per entry, group and consumer."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from claimlib.plans.keys import GROUP, GROUP_KEY
from claimlib.plans.requests import CALLER_IS_SEEN, REQUEST_COLUMNS
from claimlib.schema import Kind
from claimlib.semantics.model import Outcome


def decision_rows(decided: DataFrame, accepted: DataFrame, owners: DataFrame) -> DataFrame:
    """The journal's `claimed` and `deleted` rows: names put back on the decisions.

    The joins must find every key; one that finds none raises, for a row without its name would be
    lost work.  `owners` is `keys.owners_of_keys`.
    """
    groups = accepted.selectExpr(
        f"{GROUP_KEY} AS group_key",
        *(*GROUP, "consumer AS caller", "parking_consumer", "justid", "now_ms", "profile"),
    )
    parked = f"outcome = {Outcome.PARKED:d}"
    claimed = f"outcome IN ({Outcome.PARKED:d}, {Outcome.CLAIMED:d})"
    return (
        decided.join(groups, on="group_key", how="left")
        .join(owners, on="from_consumer_key", how="left")
        .selectExpr(
            f"CASE WHEN {claimed} THEN '{Kind.CLAIMED}' ELSE '{Kind.DELETED}' END AS kind",
            f"{name_or_error('stream', 'group_key', 'stream IS NOT NULL')} AS stream",
            *("consumer_group", "id_ms", "id_seq"),
            f"{name_or_error('from_consumer', 'from_consumer_key', 'is_known')} AS from_consumer",
            *("from_delivery_time_ms", "from_delivery_count"),
            f"CASE WHEN {parked} THEN parking_consumer WHEN {claimed} THEN caller END AS consumer",
            f"CASE WHEN {claimed} THEN now_ms END AS delivery_time_ms",
            f"CASE WHEN {claimed} THEN delivery_count END AS delivery_count",
            f"CASE WHEN {claimed} THEN justid OR {parked} END AS justid",
            "now_ms AS at_ms",
            f"CASE WHEN {claimed} THEN now_ms END AS seen_time_ms",
            f"CASE WHEN {claimed} AND {CALLER_IS_SEEN} THEN now_ms END AS active_time_ms",
        )
    )


def name_or_error(name: str, key: str, is_known: str) -> str:
    """As SQL: column `name`, or an error where the join by `key` found nothing."""
    missing = f"CAST(raise_error(concat('claimlib: no name for {key} ', {key})) AS STRING)"
    return f"CASE WHEN {is_known} THEN {name} ELSE {missing} END"


def group_rows(groups: DataFrame) -> DataFrame:
    """The journal's `swept` and `refused` rows: one per judged group, with what the survey saw."""
    request = ", ".join(name for name in REQUEST_COLUMNS if name not in GROUP)
    # Null: a group that only `pending` knows.
    is_sweep = "count IS NULL"
    return groups.selectExpr(
        f"CASE WHEN reason IS NULL THEN '{Kind.SWEPT}' ELSE '{Kind.REFUSED}' END AS kind",
        *(*GROUP, "consumer", f"to_json(struct({request})) AS request", "now_ms AS at_ms"),
        "CASE WHEN count IS NULL THEN at_boundary END AS at_boundary",
        *(f"CASE WHEN {is_sweep} THEN {name} END AS {name}" for name in OF_WHOLE_PELS),
        *("spared", "parked", "reason"),
    )


# A page does not examine the whole PEL, so these columns are null for it.
OF_WHOLE_PELS = ("pending_before", "oldest_delivery_time_ms", "highest_delivery_count")


def cursor_rows(accepted: DataFrame, next_ids: DataFrame | None) -> DataFrame:
    """The journal's `cursor` rows: one per swept group that got a page, or whose cursor is kept:
    the first id that was not examined, 0-0 where there is none.

    `next_ids` is `pages.next_ids`; null where the run has no pages.
    """
    placed = accepted.where("count IS NOT NULL OR cursor IS NOT NULL")
    if next_ids is None:
        placed = placed.selectExpr("*", "0L AS next_ms", "0L AS next_seq")
    else:
        keyed = placed.withColumn("group_key", F.expr(GROUP_KEY))
        placed = keyed.join(next_ids, on="group_key", how="left")
        placed = placed.fillna(0, ["next_ms", "next_seq"])
    return placed.selectExpr(
        f"'{Kind.CURSOR}' AS kind",
        *(*GROUP, "cursor AS cursor_name", "next_ms", "next_seq", "now_ms AS at_ms"),
    )


def consumer_rows(accepted: DataFrame) -> DataFrame:
    """The journal's `consumer` rows: one per swept group, the caller seen at the group's instant.

    Profile redis-7.0 knows a consumer only once it got an entry: there its `claimed` rows say so.
    """
    return accepted.where(CALLER_IS_SEEN).selectExpr(
        f"'{Kind.CONSUMER}' AS kind",
        *(*GROUP, "consumer", "now_ms AS at_ms", "now_ms AS seen_time_ms"),
    )


def union_rows(parts: Iterable[DataFrame]) -> DataFrame:
    """All rows of the parts; a column that a part lacks is null there."""
    return reduce(lambda rows, others: rows.unionByName(others, allowMissingColumns=True), parts)
