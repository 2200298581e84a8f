"""Turn the rules of `semantics` into SQL, with terms that behave like plain values and arrays.

A rule becomes a text that both engines read.  Terms are no Columns of Spark, because a
Column takes several calls from Python to the JVM for each operator and name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Term:  # noqa: PLW1641 - no hash, because == returns a term and not a bool
    """Hold SQL for a number or a condition: a column, or an expression of columns and literals."""

    sql: str

    def _with(self, operator: str, other: object) -> Term:
        return Term(f"({self.sql} {operator} {_sql(other)})")

    def __sub__(self, other: object) -> Term:
        return self._with("-", other)

    def __gt__(self, other: object) -> Term:
        return self._with(">", other)

    # As for an array, the result is not a bool.  The type is Any, because `object` promises a bool.
    def __eq__(self, other: object) -> Any:
        return self._with("=", other)

    def __and__(self, other: object) -> Term:
        return self._with("AND", other)

    def __or__(self, other: object) -> Term:
        return self._with("OR", other)


def _sql(value: object) -> str:
    if isinstance(value, Term):
        return value.sql
    return str(value).lower() if isinstance(value, bool) else f"{value:d}"


def terms(*names: str) -> tuple[Term, ...]:
    """Return terms for columns, or for other SQL expressions."""
    return tuple(map(Term, names))
