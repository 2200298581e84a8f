"""Write claims, acknowledgements and removals of consumers to a server.

Each batch is one script (EVAL).  The server's clock stops in a script (Redis from 7.2 on, Valkey),
and no other command runs meanwhile.  So the script knows the time at which its XCLAIM runs.  From
this time, it computes XCLAIM's minimum idle time: the time since the latest delivery that may be
claimed (`FencedBatch.latest_delivery_ms`).

MULTI cannot replace the script.  A client would have to compute the minimum idle time from an
earlier TIME, so it would be too small.  XCLAIM would then also take an entry that was delivered
shortly after the snapshot.  A script also needs fewer rights than MULTI and EXEC.

On Redis 7.0 the clock goes on within a script.  TIME comes after XPENDING, so no entry seems to be
delivered earlier than it was.  TIME comes before XCLAIM, because XCLAIM checks the minimum idle
time again.

A writeback needs at least these rights of the server's user (an access rule, as in `ACL SETUSER`):

    writer on >PASSWORD ~* -@all +info +time +eval +xpending +xrange +xclaim +xack
        +xgroup|delconsumer

A database other than 0 needs `+select`.  A cluster needs `+cluster|nodes`.  `~orders:*` instead of
`~*` confines the user to some streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from claimlib.errors import ClaimlibError, SourceError, WrongTypeError
from claimlib.live.cluster import Servers
from claimlib.live.connection import Source
from claimlib.live.replies import parsing_reply
from claimlib.live.vanished import SlotMovedError, VanishedError

if TYPE_CHECKING:
    from claimlib.live.faults import Word

IDS_PER_BATCH = 200
"""The most entries of one script, which the server runs without a break."""
BATCHES_PER_PIPELINE = 3
"""The number of scripts that are sent at once.  A server may run all of them before it serves
another client."""


class Outcome(StrEnum):
    """Name the outcome for an entry on the server.

    Attributes:
        MOVED: the entry now has the new consumer and the new delivery count.
        ACKNOWLEDGED: XACK removed the entry.
        TOUCHED: the entry is pending, but not as the snapshot read it.  It was left alone.
        GONE: the entry is not pending.  XCLAIM may have removed it, because the stream no longer
            has it.
    """

    MOVED = "moved"
    ACKNOWLEDGED = "acknowledged"
    TOUCHED = "touched"
    GONE = "gone"


class Written(NamedTuple):
    """Hold the outcome for one entry.

    Attributes:
        delivery_time_ms: when it was claimed, by the server's clock.  None unless it was moved.
    """

    outcome: Outcome
    delivery_time_ms: int | None = None


_CODES = {
    -1: Written(Outcome.TOUCHED),
    -2: Written(Outcome.GONE),
    -3: Written(Outcome.ACKNOWLEDGED),
}
"""The outcomes by the numbers that a script returns.  For a moved entry, the number is its delivery
time."""

# The beginning of both scripts reads the state of each id.  KEYS: the stream.  ARGV: group, latest
# delivery time; the new consumer and delivery count; the expected consumer and delivery count (-1
# if not pending); ids, in order.
# A page of XPENDING is far faster than a call for each id.  If the consumer has other entries
# between the ids, the pages become smaller.  Ids that the pages do not have are read one by one.
_FENCE = """
local stream, group, latest = KEYS[1], ARGV[1], tonumber(ARGV[2])
local consumer, count, owner, owner_count = ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local states, places, outcomes = {}, {}, {}
for i = 7, #ARGV do places[ARGV[i]] = i end
local i, size = 7, #ARGV - 6
while i <= #ARGV and owner_count >= 0 do
  local last = i
  local rows = redis.call('XPENDING', stream, group, ARGV[i], ARGV[#ARGV], size, owner)
  for _, row in ipairs(rows) do
    last = places[row[1]] or last
    states[row[1]] = row
  end
  if #rows < size then break end
  size = math.min(2 * (last - i + 1), #ARGV - last)
  i = last + 1
end
for i = 7, #ARGV do
  local id = ARGV[i]
  states[id] = states[id] or redis.call('XPENDING', stream, group, id, id, 1)[1]
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now <= latest then
  return redis.error_reply('ERR the clock of the server is behind the time of the snapshot')
end
local function is_expected(state)
  return now - state[3] <= latest and state[2] == owner and state[4] == owner_count
end
"""

# An entry that already has the new consumer and delivery count was moved by an earlier attempt.
# XCLAIM removes an entry that the stream lacks, and does not return its id.  So the outcome of such
# an entry stays -2.
_CLAIM = (
    _FENCE
    + """
local words = {'XCLAIM', stream, group, consumer, string.format('%.0f', now - latest)}
for i = 7, #ARGV do
  local state, outcome = states[ARGV[i]], -1
  if not state then
    outcome = -2
  elseif is_expected(state) then
    outcome = -2
    words[#words + 1] = ARGV[i]
  elseif now - state[3] > latest and state[2] == consumer and state[4] == tonumber(count) then
    outcome = now - state[3]
  end
  outcomes[i - 6] = outcome
end
if #words > 5 then
  words[#words + 1], words[#words + 2], words[#words + 3] = 'RETRYCOUNT', count, 'JUSTID'
  for _, id in ipairs(redis.call(unpack(words))) do outcomes[places[id] - 6] = now end
end
return outcomes
"""
)

_ACKNOWLEDGE = (
    _FENCE
    + """
for i = 7, #ARGV do
  local state, outcome = states[ARGV[i]], -1
  if not state then
    outcome = -2
  elseif is_expected(state) then
    redis.call('XACK', stream, group, ARGV[i])
    outcome = -3
  end
  outcomes[i - 6] = outcome
end
return outcomes
"""
)

# Acknowledge each pending id that the stream lacks.  KEYS: the stream.  ARGV: group, ids.
_ACKNOWLEDGE_DELETED = """
local outcomes = {}
for i = 2, #ARGV do
  local id, outcome = ARGV[i], -1
  if #redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1) == 0 then
    outcome = -2
  elseif #redis.call('XRANGE', KEYS[1], id, id) == 0 then
    redis.call('XACK', KEYS[1], ARGV[1], id)
    outcome = -3
  end
  outcomes[#outcomes + 1] = outcome
end
return outcomes
"""

STILL_PENDING = "the consumer still has pending entries"
# The server runs a script as one command, so no entry is delivered between check and removal.
REMOVE_IF_NOTHING_PENDING = (
    "if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) > 0"
    f" then return redis.error_reply('ERR {STILL_PENDING}: it was not"
    " removed') end return redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])"
).encode()
"""The script that removes a consumer that has nothing pending.  KEYS: the stream.  ARGV: group,
consumer.  XGROUP DELCONSUMER alone would also remove the consumer's pending entries."""


class PendingState(NamedTuple):
    """Hold the owner and the delivery count that some pending entries have in common."""

    consumer: bytes
    delivery_count: int


_NOT_PENDING = PendingState(b"", -1)


@dataclass(frozen=True, slots=True)
class FencedBatch:
    """State claims or acknowledgements of entries of one group that have the same state.

    Attributes:
        ids: the ids of the entries, in order.
        expected: the state that the entries should have on the server.  None means that they should
            not be pending.
        latest_delivery_ms: entries that were delivered later are left alone.
        claimed: the state of the entries after the claim.  None means that they are acknowledged.
    """

    stream: bytes
    group: bytes
    ids: Sequence[str]
    expected: PendingState | None
    latest_delivery_ms: int
    claimed: PendingState | None

    def words(self) -> list[Word]:
        """Return the command."""
        script = _ACKNOWLEDGE if self.claimed is None else _CLAIM
        states = (*(self.claimed or _NOT_PENDING), *(self.expected or _NOT_PENDING))
        arguments = (self.group, self.latest_delivery_ms, *states)
        return ["EVAL", script, 1, self.stream, *arguments, *self.ids]


@dataclass(frozen=True, slots=True)
class Deletions:
    """State acknowledgements of entries of one group that their stream no longer has."""

    stream: bytes
    group: bytes
    ids: Sequence[str]

    def words(self) -> list[Word]:
        """Return the command."""
        return ["EVAL", _ACKNOWLEDGE_DELETED, 1, self.stream, self.group, *self.ids]


EntryBatch = FencedBatch | Deletions


def write_entries(servers: Servers, batches: Iterable[EntryBatch]) -> Iterator[list[Written]]:
    """Send batches, and yield the outcome of each entry, in order.

    If the stream of a batch has moved to another master of a cluster, the batch is sent again, to
    this master.  This is done once.

    Raises:
        SourceError: the server refused a batch, or the connection broke.  Earlier changes stay.  A
            repeat recognizes its own claims by owner, delivery count and delivery time.
    """
    rest = iter(batches)
    while pipeline := list(islice(rest, BATCHES_PER_PIPELINE)):
        replies = _replies(servers, pipeline)
        moved = [n for n, reply in enumerate(replies) if isinstance(reply, SlotMovedError)]
        if moved:
            servers.slot_map()
            again = _replies(servers, [pipeline[n] for n in moved])
            for n, reply in zip(moved, again, strict=True):
                replies[n] = reply
        yield [
            written
            for batch, reply in zip(pipeline, replies, strict=True)
            for written in _written(servers.source_of(batch.stream), batch, reply)
        ]


def _replies(servers: Servers, batches: Sequence[EntryBatch]) -> list[Any]:
    """Send each batch to the server of its stream, and return the replies in order."""
    by_source: dict[Source, list[int]] = {}
    for number, batch in enumerate(batches):
        by_source.setdefault(servers.source_of(batch.stream), []).append(number)
    replies: dict[int, Any] = {}
    for source, numbers in by_source.items():
        words = [batches[number].words() for number in numbers]
        replies |= zip(numbers, source.pipeline(words), strict=True)
    return [replies[number] for number in range(len(batches))]


def _written(source: Source, batch: EntryBatch, reply: Any) -> list[Written]:
    if isinstance(reply, VanishedError | WrongTypeError):  # the group no longer exists
        return [Written(Outcome.GONE)] * len(batch.ids)
    if isinstance(reply, ClaimlibError):
        raise reply
    with parsing_reply(source.label, "EVAL"):
        return [
            Written(Outcome.MOVED, code) if code >= 0 else _CODES[code]
            for _, code in zip(batch.ids, reply, strict=True)
        ]


def remove_consumer(source: Source, stream: bytes, group: bytes, consumer: bytes) -> bool:
    """Remove a consumer that has nothing pending.

    Returns:
        False if the consumer stays, because it has pending entries.  True if it was removed, or if
        there is no such consumer.
    """
    try:
        source.call("EVAL", REMOVE_IF_NOTHING_PENDING, 1, stream, group, consumer)
    except (VanishedError, WrongTypeError):
        return True
    except SourceError as error:
        if STILL_PENDING not in error.message:
            raise
        return False
    return True
