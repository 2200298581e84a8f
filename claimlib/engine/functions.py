"""Add functions of Spark to DuckDB, which lacks them or computes them differently."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from claimlib.semantics.names import spell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duckdb import DuckDBPyConnection
    from numpy.typing import NDArray


def add_functions(database: DuckDBPyConnection) -> None:
    """Add the functions to a database."""
    functions: dict[str, tuple[Any, list[Any], str]] = {
        "hash_text": (_hash_texts, ["VARCHAR"], "BIGINT"),
        "hash": (_hash, ["BIGINT", "VARCHAR"], "BIGINT"),
        "hash_number": (_hash_number, ["BIGINT", "BIGINT"], "BIGINT"),
        "hash_fields": (_hash_fields, ["BIGINT", "STRUCT(name BLOB, value BLOB)[]"], "BIGINT"),
        "matches": (_matches, ["VARCHAR", "VARCHAR"], "BOOLEAN"),
        "json": (_json, ["VARCHAR"], "VARCHAR"),
        "spelled": (_spelled, ["BLOB"], "VARCHAR"),
    }
    options: dict[str, Any] = {"type": "arrow", "null_handling": "special"}
    for name, (function, inputs, result) in functions.items():
        database.create_function(f"claimlib_{name}", function, inputs, result, **options)
    for statement in _MACROS:
        database.execute(statement)


_MACROS = (
    "CREATE MACRO pmod(a, b) AS ((a % b) + b) % b",
    # The statements of claimlib convert only from base 16 to base 10, so the bases are ignored.
    "CREATE MACRO conv(digits, from_base, to_base) AS CAST(('0x' || digits)::UBIGINT AS VARCHAR)",
    "CREATE MACRO safe_subtract(a, b) AS TRY(a - b)",
    "CREATE MACRO spark_partition_id() AS 0",
    "CREATE MACRO raise_error(said) AS error(said)",
    "CREATE MACRO claimlib_millis(t) AS (epoch_us(t) - pmod(epoch_us(t), 1000)) // 1000",
    # The result is always true, because DuckDB refuses a file with text that is not UTF-8.
    "CREATE MACRO is_valid_utf8(text) AS true",
)


SEED = 42
"""The seed of Spark's xxhash64."""


def _hash_texts(texts: pa.ChunkedArray) -> pa.Array:
    """Return Spark's xxhash64 of texts.

    Each distinct text is hashed once, because names repeat.
    """
    names, of_name = _distinct(texts)
    return pa.array(_hashes(names, [SEED] * len(names))[of_name])


def _hash(seeds: pa.ChunkedArray, texts: pa.ChunkedArray) -> pa.Array:
    """Return Spark's xxhash64 of texts, each with its seed.

    The hash of null is the seed.  Each pair of a seed and a name is hashed once, because names
    repeat.
    """
    names, of_name = _distinct(texts)
    distinct_seeds, of_seed = _distinct(seeds)
    # A pair is one number: the index of its seed times the number of names, plus that of its name.
    pairs, of_pair = _distinct(pa.array(of_seed.astype(np.int64) * len(names) + of_name))
    numbers = _hashes(
        [names[pair % len(names)] for pair in pairs],
        [distinct_seeds[pair // len(names)] % 2**64 for pair in pairs],
    )
    return pa.array(numbers[of_pair])


def _distinct(values: pa.Array | pa.ChunkedArray) -> tuple[list[Any], NDArray[np.int32]]:
    """Return the distinct values, and for each row the index of its value."""
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    encoded = whole.dictionary_encode(null_encoding="encode")
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()


def _hashes(texts: Sequence[str | None], seeds: Sequence[int]) -> NDArray[np.int64]:
    return np.array(list(map(_hash_of, texts, seeds)), np.int64)


@lru_cache(maxsize=2**16)
def _hash_of(text: str | None, seed: int) -> int:
    """Return the hash of one text as a BIGINT.

    DuckDB calls the functions with some 2,000 rows at a time, and the same names come again.
    """
    import xxhash

    unsigned = seed if text is None else xxhash.xxh64_intdigest(text.encode(), seed)
    return unsigned - 2**64 if unsigned >= 2**63 else unsigned


def _hash_number(seeds: pa.ChunkedArray, numbers: pa.ChunkedArray) -> pa.Array:
    """Return Spark's xxhash64 of numbers, each with its seed.

    The hash of null is the seed.  The hash of a number is XXH64 of eight bytes.  `tests/engine`
    compares it with the package xxhash.
    """
    seed = seeds.to_numpy().view(np.uint64)
    number = numbers.fill_null(0).to_numpy().view(np.uint64)
    mixed = _rotated(number * _PRIMES[1], 31) * _PRIMES[0]
    state = _rotated((seed + _PRIMES[4] + np.uint64(8)) ^ mixed, 27) * _PRIMES[0] + _PRIMES[3]
    state = (state ^ (state >> np.uint64(33))) * _PRIMES[1]
    state = (state ^ (state >> np.uint64(29))) * _PRIMES[2]
    state ^= state >> np.uint64(32)
    if numbers.null_count:
        state = np.where(numbers.is_null().to_numpy(), seed, state)
    return pa.array(state.view(np.int64))


_PRIMES = np.array(
    [
        *(11400714785074694791, 14029467366897019727, 1609587929392839161),
        *(9650029242287828579, 2870177450012600261),
    ],
    np.uint64,
)


def _rotated(numbers: np.ndarray, bits: int) -> np.ndarray:
    return (numbers << np.uint64(bits)) | (numbers >> np.uint64(64 - bits))


def _hash_fields(seeds: pa.ChunkedArray, entries: pa.ChunkedArray) -> pa.Array:
    """Return Spark's xxhash64 of the fields of entries, each with its seed.

    It hashes the names and values one after the other.  Null leaves the seed as it is.
    """
    import xxhash

    def hashed(seed: int, fields: list[dict[str, bytes | None]] | None) -> int:
        for field in fields or ():
            for part in field.values():
                seed = seed if part is None else xxhash.xxh64_intdigest(part, seed)
        return seed

    unsigned = seeds.to_numpy().view(np.uint64).tolist()
    numbers = np.fromiter(map(hashed, unsigned, entries.to_pylist()), np.uint64, len(unsigned))
    return pa.array(numbers.view(np.int64))


# A fraction or exponent right after a key.  It matches nothing inside a text, because quotes within
# a text are escaped, so that a backslash stands where the pattern needs the end of a key.
_FRACTION = re.compile(r'(?<=\w":)-?[0-9]+(?:\.[0-9]+(?:e[-+]?[0-9]+)?|e[-+]?[0-9]+)')


def _json(texts: pa.ChunkedArray) -> pa.Array:
    """Return JSON with its fractions as Java writes them.

    Small and large fractions have an exponent.
    """

    def written(match: re.Match[str]) -> str:
        if not float(match[0]) or 1e-3 <= abs(float(match[0])) < 1e7:
            return match[0]
        digits, exponent = f"{Decimal(match[0]).normalize():E}".split("E")
        return f"{digits if '.' in digits else f'{digits}.0'}E{int(exponent):d}"

    changed = (text and _FRACTION.sub(written, text) for text in texts.to_pylist())
    return pa.array(changed, pa.string())


def _matches(texts: pa.ChunkedArray, patterns: pa.ChunkedArray) -> pa.Array:
    """Return for each spelled name whether it matches the pattern of a glob.

    The pattern is about bytes, so each byte of the UTF-8 text becomes one character.
    """

    @lru_cache(maxsize=65_536)
    def matches(text: str | None, pattern: str | None) -> bool | None:
        if text is None or pattern is None:
            return None
        return re.search(pattern, text.encode().decode("iso-8859-1")) is not None

    pairs = zip(texts.to_pylist(), patterns.to_pylist(), strict=True)
    return pa.array([matches(text, pattern) for text, pattern in pairs], pa.bool_())


def _spelled(names: pa.ChunkedArray) -> pa.Array:
    """Return the spellings of names, which are given as bytes.

    Each distinct name is spelled once, because names repeat.
    """
    distinct, of_name = _distinct(names)
    spelled = pa.array([None if name is None else spell(name) for name in distinct], pa.string())
    return spelled.take(pa.array(of_name))
