"""State requests, one row per (stream, consumer_group) to sweep, with the columns they need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields

from claimlib.engine.relation import Relation
from claimlib.plans.column_readers import is_spelling_sql
from claimlib.plans.keys import GROUP, GROUP_SQL, bigint_sql, each_sql, glob_sql
from claimlib.plans.request_table import Refusal, RequestTable, is_beyond, is_none_of
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
ASSIGNMENT = {"consumers": "ARRAY<STRING>", "active_within_ms": "BIGINT"}
"""The columns of a request that replace `consumer` if several consumers share its claimed entries.

They are the names of the consumers, or the time within which these were active.  A request table
has no such requests.
"""
IS_REQUESTED = "idle_rule IS NOT NULL"
"""The SQL condition for groups that have a request."""
# The columns that a request table may omit, as if they were null.
OPTIONAL = ("count", "cursor", *GUARDS)
# The columns in which null is a value.  It means a sweep, the stored cursor (or the beginning), no
# stored cursor, or no such guard.
NULLABLE = ("start_ms", "start_seq", *OPTIONAL)


def _is_alone(other: str) -> Refusal:
    """Refuse rows in which only one of two columns has a value."""
    return lambda name: f"(raw_{name} IS NULL) <> (raw_{other} IS NULL)"


def is_no_spelling(name: str) -> str:
    """Refuse texts that are not the spelling of a name."""
    return f"NOT {is_spelling_sql(name)}"


# The white space of Unicode, with no-break spaces.
_BLANK = (
    r"\A[\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}"
    r"\x{3000}]*\z"
)


def _is_blank(name: str) -> str:
    return f"{name} RLIKE {quote_text(_BLANK)}"


def _is_no_parking_consumer(name: str) -> str:
    alone = _is_alone("max_deliveries")(name)
    return f"{alone} OR {is_no_spelling(name)} OR {name} = consumer"


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
        "max_deleted_share": is_beyond(0.0, 1.0),
        "only_consumers_idle_ms": is_beyond(0, MAX_I64),
        "max_deliveries": is_beyond(1, MAX_I64),
        "parking_consumer": _is_no_parking_consumer,
    },
)
"""The request table of `xautoclaim`: one row per (stream, consumer_group)."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Hold one request of a policy: the globs of its groups, and its values.

    The values are `ASSIGNMENT` and the `REQUEST_COLUMNS` without the names.
    """

    stream_glob: str
    group_glob: str
    values: Mapping[str, object]

    def matches(self) -> str:
        """Return the SQL condition that the names of a group match."""
        stream = glob_sql("stream", self.stream_glob)
        return f"({stream} AND {glob_sql('consumer_group', self.group_glob)})"


def guard_values(guards: Guards) -> dict[str, object]:
    """Return guards as a request table states them, by column of `GUARDS`."""
    parking, share = guards.parking_consumer, guards.max_deleted_share
    return {
        **asdict(guards),
        "max_deleted_share": None if share is None else float(share),
        "parking_consumer": None if parking is None else spell(parking),
    }


def by_policy(groups: Relation, policy: Sequence[Rule]) -> Relation:
    """Return the rows of `groups` with the values of the first rule whose globs match.

    There is one row per (stream, consumer_group).  Added are `REQUEST_COLUMNS`, `ASSIGNMENT` and
    `request`, the number of the rule (from 1).  They are None if no rule matches.
    """
    cases = " ".join(f"WHEN {rule.matches()} THEN {n:d}" for n, rule in enumerate(policy, start=1))
    chosen = groups.select("*", f"CASE {cases} END AS request")
    types = {name: of for name, of in REQUEST_COLUMNS.items() if name not in GROUP} | ASSIGNMENT
    return chosen.select("*", *(_value_sql(name, of, policy) for name, of in types.items()))


def _value_sql(name: str, type_: str, policy: Sequence[Rule]) -> str:
    """Return a column of the chosen rule as SQL."""
    values = " ".join(
        f"WHEN {number:d} THEN {_literal(rule.values[name], type_)}"
        for number, rule in enumerate(policy, start=1)
    )
    return f"CAST(CASE request {values} END AS {type_}) AS {name}"


def _literal(value: object, type_: str) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return quote_text(value)
    if isinstance(value, tuple):
        return f"array({', '.join(map(quote_text, value))})"
    if isinstance(value, int) and type_ == "BIGINT" and not isinstance(value, bool):
        return bigint_sql(value)
    return f"CAST({value!r} AS {type_})"


def by_table(groups: Relation, table: Relation) -> Relation:
    """Return the rows of `groups` and of a request table, one per (stream, consumer_group).

    A row has the columns of both, and `ASSIGNMENT` (None).  The columns of a table that lacks the
    group are None.
    """
    joined = groups.sql(
        f"SELECT * FROM {{requested}} AS requested FULL JOIN {{this}} AS this USING ({GROUP_SQL})",
        requested=table,
    )
    none = (f"CAST(NULL AS {type_}) AS {name}" for name, type_ in ASSIGNMENT.items())
    return joined.select("*", *none)


def matched_by(policy: Sequence[Rule]) -> str:
    """Return the SQL condition that any rule matches the names of a group."""
    return f"({' OR '.join(rule.matches() for rule in policy)})"


def known_groups(groups: Relation, streams: Relation, run_seq: int) -> Relation:
    """Return one row per (stream, consumer_group) of `groups`.

    Columns: the snapshot time (None if it has none), the proven id range of its stream (None if
    there is no proof), and `repeated_in` and `ahead_in`, which forbid a run to use the group.
    These two are comma-separated names of tables, or None.  The tables of `repeated_in` have a key
    of the group or its stream twice.  Those of `ahead_in` have a row of it with a run_seq of
    `run_seq` or more.

    If a row is repeated, its values may come from any of its copies, because its group is refused.
    """
    unsound = (f"{_names(f'groups_{what}', f'streams_{what}')} AS {what}" for what in _UNSOUND)
    return groups.sql(
        f"""
        WITH by_stream AS (
            SELECT stream, {each_sql("min", *PROVEN_RANGE)}, {_unsound("streams", run_seq)}
            FROM {{streams}} AS streams GROUP BY stream
        ), by_group AS (
            SELECT {GROUP_SQL}, min(snapshot_ms) AS snapshot_ms, {_unsound("groups", run_seq)}
            FROM {{this}} AS this GROUP BY {GROUP_SQL}
        )
        SELECT {GROUP_SQL}, snapshot_ms, {", ".join(PROVEN_RANGE)}, {", ".join(unsound)},
            true AS in_groups
        FROM by_group LEFT JOIN by_stream USING (stream)
        """,
        streams=streams,
    )


_UNSOUND = ("repeated_in", "ahead_in")


def _unsound(table: str, run_seq: int) -> str:
    """Return SQL for the columns `repeated_in` and `ahead_in` of one table.

    The first has the table's name if the table has the key of a group of rows twice.  The second
    has it if the table has a row of a later run.  Otherwise they are null.
    """
    conditions = ("count(*) > 1", f"max(run_seq) >= {run_seq:d}L")
    return ", ".join(
        f"CASE WHEN {condition} THEN '{table}' END AS {table}_{what}"
        for condition, what in zip(conditions, _UNSOUND, strict=True)
    )


def _names(*columns: str) -> str:
    """Return SQL for the names of tables in columns, comma-separated, or null if there is none."""
    return f"nullif(concat_ws(', ', {', '.join(columns)}), '')"


def started(requests: Relation, cursors: Relation, run_seq: int) -> Relation:
    """Return the requests, all of them with a start.

    The start is that of the request.  Otherwise it is the id of the stored cursor with its name,
    where 0-0 means the beginning, or else the beginning.  If a run must not use that cursor, its
    table is added to `repeated_in` and `ahead_in`, as in `known_groups`.
    """
    # A group without a request has no start either.
    has_start = f"this.start_ms IS NOT NULL OR NOT ({IS_REQUESTED})"
    made = {
        **{
            f"start_{half}": f"CASE WHEN {has_start} THEN this.start_{half}"
            f" ELSE coalesce(next_{half}, 0L) END"
            for half in ("ms", "seq")
        },
        **{what: _names(f"this.{what}", f"cursors_{what}") for what in _UNSOUND},
    }
    columns = (
        f"{made[name]} AS {name}" if name in made else f"this.{name} AS {name}"
        for name in requests.columns
    )
    same = " AND ".join(f"this.{name} = stored.{name}" for name in GROUP)
    return requests.sql(
        f"""
        WITH stored AS (
            SELECT name, {GROUP_SQL}, {each_sql("min", "next_ms", "next_seq")},
                {_unsound("cursors", run_seq)}
            FROM {{cursors}} AS cursors GROUP BY name, {GROUP_SQL}
        )
        SELECT {", ".join(columns)}
        FROM {{this}} AS this LEFT JOIN stored ON this.cursor = stored.name AND {same}
        """,
        cursors=cursors,
    )


def instant(now_ms: int | None) -> str:
    """Return SQL for the time of a row of groups.

    Args:
        now_ms: the time for all groups.  None means the time of each group's snapshot.
    """
    return "snapshot_ms" if now_ms is None else f"{now_ms:d}L"


def standing(requests: Relation, now_ms: int | None) -> Relation:
    """Return one row per (stream, consumer_group) that is known or requested.

    A row has the columns of the request, `now_ms`, and the columns of `known_groups`.  It also has
    `equal_counts`, `raise_by` and `park_above`, which the rules derive from the request.

    The columns of the request are None if there is none, see `IS_REQUESTED`.  `now_ms` is the given
    time or the group's snapshot time, and None if there is neither.  `in_groups` is None if the
    group is not known.  A negative min_idle_ms counts as 0, as on the server.
    """
    return requests.select(
        *(name for name in (*REQUEST_COLUMNS, *ASSIGNMENT) if name != "min_idle_ms"),
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
"""SQL for the values of a request that the rules need.

`equal_counts` follows from the idle rule.  `raise_by` is the number that a claim adds to the
delivery count.
"""

CALLER_IS_SEEN = _is_one_of(
    "profile", (profile for profile, sees in SEES_EVERY_CALLER.items() if sees)
)
"""The SQL condition that `rules.SEES_EVERY_CALLER` is true for a request's `profile`."""


def ended(targets: Relation, ends: Relation | None) -> Relation:
    """Return `standing` with `page_end_ms` and `page_end_seq`, the id of a page's last row.

    Both are None for a sweep, and for a page that reaches the end.
    """
    if ends is None:
        none = (f"CAST(NULL AS BIGINT) AS {name}" for name in ("page_end_ms", "page_end_seq"))
        return targets.select("*", *none)
    return targets.sql(
        f"SELECT * FROM {{this}} AS this LEFT JOIN {{ends}} AS ends USING ({GROUP_SQL})",
        ends=ends,
    )
