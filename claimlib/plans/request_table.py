"""What a request table must look like, whatever the command: a column's type is not guessed, a
value that cannot be used refuses all of it, and no row is passed over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    NullType,
    StringType,
)

from claimlib.errors import RequestError

_TEXT = (NullType, StringType)
_FITTING: Mapping[str, tuple[type[DataType], ...]] = {
    "STRING": _TEXT,
    "BIGINT": (*_TEXT, IntegralType),
    "BOOLEAN": (*_TEXT, BooleanType),
    "DOUBLE": (*_TEXT, IntegralType, DecimalType, DoubleType, FloatType),
}
Refusal = Callable[[str], Column]
"""Of a column's name: a condition on a row under which its value cannot be used."""


@dataclass(frozen=True, slots=True)
class RequestTable:
    """One command's request table.

    Attributes:
        columns: by name, the SQL type; in their order.
        key: what one row is for.
        row_sql: a SQL expression that names a row to people.
        repeated_hint: what they are to do where two rows have one key.
        optional: columns that the table may leave out, as if they were null.
        nullable: columns in which null is a value.
        refusals: what a value must not be, besides null and of another type.
        hint: what values can be used.
    """

    columns: Mapping[str, str]
    key: tuple[str, ...]
    row_sql: str
    repeated_hint: str
    optional: tuple[str, ...]
    nullable: tuple[str, ...]
    hint: str
    refusals: Mapping[str, Refusal] = field(default_factory=dict)

    def checked(self, request: DataFrame) -> DataFrame:
        """A request table with all columns in their types, once it is seen that every value of it
        can be used.  Runs the frame once.

        Raises:
            RequestError: a column is missing, or has a type that does not fit; a value is null, or
                is not one of its column; or two rows have one key.
        """
        completed = self._completed(request)
        self._check_types(completed)
        row = (F.expr(self.row_sql).alias("row"), "stream", "consumer_group")
        # As numbers, for 7 and 007 are one request.
        key = [self._typed(name).alias(name) for name in self.key]
        rows = completed.select(*key, F.struct(*row).alias("row"), self.unusable().alias("bad"))
        worst = rows.groupBy(*self.key).agg(
            F.count("*").alias("n"), F.min("row").alias("row"), F.max("bad").alias("bad")
        )
        first = worst.where((F.col("n") > 1) | (F.size("bad") > 0)).select("n", "bad", "row.*")
        fault = first.first()
        if fault is not None:
            raise RequestError(
                f"the request table has {self._fault(fault)}",
                stream=fault["stream"],
                consumer_group=fault["consumer_group"],
                columns=fault["bad"],
            )
        return completed.select(*(self._typed(name).alias(name) for name in self.columns))

    def unusable(self) -> Column:
        """The names of the columns of a row whose values cannot be used."""
        return F.array_compact(F.array(*map(self._unusable, self.columns)))

    def fingerprint(self, request: DataFrame) -> dict[str, object]:
        """What tells one checked table from another, whatever the order of its rows: their number
        and the sum of their hashes.  Runs the frame once."""
        # Not the columns' own hash: it skips nulls, so it does not tell one column from the next.
        said = F.to_json(F.struct(*self.columns))
        hashes = F.sum(F.xxhash64(said).cast("DECIMAL(38)"))
        total = request.agg(F.count("*").alias("n"), hashes.alias("h")).first()
        number, hashed = (total["n"], total["h"]) if total is not None else (0, 0)
        return {"rows": number, "hash": str(hashed or 0)}

    def _completed(self, request: DataFrame) -> DataFrame:
        names = ", ".join(self.columns)
        missing = [n for n in self.columns if n not in request.columns and n not in self.optional]
        if missing:
            raise RequestError(
                f"the request table has no {_columns(missing)}; its columns can be {names}",
                columns=missing,
            )
        unknown = [name for name in request.columns if name not in self.columns]
        if unknown:
            raise RequestError(
                f"the request table has unknown {_columns(unknown)}; its columns can be {names}",
                columns=unknown,
            )
        columns = (
            # Of a column with a collation, `SERVER` would be one of the rules.
            F.col(field.name).cast("STRING").alias(field.name)
            if isinstance(field.dataType, StringType)
            else F.col(field.name)
            for field in request.schema.fields
        )
        left_out = (n for n in self.optional if n not in request.columns)
        return request.select(*columns, *(F.lit(None).alias(name) for name in left_out))

    def _check_types(self, rows: DataFrame) -> None:
        """Refuse a column of a type whose values a cast would change: 1.9 is not 1 ms, and neither
        is true."""
        for name, wanted in self.columns.items():
            actual = rows.schema[name].dataType
            if not _fits(actual, wanted):
                raise RequestError(
                    f"column {name} of the request table is {actual.simpleString()}: it must be"
                    f" {wanted}",
                    columns=[name],
                )

    def _fault(self, fault: Row) -> str:
        """What is wrong with the rows of one key."""
        if not fault["bad"]:
            return f"{fault['n']} rows for {fault['row']}: {self.repeated_hint}"
        null = f"only {', '.join(self.nullable)}" if self.nullable else "no value"
        bad = ", ".join(fault["bad"])
        return f"invalid {bad} in the row for {fault['row']}: {null} may be null, {self.hint}"

    def _typed(self, name: str) -> Column:
        return F.col(name).try_cast(self.columns[name])

    def _unusable(self, name: str) -> Column:
        """The column's name where its value cannot be used, else null."""
        unusable = self._typed(name).isNull()
        if name in self.nullable:
            unusable &= F.col(name).isNotNull()
        if name in self.refusals:
            unusable |= self.refusals[name](name)
        return F.when(unusable, F.lit(name))


def _fits(actual: DataType, wanted: str) -> bool:
    if wanted.startswith("ARRAY"):
        return isinstance(actual, ArrayType) and isinstance(actual.elementType, _TEXT)
    whole = isinstance(actual, DecimalType) and actual.scale == 0
    return isinstance(actual, _FITTING[wanted]) or (wanted == "BIGINT" and whole)


def _columns(names: Sequence[str]) -> str:
    return f"{'column' if len(names) == 1 else 'columns'} {', '.join(names)}"


def ddl(columns: Mapping[str, str]) -> str:
    """Columns by name, with their SQL types, as the schema of a frame."""
    return ", ".join(f"{name} {type_}" for name, type_ in columns.items())


def is_none_of(choices: type[StrEnum]) -> Refusal:
    """Refuses what is not one of some words."""
    return lambda name: ~F.col(name).isin([str(choice) for choice in choices])


def is_beyond(least: float, most: float, type_: str = "BIGINT") -> Refusal:
    """Refuses numbers that are too small or too large."""
    return lambda name: ~F.col(name).try_cast(type_).between(least, most)
