"""Ten thousand vector files with faults: a bad one is refused with the place of its fault."""

import json
import random
import time
from itertools import pairwise

import pytest

from claimlib.errors import ConfigError, IdError
from claimlib.semantics.ids import parse_id
from claimlib.semantics.model import IdleRule, Profile
from claimlib.testing.vectors import steps
from tests.bad_inputs import BAD, INPUTS, SEED, TEXT_PIECES, HeldFile, mutants, tally

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

GROUP = {
    "name": "g",
    "last_delivered_id": "5-0",
    "pending": [
        {"id": "1-0", "consumer": "c", "delivery_time_ms": 4, "delivery_count": 1},
        {"id": "2-7", "consumer": None, "delivery_time_ms": 5, "delivery_count": 2},
    ],
    "consumers": [
        {"name": "a", "seen_time_ms": 4, "active_time_ms": None},
        {"name": "c", "seen_time_ms": 4, "active_time_ms": 4},
    ],
}
FILE = {
    "profile": "redis-7.2",
    "idle_rule": "server",
    "vectors": [
        {
            "name": "one",
            "now_ms": 10,
            "before": {"entries": [["1-0", ["f", "v"]], ["2-7", []]], "groups": [GROUP]},
            "steps": [
                {
                    "command": ["XAUTOCLAIM", "s"],
                    "reply": ["0-0", [["1-0", ["f", 7]]], None],
                    "after": {"groups": [GROUP, {**GROUP, "name": "h", "pending": []}]},
                },
                {"command": ["XACK"], "reply": {"err": "ERR no"}, "after": {"groups": []}},
            ],
        }
    ],
}
VALUES = [
    None,
    True,
    -1,
    0,
    5,
    1.5,
    2**63 - 1,
    2**63,
    "",
    "x",
    "é",
    "\udcff",
    "\ud800",
    "7-7",
    "2-7",
]
VALUES += ["5-", "server", "redis-7.0", [], ["x"], [["1-0", ["f", "v", "w"]]], {}, {"err": 5}]


# ---- what a vector file is ----


def is_text(value):
    try:
        return isinstance(value, str) and value.encode("utf-8", "surrogateescape") is not None
    except UnicodeEncodeError:
        return False


def is_number(value):
    return type(value) is int and 0 <= value < 2**63


def is_id(value):
    try:
        return is_text(value) and parse_id(value) is not None
    except IdError:
        return False


def is_reply(value):
    if isinstance(value, list):
        return all(map(is_reply, value))
    return value is None or type(value) is int or is_text(value)


def or_null(is_good):
    return lambda value: value is None or is_good(value)


ENTRY_OF_PEL = {"id": is_id, "consumer": or_null(is_text)}
ENTRY_OF_PEL |= {"delivery_time_ms": is_number, "delivery_count": is_number}
CONSUMER = {"name": is_text, "seen_time_ms": is_number, "active_time_ms": or_null(is_number)}
GROUP_FORM = {"name": is_text, "last_delivered_id": is_id}
GROUP_FORM |= {"pending": [ENTRY_OF_PEL], "consumers": [CONSUMER]}


def fits(form, value):
    """Whether a value is as a form says: an object with such members, a list of such, or such."""
    if isinstance(form, dict):
        return isinstance(value, dict) and all(
            k in value and fits(f, value[k]) for k, f in form.items()
        )
    if isinstance(form, list):
        return isinstance(value, list) and all(fits(form[0], member) for member in value)
    return form(value)


def are_groups(value):
    if not fits([GROUP_FORM], value) or len({group["name"] for group in value}) < len(value):
        return False
    pels = [[parse_id(entry["id"]) for entry in group["pending"]] for group in value]
    names = [
        [consumer["name"].encode("utf-8", "surrogateescape") for consumer in group["consumers"]]
        for group in value
    ]
    return all(key < following for keys in (*pels, *names) for key, following in pairwise(keys))


def is_entry(value):
    if not isinstance(value, list) or len(value) != 2:
        return False
    return is_id(value[0]) and fits([is_text], value[1])


def are_entries(value):
    is_entry = isinstance(value, list) and all(
        isinstance(entry, list) and len(entry) == 2 for entry in value
    )
    if not is_entry or not all(
        is_id(entry_id) and fits([is_text], fields) for entry_id, fields in value
    ):
        return False
    ids = {parse_id(entry_id) for entry_id, _ in value}
    return len(ids) == len(value) and all(len(fields) % 2 == 0 for _, fields in value)


STEP = {
    "command": lambda value: fits([is_text], value) and value != [],
    "reply": lambda value: fits({"err": is_text}, value) or is_reply(value),
    "after": {"groups": are_groups},
}
BEFORE = {"entries": are_entries, "groups": are_groups}
FORM = {
    "profile": lambda value: value in [*Profile],
    "idle_rule": lambda value: value in [*IdleRule],
    "vectors": [{"name": is_text, "now_ms": is_number, "before": BEFORE, "steps": [STEP]}],
}


def number_of_steps(recorded):
    """How many steps a file has, if it is a vector file."""
    if not fits(FORM, recorded):
        return BAD
    return sum(len(vector["steps"]) for vector in recorded["vectors"])


# ---- faults in the values: the place is known ----


def places(value, place=()):
    yield place
    inside = dict(enumerate(value)) if isinstance(value, list) else value
    if isinstance(inside, dict):
        for key, member in inside.items():
            yield from places(member, (*place, key))


def spoilt(rng):
    """The file with one value changed, doubled or dropped, and the place of that."""
    recorded = json.loads(WRITTEN)
    *above, last = place = rng.choice(PLACES)
    holder = recorded
    for key in above:
        holder = holder[key]
    fault = rng.choice(("change", "change", "change", "drop", "double"))
    if fault == "drop":
        del holder[last]
    elif fault == "double" and isinstance(holder, list):
        holder.insert(last, holder[last])
    else:
        holder[last] = rng.choice(VALUES)
    return recorded, place


WRITTEN = json.dumps(FILE)
PLACES = [place for place in places(FILE) if place]


def written(place):
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place).lstrip(".")


def answer(file):
    try:
        return len(list(steps(file))), None
    except ConfigError as error:
        is_said = str(file) in error.message and error.place in error.message
        return BAD, error.place if is_said else "no place"


def is_around(named, place):
    """Whether the faulty place is named, one inside, or one that holds it: three above at most."""
    above = [written(place[: len(place) - n]) for n in range(4)]
    return named is None or named in above or named.startswith(above[0])


@pytest.mark.parametrize(
    ("fault", "place"),
    [
        ({"vectors": 5}, "vectors"),
        ({"vectors": [[]]}, r"vectors\[0\]"),
        ({"profile": "redis-6"}, "profile"),
        ({"vectors": [{**FILE["vectors"][0], "now_ms": "10"}]}, r"vectors\[0\]\.now_ms"),
        ({"vectors": [{**FILE["vectors"][0], "now_ms": 10.0}]}, r"vectors\[0\]\.now_ms"),
        (
            {"vectors": [{**FILE["vectors"][0], "steps": [{"command": []}]}]},
            r"vectors\[0\]\.steps\[0\]",
        ),
    ],
)
def test_file_and_place_of_a_fault_are_named(tmp_path, fault, place):
    file = tmp_path / "some.json"
    file.write_text(json.dumps(FILE | fault), encoding="utf-8")
    with pytest.raises(
        ConfigError, match=rf"some\.json is not a vector file: at {place} there must be"
    ):
        list(steps(file))


# ---- faults in the text ----


def meaning(text):
    """What a text is as JSON without repeated keys, and as a vector file."""

    def once(pairs):
        if len(dict(pairs)) < len(pairs):
            raise ValueError
        return dict(pairs)

    try:
        text.encode()
        return number_of_steps(json.loads(text, object_pairs_hook=once))
    except ValueError:
        return BAD


def spoilt_texts(inputs):
    vector = FILE["vectors"][0]
    short = {**vector, "name": "what it is about: the second step", "steps": vector["steps"][1:]}
    valid = [json.dumps({**FILE, "vectors": v}, indent=n) for v in ([], [short]) for n in (None, 1)]
    valid += [json.dumps({**FILE, "vectors": [{**short, "name": "n" * n}]}) for n in (100, 1000)]
    pieces = [*TEXT_PIECES, *'{}[]":,', "null", "NaN", "-Infinity", '"name": "x",', "\\ud800"]
    return mutants("vector files", valid, pieces, inputs=inputs)


def test_what_is_no_vector_file_is_refused_and_a_wrong_value_with_its_place():
    begun = time.perf_counter()
    rng = random.Random(f"{SEED} vectors")
    values = [spoilt(rng) for _ in range(INPUTS // 2)]
    inputs = [(json.dumps(recorded), number_of_steps(recorded), at) for recorded, at in values]
    inputs += [(text, meaning(text), None) for text in spoilt_texts(INPUTS // 2)]
    file = HeldFile("some.json")
    wrong = []
    for text, expected, place in inputs:
        file.data = text.encode("utf-8", "surrogatepass")
        answered, named = answer(file)
        # What is missing, doubled or out of order is a fault of what holds it, or holds that.
        if answered != expected or not (place is None or is_around(named, place)):
            wrong.append(f"{place}: {expected} expected, {answered} at {named}; {text}")
    tally("vector files", [expected is not BAD for _, expected, _ in inputs], begun, wrong)


def test_a_key_that_stands_twice_is_refused(tmp_path):
    file = tmp_path / "some.json"
    file.write_text(f'{WRITTEN[:-1]}, "profile": "redis-7.0"}}', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"some\.json is not a vector file: .*profile"):
        list(steps(file))


def test_a_text_that_nests_deeper_than_python_reads_is_refused(tmp_path):
    file = tmp_path / "some.json"
    for depth in (500, 100_000):
        deep = "[" * depth + "]" * depth
        file.write_text(json.dumps(FILE).replace("null]", f"{deep}, true]"), encoding="utf-8")
        with pytest.raises(ConfigError, match="is not a vector file"):
            list(steps(file))
