"""State requests: one row per (stream, consumer_group) to sweep, with the columns that it needs."""

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

They are the names of these consumers, or the time within which a consumer must have been active.  A
request table cannot have these columns.
"""
IS_REQUESTED = "idle_rule IS NOT NULL"
"""The SQL condition for groups that have a request."""
# The columns that a request table may omit.  They are then null.
OPTIONAL = ("count", "cursor", *GUARDS)
# The columns in which null is allowed:
#   start_ms, start_seq: the request starts at the stored cursor, or at the beginning without one.
#   count: the request is a sweep.
#   cursor: the request uses no stored cursor.
#   a guard: the guard is not set.
NULLABLE = ("start_ms", "start_seq", *OPTIONAL)


def _lacks_counterpart(other: str) -> Refusal:
    """Return the refusal of rows in which only one of two columns has a value."""
    return lambda name: f"(raw_{name} IS NULL) <> (raw_{other} IS NULL)"


def is_no_spelling(name: str) -> str:
    """Return the SQL condition that a text is not the spelling of a name."""
    return f"NOT {is_spelling_sql(name)}"


# Only white space of Unicode, which includes no-break spaces.
_BLANK = (
    r"\A[\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}"
    r"\x{3000}]*\z"
)


def _is_blank(name: str) -> str:
    return f"{name} RLIKE {quote_text(_BLANK)}"


def _is_no_parking_consumer(name: str) -> str:
    lacks_limit = _lacks_counterpart("max_deliveries")(name)
    return f"{lacks_limit} OR {is_no_spelling(name)} OR {name} = consumer"


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
        "start_seq": _lacks_counterpart("start_ms"),
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

    The values are those of `ASSIGNMENT` and of `REQUEST_COLUMNS`, except stream and consumer_group.
    """

    stream_glob: str
    group_glob: str
    values: Mapping[str, object]

    def matches(self) -> str:
        """Return the SQL condition that the names of a group match."""
        stream = glob_sql("stream", self.stream_glob)
        return f"({stream} AND {glob_sql('consumer_group', self.group_glob)})"


def guard_values(guards: Guards) -> dict[str, object]:
    """Return the values of guards in a request table, by column of `GUARDS`."""
    parking, share = guards.parking_consumer, guards.max_deleted_share
    return {
        **asdict(guards),
        "max_deleted_share": None if share is None else float(share),
        "parking_consumer": None if parking is None else spell(parking),
    }


def by_policy(groups: Relation, policy: Sequence[Rule]) -> Relation:
    """Return the rows of `groups` with the values of the first rule whose globs match.

    The columns of `REQUEST_COLUMNS` and `ASSIGNMENT` are added, and `request`, the number of the
    rule (from 1).  They are None if no rule matches.
    """
    cases = " ".join(f"WHEN {rule.matches()} THEN {n:d}" for n, rule in enumerate(policy, start=1))
    chosen = groups.select("*", f"CASE {cases} END AS request")
    types = {**REQUEST_COLUMNS, **ASSIGNMENT}
    added = (_value_sql(name, type_, policy) for name, type_ in types.items() if name not in GROUP)
    return chosen.select("*", *added)


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

    A row has the columns of both, and those of `ASSIGNMENT`, which are None.  If `groups` or the
    request table lacks the group, its columns are None.
    """
    joined = groups.sql(
        f"SELECT * FROM {{requested}} AS requested FULL JOIN {{this}} AS this USING ({GROUP_SQL})",
        requested=table,
    )
    none = (f"CAST(NULL AS {type_}) AS {name}" for name, type_ in ASSIGNMENT.items())
    return joined.select("*", *none)


def matched_by(policy: Sequence[Rule]) -> str:
    """Return the SQL condition that a rule of the policy matches the names of a group."""
    return f"({' OR '.join(rule.matches() for rule in policy)})"


def known_groups(groups: Relation, streams: Relation, run_seq: int) -> Relation:
    """Return one row per (stream, consumer_group) of `groups`.

    Columns:

    - stream, consumer_group, and `in_groups`, which is true.
    - snapshot_ms: the snapshot time, or None if the group has none.
    - those of `PROVEN_RANGE`: the proven id range of the stream, or None if there is no proof.
    - `repeated_in`: the tables that have the group or its stream twice.
    - `ahead_in`: the tables that have a row of the group or its stream with a run_seq of `run_seq`
      or more.

    `repeated_in` and `ahead_in` are names, separated by commas, or None.  A run refuses the group
    if one of them is not None.  So it does no harm that the values of a repeated row may come from
    any of its copies.

    Args:
        groups, streams: the tables.
        run_seq: the number of the run.
    """
    unsound = (f"{_names(f'groups_{name}', f'streams_{name}')} AS {name}" for name in _UNSOUND)
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
    """Return SQL for the parts of `repeated_in` and `ahead_in` that are about one table.

    It aggregates the table's rows by their key.  The first part is the table's name if the key has
    two rows.  The second part is the table's name if a row is from run `run_seq` or a later one.
    Otherwise the parts are null.
    """
    conditions = ("count(*) > 1", f"max(run_seq) >= {run_seq:d}L")
    return ", ".join(
        f"CASE WHEN {condition} THEN '{table}' END AS {table}_{name}"
        for condition, name in zip(conditions, _UNSOUND, strict=True)
    )


def _names(*columns: str) -> str:
    """Return SQL for the texts in some columns, separated by commas, or null if all are null."""
    return f"nullif(concat_ws(', ', {', '.join(columns)}), '')"


def started(requests: Relation, cursors: Relation, run_seq: int) -> Relation:
    """Return the requests, and set the start of each request that states none.

    The start is then the id of the stored cursor that the request names.  It is the beginning (0-0)
    if there is no such cursor.  `cursors` is added to `repeated_in` or `ahead_in` if a run must not
    use the cursor, as in `known_groups`.

    Args:
        requests: `by_policy` or `by_table`.
        cursors: the table.
        run_seq: the number of the run.
    """
    # A group without a request gets no start.
    stays = f"this.start_ms IS NOT NULL OR NOT ({IS_REQUESTED})"
    replaced = {
        **{
            f"start_{half}": f"CASE WHEN {stays} THEN this.start_{half}"
            f" ELSE coalesce(next_{half}, 0L) END"
            for half in ("ms", "seq")
        },
        **{name: _names(f"this.{name}", f"cursors_{name}") for name in _UNSOUND},
    }
    columns = (
        f"{replaced[name]} AS {name}" if name in replaced else f"this.{name} AS {name}"
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
    """Return SQL for the time for which a group's idle times are computed.

    Args:
        now_ms: the time for all groups.  None means the snapshot time of each group.
    """
    return "snapshot_ms" if now_ms is None else f"{now_ms:d}L"


def standing(requests: Relation, now_ms: int | None) -> Relation:
    """Return one row per (stream, consumer_group) that is known or requested.

    Columns:

    - those of the request.  They are None if the group has no request, see `IS_REQUESTED`.  A
      negative min_idle_ms becomes 0, because the server treats it as 0.
    - `now_ms`: the given time, or else the group's snapshot time.  It is None if both are unknown.
    - `equal_counts`, `raise_by` and `park_above`, which follow from the request.  The rules need
      them.
    - those of `known_groups`, except snapshot_ms.  They are None if the group is not known.
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


_RULES_WITH_EQUALITY = tuple(rule for rule, equal_counts in EQUAL_COUNTS.items() if equal_counts)
FOR_RULES = (
    f"{_is_one_of('idle_rule', _RULES_WITH_EQUALITY)} AS equal_counts",
    "CASE WHEN justid THEN 0L ELSE 1L END AS raise_by",
)
"""SQL for values that the rules need and that follow from a request.

`equal_counts` follows from the idle rule.  `raise_by` is the number that a claim adds to the
delivery count.
"""

CALLER_IS_SEEN = _is_one_of(
    "profile", (profile for profile, sees in SEES_EVERY_CALLER.items() if sees)
)
"""The SQL condition that `rules.SEES_EVERY_CALLER` is true for a request's `profile`."""


def ended(targets: Relation, ends: Relation | None) -> Relation:
    """Return `standing` with `page_end_ms` and `page_end_seq`, the id of a page's last row.

    Both are None for a sweep, and for a page that reaches the end of its PEL.

    Args:
        ends: `pages.ends`, or None if no request is a page.
    """
    if ends is None:
        none = (f"CAST(NULL AS BIGINT) AS {name}" for name in ("page_end_ms", "page_end_seq"))
        return targets.select("*", *none)
    return targets.sql(
        f"SELECT * FROM {{this}} AS this LEFT JOIN {{ends}} AS ends USING ({GROUP_SQL})",
        ends=ends,
    )
