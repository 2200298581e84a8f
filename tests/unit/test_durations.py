"""The budgets of files of tests: what is said of a file depends on its share of the time."""

from __future__ import annotations

from pathlib import Path

from tests.durations import MOST, SPARE_S, on_spark, over_budget, recorded

KNOWN = {"tests/a.py": 100.0, "tests/b.py": 100.0}


def test_a_file_that_takes_much_more_than_its_share_is_named_with_its_budget() -> None:
    (text,) = over_budget({"tests/a.py": 20.0, "tests/b.py": 500.0}, KNOWN | {"tests/b.py": 10.0})
    assert text.startswith("tests/b.py took 500 s, more than its budget of ")


def test_a_machine_that_is_slow_for_all_files_is_over_no_budget() -> None:
    assert list(over_budget({name: 10 * of for name, of in KNOWN.items()}, KNOWN)) == []
    assert list(over_budget({name: of / 10 for name, of in KNOWN.items()}, KNOWN)) == []


def test_a_new_file_has_seconds_to_spare() -> None:
    new = {"tests/new.py": SPARE_S + 1.0}
    (text,) = over_budget(KNOWN | new, KNOWN)
    assert text.startswith("tests/new.py took")
    assert list(over_budget(KNOWN | {"tests/new.py": SPARE_S - 1.0}, KNOWN)) == []
    assert MOST > 1


def test_without_recorded_times_no_file_has_a_budget() -> None:
    assert list(over_budget({"tests/a.py": 500.0}, {})) == []


def test_the_files_whose_times_are_written_down_exist() -> None:
    root = Path(__file__).parents[2]
    assert [name for name in {*recorded(), *on_spark()} if not (root / name).is_file()] == []
