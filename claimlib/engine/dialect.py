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
    """Translate a statement from Spark's SQL to DuckDB's.

    A translation is slow.  Statements that differ only in their BIGINT literals, such as those of
    two runs, share one translation.
    """
    if _MARK in text:  # a number of the text could be taken for a placeholder
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
    return _LITERAL.sub(lambda literal: literal[0] if literal["number"] is None else "1L", text)


_MARK = "7171717171"
"""The first digits of a placeholder: a number that replaces a BIGINT literal in a translation."""
_MARKED = re.compile(rf"{_MARK}(\d{{7}})")
_LITERAL = re.compile(r"'(?:[^'\\]|\\.)*'|`[^`]*`|(?<![\w.])(?P<number>\d+)L\b", re.DOTALL)
"""A text, a quoted name, or a BIGINT literal.  Only a BIGINT literal has the group `number`."""


@lru_cache(maxsize=4096)
def _translated(text: str) -> str:
    tree = sqlglot.parse_one(text, dialect=Spark)
    _strictly_cast(tree)
    tree = tree.transform(_matched_as_bytes, copy=False).transform(_spelled, copy=False)
    _hashed(tree)
    _as_bigint(tree)
    _as_cases(tree)
    for node in reversed(list(tree.find_all(*_EQUIVALENTS))):
        if type(node) in _EQUIVALENTS:  # `find_all` also finds subclasses, such as TryCast of Cast
            node.replace(_EQUIVALENTS[type(node)](node))
    # Hints are for Spark.  DuckDB itself decides how it joins.
    for hint in tree.find_all(exp.Hint):
        hint.pop()
    return tree.sql(dialect=DuckDB, copy=False)


@lru_cache(maxsize=4096)
def to_spark_type(type_: str) -> str:
    """Return the name that Spark writes for a type of DuckDB."""
    tree = exp.DataType.build(type_.replace('"NULL"', "NULL"), dialect=DuckDB)
    text = tree.sql(dialect=Spark).lower().replace("null", "void")
    return text.replace("`", "").replace(", ", ",").replace(": ", ":")


def _strictly_cast(tree: exp.Expr) -> None:
    """Make each CAST one that raises an error if it fails, as spark.sql.ansi.enabled does."""
    for node in list(tree.find_all(exp.TryCast)):
        if not node.args.get("safe"):  # TRY_CAST
            node.replace(exp.Cast(this=node.this, to=node.args["to"]))


def _as_cases(tree: exp.Expr) -> None:
    """Replace COALESCE of a column and function calls by a CASE.

    If two expressions have a common part, DuckDB computes it once, for all rows.  Within COALESCE
    it does so even for rows that do not need the part, but not within CASE.  So with CASE, a name
    is not hashed if the row already has its key.
    """
    for node in reversed(list(tree.find_all(exp.Coalesce))):
        rest = node.expressions
        if not isinstance(node.this, exp.Column) or not any(
            operand.find(exp.Anonymous) for operand in rest
        ):
            continue
        other = rest[0] if len(rest) == 1 else exp.Coalesce(this=rest[0], expressions=rest[1:])
        is_null = exp.Is(this=node.this.copy(), expression=exp.Null())
        node.replace(exp.Case(ifs=[exp.If(this=is_null, true=other)], default=node.this))


def _called(name: str, *arguments: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _counted_if(node: exp.Expr) -> exp.Expr:
    """Return count_if as COUNT of a CASE.

    If all conditions are null, Spark's count_if is 0, but DuckDB's is null.
    """
    met = exp.If(this=node.this, true=exp.Literal.number(1))
    return exp.Count(this=exp.Case(ifs=[met]))


def _json(node: exp.Expr) -> exp.Expr:
    """Return a value in JSON, with fractions as Java writes them.

    Nulls are left out, as in Spark, unless the call has options (`ignoreNullFields` is the only
    one in use).
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


_EQUIVALENTS: dict[type[exp.Expr], Callable[[Any], exp.Expr]] = {
    # Spark's max_by returns a null like any other value.  DuckDB's arg_max skips it.
    exp.ArgMax: lambda node: _called("ARG_MAX_NULL", node.this, node.expression),
    exp.ArgMin: lambda node: _called("ARG_MIN_NULL", node.this, node.expression),
    exp.Cast: _cast,
    exp.CountIf: _counted_if,
    exp.Format: lambda node: _called("PRINTF", node.this, *node.expressions),
    exp.JSONFormat: _json,
    # CLAIMLIB_MILLIS rounds down, even before 1970.  DuckDB's epoch_ms rounds towards 1970.
    exp.UnixMillis: lambda node: _called("CLAIMLIB_MILLIS", node.this),
}
"""By class of an expression, the function that builds DuckDB's expression of the same meaning.

This is not a subclass of sqlglot's dialect, because sqlglot's classes are compiled and cannot have
subclasses.
"""


def _matched_as_bytes(node: exp.Expression) -> exp.Expression:
    """Replace the match of a name with a glob's pattern by a call of a Python function.

    In Spark, the match is RLIKE on the decoded bytes of the name.  Python matches the bytes,
    because DuckDB has no ISO 8859-1.
    """
    if not isinstance(node, exp.RegexpLike) or not isinstance(node.this, exp.Decode):
        return node
    encoded = node.this.this
    if not isinstance(encoded, exp.Encode):
        return node
    matches = exp.func("claimlib_matches", encoded.this.copy(), node.expression.copy())
    return cast("exp.Expression", matches)


def _spelled(node: exp.Expression) -> exp.Expression:
    """Replace the SQL that spells a name's bytes by a call of `names.spell`.

    This SQL is a CASE.  Its ELSE joins the results of regexp_extract_all on the decoded bytes.
    """
    joined = node.args.get("default") if isinstance(node, exp.Case) else None
    parts = joined.find(exp.RegexpExtractAll) if isinstance(joined, exp.ArrayToString) else None
    if parts is None or not isinstance(parts.this, exp.Decode):
        return node
    return cast("exp.Expression", exp.func("claimlib_spelled", parts.this.this.copy()))


def _hashed(tree: exp.Expression) -> None:
    """Replace each xxhash64 by nested calls of Python functions, one call per argument.

    The type of the argument determines the function.  An argument that is cast to BIGINT is a
    number.  The column `fields` is a payload.  Any other argument is a text.
    """
    # A hash within another hash comes later in the list.
    for node in reversed(list(tree.find_all(exp.Anonymous))):
        if node.name.lower() == "xxhash64":
            hashed: exp.Expression = exp.cast(exp.Literal.number(SEED), "BIGINT")
            for number, argument in enumerate(node.expressions):
                name = _hash_of(argument)
                # If the first argument is a text, its function needs no seed.
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
    """Cast sums to BIGINT, their type in Spark, because they are HUGEINT in DuckDB.

    Sums of decimals are decimals in both.
    """
    for node in list(tree.find_all(exp.Sum)):
        if isinstance(node.this, exp.Cast) and node.this.is_type("decimal"):
            continue
        whole: exp.Expr = node
        while isinstance(whole.parent, (exp.Window, exp.Filter)) and whole.arg_key == "this":
            whole = whole.parent
        whole.replace(exp.cast(whole.copy(), "BIGINT"))
