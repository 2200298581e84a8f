"""Check the request tables of all commands.

The type of a column is not guessed.  If one value cannot be used, the whole table is refused.  No
row is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa

from claimlib.engine.relation import Executor, Record, Relation, Rows
from claimlib.errors import RequestError
from claimlib.plans.column_readers import kind_of
from claimlib.schema import quote_text

_TEXT = frozenset({"string", "void"})
_WHOLE = _TEXT | {"tinyint", "smallint", "int", "bigint"}
_FITTING: Mapping[str, frozenset[str]] = {
    "STRING": _TEXT,
    "BIGINT": _WHOLE,
    "BOOLEAN": _TEXT | {"boolean"},
    "DOUBLE": _WHOLE | {"decimal", "double", "float"},
}
_ARROW_TYPES = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
    "DOUBLE": pa.float64(),
    "ARRAY<STRING>": pa.list_(pa.string()),
}
Refusal = Callable[[str], str]
"""Returns the SQL condition that the value of a column cannot be used, from the column's name.

The condition can use all columns, converted to their types.  It can also use the original values:
their columns have the prefix `raw_`.
"""


@dataclass(frozen=True, slots=True)
class RequestTable:
    """Describe the request table of one command.

    Attributes:
        columns: the SQL types by name, in order.
        key: the columns that identify a row.
        row_sql: a SQL expression that names a row in messages.
        repeated_hint: the remedy for two rows with the same key, for messages.
        optional: columns that the table may omit.  They are then null.
        nullable: columns in which null is allowed.
        refusals: by column, the condition for further values that cannot be used, besides null and
            values of other types.
        hint: the values that can be used, for messages.
    """

    columns: Mapping[str, str]
    key: tuple[str, ...]
    row_sql: str
    repeated_hint: str
    optional: tuple[str, ...]
    nullable: tuple[str, ...]
    hint: str
    refusals: Mapping[str, Refusal] = field(default_factory=dict)

    def of_rows(self, engine: Executor, rows: Sequence[Sequence[object]]) -> Relation:
        """Return a request table of rows in memory, which have all columns in their order."""
        arrays = {
            name: pa.array([row[number] for row in rows], _ARROW_TYPES[type_])
            for number, (name, type_) in enumerate(self.columns.items())
        }
        return Relation(engine, Rows(pa.table(arrays)))

    def checked(self, request: Relation) -> Relation:
        """Return a request table with all columns in their types, if all its values can be used.

        This computes the table once.

        Raises:
            RequestError: a column is missing, unknown, or has a type that does not fit.  Or a value
                is null or not allowed in its column.  Or two rows have the same key.
        """
        typed = self.typed(request)
        # Rows are grouped by the converted key, because 7 and 007 are the same request.
        faulty_keys = typed.sql(
            f"""
            SELECT count(*) AS n, max(unusable) AS bad, min(row_name) AS first_row,
                min_by(stream, row_name) AS of_stream,
                min_by(consumer_group, row_name) AS of_group
            FROM {{this}} AS this GROUP BY {", ".join(self.key)}
            HAVING count(*) > 1 OR max(unusable) <> ''
            """
        )
        first = faulty_keys.order_by("first_row").first()
        if first is not None:
            raise RequestError(
                f"the request table has {self._fault(first)}",
                stream=first["of_stream"],
                consumer_group=first["of_group"],
                columns=first["bad"].split(", ") if first["bad"] else [],
            )
        return typed.select(*self.columns)

    def typed(self, request: Relation) -> Relation:
        """Return a request table with all columns in their types, `row_name` and `unusable`.

        `row_name` names the row in messages.  `unusable` has the names of the columns whose values
        cannot be used, separated by commas.  A value that cannot be converted to its type is None.

        Raises:
            RequestError: a column is missing, unknown, or has a type that does not fit.
        """
        types = {**dict.fromkeys(self.optional, "void"), **self._types(request)}
        completed = request.select(*(_completed(name, types[name]) for name in self.columns))
        both = completed.select(
            *(
                f"{_typed(name, types[name], wanted)} AS {name}"
                for name, wanted in self.columns.items()
            ),
            *(f"{name} AS raw_{name}" for name in self.columns),
            f"{self.row_sql} AS row_name",
        )
        names = (f"CASE WHEN {self._is_unusable(name)} THEN '{name}' END" for name in self.columns)
        return both.select(
            *self.columns, "row_name", f"concat_ws(', ', {', '.join(names)}) AS unusable"
        )

    def fingerprint(self, checked: Relation) -> dict[str, object]:
        """Return a fingerprint of a checked table: the number of rows and the sum of their hashes.

        The order of the rows does not matter.  This computes the table once.
        """
        # A row is hashed as JSON, because xxhash64 of several columns skips nulls.  Then a value in
        # one column would have the same hash as the value in the next column.
        hashed = f"xxhash64(to_json(struct({', '.join(self.columns)})))"
        (total,) = checked.select(
            "count(*) AS n", f"CAST(sum(CAST({hashed} AS DECIMAL(38, 0))) AS STRING) AS h"
        ).collect()
        return {"rows": total["n"], "hash": total["h"] or "0"}

    def _types(self, request: Relation) -> Mapping[str, str]:
        """Return the types of a table's columns.

        Raises:
            RequestError: a column is missing or unknown, or has a type whose values a cast would
                change.  For example, neither 1.9 nor true is accepted as 1 ms.
        """
        types = request.types
        names = ", ".join(self.columns)
        missing = [name for name in self.columns if name not in (*types, *self.optional)]
        if missing:
            raise RequestError(
                f"the request table has no {_columns(missing)}; its columns can be {names}",
                columns=missing,
            )
        unknown = [name for name in types if name not in self.columns]
        if unknown:
            raise RequestError(
                f"the request table has unknown {_columns(unknown)}; its columns can be {names}",
                columns=unknown,
            )
        for name, actual in types.items():
            if not _fits(actual, self.columns[name]):
                raise RequestError(
                    f"column {name} of the request table is {actual}: it must be"
                    f" {self.columns[name]}",
                    columns=[name],
                )
        return types

    def _fault(self, fault: Record) -> str:
        """Return the text for the fault of the rows with the same key."""
        if not fault["bad"]:
            return f"{fault['n']} rows for {fault['first_row']}: {self.repeated_hint}"
        null = f"only {', '.join(self.nullable)}" if self.nullable else "no value"
        return (
            f"invalid {fault['bad']} in the row for {fault['first_row']}: {null} may be null,"
            f" {self.hint}"
        )

    def _is_unusable(self, name: str) -> str:
        """Return the SQL condition that a column's value cannot be used."""
        is_lacking = f"{name} IS NULL"
        if name in self.nullable:
            is_lacking += f" AND raw_{name} IS NOT NULL"  # a value that cannot be converted
        refusal = self.refusals.get(name)
        return is_lacking if refusal is None else f"{is_lacking} OR {refusal(name)}"


def _fits(actual: str, wanted: str) -> bool:
    if wanted == "ARRAY<STRING>":
        element = actual.removeprefix("array<")
        return element != actual and kind_of(element) in _TEXT
    is_whole = wanted == "BIGINT" and re.fullmatch(r"decimal\([0-9]+,0\)", actual) is not None
    return is_whole or kind_of(actual) in _FITTING[wanted]


def _completed(name: str, actual: str) -> str:
    """Return SQL for a column as the table has it, or for null if the table lacks it.

    A text loses its collation, because a collation could make `SERVER` equal to the idle rule
    `server`.
    """
    if actual == "void":
        return f"CAST(NULL AS STRING) AS {name}"
    return f"CAST({name} AS STRING) AS {name}" if kind_of(actual) == "string" else name


def _typed(name: str, actual: str, wanted: str) -> str:
    """Return SQL for a column's value in its type, or for null if it cannot be converted.

    Each engine accepts other texts as numbers.  So this accepts the texts that Spark's casts
    accept.  For a DOUBLE it accepts only decimal notation, so not NaN.
    """
    if wanted == "BOOLEAN" and kind_of(actual) == "string":
        word = f"lower({_extracted(name, '[A-Za-z01]+')})"
        return f"CASE WHEN {word} IN ({_TRUE}) THEN true WHEN {word} IN ({_FALSE}) THEN false END"
    if wanted == "BIGINT" and kind_of(actual) == "string":
        return f"TRY_CAST({_extracted(name, '[+-]?[0-9]+')} AS BIGINT)"
    # A decimal is converted by its text, because an engine may divide its digits by a power of ten.
    # The quotient may be another number.
    if wanted == "DOUBLE" and kind_of(actual) in {"string", "decimal"}:
        return f"TRY_CAST({_extracted(f'CAST({name} AS STRING)', _FRACTION)} AS DOUBLE)"
    return f"TRY_CAST({name} AS {wanted})"


_FRACTION = r"[+-]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:[eE][+-]?[0-9]+)?"
_TRUE, _FALSE = "'t', 'true', 'y', 'yes', '1'", "'f', 'false', 'n', 'no', '0'"
_BLANKS = r"[\x00-\x20\x7f]*"


def _extracted(text: str, pattern: str) -> str:
    """Return SQL for a text without blanks at its ends, or '' if it does not match a pattern."""
    whole = rf"\A{_BLANKS}({pattern}){_BLANKS}\z"
    return f"regexp_extract({text}, {quote_text(whole)}, 1)"


def _columns(names: Sequence[str]) -> str:
    return f"{'column' if len(names) == 1 else 'columns'} {', '.join(names)}"


def is_none_of(choices: type[StrEnum]) -> Refusal:
    """Return the refusal of values that are not among the choices."""
    words = ", ".join(quote_text(str(choice)) for choice in choices)
    return lambda name: f"{name} NOT IN ({words})"


def is_beyond(least: float, most: float) -> Refusal:
    """Return the refusal of numbers below `least` or above `most`."""
    return lambda name: f"NOT {name} BETWEEN {least} AND {most}"
