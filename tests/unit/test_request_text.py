"""How two requests differ, for people."""

import pytest

from claimlib.runs.request_text import differences

REQUEST = {"consumer": "c", "min_idle_ms": 60_000, "now_ms": None}


@pytest.mark.parametrize(
    ("earlier", "now", "expected"),
    [
        (REQUEST, REQUEST, ""),
        (REQUEST, {"consumer": "c", "min_idle_ms": 60_000}, ""),
        (REQUEST, REQUEST | {"consumer": "d"}, "consumer was c and is now d"),
        (REQUEST, REQUEST | {"now_ms": 0}, "now was not given and is now 1970-01-01T00:00:00.000Z"),
        (REQUEST | {"justid": True}, REQUEST, "justid was true and is now not given"),
        (
            {"to": ["a"], "policy": [REQUEST, REQUEST]},
            {"to": ["a", "b"], "policy": [REQUEST, REQUEST | {"min_idle_ms": 900_000}]},
            'to was ["a"] and is now ["a", "b"], policy 2 min idle was 1m and is now 15m',
        ),
        (
            dict.fromkeys("abcdefg", 1),
            {},
            ", ".join(f"{name} was 1 and is now not given" for name in "abcde") + " and 2 more",
        ),
    ],
)
def test_only_parameters_that_differ_are_named(earlier, now, expected):
    assert differences(earlier, now) == expected
