"""Ten thousand ids, range bounds and commands of each kind: a real server tells which are good,
what they mean, and in which words it refuses the others."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import pytest

from claimlib.errors import IdError, IntervalError, ReplyError, RequestError
from claimlib.semantics.ids import (
    MAX_ID,
    MAX_U64,
    MIN_ID,
    StreamId,
    parse_id,
    parse_range_end,
    parse_range_start,
    predecessor,
    successor,
)
from claimlib.semantics.model import Group, PendingEntry
from claimlib.semantics.words import Stream, execute
from claimlib.testing.server_process import Server
from claimlib.testing.vectors import as_text, text_of
from tests.bad_inputs import BYTE_PIECES, INPUTS, SEED, mutant, mutants, tally

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("client")]

BAD_ID = {"err": "ERR Invalid stream ID specified as stream command argument"}
_CHUNK = 500


# ---- what the server says, word for word ----


def replies(server: Server, commands: Sequence[Sequence[bytes]]) -> Iterator[object]:
    """The replies to many commands, in the form of the recorded vectors."""
    with socket.create_connection((server.host, server.port)) as wire, wire.makefile("rb") as said:
        for at in range(0, len(commands), _CHUNK):
            chunk = commands[at : at + _CHUNK]
            wire.sendall(b"".join(map(_packed, chunk)))
            for _ in chunk:
                yield _reply(said)


def _packed(command):
    words = [b"$%d\r\n%b\r\n" % (len(word), word) for word in command]
    return b"*%d\r\n%b" % (len(words), b"".join(words))


def _reply(said):
    line = said.readline()
    kind, rest = line[:1], line[1:-2]
    if kind == b"-":
        return {"err": text_of(rest)}
    if kind == b"+":
        return text_of(rest)
    number = int(rest)
    if kind == b":" or number < 0:
        return number if kind == b":" else None
    if kind == b"$":
        return text_of(said.read(number + 2)[:-2])
    return [_reply(said) for _ in range(number)]


# ---- ids ----

NUMBERS = [0, 1, 5, 1526569498055, 2**53 + 1, 2**63 - 1, 2**63, MAX_U64]
IDS = [b"%d-%d" % (ms, seq) for ms in NUMBERS for seq in NUMBERS]
IDS += [b"5", b" 5", b"+5-007", b"5--03", b"5--9223372036854775809", b"5\0x", b"0" * 126 + b"5"]
BOUNDS = [*IDS, *(b"(" + id_ for id_ in IDS), b"-", b"+", b"(", b"(-", b"(+", b"-\0", b"+\0x"]
ID_PIECES = [*BYTE_PIECES, b"--", b"-0", b"*", b"$", b"0" * 120, b"-18446744073709551615"]


def test_an_id_is_what_the_server_reads(server: Server, client):
    begun = time.perf_counter()
    client.xgroup_create("s", "g", mkstream=True)
    inputs = mutants("ids", IDS, ID_PIECES)
    ask = (b"XINFO", b"STREAM", b"s")
    commands = [command for raw in inputs for command in ((b"XSETID", b"s", raw), ask)]
    said = replies(server, commands)
    expected = [
        stream[stream.index("last-generated-id") + 1] if done == "OK" else done
        for done, stream in zip(said, said, strict=True)
    ]
    ours = list(map(_id_of, inputs))
    assert ours == [_id_of(raw.decode("utf-8", "surrogateescape")) for raw in inputs]
    good = [not isinstance(answer, dict) for answer in expected]
    tally("ids", good, begun, wrong(inputs, expected, ours))


def _id_of(raw):
    try:
        parsed = parse_id(raw)
    except IdError:
        return BAD_ID
    return str(parsed)


def wrong(inputs, expected, answers):
    return [
        f"{input_!r}: the server says {told!r}, we say {ours!r}"
        for input_, told, ours in zip(inputs, expected, answers, strict=True)
        if told != ours
    ]


# ---- range bounds ----


def test_the_start_of_a_range_is_where_the_server_begins(server: Server):
    check_bounds(server, "starts", parse_range_start, lambda raw: (b"XRANGE", b"s", raw, b"+"))


def test_the_end_of_a_range_is_where_the_server_stops(server: Server):
    check_bounds(server, "ends", parse_range_end, lambda raw: (b"XREVRANGE", b"s", raw, b"-"))


def check_bounds(server, name, parse, read):
    """The server finds the id that we read as a bound, and not its neighbor outside."""
    begun = time.perf_counter()
    inputs = mutants(name, BOUNDS, ID_PIECES)
    bounds = [_bound_of(parse, raw) for raw in inputs]
    is_start = parse is parse_range_start
    scripts = [
        _script(bound, read(raw), is_start) for raw, bound in zip(inputs, bounds, strict=True)
    ]
    said = replies(server, [command for commands in scripts for command in commands])
    last = [[next(said) for _ in commands][-1] for commands in scripts]
    expected = [answer if isinstance(answer, dict) else _first_id(answer) for answer in last]
    ours = [_shown_bound(bound, is_start) for bound in bounds]
    good = [not isinstance(answer, dict) for answer in expected]
    tally(f"range {name}", good, begun, wrong(inputs, expected, ours))


def _bound_of(parse, raw):
    try:
        return parse(raw)
    except IntervalError as error:
        return {"err": f"ERR {error.message}"}
    except IdError:
        return BAD_ID


def _script(bound, read, is_start):
    """The stream with the bound and the id right outside of it; and who is the first in range."""
    if isinstance(bound, dict):
        return [read]
    beside = predecessor if is_start and bound > MIN_ID else successor
    others = {beside(bound)} if is_start or bound < MAX_ID else set()
    ids = sorted({bound, *others} - {MIN_ID})  # where no entry can stand
    adds = [(b"XADD", b"s", str(stream_id).encode(), b"f", b"v") for stream_id in ids]
    return [(b"DEL", b"s"), *adds, (*read, b"COUNT", b"1")]


def _first_id(entries):
    return entries[0][0] if entries else None


def _shown_bound(bound, is_start):
    if isinstance(bound, dict):
        return bound
    if bound == MIN_ID:
        return "0-1" if is_start else None
    return str(bound)


# ---- the words of the commands ----

COMMANDS = {
    name: [name.encode(), name.lower().encode(), name.capitalize().encode()]
    for name in ("XAUTOCLAIM", "XCLAIM", "XPENDING", "XACK")
}
KEYS = [*[b"s"] * 9, b"t", b"", b"a\r\nb", b"\xff"]
GROUPS = [*[b"g"] * 9, b"h", b"", b"g\0x", "é".encode()]
CONSUMERS = [b"me", b"", b"\xff\0"]
MIN_IDLES = [b"0", b"100", b"-5", b"9223372036854775807", b"-9223372036854775808"]
STARTS = [b"-", b"0", b"3-0", b"(3-0", b"(3", b"7", b"+"]
STARTS.append(b"(18446744073709551615-18446744073709551615")
STARTS_OF_RANGES = [b"0", b"(3", *(b"%d-1" % ms for ms in range(30))]
STRICT_IDS = [b"1-0", b"3", b"4-0", b"9-0", b"12-0", b"20-0", b"18446744073709551615"]


@dataclass(frozen=True)
class Form:
    """How a command is written.

    Attributes:
        places: what may stand at each of its first places; the first of each make a good one.
        options: what may stand behind.
        errors: the beginnings of all its errors but the first two, which all commands have.
    """

    places: Sequence[Sequence[bytes]]
    options: Sequence[Sequence[bytes]]
    errors: Collection[str]


CLAIM_NUMBERS = ("IDLE", "TIME", "RETRYCOUNT")
BAD_ID_ERROR = "ERR Invalid stream ID specified as stream command argument"
NO_GROUP = "NOGROUP No such key "
COMMAND_FORMS = {
    "XAUTOCLAIM": Form(
        [COMMANDS["XAUTOCLAIM"], KEYS, GROUPS, CONSUMERS, MIN_IDLES, STARTS],
        [
            *((), (b"COUNT", b"2"), (b"JUSTID",), (b"JUSTID", b"COUNT", b"1")),
            *((b"COUNT", b"5", b"JUSTID"), (b"COUNT", b"1", b"COUNT", b"3"), (b"COUNT",)),
            (b"count", b"576460752303423487", b"justid"),
        ],
        {
            "ERR Invalid min-idle-time argument for XAUTOCLAIM",
            BAD_ID_ERROR,
            "ERR invalid start ID for the interval",
            "ERR COUNT must be > 0",
            "ERR syntax error",
            NO_GROUP,
        },
    ),
    "XCLAIM": Form(
        [COMMANDS["XCLAIM"], KEYS, GROUPS, CONSUMERS, MIN_IDLES, STRICT_IDS],
        [
            *((), (b"5-0", b"5-0"), (b"JUSTID",), (b"FORCE", b"justid"), (b"IDLE", b"1000")),
            *((b"TIME", b"5", b"RETRYCOUNT", b"0"), (b"idle", b"-1", b"TIME", b"-1")),
            *((b"LASTID", b"13-0"), (b"RETRYCOUNT", b"-1", b"FORCE"), (b"3-0", b"LASTID")),
        ],
        {
            "ERR Invalid min-idle-time argument for XCLAIM",
            *(f"ERR Invalid {name} option argument for XCLAIM" for name in CLAIM_NUMBERS),
            "ERR Unrecognized XCLAIM option ",
            BAD_ID_ERROR,
            NO_GROUP,
        },
    ),
    "XPENDING": Form(
        [COMMANDS["XPENDING"], KEYS, GROUPS],
        [
            *((), (b"-", b"+"), (b"-", b"+", b"5", b"dead", b"x", b"y"), (b"-", b"(0-0", b"1")),
            *product((b"-", *STARTS_OF_RANGES), (b"+", b"7", b"(9-0"), (b"10", b"3", b"-1")),
            *product((b"idle",), (b"100", b"-5"), (b"-", b"2"), (b"+", b"8-0"), (b"9", b"1")),
            *product((b"-", b"5"), (b"+", b"11"), (b"10",), (b"dead", b"me")),
            (b"IDLE", b"0", b"4", b"+", b"2", b"dead"),
            (b"(18446744073709551615-18446744073709551615", b"+", b"1"),
        ],
        {
            "ERR value is not an integer or out of range",
            "ERR invalid start ID for the interval",
            "ERR invalid end ID for the interval",
            "ERR syntax error",
            BAD_ID_ERROR,
            NO_GROUP,
        },
    ),
    "XACK": Form(
        [COMMANDS["XACK"], KEYS, GROUPS, STRICT_IDS],
        [(), (b"3-0",), (b"5-0", b"5-0", b"99-0"), (b"4", b"-"), (b"18446744073709551616",)],
        {BAD_ID_ERROR},
    ),
}
WORD_PIECES = [
    b"\n",
    b" ",
    b"\0",
    b"\0x",
    b"+",
    b"-",
    b"0",
    b"1",
    b".5",
    b"(",
    b"\xff",
    b"\xd9\xa5",
]
WORD_PIECES += [
    b"COUNT",
    b"JUSTID",
    b"IDLE",
    b"TIME",
    b"RETRYCOUNT",
    b"LASTID",
    b"FORCE",
    b"x",
    b"_",
]
PENDING = range(1, 13)
GONE = (4, 9)
NO_MEMORY = "ERR Insufficient memory, failed allocating transient memory, COUNT too high."


def commands_with_faults(name: str) -> list[tuple[bytes, ...]]:
    """Different commands: words are changed, moved, missing, doubled or put in."""
    form, rng = COMMAND_FORMS[name], random.Random(f"{SEED} words of {name}")
    first = [place[0] for place in form.places]
    made = {(*first, *options): None for options in form.options}
    while len(made) < INPUTS:
        words = [*map(rng.choice, form.places), *rng.choice(form.options)]
        for _ in range(rng.choice((0, 0, 1, 1, 1, 2, 3))):
            _spoil(rng, words)
        # To no words at all a server says nothing, and TIME is a command of its own.
        if words and words[0].lower() != b"time":
            made[tuple(words)] = None
    return list(made)


def _spoil(rng: random.Random, words: list[bytes]) -> None:
    at = rng.randrange(len(words)) if words else 0
    fault = rng.choice(("change", "change", "case", "move", "drop", "double", "put in", "cut off"))
    word = words.pop(at) if words else b""
    if fault == "change":
        words.insert(at, mutant(rng, word, WORD_PIECES))
    elif fault == "case":
        words.insert(at, word.swapcase())
    elif fault == "move":
        words.insert(rng.randint(0, len(words)), word)
    elif fault == "double":
        words[at:at] = [word, word]
    elif fault == "put in":
        words[at:at] = [word, rng.choice(WORD_PIECES)]
    elif fault == "cut off":
        del words[at:]


@pytest.mark.parametrize("name", COMMAND_FORMS)
def test_a_command_answers_and_refuses_in_the_servers_words(server: Server, client, name):
    begun = time.perf_counter()
    inputs = commands_with_faults(name)
    keyspace, now_ms, dump = stalled_stream(client)
    # Each command meets the same state: none sees what another one changed.
    restore = (b"RESTORE", b"s", b"0", dump, b"REPLACE")
    said = replies(server, [command for words in inputs for command in (restore, words)])
    expected = [
        _as_ours(answer) for restored, answer in zip(said, said, strict=True) if restored == "OK"
    ]
    answers = [_answer(keyspace, words, now_ms) for words in inputs]
    # What this machine has no memory for is a good request all the same.
    scarce = [answer == {"err": NO_MEMORY} for answer in expected]
    expected = [
        ours if is_scarce and "err" not in ours else told
        for told, ours, is_scarce in zip(expected, answers, scarce, strict=True)
    ]
    good = [not isinstance(answer, dict) for answer in expected]
    errors = {answer["err"].partition("'")[0] for answer in expected if isinstance(answer, dict)}
    print(f"{sum(scarce)} for which the server has no memory; errors: {sorted(errors)}")
    tally(f"words of {name}", good, begun, wrong(inputs, expected, answers))
    assert errors == {
        "ERR unknown command ",
        "ERR wrong number of arguments for ",
        *COMMAND_FORMS[name].errors,
    }


def stalled_stream(client):
    """Stream s with twelve entries of group g that have been pending since 1970, two of them gone:
    as a keyspace, the server's clock, and as the server dumps it."""
    for ms in PENDING:
        client.xadd("s", {"f": ms}, id=f"{ms}-0")
    client.xgroup_create("s", "g", id="0")
    client.xreadgroup("g", "dead", {"s": ">"})
    client.xclaim("s", "g", "dead", 0, [f"{ms}-0" for ms in PENDING], time=1, retrycount=1)
    for ms in GONE:
        client.xdel("s", f"{ms}-0")
    pending = tuple(PendingEntry(StreamId(ms, 0), b"dead", 1, 1) for ms in PENDING)
    group = Group(StreamId(PENDING[-1], 0), pending, ())
    entries = {StreamId(ms, 0): (b"f", b"%d" % ms) for ms in PENDING if ms not in GONE}
    seconds, micros = client.time()
    return {b"s": Stream(entries, {b"g": group})}, seconds * 1000 + micros // 1000, client.dump("s")


def _answer(keyspace, words, now_ms):
    try:
        _, reply = execute(keyspace, words, now_ms)
    except ReplyError as error:
        return {"err": error.message}
    except RequestError:
        return {"err": "ERR unknown command '"}
    return _without_idle_times(as_text(reply))


def _as_ours(answer):
    """What the server says; of another command only that it is none."""
    if isinstance(answer, dict) and answer["err"].startswith("ERR unknown command '"):
        return {"err": "ERR unknown command '"}
    return _without_idle_times(answer)


def _without_idle_times(answer):
    """XPENDING's rows tell how long an entry has been idle, and the server's clock goes on."""
    if not isinstance(answer, list):
        return answer
    return [
        [*row[:2], "idle", row[3]] if isinstance(row, list) and len(row) == 4 else row
        for row in answer
    ]
