import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimlib.errors import DurationError, InstantError
from claimlib.times import (
    MAX_MS,
    format_duration_ms,
    format_instant_ms,
    parse_duration_ms,
    parse_instant_ms,
    round_duration_ms,
    suspected_unit,
)

EDGES = [0, 1, 999, 1000, 59_999, 60_000, 2**53, 2**53 + 1, MAX_MS - 1, MAX_MS]
milliseconds = st.one_of(st.sampled_from(EDGES), st.integers(0, 10**14), st.integers(0, MAX_MS))


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("250ms", 250),
        ("90s", 90_000),
        ("15m", 900_000),
        ("1h30m", 5_400_000),
        ("2d", 172_800_000),
        ("1w", 604_800_000),
        ("0ms", 0),
        ("0s", 0),
        ("90m", 5_400_000),
        ("007s", 7000),
        ("0" * 5000 + "7s", 7000),
        ("1m1ms", 60_001),
        ("1w2d3h4m5s6ms", 788_645_006),
        (f"{MAX_MS}ms", MAX_MS),
    ],
)
def test_a_duration_is_so_many_milliseconds(text, ms):
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["0", "15", "1.5", "-1", "+5"])
def test_a_number_without_a_unit_is_refused_and_the_message_says_why(text):
    with pytest.raises(DurationError, match="give a unit, as in"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "m", "ms", "1x", "1m2", "1.5h", "-15m", "15M", "15 m", " 15m", "15m ", "15m\n"),
        *("30m1h", "1h1h", "2ms3m", "1_0m", "\u0665m", "99999999999999999999ms"),
    ],
)
def test_a_text_that_is_no_duration_is_refused(text):
    with pytest.raises(DurationError, match="is not a valid duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize("text", [f"{MAX_MS + 1}ms", "9999999999999999999w", f"{MAX_MS}s"])
def test_a_duration_above_the_largest_is_refused(text):
    with pytest.raises(DurationError, match="more than 2\\^63-1 ms"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0ms"),
        (250, "250ms"),
        (900_000, "15m"),
        (5_400_000, "1h30m"),
        (10_855_000, "3h0m55s"),
        (604_800_005, "1w0d0h0m0s5ms"),
        (788_645_006, "1w2d3h4m5s6ms"),
        (-5000, "-5s"),
    ],
)
def test_a_duration_is_written_with_units(ms, text):
    assert format_duration_ms(ms) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0ms"),
        (999, "999ms"),
        (1000, "1s"),
        (59_999, "59s"),
        (60_000, "1m0s"),
        (119_999, "1m59s"),
        (3_600_000, "1h0m"),
        (10_855_000, "3h0m"),
        (14_399_999, "3h59m"),
        (86_400_000, "1d0h"),
        (604_799_999, "6d23h"),
        (604_800_000, "1w0d"),
        (788_645_006, "1w2d"),
        (-5000, "-5000ms"),
    ],
)
def test_a_rounded_duration_has_two_neighboring_units(ms, text):
    assert round_duration_ms(ms) == text


@settings(deadline=None)
@given(milliseconds)
def test_a_duration_written_and_read_is_the_same(ms):
    assert parse_duration_ms(format_duration_ms(ms)) == ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-01-01T00:00:00Z", 1_767_225_600_000),
        ("2026-01-01T01:00:00+01:00", 1_767_225_600_000),
        ("2025-12-31T18:30:00.250-05:30", 1_767_225_600_250),
        ("2026-01-01 00:00:00.001Z", 1_767_225_600_001),
        ("2026-01-01T00:00:00.001999Z", 1_767_225_600_001),
        ("1970-01-01T00:00:00Z", 0),
        ("1767225600000", 1_767_225_600_000),
        ("0", 0),
        ("999999999", 999_999_999),
        ("100000000000", 100_000_000_000),
        ("253402300799999", 253_402_300_799_999),
        ("0" * 5000 + "7", 7),
        ("20260101T000000,5Z", 1_767_225_600_500),
        ("2026-W01-4 01+01", 1_767_225_600_000),
    ],
)
def test_an_instant_is_so_many_milliseconds_since_the_epoch(text, ms):
    assert parse_instant_ms(text) == ms


@pytest.mark.parametrize("text", ["2026-01-01T00:00:00", "20260101T12", "2026-01-01 12:00"])
def test_an_instant_without_a_zone_is_refused_and_the_message_says_why(text):
    with pytest.raises(InstantError, match="has no time zone: add one"):
        parse_instant_ms(text)


@pytest.mark.parametrize(
    ("text", "day"),
    [("2026-01-01", "2026-01-01"), ("2026-W01-4", "2026-01-01"), ("1970-01-01", "1970-01-01")],
)
def test_a_date_without_a_time_of_day_is_refused_with_a_time_that_can_be_given(text, day):
    with pytest.raises(InstantError, match=f"^'{text}' has no time of day: write {day}T00:00:00Z$"):
        parse_instant_ms(text)


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("20260101", "2026-01-01"),
        ("19700101", "1970-01-01"),
        ("21001231", "2100-12-31"),
        ("20240229", "2024-02-29"),
        ("0020260101", "2026-01-01"),
    ],
)
def test_eight_digits_that_are_a_date_are_refused_with_the_time_that_is_meant(text, day):
    with pytest.raises(InstantError, match=f"it looks like a date; write {day}T00:00:00Z$"):
        parse_instant_ms(text)


@pytest.mark.parametrize(
    "text", ["19691231", "21010101", "20261301", "20260001", "20230229", "20260100", "2026010"]
)
def test_numbers_that_are_no_date_count_milliseconds(text):
    assert parse_instant_ms(text) == int(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "2026-13-01T00:00:00Z", "-5", "1.5", "1e3", "9" * 20, "\u0665", "5\n"),
        *("2026-01-01T00:00:00(Z", "2026-01-01T00:00:000Z", "2026-01-01T0:00:00Z"),
        *("20260101T00000Z", "2026-W01-4T122Z", "2026-01-01\n00:00:00Z", "2026-01-01x00:00Z"),
        *("2026-01-01T24:00:00Z", "2026-01-01T00:00:00+01:75", "2026-01-01T00:00:00+24:00"),
    ],
)
def test_a_text_that_is_no_instant_is_refused(text):
    with pytest.raises(InstantError, match="is not a valid time"):
        parse_instant_ms(text)


@pytest.mark.parametrize(
    "text", ["1969-12-31T23:59:59.999Z", "0001-01-01T00:00:00+01:00", "1969-12-31"]
)
def test_an_instant_before_the_epoch_is_refused(text):
    with pytest.raises(InstantError, match="is before 1970"):
        parse_instant_ms(text)


@pytest.mark.parametrize(
    ("text", "unit", "instead"),
    [
        ("1000000000", "seconds", "1000000000000"),
        ("1767225600", "seconds", "1767225600000"),
        ("99999999999", "seconds", "99999999999000"),
        ("253402300800000", "microseconds", "an ISO 8601 time"),
        ("1767225600000000", "microseconds", "1767225600000"),
        ("1767225600000000000", "nanoseconds", "1767225600000"),
        (str(2**63), "nanoseconds", "9223372036854"),
        ("1" * 18, "nanoseconds", "an ISO 8601 time"),
    ],
)
def test_a_number_in_another_unit_than_ms_is_refused_with_the_number_that_is_meant(
    text, unit, instead
):
    with pytest.raises(InstantError, match=f"looks like .*{unit}.*; write {instead}"):
        parse_instant_ms(text)


@pytest.mark.parametrize(
    ("number", "when", "unit", "instead"),
    [
        ("1767225600", "1970-01-21T10:53:45.600Z", "seconds", "1767225600000, or "),
        (
            "1767225600000001",
            "after the year 9999",
            "microseconds or nanoseconds",
            "1767225600000, or ",
        ),
        ("1" * 18, "after the year 9999", "microseconds or nanoseconds", ""),
    ],
)
def test_the_message_about_another_unit_names_the_instant_the_unit_and_what_to_write(
    number, when, unit, instead
):
    with pytest.raises(InstantError) as raised:
        parse_instant_ms(number)
    assert raised.value.message == (
        f"'{number}' counts milliseconds since 1970, and would be {when}: it looks like {unit};"
        f" write {instead}an ISO 8601 time as 2026-01-01T00:00:00Z"
    )


@pytest.mark.parametrize(
    ("low", "high", "unit"),
    [
        (10**9, 10**11 - 1, "seconds"),
        (10**9 - 1, 10**9, None),
        (10**9, 10**11, None),
        (253_402_300_799_999, 253_402_300_800_000, None),
        (253_402_300_800_000, 253_402_300_800_001, "microseconds or nanoseconds"),
    ],
)
def test_times_have_another_unit_if_the_first_and_the_last_look_like_it(low, high, unit):
    assert suspected_unit(low, high) == unit


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_767_225_600_250, "2026-01-01T00:00:00.250Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "253402300800000 ms"),
        (MAX_MS, "9223372036854775807 ms"),
        (-MAX_MS, "-9223372036854775807 ms"),
    ],
)
def test_an_instant_is_written_in_utc_with_milliseconds(ms, text):
    assert format_instant_ms(ms) == text


@settings(deadline=None)
@given(st.integers(0, 253_402_300_799_999))
def test_an_instant_written_and_read_is_the_same(ms):
    assert parse_instant_ms(format_instant_ms(ms)) == ms
