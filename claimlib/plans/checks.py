"""What a store's tables lack: one row per problem, the worst first.

A problem `refuses` where a sweep would refuse a group for it, or could not use a table; the others
are remarks.  `survey` says the same of one group, when it is swept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from claimlib.plans.column_readers import is_spelling
from claimlib.plans.journal_rows import union_rows
from claimlib.plans.keys import GROUP, each, key_json, repeated_keys
from claimlib.plans.requests import PROVEN_RANGE, known_groups
from claimlib.plans.survey import (
    AHEAD,
    IS_INVALID,
    IS_PROVEN,
    NO_PROOF,
    NO_SNAPSHOT_TIME,
    UNKNOWN_GROUP,
)
from claimlib.schema import TABLES

TABLES_READ = ("streams", "entries", "groups", "pending", "consumers", "cursors")
# Of repeated entries and consumers nothing is refused: what counts is whether an id is there, and
# when a consumer was seen last.
_HARMLESS_TWICE = ("entries", "consumers")


@dataclass(frozen=True, slots=True)
class _Fault:
    """What can be wrong; those above are worse."""

    rank: int
    table: str
    what: str
    refuses: bool

    def counted(self, count: Column, example: Column) -> Column:
        return F.struct(
            F.lit(self.rank).alias("rank"),
            F.lit(self.table).alias("table"),
            F.lit(self.what).alias("what"),
            F.lit(self.refuses).alias("refuses"),
            F.coalesce(count, F.lit(0)).cast("BIGINT").alias("count"),
            example.alias("example"),
        )


_INVALID = _Fault(2, "pending", "rows with a negative delivery_time_ms or delivery_count", True)
_UNKNOWN = _Fault(3, "pending", UNKNOWN_GROUP, True)
_NO_TIME = _Fault(4, "groups", NO_SNAPSHOT_TIME, True)
_UNPROVEN = _Fault(5, "pending", f"no proof of absence: groups with {NO_PROOF}", True)
_PROOF = _Fault(
    6, "streams", "no proof of absence: streams without complete_from and complete_to", False
)
_TIMES = _Fault(7, "consumers", "rows with a negative seen_time_ms or active_time_ms", False)
_NO_GROUP = _Fault(8, "consumers", UNKNOWN_GROUP, False)
_OWNERS = _Fault(
    9, "pending", "consumers that own entries but are missing from the table consumers", False
)
_LATER = _Fault(10, "pending", "rows delivered after the snapshot time of their group", False)


_MISSPELT = (
    "rows with a name that is not spelled as these tables spell names, so that no request can give"
    " it (write a backslash twice, and a byte that is not UTF-8 as \\xhh)"
)

FOREIGN_RUNS = f"rows with {AHEAD}"
"""What is found where rows bear run numbers that no run of the store has had."""


def problems(tables: Mapping[str, DataFrame], run_seq: int) -> DataFrame:
    """One row per problem: `rank` (1: worst), `table`, `what`, `refuses`, `count` (how many rows,
    keys, groups or owners, as `what` says) and `example`, one of them in JSON.

    Three passes over pending, two over entries; each but a repeated key's is of partial sums.

    Args:
        run_seq: the number that the store's next run will have.
    """
    # Repeated keys are a problem of their own; they must not multiply what is joined.
    groups = tables["groups"].dropDuplicates(list(GROUP))
    streams = tables["streams"].dropDuplicates(["stream"])
    parts = [
        _repeated(tables),
        *(_foreign(name, rows, run_seq) for name, rows in tables.items()),
        *(_misspelt(name, tables[name]) for name in ("groups", "streams", "consumers")),
        _of_pending(tables["pending"], known_groups(groups, streams, run_seq), tables["consumers"]),
        _of_groups(groups),
        _of_streams(streams),
        _of_consumers(tables["consumers"], groups),
    ]
    return union_rows(parts).where(F.col("count") > 0).orderBy("rank", "table")


def _repeated(tables: Mapping[str, DataFrame]) -> DataFrame:
    refuses = ~F.col("table").isin(*_HARMLESS_TWICE)
    return repeated_keys(tables).select(
        F.when(refuses, 1).otherwise(6).alias("rank"),
        "table",
        F.lit("keys with more than one row").alias("what"),
        refuses.alias("refuses"),
        F.col("keys").alias("count"),
        "example",
    )


def _foreign(table: str, rows: DataFrame, run_seq: int) -> DataFrame:
    """Rows that no run would change.  A run that reads them refuses their groups; a consumer that
    is seen again only keeps its old times."""
    fault = _Fault(2, table, FOREIGN_RUNS, refuses=table != "consumers")
    is_ahead = F.col("run_seq") >= run_seq
    return _listed(rows.agg(*_first_of("n", is_ahead, key_json(table))), {fault: "n"})


def _misspelt(table: str, rows: DataFrame) -> DataFrame:
    """Names that a pipeline has appended as they are; what is pending under others is of a group
    that the table `groups` lacks."""
    names = [F.col(name) for name in TABLES[table].key]
    is_wrong = reduce(or_, (~is_spelling(name) for name in names))
    fault = _Fault(3, table, _MISSPELT, refuses=False)
    return _listed(rows.agg(*_first_of("n", is_wrong, key_json(table))), {fault: "n"})


def _of_pending(pending: DataFrame, known: DataFrame, consumers: DataFrame) -> DataFrame:
    """Sums by owner, then by group, then of all: one shuffle each, the later ones small."""
    invalid = F.expr(IS_INVALID)
    later = F.col("delivery_time_ms") > F.col("snapshot_ms")
    by_owner = (
        pending.join(known, on=list(GROUP), how="left")
        .groupBy(*GROUP, "consumer")
        .agg(
            *_first_of("invalid", invalid, key_json("pending")),
            *_first_of("later", later, key_json("pending")),
            F.expr(f"count_if(NOT {IS_PROVEN}) AS unproven"),
            F.max(F.col("in_groups").isNull()).alias("is_unknown"),
        )
    )
    owners = consumers.select(*GROUP, "consumer", F.lit(True).alias("is_consumer")).distinct()
    is_unknown_owner = F.col("consumer").isNotNull() & F.col("is_consumer").isNull()
    by_group = (
        by_owner.join(owners, on=[*GROUP, "consumer"], how="left")
        .groupBy(*GROUP)
        .agg(
            *_sums("invalid", "later"),
            *_first_of("unknown_owners", is_unknown_owner, key_json("consumers")),
            F.sum("unproven").alias("unproven"),
            F.max("is_unknown").alias("is_unknown"),
        )
    )
    unknown = F.col("is_unknown")
    unproven = ~unknown & (F.col("unproven") > 0)
    sums = by_group.agg(
        *_sums("invalid", "later", "unknown_owners"),
        *_first_of("unknown", unknown, key_json("groups")),
        *_first_of("unproven", unproven, key_json("groups")),
    )
    return _listed(
        sums,
        {
            _INVALID: "invalid",
            _UNKNOWN: "unknown",
            _UNPROVEN: "unproven",
            _OWNERS: "unknown_owners",
            _LATER: "later",
        },
    )


def _of_groups(groups: DataFrame) -> DataFrame:
    no_time = F.col("snapshot_ms").isNull() | (F.col("snapshot_ms") < 0)
    return _listed(groups.agg(*_first_of("n", no_time, key_json("groups"))), {_NO_TIME: "n"})


def _of_streams(streams: DataFrame) -> DataFrame:
    is_open = F.concat(*PROVEN_RANGE).isNull()
    return _listed(streams.agg(*_first_of("n", is_open, key_json("streams"))), {_PROOF: "n"})


def _of_consumers(consumers: DataFrame, groups: DataFrame) -> DataFrame:
    known = groups.select(*GROUP, F.lit(True).alias("in_groups"))
    negative = (F.col("seen_time_ms") < 0) | (F.col("active_time_ms") < 0)
    sums = consumers.join(known, on=list(GROUP), how="left").agg(
        *_first_of("negative", negative, key_json("consumers")),
        *_first_of("without_group", F.col("in_groups").isNull(), key_json("consumers")),
    )
    return _listed(sums, {_TIMES: "negative", _NO_GROUP: "without_group"})


def _first_of(name: str, condition: Column, key: Column) -> list[Column]:
    """How many rows there are for which a condition holds, and the key of one of them."""
    return [
        F.count_if(condition).alias(name),
        F.min(F.when(condition, key)).alias(f"{name}_example"),
    ]


def _sums(*names: str) -> list[Column]:
    """The same of rows that are `_first_of` already."""
    return [*each("sum", *names), *each("min", *(f"{name}_example" for name in names))]


def _listed(sums: DataFrame, faults: Mapping[_Fault, str]) -> DataFrame:
    """The one row of sums as one row per fault."""
    problems = [
        fault.counted(F.col(name), F.col(f"{name}_example")) for fault, name in faults.items()
    ]
    return sums.select(F.inline(F.array(*problems)))
