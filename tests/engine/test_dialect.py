"""A translation is shared by statements that differ only in their BIGINT literals."""

from __future__ import annotations

import pytest

from claimlib.engine.dialect import _MARK, _translated, to_duckdb

LITERALS = "SELECT {0}L AS a, '4L ''5L' AS b, `5L`, x.y9L, 1.5 AS c, -{1}L AS d FROM t LIMIT 3"


@pytest.mark.parametrize("numbers", [(7, 2), (2, 7), (int(f"{_MARK}0000001"), 3)])
def test_a_shared_translation_is_that_of_the_statement_itself(numbers: tuple[int, int]) -> None:
    text = LITERALS.format(*numbers)
    assert to_duckdb(text) == _translated.__wrapped__(text)


def test_another_number_is_translated_without_parsing() -> None:
    to_duckdb(LITERALS.format(1, 1))
    parsed = _translated.cache_info().misses
    assert "1234" in to_duckdb(LITERALS.format(1234, 5))
    assert _translated.cache_info().misses == parsed
