"""Check the request tables of all commands.

The type of a column is not guessed.  A value that cannot be used refuses the whole table.  No row
is skipped.
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
"""Returns, for a column's name, the SQL condition under which its value cannot be used.

The condition can use each column in its type, and as `raw_` and its name as the table has it.
"""


@dataclass(frozen=True, slots=True)
class RequestTable:
    """Describe the request table of one command.

    Attributes:
        columns: the SQL types by name, in order.
        key: the columns that identify a row.
        row_sql: a SQL expression that names a row in messages.
        repeated_hint: what to do if two rows have one key, for messages.
        optional: columns that the table may omit, as if they were null.
        nullable: columns in which null is a value.
        refusals: by column, further values that cannot be used, besides null and other types.
        hint: what values can be used, for messages.
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
        """Return a request table of rows in memory, each with all columns in their order."""
        arrays = {
            name: pa.array([row[number] for row in rows], _ARROW_TYPES[type_])
            for number, (name, type_) in enumerate(self.columns.items())
        }
        return Relation(engine, Rows(pa.table(arrays)))

    def checked(self, request: Relation) -> Relation:
        """Return a request table with all columns in their types, if all its values can be used.

        This computes the table once.

        Raises:
            RequestError: a column is missing, or has a type that does not fit.  Or a value is null
                or not allowed in its column.  Or two rows have one key.
        """
        typed = self.typed(request)
        # By the typed key, because 7 and 007 are one request.
        fault = typed.sql(
            f"""
            SELECT count(*) AS n, max(unusable) AS bad, min(said) AS first_said,
                min_by(stream, said) AS of_stream, min_by(consumer_group, said) AS of_group
            FROM {{this}} AS this GROUP BY {", ".join(self.key)}
            HAVING count(*) > 1 OR max(unusable) <> ''
            """
        )
        first = fault.order_by("first_said").first()
        if first is not None:
            raise RequestError(
                f"the request table has {self._fault(first)}",
                stream=first["of_stream"],
                consumer_group=first["of_group"],
                columns=first["bad"].split(", ") if first["bad"] else [],
            )
        return typed.select(*self.columns)

    def typed(self, request: Relation) -> Relation:
        """Return a request table with all columns in their types, `said` and `unusable`.

        `said` names the row in messages.  `unusable` has the names of the columns whose values
        cannot be used, separated by commas.  A value that cannot be converted to its type is None.

        Raises:
            RequestError: a column is missing, or has a type that does not fit.
        """
        types = {**dict.fromkeys(self.optional, "void"), **self._types(request)}
        completed = request.select(*(_completed(name, types[name]) for name in self.columns))
        both = completed.select(
            *(
                f"{_typed(name, types[name], wanted)} AS {name}"
                for name, wanted in self.columns.items()
            ),
            *(f"{name} AS raw_{name}" for name in self.columns),
            f"{self.row_sql} AS said",
        )
        names = (f"CASE WHEN {self._is_unusable(name)} THEN '{name}' END" for name in self.columns)
        return both.select(
            *self.columns, "said", f"concat_ws(', ', {', '.join(names)}) AS unusable"
        )

    def fingerprint(self, checked: Relation) -> dict[str, object]:
        """Return a fingerprint of a checked table: the number of rows and the sum of their hashes.

        The order of the rows does not matter.  This computes the table once.
        """
        # A hash of the columns skips nulls, so it does not distinguish one column from the next.
        hashed = f"xxhash64(to_json(struct({', '.join(self.columns)})))"
        (total,) = checked.select(
            "count(*) AS n", f"CAST(sum(CAST({hashed} AS DECIMAL(38, 0))) AS STRING) AS h"
        ).collect()
        return {"rows": total["n"], "hash": total["h"] or "0"}

    def _types(self, request: Relation) -> Mapping[str, str]:
        """Return the types of a table's columns.

        Raises:
            RequestError: a column is missing or unknown, or has a type whose values a cast would
                change.  For example, 1.9 is not 1 ms, and true is not 1 ms.
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
        """Return the fault of the rows of one key, as a text."""
        if not fault["bad"]:
            return f"{fault['n']} rows for {fault['first_said']}: {self.repeated_hint}"
        null = f"only {', '.join(self.nullable)}" if self.nullable else "no value"
        return (
            f"invalid {fault['bad']} in the row for {fault['first_said']}: {null} may be null,"
            f" {self.hint}"
        )

    def _is_unusable(self, name: str) -> str:
        """Return the SQL condition that a column's value cannot be used."""
        is_none = f"{name} IS NULL"
        if name in self.nullable:
            is_none += f" AND raw_{name} IS NOT NULL"
        refusal = self.refusals.get(name)
        return is_none if refusal is None else f"{is_none} OR {refusal(name)}"


def _fits(actual: str, wanted: str) -> bool:
    if wanted == "ARRAY<STRING>":
        element = actual.removeprefix("array<")
        return element != actual and kind_of(element) in _TEXT
    is_whole = wanted == "BIGINT" and re.fullmatch(r"decimal\([0-9]+,0\)", actual) is not None
    return is_whole or kind_of(actual) in _FITTING[wanted]


def _completed(name: str, actual: str) -> str:
    """Return SQL for a column as the table has it, or for null if the table lacks it.

    A text is cast to one without a collation, because a collation could make `SERVER` one of the
    rules.
    """
    if actual == "void":
        return f"CAST(NULL AS STRING) AS {name}"
    return f"CAST({name} AS STRING) AS {name}" if kind_of(actual) == "string" else name


def _typed(name: str, actual: str, wanted: str) -> str:
    """Return SQL for a column's value in its type, or for null if it cannot be converted.

    Engines differ in which texts are numbers.  This accepts the texts that Spark's casts accept,
    except fractions in other notations than decimal.
    """
    if wanted == "BOOLEAN" and kind_of(actual) == "string":
        word = f"lower({_extracted(name, '[A-Za-z01]+')})"
        return f"CASE WHEN {word} IN ({_TRUE}) THEN true WHEN {word} IN ({_FALSE}) THEN false END"
    if wanted == "BIGINT" and kind_of(actual) == "string":
        return f"TRY_CAST({_extracted(name, '[+-]?[0-9]+')} AS BIGINT)"
    # The quotient of a decimal's digits and its scale may be another number than its text.
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
    """Refuse values that are not one of some words."""
    words = ", ".join(quote_text(str(choice)) for choice in choices)
    return lambda name: f"{name} NOT IN ({words})"


def is_beyond(least: float, most: float) -> Refusal:
    """Refuse numbers that are too small or too large."""
    return lambda name: f"NOT {name} BETWEEN {least} AND {most}"
