"""Ten thousand values of a config file, and as many policies with one wrong line: what is wrong is
named with its key, and with its line."""

import json
import random
import re
import time
import tomllib

import pytest

from claimlib.commands.runs import find_run
from claimlib.config.settings import load, load_policy
from claimlib.errors import ConfigError, RequestError
from claimlib.semantics.ids import parse_range_start
from claimlib.semantics.model import COUNT_MAX, IdleRule, Profile
from tests.bad_inputs import BAD, INPUTS, SEED, TEXT_PIECES, HeldFile, mutant, tally
from tests.grammars import duration_ms, is_glob, name_spelled

pytestmark = pytest.mark.timeout(60)

PIECES = [piece for piece in TEXT_PIECES if not "\ud800" <= piece <= "\udfff"]  # none in UTF-8
LITERALS = ["true", "false", "0", "1", "5", "-1", "5.0", "1.0", "1e3", "0.5", "inf", "-inf", "nan"]
LITERALS += ["0x10", "1_000", "9223372036854775807", "9223372036854775808", str(COUNT_MAX)]
LITERALS += [str(COUNT_MAX + 1), "9" * 30, "[]", "[5]", '["a", "b"]', "{}", "{a = 1}"]
LITERALS += ["1979-05-27", "07:32:00"]


# ---- what each key takes ----


def any_text(value):
    return value if isinstance(value, str) else BAD


def whole_number(low, high):
    def meaning(value):
        if isinstance(value, str) and re.fullmatch("-?[0-9]{1,19}", value):
            value = int(value)
        return value if type(value) is int and low <= value <= high else BAD

    return meaning


def positive(value):
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,19}(\.[0-9]{1,19})?", value):
        value = float(value)
    return float(value) if type(value) in {int, float} and value > 0 else BAD


def yes_or_no(value):
    words = {"true": True, "yes": True, "on": True, "t": True, "y": True, "1": True}
    words |= {"false": False, "no": False, "off": False, "f": False, "n": False, "0": False}
    if isinstance(value, str):
        return words.get(value.lower(), BAD) if value.isascii() else BAD
    return bool(value) if isinstance(value, int | float) and value in {0, 1} else BAD


def text_by(grammar):
    def meaning(value):
        return grammar(value) if isinstance(value, str) else BAD

    return meaning


def names(value):
    """One name, or a list of some."""
    spelled = value if isinstance(value, list) else [value]
    read = [name_spelled(name) if isinstance(name, str) else BAD for name in spelled]
    return tuple(read) if read and BAD not in read else BAD


def glob(text):
    return text if is_glob(text) is True else BAD


def start(text):
    try:
        parse_range_start(text)
    except RequestError:
        return BAD
    return text


def one_of(choices):
    return lambda value: value if value in [*choices] and isinstance(value, str) else BAD


XAUTOCLAIM = {
    "consumer": (names, ["c", r"a\\b", r"\xff", ""]),
    "min_idle": (text_by(duration_ms), ["15m", "1h30m", "0ms", "7d"]),
    "stream": (text_by(glob), ["*", "orders:*", "[a-c]?", r"\[x"]),
    "group": (text_by(glob), ["g", "[^x]*"]),
    "start": (text_by(start), ["5-3", "-", "+", "(7", "1526569498055-0"]),
    "count": (whole_number(1, COUNT_MAX), ["1", "100", str(COUNT_MAX)]),
    "cursor": (any_text, ["nightly"]),
    "justid": (yes_or_no, ["true", "NO", "off", "1"]),
    "idle_rule": (one_of(IdleRule), list(map(str, IdleRule))),
    "profile": (one_of(Profile), list(map(str, Profile))),
}
KEYS = {("xautoclaim", key): told for key, told in XAUTOCLAIM.items()}
KEYS |= {
    ("spark", "master"): (any_text, ["local[*]"]),
    ("spark", "driver_memory"): (any_text, ["4g"]),
    ("spark", "shuffle_partitions"): (whole_number(1, 2**31 - 1), ["4", "200"]),
    ("snapshot", "stream"): (text_by(glob), ["*", "a[b]c"]),
    ("snapshot", "group"): (text_by(glob), ["g?"]),
    ("snapshot", "fields"): (yes_or_no, ["true", "f", "Yes", "0"]),
    ("snapshot", "max_commands_per_second"): (positive, ["500", "0.5", "1e3"]),
}
SECTIONS = ("spark", "snapshot", "xautoclaim")


def some_value(rng, valid):
    """A value as TOML writes it: a text with up to three faults, or a literal of any kind."""
    if rng.random() < 0.3:
        return rng.choice(LITERALS)
    text = rng.choice(valid)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        text = mutant(rng, text, PIECES)
    return json.dumps(text, ensure_ascii=False)


# ---- config files ----


def written(values):
    return "".join(
        f"[{section}]\n"
        + "".join(f"{key} = {value}\n" for (at, key), value in values.items() if at == section)
        for section in SECTIONS
    )


def resolved(config, section, key):
    name = "min_idle_ms" if key == "min_idle" else key
    return getattr(getattr(config, section), name)


def faulty_keys(file):
    """The keys that an error names."""
    try:
        load(file)
    except ConfigError as error:
        return {key for key in KEYS if f"{'.'.join(key)} in {file}: " in error.message}
    return set()


def test_each_wrong_value_of_a_config_file_is_named_and_the_others_mean_what_they_say():
    begun = time.perf_counter()
    rng = random.Random(f"{SEED} config")
    file = HeldFile("some.toml")
    good, wrong = [], []
    while len(good) < INPUTS:
        values = {key: some_value(rng, valid) for key, (_, valid) in KEYS.items()}
        file.data = written(values).encode()
        named = faulty_keys(file)
        tables = tomllib.loads(written(values))
        meanings = {key: KEYS[key][0](tables[key[0]][key[1]]) for key in KEYS}
        usable = {key: values[key] for key in KEYS if meanings[key] is not BAD}
        wrong += [f"{key} = {values[key]}" for key in named ^ (set(KEYS) - set(usable))]
        if not wrong:
            file.data = written(usable).encode()
            config = load(file)
            read = {key: resolved(config, *key) for key in usable}
            wrong += [f"{key}: {read[key]!r}" for key in usable if read[key] != meanings[key]]
        good += [key in usable for key in KEYS]
    tally("values of config files", good, begun, wrong)


# ---- policies ----

COMMENTS = ["# a policy", "# of two \u2028 lines?", "# '''", '# """', ""]
A_STRING_OF_LINES = "group = '''\n[[request]]\nstart = 5\nconsumer = 5\nmin_idle = 5'''"
COMPLETE = {"consumer": '"c"', "min_idle": '"15m"'}


def some_policy(rng):
    """The lines of a policy, each with its key (null: no key) and with where its request begins."""
    lines = [(rng.choice(COMMENTS), None, 0) for _ in range(rng.randint(0, 2))]
    for _ in range(rng.randint(1, 2)):
        head = len(lines)
        lines.append(("[[request]]", None, head))
        others = rng.sample([key for key in XAUTOCLAIM if key not in COMPLETE], rng.randint(0, 3))
        keys = [*COMPLETE, *others]
        rng.shuffle(keys)
        if "group" not in keys and rng.random() < 0.2:
            lines.append((A_STRING_OF_LINES, None, head))
        for key in keys:
            value = COMPLETE.get(key) or json.dumps(rng.choice(XAUTOCLAIM[key][1]))
            lines.append((f"{key} = {value}", key, head))
    return lines


def is_policy(text):
    """Whether a text is TOML with complete requests, all of whose values can be used."""
    try:
        tables = tomllib.loads(text)
    except ValueError:
        return False
    requests = tables.get("request")
    if set(tables) != {"request"} or not isinstance(requests, list) or not requests:
        return False
    return all(isinstance(request, dict) and is_request(request) for request in requests)


def is_request(table):
    if not set(COMPLETE) <= set(table) <= set(XAUTOCLAIM) or table["consumer"] == "":
        return False
    return all(XAUTOCLAIM[key][0](value) is not BAD for key, value in table.items())


def number_of(lines, at):
    """The number (from 1) of the line at which one of them begins: some are of several lines."""
    return 1 + sum(line.count("\n") + 1 for line in lines[:at])


def fault_of(text):
    """The line that is named as faulty: 0 where none is, null where the policy is taken."""
    file = HeldFile("some.toml")
    file.data = text.encode()
    try:
        load_policy(file)
    except ConfigError as error:
        line = error.fields.get("line", 0)
        return line if not line or f"some.toml, line {line}, " in error.message else "not said"
    return None


def wrong_value(rng):
    """A policy with another value in one line, and that line's number."""
    policy = some_policy(rng)
    lines = [line for line, _, _ in policy]
    at = rng.choice([n for n, (_, key, _) in enumerate(policy) if key])
    key = policy[at][1]
    written = rng.choice((key, key, f'"{key}"', f"  '{key}'"))
    lines[at] = f"{written} = {some_value(rng, XAUTOCLAIM[key][1])}"
    return "\n".join(lines), {number_of(lines, at)}


def spoilt_line(rng):
    """A policy with faults in one line, and the numbers of the lines that may be named for it."""
    policy = some_policy(rng)
    lines = [line for line, _, _ in policy]
    at = rng.randrange(len(lines))
    for _ in range(rng.choice((1, 1, 2))):
        lines[at] = mutant(rng, lines[at], [*PIECES, "'''", '"""', "[[request]]"])
    first = number_of(lines, at)
    # What the line no longer says is missing from its request; TOML's own faults have no number.
    head = number_of(lines, policy[at][2])
    return "\n".join(lines), {0, head, *range(first, first + 1 + lines[at].count("\n"))}


def test_the_faulty_line_of_a_policy_is_named():
    begun = time.perf_counter()
    rng = random.Random(f"{SEED} policies")
    good, wrong = [], []
    for n in range(INPUTS):
        text, faulty = (wrong_value if n % 2 else spoilt_line)(rng)
        good.append(is_policy(text))
        expected = {None} if good[-1] else faulty
        if (line := fault_of(text)) not in expected:
            wrong.append(f"line {expected} expected, {line} found:\n{text}")
    tally("policies", good, begun, wrong)


# ---- names of runs ----


@pytest.mark.parametrize(
    "name", ["x", "-1", "+7", " 7", "7\n", "\u0667", "9" * 19, "9" * 5000, "\udcff"]
)
def test_a_name_that_no_run_has_is_refused(store, name):
    with pytest.raises(RequestError, match="has no finished run"):
        find_run(store, name)


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_of_a_run_is_refused_before_the_store_is_read(name):
    with pytest.raises(RequestError, match="the name of the run is empty"):
        find_run(None, name)
