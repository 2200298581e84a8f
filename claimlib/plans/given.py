r"""Somebody else's tables as rows of ours: which column is which, and what is wrong with a row.

A given table may have other columns, other names and other types than ours; a `TableMap` says which
of its columns is which.  The types say the rest:

- an id is ONE text column, written `ms-seq` as a server writes it, or TWO number columns;
- a time is a number (ms since the epoch) or a timestamp; without a zone it is UTC, and a fraction
  below the millisecond is cut off;
- a name is a STRING, spelled as the tables spell it, or a BINARY, the bytes themselves;
- fields are an ARRAY<STRUCT<name, value>> or a MAP, of BINARY, or of STRING for its UTF-8 bytes.

Nothing is repaired: a value that does not fit is a fault of its row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from functools import reduce
from types import MappingProxyType

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from claimlib.errors import ConfigError
from claimlib.ids import MAX_U64
from claimlib.plans.keys import id_at_most, key_json
from claimlib.schema import FIELDS_TYPE, TABLES


class Shape(StrEnum):
    """What a value of a part is."""

    NAME = "name"
    ID = "id"
    TIME = "time"
    COUNT = "count"
    FIELDS = "fields"


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


def conformed(table: str, given: DataFrame, table_map: TableMap) -> DataFrame:
    """A given table with our columns: one row per row of it.

    Columns: those of `PARTS[table]` (null where the value cannot be used, or there is none), and of
    what cannot be used `fault_column`, `fault` (null: nothing is wrong) and `shown`, the row's key
    as it was given, in JSON.

    Raises:
        ConfigError: the map names a column that the table does not have, or one of another type;
            or the table lacks a column that the map does not name.
    """
    found = {key: _located(table, key, given, table_map) for key in PARTS[table]}
    # By number: a given name may be anything, dots and quotes too.
    numbered = given.toDF(*(f"c{at}" for at in range(len(given.columns))))
    values: list[Column] = []
    faults: list[Column] = []
    for key, part in PARTS[table].items():
        at = found[key]
        if at is None:
            types = FIELDS_TYPE if part.shape is Shape.FIELDS else "BIGINT"
            values += [F.lit(None).cast(types).alias(name) for name in part.columns]
            continue
        types_ = [given.schema[n].dataType for n in at]
        columns = [F.col(f"c{n}") for n in at]
        read = _reader(part.shape, types_, id_bits=table_map.id_bits)
        if read is None:
            raise _mistyped(table, key, part, given, at, table_map)
        outcome = read(columns)
        values += [value.alias(name) for value, name in zip(outcome, part.columns, strict=True)]
        faults.append(_fault(part, given, at, columns, outcome))
    kept = numbered.select(*values, F.coalesce(*faults).alias("found"), _shown(table, given, found))
    found_or_row = F.coalesce("found", _row_fault(table))
    return kept.select(
        *(name for part in PARTS[table].values() for name in part.columns),
        found_or_row["column"].alias("fault_column"),
        found_or_row["text"].alias("fault"),
        "shown",
    )


def faults(tables: Mapping[str, DataFrame]) -> DataFrame:
    """One row per (table, fault_column, fault) of `conformed` tables, `rows` how many; the sound
    rows are one of them, with nulls.  One pass over each table."""
    parts = [
        frame.groupBy(F.lit(table).alias("table"), "fault_column", "fault").agg(
            F.count("*").alias("rows")
        )
        for table, frame in tables.items()
    ]
    return reduce(DataFrame.union, parts)


def strangers(table: str, rows: DataFrame, groups: DataFrame) -> DataFrame:
    """One row per (stream, consumer_group) of `rows` that `groups` lacks: `table`, `rows` how many,
    `example`, the group in JSON."""
    names = ["stream", "consumer_group"]
    missing = rows.join(groups.select(*names), on=names, how="left_anti")
    example = key_json("groups").alias("example")
    return (
        missing.groupBy(*names)
        .agg(F.count("*").alias("rows"))
        .select(F.lit(table).alias("table"), "rows", example)
    )


def _located(table: str, key: str, given: DataFrame, table_map: TableMap) -> tuple[int, ...] | None:
    """The numbers of the columns of a part; null: the table may lack it, and does."""
    part = PARTS[table][key]
    wanted = table_map.columns.get(key, part.columns)
    missing = [name for name in wanted if name not in given.columns]
    if not missing:
        return tuple(given.columns.index(name) for name in wanted)
    if part.optional and key not in table_map.columns:
        return None
    hint = "" if key in table_map.columns else f", and the map does not say which one is {key}"
    raise ConfigError(
        f"{table_map.where(table, key)}: the table for {table} has no column {', '.join(missing)}"
        f"{hint}; it has {', '.join(given.columns)}",
        table=table,
        key=key,
        columns=missing,
    )


def _mistyped(
    table: str,
    key: str,
    part: Part,
    given: DataFrame,
    at: Sequence[int],
    table_map: TableMap,
) -> ConfigError:
    said = ", ".join(f"{given.columns[n]} {given.schema[n].dataType.simpleString()}" for n in at)
    wanted = _WANTED[part.shape]
    if part.shape is Shape.ID and table_map.id_bits:
        wanted = f"{wanted}, which are BIGINT where id_bits is true"
    return ConfigError(
        f"{table_map.where(table, key)}: {key} of the table for {table} is {said}, and must be"
        f" {wanted}",
        table=table,
        key=key,
        columns=[given.columns[n] for n in at],
    )


_WANTED = {
    Shape.NAME: "one STRING or BINARY",
    Shape.ID: "one STRING (ms-seq) or two whole numbers",
    Shape.TIME: "one whole number (ms) or TIMESTAMP",
    Shape.COUNT: "one whole number",
    Shape.FIELDS: "one ARRAY<STRUCT<name, value>> or MAP, of BINARY or STRING",
}
_UNUSABLE = {
    Shape.NAME: "spells no name (a backslash is written twice, a byte that is not UTF-8 as \\xhh)",
    Shape.ID: "is no id (two unsigned 64-bit numbers; as a text ms-seq, without leading zeros)",
    Shape.TIME: "is no time (0 to 2^63-1 ms since 1970)",
    Shape.COUNT: "is no count (0 to 2^63-1)",
    Shape.FIELDS: "has a null in it",
}

_Reader = Callable[[Sequence[Column]], list[Column]]


def _reader(shape: Shape, types: Sequence[T.DataType], *, id_bits: bool) -> _Reader | None:
    """How columns of these types are read: our values, null where one cannot be used; null: not at
    all."""
    if len(types) == 2:
        return _halves_reader(types, id_bits=id_bits)
    (one,) = types
    match shape:
        case Shape.ID:
            return _id_of_text if isinstance(one, T.StringType) else None
        case Shape.NAME:
            return _name_reader(one)
        case Shape.FIELDS:
            return _fields_reader(one)
        case Shape.TIME if not _is_whole(one):
            return _timestamp_reader(one)
        case Shape.TIME | Shape.COUNT:
            return (lambda columns: [_natural(columns[0])]) if _is_whole(one) else None


def _halves_reader(types: Sequence[T.DataType], *, id_bits: bool) -> _Reader | None:
    if id_bits:
        return list if all(isinstance(one, T.LongType) for one in types) else None
    return _id_of_numbers if all(map(_is_whole, types)) else None


def _name_reader(type_: T.DataType) -> _Reader | None:
    if isinstance(type_, T.BinaryType):
        return lambda columns: [spelled(columns[0])]
    if isinstance(type_, T.StringType):
        return lambda columns: [F.when(_is_spelling(columns[0]), columns[0])]
    return None


def _timestamp_reader(type_: T.DataType) -> _Reader | None:
    if isinstance(type_, T.TimestampType):
        return lambda columns: [_natural(F.unix_millis(columns[0]))]
    if isinstance(type_, T.TimestampNTZType):
        return lambda columns: [_natural(_millis_in_utc(columns[0]))]
    return None


def _is_whole(one: T.DataType) -> bool:
    return isinstance(one, T.IntegralType) or (isinstance(one, T.DecimalType) and one.scale == 0)


def _natural(number: Column) -> Column:
    """A whole number as BIGINT; null where it is negative or too large."""
    return F.when(number >= 0, number.try_cast("BIGINT"))


def _millis_in_utc(timestamp: Column) -> Column:
    # Spark would take it for a time of the session's zone.
    return F.unix_millis(F.concat(timestamp.cast("STRING"), F.lit("Z")).try_cast("TIMESTAMP"))


_HALF = "(0|[1-9][0-9]{0,19})"
_ID_TEXT = rf"\A{_HALF}-{_HALF}\z"


def _id_of_text(columns: Sequence[Column]) -> list[Column]:
    (text,) = columns
    halves = [F.regexp_extract(text, _ID_TEXT, number) for number in (1, 2)]
    is_id = text.rlike(_ID_TEXT)
    return _both([F.when(is_id, half).try_cast("DECIMAL(20,0)") for half in halves])


def _id_of_numbers(columns: Sequence[Column]) -> list[Column]:
    return _both([number.cast("DECIMAL(38,0)") for number in columns])


def _both(halves: Sequence[Column]) -> list[Column]:
    """The halves' BIGINTs; null, both, where one of them is none."""
    bits = [_bits(half) for half in halves]
    are_there = reduce(lambda one, other: one & other, [half.isNotNull() for half in bits])
    return [F.when(are_there, half) for half in bits]


def _bits(number: Column) -> Column:
    """The BIGINT with the bits of an unsigned number, as `ids.to_bigint`; null: it is none."""
    negative = number - F.lit(Decimal(2**64))
    return F.when((number >= 0) & (number < F.lit(Decimal(2**63))), number.try_cast("BIGINT")).when(
        (number > 0) & (number <= F.lit(Decimal(MAX_U64))), negative.try_cast("BIGINT")
    )


# One whole character of UTF-8 that is not ASCII, its bytes read as Latin-1.
_MULTIBYTE = (
    r"[\xc2-\xdf][\x80-\xbf]"
    r"|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]"
    r"|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2}"
)
# A run of whole characters, or one byte that is none.
_RUNS = rf"((?:[\x00-\x7f]|{_MULTIBYTE})++|[\x80-\xff])"
_PIECES = r"(\\\\|\\x[0-9a-f]{2}|[^\\]++|\\)"


def spelled(raw: Column) -> Column:
    r"""The spelling of a name's bytes, as `names.spell`."""
    latin = F.decode(raw, "ISO-8859-1")
    plain = latin.rlike(r"\A[\x00-\x5b\x5d-\x7f]*\z")
    runs = F.regexp_extract_all(latin, F.lit(_RUNS), F.lit(1))
    return F.when(plain, latin).otherwise(F.array_join(F.transform(runs, _spelled_run), ""))


def _spelled_run(run: Column) -> Column:
    raw = F.encode(run, "ISO-8859-1")
    escaped = F.concat(F.lit("\\x"), F.lower(F.hex(raw)))
    text = F.replace(F.decode(raw, "UTF-8"), F.lit("\\"), F.lit("\\\\"))
    return F.when(run.rlike(r"\A[\x80-\xff]\z"), escaped).otherwise(text)


def _is_spelling(text: Column) -> Column:
    """Whether `names.unspell` takes a text."""
    pieces = F.regexp_extract_all(text, F.lit(_PIECES), F.lit(1))
    raw = F.unhex(F.array_join(F.transform(pieces, _hex_of_piece), ""))
    is_own_spelling = F.coalesce(spelled(raw) == text, F.lit(False))
    return F.is_valid_utf8(text) & (~F.contains(text, F.lit("\\")) | is_own_spelling)


def _hex_of_piece(piece: Column) -> Column:
    return (
        F.when(piece == "\\\\", F.lit("5C"))
        .when(piece.rlike(r"\A\\x"), F.substring(piece, 3, 2))
        .otherwise(F.hex(F.encode(piece, "UTF-8")))
    )


def _fields_reader(type_: T.DataType) -> _Reader | None:
    texts = (T.StringType, T.BinaryType)
    if isinstance(type_, T.MapType):
        if not (isinstance(type_.keyType, texts) and isinstance(type_.valueType, texts)):
            return None
        return lambda columns: [_pairs(F.map_entries(columns[0]), "key")]
    if not isinstance(type_, T.ArrayType) or not isinstance(type_.elementType, T.StructType):
        return None
    pair = {one.name: one.dataType for one in type_.elementType.fields}
    if set(pair) != {"name", "value"} or not all(isinstance(one, texts) for one in pair.values()):
        return None
    return lambda columns: [_pairs(columns[0], "name")]


def _pairs(pairs: Column, name: str) -> Column:
    """Pairs as our fields; null where there is a null in them."""
    is_half = F.exists(pairs, lambda one: one[name].isNull() | one["value"].isNull())
    ours = F.transform(
        pairs,
        lambda one: F.struct(
            one[name].cast("BINARY").alias("name"), one["value"].cast("BINARY").alias("value")
        ),
    )
    return F.when(~is_half, ours)


def _fault(
    part: Part,
    given: DataFrame,
    at: Sequence[int],
    columns: Sequence[Column],
    values: Sequence[Column],
) -> Column:
    """What is wrong with a part of a row, as (column, text); null: nothing."""
    is_null = reduce(lambda one, other: one & other, [column.isNull() for column in columns])
    unusable = reduce(lambda one, other: one | other, [value.isNull() for value in values])
    said = ", ".join(given.columns[n] for n in at)
    fault = F.when(unusable & ~is_null, _found(said, _UNUSABLE[part.shape]))
    return fault if part.nullable else F.when(is_null, _found(said, "is null")).otherwise(fault)


def _row_fault(table: str) -> Column:
    """What is wrong with a row whose parts are sound, as (column, text)."""
    if table != "streams":
        return F.lit(None).cast(_FOUND)
    low, high = F.col("complete_from_ms"), F.col("complete_to_ms")
    in_order = id_at_most("complete_from_ms", "complete_from_seq", high, F.col("complete_to_seq"))
    said = "complete_from, complete_to"
    return F.when(
        low.isNull() != high.isNull(), _found(said, "is half a range: give both, or neither")
    ).when(~in_order, _found(said, "is a range that ends before it begins"))


_FOUND = "STRUCT<column: STRING, text: STRING>"


def _found(column: str, text: str) -> Column:
    return F.struct(F.lit(column).alias("column"), F.lit(text).alias("text"))


def _shown(table: str, given: DataFrame, found: Mapping[str, tuple[int, ...] | None]) -> Column:
    """The key of a row as it was given, in JSON."""
    own = set(TABLES[table].key)
    at = [
        n for key, part in PARTS[table].items() if own & set(part.columns) for n in found[key] or ()
    ]
    columns = [
        _shown_value(F.col(f"c{n}"), given.schema[n].dataType).alias(given.columns[n]) for n in at
    ]
    return F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}).alias("shown")


def _shown_value(column: Column, type_: T.DataType) -> Column:
    return spelled(column) if isinstance(type_, T.BinaryType) else column
