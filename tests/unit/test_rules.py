from operator import attrgetter

import numpy as np
import pytest

from claimlib import rules
from claimlib.model import IdleRule
from tests.unit.rule_cases import COUNT_CASES, RULE_CASES, CountCase, RuleCase

rule_case = pytest.mark.parametrize("case", RULE_CASES, ids=attrgetter("name"))
count_case = pytest.mark.parametrize("case", COUNT_CASES, ids=attrgetter("name"))


def column(name):
    return np.array([getattr(case, name) for case in RULE_CASES])


def arrays():
    return {
        name: column(name)
        for name in ("present", "now_ms", "delivery_time_ms", "min_idle_ms", "equal_counts")
    }


def idle_enough_of(case: RuleCase):
    return rules.is_idle_enough(
        case.now_ms, case.delivery_time_ms, case.min_idle_ms, case.equal_counts
    )


def test_the_table_has_both_answers_of_every_rule():
    for answer in ("at_boundary", "idle_enough", "deleted", "claimed", "touched"):
        assert {getattr(case, answer) for case in RULE_CASES} == {True, False}


def test_the_names_in_the_table_are_unique():
    assert len({case.name for case in RULE_CASES}) == len(RULE_CASES)


@rule_case
def test_plain_values_are_idle_enough(case):
    assert idle_enough_of(case) is case.idle_enough


@rule_case
def test_plain_values_stand_at_the_boundary(case):
    found = rules.at_boundary(case.now_ms, case.delivery_time_ms, case.min_idle_ms)
    assert found is case.at_boundary


@rule_case
def test_plain_values_are_deleted_claimed_or_left(case):
    idle_enough = idle_enough_of(case)
    assert rules.is_deleted(case.present) is case.deleted
    assert rules.is_claimed(case.present, idle_enough) is case.claimed
    assert rules.is_touched(case.present, idle_enough) is case.touched


@count_case
def test_a_plain_count_is_raised(case: CountCase):
    assert rules.raised_count(case.delivery_count, case.raise_by) == case.raised


def test_arrays_give_what_the_table_says():
    given = arrays()
    present = given.pop("present")
    idle_enough = rules.is_idle_enough(**given)
    equal_counts = given.pop("equal_counts")
    found = {
        "at_boundary": rules.at_boundary(**given),
        "idle_enough": idle_enough,
        "deleted": rules.is_deleted(present),
        "claimed": rules.is_claimed(present, idle_enough),
        "touched": rules.is_touched(present, idle_enough),
    }
    assert equal_counts.dtype == present.dtype == bool
    assert {array.dtype for array in given.values()} == {np.dtype(np.int64)}
    assert {array.dtype for array in found.values()} == {np.dtype(bool)}
    for name, array in found.items():
        assert array.tolist() == column(name).tolist(), name


def test_arrays_of_times_go_with_one_plain_request():
    delivery_time_ms = np.array([899, 900, 901], dtype=np.int64)
    server, documented = True, False
    assert rules.is_idle_enough(1000, delivery_time_ms, 100, server).tolist() == [True, True, False]
    found = rules.is_idle_enough(1000, delivery_time_ms, 100, documented)
    assert found.tolist() == [True, False, False]


def test_arrays_of_counts_are_raised_without_leaving_64_bits():
    counts = np.array([case.delivery_count for case in COUNT_CASES], dtype=np.int64)
    raise_by = np.array([case.raise_by for case in COUNT_CASES], dtype=np.int64)
    raised = rules.raised_count(counts, raise_by)
    assert raised.dtype == np.int64
    assert raised.tolist() == [case.raised for case in COUNT_CASES]


def test_equality_counts_on_servers_only():
    assert rules.EQUAL_COUNTS == {IdleRule.DOCUMENTED: False, IdleRule.SERVER: True}
