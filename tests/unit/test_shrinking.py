"""From a difference in a batch to the smallest group that differs, without Spark."""

from dataclasses import asdict, fields, replace

import pytest

from claimlib.semantics.ids import MIN_ID, StreamId
from claimlib.semantics.model import AutoclaimRequest, Guards, IdleRule, Profile
from tests import batches, claim_batches
from tests.shrinking import MOST_AT_ONCE, MOST_ROUNDS, Difference, assert_same, smallest


def test_the_random_requests_have_every_guard_and_a_request_can_be_had_without_each():
    limits = (asdict(guards).items() for guards in batches.GUARDS)
    drawn = {name for items in limits for name, value in items if value is not None}
    dropped = {name for plain in batches._PLAIN_GUARDS for name in plain}
    assert drawn == dropped == {field.name for field in fields(Guards)}


class Comparison:
    """In the place of Spark: says which cases differ, and counts what it was asked."""

    def __init__(self, is_wrong):
        self.is_wrong = is_wrong
        self.rounds = []

    def __call__(self, cases):
        self.rounds.append(len(cases))
        return [Difference(case, "right", "wrong") for case in cases if self.is_wrong(case)]


def first_of(comparison, cases):
    return max(comparison(cases), key=lambda difference: len(difference.case.group.pending))


def shrunk(comparison, module, first):
    comparison.rounds.clear()
    example = smallest(first, module.simpler, module.size, comparison)
    assert example.rounds == len(comparison.rounds) <= MOST_ROUNDS
    assert max(comparison.rounds) <= MOST_AT_ONCE + 1
    assert example == smallest(first, module.simpler, module.size, Comparison(comparison.is_wrong))
    return example


@pytest.mark.parametrize(
    ("is_wrong", "entries", "left"),
    [
        (lambda case: any(entry.id not in case.entries for entry in case.group.pending), 1, {}),
        (lambda case: len({entry.consumer for entry in case.group.pending}) > 1, 2, {}),
        (lambda case: sum(entry.delivery_count > 1 for entry in case.group.pending) > 2, 3, {}),
        (
            lambda case: case.request.justid and case.request.idle_rule is IdleRule.SERVER,
            0,
            {"justid": True, "idle_rule": IdleRule.SERVER},
        ),
        (
            lambda case: case.request.guards.only_from == "other" and case.group.pending,
            1,
            {"guards": Guards(only_from="other")},
        ),
    ],
)
def test_of_a_sweep_nothing_is_left_that_has_nothing_to_do_with_it(is_wrong, entries, left):
    cases = [*batches.random_batch(300, seed=3).cases().values()]
    comparison = Comparison(is_wrong)
    example = shrunk(comparison, batches, first_of(comparison, cases))
    assert example.is_alone
    case = example.difference.case
    assert is_wrong(case)
    assert [entry.id for entry in case.group.pending] == [
        StreamId(n, 0) for n in range(1, entries + 1)
    ]
    assert case.request == AutoclaimRequest(batches.CALLER, 0, **left)
    assert case.group.consumers == ()


def test_of_claims_one_request_of_one_id_and_one_entry_are_left():
    def is_wrong(case):
        return case.group is not None and any(
            request.force and request.profile is Profile.REDIS_7_0 and stream_id in pending
            for pending in [{entry.id for entry in case.group.pending}]
            for _, request in case.requests
            for stream_id in request.ids
        )

    cases = [*claim_batches.random_batch(200, seed=3).cases.values()]
    comparison = Comparison(is_wrong)
    example = shrunk(comparison, claim_batches, first_of(comparison, cases))
    case = example.difference.case
    ((_, request),) = case.requests
    (entry,) = case.group.pending
    assert request.ids == (entry.id,)
    assert (request.force, request.profile) == (True, Profile.REDIS_7_0)
    assert (request.idle_ms, request.time_ms, request.retrycount) == (None, None, None)
    assert (request.min_idle_ms, request.justid, request.last_id) == (0, False, None)
    assert (case.group.consumers, case.group.last_delivered_id) == ((), MIN_ID)


def test_a_batch_of_cases_has_the_same_cases_under_names_of_its_own():
    cases = [*batches.random_batch(20, seed=4).cases().values()]
    assert [*batches.batch_of(cases).cases().values()] == cases
    claims = [*claim_batches.random_batch(20, seed=4).cases.values()]
    batched = [*claim_batches.batch_of(claims).cases.values()]
    assert [case.expected[0] for case in batched] == [case.expected[0] for case in claims]
    named = [replace(case, names=other.names) for case, other in zip(claims, batched, strict=True)]
    assert [case.refusal for case in batched] == [case.refusal for case in named]
    assert any(case.group is None and case.refusal for case in named)


def test_what_differs_among_others_only_is_said_to_do_so():
    (case, *_) = batches.random_batch(20, seed=4).cases().values()
    with pytest.raises(AssertionError) as raised:
        assert_same([Difference(case, "a", "b")], batches.simpler, batches.size, lambda _: [])
    text = str(raised.value)
    assert "differs among the others only" in text
    assert f"request: {case.request}" in text


def test_the_text_has_the_request_the_instant_the_entries_and_what_both_say():
    (case, *_) = batches.random_batch(20, seed=4).cases().values()
    comparison = Comparison(lambda _: True)
    with pytest.raises(AssertionError) as raised:
        assert_same(comparison([case]), batches.simpler, batches.size, comparison)
    names = [line.strip().partition(":")[0] for line in str(raised.value).splitlines()[1:]]
    assert names == [
        *("request", "instant", "pending", "ids in the stream", "consumers"),
        *("the reference says", "the tables say"),
    ]
    assert str(raised.value).startswith("1 groups differ from the reference; the smallest such")
    assert_same([], batches.simpler, batches.size, comparison)
