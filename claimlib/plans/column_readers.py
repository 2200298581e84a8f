r"""The forms in which a given table may hold a value, and how our columns are made of them.

The type of a column says which form it is:

- an id is ONE text column, written `ms-seq` as a server writes it, or TWO number columns;
- a time is a number (ms since the epoch) or a timestamp; without a zone it is UTC, and a fraction
  below the millisecond is cut off;
- a name is a STRING, spelled as the tables spell it, or a BINARY, the bytes themselves;
- fields are an ARRAY<STRUCT<name, value>> or a MAP, of BINARY, or of STRING for its UTF-8 bytes.

Expressions only: what cannot be used becomes null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from enum import StrEnum
from functools import reduce
from operator import and_

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from claimlib.plans.keys import bytes_sql
from claimlib.schema import quote_text
from claimlib.semantics.ids import MAX_U64
from claimlib.semantics.names import SPELLING


class Shape(StrEnum):
    """What a value of a part is."""

    NAME = "name"
    ID = "id"
    TIME = "time"
    COUNT = "count"
    FIELDS = "fields"


WANTED = {
    Shape.NAME: "one STRING or BINARY",
    Shape.ID: "one STRING (ms-seq) or two whole numbers",
    Shape.TIME: "one whole number (ms) or TIMESTAMP",
    Shape.COUNT: "one whole number",
    Shape.FIELDS: "one ARRAY<STRUCT<name, value>> or MAP, of BINARY or STRING",
}
UNUSABLE = {
    Shape.NAME: (
        "is not a valid name (a backslash is written twice, a byte that is not UTF-8 as \\xhh)"
    ),
    Shape.ID: (
        "is not a valid id (two unsigned 64-bit numbers; as a text ms-seq, without leading zeros)"
    ),
    Shape.TIME: "is not a valid time (0 to 2^63-1 ms since 1970)",
    Shape.COUNT: "is not a valid count (0 to 2^63-1)",
    Shape.FIELDS: "contains a null",
}

Reader = Callable[[Sequence[Column]], list[Column]]


def reader(shape: Shape, types: Sequence[T.DataType], *, id_bits: bool) -> Reader | None:
    """How columns of these types are read: our values, null where one cannot be used; null: not at
    all."""
    if len(types) == 2:
        return _halves_reader(types, id_bits=id_bits)
    (type_,) = types
    match shape:
        case Shape.ID:
            return _id_of_text if isinstance(type_, T.StringType) else None
        case Shape.NAME:
            return _name_reader(type_)
        case Shape.FIELDS:
            return _fields_reader(type_)
        case Shape.TIME if not _is_whole(type_):
            return _timestamp_reader(type_)
        case Shape.TIME | Shape.COUNT:
            return (lambda columns: [_natural(columns[0])]) if _is_whole(type_) else None


def _halves_reader(types: Sequence[T.DataType], *, id_bits: bool) -> Reader | None:
    if id_bits:
        return list if all(isinstance(type_, T.LongType) for type_ in types) else None
    return _id_of_numbers if all(map(_is_whole, types)) else None


def _name_reader(type_: T.DataType) -> Reader | None:
    if isinstance(type_, T.BinaryType):
        return lambda columns: [spelled(columns[0])]
    if isinstance(type_, T.StringType):
        return lambda columns: [_of_text(columns[0])]
    return None


def _of_text(column: Column) -> Column:
    # Of a column with a collation, names that differ only in case would be one.
    text = column.cast("STRING")
    return F.when(F.is_valid_utf8(text) & text.rlike(SPELLING), text)


def _timestamp_reader(type_: T.DataType) -> Reader | None:
    if isinstance(type_, T.TimestampType):
        return lambda columns: [_natural(F.unix_millis(columns[0]))]
    if isinstance(type_, T.TimestampNTZType):
        return lambda columns: [_natural(_millis_in_utc(columns[0]))]
    return None


def _is_whole(type_: T.DataType) -> bool:
    return isinstance(type_, T.IntegralType) or (
        isinstance(type_, T.DecimalType) and type_.scale == 0
    )


def _natural(number: Column) -> Column:
    """A whole number as BIGINT; null where it is negative or too large."""
    return F.when(number >= 0, number.try_cast("BIGINT"))


def _millis_in_utc(timestamp: Column) -> Column:
    # Spark would take it for a time of the session's zone.
    return F.unix_millis(F.concat(timestamp.cast("STRING"), F.lit("Z")).try_cast("TIMESTAMP"))


_HALF = "(0|[1-9][0-9]{0,19})"
_ID_TEXT = rf"\A{_HALF}-{_HALF}\z"


def _id_of_text(columns: Sequence[Column]) -> list[Column]:
    text = columns[0].cast("STRING")
    halves = [F.regexp_extract(text, _ID_TEXT, number) for number in (1, 2)]
    is_id = text.rlike(_ID_TEXT)
    return _both([F.when(is_id, half).try_cast("DECIMAL(20,0)") for half in halves])


def id_bits_sql(text: str) -> tuple[str, str]:
    """As SQL: the BIGINTs of the halves of an id's text; both are null where it is none."""
    halves = [
        f"TRY_CAST(regexp_extract({text}, {quote_text(_ID_TEXT)}, {n}) AS DECIMAL(20, 0))"
        for n in (1, 2)
    ]
    is_id = " AND ".join(f"{half} <= {MAX_U64:d}" for half in halves)
    ms, seq = (
        f"CASE WHEN {is_id} THEN CASE WHEN {half} < {2**63:d} THEN CAST({half} AS BIGINT)"
        f" ELSE CAST({half} - {2**64:d} AS BIGINT) END END"
        for half in halves
    )
    return ms, seq


def _id_of_numbers(columns: Sequence[Column]) -> list[Column]:
    return _both([number.cast("DECIMAL(38,0)") for number in columns])


def _both(halves: Sequence[Column]) -> list[Column]:
    """The halves' BIGINTs; null, both, where one of them is none."""
    bits = [_bits(half) for half in halves]
    are_there = reduce(and_, [half.isNotNull() for half in bits])
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


def is_spelling_sql(text: str) -> str:
    """Return a SQL condition: whether `names.unspell` takes a text.

    As for globs, its bytes are matched.
    """
    return f"(is_valid_utf8({text}) AND {bytes_sql(text)} RLIKE {quote_text(SPELLING)})"


def _fields_reader(type_: T.DataType) -> Reader | None:
    texts = (T.StringType, T.BinaryType)
    if isinstance(type_, T.MapType):
        if not (isinstance(type_.keyType, texts) and isinstance(type_.valueType, texts)):
            return None
        return lambda columns: [_pairs(F.map_entries(columns[0]), "key")]
    if not isinstance(type_, T.ArrayType) or not isinstance(type_.elementType, T.StructType):
        return None
    pair = {field.name: field.dataType for field in type_.elementType.fields}
    if set(pair) != {"name", "value"} or not all(
        isinstance(type_, texts) for type_ in pair.values()
    ):
        return None
    return lambda columns: [_pairs(columns[0], "name")]


def _pairs(pairs: Column, name: str) -> Column:
    """Pairs as our fields; null where there is a null in them."""
    is_half = F.exists(pairs, lambda pair: pair[name].isNull() | pair["value"].isNull())
    ours = F.transform(
        pairs,
        lambda pair: F.struct(
            pair[name].cast("BINARY").alias("name"), pair["value"].cast("BINARY").alias("value")
        ),
    )
    return F.when(~is_half, ours)
