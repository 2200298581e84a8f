from dataclasses import FrozenInstanceError

import pytest

from claimlib.errors import GlobError, RequestError, StateError
from claimlib.semantics.ids import MAX_ID, MAX_U64, MIN_ID, StreamId
from claimlib.semantics.model import (
    COUNT_MAX,
    DEFAULT_COUNT,
    DELIVERY_COUNT_MAX,
    SCAN_BUDGET_FACTOR,
    AutoclaimReply,
    AutoclaimRequest,
    ClaimRequest,
    Consumer,
    Group,
    Guards,
    IdleRule,
    Outcome,
    PendingEntry,
    Profile,
    RemovalLimits,
    parse_cursor,
    parse_run_id,
)

MAX_I64 = 2**63 - 1
FIRST = PendingEntry(StreamId(1, 0), b"a", 0, 0)
SECOND = PendingEntry(StreamId(1, 1), None, MAX_I64, MAX_I64)


def test_the_servers_numbers():
    assert COUNT_MAX == (2**63 - 1) // 16
    assert DELIVERY_COUNT_MAX == 2**63 - 1
    assert (DEFAULT_COUNT, SCAN_BUDGET_FACTOR) == (100, 10)


def test_the_settings_are_the_words_that_people_write():
    assert [str(rule) for rule in IdleRule] == ["documented", "server"]
    assert [str(profile) for profile in Profile] == ["redis-7.2", "redis-7.0"]


def test_outcomes_are_the_numbers_that_tables_hold():
    assert {outcome.name: int(outcome) for outcome in Outcome} == {
        "LEFT": 0,
        "CLAIMED": 1,
        "DELETED": 2,
        "PARKED": 3,
        "NOT_PENDING": 4,
        "FORCED": 5,
        "SUPERSEDED": 6,
    }


def test_values_are_frozen():
    with pytest.raises(FrozenInstanceError):
        FIRST.delivery_count = 2


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ((StreamId(-1, 0), b"a", 0, 0), "id"),
        ((StreamId(0, MAX_U64 + 1), b"a", 0, 0), "id"),
        ((MIN_ID, b"a", -1, 0), "delivery_time_ms"),
        ((MIN_ID, b"a", 2**63, 0), "delivery_time_ms"),
        ((MIN_ID, b"a", 0, -1), "delivery_count"),
        ((MIN_ID, b"a", 0, 2**63), "delivery_count"),
    ],
)
def test_a_pending_entry_out_of_range_cannot_be_made(values, field):
    with pytest.raises(StateError, match=rf"^{field} must be") as raised:
        PendingEntry(*values)
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("times", "field"),
    [
        ((-1, None), "seen_time_ms"),
        ((2**63, None), "seen_time_ms"),
        ((0, -1), "active_time_ms"),
        ((0, 2**63), "active_time_ms"),
    ],
)
def test_a_consumer_out_of_range_cannot_be_made(times, field):
    with pytest.raises(StateError, match=rf"^{field} must be"):
        Consumer(b"a", *times)


def test_a_group_holds_entries_by_id_and_consumers_by_name():
    consumers = (Consumer(b"", 0, None), Consumer(b"B", 0, 0), Consumer(b"a", 0, MAX_I64))
    group = Group(MAX_ID, (FIRST, SECOND), consumers)
    assert group.pending == (FIRST, SECOND)
    assert Group(MIN_ID, (), ()).consumers == ()


@pytest.mark.parametrize("pending", [(SECOND, FIRST), (FIRST, FIRST)])
def test_a_group_whose_entries_are_out_of_order_cannot_be_made(pending):
    with pytest.raises(StateError, match="pending must be sorted by id, each id once: 1-0 follows"):
        Group(MIN_ID, pending, ())


@pytest.mark.parametrize("names", [(b"b", b"a"), (b"a", b"a"), (b"a", b"B")])
def test_a_group_whose_consumers_are_out_of_order_cannot_be_made(names):
    with pytest.raises(StateError, match="consumers must be sorted by name, each name once"):
        Group(MIN_ID, (), tuple(Consumer(name, 0, None) for name in names))


def test_a_group_with_an_impossible_last_id_cannot_be_made():
    with pytest.raises(StateError, match=r"^last_delivered_id must be two unsigned"):
        Group(StreamId(0, -1), (), ())


def test_a_request_is_a_documented_sweep_from_the_start_unless_told_otherwise():
    assert AutoclaimRequest(b"c", 5) == AutoclaimRequest(
        consumer=b"c",
        min_idle_ms=5,
        start=MIN_ID,
        count=None,
        justid=False,
        idle_rule=IdleRule.DOCUMENTED,
        profile=Profile.REDIS_7_2,
    )


@pytest.mark.parametrize("count", [1, COUNT_MAX, None])
@pytest.mark.parametrize("min_idle_ms", [0, MAX_I64])
def test_a_request_at_the_edges_can_be_made(count, min_idle_ms):
    assert AutoclaimRequest(b"", min_idle_ms, count=count).count == count


@pytest.mark.parametrize("count", [0, -1, COUNT_MAX + 1])
def test_a_request_with_a_count_out_of_range_cannot_be_made(count):
    with pytest.raises(RequestError, match=r"^count must be between 1 and 576460752303423487"):
        AutoclaimRequest(b"c", 0, count=count)


REMEDY = ": write parse_duration_ms('15m')"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"min_idle_ms": "15m"}, "min_idle_ms must be a whole number, not '15m'" + REMEDY),
        ({"min_idle_ms": 0.5}, "min_idle_ms must be a whole number, not 0.5" + REMEDY),
        ({"min_idle_ms": 1, "count": "10"}, "count must be a whole number, not '10'"),
    ],
)
def test_a_number_of_another_type_is_refused_with_a_remedy(values, message):
    with pytest.raises(RequestError) as raised:
        AutoclaimRequest(b"c", **values)
    assert str(raised.value) == message


@pytest.mark.parametrize("min_idle_ms", [-1, 2**63])
def test_a_request_with_a_min_idle_out_of_range_cannot_be_made(min_idle_ms):
    with pytest.raises(RequestError, match=r"^min_idle_ms must be between 0 and 2"):
        AutoclaimRequest(b"c", min_idle_ms)


@pytest.mark.parametrize(
    ("field", "least"),
    [("min_idle_ms", 0), ("idle_ms", -(2**63)), ("time_ms", -(2**63)), ("retrycount", 0)],
)
def test_a_number_of_an_xclaim_is_in_its_range(field, least):
    plain = {"consumer": b"c", "min_idle_ms": 0, "ids": ()}
    for number in (least, MAX_I64):
        assert getattr(ClaimRequest(**{**plain, field: number}), field) == number
    for number in (least - 1, MAX_I64 + 1):
        with pytest.raises(RequestError, match=rf"^{field} must be between {least} and 2\^63-1"):
            ClaimRequest(**{**plain, field: number})


def test_a_reply_keeps_claimed_and_deleted_apart():
    reply = AutoclaimReply(cursor=MIN_ID, claimed=(StreamId(1, 0),), deleted=(StreamId(2, 0),))
    assert reply.claimed != reply.deleted


@pytest.mark.parametrize(
    ("guard", "least", "largest"),
    [
        ("max_claims", 0, MAX_I64),
        ("max_deleted_share", 0, 1),
        ("only_consumers_idle_ms", 0, MAX_I64),
        ("max_deliveries", 1, MAX_I64),
    ],
)
def test_a_guard_at_the_edges_can_be_made(guard, least, largest):
    parking = {"parking_consumer": b"p"} if guard == "max_deliveries" else {}
    for number in (least, largest):
        assert getattr(Guards(**{guard: number}, **parking), guard) == number


@pytest.mark.parametrize(
    ("guards", "field"),
    [
        ({"max_claims": -1}, "max_claims"),
        ({"max_claims": 2**63}, "max_claims"),
        ({"max_deleted_share": -0.1}, "max_deleted_share"),
        ({"max_deleted_share": 1.1}, "max_deleted_share"),
        ({"max_deleted_share": float("nan")}, "max_deleted_share"),
        ({"only_consumers_idle_ms": -1}, "only_consumers_idle_ms"),
        ({"max_deliveries": 0, "parking_consumer": b"p"}, "max_deliveries"),
        ({"max_deliveries": 1}, "max_deliveries"),
        ({"parking_consumer": b"p"}, "max_deliveries"),
        ({"only_from": "a\udcff"}, "only_from"),
    ],
)
def test_a_guard_that_cannot_be_is_refused_with_its_name(guards, field):
    with pytest.raises(RequestError, match=field) as raised:
        Guards(**guards)
    assert raised.value.field == field


def test_two_guards_that_need_each_other_are_named_as_fields_and_as_options():
    with pytest.raises(RequestError) as raised:
        Guards(max_deliveries=1)
    assert raised.value.message == (
        "max_deliveries and parking_consumer need each other: give both (--max-deliveries and"
        " --parking-consumer), or neither"
    )


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_the_share_that_a_source_may_take_away_is_between_nothing_and_all(share):
    with pytest.raises(RequestError, match="max_removed_share must be between 0 and 1"):
        RemovalLimits(max_removed_share=share)


def test_a_run_keeps_what_its_source_was_allowed_to_take_away():
    kept = RemovalLimits(allow_empty=True, max_removed_share=0.25).as_json()
    assert kept == {"allow_empty": True, "max_removed_share": 0.25}


def test_a_guards_glob_is_checked_when_it_is_made():
    with pytest.raises(GlobError, match="not closed"):
        Guards(only_from="[a")


def test_nobody_parks_with_oneself():
    with pytest.raises(RequestError, match="must be different consumers"):
        AutoclaimRequest(b"c", 0, guards=Guards(max_deliveries=1, parking_consumer=b"c"))


@pytest.mark.parametrize("text", ["", " ", "\t\n"])
def test_a_run_id_says_something(text):
    assert parse_run_id("nightly 1:a") == "nightly 1:a"
    with pytest.raises(RequestError, match="the run id is empty"):
        parse_run_id(text)


@pytest.mark.parametrize("text", ["x\udcff", "\ud800"])
def test_a_run_id_is_one_that_a_table_can_hold(text):
    with pytest.raises(RequestError, match=r"the run id '.*\\ud.*' is not valid UTF-8"):
        parse_run_id(text)


@pytest.mark.parametrize(
    ("parse", "name", "remedy", "option"),
    [
        (parse_run_id, "the run id", "give a name, so that a retry changes nothing", "run_id"),
        (parse_cursor, "the cursor's name", "name it", "cursor"),
    ],
)
def test_an_empty_name_is_refused_with_the_option_to_leave_out(parse, name, remedy, option):
    with pytest.raises(RequestError) as raised:
        parse(" ")
    assert raised.value.message == (
        f"{name} is empty (in a script: is its variable set?): {remedy}, or leave"
        f" --{option.replace('_', '-')} out"
    )
    assert raised.value.option == option


def test_a_cursor_is_one_that_a_table_can_hold():
    assert parse_cursor("nightly 1:a") == "nightly 1:a"
    with pytest.raises(RequestError, match=r"^the cursor's name .* is not valid UTF-8") as raised:
        parse_cursor("x\udcff")
    assert raised.value.option == "cursor"
