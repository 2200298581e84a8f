"""Find the problems of a store's tables: one row per problem, the worst first.

The column `refuses` is true if a sweep would refuse a group because of the problem, or could not
use a table.  All other problems are remarks.  `survey` finds the same problems in the groups that a
run sweeps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from claimlib.engine.relation import Relation, union_all
from claimlib.plans.column_readers import is_spelling_sql
from claimlib.plans.keys import GROUP_SQL, key_json_sql
from claimlib.plans.requests import PROVEN_RANGE, known_groups
from claimlib.plans.survey import (
    AHEAD,
    IS_INVALID,
    IS_PROVEN,
    NO_PROOF,
    NO_SNAPSHOT_TIME,
    UNKNOWN_GROUP,
)
from claimlib.schema import TABLES, quote_text

TABLES_READ = ("streams", "entries", "groups", "pending", "consumers", "cursors")
# Repeated keys of these tables refuse nothing.  A run only needs to know if an id exists, and when
# a consumer was last seen.
_MAY_REPEAT_KEYS = ("entries", "consumers")


@dataclass(frozen=True, slots=True)
class _Fault:
    """Describe one possible problem.

    Attributes:
        rank: a problem with a smaller rank is worse.
        table: the table that has the problem.
        what: the text of the problem.
        refuses: see `problems`.
    """

    rank: int
    table: str
    what: str
    refuses: bool


_INVALID = _Fault(
    2, "pending", "rows with a negative delivery_time_ms or delivery_count", refuses=True
)
_PENDING_WITHOUT_GROUP = _Fault(3, "pending", UNKNOWN_GROUP, refuses=True)
_NO_SNAPSHOT_TIME = _Fault(4, "groups", NO_SNAPSHOT_TIME, refuses=True)
_UNPROVEN = _Fault(5, "pending", f"groups with {NO_PROOF}", refuses=True)
_INCOMPLETE_STREAMS = _Fault(
    6,
    "streams",
    "streams that may be incomplete: without complete_from and complete_to",
    refuses=False,
)
_NEGATIVE_TIMES = _Fault(
    7, "consumers", "rows with a negative seen_time_ms or active_time_ms", refuses=False
)
_CONSUMERS_WITHOUT_GROUP = _Fault(8, "consumers", UNKNOWN_GROUP, refuses=False)
_UNKNOWN_OWNERS = _Fault(
    9,
    "pending",
    "consumers that own entries but are missing from the table consumers",
    refuses=False,
)
_DELIVERED_LATER = _Fault(
    10, "pending", "rows delivered after the snapshot time of their group", refuses=False
)


_MISSPELT = (
    "rows with a name that is not spelled as these tables spell names, so that no request can give"
    " it (write a backslash twice, and a byte that is not UTF-8 as \\xhh)"
)

FOREIGN_RUNS = f"rows with {AHEAD}"
"""The problem of rows whose run_seq no run of the store has had."""


def problems(tables: Mapping[str, Relation], run_seq: int) -> Relation:
    """Return one row per problem, the worst first.

    The columns are:

    - `rank`, which is 1 for the worst problems;
    - `table` and `what`, the table that has the problem, and the text of the problem;
    - `refuses`, which is true if a sweep would refuse a group, or could not use the table;
    - `count`, the number of rows, keys, groups or owners, as `what` states;
    - `example`, one of them in JSON.

    This takes two passes over `pending`, and one over each other table.

    Args:
        run_seq: the number that the store's next run will have.
    """
    known = known_groups(tables["groups"], tables["streams"], run_seq)
    with_groups = tables["consumers"].sql(
        f"SELECT * FROM {{this}} AS this LEFT JOIN {{known}} AS known USING ({GROUP_SQL})",
        known=known.select(GROUP_SQL, "in_groups"),
    )
    rows = {**tables, "consumers": with_groups}
    parts = [_by_key(name, rows[name], _of_keys(name, run_seq)) for name in tables]
    parts.append(_of_pending(tables["pending"], known, tables["consumers"]))
    return _with_count(parts).order_by("rank", "`table`", "what")


def repeated_keys(tables: Mapping[str, Relation]) -> Relation:
    """Return one row per table in which rows share a key, with the columns of `problems`."""
    return _with_count([_by_key(name, rows, _repeated(name)) for name, rows in tables.items()])


def _with_count(parts: Sequence[Relation]) -> Relation:
    """Return the rows of all parts whose count is not 0."""
    return union_all(parts).where("count > 0")


def _repeated(table: str) -> dict[_Fault, str]:
    """Return the fault of keys with more than one row, in the form that `_by_key` needs."""
    refuses = table not in _MAY_REPEAT_KEYS
    fault = _Fault(1 if refuses else 6, table, "keys with more than one row", refuses)
    return {fault: _one_if("count(*) > 1")}


def _of_keys(table: str, run_seq: int) -> dict[_Fault, str]:
    """Return the faults that the rows of a table show, in the form that `_by_key` needs."""
    # A run refuses a group that has rows of unknown runs.  Such a row of `consumers` only means
    # that the consumer keeps its old times when it is seen again.
    foreign = _Fault(2, table, FOREIGN_RUNS, refuses=table != "consumers")
    faults = {**_repeated(table), foreign: f"count_if(run_seq >= {run_seq:d}L)"}
    if table in {"groups", "streams", "consumers"}:
        # This is a remark, because pending entries under the right name are reported, too: their
        # group is missing from the table `groups`.
        are_spelled = " AND ".join(map(is_spelling_sql, TABLES[table].key))
        misspelt = _Fault(3, table, _MISSPELT, refuses=False)
        faults[misspelt] = f"CASE WHEN {are_spelled} THEN 0L ELSE count(*) END"
    return {**faults, **_OF_TABLES.get(table, {})}


def _one_if(condition: str) -> str:
    """Return SQL that is 1 if a condition on a key is true, and 0 otherwise."""
    return f"CASE WHEN {condition} THEN 1L ELSE 0L END"


_OF_TABLES = {
    "groups": {_NO_SNAPSHOT_TIME: _one_if("coalesce(min(snapshot_ms), -1L) < 0")},
    "streams": {
        _INCOMPLETE_STREAMS: _one_if(" OR ".join(f"min({name}) IS NULL" for name in PROVEN_RANGE))
    },
    "consumers": {
        _NEGATIVE_TIMES: "count_if(seen_time_ms < 0 OR active_time_ms < 0)",
        _CONSUMERS_WITHOUT_GROUP: "count_if(in_groups IS NULL)",
    },
}


def _by_key(table: str, rows: Relation, faults: Mapping[_Fault, str]) -> Relation:
    """Return one row per fault of a table, with the columns of `problems`.

    Args:
        faults: by fault, SQL for the number of times that a key has the fault.  It is an aggregate
            of the rows of the key.
    """
    key = ", ".join(TABLES[table].key)
    columns = {fault: f"fault_{number}" for number, fault in enumerate(faults)}
    numbers = (f"{faults[fault]} AS {name}" for fault, name in columns.items())
    sums = (_added_up(name, f"{name} > 0", table, f"sum({name})") for name in columns.values())
    summed = rows.sql(
        f"""
        WITH by_key AS (
            SELECT {key}, {", ".join(numbers)} FROM {{this}} AS this GROUP BY {key}
        )
        SELECT {", ".join(sums)} FROM by_key
        """
    )
    return _rows_of_faults(summed, columns)


def _of_pending(pending: Relation, known: Relation, consumers: Relation) -> Relation:
    """Return the faults of `pending` that its keys do not show.

    Rows are added up by owner, then by group, and then in total.  Each step takes one shuffle.  The
    second and the third are small.
    """
    later = "delivery_time_ms > snapshot_ms"
    unknown_owner = "consumer IS NOT NULL AND is_consumer IS NULL"
    unproven = "NOT is_unknown AND unproven > 0"
    sums = pending.sql(
        f"""
        WITH by_owner AS (
            SELECT {GROUP_SQL}, consumer, {_added_up("invalid", IS_INVALID, "pending")},
                {_added_up("later", later, "pending")},
                count_if(NOT {IS_PROVEN}) AS unproven, bool_or(in_groups IS NULL) AS is_unknown
            FROM {{this}} AS this LEFT JOIN {{known}} AS known USING ({GROUP_SQL})
            GROUP BY {GROUP_SQL}, consumer
        ), owners AS (
            SELECT DISTINCT {GROUP_SQL}, consumer, true AS is_consumer
            FROM {{consumers}} AS consumers
        ), by_group AS (
            SELECT {GROUP_SQL}, {_sums("invalid", "later")},
                {_added_up("unknown_owners", unknown_owner, "consumers")},
                sum(unproven) AS unproven, bool_or(is_unknown) AS is_unknown
            FROM by_owner LEFT JOIN owners USING ({GROUP_SQL}, consumer)
            GROUP BY {GROUP_SQL}
        )
        SELECT {_sums("invalid", "later", "unknown_owners")},
            {_added_up("unknown_groups", "is_unknown", "groups")},
            {_added_up("unproven_groups", unproven, "groups")}
        FROM by_group
        """,
        known=known,
        consumers=consumers,
    )
    return _rows_of_faults(
        sums,
        {
            _INVALID: "invalid",
            _PENDING_WITHOUT_GROUP: "unknown_groups",
            _UNPROVEN: "unproven_groups",
            _UNKNOWN_OWNERS: "unknown_owners",
            _DELIVERED_LATER: "later",
        },
    )


def _added_up(name: str, condition: str, table: str, number: str = "") -> str:
    """Return SQL for the number of rows that meet a condition, and for the key of one such row.

    Args:
        name: the column of the number.  The column of the key is `name` followed by `_example`.
        table: the table whose key is returned.
        number: an aggregate that is used instead of the number of rows.
    """
    example = f"min(CASE WHEN {condition} THEN {key_json_sql(table)} END) AS {name}_example"
    return f"{number or f'count_if({condition})'} AS {name}, {example}"


def _sums(*names: str) -> str:
    """Return SQL that adds up rows with the columns of `_added_up`."""
    return ", ".join(
        f"sum({name}) AS {name}, min({name}_example) AS {name}_example" for name in names
    )


def _rows_of_faults(sums: Relation, faults: Mapping[_Fault, str]) -> Relation:
    """Return one row per fault, from the single row of sums.

    Args:
        faults: the column of each fault's sum.
    """
    rows = " UNION ALL ".join(
        f"SELECT {fault.rank:d} AS rank, '{fault.table}' AS `table`,"
        f" {quote_text(fault.what)} AS what, {str(fault.refuses).lower()} AS refuses,"
        f" '{name}' AS name"
        for fault, name in faults.items()
    )
    counts = " ".join(f"WHEN '{name}' THEN {name}" for name in faults.values())
    examples = " ".join(f"WHEN '{name}' THEN {name}_example" for name in faults.values())
    return sums.sql(
        f"""
        SELECT rank, `table`, what, refuses, CASE name {counts} END AS count,
            CASE name {examples} END AS example
        FROM ({rows}) AS faults CROSS JOIN {{this}} AS this
        """
    )
