from functools import partial
from operator import attrgetter

import numpy as np
import pytest

from claimlib.semantics import rules
from claimlib.semantics.model import IdleRule
from tests.unit.rule_cases import (
    ANSWERS,
    COUNT_CASES,
    FREE_CASES,
    RULE_CASES,
    CountCase,
    RuleCase,
    answers,
)

rule_case = pytest.mark.parametrize("case", RULE_CASES, ids=attrgetter("name"))
count_case = pytest.mark.parametrize("case", COUNT_CASES, ids=attrgetter("name"))


def column(name):
    return np.array([getattr(case, name) for case in RULE_CASES])


TIMES = ("now_ms", "delivery_time_ms", "min_idle_ms", "delivery_count", "park_above")
FLAGS = ("present", "equal_counts", "is_spared", "is_parking")


def test_the_table_has_both_answers_of_every_rule():
    for answer in ANSWERS:
        assert {getattr(case, answer) for case in RULE_CASES} == {True, False}


def test_the_names_in_the_table_are_unique():
    assert len({case.name for case in RULE_CASES}) == len(RULE_CASES)


@rule_case
def test_plain_values_give_what_the_table_says(case: RuleCase):
    answered = answers(partial(getattr, case))
    assert answered == attrgetter(*ANSWERS)(case)
    assert {type(answer) for answer in answered} == {bool}


@count_case
def test_a_plain_count_is_raised(case: CountCase):
    assert rules.raised_count(case.delivery_count, case.raise_by, case.exhausted) == case.raised


def test_arrays_give_what_the_table_says():
    assert {column(name).dtype for name in TIMES} == {np.dtype(np.int64)}
    assert {column(name).dtype for name in FLAGS} == {np.dtype(bool)}
    for name, array in zip(ANSWERS, answers(column), strict=True):
        assert array.dtype == bool
        assert array.tolist() == column(name).tolist(), name


def test_arrays_of_times_go_with_one_plain_request():
    delivery_time_ms = np.array([899, 900, 901], dtype=np.int64)
    server, documented = True, False
    assert rules.is_idle_enough(1000, delivery_time_ms, 100, server).tolist() == [True, True, False]
    enough = rules.is_idle_enough(1000, delivery_time_ms, 100, documented)
    assert enough.tolist() == [True, False, False]


def test_arrays_of_counts_are_raised_without_leaving_64_bits():
    counts = np.array([case.delivery_count for case in COUNT_CASES], dtype=np.int64)
    raise_by = np.array([case.raise_by for case in COUNT_CASES], dtype=np.int64)
    exhausted = np.array([case.exhausted for case in COUNT_CASES])
    raised = rules.raised_count(counts, raise_by, exhausted)
    assert raised.dtype == np.int64
    assert raised.tolist() == [case.raised for case in COUNT_CASES]


def test_equality_counts_on_servers_only():
    assert rules.EQUAL_COUNTS == {IdleRule.DOCUMENTED: False, IdleRule.SERVER: True}


def test_an_id_is_free_in_plain_values_and_in_arrays_alike():
    assert [rules.goes_to_caller(*case[:4]) for case in FREE_CASES] == [
        case[4] for case in FREE_CASES
    ]
    *arguments, free = map(np.array, zip(*FREE_CASES, strict=True))
    assert rules.goes_to_caller(*arguments).tolist() == free.tolist()
