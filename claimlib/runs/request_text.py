"""Show users the parameters of a request, and the differences of two requests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from claimlib.terminal import listed
from claimlib.times import format_duration_ms, format_instant_ms

_INSTANTS = ("now_ms", "time_ms")
_MOST_DIFFERENCES = 5


def parameter_name(name: str) -> str:
    """Return the name of a parameter without its unit.  The value is shown with a unit."""
    return name.removesuffix("_ms").replace("_", " ")


def parameter_text(name: str, value: object) -> str:
    """Return the value of a parameter in one line."""
    if isinstance(value, int) and not isinstance(value, bool) and name.endswith("_ms"):
        return format_instant_ms(value) if name in _INSTANTS else format_duration_ms(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def differences(earlier: Mapping[str, object], now: Mapping[str, object]) -> str:
    """Return the differences of a request from an earlier one, or an empty text without any.

    A parameter that only one request has counts as None in the other.
    """
    old, new = dict(_leaves(earlier)), dict(_leaves(now))
    changed = [path for path in dict.fromkeys((*old, *new)) if old.get(path) != new.get(path)]
    texts = [
        _difference(path, old.get(path), new.get(path)) for path in changed[:_MOST_DIFFERENCES]
    ]
    return listed(texts, len(changed))


Path = tuple[str, ...]


def _leaves(values: Mapping[str, object], above: Path = ()) -> Iterator[tuple[Path, object]]:
    """Yield the single values of a request, each with the path of names that leads to it.

    In a list of objects, the name of an object is its number, from 1.
    """
    for name, value in values.items():
        parts = value
        if isinstance(value, list) and all(isinstance(part, dict) for part in value):
            parts = {str(number): part for number, part in enumerate(value, start=1)}
        if isinstance(parts, dict):
            yield from _leaves(parts, (*above, name))
        else:
            yield (*above, name), value


def _difference(path: Path, earlier: object, now: object) -> str:
    if path == ("hash",):  # of many single requests, which the request does not contain
        return "ids or values of the single requests are different"
    name = " ".join(map(parameter_name, path))
    return f"{name} was {_value(path[-1], earlier)} and is now {_value(path[-1], now)}"


def _value(name: str, value: object) -> str:
    return "not given" if value is None else parameter_text(name, value)
