"""Requests: one row per (stream, consumer_group) to sweep, and what each is judged by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from claimlib.plans.column_readers import is_spelling
from claimlib.plans.keys import GROUP, each, glob_matches
from claimlib.plans.request_table import RequestTable, is_beyond, is_none_of
from claimlib.schema import quote_text
from claimlib.semantics.model import COUNT_MAX, MAX_I64, Guards, IdleRule, Profile
from claimlib.semantics.names import spell
from claimlib.semantics.rules import EQUAL_COUNTS, NEVER_PARKED, SEES_EVERY_CALLER

PROVEN_RANGE = ("complete_from_ms", "complete_from_seq", "complete_to_ms", "complete_to_seq")
GUARDS = tuple(guard.name for guard in fields(Guards))
_GUARD_TYPES = {
    "max_claims": "BIGINT",
    "max_deleted_share": "DOUBLE",
    "only_from": "STRING",
    "only_consumers_idle_ms": "BIGINT",
    "max_deliveries": "BIGINT",
    "parking_consumer": "STRING",
}
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
    **{name: _GUARD_TYPES[name] for name in GUARDS},
}
# What a request table may leave out, as if it were null.
OPTIONAL = ("count", "cursor", *GUARDS)
# Null in them is a value: a sweep, the stored cursor (or the beginning), no stored cursor, no such
# guard.
NULLABLE = ("start_ms", "start_seq", *OPTIONAL)


def _is_alone(other: str) -> Callable[[str], Column]:
    """Refuses a value where another column has none, and none where that has one."""
    return lambda name: F.col(name).isNull() != F.col(other).isNull()


def is_no_spelling(name: str) -> Column:
    """Refuses what spells no name."""
    return ~is_spelling(F.col(name))


def _is_blank(name: str) -> Column:
    return ~F.col(name).rlike(r"(?U)\S")  # all white space, no-break spaces too


def _is_no_parking_consumer(name: str) -> Column:
    alone = _is_alone("max_deliveries")(name)
    # A null says nothing here: it would make the whole condition one.
    bad = is_no_spelling(name) | (F.col(name) == F.col("consumer"))
    return alone | F.coalesce(bad, F.lit(False))


SWEEPS = RequestTable(
    columns=REQUEST_COLUMNS,
    key=GROUP,
    row_sql="concat_ws('/', stream, consumer_group)",
    repeated_hint="each group needs exactly one row",
    optional=OPTIONAL,
    nullable=NULLABLE,
    hint=(
        "count and max_deliveries are at least 1, max_deleted_share is between 0 and 1, idle_rule"
        f" is one of {', '.join(IdleRule)}, profile one of {', '.join(Profile)}, consumer is a name"
        " spelled as in the tables, parking_consumer is another one, given with max_deliveries,"
        " cursor is a name, or null where there is none"
    ),
    refusals={
        "consumer": is_no_spelling,
        "start_seq": _is_alone("start_ms"),
        "idle_rule": is_none_of(IdleRule),
        "profile": is_none_of(Profile),
        "count": is_beyond(1, COUNT_MAX),
        "cursor": _is_blank,
        "max_claims": is_beyond(0, MAX_I64),
        "max_deleted_share": is_beyond(0.0, 1.0, "DOUBLE"),
        "only_consumers_idle_ms": is_beyond(0, MAX_I64),
        "max_deliveries": is_beyond(1, MAX_I64),
        "parking_consumer": _is_no_parking_consumer,
    },
)
"""The request table of `xautoclaim`: one row per (stream, consumer_group)."""


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


def guard_values(guards: Guards) -> dict[str, object]:
    """Guards as a request table states them, by column of `GUARDS`."""
    parking, share = guards.parking_consumer, guards.max_deleted_share
    return {
        **asdict(guards),
        "max_deleted_share": None if share is None else float(share),
        "parking_consumer": None if parking is None else spell(parking),
    }


def by_policy(groups: DataFrame, policy: Sequence[Rule]) -> DataFrame:
    """The rows of `groups`, one per (stream, consumer_group), with the `REQUEST_COLUMNS` as the
    first rule says whose globs match it, and `request`, that rule's number from 1 (these are null
    where none does)."""
    first = F.coalesce(*(F.when(rule.matches(), n) for n, rule in enumerate(policy, start=1)))
    # This is not a join, because Spark turns a join with a single rule into a cartesian product.  A
    # session may forbid that.
    rules = F.expr(f"get(array({', '.join(map(_values_sql, policy))}), request - 1)")
    chosen = groups.withColumn("request", first)
    return chosen.withColumn("rule", rules).select(*chosen.columns, "rule.*")


def _values_sql(rule: Rule) -> str:
    types = {name: of for name, of in REQUEST_COLUMNS.items() if name not in GROUP}
    values = (f"'{name}', {_literal(rule.values[name], of)}" for name, of in types.items())
    return f"named_struct({', '.join(values)})"


def _literal(value: object, type_: str) -> str:
    if value is None:
        return f"CAST(NULL AS {type_})"
    if isinstance(value, str):
        return quote_text(value)
    return f"CAST({value!r} AS {type_})"


def by_table(groups: DataFrame, table: DataFrame) -> DataFrame:
    """The rows of `groups` and of a request table, one per (stream, consumer_group) of either, with
    the columns of both (null where that one lacks it)."""
    return table.join(groups, on=list(GROUP), how="full")


def matched_by(policy: Sequence[Rule]) -> Column:
    """Whether any rule is for a group of these names."""
    return reduce(or_, (rule.matches() for rule in policy))


def known_groups(groups: DataFrame, streams: DataFrame, run_seq: int) -> DataFrame:
    """One row per (stream, consumer_group) of `groups`: its snapshot instant (null: it has none),
    the proven id range of its stream (null: there is no proof), and what forbids a run to judge it:
    `repeated_in` and `ahead_in`, the tables (comma separated; null: none) that hold a key of it
    twice, or a row of it with a run_seq of `run_seq` or more.

    Of a repeated row any is taken: its group is refused.
    """
    by_stream = streams.groupBy("stream").agg(
        *each("min", *PROVEN_RANGE), *_unsound("streams", run_seq)
    )
    by_group = groups.groupBy(*GROUP).agg(*each("min", "snapshot_ms"), *_unsound("groups", run_seq))
    both = by_group.join(by_stream, on="stream", how="left")
    return both.selectExpr(
        *(*GROUP, "snapshot_ms", *PROVEN_RANGE),
        *(f"{_names(f'groups_{what}', f'streams_{what}')} AS {what}" for what in _UNSOUND),
        "true AS in_groups",
    )


_UNSOUND = ("repeated_in", "ahead_in")


def _unsound(table: str, run_seq: int) -> tuple[Column, ...]:
    """The name of the table where it holds the key of a group of rows twice, or a row of a later
    run; else null."""
    conditions = ("count(*) > 1", f"max(run_seq) >= {run_seq:d}")
    return tuple(
        F.expr(f"CASE WHEN {condition} THEN '{table}' END AS {table}_{what}")
        for condition, what in zip(conditions, _UNSOUND, strict=True)
    )


def _names(*columns: str) -> str:
    """As SQL: the names of tables that stand in columns, comma separated; null: there is none."""
    return f"nullif(concat_ws(', ', {', '.join(columns)}), '')"


def started(requests: DataFrame, cursors: DataFrame, run_seq: int) -> DataFrame:
    """The requests with a start throughout: their own, else where the stored cursor of their name
    stands (0-0 starts over), else the beginning; and what forbids a run to use that cursor is added
    to `repeated_in` and `ahead_in`, as in `known_groups`."""
    key = ("name", *GROUP)
    nexts = each("min", "next_ms", "next_seq")
    by_key = cursors.groupBy(*key).agg(*nexts, *_unsound("cursors", run_seq))
    stored = by_key.withColumnRenamed("name", "cursor")
    # A group without a request has no start either.
    has_start = "start_ms IS NOT NULL OR consumer IS NULL"
    starts = {
        half: f"CASE WHEN {has_start} THEN start_{half} ELSE coalesce(next_{half}, 0) END"
        for half in ("ms", "seq")
    }
    joined = requests.join(stored, on=["cursor", *GROUP], how="left")
    return joined.withColumns(
        {f"start_{half}": F.expr(start) for half, start in starts.items()}
        | {what: F.expr(_names(what, f"cursors_{what}")) for what in _UNSOUND}
    )


def instant(now_ms: int | None) -> str:
    """As SQL: the instant of a row of groups: the one for all, or (null) that of its snapshot."""
    return "snapshot_ms" if now_ms is None else f"{now_ms:d}L"


def standing(requests: DataFrame, now_ms: int | None) -> DataFrame:
    """One row per (stream, consumer_group) that is known or requested: the request (its columns are
    null, `consumer` for one, where there is none), the instant at which the group is judged
    (`now_ms`: the given one, else the group's snapshot instant; null: there is none), what the
    rules need of the request (`equal_counts`, `raise_by`, `park_above`), and what `known_groups`
    says of the group (`in_groups` null: it is not known).  A negative min_idle_ms is 0, as on the
    server."""
    return requests.selectExpr(
        *(name for name in REQUEST_COLUMNS if name != "min_idle_ms"),
        "greatest(min_idle_ms, 0L) AS min_idle_ms",
        f"{instant(now_ms)} AS now_ms",
        *FOR_RULES,
        f"coalesce(max_deliveries - 1, {NEVER_PARKED}L) AS park_above",
        *PROVEN_RANGE,
        *_UNSOUND,
        "in_groups",
    )


def _is_one_of(name: str, values: Iterable[str]) -> str:
    return f"{name} IN ({', '.join(map(repr, map(str, values)))})"


_EQUAL_RULES = tuple(rule for rule, equal_counts in EQUAL_COUNTS.items() if equal_counts)
FOR_RULES = (
    f"{_is_one_of('idle_rule', _EQUAL_RULES)} AS equal_counts",
    "CASE WHEN justid THEN 0L ELSE 1L END AS raise_by",
)
"""What the rules need of a request, as SQL: `equal_counts`, of its idle rule, and `raise_by`, how
much a claim adds to the delivery count."""

CALLER_IS_SEEN = _is_one_of(
    "profile", (profile for profile, sees in SEES_EVERY_CALLER.items() if sees)
)
"""`rules.SEES_EVERY_CALLER` of a request's `profile`, as SQL."""


def ended(targets: DataFrame, ends: DataFrame | None) -> DataFrame:
    """`standing` with `page_end_ms` and `page_end_seq`: the last of a page's rows; null: a sweep,
    or a page up to the end."""
    if ends is None:
        none = (f"CAST(NULL AS BIGINT) AS {name}" for name in ("page_end_ms", "page_end_seq"))
        return targets.selectExpr("*", *none)
    return targets.join(ends, on=list(GROUP), how="left")
