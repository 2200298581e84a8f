from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimlib.errors import GuardError
from claimlib.semantics.ids import END_OF_SCAN, MAX_ID, MAX_U64, MIN_ID, StreamId, successor
from claimlib.semantics.model import (
    COUNT_MAX,
    DELIVERY_COUNT_MAX,
    AutoclaimReply,
    AutoclaimRequest,
    Consumer,
    Group,
    Guards,
    IdleRule,
    PendingEntry,
    Profile,
)
from claimlib.semantics.scan import xautoclaim
from tests.examples import examples

NOW_MS = 1_750_000_000_000
MIN_IDLE_MS = 60_000
IDLE, EQUAL, FRESH, FUTURE = MIN_IDLE_MS + 1, MIN_IDLE_MS, MIN_IDLE_MS - 1, -5


def entry(ms, idle_ms=IDLE, *, consumer=b"dead", count=1):
    return PendingEntry(StreamId(ms, 0), consumer, NOW_MS - idle_ms, count)


def group(*pending, consumers=()):
    return Group(MAX_ID, pending, tuple(consumers))


def request(**changes):
    return replace(AutoclaimRequest(b"me", MIN_IDLE_MS), **changes)


def ids(*numbers):
    return tuple(StreamId(ms, 0) for ms in numbers)


def everything(_stream_id):
    return True


def claimed(before, count=None):
    """What an entry becomes when `me` claims it."""
    return replace(
        before,
        consumer=b"me",
        delivery_time_ms=NOW_MS,
        delivery_count=before.delivery_count + 1 if count is None else count,
    )


# ---- one entry ----


def test_an_idle_entry_is_claimed():
    after, reply = xautoclaim(group(entry(1)), request(), NOW_MS, everything)
    assert after.pending == (claimed(entry(1)),)
    assert reply == AutoclaimReply(END_OF_SCAN, ids(1), ())


def test_a_fresh_entry_is_left_alone():
    after, reply = xautoclaim(group(entry(1, FRESH)), request(), NOW_MS, everything)
    assert after.pending == (entry(1, FRESH),)
    assert reply == AutoclaimReply(END_OF_SCAN, (), ())


@pytest.mark.parametrize(
    ("idle_rule", "taken"), [(IdleRule.DOCUMENTED, ()), (IdleRule.SERVER, ids(1))]
)
def test_the_idle_rules_differ_at_exact_equality(idle_rule, taken):
    _, reply = xautoclaim(group(entry(1, EQUAL)), request(idle_rule=idle_rule), NOW_MS, everything)
    assert reply.claimed == taken


@pytest.mark.parametrize("idle_rule", IdleRule)
@pytest.mark.parametrize(("idle_ms", "taken"), [(IDLE, ids(1)), (FRESH, ())])
def test_the_idle_rules_agree_elsewhere(idle_rule, idle_ms, taken):
    _, reply = xautoclaim(
        group(entry(1, idle_ms)), request(idle_rule=idle_rule), NOW_MS, everything
    )
    assert reply.claimed == taken


@pytest.mark.parametrize("idle_rule", IdleRule)
def test_min_idle_0_claims_even_a_delivery_in_the_future(idle_rule):
    before = group(entry(1, 0), entry(2, FUTURE))
    _, reply = xautoclaim(before, request(min_idle_ms=0, idle_rule=idle_rule), NOW_MS, everything)
    assert reply.claimed == ids(1, 2)


@pytest.mark.parametrize("consumer", [b"dead", b"me", None])
@pytest.mark.parametrize("idle_ms", [IDLE, FRESH, FUTURE])
def test_a_dangling_entry_is_deleted_whoever_owns_it_and_however_fresh(consumer, idle_ms):
    after, reply = xautoclaim(
        group(entry(1, idle_ms, consumer=consumer)), request(), NOW_MS, frozenset()
    )
    assert after.pending == ()
    assert reply == AutoclaimReply(END_OF_SCAN, (), ids(1))


def test_a_dangling_entry_is_deleted_with_min_idle_0_too():
    _, reply = xautoclaim(group(entry(1)), request(min_idle_ms=0), NOW_MS, frozenset())
    assert reply == AutoclaimReply(END_OF_SCAN, (), ids(1))


def test_an_entry_is_claimed_from_oneself_and_from_nobody():
    before = group(entry(1, consumer=b"me"), entry(2, consumer=None))
    after, _ = xautoclaim(before, request(), NOW_MS, everything)
    assert after.pending == (claimed(entry(1)), claimed(entry(2)))


def test_justid_leaves_the_count_alone():
    after, _ = xautoclaim(group(entry(1, count=7)), request(justid=True), NOW_MS, everything)
    assert after.pending == (claimed(entry(1), count=7),)


def test_a_count_stays_at_the_largest():
    before = group(entry(1, count=DELIVERY_COUNT_MAX), entry(2, count=DELIVERY_COUNT_MAX - 1))
    after, _ = xautoclaim(before, request(), NOW_MS, everything)
    assert [claim.delivery_count for claim in after.pending] == [DELIVERY_COUNT_MAX] * 2


def test_times_at_the_ends_of_the_range():
    now_ms = 2**63 - 1
    before = Group(MAX_ID, (PendingEntry(StreamId(1, 0), b"a", 0, 0),), ())
    largest = request(min_idle_ms=now_ms)
    assert xautoclaim(before, largest, now_ms, everything)[1].claimed == ()
    by_server = replace(largest, idle_rule=IdleRule.SERVER)
    assert xautoclaim(before, by_server, now_ms, everything)[1].claimed == ids(1)


# ---- many entries ----


def test_claimed_and_deleted_are_apart_and_the_rest_stays_where_it_was():
    before = group(entry(1), entry(2, FRESH), entry(3), entry(4), entry(5, FRESH))
    after, reply = xautoclaim(before, request(), NOW_MS, frozenset(ids(1, 2, 4)))
    assert after.pending == (claimed(entry(1)), entry(2, FRESH), claimed(entry(4)))
    assert reply == AutoclaimReply(END_OF_SCAN, ids(1, 4), ids(3, 5))


def test_presence_may_be_a_function_a_set_or_a_mapping():
    before = group(entry(1), entry(2))
    expected = xautoclaim(before, request(), NOW_MS, lambda stream_id: stream_id.ms == 2)
    assert expected[1].deleted == ids(1)
    assert xautoclaim(before, request(), NOW_MS, set(ids(2))) == expected
    assert xautoclaim(before, request(), NOW_MS, {StreamId(2, 0): ()}) == expected


def test_entries_before_the_start_are_not_examined():
    before = group(entry(1), entry(2), entry(3))
    after, reply = xautoclaim(before, request(start=StreamId(2, 0)), NOW_MS, frozenset(ids(3)))
    assert after.pending == (entry(1), claimed(entry(3)))
    assert reply == AutoclaimReply(END_OF_SCAN, ids(3), ids(2))


@pytest.mark.parametrize("start", [StreamId(3, 1), MAX_ID])
def test_a_start_past_the_last_entry_examines_nothing(start):
    before = group(entry(1), entry(3))
    after, reply = xautoclaim(before, request(start=start), NOW_MS, frozenset())
    assert after.pending == before.pending
    assert reply == AutoclaimReply(END_OF_SCAN, (), ())


def test_ids_are_compared_as_unsigned_pairs():
    edges = [
        MIN_ID,
        StreamId(2**53, 2**63),
        StreamId(2**63 - 1, MAX_U64),
        StreamId(2**63, 0),
        MAX_ID,
    ]
    before = group(*(PendingEntry(edge, b"dead", 0, 1) for edge in edges))
    _, reply = xautoclaim(before, request(start=StreamId(2**63 - 1, MAX_U64)), NOW_MS, everything)
    assert reply.claimed == tuple(edges[2:])


def test_the_given_group_stays_as_it_is():
    before = group(entry(1), entry(2))
    copy = replace(before)
    xautoclaim(before, request(), NOW_MS, frozenset(ids(1)))
    assert before == copy


def test_the_last_delivered_id_is_kept():
    before = Group(StreamId(9, 9), (entry(1),), ())
    after, _ = xautoclaim(before, request(), NOW_MS, everything)
    assert after.last_delivered_id == StreamId(9, 9)


# ---- COUNT, budget, cursor ----


def test_a_page_ends_when_count_entries_are_claimed():
    before = group(entry(1), entry(2), entry(3))
    after, reply = xautoclaim(before, request(count=2), NOW_MS, everything)
    assert after.pending == (claimed(entry(1)), claimed(entry(2)), entry(3))
    assert reply == AutoclaimReply(StreamId(3, 0), ids(1, 2), ())


def test_a_page_that_ends_on_the_last_entry_has_no_cursor():
    before = group(entry(1), entry(2))
    _, reply = xautoclaim(before, request(count=2), NOW_MS, everything)
    assert reply == AutoclaimReply(END_OF_SCAN, ids(1, 2), ())


def test_deleted_entries_use_up_count():
    before = group(entry(1), entry(2), entry(3))
    _, reply = xautoclaim(before, request(count=2), NOW_MS, frozenset(ids(2, 3)))
    assert reply == AutoclaimReply(StreamId(3, 0), ids(2), ids(1))


def test_entries_left_alone_use_up_the_budget_only():
    before = group(*(entry(ms, FRESH) for ms in range(1, 10)), entry(10), entry(11))
    _, reply = xautoclaim(before, request(count=1), NOW_MS, everything)
    assert reply == AutoclaimReply(StreamId(11, 0), ids(10), ())


def test_a_page_ends_when_ten_times_count_entries_are_examined():
    before = group(*(entry(ms, FRESH) for ms in range(1, 21)), entry(21))
    _, reply = xautoclaim(before, request(count=2), NOW_MS, everything)
    assert reply == AutoclaimReply(StreamId(21, 0), (), ())


def test_a_budget_that_ends_on_the_last_entry_has_no_cursor():
    before = group(*(entry(ms, FRESH) for ms in range(1, 11)))
    _, reply = xautoclaim(before, request(count=1), NOW_MS, everything)
    assert reply == AutoclaimReply(END_OF_SCAN, (), ())


def test_the_budget_counts_from_the_start():
    before = group(*(entry(ms, FRESH) for ms in range(1, 16)))
    _, reply = xautoclaim(before, request(count=1, start=StreamId(4, 0)), NOW_MS, everything)
    assert reply.cursor == StreamId(14, 0)


def test_the_largest_count_is_a_sweep():
    before = group(*(entry(ms) for ms in range(1, 150)))
    page = xautoclaim(before, request(count=COUNT_MAX), NOW_MS, everything)
    assert page == xautoclaim(before, request(), NOW_MS, everything)
    assert len(page[1].claimed) == 149


# ---- consumers ----

OTHERS = (Consumer(b"dead", 5, 5), Consumer(b"zoe", 6, None))
ME = Consumer(b"me", 1, 1)


def consumers_after(pending_entry, profile, consumers, present=everything):
    after, _ = xautoclaim(
        group(pending_entry, consumers=consumers), request(profile=profile), NOW_MS, present
    )
    return after.consumers


def test_the_caller_is_created_and_active_when_it_claims():
    after = consumers_after(entry(1), Profile.REDIS_7_2, OTHERS)
    assert after == (OTHERS[0], Consumer(b"me", NOW_MS, NOW_MS), OTHERS[1])


def test_the_caller_is_created_and_seen_when_nothing_is_claimed():
    after = consumers_after(entry(1, FRESH), Profile.REDIS_7_2, ())
    assert after == (Consumer(b"me", NOW_MS, None),)


def test_the_caller_is_seen_and_not_active_when_nothing_is_claimed():
    after = consumers_after(entry(1, FRESH), Profile.REDIS_7_2, (ME,))
    assert after == (Consumer(b"me", NOW_MS, 1),)


def test_deleting_is_not_being_active():
    after = consumers_after(entry(1), Profile.REDIS_7_2, (ME,), frozenset())
    assert after == (Consumer(b"me", NOW_MS, 1),)


def test_redis_7_0_creates_the_caller_only_when_it_claims_and_knows_no_active_time():
    after = consumers_after(entry(1), Profile.REDIS_7_0, OTHERS)
    assert after == (OTHERS[0], Consumer(b"me", NOW_MS, None), OTHERS[1])


@pytest.mark.parametrize("present", [everything, frozenset()])
@pytest.mark.parametrize("consumers", [(), OTHERS, (ME,)])
def test_redis_7_0_leaves_consumers_alone_when_nothing_is_claimed(present, consumers):
    assert consumers_after(entry(1, FRESH), Profile.REDIS_7_0, consumers, present) == consumers


def test_redis_7_0_sees_the_caller_when_it_claims():
    known = Consumer(b"me", 1, None)
    after = consumers_after(entry(1), Profile.REDIS_7_0, (known,))
    assert after == (Consumer(b"me", NOW_MS, None),)


# ---- what holds for any group ----

numbers = st.one_of(st.integers(0, 30), st.sampled_from([2**53, 2**63 - 1, 2**63, MAX_U64]))
stream_ids = st.builds(StreamId, numbers, st.integers(0, 3) | st.just(MAX_U64))
names = st.sampled_from([b"", b"me", b"dead", b"\xff"])
entries = st.builds(
    PendingEntry,
    stream_ids,
    names | st.none(),
    st.sampled_from([NOW_MS - idle_ms for idle_ms in (IDLE, EQUAL, FRESH, 0, FUTURE, NOW_MS)]),
    st.sampled_from([0, 1, 5, DELIVERY_COUNT_MAX - 1, DELIVERY_COUNT_MAX]),
)
pending = st.lists(entries, max_size=60, unique_by=lambda entry: entry.id).map(
    lambda drawn: tuple(sorted(drawn, key=lambda entry: entry.id))
)
groups = st.builds(
    Group,
    stream_ids,
    pending,
    st.lists(names, unique=True).map(
        lambda drawn: tuple(Consumer(n, 7, None) for n in sorted(drawn))
    ),
)
requests = st.builds(
    AutoclaimRequest,
    consumer=names,
    min_idle_ms=st.sampled_from([0, MIN_IDLE_MS]),
    start=st.just(MIN_ID) | stream_ids,
    count=st.integers(1, 5) | st.integers(1, 70),
    justid=st.booleans(),
    idle_rule=st.sampled_from(IdleRule),
    profile=st.sampled_from(Profile),
)


@st.composite
def situations(draw):
    """A group, a request with COUNT, and which of the pending ids the stream still has."""
    before = draw(groups)
    gone_every = draw(st.integers(1, 7))
    kept = [entry.id for i, entry in enumerate(before.pending) if i % gone_every or gone_every == 1]
    return before, draw(requests), frozenset(kept if draw(st.booleans()) else kept[::2])


def is_hit(entry, request, present):
    idle_ms = NOW_MS - entry.delivery_time_ms
    needed_ms = request.min_idle_ms + (request.idle_rule is IdleRule.DOCUMENTED)
    return entry.id not in present or request.min_idle_ms == 0 or idle_ms >= needed_ms


@settings(deadline=None, max_examples=examples(400))
@given(situations())
def test_a_page_is_the_set_that_ranks_and_hits_give(situation):
    before, request, present = situation
    ranked = [entry for entry in before.pending if entry.id >= request.start]
    hits = [is_hit(entry, request, present) for entry in ranked]
    examined = [
        rank <= 10 * request.count and sum(hits[: rank - 1]) < request.count
        for rank in range(1, len(ranked) + 1)
    ]
    size = sum(examined)
    assert examined == [True] * size + [False] * (len(ranked) - size)
    taken = [entry.id for entry, hit in zip(ranked[:size], hits, strict=False) if hit]
    after, reply = xautoclaim(before, request, NOW_MS, present)
    assert reply == AutoclaimReply(
        cursor=ranked[size].id if size < len(ranked) else END_OF_SCAN,
        claimed=tuple(stream_id for stream_id in taken if stream_id in present),
        deleted=tuple(stream_id for stream_id in taken if stream_id not in present),
    )
    untouched = [entry for entry in before.pending if entry.id not in taken]
    assert [entry for entry in after.pending if entry.id not in taken] == untouched
    assert {entry.id for entry in after.pending} == {entry.id for entry in before.pending} - set(
        reply.deleted
    )


@settings(deadline=None, max_examples=examples(400))
@given(situations(), st.lists(st.integers(1, 70), min_size=1, max_size=5))
def test_a_sweep_is_pages_of_any_count_up_to_the_end(situation, counts):
    before, request, present = situation
    state, cursor, pages = before, request.start, []
    while not pages or cursor != END_OF_SCAN:
        page = replace(request, start=cursor, count=counts[len(pages) % len(counts)])
        state, reply = xautoclaim(state, page, NOW_MS, present)
        assert reply.cursor == END_OF_SCAN or reply.cursor > cursor
        cursor = reply.cursor
        pages.append(reply)
    swept, reply = xautoclaim(before, replace(request, count=None), NOW_MS, present)
    assert swept == state
    assert reply.claimed == tuple(stream_id for page in pages for stream_id in page.claimed)
    assert reply.deleted == tuple(stream_id for page in pages for stream_id in page.deleted)
    assert reply.cursor == END_OF_SCAN


@settings(deadline=None)
@given(situations())
def test_a_second_sweep_at_the_same_instant_changes_nothing(situation):
    before, request, present = situation
    sweep = replace(request, count=None, min_idle_ms=MIN_IDLE_MS)
    once, _ = xautoclaim(before, sweep, NOW_MS, present)
    twice, reply = xautoclaim(once, sweep, NOW_MS, present)
    assert (twice, reply) == (once, AutoclaimReply(END_OF_SCAN, (), ()))


@settings(deadline=None)
@given(situations())
def test_starting_behind_an_entry_leaves_it_out(situation):
    before, request, present = situation
    for entry in before.pending[:3]:
        if entry.id == MAX_ID:
            continue
        after, _ = xautoclaim(before, replace(request, start=successor(entry.id)), NOW_MS, present)
        assert entry in after.pending


# ---- guards ----

PARKING = b"parking"


def guarded(**guards):
    return request(guards=Guards(**guards))


def test_without_guards_there_are_none():
    assert AutoclaimRequest(b"me", 0).guards == Guards() == Guards(None, None, None, None, None)


@pytest.mark.parametrize(("most", "refused"), [(1, True), (2, False), (0, True), (3, False)])
def test_more_claims_than_max_claims_refuse_the_group(most, refused):
    before = group(entry(1), entry(2), entry(3, FRESH), entry(4))
    present = frozenset(ids(1, 2, 3))
    if refused:
        with pytest.raises(
            GuardError, match=f"guard max_claims: 2 entries would be claimed, and it allows {most}$"
        ):
            xautoclaim(before, guarded(max_claims=most), NOW_MS, present)
    else:
        assert xautoclaim(before, guarded(max_claims=most), NOW_MS, present) == xautoclaim(
            before, request(), NOW_MS, present
        )


@pytest.mark.parametrize(
    ("share", "refused"), [(0.0, True), (0.24, True), (0.25, False), (1.0, False)]
)
def test_a_larger_share_of_purges_than_max_deleted_share_refuses_the_group(share, refused):
    before = group(entry(1), entry(2), entry(3, FRESH), entry(4))
    present = frozenset(ids(1, 2, 3))
    request = guarded(max_deleted_share=share)
    if refused:
        with pytest.raises(GuardError, match="max_deleted_share: 1 of 4 pending entries"):
            xautoclaim(before, request, NOW_MS, present)
    else:
        assert xautoclaim(before, request, NOW_MS, present)[1].deleted == ids(4)


def test_shares_are_compared_as_they_are_written():
    # As a product this would be 29 > 0.29 * 100 = 28.999999999999996.
    before = group(*map(entry, range(1, 101)))
    present = frozenset(ids(*range(30, 101)))
    _, reply = xautoclaim(before, guarded(max_deleted_share=0.29), NOW_MS, present)
    assert len(reply.deleted) == 29


def test_a_group_without_purges_is_below_every_share():
    assert xautoclaim(group(), guarded(max_deleted_share=0.0), NOW_MS, everything)[1].deleted == ()


def test_only_from_spares_what_others_own_and_costs_no_count():
    before = group(
        entry(1, consumer=b"live-1"), entry(2, consumer=None), entry(3), entry(4), entry(5)
    )
    request = replace(guarded(only_from="d*"), count=1)
    after, reply = xautoclaim(before, request, NOW_MS, frozenset(ids(1, 2, 3, 4)))
    assert reply == AutoclaimReply(StreamId(4, 0), ids(3), ())
    assert after.pending[:2] == before.pending[:2]


def test_what_is_spared_is_deleted_all_the_same_where_it_dangles():
    spared = guarded(only_from="x", only_consumers_idle_ms=1)
    _, reply = xautoclaim(group(entry(1)), spared, NOW_MS, frozenset())
    assert reply.deleted == ids(1)


@pytest.mark.parametrize(
    ("known", "rule", "taken"),
    [
        (Consumer(b"dead", NOW_MS - 1, NOW_MS - 11), IdleRule.DOCUMENTED, True),
        (Consumer(b"dead", NOW_MS - 1, NOW_MS - 10), IdleRule.DOCUMENTED, False),
        (Consumer(b"dead", NOW_MS - 1, NOW_MS - 10), IdleRule.SERVER, True),
        (Consumer(b"dead", NOW_MS - 99, NOW_MS - 9), IdleRule.SERVER, False),
        (Consumer(b"dead", NOW_MS - 11, None), IdleRule.DOCUMENTED, True),
        (Consumer(b"dead", NOW_MS - 9, None), IdleRule.SERVER, False),
        (Consumer(b"other", NOW_MS - 99, None), IdleRule.SERVER, False),
    ],
)
def test_only_consumers_that_were_not_active_for_so_long_lose_entries(known, rule, taken):
    request = replace(guarded(only_consumers_idle_ms=10), idle_rule=rule)
    _, reply = xautoclaim(group(entry(1), consumers=[known]), request, NOW_MS, everything)
    assert reply.claimed == (ids(1) if taken else ())


def test_what_nobody_owns_has_no_consumer_that_could_be_active():
    before = group(entry(1, consumer=None))
    _, reply = xautoclaim(before, guarded(only_consumers_idle_ms=10), NOW_MS, everything)
    assert reply.claimed == ids(1)


def test_what_was_delivered_too_often_is_parked_as_with_justid_and_stays_there():
    before = group(
        entry(1, count=2), entry(2, count=3), entry(3, count=4, consumer=PARKING), entry(4, FRESH)
    )
    request = guarded(max_deliveries=3, parking_consumer=PARKING)
    after, reply = xautoclaim(before, request, NOW_MS, everything)
    assert reply == AutoclaimReply(END_OF_SCAN, ids(1, 2), ())
    parked = replace(claimed(entry(2), count=3), consumer=PARKING)
    assert after.pending == (claimed(entry(1, count=2)), parked, *before.pending[2:])
    assert after.consumers == (Consumer(b"me", NOW_MS, NOW_MS), Consumer(PARKING, NOW_MS, NOW_MS))


def test_the_parking_consumers_fresh_counts_are_claimed_again():
    before = group(entry(1, count=0, consumer=PARKING))
    request = guarded(max_deliveries=3, parking_consumer=PARKING)
    after, _ = xautoclaim(before, request, NOW_MS, everything)
    assert after.pending == (claimed(entry(1, count=0)),)


@pytest.mark.parametrize(
    ("profile", "consumers"),
    [
        (Profile.REDIS_7_2, (Consumer(b"me", NOW_MS, None), Consumer(PARKING, NOW_MS, NOW_MS))),
        (Profile.REDIS_7_0, (Consumer(PARKING, NOW_MS, None),)),
    ],
)
def test_a_caller_that_got_nothing_but_parked_entries_is_not_active(profile, consumers):
    request = guarded(max_deliveries=1, parking_consumer=PARKING)
    after, _ = xautoclaim(group(entry(1)), replace(request, profile=profile), NOW_MS, everything)
    assert after.consumers == consumers


def test_a_parking_consumer_that_gets_nothing_is_not_seen():
    request = guarded(max_deliveries=2, parking_consumer=PARKING)
    after, _ = xautoclaim(group(entry(1)), request, NOW_MS, everything)
    assert after.consumers == (Consumer(b"me", NOW_MS, NOW_MS),)


def test_what_is_parked_uses_up_count_and_max_claims():
    before = group(entry(1), entry(2))
    request = guarded(max_deliveries=1, parking_consumer=PARKING, max_claims=1)
    with pytest.raises(GuardError, match="max_claims: 2 entries"):
        xautoclaim(before, request, NOW_MS, everything)
    _, reply = xautoclaim(before, replace(request, count=1), NOW_MS, everything)
    assert reply == AutoclaimReply(StreamId(2, 0), ids(1), ())
