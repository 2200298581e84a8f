r"""Convert columns of a user's tables, which may have several forms, into a store's columns.

The type of a given column determines the form:

- An id is ONE column of text, written `ms-seq` as a server writes it, or TWO columns of numbers.
- A time is a number (ms since the epoch) or a timestamp.  A timestamp without a zone is in UTC.
  A fraction below the millisecond is cut off.
- A name is a STRING, spelled as the store's tables spell it, or a BINARY with its bytes.
- Fields are an ARRAY<STRUCT<name, value>> or a MAP.  Their names and values are BINARY, or STRING,
  which stands for its UTF-8 bytes.

The readers return SQL only.  A value that cannot be used becomes null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

from claimlib.plans.keys import bytes_sql
from claimlib.schema import quote_text
from claimlib.semantics.ids import MAX_U64
from claimlib.semantics.names import SPELLING


class Shape(StrEnum):
    """Name the kinds of values that a part of a row can have (`input_tables.Part`)."""

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

Reader = Callable[[Sequence[str]], list[str]]
"""Returns SQL for the store's columns, from SQL for the given columns."""


def reader(shape: Shape, types: Sequence[str], *, id_bits: bool) -> Reader | None:
    """Return the reader for columns of these types, or None if they cannot be read.

    The SQL of the reader is null if a given value cannot be used.

    Args:
        types: the types of the columns, as Spark writes them.
        id_bits: see `input_tables.TableMap`.
    """
    if len(types) == 2:
        return _reader_of_two_numbers(types, id_bits=id_bits)
    (type_,) = types
    match shape:
        case Shape.ID:
            return _id_of_text if kind_of(type_) == "string" else None
        case Shape.NAME:
            return _name_reader(type_)
        case Shape.FIELDS:
            return _fields_reader(type_)
        case Shape.TIME if not _is_whole(type_):
            return _timestamp_reader(type_)
        case Shape.TIME | Shape.COUNT:
            return (lambda columns: [_natural(columns[0])]) if _is_whole(type_) else None


def kind_of(type_: str) -> str:
    """Return a type without its parameters and its collation."""
    return re.split(r"\W", type_, maxsplit=1)[0]


def _reader_of_two_numbers(types: Sequence[str], *, id_bits: bool) -> Reader | None:
    if id_bits:
        return list if all(type_ == "bigint" for type_ in types) else None
    return _id_of_numbers if all(map(_is_whole, types)) else None


def _name_reader(type_: str) -> Reader | None:
    if type_ == "binary":
        return lambda columns: [spelled_sql(columns[0])]
    if kind_of(type_) == "string":
        return lambda columns: [_name_of_text(columns[0])]
    return None


def _without_collation(column: str) -> str:
    # The cast removes a collation, with which names that differ only in case could be equal.
    return f"CAST({column} AS STRING)"


def _name_of_text(column: str) -> str:
    """Return SQL for a name that is a text."""
    text = _without_collation(column)
    # Only the few names with a backslash are matched with the pattern, because that is slower.
    spelling = f"instr({text}, {quote_text(_BACKSLASH)}) = 0 OR {is_spelling_sql(text)}"
    return f"CASE WHEN is_valid_utf8({text}) AND ({spelling}) THEN {text} END"


_BACKSLASH = "\\"


def _timestamp_reader(type_: str) -> Reader | None:
    if type_ == "timestamp":
        return lambda columns: [_natural(f"unix_millis({columns[0]})")]
    if type_ == "timestamp_ntz":
        return lambda columns: [_natural(_millis_in_utc(columns[0]))]
    return None


def _is_whole(type_: str) -> bool:
    is_decimal = re.fullmatch(r"decimal\([0-9]+,0\)", type_) is not None
    return is_decimal or type_ in {"tinyint", "smallint", "int", "bigint"}


def _natural(number: str) -> str:
    """Return SQL for a whole number as BIGINT, or null if it is negative or too large."""
    return f"CASE WHEN {number} >= 0 THEN TRY_CAST({number} AS BIGINT) END"


def _millis_in_utc(timestamp: str) -> str:
    # Without the Z, Spark would read the timestamp as a time in the session's zone.
    return f"unix_millis(TRY_CAST(concat(CAST({timestamp} AS STRING), 'Z') AS TIMESTAMP))"


_HALF = "(0|[1-9][0-9]{0,19})"
_ID_TEXT = rf"\A{_HALF}-{_HALF}\z"


def _id_of_text(columns: Sequence[str]) -> list[str]:
    return list(id_bits_sql(_without_collation(columns[0])))


def id_bits_sql(text: str) -> tuple[str, str]:
    """Return SQL for the two BIGINTs of an id that is given as a text.

    Both are null if the text is not an id.
    """
    return _bits(
        *(
            f"TRY_CAST(regexp_extract({text}, {quote_text(_ID_TEXT)}, {n}) AS DECIMAL(20, 0))"
            for n in (1, 2)
        )
    )


def _id_of_numbers(columns: Sequence[str]) -> list[str]:
    return list(_bits(*(f"TRY_CAST({number} AS DECIMAL(20, 0))" for number in columns)))


def _bits(*halves: str) -> tuple[str, str]:
    """Return SQL for the BIGINTs with the bits of two unsigned numbers (`ids.to_bigint`).

    Both are null if one of the numbers is not an unsigned 64-bit number.

    Args:
        halves: SQL for two decimals.
    """
    is_id = " AND ".join(f"{half} BETWEEN 0 AND {MAX_U64:d}" for half in halves)
    ms, seq = (
        f"CASE WHEN {is_id} THEN CASE WHEN {half} < {2**63:d} THEN CAST({half} AS BIGINT)"
        f" ELSE CAST({half} - {2**64:d} AS BIGINT) END END"
        for half in halves
    )
    return ms, seq


# The bytes of one whole UTF-8 character that is not ASCII, each byte as a Latin-1 character.
_MULTIBYTE = (
    r"[\xc2-\xdf][\x80-\xbf]"
    r"|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]"
    r"|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2}"
)
# A sequence of whole characters, or one byte that belongs to no character.
_RUNS = rf"((?:[\x00-\x7f]|{_MULTIBYTE})++|[\x80-\xff])"
# ASCII without a backslash (\x5c), so that the spelling equals the name.
_PLAIN = r"\A[\x00-\x5b\x5d-\x7f]*\z"
_LONE_BYTE = r"\A[\x80-\xff]\z"


def spelled_sql(raw: str) -> str:
    r"""Return SQL for the spelling of a name's bytes, as `names.spell`.

    The embedded engine replaces this SQL by a call of `names.spell`, see `engine.dialect`.
    """
    latin = f"decode({raw}, 'ISO-8859-1')"
    run_bytes = "encode(run, 'ISO-8859-1')"
    escape, two_backslashes = quote_text(_BACKSLASH + "x"), quote_text(_BACKSLASH * 2)
    escaped = f"concat({escape}, lower(hex({run_bytes})))"
    text = f"replace(decode({run_bytes}, 'UTF-8'), {quote_text(_BACKSLASH)}, {two_backslashes})"
    run = f"CASE WHEN run RLIKE {quote_text(_LONE_BYTE)} THEN {escaped} ELSE {text} END"
    runs = f"regexp_extract_all({latin}, {quote_text(_RUNS)}, 1)"
    return (
        f"CASE WHEN {latin} RLIKE {quote_text(_PLAIN)} THEN {latin}"
        f" ELSE array_join(transform({runs}, run -> {run}), '') END"
    )


def is_spelling_sql(text: str) -> str:
    """Return the SQL condition that `names.unspell` accepts a text.

    The pattern is matched with the bytes of the text, as for globs.
    """
    return f"(is_valid_utf8({text}) AND {bytes_sql(text)} RLIKE {quote_text(SPELLING)})"


_HALF_TYPE = r"(?:string(?: collate \w+)?|binary)"
_MAP = re.compile(rf"map<({_HALF_TYPE}),({_HALF_TYPE})>")
_PAIRS = re.compile(rf"array<struct<(\w+):({_HALF_TYPE}),(\w+):({_HALF_TYPE})>>")


def _fields_reader(type_: str) -> Reader | None:
    map_match = _MAP.fullmatch(type_)
    if map_match is not None:
        types = {"key": map_match[1], "value": map_match[2]}
        return lambda columns: [_pairs(f"map_entries({columns[0]})", types)]
    pairs_match = _PAIRS.fullmatch(type_)
    if pairs_match is None or {pairs_match[1], pairs_match[3]} != {"name", "value"}:
        return None
    halves = {pairs_match[1]: pairs_match[2], pairs_match[3]: pairs_match[4]}
    in_order = {name: halves[name] for name in ("name", "value")}
    return lambda columns: [_pairs(columns[0], in_order)]


def _pairs(pairs: str, types: Mapping[str, str]) -> str:
    """Return SQL for the column `fields` of a store, from SQL for the given pairs.

    The result is null if a pair has a null.

    Args:
        types: the types of the two halves of a given pair, by their names in `pairs`.  The first
            half is the name of a field, and the second is its value.
    """
    has_null = " OR ".join(f"pair.{half} IS NULL" for half in types)
    columns_of_pair = ", ".join(
        f"{f'pair.{half}' if type_ == 'binary' else f'CAST(pair.{half} AS BINARY)'} AS {name}"
        for (half, type_), name in zip(types.items(), ("name", "value"), strict=True)
    )
    return (
        f"CASE WHEN size(filter({pairs}, pair -> {has_null})) = 0"
        f" THEN transform({pairs}, pair -> struct({columns_of_pair})) END"
    )
