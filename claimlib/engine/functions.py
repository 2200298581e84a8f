"""Functions of Spark that DuckDB lacks, or computes otherwise."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def add_functions(database: DuckDBPyConnection) -> None:
    """Add the functions to a database."""
    options: dict[str, Any] = {"type": "arrow", "null_handling": "special"}
    database.create_function("claimlib_hash", _hash, ["BIGINT", "VARCHAR"], "BIGINT", **options)
    database.create_function(
        "claimlib_hash_fields",
        _hash_fields,
        ["STRUCT(name BLOB, value BLOB)[]"],
        "BIGINT",
        **options,
    )
    database.create_function(
        "claimlib_matches", _matches, ["VARCHAR", "VARCHAR"], "BOOLEAN", **options
    )
    database.create_function("claimlib_json", _json, ["VARCHAR"], "VARCHAR", **options)
    for statement in _MACROS:
        database.execute(statement)


_MACROS = (
    # 42 is the seed of Spark's xxhash64.
    """CREATE MACRO xxhash64(a) AS claimlib_hash(42::BIGINT, a),
    (a, b) AS claimlib_hash(claimlib_hash(42::BIGINT, a), b)""",
    "CREATE MACRO pmod(a, b) AS ((a % b) + b) % b",
    # Only from 16 to 10 is ever asked for: the text of an unsigned number.
    "CREATE MACRO conv(digits, from_base, to_base) AS CAST(('0x' || digits)::UBIGINT AS VARCHAR)",
    "CREATE MACRO safe_subtract(a, b) AS TRY(a - b)",
    "CREATE MACRO spark_partition_id() AS 0",
    "CREATE MACRO raise_error(said) AS error(said)",
    # DuckDB refuses a file with any other text.
    "CREATE MACRO is_valid_utf8(text) AS true",
)


def _hash(seeds: pa.ChunkedArray, texts: pa.ChunkedArray) -> pa.Array:
    """Return Spark's xxhash64 of texts: each has a seed, and null leaves the seed as it is.

    Names repeat, so each pair of a seed and a name is hashed once.
    """
    import xxhash

    encoded = texts.combine_chunks().dictionary_encode(null_encoding="encode")
    distinct_seeds, of_seed = np.unique(seeds.to_numpy(), return_inverse=True)
    pairs = of_seed * len(encoded.dictionary) + encoded.indices.to_numpy()
    distinct, of_pair = np.unique(pairs, return_inverse=True)
    of_text = encoded.dictionary.to_pylist()
    unsigned = distinct_seeds.view(np.uint64).tolist()

    def hashed(pair: int) -> int:
        seed, text = unsigned[pair // len(of_text)], of_text[pair % len(of_text)]
        return seed if text is None else xxhash.xxh64_intdigest(text.encode(), seed)

    numbers = np.fromiter(map(hashed, distinct.tolist()), np.uint64, len(distinct))
    return pa.array(numbers.view(np.int64)[of_pair])


def _hash_fields(entries: pa.ChunkedArray) -> pa.Array:
    """Return Spark's xxhash64 of the fields of entries: of the names and values one after the
    other.  Null leaves the seed as it is."""
    import xxhash

    def hashed(fields: list[dict[str, bytes | None]] | None) -> int:
        seed = 42
        for field in fields or ():
            for part in field.values():
                seed = seed if part is None else xxhash.xxh64_intdigest(part, seed)
        return seed

    numbers = np.array([hashed(fields) for fields in entries.to_pylist()], np.uint64)
    return pa.array(numbers.view(np.int64))


# Quotes within a text are escaped.
_FRACTION = re.compile(r'(?<=\w":)-?[0-9]+(?:\.[0-9]+(?:e[-+]?[0-9]+)?|e[-+]?[0-9]+)')


def _json(texts: pa.ChunkedArray) -> pa.Array:
    """Return JSON with its fractions as Java writes them: the small and the large ones with an
    exponent."""

    def written(match: re.Match[str]) -> str:
        if not float(match[0]) or 1e-3 <= abs(float(match[0])) < 1e7:
            return match[0]
        digits, exponent = f"{Decimal(match[0]).normalize():E}".split("E")
        return f"{digits if '.' in digits else f'{digits}.0'}E{int(exponent):d}"

    changed = (text and _FRACTION.sub(written, text) for text in texts.to_pylist())
    return pa.array(changed, pa.string())


def _matches(texts: pa.ChunkedArray, patterns: pa.ChunkedArray) -> pa.Array:
    """Return whether the bytes of spelled names match the patterns of globs."""

    @lru_cache(maxsize=65_536)
    def matches(text: str | None, pattern: str | None) -> bool | None:
        if text is None or pattern is None:
            return None
        return re.search(pattern, text.encode().decode("iso-8859-1")) is not None

    pairs = zip(texts.to_pylist(), patterns.to_pylist(), strict=True)
    return pa.array([matches(text, pattern) for text, pattern in pairs], pa.bool_())
