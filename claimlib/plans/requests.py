"""Requests: one row per (stream, consumer_group) to sweep, and what each is judged by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StringType,
)

from claimlib.errors import RequestError
from claimlib.model import COUNT_MAX, MAX_I64, IdleRule, Profile
from claimlib.names import SPELLING
from claimlib.plans.keys import GROUP, glob_matches
from claimlib.rules import EQUAL_COUNTS, NEVER_PARKED

PROVEN_RANGE = ("complete_from_ms", "complete_from_seq", "complete_to_ms", "complete_to_seq")
REQUEST_COLUMNS = {
    "stream": "STRING",
    "consumer_group": "STRING",
    "consumer": "STRING",
    "min_idle_ms": "BIGINT",
    "start_ms": "BIGINT",
    "start_seq": "BIGINT",
    "justid": "BOOLEAN",
    "idle_rule": "STRING",
    "profile": "STRING",
    "count": "BIGINT",
    "cursor": "STRING",
    "max_claims": "BIGINT",
    "max_deleted_share": "DOUBLE",
    "only_from": "STRING",
    "only_consumers_idle_ms": "BIGINT",
    "max_deliveries": "BIGINT",
    "parking_consumer": "STRING",
}
GUARDS = (
    *("max_claims", "max_deleted_share", "only_from", "only_consumers_idle_ms"),
    *("max_deliveries", "parking_consumer"),
)
# What a request table may leave out, as if it were null.
OPTIONAL = ("count", "cursor", *GUARDS)
# Null in them is a value: a sweep, the stored cursor (or the beginning), no stored cursor, no such
# guard.
NULLABLE = ("start_ms", "start_seq", *OPTIONAL)

_TEXT = (NullType, StringType)
_FITTING = {
    "STRING": _TEXT,
    "BIGINT": (*_TEXT, ByteType, ShortType, IntegerType, LongType),
    "BOOLEAN": (*_TEXT, BooleanType),
    "DOUBLE": (
        *_TEXT,
        ByteType,
        ShortType,
        IntegerType,
        LongType,
        DecimalType,
        DoubleType,
        FloatType,
    ),
}

_CHOICES = {"idle_rule": [str(rule) for rule in IdleRule], "profile": [str(one) for one in Profile]}
_RANGES = {
    "count": (1, COUNT_MAX),
    "max_claims": (0, MAX_I64),
    "max_deleted_share": (0.0, 1.0),
    "only_consumers_idle_ms": (0, MAX_I64),
    "max_deliveries": (1, MAX_I64),
}
# Given both or not at all.
_PAIRS = {"start_seq": "start_ms", "parking_consumer": "max_deliveries"}


@dataclass(frozen=True, slots=True)
class Rule:
    """One request of a policy: which groups it is for, and its `REQUEST_COLUMNS` but the names."""

    stream_glob: str
    group_glob: str
    values: Mapping[str, object]

    def matches(self) -> Column:
        """A condition on the names."""
        return glob_matches("stream", self.stream_glob) & glob_matches(
            "consumer_group", self.group_glob
        )


def expand(groups: DataFrame, policy: Sequence[Rule]) -> DataFrame:
    """A policy, spread over the groups that its globs match: one row per (stream, consumer_group)
    of `groups`, with the columns of `REQUEST_COLUMNS` as the first rule says that matches it, and
    `request`, that rule's number from 1."""
    names = [name for name in REQUEST_COLUMNS if name not in GROUP]
    columns = ", ".join(f"{name} {REQUEST_COLUMNS[name]}" for name in names)
    rows = [(n, *(rule.values[name] for name in names)) for n, rule in enumerate(policy, start=1)]
    rules = groups.sparkSession.createDataFrame(rows, f"request INT, {columns}")
    first = F.coalesce(*(F.when(rule.matches(), n) for n, rule in enumerate(policy, start=1)))
    matched = groups.select(*GROUP, first.alias("request"))
    return matched.join(rules, on="request", how="inner").select(*REQUEST_COLUMNS, "request")


def matched_by(policy: Sequence[Rule]) -> Column:
    """Whether any rule is for a group of these names."""
    return reduce(or_, (rule.matches() for rule in policy))


def known_groups(groups: DataFrame, streams: DataFrame) -> DataFrame:
    """One row per (stream, consumer_group) of `groups`: its snapshot instant (null: it has none),
    and the proven id range of its stream (null: there is no proof)."""
    proven = streams.select("stream", *PROVEN_RANGE)
    known = groups.select(*GROUP, "snapshot_ms").join(proven, on="stream", how="left")
    return known.withColumn("in_groups", F.lit(True))


def started(requests: DataFrame, cursors: DataFrame) -> DataFrame:
    """The requests with a start throughout: their own, else where the stored cursor of their name
    stands (0-0 starts over), else the beginning."""
    stored = cursors.select(F.col("name").alias("cursor"), *GROUP, "next_ms", "next_seq")
    own = F.col("start_ms").isNotNull()
    return requests.join(stored, on=["cursor", *GROUP], how="left").withColumns(
        {
            "start_ms": F.when(own, F.col("start_ms")).otherwise(F.coalesce("next_ms", F.lit(0))),
            "start_seq": F.when(own, F.col("start_seq")).otherwise(
                F.coalesce("next_seq", F.lit(0))
            ),
        }
    )


def targets(requests: DataFrame, known: DataFrame, now_ms: int | None) -> DataFrame:
    """One row per requested (stream, consumer_group): the request, the instant at which the group
    is judged (`now_ms`: the given one, else the group's snapshot instant; null: there is none),
    what the rules need of it (`equal_counts`, `raise_by`, `park_above`), and what `known_groups`
    says of it.  A negative min_idle_ms is 0, as on the server."""
    instant = F.col("snapshot_ms") if now_ms is None else F.lit(now_ms)
    equal_rules = [str(rule) for rule, equal_counts in EQUAL_COUNTS.items() if equal_counts]
    return (
        requests.join(known, on=list(GROUP), how="left")
        .select(
            *REQUEST_COLUMNS,
            instant.cast("BIGINT").alias("now_ms"),
            F.col("idle_rule").isin(equal_rules).alias("equal_counts"),
            F.when(F.col("justid"), 0).otherwise(1).cast("BIGINT").alias("raise_by"),
            F.coalesce(F.col("max_deliveries") - 1, F.lit(NEVER_PARKED)).alias("park_above"),
            *PROVEN_RANGE,
        )
        .withColumn("min_idle_ms", F.greatest("min_idle_ms", F.lit(0)))
    )


def ended(targets: DataFrame, ends: DataFrame | None) -> DataFrame:
    """The targets with `page_end_ms` and `page_end_seq`: the last of a page's rows; null: a sweep,
    or a page up to the end."""
    if ends is None:
        none = F.lit(None).cast("BIGINT")
        return targets.withColumns({"page_end_ms": none, "page_end_seq": none})
    return targets.join(ends, on=list(GROUP), how="left")


def checked(request: DataFrame) -> DataFrame:
    """A request table with the columns of `REQUEST_COLUMNS` in their types, once it is seen that
    every value of it can be used.  Runs the frame once.

    Raises:
        RequestError: a column is missing, or has a type that does not fit; a value is null, or is
            none of its column; or two rows are for one group.
    """
    missing = [n for n in REQUEST_COLUMNS if n not in request.columns and n not in OPTIONAL]
    if missing:
        raise RequestError(
            f"the request table lacks {', '.join(missing)}; its columns are"
            f" {', '.join(REQUEST_COLUMNS)}",
            columns=missing,
        )
    unknown = [name for name in request.columns if name not in REQUEST_COLUMNS]
    if unknown:
        raise RequestError(
            f"the request table has {', '.join(unknown)}, which no request has; its columns are"
            f" {', '.join(REQUEST_COLUMNS)}",
            columns=unknown,
        )
    given = request.withColumns(
        {name: F.lit(None) for name in OPTIONAL if name not in request.columns}
    )
    _check_types(given)
    asked = given.select(*(_typed(name).alias(name) for name in REQUEST_COLUMNS))
    found = given.select(*GROUP, unusable_columns().alias("unusable")).groupBy(*GROUP)
    worst = found.agg(F.count("*").alias("n"), F.max("unusable").alias("unusable"))
    bad = worst.where((F.col("n") > 1) | (F.size("unusable") > 0)).first()
    if bad is not None:
        raise RequestError(
            f"the request table has {_fault(bad)}",
            stream=bad["stream"],
            consumer_group=bad["consumer_group"],
            columns=bad["unusable"],
        )
    return asked


def _check_types(given: DataFrame) -> None:
    """Refuse a column of a type whose values a cast would change: 1.9 is not 1 ms, and neither is
    true."""
    for name, wanted in REQUEST_COLUMNS.items():
        found = given.schema[name].dataType
        whole = isinstance(found, DecimalType) and found.scale == 0
        if not isinstance(found, _FITTING[wanted]) and not (wanted == "BIGINT" and whole):
            raise RequestError(
                f"{name} of the request table is {found.simpleString()}: make it {wanted}",
                columns=[name],
            )


def _fault(found: Row) -> str:
    """What is wrong with the rows for one group."""
    where = f"{found['stream']}/{found['consumer_group']}"
    if not found["unusable"]:
        return f"{found['n']} rows for {where}: give one per group"
    return (
        f"no usable {', '.join(found['unusable'])} in the row for {where}: null may stand only in"
        f" {', '.join(NULLABLE)}, count and max_deliveries are at least 1, max_deleted_share is"
        f" between 0 and 1, idle_rule is one of {', '.join(IdleRule)}, profile one of"
        f" {', '.join(Profile)}, consumer is a name as the tables spell it,"
        " parking_consumer another one that goes with max_deliveries"
    )


def _typed(name: str) -> Column:
    return F.col(name).try_cast(REQUEST_COLUMNS[name])


def unusable_columns() -> Column:
    """The names of the columns of a request row whose values cannot be used."""
    return F.array_compact(F.array(*map(_unusable, REQUEST_COLUMNS)))


def _unusable(name: str) -> Column:
    """The column's name where its value cannot be used, else null."""
    unusable = _typed(name).isNull()
    if name in NULLABLE:
        unusable &= F.col(name).isNotNull()
    if name in _CHOICES:
        unusable |= ~F.col(name).isin(_CHOICES[name])
    if name in _RANGES:
        unusable |= ~_typed(name).between(*_RANGES[name])
    if name in _PAIRS:
        unusable |= F.col(name).isNull() != F.col(_PAIRS[name]).isNull()
    if name in ("consumer", "parking_consumer"):
        unusable |= ~F.col(name).rlike(SPELLING)
    if name == "parking_consumer":
        unusable |= F.col(name) == F.col("consumer")
    return F.when(unusable, F.lit(name))


def fingerprint(request: DataFrame) -> dict[str, object]:
    """What tells one checked request table from another, whatever the order of its rows: their
    number and the sum of their hashes.  Runs the frame once."""
    hashes = F.sum(F.xxhash64(*REQUEST_COLUMNS).cast("DECIMAL(38)"))
    total = request.agg(F.count("*").alias("n"), hashes.alias("h")).first()
    return {"groups": total["n"] if total else 0, "hash": str((total["h"] if total else 0) or 0)}
