"""The kernel's fold over ids that were asked for, against the reference, request by request."""

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimlib.errors import DuplicateRowsError
from claimlib.plans import kernel
from claimlib.semantics import rules, scan
from claimlib.semantics.ids import MAX_U64, StreamId, to_bigint
from claimlib.semantics.model import (
    DELIVERY_COUNT_MAX,
    ClaimRequest,
    Group,
    IdleRule,
    Outcome,
    PendingEntry,
)
from tests.examples import examples

NOW_MS = 1_000
IDS = [StreamId(1, n) for n in range(4)] + [StreamId(2**63 - 1, 0), StreamId(2**63, MAX_U64)]
OWNERS = (None, b"dead", b"me", b"you")
FLAGS = ("present", "is_pending", "is_owned", "equal_counts", "force")
TYPES = dict.fromkeys(kernel.BULK_INPUT, "int64") | dict.fromkeys(FLAGS, "bool")

pending = st.builds(
    PendingEntry,
    st.sampled_from(IDS),
    st.sampled_from(OWNERS),
    st.sampled_from((0, 899, 900, 901, NOW_MS, NOW_MS + 5)),
    st.sampled_from((0, 1, 7, DELIVERY_COUNT_MAX)),
)
requests = st.builds(
    ClaimRequest,
    st.sampled_from(OWNERS[1:]),
    st.sampled_from((0, 1, 100, 100, 100)),
    st.lists(st.sampled_from(IDS), max_size=8).map(tuple),
    time_ms=st.sampled_from((None, None, 0, 900, NOW_MS)),
    retrycount=st.sampled_from((None, None, 0, 3)),
    force=st.booleans(),
    justid=st.booleans(),
    idle_rule=st.sampled_from(IdleRule),
)
groups = st.tuples(
    st.lists(pending, max_size=6, unique_by=lambda entry: entry.id),
    st.sets(st.sampled_from(IDS)),
    st.lists(requests, max_size=5),
)


def rows_of(number, entries, present, requests):
    """A group's rows as the kernel gets them, its number for a key."""
    known = {entry.id: entry for entry in entries}
    return [
        {
            "group_key": number,
            "id_ms": to_bigint(stream_id.ms),
            "id_seq": to_bigint(stream_id.seq),
            "request_number": request_number,
            "position": position,
            "present": stream_id in present,
            "is_pending": stream_id in known,
            "is_owned": stream_id in known and known[stream_id].consumer is not None,
            "consumer_key": OWNERS.index(known[stream_id].consumer) if stream_id in known else 0,
            "delivery_time_ms": known[stream_id].delivery_time_ms if stream_id in known else 0,
            "delivery_count": known[stream_id].delivery_count if stream_id in known else 0,
            "now_ms": NOW_MS,
            "min_idle_ms": request.min_idle_ms,
            "equal_counts": rules.EQUAL_COUNTS[request.idle_rule],
            "force": request.force,
            "raise_by": int(not request.justid),
            "retrycount": -1 if request.retrycount is None else request.retrycount,
            "new_delivery_time_ms": NOW_MS if request.time_ms is None else request.time_ms,
        }
        for request_number, request in enumerate(requests)
        for position, stream_id in enumerate(request.ids)
    ]


def by_key(row):
    halves = (row["id_ms"] % 2**64, row["id_seq"] % 2**64)
    return row["group_key"], *halves, row["request_number"], row["position"]


def folded(states, rows_per_frame):
    rows = [row for number, state in enumerate(states) for row in rows_of(number, *state)]
    rows.sort(key=by_key)
    frames = [
        pd.DataFrame(rows[at : at + rows_per_frame], columns=kernel.BULK_INPUT).astype(TYPES)
        for at in range(0, len(rows), rows_per_frame)
    ]
    return [row for out in kernel.fold_range(iter(frames)) for row in out.itertuples()]


def replayed(entries, requests, rows):
    """The PEL after the rows, and what each request claimed and deleted, in its order."""
    after = {entry.id: entry for entry in entries}
    got = (Outcome.CLAIMED, Outcome.FORCED, Outcome.SUPERSEDED)
    claimed, deleted = ([[] for _ in requests] for _ in range(2))
    for row in sorted(rows, key=lambda row: (row.request_number, row.position)):
        stream_id = StreamId(row.id_ms % 2**64, row.id_seq % 2**64)
        before = next((entry for entry in entries if entry.id == stream_id), None)
        assert row.is_pending == (before is not None)
        if before is not None:
            state = OWNERS[row.from_consumer_key], row.from_delivery_time_ms
            assert PendingEntry(stream_id, *state, row.from_delivery_count) == before
        if row.outcome in got:
            claimed[row.request_number].append(stream_id)
        elif row.outcome == Outcome.DELETED:
            deleted[row.request_number].append(stream_id)
            del after[stream_id]
        if row.outcome in got[:2]:  # what is superseded is never applied
            assert (row.outcome == Outcome.CLAIMED) == row.is_pending
            owner = requests[row.request_number].consumer
            after[stream_id] = PendingEntry(
                stream_id, owner, row.delivery_time_ms, row.delivery_count
            )
    return [after[key] for key in sorted(after)], claimed, deleted


def by_reference(entries, present, requests):
    group = Group(IDS[0], tuple(entries), ())
    replies = []
    for request in requests:
        group, reply = scan.xclaim(group, request, NOW_MS, present)
        replies.append(reply)
    claimed, deleted = ([list(getattr(r, n)) for r in replies] for n in ("claimed", "deleted"))
    return list(group.pending), claimed, deleted


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(groups, min_size=1, max_size=4), st.integers(1, 9))
def test_all_requests_at_once_leave_what_the_reference_leaves_one_after_the_other(
    states, rows_per_frame
):
    states = [
        (sorted(entries, key=lambda entry: entry.id), present, requests)
        for entries, present, requests in states
    ]
    rows = folded(states, rows_per_frame)
    assert len(rows) == sum(len(request.ids) for state in states for request in state[2])
    for number, (entries, present, requests) in enumerate(states):
        own = [row for row in rows if row.group_key == number]
        assert replayed(entries, requests, own) == by_reference(entries, present, requests)


def one_row(**others):
    row = dict.fromkeys(kernel.BULK_INPUT, 0) | others
    return pd.DataFrame([row]).astype(TYPES)


@pytest.mark.parametrize(
    ("first", "second", "mark"),
    [
        ({"id_ms": 5}, {"id_ms": 5}, DuplicateRowsError.IN_WORKER),
        ({"request_number": 2}, {"request_number": 1, "position": 9}, kernel.BROKEN_ORDER_MARK),
        ({"id_ms": -1}, {"id_ms": 5}, kernel.BROKEN_ORDER_MARK),
    ],
)
def test_rows_out_of_order_or_twice_stop_the_fold(first, second, mark):
    with pytest.raises(ValueError, match=mark):
        list(kernel.fold_range(iter([one_row(**first), one_row(**second)])))
