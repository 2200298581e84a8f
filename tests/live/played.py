"""A sequence (`sequences`) on a real server: every command that was sent, its reply, and the whole
state after it.

`play`: all of it is one transaction, for which the server's clock stands still (Redis 7.2 and
later, Valkey).  Scripts send the commands, as they alone know the instant and the cursors; XPENDING
and the states are read outside of them, as numbers in Lua are exact up to 2^53 only.

`play_on`: each command is sent by itself, between two looks at the server's clock, which goes on
(Redis 7.0 also within a transaction).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import Any

from claimlib.demo.oracle import group_state, saturated
from claimlib.semantics.ids import END_OF_SCAN, parse_id
from claimlib.semantics.model import DEFAULT_COUNT, IdleRule, Profile
from claimlib.semantics.words import Stream
from claimlib.testing.vectors import KEY, Step, as_text
from tests.live.sequences import Sequence
from tests.live.times import Words
from tests.live.wire import Wire

COMMANDS = (b"XAUTOCLAIM", b"XCLAIM", b"XPENDING", b"XACK")
"""What the reference answers; the other commands only change what a stream holds."""

# KEYS: the stream, and where the last cursor stands.  ARGV: commands, each as the number of its
# words and its words.  Returned: the instant; for each command (but DATE, and AGAIN at the end of
# a scan) the words that were sent, and the reply or the error.
_SCRIPT = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stream = KEYS[1]

local function ms_of(word)
  local ms = word:match('^@now([+-]%d+)$')
  return ms and now + tonumber(ms)
end

local function meant(word)
  if word == '@cursor' then return redis.call('GET', KEYS[2]) or '0-0' end
  local ms = ms_of(word)
  return ms and string.format('%.0f', ms) or word
end

-- A time as the server's dump has it.
local function eight_bytes(ms)
  local bytes = {}
  for i = 1, 8 do
    bytes[i] = string.char(ms % 256)
    ms = math.floor(ms / 256)
  end
  return table.concat(bytes)
end

-- DATE stream bytes time [time]: writes the times (`@now` or eight bytes) behind the bytes, where
-- the present instant stands.
local function date(words)
  local dump, times = redis.call('DUMP', stream), {}
  for i = 4, #words do
    local ms = ms_of(words[i])
    times[#times + 1] = ms and eight_bytes(ms) or words[i]
  end
  local place = words[3] .. eight_bytes(now)
  local first, last = dump:find(place, 1, true)
  assert(first and not dump:find(place, last + 1, true), 'not found once')
  local dated = dump:sub(1, last - 8) .. table.concat(times) .. dump:sub(last - 7 + 8 * #times)
  redis.call('RESTORE', stream, 0, dated, 'REPLACE')
end

local answers = {}

local function send(words)
  for i = 1, #words do words[i] = meant(words[i]) end
  local reply = redis.pcall(unpack(words))
  local refusal = type(reply) == 'table' and reply.err or false
  if words[1] == 'XAUTOCLAIM' and not refusal then redis.call('SET', KEYS[2], reply[1]) end
  answers[#answers + 1] = {words, not refusal and reply, refusal}
end

-- AGAIN XAUTOCLAIM …: from the last cursor on, unless there is none.
local function again(words)
  local cursor = meant('@cursor')
  if cursor ~= '0-0' then
    words[7] = cursor
    send({unpack(words, 2)})
  end
end

local at = 1
while at <= #ARGV do
  local words = {unpack(ARGV, at + 1, at + ARGV[at])}
  at = at + #words + 1
  if words[1] == 'DATE' then
    date(words)
  elseif words[1] == 'AGAIN' then
    again(words)
  else
    send(words)
  end
end
return {now, answers}
"""
_CURSOR = b"cursor"


@dataclass(frozen=True, slots=True)
class Sent:
    """One command.

    Attributes:
        number: of its step.
        between_ms: the server's clock before and after it; twice the same where it stands still.
        before, after: the stream.
        words: what was sent.
        reply: what the server said; an error is `{"err": message}`.
    """

    number: int
    between_ms: tuple[int, int]
    before: Stream
    words: Words
    reply: Any
    after: Stream

    @property
    def is_refused(self) -> bool:
        """Whether the server replied an error."""
        return isinstance(self.reply, dict)


@dataclass(frozen=True, slots=True)
class Played:
    """A sequence as a server played it, from `now_ms` on."""

    sequence: Sequence
    now_ms: int
    profile: Profile
    sent: tuple[Sent, ...]

    def steps(self, name: str) -> Iterator[Step]:
        """Each command that the reference answers, and each sweep as a whole."""
        return (step for _, step in self.answered(name))

    def answered(self, name: str) -> Iterator[tuple[tuple[int, ...], Step]]:
        """The same, with the places of its commands in `sent`."""
        for number, one_step in groupby(enumerate(self.sent), key=lambda placed: placed[1].number):
            places, calls = zip(*one_step, strict=True)
            if calls[0].words[0] not in COMMANDS:
                continue
            where = f"{name} / {number}"
            for at, (place, call) in enumerate(zip(places, calls, strict=True), start=1):
                yield (place,), self._step(where, at, call)
            if self.is_sweep(number):
                yield places, self._step(where, 0, _as_one(calls), is_sweep=True)

    def is_sweep(self, number: int) -> bool:
        """Whether a step is a sweep."""
        return self.sequence.steps[number - 1][0] == b"SWEEP"

    def _step(self, name: str, call: int, sent: Sent, *, is_sweep: bool = False) -> Step:
        return Step(
            vector=name,
            number=call,
            now_ms=sent.between_ms[0],
            idle_rule=IdleRule.SERVER,
            profile=self.profile,
            before={KEY: sent.before},
            command=sent.words,
            reply=as_text(sent.reply),
            after={KEY: sent.after},
            is_sweep=is_sweep,
        )


# ---- a clock that stands still ----


def play(wire: Wire, sequence: Sequence) -> Played:
    """Let a server play a sequence; it must not check the sums of what it restores (`DEBUG`)."""
    steps = [
        (number, command)
        for number, step in enumerate(sequence.steps, start=1)
        for command in _calls(step, most=len(sequence.setup))
    ]
    scripts = (sequence.setup, *((command,) for _, command in steps))
    *_, replies = wire.ask(
        (b"MULTI",),
        (b"DEL", KEY, _CURSOR),
        *chain.from_iterable(map(_sent_for, scripts)),
        (b"EXEC",),
    )
    (now_ms, _), *answers = replies[1::2]
    before, *states = map(_stream, replies[2::2])
    sent = []
    for (number, command), answer, after in zip(steps, answers, states, strict=True):
        for words, reply in _said(wire, command, answer, now_ms):
            sent.append(Sent(number, (now_ms, now_ms), before, words, reply, after))
        before = after
    return Played(sequence, now_ms, Profile.REDIS_7_2, tuple(sent))


def _calls(step: Words, most: int) -> Iterator[Words]:
    """The commands of a step: a sweep is as many as it can be, where `most` are pending."""
    if step[0] != b"SWEEP":
        yield step
        return
    page = step[1:]
    yield page
    yield from [(b"AGAIN", *page)] * (most // _count(page))


def _count(page: Words) -> int:
    return int(page[page.index(b"COUNT") + 1]) if b"COUNT" in page else DEFAULT_COUNT


def _sent_for(commands: tuple[Words, ...]) -> Iterator[Words]:
    """What the server is sent for some commands: they, and a look at the stream."""
    if _is_read(commands[0]):
        yield commands[0]
    else:
        dumped = (_in_a_dump(words) if words[0] == b"DATE" else words for words in commands)
        arguments = chain.from_iterable((b"%d" % len(words), *words) for words in dumped)
        yield (b"EVAL", _SCRIPT.encode(), b"2", KEY, _CURSOR, *arguments)
    yield _LOOK


_LOOK = (b"XINFO", b"STREAM", KEY, b"FULL", b"COUNT", b"0")


def _is_read(command: Words) -> bool:
    """Whether it can be sent without a script; with too few words it would end the transaction."""
    return command[0] == b"XPENDING" and len(command) > 2


def _said(wire: Wire, command: Words, answer: Any, now_ms: int) -> Iterator[tuple[Words, Any]]:
    """The commands that were sent for one command, and the replies to them."""
    if _is_read(command):
        yield command, _as_read(answer)
        return
    instant_ms, said = answer
    assert instant_ms == now_ms, "the server's clock did not stand still"
    for words, reply, refusal in said:
        yield tuple(words), reply if refusal is None else _error(wire, words, refusal)


def _error(wire: Wire, words: list[bytes], refusal: bytes) -> dict[str, str]:
    """A script tells of too few words in its own terms; the server tells them at once, whatever it
    holds."""
    if refusal.startswith(b"ERR Wrong number of args calling command from script"):
        (error,) = wire.ask(words)
        return error
    return {"err": refusal.decode()}


def _as_read(reply: Any) -> Any:
    """Rows of XPENDING, with the counts as `group_state` has them."""
    if not isinstance(reply, list):
        return reply
    return [[*row[:3], saturated(row[3])] if _is_row(row) else row for row in reply]


def _is_row(part: Any) -> bool:
    """Whether it is a row; a summary ends with a list of consumers, each of which is a list."""
    return isinstance(part, list) and len(part) == 4 and isinstance(part[3], int)


def _in_a_dump(words: Words) -> Words:
    """A DATE as the script takes it: what it is about, and times, as the server's dump has them."""
    date, key, kind, name, *times = words
    if kind == b"PENDING":
        place = b"".join(half.to_bytes(8) for half in parse_id(name))
    else:
        place = bytes([len(name)]) + name
    dumped = (t if t.startswith(b"@") else int(t).to_bytes(8, "little", signed=True) for t in times)
    return (date, key, place, *dumped)


# ---- a clock that goes on ----


def play_on(wire: Wire, sequence: Sequence) -> Played:
    """Let a server play a sequence whose times are `times.GOING`."""
    instant, *_ = wire.ask((b"TIME",), (b"DEL", KEY))
    begun_ms, cursor = _ms(instant), b"0-0"
    for words in sequence.setup:
        (reply,) = wire.ask(_meant(words, begun_ms, cursor))
        assert not isinstance(reply, dict), (words, reply)
    (look,) = wire.ask(_LOOK)
    before, sent = _stream(look), []
    for number, step in enumerate(sequence.steps, start=1):
        is_sweep = step[0] == b"SWEEP"
        words = _meant(step[1:] if is_sweep else step, begun_ms, cursor)
        while True:
            call = _sent_by_itself(wire, number, before, words)
            sent.append(call)
            before = call.after
            if words[0] == b"XAUTOCLAIM" and not call.is_refused:
                cursor = call.reply[0]
            if not is_sweep or cursor == b"0-0":
                break
            words = (*words[:5], cursor, *words[6:])
    return Played(sequence, begun_ms, Profile.REDIS_7_0, tuple(sent))


def _sent_by_itself(wire: Wire, number: int, before: Stream, words: Words) -> Sent:
    first, reply, last, look = wire.ask((b"TIME",), words, (b"TIME",), _LOOK)
    read = _as_read(reply) if words[0] == b"XPENDING" else reply
    return Sent(number, (_ms(first), _ms(last)), before, words, read, _stream(look))


def _ms(time: list[bytes]) -> int:
    return int(time[0]) * 1000 + int(time[1]) // 1000


def _meant(words: Words, now_ms: int, cursor: bytes) -> Words:
    """The words with what `@now-5` and `@cursor` stand for."""
    return tuple(
        cursor
        if word == b"@cursor"
        else re.sub(rb"^@now([+-][0-9]+)$", lambda match: b"%d" % (now_ms + int(match[1])), word)
        for word in words
    )


# ---- both ----


def _as_one(calls: tuple[Sent, ...]) -> Sent:
    """The calls of a sweep as one, whose cursor is 0-0."""
    first, last = calls[0], calls[-1]
    cursor = last.reply[0]
    assert parse_id(cursor) == END_OF_SCAN, "a sweep did not come to its end"
    claimed, deleted = (
        list(chain.from_iterable(call.reply[part] for call in calls)) for part in (1, 2)
    )
    return replace(first, reply=[cursor, claimed, deleted], after=last.after)


def _stream(info: list[Any]) -> Stream:
    """The stream of a reply to XINFO STREAM … FULL COUNT 0."""
    fields = dict(zip(info[::2], info[1::2], strict=True))
    entries = {parse_id(stream_id): tuple(words) for stream_id, words in fields[b"entries"]}
    return Stream(entries, dict(map(group_state, fields[b"groups"])))
