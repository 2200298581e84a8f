"""The kernel in pandas, without Spark: its decisions are the reference's, its promises are kept."""

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimlib.errors import DuplicateRowsError
from claimlib.plans import kernel
from claimlib.semantics import rules
from claimlib.semantics.ids import MAX_ID, MIN_ID, StreamId, from_bigint, to_bigint
from claimlib.semantics.model import DELIVERY_COUNT_MAX, IdleRule, Outcome
from tests.batches import OWNERS, PARKING, Batch, batches, random_batch
from tests.broken_rules import BROKEN, FILTERED, broken_rules
from tests.examples import examples

FLAGS = ("present", "is_spared", "is_parking")
TYPES = dict.fromkeys(kernel.INPUT, "int64") | dict.fromkeys(FLAGS, "bool")


def frame(rows, types=TYPES):
    return pd.DataFrame(rows, columns=kernel.INPUT).astype(types)


def requests(by_group):
    """What is asked of the groups, by their keys."""
    types = dict.fromkeys(kernel.REQUEST, "int64") | {"equal_counts": "bool"}
    rows = pd.DataFrame(by_group.values(), columns=kernel.REQUEST).astype(types)
    return rows.set_index(pd.Index(by_group))


def request_of(case):
    request = case.request
    return {
        "now_ms": case.now_ms,
        "min_idle_ms": request.min_idle_ms,
        "equal_counts": rules.EQUAL_COUNTS[request.idle_rule],
        "raise_by": 0 if request.justid else 1,
        "park_above": (request.guards.max_deliveries or DELIVERY_COUNT_MAX + 1) - 1,
    }


def rows_of(number, case):
    """A group's examined entries as the kernel gets them, its number for a key."""
    return [
        {
            "group_key": number,
            "id_ms": to_bigint(entry.id.ms),
            "id_seq": to_bigint(entry.id.seq),
            "consumer_key": OWNERS.index(entry.consumer),
            "delivery_time_ms": entry.delivery_time_ms,
            "delivery_count": entry.delivery_count,
            "present": entry.id in case.entries,
            "is_spared": (case.guard_of(entry) or "").startswith("spared"),
            "is_parking": entry.consumer == PARKING,
        }
        for entry in case.examined
    ]


def decided(batch, rows_per_frame):
    """Per (group, id): outcome, what was found, and the new count."""
    cases = list(batch.cases().values())
    rows = [row for number, case in enumerate(cases) for row in rows_of(number, case)]
    frames = [frame(rows[at : at + rows_per_frame]) for at in range(0, len(rows), rows_per_frame)]
    request_rows = requests({number: request_of(case) for number, case in enumerate(cases)})
    return {
        (row.group_key, StreamId(from_bigint(row.id_ms), from_bigint(row.id_seq))): (
            Outcome(row.outcome),
            OWNERS[row.from_consumer_key],
            row.from_delivery_time_ms,
            row.from_delivery_count,
            row.delivery_count,
        )
        for out in kernel.decide_range(iter(frames), request_rows)
        for row in out.itertuples()
    }


def expected(batch):
    """The same, from the reference."""
    decisions = {}
    for number, case in enumerate(batch.cases().values()):
        after, reply = case.expected()
        counts = {entry.id: entry.delivery_count for entry in after.pending}
        owners = {entry.id: entry.consumer for entry in after.pending}
        pending = {entry.id: entry for entry in case.group.pending}
        outcomes = {
            **{stream_id: _claim(case, owners[stream_id]) for stream_id in reply.claimed},
            **dict.fromkeys(reply.deleted, Outcome.DELETED),
        }
        for stream_id, outcome in outcomes.items():
            _, *state = (getattr(pending[stream_id], name) for name in PENDING)
            new_count = counts.get(stream_id, pending[stream_id].delivery_count)
            decisions[number, stream_id] = (outcome, *state, new_count)
    return decisions


def _claim(case, owner):
    return Outcome.CLAIMED if owner == case.request.consumer else Outcome.PARKED


PENDING = ("id", "consumer", "delivery_time_ms", "delivery_count")


@settings(max_examples=examples(20), deadline=None)
@given(batch=batches(least_groups=20).map(Batch.by_entry), rows_per_frame=st.integers(1, 40))
def test_the_kernel_decides_what_the_reference_decides(batch, rows_per_frame):
    assert decided(batch, rows_per_frame) == expected(batch)


@pytest.mark.parametrize("how", [*BROKEN, *FILTERED])
def test_with_a_broken_rule_the_comparison_with_the_reference_fails(how, monkeypatch):
    batch = random_batch(500, seed=1).by_entry()
    assert decided(batch, 40) == expected(batch)
    monkeypatch.setattr(kernel, "rules", broken_rules(how))
    assert decided(batch, 40) != expected(batch)


# ---- order ----

ROW = dict.fromkeys(kernel.INPUT, 0) | dict.fromkeys(FLAGS, False)
REQUEST = dict.fromkeys(kernel.REQUEST, 0) | {"equal_counts": True, "raise_by": 1}
REQUEST |= {"park_above": DELIVERY_COUNT_MAX}


def keyed(*keys):
    return frame([ROW | dict(zip(kernel.KEY, key, strict=True)) for key in keys])


def decide(frames, **changes):
    """What is decided where all groups ask for the same."""
    keys = {key for rows in frames for key in rows["group_key"]}
    return kernel.decide_range(iter(frames), requests(dict.fromkeys(keys, REQUEST | changes)))


def run(*frames):
    return [
        tuple(row)
        for out in decide(frames)
        for row in out[list(kernel.KEY)].itertuples(index=False)
    ]


def cuts(*keys):
    """The same keys as one batch, and cut into two at every place."""
    yield [keyed(*keys)]
    for at in range(1, len(keys)):
        yield [keyed(*keys[:at]), keyed(*keys[at:])]
        yield [keyed(*keys[:at]), keyed(), keyed(*keys[at:])]


BIG = -(2**63)  # the BIGINT that holds 2^63
SORTED = [(-7, 5, 0), (-7, 5, 1), (-7, 5, BIG), (-7, 6, 0), (-7, BIG, 0), (-7, -1, -1), (3, 0, 1)]


def test_a_range_sorted_by_unsigned_ids_is_decided_whole_however_it_is_cut():
    for frames in cuts(*SORTED):
        assert run(*frames) == SORTED


@pytest.mark.parametrize(
    "keys",
    [
        [(1, 5, 0), (1, 4, 0)],
        [(1, 5, 1), (1, 5, 0)],
        [(2, 5, 0), (1, 6, 0)],
        [(1, BIG, 0), (1, 5, 0)],
        [(1, 5, -1), (1, 5, 2**63 - 1)],
        [(1, 1, 0), (1, 2, 0), (1, 9, 0), (1, 8, 0)],
    ],
    ids=["ms", "seq", "group", "ms as signed", "seq as signed", "at the end"],
)
def test_a_range_out_of_order_raises_also_across_batches(keys):
    for frames in cuts(*keys):
        with pytest.raises(ValueError, match=kernel.BROKEN_ORDER_MARK):
            run(*frames)


@pytest.mark.parametrize(
    "keys", [[(1, 5, 0), (1, 5, 0)], [(1, 4, 0), (1, -1, -1), (1, -1, -1), (2, 0, 1)]]
)
def test_two_rows_of_one_key_raise_also_across_batches(keys):
    for frames in cuts(*keys):
        with pytest.raises(ValueError, match=DuplicateRowsError.IN_WORKER):
            run(*frames)


def test_nothing_is_decided_before_the_order_of_a_batch_was_checked():
    decisions = decide([keyed((1, 1, 0)), keyed((1, 3, 0), (1, 2, 0))])
    assert len(next(decisions)) == 1
    with pytest.raises(ValueError, match=kernel.BROKEN_ORDER_MARK):
        next(decisions)


# ---- batches ----


def test_empty_batches_and_empty_ranges_give_nothing():
    assert run() == []
    assert run(keyed()) == []
    assert run(keyed(), keyed((1, 1, 0)), keyed()) == [(1, 1, 0)]


def test_a_row_that_is_left_alone_gives_none():
    fresh = ROW | {"present": True, "delivery_time_ms": 5}
    rows = frame([fresh, fresh | {"id_seq": 1, "present": False}])
    (decisions,) = decide([rows], now_ms=10, min_idle_ms=6)
    assert decisions["id_seq"].tolist() == [1]


def test_the_output_has_its_columns_and_64_bit_numbers():
    (out,) = decide([keyed((1, 1, 0))])
    assert tuple(out.columns) == kernel.OUTPUT
    assert {str(out[name].dtype) for name in kernel.OUTPUT if name != "outcome"} == {"int64"}
    assert str(out["outcome"].dtype) == "int8"


def test_the_edges_of_the_range_of_ids_are_ordinary_ids():
    ids = [(to_bigint(stream_id.ms), to_bigint(stream_id.seq)) for stream_id in (MIN_ID, MAX_ID)]
    keys = [(1, *pair) for pair in ids]
    assert run(keyed(*keys)) == keys


def test_each_group_is_judged_by_its_own_request():
    equal = REQUEST | {"now_ms": 60, "min_idle_ms": 10}
    request_rows = requests(
        {
            key: equal | {"equal_counts": rules.EQUAL_COUNTS[rule]}
            for key, rule in ((5, IdleRule.SERVER), (-3, IdleRule.DOCUMENTED))
        }
    )
    row = ROW | {"present": True, "delivery_time_ms": 50}
    rows = frame([row | {"group_key": -3}, row | {"group_key": 5}])
    (out,) = kernel.decide_range([rows], request_rows)
    assert out["group_key"].tolist() == [5]


def test_rows_of_a_group_without_a_request_raise():
    decisions = kernel.decide_range([keyed((1, 1, 0), (2, 1, 0))], requests({1: REQUEST}))
    with pytest.raises(ValueError, match=kernel.NO_REQUEST_MARK):
        list(decisions)
