"""Let a server itself run XAUTOCLAIM for all its groups at one time, in a loop for each group.

One Lua script does everything.  While the script runs, the server's clock stops and no other client
is served.  So TIME returns the time of every claim, and the states before and after are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from claimlib.semantics.ids import END_OF_SCAN, StreamId, parse_id
from claimlib.semantics.model import (
    DEFAULT_COUNT,
    DELIVERY_COUNT_MAX,
    AutoclaimReply,
    Consumer,
    Group,
    PendingEntry,
)

if TYPE_CHECKING:
    import redis

Key = tuple[bytes, bytes]
"""Type the names of a stream and of one of its consumer groups."""
Fields = tuple[tuple[bytes, bytes], ...]

# KEYS: the streams.  ARGV: the consumer, the time since which an entry must be idle, COUNT.
# XINFO STREAM … FULL COUNT 0 returns every row of each PEL.  Without COUNT it returns ten.
_LOOPS = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local min_idle = string.format('%.0f', math.max(0, now - ARGV[2]))

local function field(info, name)
  for i = 1, #info, 2 do
    if info[i] == name then return info[i + 1] end
  end
end

local function state(stream)
  return field(redis.call('XINFO', 'STREAM', stream, 'FULL', 'COUNT', 0), 'groups')
end

local function loop(stream, group)
  local cursor, calls, claimed, deleted = '0-0', 0, {}, {}
  repeat
    local reply =
      redis.call('XAUTOCLAIM', stream, group, ARGV[1], min_idle, cursor, 'COUNT', ARGV[3])
    cursor, calls = reply[1], calls + 1
    claimed[calls], deleted[calls] = reply[2], reply[3]
  until cursor == '0-0'
  return {group, claimed, deleted}
end

local answers = {}
for i, stream in ipairs(KEYS) do
  local before, loops = state(stream), {}
  for j, info in ipairs(before) do loops[j] = loop(stream, field(info, 'name')) end
  answers[i] = {stream, before, loops, state(stream)}
end
return {now, tonumber(min_idle), answers}
"""


@dataclass(frozen=True, slots=True)
class GroupAnswer:
    """Hold the result of the loop of one group.

    Attributes:
        before, after: the state of the group before and after its loop.
        reply: the entries that all calls together claimed and deleted.
        payloads: the fields of the claimed entries, in order.
        calls: the number of calls of XAUTOCLAIM.
    """

    before: Group
    after: Group
    reply: AutoclaimReply
    payloads: Mapping[StreamId, Fields]
    calls: int

    @property
    def left(self) -> int:
        """Return the number of pending entries that stayed as they were."""
        return len(self.before.pending) - len(self.reply.claimed) - len(self.reply.deleted)


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """Hold the results of the loops of all groups of a server.

    Attributes:
        now_ms: the server's time while the script ran.
        min_idle_ms: the min-idle-time of every call.
        consumer: the consumer that claimed.
        groups: the results by (stream, group).
    """

    now_ms: int
    min_idle_ms: int
    consumer: bytes
    groups: Mapping[Key, GroupAnswer]

    @property
    def at_boundary(self) -> int:
        """Return the number of entries that were idle for exactly `min_idle_ms`."""
        sweep_ms = self.now_ms - self.min_idle_ms
        return sum(
            entry.delivery_time_ms == sweep_ms
            for answer in self.groups.values()
            for entry in answer.before.pending
        )


def autoclaim_all(
    client: redis.Redis, *, consumer: bytes, idle_since_ms: int, count: int = DEFAULT_COUNT
) -> ServerAnswer:
    """Let a server claim entries that were idle for long enough, in all groups of all its streams.

    Args:
        client: a client of a server that has only streams, and no other clients.
        consumer: the consumer that claims.
        idle_since_ms: entries that were last delivered at this time or before are claimed.  The
            script computes min-idle-time from it.  So an entry that was delivered exactly then is
            idle for exactly min-idle-time, although the time of the script is not known before.
        count: COUNT of every call.
    """
    streams = sorted(client.scan_iter(_type="STREAM"))
    reply: Any = client.eval(_LOOPS, len(streams), *streams, consumer, idle_since_ms, count)
    now_ms, min_idle_ms, answers = reply
    groups = {
        (stream, group): answer
        for stream, before, loops, after in answers
        for group, answer in _answers(before, loops, after)
    }
    return ServerAnswer(now_ms, min_idle_ms, consumer, groups)


def copy_server(source: redis.Redis, target: redis.Redis) -> None:
    """Copy all keys of a server to an empty one, with their consumer groups and times."""
    for key in source.scan_iter():
        content: Any = source.dump(key)
        target.restore(key, 0, content)


def read_groups(client: redis.Redis) -> dict[Key, Group]:
    """Return the state of all groups of a server that has no other clients."""
    script = "return redis.call('XINFO', 'STREAM', KEYS[1], 'FULL', 'COUNT', 0)"
    groups = {}
    for stream in client.scan_iter(_type="STREAM"):
        info: Any = client.eval(script, 1, stream)
        states = map(group_state, dict(_pairs(info))[b"groups"])
        groups.update({(stream, name): state for name, state in states})
    return groups


def _answers(before: Any, loops: Any, after: Any) -> Iterator[tuple[bytes, GroupAnswer]]:
    states_before, states_after = dict(map(group_state, before)), dict(map(group_state, after))
    for name, claimed_by_call, deleted_by_call in loops:
        payloads = {
            parse_id(entry_id): _pairs(words)
            for entries in claimed_by_call
            for entry_id, words in entries
        }
        deleted = tuple(parse_id(text) for ids in deleted_by_call for text in ids)
        # This is one reply for all calls, so its cursor is that of the last call.
        reply = AutoclaimReply(END_OF_SCAN, tuple(payloads), deleted)
        calls = len(claimed_by_call)
        yield name, GroupAnswer(states_before[name], states_after[name], reply, payloads, calls)


def group_state(info: Any) -> tuple[bytes, Group]:
    """Return the name and the state of a group.

    Args:
        info: the part on the group in a reply to XINFO STREAM … FULL COUNT 0.  Redis 7.0 returns no
            active times.
    """
    fields = dict(_pairs(info))
    pending = tuple(
        PendingEntry(parse_id(entry_id), owner, delivery_time_ms, saturated(delivery_count))
        for entry_id, owner, delivery_time_ms, delivery_count in fields[b"pending"]
    )
    if len(pending) != fields[b"pel-count"]:
        raise AssertionError(f"{len(pending)} of {fields[b'pel-count']} pending entries were shown")
    consumers = sorted(map(_consumer, fields[b"consumers"]), key=lambda consumer: consumer.name)
    last_delivered_id = parse_id(fields[b"last-delivered-id"])
    return fields[b"name"], Group(last_delivered_id, pending, tuple(consumers))


def saturated(delivery_count: int) -> int:
    """Return a delivery count, with 2^63-1 as its maximum.

    Beyond the maximum, a server writes a negative number.  claimlib keeps the maximum instead.
    """
    return delivery_count if delivery_count >= 0 else DELIVERY_COUNT_MAX


def _consumer(info: Any) -> Consumer:
    fields = dict(_pairs(info))
    active_time_ms = fields.get(b"active-time", -1)
    return Consumer(
        fields[b"name"], fields[b"seen-time"], None if active_time_ms == -1 else active_time_ms
    )


def _pairs(words: list[Any]) -> tuple[tuple[Any, Any], ...]:
    return tuple(zip(words[::2], words[1::2], strict=True))
