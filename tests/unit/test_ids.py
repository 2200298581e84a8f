import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimlib.errors import IdError, IntervalError
from claimlib.semantics.ids import (
    END_OF_SCAN,
    MAX_ID,
    MAX_U64,
    MIN_ID,
    StreamId,
    c_string,
    from_bigint,
    parse_id,
    parse_range_end,
    parse_range_start,
    predecessor,
    successor,
    to_bigint,
)

EDGES = [0, 1, 2**31, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, MAX_U64]
numbers = st.one_of(st.sampled_from(EDGES), st.integers(0, MAX_U64))
stream_ids = st.builds(StreamId, numbers, numbers)

# What Valkey 9.1.2 made of each text.
PARSED = {
    b"5-3": StreamId(5, 3),
    b"5": StreamId(5, 0),
    b"0-0": StreamId(0, 0),
    b"005-003": StreamId(5, 3),
    b" 5": StreamId(5, 0),
    b"\t5-\n3": StreamId(5, 3),
    b"\x0b5-\x0c3": StreamId(5, 3),
    b"\r5": StreamId(5, 0),
    b"+5": StreamId(5, 0),
    b"5-+3": StreamId(5, 3),
    b"18446744073709551615-18446744073709551615": MAX_ID,
    b"9223372036854775808-9007199254740993": StreamId(2**63, 2**53 + 1),
    b"5--0": StreamId(5, 0),
    b"5--03": StreamId(5, 2**64 - 3),
    b"5- -3": StreamId(5, 2**64 - 3),
    b"5--9223372036854775809": StreamId(5, 2**63 - 1),
    b"5--18446744073709551615": StreamId(5, 1),
    b"5\0abc": StreamId(5, 0),
    b"5-3\0x": StreamId(5, 3),
    b"0" * 126 + b"5": StreamId(5, 0),
}
REFUSED = [
    b"",
    b"-",
    b"+",
    b"(",
    b"(5",
    b"abc",
    b"5-",
    b"-5",
    b"-0-5",
    b"--5",
    b"5-*",
    b"*",
    b"5--3",
    b"5--9223372036854775808",
    b"5--18446744073709551616",
    b"5-3-1",
    b"5 ",
    b"5-3 ",
    b"- 5",
    b"1.5",
    b"0x5",
    b"5_0",
    b"\xa05",
    b"\xd9\xa5",  # an Arabic five
    b"18446744073709551616",
    b"5-18446744073709551616",
    b"0" * 127 + b"5",
]


def test_an_id_is_written_with_a_dash():
    assert str(StreamId(1526569498055, 7)) == "1526569498055-7"
    assert str(MAX_ID) == "18446744073709551615-18446744073709551615"


def test_the_end_of_a_scan_is_0_0():
    assert str(END_OF_SCAN) == "0-0"


def test_ids_order_by_both_numbers_without_sign():
    ascending = [MIN_ID, StreamId(0, 2**63), StreamId(2**63 - 1, MAX_U64), StreamId(2**63, 0)]
    assert sorted([*ascending[2:], *ascending[:2]]) == ascending


@pytest.mark.parametrize(("text", "expected"), PARSED.items())
def test_a_text_is_the_id_that_the_server_reads(text, expected):
    assert parse_id(text) == expected
    assert parse_id(text.decode("latin-1")) == expected
    assert parse_range_start(text) == expected


@pytest.mark.parametrize("text", REFUSED)
def test_a_text_that_the_server_refuses_is_no_id(text):
    with pytest.raises(IdError, match="is not a valid stream id"):
        parse_id(text)


def test_a_surrogate_is_no_id_either():
    with pytest.raises(IdError, match="is not a valid stream id"):
        parse_id("5\udcff")


def test_an_id_without_a_sequence_takes_the_given_one():
    assert parse_id("5", default_seq=9) == StreamId(5, 9)
    assert parse_id("5-0", default_seq=9) == StreamId(5, 0)


@settings(deadline=None)
@given(stream_ids)
def test_an_id_written_and_read_is_the_same(stream_id):
    assert parse_id(str(stream_id)) == stream_id


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("5-3", StreamId(5, 3), StreamId(5, 3)),
        ("5", StreamId(5, 0), StreamId(5, MAX_U64)),
        ("-", MIN_ID, MIN_ID),
        ("+", MAX_ID, MAX_ID),
        ("-\0", MIN_ID, MIN_ID),
        ("+\0x", MAX_ID, MAX_ID),
        ("-\0" + "x" * 125, MIN_ID, MIN_ID),
        ("(5-3", StreamId(5, 4), StreamId(5, 2)),
        ("(5", StreamId(5, 1), StreamId(5, MAX_U64 - 1)),
        (f"(5-{MAX_U64}", StreamId(6, 0), StreamId(5, MAX_U64 - 1)),
        ("(5-0", StreamId(5, 1), StreamId(4, MAX_U64)),
        ("(" + "0" * 126 + "5", StreamId(5, 1), StreamId(5, MAX_U64 - 1)),
    ],
)
def test_a_range_bound(text, start, end):
    assert parse_range_start(text) == start
    assert parse_range_end(text) == end


BAD_BOUNDS = ["", "(", "(-", "(+", "((5", "5-", "(5-", "abc", "-\0" + "x" * 126, "(" + "0" * 128]


@pytest.mark.parametrize("parse", [parse_range_start, parse_range_end])
@pytest.mark.parametrize("text", BAD_BOUNDS)
def test_a_text_that_is_no_range_bound(parse, text):
    with pytest.raises(IdError, match="is not a valid stream id"):
        parse(text)


def test_a_bracket_alone_is_named_as_it_is():
    with pytest.raises(IdError, match=r"^'\(' is not a valid stream id"):
        parse_range_start("(")


def test_nothing_comes_after_the_largest_id():
    with pytest.raises(IntervalError, match=r"^invalid start ID for the interval$"):
        parse_range_start(f"({MAX_ID}")


def test_nothing_comes_before_the_smallest_id():
    with pytest.raises(IntervalError, match=r"^invalid end ID for the interval$"):
        parse_range_end("(0-0")


@settings(deadline=None)
@given(stream_ids.filter(lambda stream_id: stream_id != MAX_ID))
def test_the_successor_is_the_next_id(stream_id):
    following = successor(stream_id)
    assert following > stream_id
    assert predecessor(following) == stream_id
    assert following.ms == stream_id.ms or (following.seq == 0 and stream_id.seq == MAX_U64)


@pytest.mark.parametrize(
    ("unsigned", "signed"),
    [(0, 0), (2**63 - 1, 2**63 - 1), (2**63, -(2**63)), (MAX_U64, -1), (2**53 + 1, 2**53 + 1)],
)
def test_a_bigint_has_the_bits_of_the_unsigned_number(unsigned, signed):
    assert to_bigint(unsigned) == signed
    assert from_bigint(signed) == unsigned


@settings(deadline=None)
@given(numbers, numbers)
def test_bigints_with_the_sign_bit_flipped_order_like_the_unsigned_numbers(first, second):
    flipped = [to_bigint(number) ^ -(2**63) for number in (first, second)]
    assert (flipped[0] < flipped[1]) == (first < second)
    assert from_bigint(to_bigint(first)) == first


@pytest.mark.parametrize("number", [-1, 2**64])
def test_a_number_outside_64_bits_has_no_bigint(number):
    with pytest.raises(IdError, match="is not an unsigned 64-bit number"):
        to_bigint(number)


@pytest.mark.parametrize("number", [-(2**63) - 1, 2**63])
def test_a_number_outside_the_bigints_is_refused(number):
    with pytest.raises(IdError, match="is not a signed 64-bit number"):
        from_bigint(number)


def test_a_c_string_ends_at_the_first_nul():
    assert c_string(b"a\0b\0c") == b"a"
    assert c_string(b"abc") == b"abc"
