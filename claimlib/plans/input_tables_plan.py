"""Convert the rows of a user's tables into rows of a store, and find their faults.

A given table may have other columns, other names and other types than the store's tables.  A
`TableMap` assigns its columns to the columns of the store, and `column_readers` converts their
values.

Nothing is repaired.  A value that does not fit is a fault of its row.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from claimlib.engine.relation import Relation, union_all
from claimlib.errors import ConfigError
from claimlib.plans.column_readers import UNUSABLE, WANTED, Shape, kind_of, reader, spelled_sql
from claimlib.plans.keys import GROUP, GROUP_SQL, id_at_most, key_json_sql
from claimlib.plans.requests import PROVEN_RANGE
from claimlib.schema import FIELDS_TYPE, TABLES, quote_identifier, quote_text


@dataclass(frozen=True, slots=True)
class Part:
    """Describe a part of a row of a given table, such as its id.  A `TableMap` has a key for it.

    Attributes:
        shape: the kind of its values.
        columns: the columns of the store's table that the part fills.
        nullable: True if the part may be null.
        optional: True if the given table may lack the part.  A missing part is null in all rows.
    """

    shape: Shape
    columns: tuple[str, ...]
    nullable: bool = False
    optional: bool = False


def _name(column: str, *, nullable: bool = False) -> Part:
    return Part(Shape.NAME, (column,), nullable=nullable)


def _id(name: str, *, optional: bool = False, nullable: bool = False) -> Part:
    return Part(Shape.ID, (f"{name}_ms", f"{name}_seq"), nullable or optional, optional)


def _time(column: str, *, optional: bool = False) -> Part:
    return Part(Shape.TIME, (column,), optional, optional)


def _count(column: str, *, optional: bool = False) -> Part:
    return Part(Shape.COUNT, (column,), optional, optional)


_GROUP = {"stream": _name("stream"), "consumer_group": _name("consumer_group")}

PARTS: Mapping[str, Mapping[str, Part]] = MappingProxyType(
    {
        "entries": {
            "stream": _name("stream"),
            "id": _id("id"),
            "fields": Part(Shape.FIELDS, ("fields",), nullable=True, optional=True),
        },
        "pending": {
            **_GROUP,
            "id": _id("id"),
            "consumer": _name("consumer", nullable=True),
            "delivery_time_ms": _time("delivery_time_ms"),
            "delivery_count": _count("delivery_count"),
        },
        "groups": {
            **_GROUP,
            "last_delivered": _id("last_delivered"),
            "snapshot_ms": _time("snapshot_ms", optional=True),
        },
        "consumers": {
            **_GROUP,
            "consumer": _name("consumer"),
            "seen_time_ms": _time("seen_time_ms"),
            "active_time_ms": _time("active_time_ms", optional=True),
        },
        "streams": {
            "stream": _name("stream"),
            "complete_from": _id("complete_from", nullable=True),
            "complete_to": _id("complete_to", nullable=True),
            "length": _count("length", optional=True),
            "last_generated": _id("last_generated", optional=True),
            "read_ms": _time("read_ms", optional=True),
        },
    }
)


@dataclass(frozen=True, slots=True)
class TableMap:
    """Assign the columns of a given table to the parts of the store's table.

    A part without an assignment is looked for under the store's column names (id_ms, id_seq), and
    else under its key (id).

    Attributes:
        columns: the given table's column by key of `PARTS`.  An id may have two columns.
        id_bits: True if an id's two columns are BIGINTs with the BITS of the unsigned numbers, as
            in the store's tables.  False if they have the numbers themselves, which are not
            negative.
        assigned_at: the place of an assignment by its key, for messages.

    Examples:
        >>> TableMap({"consumer": ("owner",), "id": ("ms", "seq")}).columns["id"]
        ('ms', 'seq')
    """

    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    id_bits: bool = False
    assigned_at: Mapping[str, str] = field(default_factory=dict)

    def where(self, table: str, key: str) -> str:
        """Return the place where a user finds the assignment of a key."""
        return self.assigned_at.get(key, f"{table}.{key}")


@dataclass(frozen=True, slots=True)
class _Column:
    """Hold a column of a given table.

    Attributes:
        sql: an alias for statements, because the given name may have dots and quotes.
        name, type: the name and the type in the given table.
    """

    sql: str
    name: str
    type: str


def _columns_of(rows: Relation) -> list[_Column]:
    return [_Column(f"c{n}", name, type_) for n, (name, type_) in enumerate(rows.types.items())]


_Parts = Mapping[str, Sequence[_Column]]
"""The columns of each part of a table, by key.  A part that the table lacks has no key."""


def conformed(table: str, rows: Relation, table_map: TableMap) -> Relation:
    """Return a given table with the columns of a store, one row per given row.

    Columns:

    - those of `PARTS[table]`, None if a value is missing or cannot be used.
    - `fault_column`: the given column or columns that are wrong.  For the range of a stream, the
      keys `complete_from, complete_to`.
    - `fault`: the reason.  Both are None if the row is sound.
    - `shown`: the key of the row as it was given, in JSON.

    Raises:
        ConfigError: a column that the map names, or a required column that it does not name, is
            missing or has a type that cannot be read.
    """
    columns = _columns_of(rows)
    located = _located_parts(table, columns, table_map)
    values = [
        f"{value} AS {name}"
        for key, part in PARTS[table].items()
        for name, value in zip(part.columns, _values(table, key, located, table_map), strict=True)
    ]
    nulls = (f"{_all_null(part)} AS no_{key}" for key, part in located.items())
    numbered = ", ".join(column.sql for column in columns)
    read = rows.sql(
        f"SELECT {', '.join((*values, *nulls))}, {_shown(table, located)} AS shown"
        f" FROM {{this}} AS this({numbered})"
    )
    possible_faults = [
        *(
            fault
            for key, part in located.items()
            for fault in _faults(PARTS[table][key], key, part)
        ),
        *(_RANGE_FAULTS if table == "streams" else ()),
    ]
    columns_by_condition = {condition: wrong for condition, wrong, _ in possible_faults}
    reasons_by_condition = {condition: reason for condition, _, reason in possible_faults}
    names = (name for part in PARTS[table].values() for name in part.columns)
    return read.select(
        *names,
        f"{_first_fault(columns_by_condition)} AS fault_column",
        f"{_first_fault(reasons_by_condition)} AS fault",
        "shown",
    )


def payload_columns(rows: Relation, table_map: TableMap) -> tuple[str, ...]:
    """Return the columns of a table of entries that may hold payloads, but are not imported.

    They are the columns of text, binary, map or struct type that belong to no part.  The result is
    empty if the table has a column for `fields`.
    """
    columns = _columns_of(rows)
    located = _located_parts("entries", columns, table_map)
    if "fields" in located:
        return ()
    imported = {column.sql for part in located.values() for column in part}
    return tuple(
        column.name
        for column in columns
        if column.sql not in imported and kind_of(column.type) in _PAYLOAD_KINDS
    )


_PAYLOAD_KINDS = ("string", "binary", "map", "struct")


def faults(tables: Mapping[str, Relation]) -> Relation:
    """Return one row per (table, fault_column, fault) of `conformed` tables.

    The sound rows of a table are counted in one row, whose fault is None.  `rows` is the number of
    given rows.  `times` has one element per column of times: `name`, and `low` and `high`, the
    smallest and the largest time above 0.  They are None if no time is above 0.  The caller uses
    them to find columns in seconds or microseconds.  Each table is read once.
    """
    return union_all(
        [
            rows.sql(
                f"SELECT {quote_text(table)} AS `table`, fault_column, fault, count(*) AS `rows`,"
                f" {_times(rows.columns)} AS times"
                " FROM {this} AS this GROUP BY fault_column, fault"
            )
            for table, rows in tables.items()
        ]
    )


_TIMES = "ARRAY<STRUCT<name: STRING, low: BIGINT, high: BIGINT>>"


_TIME_COLUMNS = {
    part.columns[0]
    for parts in PARTS.values()
    for part in parts.values()
    if part.shape is Shape.TIME
}


def _times(columns: Sequence[str]) -> str:
    ends = ", ".join(
        f"struct('{name}' AS name, min(CASE WHEN {name} > 0 THEN {name} END) AS low,"
        f" max(CASE WHEN {name} > 0 THEN {name} END) AS high)"
        for name in columns
        if name in _TIME_COLUMNS
    )
    return f"CAST(array({ends}) AS {_TIMES})"


def rows_of_unknown_groups(table: str, rows: Relation, groups: Relation) -> Relation:
    """Return one row per (stream, consumer_group) of `rows` that is missing from `groups`.

    Columns: `table`; `rows`, the number of rows; `example`, the group in JSON.
    """
    same = " AND ".join(f"s.{name} = t.{name}" for name in GROUP)
    return (
        rows.select(*GROUP)
        .lacking(groups.select(*GROUP), same)
        .sql(
            f"SELECT {quote_text(table)} AS `table`, count(*) AS `rows`,"
            f" {key_json_sql('groups')} AS example FROM {{this}} AS this GROUP BY {GROUP_SQL}"
        )
    )


def _located_parts(table: str, columns: Sequence[_Column], table_map: TableMap) -> _Parts:
    located = {key: _located(table, key, columns, table_map) for key in PARTS[table]}
    return {key: part for key, part in located.items() if part is not None}


def _located(
    table: str, key: str, columns: Sequence[_Column], table_map: TableMap
) -> Sequence[_Column] | None:
    """Return the columns of a part, or None if the table lacks an optional part."""
    part = PARTS[table][key]
    by_name = {column.name: column for column in columns}
    wanted = table_map.columns.get(key) or _by_name(key, part, by_name)
    missing = [name for name in wanted if name not in by_name]
    if not missing:
        return [by_name[name] for name in wanted]
    if part.optional and key not in table_map.columns and len(missing) == len(wanted):
        return None
    hint = "" if key in table_map.columns else f", and the map assigns no column to {key}"
    if key not in (*wanted, *table_map.columns) and len(missing) == len(wanted):
        # "has no column id_ms, id_seq and none named id, and the map assigns no column to id"
        hint = f" and none named {key}{hint}"
    raise ConfigError(
        f"{table_map.where(table, key)}: the table for {table} has no column {', '.join(missing)}"
        f"{hint}; the table's columns are {', '.join(by_name)}",
        table=table,
        key=key,
        columns=missing,
    )


def _by_name(key: str, part: Part, names: Container[str]) -> tuple[str, ...]:
    """Return the column names of a part without an assignment.

    They are usually the store's names.  If the table has none of these, but has a column with the
    name of the key, the result is that one column.
    """
    has_store_names = any(name in names for name in part.columns)
    return (key,) if key in names and not has_store_names else part.columns


def _values(table: str, key: str, located: _Parts, table_map: TableMap) -> list[str]:
    """Return SQL for the store's columns of a part, or for nulls if the table lacks the part."""
    part = PARTS[table][key]
    if key not in located:
        type_ = FIELDS_TYPE if part.shape is Shape.FIELDS else "BIGINT"
        return [f"CAST(NULL AS {type_})"] * len(part.columns)
    columns = located[key]
    read = reader(part.shape, [column.type for column in columns], id_bits=table_map.id_bits)
    if read is not None:
        return read([column.sql for column in columns])
    wanted = WANTED[part.shape]
    if part.shape is Shape.ID and table_map.id_bits:
        wanted = f"{wanted}, which are BIGINT if id_bits is true"
    shown = ", ".join(f"{column.name} {column.type}" for column in columns)
    raise ConfigError(
        f"{table_map.where(table, key)}: {key} of the table for {table} is {shown}, but must be"
        f" {wanted}",
        table=table,
        key=key,
        columns=[column.name for column in columns],
    )


def _all_null(part: Sequence[_Column]) -> str:
    return f"({' AND '.join(f'{column.sql} IS NULL' for column in part)})"


_Fault = tuple[str, str, str]
"""A SQL condition, the given columns that are wrong if it is true, and the reason."""


def _faults(part: Part, key: str, columns: Sequence[_Column]) -> list[_Fault]:
    """Return the possible faults of a part of a row."""
    names = ", ".join(column.name for column in columns)
    unusable = " OR ".join(f"{name} IS NULL" for name in part.columns)
    faults = [(f"({unusable}) AND NOT no_{key}", names, UNUSABLE[part.shape])]
    return faults if part.nullable else [(f"no_{key}", names, "is null"), *faults]


_LOW, _HIGH = PROVEN_RANGE[:2], PROVEN_RANGE[2:]
# The possible faults of the range of a stream whose ids are sound.
_RANGE_FAULTS: tuple[_Fault, ...] = tuple(
    (condition, "complete_from, complete_to", reason)
    for condition, reason in (
        (
            f"({_LOW[0]} IS NULL) <> ({_HIGH[0]} IS NULL)",
            "is only one end of a range: give both, or neither",
        ),
        (f"NOT {id_at_most(*_LOW, *_HIGH)}", "is a range that ends before it begins"),
    )
)


def _first_fault(texts: Mapping[str, str]) -> str:
    """Return SQL for the text of the first true condition, or for null if none is true.

    Args:
        texts: the texts by SQL condition.
    """
    cases = (f"WHEN {condition} THEN {quote_text(text)}" for condition, text in texts.items())
    return f"CASE {' '.join(cases)} END"


def _shown(table: str, located: _Parts) -> str:
    """Return SQL for the given key of a row, in JSON."""
    key_columns = set(TABLES[table].key)
    columns = (
        f"{spelled_sql(column.sql) if column.type == 'binary' else column.sql}"
        f" AS {_alias(column.name)}"
        for key, part in PARTS[table].items()
        if key_columns & set(part.columns)
        for column in located.get(key, ())
    )
    return f"to_json(struct({', '.join(columns)}), map('ignoreNullFields', 'false'))"


def _alias(name: str) -> str:
    """Return a name as an identifier in a statement, with its braces doubled.

    A single brace in a statement begins the name of an input.
    """
    return quote_identifier(name).replace("{", "{{").replace("}", "}}")
