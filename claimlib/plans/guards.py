"""Guards: what a request leaves alone, or refuses, that the server would do (`model.Guards`).

Which owners the guards spare, and which one is the parking consumer, depends only on the owner.
There are few owners, so it is computed once per owner and joined to the entries by keys.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from claimlib.plans.keys import CONSUMER_KEY, GROUP, GROUP_KEY, bytes_sql
from claimlib.plans.requests import GUARDS
from claimlib.plans.sql_terms import terms
from claimlib.semantics import rules


def any_guard() -> Column:
    """Whether a request has a guard."""
    return reduce(or_, (F.col(name).isNotNull() for name in GUARDS))


def owners(
    pending: DataFrame,
    consumers: DataFrame,
    accepted: DataFrame,
    patterns: DataFrame,
) -> DataFrame:
    """One row per owner that has entries in a group whose request has guards: group_key,
    consumer_key, `is_spared` and `is_parking` (see `rules.is_claimable`).

    Args:
        consumers: the rows of the table consumers; a negative time says nothing.
        accepted: `survey.judged` without the refused groups.
        patterns: one row per glob of `only_from`: only_from, pattern (`names.glob_pattern`).
    """
    guarded = accepted.where(any_guard()).select(
        *(*GROUP, "only_from", "only_consumers_idle_ms", "parking_consumer"),
        *("now_ms", "equal_counts"),
    )
    # One row per consumer, the newest where there are two: a second one would double its entries.
    newest_ms = F.max(F.coalesce("active_time_ms", "seen_time_ms"))
    known = consumers.groupBy(*GROUP, "consumer").agg(
        F.when(newest_ms >= 0, newest_ms).alias("last_ms")
    )
    known_owners = (
        pending.select(*GROUP, "consumer")
        .join(F.broadcast(guarded), on=list(GROUP), how="inner")
        .distinct()
        .join(F.broadcast(patterns), on="only_from", how="left")
        .join(known, on=[*GROUP, "consumer"], how="left")
    )
    return known_owners.select(
        F.expr(f"{GROUP_KEY} AS group_key"),
        F.expr(f"{CONSUMER_KEY} AS consumer_key"),
        (_is_spared_by_name() | _is_spared_as_active()).alias("is_spared"),
        F.coalesce(F.col("consumer") == F.col("parking_consumer"), F.lit(False)).alias(
            "is_parking"
        ),
    )


def _is_spared_by_name() -> Column:
    matches = F.coalesce(F.rlike(F.expr(bytes_sql("consumer")), F.col("pattern")), F.lit(False))
    return F.col("only_from").isNotNull() & ~matches


def _is_spared_as_active() -> Column:
    """Nobody is not active; of a consumer that is not known, nobody can tell."""
    idle_enough = rules.is_idle_enough(
        *terms("now_ms", "last_ms", "only_consumers_idle_ms", "equal_counts")
    )
    return F.expr(
        "only_consumers_idle_ms IS NOT NULL AND consumer IS NOT NULL"
        f" AND NOT coalesce(last_ms IS NOT NULL AND {idle_enough.sql}, false)"
    )


def weighed(judged: DataFrame, examined: DataFrame, pending: DataFrame) -> DataFrame:
    """`judged`, with what the requests with guards would do: `spared` and `parked` (entries; null:
    the request has no guards, or the group is refused), and with the groups refused that a limit
    does not allow.

    Args:
        examined: the accepted groups' candidates, see `sweep.candidates`.
        pending: all of pending: the share of a page, too, is that of the group's whole PEL.
    """
    of_group = judged.withColumn("group_key", F.expr(GROUP_KEY))
    guarded = of_group.where(any_guard() & F.col("reason").isNull())
    return (
        of_group.join(_sums(examined, guarded), on="group_key", how="left")
        .join(_sizes(pending, guarded), on=list(GROUP), how="left")
        .withColumn("reason", F.coalesce("reason", _reason()))
        .withColumns({name: _of_accepted(name) for name in ("spared", "parked")})
        .drop("group_key", "claims", "purges", "size")
    )


def _of_accepted(name: str) -> Column:
    is_weighed = any_guard() & F.col("reason").isNull()
    return F.when(is_weighed, F.coalesce(name, F.lit(0)))


def unweighed(judged: DataFrame) -> DataFrame:
    """`judged` with the columns of `weighed`, where no request has guards."""
    none = F.lit(None).cast("BIGINT")
    return judged.withColumns({"spared": none, "parked": none})


def _sums(examined: DataFrame, guarded: DataFrame) -> DataFrame:
    """What would happen to the entries of each group: one row per group_key with `claims`, `parked`
    (of the claims), `purges` and `spared`."""
    claimed: str = rules.is_claimed(*terms("present", "is_claimable")).sql
    purged: str = rules.is_deleted(*terms("present")).sql
    counted = {
        "claims": claimed,
        "parked": f"{claimed} AND is_exhausted",
        "purges": purged,
        "spared": f"NOT {purged} AND is_idle_enough AND is_spared",
    }
    return (
        examined.where("is_examined")
        .join(F.broadcast(guarded.select("group_key")), on="group_key", how="left_semi")
        .groupBy("group_key")
        .agg(*(F.expr(f"count_if({sql}) AS {name}") for name, sql in counted.items()))
    )


def _sizes(pending: DataFrame, guarded: DataFrame) -> DataFrame:
    """How much is pending in each group whose share counts: one row per group, with `size`."""
    groups = guarded.where(F.col("max_deleted_share").isNotNull()).select(*GROUP)
    rows = pending.select(*GROUP).join(F.broadcast(groups), on=list(GROUP), how="inner")
    return rows.groupBy(*GROUP).agg(F.count("*").alias("size"))


def _reason() -> Column:
    """Why a limit refuses a group, as the reference says it; null where none does."""
    share = F.try_divide("purges", "size")
    return F.when(
        F.col("claims") > F.col("max_claims"),
        F.format_string(
            "guard max_claims: %d entries would be claimed, and it allows %d",
            *("claims", "max_claims"),
        ),
    ).when(
        share > F.col("max_deleted_share"),
        F.format_string(
            "guard max_deleted_share: %d of %d pending entries would be deleted, more than a share"
            " of %.4f",
            *("purges", "size", "max_deleted_share"),
        ),
    )
