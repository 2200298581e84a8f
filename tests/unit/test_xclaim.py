"""XCLAIM, XPENDING and XACK where recorded vectors leave gaps: order of checks, ends of numbers."""

import pytest

from claimlib.errors import ReplyError, RequestError
from claimlib.semantics import scan
from claimlib.semantics.ids import MAX_ID, MAX_U64, MIN_ID, StreamId
from claimlib.semantics.model import (
    ClaimReply,
    ClaimRequest,
    Consumer,
    Group,
    IdleRule,
    PendingEntry,
    PendingRange,
    PendingSummary,
    Profile,
)
from claimlib.semantics.words import Stream, execute, parse_xack, parse_xclaim, parse_xpending

NOW_MS = 1_750_000_000_000
ID_1, ID_2, ID_3 = (StreamId(ms, 0) for ms in (1, 2, 3))
PEL = (PendingEntry(ID_1, b"dead", NOW_MS - 100, 1), PendingEntry(ID_2, None, NOW_MS + 5, 7))
KEYSPACE = {
    b"s": Stream({ID_1: (b"f", b"1"), ID_3: (b"f", b"3")}, {b"g": Group(ID_2, PEL, ())}),
}
XCLAIM = [b"XCLAIM", b"s", b"g", b"me", b"0"]


def error_of(*words):
    with pytest.raises(ReplyError) as raised:
        execute(KEYSPACE, words, NOW_MS)
    return raised.value.message


# ---- XCLAIM ----


def claim(*ids, min_idle_ms=0, **others):
    return ClaimRequest(b"me", min_idle_ms, ids, **others)


def claimed(request, present=(ID_1, ID_2, ID_3)):
    return scan.xclaim(Group(ID_2, PEL, ()), request, NOW_MS, frozenset(present))


def test_what_nobody_owns_is_claimed_however_fresh():
    after, reply = claimed(claim(ID_2, min_idle_ms=1000))
    assert reply == ClaimReply((ID_2,), ())
    assert after.pending[1] == PendingEntry(ID_2, b"me", NOW_MS, 8)


def test_what_the_stream_no_longer_has_is_deleted_once_and_never_forced():
    after, reply = claimed(claim(ID_1, ID_1, ID_3, force=True), present=())
    assert reply == ClaimReply((), (ID_1,))
    assert after.pending == PEL[1:]


def test_the_ids_of_the_stream_may_be_a_function():
    pending = Group(ID_2, PEL, ())
    _, reply = scan.xclaim(pending, claim(ID_1, ID_2), NOW_MS, lambda stream_id: stream_id == ID_1)
    assert reply == ClaimReply((ID_1,), (ID_2,))


@pytest.mark.parametrize(
    ("times", "expected_ms"),
    [
        ({}, NOW_MS),
        ({"idle_ms": 5}, NOW_MS - 5),
        ({"idle_ms": -5}, NOW_MS),
        ({"idle_ms": NOW_MS}, 0),
        ({"idle_ms": NOW_MS + 1}, NOW_MS),
        ({"idle_ms": -(2**63)}, NOW_MS),
        ({"idle_ms": 2**63 - 1}, NOW_MS),
        ({"time_ms": 0}, 0),
        ({"time_ms": NOW_MS}, NOW_MS),
        ({"time_ms": NOW_MS + 1}, NOW_MS),
        ({"time_ms": -1}, NOW_MS),
    ],
)
def test_a_delivery_time_before_1970_or_to_come_is_now(times, expected_ms):
    after, _ = claimed(claim(ID_1, **times))
    assert after.pending[0].delivery_time_ms == expected_ms


@pytest.mark.parametrize(
    ("others", "count"),
    [
        ({}, 2),
        ({"justid": True}, 1),
        ({"retrycount": 0}, 0),
        ({"retrycount": 0, "justid": True}, 0),
        ({"retrycount": 2**63 - 1}, 2**63 - 1),
    ],
)
def test_retrycount_goes_before_justid(others, count):
    assert claimed(claim(ID_1, **others))[0].pending[0].delivery_count == count


@pytest.mark.parametrize(("justid", "count"), [(False, 2), (True, 1)])
def test_what_is_forced_was_delivered_once_before(justid, count):
    after, _ = claimed(claim(ID_3, force=True, justid=justid))
    assert after.pending[-1] == PendingEntry(ID_3, b"me", NOW_MS, count)


def test_the_idle_rules_differ_at_exact_equality():
    for rule, taken in ((IdleRule.DOCUMENTED, ()), (IdleRule.SERVER, (ID_1,))):
        assert claimed(claim(ID_1, min_idle_ms=100, idle_rule=rule))[1].claimed == taken


def test_an_id_is_claimed_again_where_idle_dates_it_back_far_enough():
    request = claim(ID_1, ID_1, min_idle_ms=50, idle_ms=60)
    assert claimed(request)[1].claimed == (ID_1, ID_1)
    assert claimed(claim(ID_1, ID_1, min_idle_ms=50))[1].claimed == (ID_1,)


@pytest.mark.parametrize(
    ("profile", "ids", "consumers"),
    [
        (Profile.REDIS_7_2, (), (Consumer(b"me", NOW_MS, None),)),
        (Profile.REDIS_7_2, (ID_1,), (Consumer(b"me", NOW_MS, NOW_MS),)),
        (Profile.REDIS_7_0, (), ()),
        (Profile.REDIS_7_0, (ID_1,), (Consumer(b"me", NOW_MS, None),)),
    ],
)
def test_the_caller_is_seen(profile, ids, consumers):
    assert claimed(claim(*ids, profile=profile))[0].consumers == consumers


def test_the_last_delivered_id_is_raised_and_never_lowered():
    for last_id, expected in ((MIN_ID, ID_2), (ID_3, ID_3)):
        assert claimed(claim(last_id=last_id))[0].last_delivered_id == expected


def test_a_request_says_idle_or_time():
    with pytest.raises(
        RequestError, match=r"idle_ms \(--idle\) and time_ms \(--time\) .*: give only one of them"
    ):
        claim(idle_ms=1, time_ms=1)


def test_of_options_given_several_times_the_last_one_counts():
    words = [b"1", b"IDLE", b"5", b"time", b"7", b"LASTID", b"9", b"LASTID", b"8-1", b"RETRYCOUNT"]
    assert parse_xclaim([*XCLAIM, *words, b"-3"]) == claim(ID_1, time_ms=7, last_id=StreamId(8, 1))
    assert parse_xclaim([*XCLAIM, *words, b"2", b"RETRYCOUNT", b"-3"]).retrycount is None
    assert parse_xclaim([*XCLAIM, b"1", b"TIME", b"7", b"IDLE", b"5"]) == claim(ID_1, idle_ms=5)


def test_options_without_a_value_come_in_any_case_and_order():
    request = parse_xclaim([*XCLAIM, b"1", b"Force", b"RETRYCOUNT", b"0", b"justid"])
    assert request == claim(ID_1, force=True, justid=True, retrycount=0)


@pytest.mark.parametrize(
    ("options", "row", "count"), [((), [b"1-0", [b"f", b"1"]], 2), ((b"JUSTID",), b"1-0", 1)]
)
def test_a_claimed_entry_comes_with_its_fields_or_with_justid_as_its_id(options, row, count):
    after, reply = execute(KEYSPACE, [*XCLAIM, b"1", b"2", *options], NOW_MS)
    assert reply == [row]
    assert after[b"s"].entries == KEYSPACE[b"s"].entries
    assert after[b"s"].groups[b"g"] == Group(
        ID_2, (PendingEntry(ID_1, b"me", NOW_MS, count),), (Consumer(b"me", NOW_MS, NOW_MS),)
    )


def test_the_idle_rule_and_the_profile_go_with_the_words_of_either_command():
    for words in ([b"XCLAIM", b"1"], [b"XAUTOCLAIM", b"0"]):
        command = [words[0], b"s", b"g", b"me", b"100", words[1], b"JUSTID"]
        assert b"1-0" in flat(execute(KEYSPACE, command, NOW_MS)[1])
        documented = (IdleRule.DOCUMENTED, Profile.REDIS_7_0)
        after, reply = execute(KEYSPACE, command, NOW_MS, *documented)
        assert b"1-0" not in flat(reply)
        assert after[b"s"].groups[b"g"].consumers == ()


def flat(reply):
    """The parts of a reply that are no lists."""
    return [leaf for part in reply for leaf in (flat(part) if isinstance(part, list) else [part])]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            [b"XCLAIM", b"no", b"g", b"me", b"x"],
            "ERR wrong number of arguments for 'xclaim' command",
        ),
        (
            [b"XCLAIM", b"no", b"g", b"me", b"x", b"1"],
            "NOGROUP No such key 'no' or consumer group 'g'",
        ),
        (
            [b"XCLAIM", b"s", b"g", b"me", b"1.5", b"1"],
            "ERR Invalid min-idle-time argument for XCLAIM",
        ),
        ([*XCLAIM, b"1", b"JUSTID", b"2"], "ERR Unrecognized XCLAIM option '2'"),
        ([*XCLAIM, b"-"], "ERR Unrecognized XCLAIM option '-'"),
        ([*XCLAIM, b"1", b"IDLE"], "ERR Unrecognized XCLAIM option 'IDLE'"),
        ([*XCLAIM, b"1", b"a\r\nb"], "ERR Unrecognized XCLAIM option 'a  b'"),
        ([*XCLAIM, b"1", b"Idle", b"x"], "ERR Invalid IDLE option argument for XCLAIM"),
        ([*XCLAIM, b"1", b"time", b"x"], "ERR Invalid TIME option argument for XCLAIM"),
        ([*XCLAIM, b"1", b"retrycount", b""], "ERR Invalid RETRYCOUNT option argument for XCLAIM"),
        (
            [*XCLAIM, b"1", b"LASTID", b"+"],
            "ERR Invalid stream ID specified as stream command argument",
        ),
    ],
)
def test_the_first_fault_of_an_xclaim_is_said_in_the_servers_words(words, message):
    assert error_of(*words) == message


# ---- XPENDING ----


def test_a_summary_of_nothing_has_no_ids():
    empty = Group(MIN_ID, (), ())
    assert scan.xpending_summary(empty) == PendingSummary(0, None, None, ())


def test_a_summary_counts_what_nobody_owns_under_no_consumer():
    third = PendingEntry(ID_3, b"dead", NOW_MS, 1)
    summary = scan.xpending_summary(Group(ID_3, (*PEL, third), ()))
    assert summary == PendingSummary(3, ID_1, ID_3, ((b"dead", 2),))


def test_the_words_of_a_summary_are_answered_with_counts_as_texts():
    words = [b"XPENDING", b"s", b"g"]
    assert execute(KEYSPACE, words, NOW_MS) == (KEYSPACE, [2, b"1-0", b"2-0", [[b"dead", b"1"]]])
    empty = {b"s": Stream({}, {b"g": Group(MIN_ID, (), ())})}
    assert execute(empty, words, NOW_MS) == (empty, [0, None, None, None])


def test_the_words_of_a_range_are_answered_with_idle_times_that_are_not_negative():
    names, bounds = [b"XPENDING", b"s", b"g"], [b"-", b"+", b"9"]
    rows = [[b"1-0", b"dead", 100, 1], [b"2-0", None, 0, 7]]
    assert execute(KEYSPACE, [*names, *bounds], NOW_MS) == (KEYSPACE, rows)
    idle = [*names, b"IDLE", b"100", *bounds]
    assert execute(KEYSPACE, idle, NOW_MS) == (KEYSPACE, rows[:1])


@pytest.mark.parametrize(
    ("words", "query"),
    [
        ([b"(1", b"3", b"9"], PendingRange(StreamId(1, 1), StreamId(3, MAX_U64), 9)),
        ([b"-", b"+", b"-9", b"c"], PendingRange(MIN_ID, MAX_ID, -9, None, b"c")),
        ([b"idle", b"5", b"-", b"+", b"9"], PendingRange(MIN_ID, MAX_ID, 9, 5)),
        ([b"IDLE", b"5", b"-", b"+", b"9", b"c"], PendingRange(MIN_ID, MAX_ID, 9, 5, b"c")),
    ],
)
def test_the_words_of_a_range_are_its_values(words, query):
    assert parse_xpending([b"XPENDING", b"s", b"g", *words]) == query


@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        ({}, PEL),
        ({"count": 1}, PEL[:1]),
        ({"count": 0}, ()),
        ({"count": -(2**63)}, ()),
        ({"start": ID_2}, PEL[1:]),
        ({"end": ID_1}, PEL[:1]),
        ({"min_idle_ms": 100}, PEL[:1]),
        ({"min_idle_ms": 101}, ()),
        ({"min_idle_ms": 0}, PEL),
        ({"min_idle_ms": -4}, PEL[:1]),
        ({"min_idle_ms": -5}, PEL),
        ({"consumer": b"dead"}, PEL[:1]),
        ({"consumer": b"unknown"}, ()),
    ],
)
def test_a_range_is_cut_by_ids_idle_time_owner_and_count(changes, rows):
    query = PendingRange(**{"start": MIN_ID, "end": MAX_ID, "count": 9, **changes})
    assert scan.xpending_range(Group(ID_2, PEL, ()), query, NOW_MS) == rows


def test_words_behind_the_consumer_are_ignored_without_idle():
    words = [b"XPENDING", b"s", b"g", b"-", b"+", b"9", b"c"]
    assert parse_xpending(words) == parse_xpending([*words, b"x", b"y"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([b"s"], "ERR wrong number of arguments for 'xpending' command"),
        ([b"no", b"g", b"-"], "ERR syntax error"),
        ([b"no", b"g", b"-", b"+"], "ERR syntax error"),
        ([b"no", b"g", *[b"-"] * 7], "ERR syntax error"),
        ([b"no", b"g", b"idle", b"x", b"-"], "ERR value is not an integer or out of range"),
        ([b"no", b"g", b"IDLE", b"1", b"-"], "ERR syntax error"),
        ([b"no", b"g", b"IDLE", b"1", b"-", b"+"], "ERR syntax error"),
        ([b"no", b"g", b"x", b"y", b"z"], "ERR value is not an integer or out of range"),
        (
            [b"no", b"g", b"(-", b"+", b"1"],
            "ERR Invalid stream ID specified as stream command argument",
        ),
        ([b"no", b"g", b"-", b"(0-0", b"1"], "ERR invalid end ID for the interval"),
        ([b"no", b"g", b"-", b"+", b"1"], "NOGROUP No such key 'no' or consumer group 'g'"),
        ([b"s", b"no"], "NOGROUP No such key 's' or consumer group 'no'"),
    ],
)
def test_the_first_fault_of_an_xpending_is_said_in_the_servers_words(words, message):
    assert error_of(b"XPENDING", *words) == message


# ---- XACK ----


def test_a_repeated_id_is_acknowledged_once_and_an_absent_one_not_at_all():
    after, number = execute(KEYSPACE, [b"xack", b"s", b"g", b"1", b"1-0", b"5"], NOW_MS)
    assert (number, after[b"s"].groups[b"g"].pending) == (1, PEL[1:])


def test_the_ids_of_an_xack_follow_key_and_group():
    assert parse_xack([b"XACK", b"s", b"g", b"1"]) == (ID_1,)


@pytest.mark.parametrize("names", [(b"no", b"g"), (b"s", b"no")])
def test_without_the_group_nothing_is_acknowledged_and_no_id_looked_at(names):
    assert execute(KEYSPACE, [b"XACK", *names, b"x"], NOW_MS) == (KEYSPACE, 0)


def test_a_bad_id_acknowledges_nothing():
    assert error_of(b"XACK", b"s", b"g", b"1", b"-") == (
        "ERR Invalid stream ID specified as stream command argument"
    )


# ---- other commands ----


@pytest.mark.parametrize("words", [[], [b"XREADGROUP", b"s"]])
def test_another_command_is_refused(words):
    with pytest.raises(RequestError, match="XAUTOCLAIM, XCLAIM, XPENDING or XACK"):
        execute(KEYSPACE, words, NOW_MS)


def test_the_words_of_another_command_are_no_xclaim():
    with pytest.raises(RequestError, match="the first word must be XCLAIM"):
        parse_xclaim([b"XACK", b"s", b"g", b"1", b"2", b"3"])
