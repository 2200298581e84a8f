"""A sequence (`sequences`) on a real server: every command that was sent, its reply, and the whole
state after it.

All of it is one transaction, for which the server's clock stands still (Redis 7.2 and later,
Valkey).  Scripts send the commands, as they alone know the instant and the cursors; the states are
read outside of them, as numbers in Lua are exact up to 2^53 only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any

import redis

from claimlib.ids import END_OF_SCAN, parse_id
from claimlib.model import DEFAULT_COUNT, IdleRule, Profile
from claimlib.testing.oracle import group_state
from claimlib.testing.vectors import KEY, Step, as_text
from claimlib.words import Stream
from tests.live.sequences import Sequence, Words

# KEYS: the stream, and where the last cursor stands.  ARGV: commands, each as the number of its
# words and its words.  Returned: the instant; for each command (but DATE, and AGAIN at the end of
# a scan) the words that were sent, and the reply.
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
  local reply = redis.call(unpack(words))
  if words[1] == 'XAUTOCLAIM' then redis.call('SET', KEYS[2], reply[1]) end
  answers[#answers + 1] = {words, reply}
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
    """One command: the number of its step, the stream before it, its words, the server's reply, and
    the stream after it."""

    number: int
    before: Stream
    words: Words
    reply: Any
    after: Stream


@dataclass(frozen=True, slots=True)
class Played:
    """A sequence as a server played it, all of it at `now_ms`."""

    sequence: Sequence
    now_ms: int
    sent: tuple[Sent, ...]

    def steps(self, name: str) -> Iterator[Step]:
        """Each XAUTOCLAIM that was sent, and each sweep as a whole."""
        for number, one_step in groupby(self.sent, key=lambda sent: sent.number):
            calls = list(one_step)
            if calls[0].words[0] == b"XAUTOCLAIM":
                where = f"{name} / {number}"
                yield from (self._step(where, n, call) for n, call in enumerate(calls, start=1))
                if self.sequence.steps[number - 1][0] == b"SWEEP":
                    yield self._step(where, 0, _as_one(calls), is_sweep=True)

    def _step(self, name: str, call: int, sent: Sent, *, is_sweep: bool = False) -> Step:
        return Step(
            vector=name,
            number=call,
            now_ms=self.now_ms,
            idle_rule=IdleRule.SERVER,
            profile=Profile.REDIS_7_2,
            before={KEY: sent.before},
            command=sent.words,
            reply=as_text(sent.reply),
            after={KEY: sent.after},
            is_sweep=is_sweep,
        )


def play(client: redis.Redis, sequence: Sequence) -> Played:
    """Let a server play a sequence; it must not check the sums of what it restores (`DEBUG`)."""
    page: Any = client.pipeline(transaction=True)
    page.delete(KEY, _CURSOR)
    _send(page, *sequence.setup)
    numbers = [0]
    for number, step in enumerate(sequence.steps, start=1):
        for command in _calls(step, most=len(sequence.setup)):
            _send(page, command)
            numbers.append(number)
    replies = page.execute()[1:]
    (now_ms, _), *answers = replies[::2]
    before, *states = map(_stream, replies[1::2])
    sent = []
    for number, (instant_ms, said), after in zip(numbers[1:], answers, states, strict=True):
        assert instant_ms == now_ms, "the server's clock did not stand still"
        sent += [Sent(number, before, tuple(words), reply, after) for words, reply in said]
        before = after
    return Played(sequence, now_ms, tuple(sent))


def _calls(step: Words, most: int) -> Iterator[Words]:
    """The commands of a step: a sweep is as many as it can be, where `most` are pending."""
    if step[0] != b"SWEEP":
        yield step
        return
    page = step[1:]
    count = int(page[page.index(b"COUNT") + 1]) if b"COUNT" in page else DEFAULT_COUNT
    yield page
    yield from [(b"AGAIN", *page)] * (most // count)


def _send(page: Any, *commands: Words) -> None:
    """The commands, and a look at the stream."""
    dumped = (_in_a_dump(words) if words[0] == b"DATE" else words for words in commands)
    arguments = chain.from_iterable((len(words), *words) for words in dumped)
    page.eval(_SCRIPT, 2, KEY, _CURSOR, *arguments)
    page.execute_command("XINFO", "STREAM", KEY, "FULL", "COUNT", 0)


def _in_a_dump(words: Words) -> Words:
    """A DATE as the script takes it: what it is about, and times, as the server's dump has them."""
    date, key, kind, name, *times = words
    if kind == b"PENDING":
        place = b"".join(half.to_bytes(8) for half in parse_id(name))
    else:
        place = bytes([len(name)]) + name
    dumped = (t if t.startswith(b"@") else int(t).to_bytes(8, "little", signed=True) for t in times)
    return (date, key, place, *dumped)


def _as_one(calls: list[Sent]) -> Sent:
    """The calls of a sweep as one, whose cursor is 0-0."""
    first, last = calls[0], calls[-1]
    cursor = last.reply[0]
    assert parse_id(cursor) == END_OF_SCAN, "a sweep did not come to its end"
    claimed, deleted = (
        list(chain.from_iterable(call.reply[part] for call in calls)) for part in (1, 2)
    )
    return Sent(first.number, first.before, first.words, [cursor, claimed, deleted], last.after)


def _stream(info: list[Any]) -> Stream:
    """The stream of a reply to XINFO STREAM … FULL COUNT 0."""
    fields = dict(zip(info[::2], info[1::2], strict=True))
    entries = {parse_id(stream_id): tuple(words) for stream_id, words in fields[b"entries"]}
    return Stream(entries, dict(map(group_state, fields[b"groups"])))
