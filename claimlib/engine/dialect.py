"""Translate Spark's SQL into DuckDB's.

Statements are written in Spark's dialect.  sqlglot translates them.  This module corrects
translations that would return other rows.  `tests/engine` compares both engines on the expressions
of the statements.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.spark import Spark

from claimlib.engine.functions import SEED


def to_duckdb(text: str) -> str:
    """Return a statement of Spark's SQL in DuckDB's.

    A translation takes some milliseconds.  Statements that differ only in their BIGINT literals,
    such as those of two runs, share one translation.
    """
    if _MARK in text:
        return _translated(text)
    numbers: list[str] = []

    def marked(literal: re.Match[str]) -> str:
        if literal["number"] is None:
            return literal[0]
        numbers.append(literal["number"])
        return f"{_MARK}{len(numbers):07d}L"

    translated = _translated(_LITERAL.sub(marked, text))
    return _MARKED.sub(lambda mark: numbers[int(mark[1]) - 1], translated)


def with_equal_numbers(text: str) -> str:
    """Return a statement whose BIGINT literals are all 1.  Its columns have the same types."""
    return _LITERAL.sub(lambda of: of[0] if of["number"] is None else "1L", text)


_MARK = "7171717171"
"""The first digits of a number that stands for another one."""
_MARKED = re.compile(rf"{_MARK}(\d{{7}})")
_LITERAL = re.compile(r"'(?:[^'\\]|\\.)*'|`[^`]*`|(?<![\w.])(?P<number>\d+)L\b", re.DOTALL)
"""A text, a quoted name, or a BIGINT literal."""


@lru_cache(maxsize=4096)
def _translated(text: str) -> str:
    tree = sqlglot.parse_one(text, dialect=Spark)
    _strictly_cast(tree)
    tree = tree.transform(_matched_as_bytes, copy=False).transform(_spelled, copy=False)
    _hashed(tree)
    _as_bigint(tree)
    _as_cases(tree)
    for node in reversed(list(tree.find_all(*_MEANINGS))):
        if type(node) in _MEANINGS:  # TRY_CAST is a cast, too
            node.replace(_MEANINGS[type(node)](node))
    # Hints are for Spark.  DuckDB itself decides how it joins.
    for hint in tree.find_all(exp.Hint):
        hint.pop()
    return tree.sql(dialect=DuckDB, copy=False)


@lru_cache(maxsize=4096)
def to_spark_type(type_: str) -> str:
    """Return the name of one of DuckDB's types as Spark writes it."""
    tree = exp.DataType.build(type_.replace('"NULL"', "NULL"), dialect=DuckDB)
    text = tree.sql(dialect=Spark).lower().replace("null", "void")
    return text.replace("`", "").replace(", ", ",").replace(": ", ":")


def _strictly_cast(tree: exp.Expr) -> None:
    """Make each CAST one that raises an error if it fails, as spark.sql.ansi.enabled does."""
    for node in list(tree.find_all(exp.TryCast)):
        if not node.args.get("safe"):  # TRY_CAST
            node.replace(exp.Cast(this=node.this, to=node.args["to"]))


def _as_cases(tree: exp.Expr) -> None:
    """Replace COALESCE of a column and a function of it by a CASE.

    DuckDB computes a common part of two expressions once, for all rows.  It does so within COALESCE
    even for rows that do not need it, but not within CASE.  So a name that has a key is not hashed.
    """
    for node in reversed(list(tree.find_all(exp.Coalesce))):
        rest = node.expressions
        if not isinstance(node.this, exp.Column) or not any(of.find(exp.Anonymous) for of in rest):
            continue
        other = rest[0] if len(rest) == 1 else exp.Coalesce(this=rest[0], expressions=rest[1:])
        is_null = exp.Is(this=node.this.copy(), expression=exp.Null())
        node.replace(exp.Case(ifs=[exp.If(this=is_null, true=other)], default=node.this))


def _called(name: str, *arguments: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _counted_if(node: exp.Expr) -> exp.Expr:
    """Return count_if, which is null in DuckDB, and 0 in Spark, if all conditions are null."""
    met = exp.If(this=node.this, true=exp.Literal.number(1))
    return exp.Count(this=exp.Case(ifs=[met]))


def _json(node: exp.Expr) -> exp.Expr:
    """Return a value in JSON, with fractions as Java writes them.

    Nulls are left out, as in Spark, unless the statement has options.
    """
    value = _called("TO_JSON", node.this)
    if not node.args.get("options"):
        value = _called("JSON_MERGE_PATCH", exp.Literal.string("{}"), value)
    return _called("CLAIMLIB_JSON", exp.cast(value, "TEXT"))


def _cast(node: exp.Expr) -> exp.Expr:
    """Return a cast.

    A text becomes bytes by ENCODE, because DuckDB's cast would interpret escapes in the text.
    """
    return _called("ENCODE", node.this) if node.is_type("binary") else node


_MEANINGS: dict[type[exp.Expr], Callable[[Any], exp.Expr]] = {
    # Spark's max_by returns a null like any other value.  DuckDB's arg_max skips it.
    exp.ArgMax: lambda node: _called("ARG_MAX_NULL", node.this, node.expression),
    exp.ArgMin: lambda node: _called("ARG_MIN_NULL", node.this, node.expression),
    exp.Cast: _cast,
    exp.CountIf: _counted_if,
    exp.Format: lambda node: _called("PRINTF", node.this, *node.expressions),
    exp.JSONFormat: _json,
    # Rounds down, also before 1970.  DuckDB's epoch_ms rounds towards 1970.
    exp.UnixMillis: lambda node: _called("CLAIMLIB_MILLIS", node.this),
}
"""By class, the expression that has in DuckDB the meaning of one of Spark's.

No class inherits from one of sqlglot, because its compiled classes do not allow that.
"""


def _matched_as_bytes(node: exp.Expression) -> exp.Expression:
    """Replace the match of a name with a glob's pattern by a call of a Python function.

    Python matches the bytes, because DuckDB has no ISO 8859-1.
    """
    if not isinstance(node, exp.RegexpLike) or not isinstance(node.this, exp.Decode):
        return node
    encoded = node.this.this
    if not isinstance(encoded, exp.Encode):
        return node
    matches = exp.func("claimlib_matches", encoded.this.copy(), node.expression.copy())
    return cast("exp.Expression", matches)


def _spelled(node: exp.Expression) -> exp.Expression:
    """Replace the SQL that spells a name's bytes by a call of `names.spell`."""
    joined = node.args.get("default") if isinstance(node, exp.Case) else None
    runs = joined.find(exp.RegexpExtractAll) if isinstance(joined, exp.ArrayToString) else None
    if runs is None or not isinstance(runs.this, exp.Decode):
        return node
    return cast("exp.Expression", exp.func("claimlib_spelled", runs.this.this.copy()))


def _hashed(tree: exp.Expression) -> None:
    """Replace each hash by calls of the function for the type of each argument.

    An argument that is cast to BIGINT is a number.  The column `fields` is a payload.  Any other
    argument is a text.
    """
    # A hash within another hash comes later in the list.
    for node in reversed(list(tree.find_all(exp.Anonymous))):
        if node.name.lower() == "xxhash64":
            hashed: exp.Expression = exp.cast(exp.Literal.number(SEED), "BIGINT")
            for number, argument in enumerate(node.expressions):
                name = _hash_of(argument)
                # If the only argument is a text, each distinct text is hashed once.
                inputs = [hashed] if number or name != _HASH else []
                function = name if inputs else f"{_HASH}_text"
                hashed = cast("exp.Expression", exp.func(function, *inputs, argument.copy()))
            node.replace(hashed)


_HASH = "claimlib_hash"


def _hash_of(argument: exp.Expression) -> str:
    if isinstance(argument, exp.Cast) and argument.is_type("bigint"):
        return f"{_HASH}_number"
    is_fields = isinstance(argument, exp.Column) and argument.name == "fields"
    return f"{_HASH}_fields" if is_fields else _HASH


def _as_bigint(tree: exp.Expression) -> None:
    """Cast sums to BIGINT, which they are in Spark, while they are HUGEINT in DuckDB.

    Sums of decimals are decimals in both.
    """
    for node in list(tree.find_all(exp.Sum)):
        if isinstance(node.this, exp.Cast) and node.this.is_type("decimal"):
            continue
        whole: exp.Expr = node
        while isinstance(whole.parent, (exp.Window, exp.Filter)) and whole.arg_key == "this":
            whole = whole.parent
        whole.replace(exp.cast(whole.copy(), "BIGINT"))
