"""Turn the rules of `semantics` into SQL, with terms that behave like plain values and arrays.

A rule becomes a text that Spark and delta-rs read alike.  A text takes three calls from Python to
the JVM.  A Column would take three to five calls for each operator and each name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Term:  # noqa: PLW1641 - no hash, because it is no key: == makes another term
    """Hold a number or a condition as SQL: a column, a literal, or an expression of them."""

    sql: str

    def _with(self, operator: str, other: object) -> Term:
        return Term(f"({self.sql} {operator} {_sql(other)})")

    def __sub__(self, other: object) -> Term:
        return self._with("-", other)

    def __gt__(self, other: object) -> Term:
        return self._with(">", other)

    # As for an array, the result is not a bool, which `object` promises.
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
    """Return columns, by name, or conditions on them as terms."""
    return tuple(map(Term, names))
