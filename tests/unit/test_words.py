from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimlib.errors import ReplyError, RequestError
from claimlib.semantics.ids import MAX_ID, MIN_ID, StreamId
from claimlib.semantics.model import (
    AutoclaimRequest,
    Consumer,
    Group,
    IdleRule,
    PendingEntry,
    Profile,
)
from claimlib.semantics.words import Stream, parse_xautoclaim, redis_cli_word, xautoclaim

NOW_MS = 1_750_000_000_000
BASE = [b"XAUTOCLAIM", b"s", b"g", b"me", b"100", b"0"]


def keyspace(*idle_ms, gone=()):
    """One stream with one group; entry i (from 1) has been idle for the i-th time."""
    pending = tuple(
        PendingEntry(StreamId(ms, 0), b"dead", NOW_MS - idle, 1)
        for ms, idle in enumerate(idle_ms, start=1)
    )
    entries = {
        entry.id: (b"f", b"%d" % entry.id.ms, b"f", b"\xff")
        for entry in pending
        if entry.id.ms not in gone
    }
    return {
        b"s": Stream(entries, {b"g": Group(MAX_ID, pending, ()), b"other": Group(MIN_ID, (), ())}),
        b"t": Stream({}, {}),
    }


def words(*options, **changed):
    """The words of a plain XAUTOCLAIM, with some of them changed by place."""
    command = [*BASE, *options]
    for place, word in changed.items():
        command[int(place.removeprefix("word"))] = word
    return command


def error_of(*args, **kwargs):
    with pytest.raises(ReplyError) as raised:
        xautoclaim(keyspace(200), words(*args, **kwargs), NOW_MS)
    return raised.value.message


# ---- what the words mean ----


def test_the_words_are_a_request():
    assert parse_xautoclaim(BASE) == (b"s", b"g", AutoclaimRequest(b"me", 100, count=100))


@pytest.mark.parametrize("command", [b"XAUTOCLAIM", b"xautoclaim", b"XAutoClaim"])
def test_the_command_is_in_any_case(command):
    assert parse_xautoclaim(words(word0=command))[2].consumer == b"me"


@pytest.mark.parametrize("command", [[], [b"XCLAIM", b"s", b"g", b"me", b"0", b"0"]])
def test_another_command_is_refused(command):
    with pytest.raises(RequestError, match="the first word must be XAUTOCLAIM"):
        parse_xautoclaim(command)


@pytest.mark.parametrize(
    ("options", "count", "justid"),
    [
        ((), 100, False),
        ((b"JUSTID",), 100, True),
        ((b"COUNT", b"5"), 5, False),
        ((b"justid", b"count", b"5"), 5, True),
        ((b"CoUnT", b"5", b"JustID"), 5, True),
        ((b"COUNT", b"5", b"COUNT", b"7"), 7, False),
        ((b"JUSTID", b"JUSTID"), 100, True),
        ((b"COUNT", b"576460752303423487"), 576460752303423487, False),
        ((b"JUSTID\0x", b"COUNT\0", b"1"), 1, True),
    ],
)
def test_options_come_in_any_case_and_order_and_the_last_count_counts(options, count, justid):
    request = parse_xautoclaim(words(*options))[2]
    assert (request.count, request.justid) == (count, justid)


@pytest.mark.parametrize(
    ("word", "min_idle_ms"),
    [
        (b"0", 0),
        (b"9223372036854775807", 2**63 - 1),
        (b"-5", 0),
        (b"-9223372036854775808", 0),
    ],
)
def test_a_negative_min_idle_is_0(word, min_idle_ms):
    assert parse_xautoclaim(words(word4=word))[2].min_idle_ms == min_idle_ms


@pytest.mark.parametrize(
    ("word", "start"),
    [
        (b"-", MIN_ID),
        (b"+", MAX_ID),
        (b"5", StreamId(5, 0)),
        (b"(5", StreamId(5, 1)),
        (b"+5-007", StreamId(5, 7)),
    ],
)
def test_the_start_is_a_range_bound(word, start):
    assert parse_xautoclaim(words(word5=word))[2].start == start


def test_names_are_any_bytes():
    key, group, request = parse_xautoclaim(words(word1=b"", word2=b"\xff", word3=b"\0\\"))
    assert (key, group, request.consumer) == (b"", b"\xff", b"\0\\")


# ---- the reply ----


def test_claimed_entries_come_with_their_fields_in_order():
    _, reply = xautoclaim(keyspace(200, 50, 200, gone=(3,)), BASE, NOW_MS)
    assert reply == [b"0-0", [[b"1-0", [b"f", b"1", b"f", b"\xff"]]], [b"3-0"]]


def test_with_justid_only_ids_come():
    _, reply = xautoclaim(keyspace(200, 50, 200, gone=(3,)), words(b"JUSTID"), NOW_MS)
    assert reply == [b"0-0", [b"1-0"], [b"3-0"]]


def test_the_cursor_is_where_the_next_call_starts():
    state, reply = xautoclaim(keyspace(200, 200), words(b"COUNT", b"1", b"JUSTID"), NOW_MS)
    assert reply == [b"2-0", [b"1-0"], []]
    _, reply = xautoclaim(state, words(b"JUSTID", word5=reply[0]), NOW_MS)
    assert reply == [b"0-0", [b"2-0"], []]


def test_without_count_at_most_100_entries_are_claimed():
    _, reply = xautoclaim(keyspace(*[200] * 101), words(b"JUSTID"), NOW_MS)
    assert (reply[0], len(reply[1])) == (b"101-0", 100)


def test_the_new_state_is_another_value_and_all_else_is_the_same():
    before = keyspace(200)
    copy = {key: replace(stream) for key, stream in before.items()}
    after, _ = xautoclaim(before, BASE, NOW_MS)
    assert before == copy
    assert after[b"t"] is before[b"t"]
    assert after[b"s"].entries is before[b"s"].entries
    assert after[b"s"].groups[b"other"] is before[b"s"].groups[b"other"]
    assert after[b"s"].groups[b"g"] == Group(
        last_delivered_id=MAX_ID,
        pending=(PendingEntry(StreamId(1, 0), b"me", NOW_MS, 2),),
        consumers=(Consumer(b"me", NOW_MS, NOW_MS),),
    )


def test_the_servers_idle_rule_holds_unless_told_otherwise():
    assert xautoclaim(keyspace(100), words(b"JUSTID"), NOW_MS)[1][1] == [b"1-0"]
    documented = xautoclaim(keyspace(100), words(b"JUSTID"), NOW_MS, IdleRule.DOCUMENTED)
    assert documented[1][1] == []


def test_the_profile_is_kept():
    after, _ = xautoclaim(keyspace(50), BASE, NOW_MS, profile=Profile.REDIS_7_0)
    assert after[b"s"].groups[b"g"].consumers == ()


# ---- errors, in the server's words and order ----

NUMBER_OF_WORDS = "ERR wrong number of arguments for 'xautoclaim' command"
MIN_IDLE = "ERR Invalid min-idle-time argument for XAUTOCLAIM"
START = "ERR Invalid stream ID specified as stream command argument"
INTERVAL = "ERR invalid start ID for the interval"
COUNT = "ERR COUNT must be > 0"
SYNTAX = "ERR syntax error"


@pytest.mark.parametrize("length", range(1, 6))
def test_too_few_words(length):
    with pytest.raises(ReplyError) as raised:
        xautoclaim(keyspace(200), BASE[:length], NOW_MS)
    assert raised.value.message == NUMBER_OF_WORDS


NOT_INTEGERS = [b"", b"abc", b"1.5", b" 1", b"1 ", b"+1", b"01", b"-0", b"00", b"-01", b"1\0", b"-"]
NOT_INTEGERS += [b"0x1", b"1_0", b"\xd9\xa1", b"9" * 5000]


@pytest.mark.parametrize("word", [*NOT_INTEGERS, b"9223372036854775808", b"-9223372036854775809"])
def test_a_min_idle_that_is_no_integer(word):
    assert error_of(word4=word) == MIN_IDLE


@pytest.mark.parametrize("word", [b"", b"abc", b"(", b"(-", b"(+", b"5-", b"18446744073709551616"])
def test_a_start_that_is_no_id(word):
    assert error_of(word5=word) == START


def test_a_start_behind_the_largest_id():
    assert error_of(word5=b"(" + str(MAX_ID).encode()) == INTERVAL


@pytest.mark.parametrize("word", [*NOT_INTEGERS, b"0", b"-1", b"576460752303423488", b"JUSTID"])
def test_a_count_that_is_none(word):
    assert error_of(b"COUNT", word) == COUNT


@pytest.mark.parametrize("options", [(b"COUNT",), (b"JUSTID", b"COUNT"), (b"IDLE", b"5"), (b"",)])
def test_an_unknown_option_or_a_count_without_a_value(options):
    assert error_of(*options) == SYNTAX


@pytest.mark.parametrize(
    ("key", "group", "message"),
    [
        (b"no", b"g", "NOGROUP No such key 'no' or consumer group 'g'"),
        (b"s", b"no", "NOGROUP No such key 's' or consumer group 'no'"),
        (b"t", b"g", "NOGROUP No such key 't' or consumer group 'g'"),
        (b"a\r\nb", b"g\0x", "NOGROUP No such key 'a  b' or consumer group 'g'"),
        (b"\xc3\xa9\xff", b"", "NOGROUP No such key 'é\udcff' or consumer group ''"),
    ],
)
def test_a_key_or_a_group_that_is_not_there(key, group, message):
    assert error_of(word1=key, word2=group) == message


def test_the_first_fault_in_the_servers_order_is_the_one_that_is_said():
    faults = {"word4": b"x", "word5": b"x", "word1": b"no"}
    assert error_of(b"COUNT", b"0", b"x", **faults) == MIN_IDLE
    del faults["word4"]
    assert error_of(b"COUNT", b"0", b"x", **faults) == START
    del faults["word5"]
    assert error_of(b"COUNT", b"0", b"x", **faults) == COUNT
    assert error_of(b"x", b"COUNT", b"0", **faults) == SYNTAX
    assert error_of(**faults) == "NOGROUP No such key 'no' or consumer group 'g'"


def test_the_error_keeps_where_it_came_from():
    with pytest.raises(ReplyError) as raised:
        xautoclaim(keyspace(200), words(word5=b"x"), NOW_MS)
    assert "'x' is not a valid stream id" in str(raised.value.__cause__)


_ESCAPES = {"n": 10, "r": 13, "t": 9, "b": 8, "a": 7}


def read_by_redis_cli(line):
    """The words of a line, as `sdssplitargs` of Redis 7.2 (src/sds.c) reads them."""
    read, at = [], 0
    while at < len(line):
        if line[at] == " ":
            at += 1
            continue
        word, is_quoted = bytearray(), line[at] == '"'
        at += is_quoted
        while at < len(line) and (is_quoted or line[at] != " "):
            if is_quoted and line[at] == '"':
                at += 1
                assert at == len(line) or line[at] == " "
                break
            if is_quoted and line[at] == "\\":
                if line[at + 1] == "x":
                    word.append(int(line[at + 2 : at + 4], 16))
                    at += 4
                    continue
                at += 1
                word.append(_ESCAPES.get(line[at], ord(line[at])))
            else:
                word.append(ord(line[at]))
            at += 1
        read.append(bytes(word))
    return read


@given(st.lists(st.binary(max_size=12) | st.sampled_from([b'"', b"\\", b"\\n", b"a b", b"a:b*"])))
def test_redis_cli_reads_the_words_that_were_written_for_it(words_written):
    line = " ".join(map(redis_cli_word, words_written))
    assert line.isascii()
    assert line.isprintable()
    assert read_by_redis_cli(line) == words_written


def test_a_plain_word_is_not_quoted():
    assert redis_cli_word(b"orders:eu") == "orders:eu"


def test_in_quotes_stand_printable_ascii_and_the_escapes_of_all_other_bytes():
    assert redis_cli_word(b'X "\\ ~\x1f\x7f\n\xff') == r'"X \"\\ ~\x1f\x7f\x0a\xff"'
