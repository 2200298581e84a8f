"""Write claims, acknowledgements and removals of consumers to a server.

Each batch is one script (EVAL).  The server's clock stands still in a script (Redis from 7.2 on,
Valkey), and no other command runs meanwhile.  So the script knows the instant at which its XCLAIM
runs, and computes the minimum idle time from it: the time since the latest delivery time that may
be claimed (`FencedClaims.latest_delivery_ms`).  In MULTI, a client would have to compute it from an
earlier TIME.  It would then be too small by the time in between, and XCLAIM would take an entry
that was delivered within the same time after the snapshot.  A script also takes fewer rights than
MULTI, EXEC and the commands would.

Redis 7.0 lets the clock go on within a script.  TIME comes after XPENDING there, so no entry seems
delivered earlier than it was, and before XCLAIM, whose minimum idle time is the second condition.

The least a server's user needs (an access rule, as in `ACL SETUSER`):

    writer on >PASSWORD ~* -@all +info +time +eval +xpending +xrange +xclaim +xack
        +xgroup|delconsumer

A database other than 0 takes `+select`.  `~orders:*` for `~*` confines the user to some streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from claimlib.errors import ClaimlibError, SourceError, WrongTypeError
from claimlib.live.connection import Source
from claimlib.live.replies import understood
from claimlib.live.vanished import VanishedError

if TYPE_CHECKING:
    from claimlib.live.faults import Word

IDS_PER_BATCH = 200
"""The most entries of one script, which the server runs without a break."""
_BATCHES_PER_PIPELINE = 10


class Outcome(StrEnum):
    """Name what became of an entry on the server.

    MOVED: it belongs to the consumer, with the delivery count; ACKNOWLEDGED: XACK removed it;
    TOUCHED: it is pending, but not as the snapshot read it, and was left alone; GONE: it is not
    pending.
    """

    MOVED = "moved"
    ACKNOWLEDGED = "acknowledged"
    TOUCHED = "touched"
    GONE = "gone"


class Written(NamedTuple):
    """Hold what became of one entry.

    Attributes:
        delivery_time_ms: when it was claimed, by the server's clock; None unless it was moved.
    """

    outcome: Outcome
    delivery_time_ms: int | None = None


class ExpectedEntry(NamedTuple):
    """Hold a pending entry as the server is expected to have it.

    Attributes:
        place: the caller's number of the entry.
        owner, delivery_count: None if the entry is not expected to be pending.
    """

    place: int
    id: str
    owner: bytes | None = None
    delivery_count: int | None = None

    @property
    def state(self) -> tuple[Word, Word, Word]:
        """Return the arguments of a script.  No server has a delivery count of -1."""
        if self.owner is None or self.delivery_count is None:
            return (self.id, b"", -1)
        return (self.id, self.owner, self.delivery_count)


_CODES = {
    -1: Written(Outcome.TOUCHED),
    -2: Written(Outcome.GONE),
    -3: Written(Outcome.ACKNOWLEDGED),
}
"""The outcomes by what a script returns.  For a moved entry it returns its delivery time."""

# ARGV: group, latest delivery time, consumer, delivery count; id, owner and count of each entry.
_FENCE = """
local stream, group, latest = KEYS[1], ARGV[1], tonumber(ARGV[2])
local consumer, count = ARGV[3], ARGV[4]
local states, outcomes = {}, {}
for i = 5, #ARGV, 3 do
  states[i] = redis.call('XPENDING', stream, group, ARGV[i], ARGV[i], 1)[1] or false
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now <= latest then
  return redis.error_reply('ERR the clock of the server is behind the time of the snapshot')
end
local function is_expected(i)
  local state = states[i]
  return state[2] == ARGV[i + 1] and state[4] == tonumber(ARGV[i + 2])
end
"""

# XRANGE comes first because XCLAIM removes an entry that the stream lacks.
_CLAIM = (
    _FENCE
    + """
local places = {}
local words = {'XCLAIM', stream, group, consumer, string.format('%.0f', now - latest)}
for i = 5, #ARGV, 3 do
  local id, state, outcome = ARGV[i], states[i], -1
  if not state then
    outcome = -2
  else
    local delivered = now - state[3]
    if delivered > latest then
      if state[2] == consumer and state[4] == tonumber(count) then outcome = delivered end
    elseif is_expected(i) and #redis.call('XRANGE', stream, id, id) > 0 then
      words[#words + 1] = id
      places[id] = #outcomes + 1
    end
  end
  outcomes[#outcomes + 1] = outcome
end
if #words > 5 then
  words[#words + 1], words[#words + 2], words[#words + 3] = 'RETRYCOUNT', count, 'JUSTID'
  for _, id in ipairs(redis.call(unpack(words))) do outcomes[places[id]] = now end
end
return outcomes
"""
)

# The consumer and the delivery count are not used.
_ACKNOWLEDGE = (
    _FENCE
    + """
for i = 5, #ARGV, 3 do
  local state, outcome = states[i], -1
  if not state then
    outcome = -2
  elseif now - state[3] <= latest and is_expected(i) then
    redis.call('XACK', stream, group, ARGV[i])
    outcome = -3
  end
  outcomes[#outcomes + 1] = outcome
end
return outcomes
"""
)

# ARGV: group, ids.
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
# The server runs a script as one command: nothing is delivered between the check and the removal.
REMOVE_IF_IDLE = (
    "if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) > 0"
    f" then return redis.error_reply('ERR {STILL_PENDING}: it was not"
    " removed') end return redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])"
).encode()
"""The script that removes a consumer that has nothing pending.  KEYS: the stream.  ARGV: group,
consumer.  XGROUP DELCONSUMER alone drops what the consumer has pending."""


@dataclass(frozen=True, slots=True)
class FencedClaims:
    """State claims of one group for one consumer, with one delivery count.

    Attributes:
        latest_delivery_ms: entries that were delivered later are left alone.
    """

    stream: bytes
    group: bytes
    consumer: bytes
    delivery_count: int
    latest_delivery_ms: int
    entries: Sequence[ExpectedEntry]

    def words(self) -> list[Word]:
        """Return the command."""
        return _fenced(_CLAIM, self, self.consumer, self.delivery_count)


@dataclass(frozen=True, slots=True)
class FencedAcknowledgements:
    """State acknowledgements of entries of one group.

    Attributes:
        latest_delivery_ms: entries that were delivered later are left alone.
    """

    stream: bytes
    group: bytes
    latest_delivery_ms: int
    entries: Sequence[ExpectedEntry]

    def words(self) -> list[Word]:
        """Return the command."""
        return _fenced(_ACKNOWLEDGE, self, b"", 0)


def _fenced(
    script: str, batch: FencedClaims | FencedAcknowledgements, consumer: bytes, count: int
) -> list[Word]:
    states = chain.from_iterable(entry.state for entry in batch.entries)
    fixed = (batch.group, batch.latest_delivery_ms, consumer, count)
    return ["EVAL", script, 1, batch.stream, *fixed, *states]


@dataclass(frozen=True, slots=True)
class Deletions:
    """State acknowledgements of entries of one group that their stream no longer has."""

    stream: bytes
    group: bytes
    entries: Sequence[ExpectedEntry]

    def words(self) -> list[Word]:
        """Return the command."""
        ids = (entry.id for entry in self.entries)
        return ["EVAL", _ACKNOWLEDGE_DELETED, 1, self.stream, self.group, *ids]


EntryBatch = FencedClaims | FencedAcknowledgements | Deletions


def write_entries(source: Source, batches: Iterable[EntryBatch]) -> Iterator[Mapping[int, Written]]:
    """Send batches, and yield what became of their entries, by their places.

    Raises:
        SourceError: The server refused a batch, or the connection broke.  What was written before
            stays; a repeat recognizes its own claims by owner, delivery count and delivery time.
    """
    rest = iter(batches)
    while pipeline := list(islice(rest, _BATCHES_PER_PIPELINE)):
        replies = source.pipeline([batch.words() for batch in pipeline])
        yield {
            entry.place: written
            for batch, reply in zip(pipeline, replies, strict=True)
            for entry, written in zip(batch.entries, _written(source, batch, reply), strict=True)
        }


def _written(source: Source, batch: EntryBatch, reply: Any) -> list[Written]:
    if isinstance(reply, VanishedError | WrongTypeError):  # there is no such group any more
        return [_CODES[-2]] * len(batch.entries)
    if isinstance(reply, ClaimlibError):
        raise reply
    with understood(source.label, "EVAL"):
        return [
            Written(Outcome.MOVED, code) if code >= 0 else _CODES[code]
            for code in (int(code) for code in reply)
        ]


def remove_consumer(source: Source, stream: bytes, group: bytes, consumer: bytes) -> bool:
    """Remove a consumer that has nothing pending.

    Returns: False if it has, and was left alone.  True also if there is no such consumer.
    """
    try:
        source.call("EVAL", REMOVE_IF_IDLE, 1, stream, group, consumer)
    except (VanishedError, WrongTypeError):
        return True
    except SourceError as error:
        if STILL_PENDING not in error.message:
            raise
        return False
    return True
