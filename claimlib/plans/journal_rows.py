"""Decisions as rows of the journal: names put back, one row per entry, group and consumer."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from claimlib.plans.keys import GROUP, KeyMode, group_key
from claimlib.plans.requests import REQUEST_COLUMNS, sees_every_caller
from claimlib.schema import Kind
from claimlib.semantics.model import Outcome


def decision_rows(
    decided: DataFrame, accepted: DataFrame, owners: DataFrame, mode: KeyMode
) -> DataFrame:
    """The journal's `claimed` and `deleted` rows: names put back on the decisions.

    The joins must find every key; one that finds none raises, for a row without its name would be
    lost work.  `owners` is `keys.owners_of_keys` or `keys.owners_by_name`.
    """
    groups = accepted.select(
        group_key(mode).alias("group_key"),
        *(*GROUP, F.col("consumer").alias("by"), "parking_consumer", "justid", "now_ms", "profile"),
    )
    parked = F.col("outcome") == int(Outcome.PARKED)
    claimed = parked | (F.col("outcome") == int(Outcome.CLAIMED))
    new_owner = F.when(parked, F.col("parking_consumer")).otherwise(F.col("by"))
    return (
        decided.join(groups, on="group_key", how="left")
        .join(owners, on="from_consumer_key", how="left")
        .select(
            F.when(claimed, str(Kind.CLAIMED)).otherwise(str(Kind.DELETED)).alias("kind"),
            found_name("stream", "group_key", F.col("stream").isNotNull()),
            "consumer_group",
            "id_ms",
            "id_seq",
            found_name("from_consumer", "from_consumer_key", F.col("found")),
            "from_delivery_time_ms",
            "from_delivery_count",
            F.when(claimed, new_owner).alias("consumer"),
            F.when(claimed, F.col("now_ms")).alias("delivery_time_ms"),
            F.when(claimed, F.col("delivery_count")).alias("delivery_count"),
            F.when(claimed, F.col("justid") | parked).alias("justid"),
            F.col("now_ms").alias("at_ms"),
            F.when(claimed, F.col("now_ms")).alias("seen_time_ms"),
            F.when(claimed & sees_every_caller(), F.col("now_ms")).alias("active_time_ms"),
        )
    )


def found_name(name: str, key: str, is_found: Column) -> Column:
    """Column `name`, or an error where the join by `key` found nothing."""
    missing = F.raise_error(F.concat(F.lit(f"claimlib: no name for {key} "), F.col(key)))
    return F.when(is_found, F.col(name)).otherwise(missing.cast("STRING")).alias(name)


def group_rows(groups: DataFrame) -> DataFrame:
    """The journal's `swept` and `refused` rows: one per judged group, with what the survey saw."""
    kind = F.when(F.col("reason").isNull(), str(Kind.SWEPT)).otherwise(str(Kind.REFUSED))
    request = F.to_json(F.struct(*(name for name in REQUEST_COLUMNS if name not in GROUP)))
    is_sweep = F.col("count").isNull()
    # Null: a group that only `pending` knows.
    is_full = ~F.coalesce("has_base", F.lit(False))
    return groups.select(
        kind.alias("kind"),
        *(*GROUP, "consumer", request.alias("request"), F.col("now_ms").alias("at_ms")),
        F.when(is_sweep, F.col("at_boundary")).alias("at_boundary"),
        *(F.when(is_sweep & is_full, F.col(name)).alias(name) for name in OF_WHOLE_PELS),
        *("spared", "parked", "reason"),
    )


# What a page, or an incremental sweep, which do not look at the whole PEL, cannot say.
OF_WHOLE_PELS = ("pending_before", "oldest_delivery_time_ms", "highest_delivery_count")


def cursor_rows(accepted: DataFrame, next_ids: DataFrame | None, mode: KeyMode) -> DataFrame:
    """The journal's `cursor` rows: one per swept group that got a page, or whose cursor is kept:
    the first id that was not examined, 0-0 where there is none.

    `next_ids` is `pages.next_ids`; null where the run has no pages.
    """
    placed = accepted.where("count IS NOT NULL OR cursor IS NOT NULL")
    if next_ids is None:
        end = F.lit(0).cast("BIGINT")
        placed = placed.withColumns({"next_ms": end, "next_seq": end})
    else:
        keyed = placed.withColumn("group_key", group_key(mode))
        placed = keyed.join(next_ids, on="group_key", how="left")
        placed = placed.fillna(0, ["next_ms", "next_seq"])
    return placed.select(
        F.lit(str(Kind.CURSOR)).alias("kind"),
        *GROUP,
        F.col("cursor").alias("cursor_name"),
        *("next_ms", "next_seq", F.col("now_ms").alias("at_ms")),
    )


def consumer_rows(accepted: DataFrame) -> DataFrame:
    """The journal's `consumer` rows: one per swept group, the caller seen at the group's instant.

    Profile redis-7.0 knows a consumer only once it got an entry: there its `claimed` rows say so.
    """
    return accepted.where(sees_every_caller()).select(
        F.lit(str(Kind.CONSUMER)).alias("kind"),
        *GROUP,
        "consumer",
        F.col("now_ms").alias("at_ms"),
        F.col("now_ms").alias("seen_time_ms"),
    )


def union_rows(parts: Iterable[DataFrame]) -> DataFrame:
    """All rows of the parts; a column that a part lacks is null there."""
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
