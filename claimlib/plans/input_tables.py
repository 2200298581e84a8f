"""Somebody else's tables as rows of ours: which column is which, and what is wrong with a row.

A given table may have other columns, other names and other types than ours; a `TableMap` says which
of its columns is which, and `column_readers` how the values of a column are read.

Nothing is repaired: a value that does not fit is a fault of its row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_, or_
from types import MappingProxyType

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from claimlib.errors import ConfigError
from claimlib.plans.column_readers import UNUSABLE, WANTED, Shape, reader, spelled
from claimlib.plans.keys import GROUP, id_at_most, key_json_sql
from claimlib.plans.requests import PROVEN_RANGE
from claimlib.schema import FIELDS_TYPE, TABLES


@dataclass(frozen=True, slots=True)
class Part:
    """What a row of a given table says under one key of the map.

    Attributes:
        columns: the columns of ours that it fills.
        nullable: whether null is a value of it.
        optional: whether the given table may lack it; then it is null throughout.
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
    """Which column of a given table is which of ours; a part without an entry has our names.

    Attributes:
        columns: by key of `PARTS`: the given table's column, or two of them for an id.
        id_bits: whether number columns of ids are BIGINTs with the BITS of the unsigned numbers, as
            our own tables hold them; else they are the numbers, and none is negative.
        said_at: by key: where it is said, for messages.
    """

    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    id_bits: bool = False
    said_at: Mapping[str, str] = field(default_factory=dict)

    def where(self, table: str, key: str) -> str:
        """Where people find the entry of a key."""
        return self.said_at.get(key, f"{table}.{key}")


def conformed(table: str, rows: DataFrame, table_map: TableMap) -> DataFrame:
    """A given table with our columns: one row per row of it.

    Columns: those of `PARTS[table]` (null where the value cannot be used, or there is none), and of
    what cannot be used `fault_column`, `fault` (null: nothing is wrong) and `shown`, the row's key
    as it was given, in JSON.

    Raises:
        ConfigError: the map names a column that the table does not have, or one of another type;
            or the table lacks a column that the map does not name.
    """
    positions = {key: _located(table, key, rows, table_map) for key in PARTS[table]}
    values = {key: _values(table, key, rows, at, table_map) for key, at in positions.items()}
    faults = [
        _fault(PARTS[table][key], rows, at, values[key])
        for key, at in positions.items()
        if at is not None
    ]
    names = [name for part in PARTS[table].values() for name in part.columns]
    ours = [value for key in PARTS[table] for value in values[key]]
    # By number: a given name may be anything, dots and quotes too.
    numbered = rows.toDF(*(f"c{at}" for at in range(len(rows.columns))))
    kept = numbered.select(
        *(value.alias(name) for value, name in zip(ours, names, strict=True)),
        F.coalesce(*faults).alias("value_fault"),
        _shown(table, rows, positions).alias("shown"),
    )
    fault = F.coalesce("value_fault", _row_fault(table))
    said = (fault["of"].alias("fault_column"), fault["text"].alias("fault"))
    return kept.select(*names, *said, "shown")


def payload_columns(rows: DataFrame, table_map: TableMap) -> tuple[str, ...]:
    """Return the columns of a table of entries that may hold payloads, but are not imported.

    They are the columns of text, binary, map or struct type that belong to no key.  There are none
    if the table has a column for `fields`.
    """
    used = {key: _located("entries", key, rows, table_map) for key in PARTS["entries"]}
    if used["fields"] is not None:
        return ()
    taken = {n for at in used.values() for n in at or ()}
    return tuple(
        field.name
        for n, field in enumerate(rows.schema)
        if n not in taken and isinstance(field.dataType, _PAYLOAD_TYPES)
    )


_PAYLOAD_TYPES = (T.StringType, T.BinaryType, T.MapType, T.StructType)


def faults(tables: Mapping[str, DataFrame]) -> DataFrame:
    """One row per (table, fault_column, fault) of `conformed` tables, `rows` how many, and `times`:
    of each column of times its `name` and the `low`est and `high`est above 0 (null: there is none).
    The sound rows are one of them, with nulls.  One pass over each table."""
    parts = [
        frame.groupBy(F.lit(table).alias("table"), "fault_column", "fault").agg(
            F.count("*").alias("rows"), _times(frame).alias("times")
        )
        for table, frame in tables.items()
    ]
    return reduce(DataFrame.union, parts)


_TIMES = "ARRAY<STRUCT<name: STRING, low: BIGINT, high: BIGINT>>"


_OF_TIMES = {
    part.columns[0]
    for parts in PARTS.values()
    for part in parts.values()
    if part.shape is Shape.TIME
}


def _times(frame: DataFrame) -> Column:
    names = [name for name in frame.columns if name in _OF_TIMES]
    positive = {name: F.when(F.col(name) > 0, F.col(name)) for name in names}
    return F.array(
        *(F.struct(F.lit(name), F.min(of), F.max(of)) for name, of in positive.items())
    ).cast(_TIMES)


def rows_of_unknown_groups(table: str, rows: DataFrame, groups: DataFrame) -> DataFrame:
    """One row per (stream, consumer_group) of `rows` that `groups` lacks: `table`, `rows` how many,
    `example`, the group in JSON."""
    missing = rows.join(groups.select(*GROUP), on=list(GROUP), how="left_anti")
    example = F.expr(key_json_sql("groups")).alias("example")
    return (
        missing.groupBy(*GROUP)
        .agg(F.count("*").alias("rows"))
        .select(F.lit(table).alias("table"), "rows", example)
    )


def _located(table: str, key: str, rows: DataFrame, table_map: TableMap) -> tuple[int, ...] | None:
    """The numbers of the columns of a part; null: the table may lack it, and does."""
    part = PARTS[table][key]
    wanted = table_map.columns.get(key) or _by_name(key, part, rows)
    missing = [name for name in wanted if name not in rows.columns]
    if not missing:
        return tuple(rows.columns.index(name) for name in wanted)
    if part.optional and key not in table_map.columns and len(missing) == len(wanted):
        return None
    hint = "" if key in table_map.columns else f", and the map assigns no column to {key}"
    if key not in (*wanted, *table_map.columns) and len(missing) == len(wanted):
        hint = f" and none named {key}{hint}"
    raise ConfigError(
        f"{table_map.where(table, key)}: the table for {table} has no column {', '.join(missing)}"
        f"{hint}; the table's columns are {', '.join(rows.columns)}",
        table=table,
        key=key,
        columns=missing,
    )


def _by_name(key: str, part: Part, rows: DataFrame) -> tuple[str, ...]:
    """The columns of a part that no map names: ours, or one that is called as the map would, as an
    id that is one text."""
    has_ours = any(name in rows.columns for name in part.columns)
    return (key,) if key in rows.columns and not has_ours else part.columns


def _values(
    table: str, key: str, rows: DataFrame, at: tuple[int, ...] | None, table_map: TableMap
) -> list[Column]:
    """A part's columns of ours; null throughout where the table lacks it."""
    part = PARTS[table][key]
    if at is None:
        type_ = FIELDS_TYPE if part.shape is Shape.FIELDS else "BIGINT"
        return [F.lit(None).cast(type_) for _ in part.columns]
    fields = [rows.schema[n] for n in at]
    types = [field.dataType for field in fields]
    read = reader(part.shape, types, id_bits=table_map.id_bits)
    if read is not None:
        return read(_numbered(at))
    wanted = WANTED[part.shape]
    if part.shape is Shape.ID and table_map.id_bits:
        wanted = f"{wanted}, which are BIGINT if id_bits is true"
    said = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in fields)
    raise ConfigError(
        f"{table_map.where(table, key)}: {key} of the table for {table} is {said}, but must be"
        f" {wanted}",
        table=table,
        key=key,
        columns=[field.name for field in fields],
    )


def _numbered(at: Sequence[int]) -> list[Column]:
    return [F.col(f"c{n}") for n in at]


def _fault(part: Part, rows: DataFrame, at: Sequence[int], values: Sequence[Column]) -> Column:
    """What is wrong with a part of a row, as (of, text): of which column; null: nothing."""
    is_null = reduce(and_, [value.isNull() for value in _numbered(at)])
    unusable = reduce(or_, [value.isNull() for value in values])
    said = ", ".join(rows.columns[n] for n in at)
    fault = F.when(unusable & ~is_null, _named_fault(said, UNUSABLE[part.shape]))
    return (
        fault if part.nullable else F.when(is_null, _named_fault(said, "is null")).otherwise(fault)
    )


def _row_fault(table: str) -> Column:
    """What is wrong with a row whose parts are sound, as (of, text)."""
    if table != "streams":
        return F.lit(None).cast(_FAULT_TYPE)
    low, high = PROVEN_RANGE[:2], PROVEN_RANGE[2:]
    said = "complete_from, complete_to"
    return F.when(
        F.expr(f"({low[0]} IS NULL) != ({high[0]} IS NULL)"),
        _named_fault(said, "is only one end of a range: give both, or neither"),
    ).when(
        ~F.expr(id_at_most(*low, *high)),
        _named_fault(said, "is a range that ends before it begins"),
    )


# Not `column`, which some sessions take for a reserved word.
_FAULT_TYPE = "STRUCT<of: STRING, text: STRING>"


def _named_fault(column: str, text: str) -> Column:
    return F.struct(F.lit(column).alias("of"), F.lit(text).alias("text"))


def _shown(table: str, rows: DataFrame, positions: Mapping[str, tuple[int, ...] | None]) -> Column:
    """The key of a row as it was given, in JSON."""
    own = set(TABLES[table].key)
    at = [
        n
        for key, part in PARTS[table].items()
        if own & set(part.columns)
        for n in positions[key] or ()
    ]
    columns = [
        _shown_value(F.col(f"c{n}"), rows.schema[n].dataType).alias(rows.columns[n]) for n in at
    ]
    return F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})


def _shown_value(column: Column, type_: T.DataType) -> Column:
    return spelled(column) if isinstance(type_, T.BinaryType) else column
