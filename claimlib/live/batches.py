"""State what a source yields: frozen batches of rows, in the order in which a server was read.

Names and values are bytes as the server holds them, ids are unsigned (`ids.StreamId`), times are
milliseconds since the epoch on the server's clock.

The batches come in this order, and no two streams' batches mix:

    before all else:          SourceOpened, MasterDown*
    for each matching stream:
      for each matching group:  PendingPage*  then  GroupDone | GroupGone
      then                      EntryPage*    then  StreamDone | StreamGone
    and after the last stream:  SourceDone

Pages count only if a `Done` follows.  `GroupGone` voids the group's pages.  `StreamGone` voids all
that was yielded for the stream, also its groups' `GroupDone`.  In a cluster it is also yielded if
the stream moves to another node.  Then the stream is read again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from claimlib.semantics.ids import StreamId
from claimlib.semantics.stream_life import StreamCounters

Fields = tuple[tuple[bytes, bytes], ...]


class PendingRow(NamedTuple):
    """One pending entry of one group, as it was when its page was read.

    `consumer` is null for an entry without an owner.  Servers never report an idle time below 0: a
    delivery time in the future (their clock was set back) is read as the time of the page.
    """

    id: StreamId
    consumer: bytes | None
    delivery_time_ms: int
    delivery_count: int


class ConsumerRow(NamedTuple):
    """One consumer of one group; `active_time_ms` is null for one that never got an entry.

    Redis before 7.2 does not know that time: there it is null for every consumer.
    """

    name: bytes
    seen_time_ms: int
    active_time_ms: int | None


class EntryRow(NamedTuple):
    """One entry of a stream; `fields` is null where its payload was not read.

    Payloads are read of pending entries only, and of none at all with `fields=False`.  Fields keep
    their order, a repeated name its repetitions.
    """

    id: StreamId
    fields: Fields | None


@dataclass(frozen=True, slots=True)
class SourceOpened:
    """State which server is read.  This is always the first batch.

    Attributes:
        run_id: the id of the server's process.  A restart changes it.
        replication_id: the id of the history of the data.  A replica has that of its master.  A
            failover changes it.  A restart or some time without replicas may change it.
        former_replication_id: the replication id before the change.  A promoted replica still has
            that of its master.

    All are None if the user lacks the right to INFO.  For a cluster, each has the ids of all
    masters, in the same order and separated by spaces.  `-` stands for a former replication id that
    a master does not have.
    """

    run_id: str | None
    replication_id: str | None
    former_replication_id: str | None = None


@dataclass(frozen=True, slots=True)
class MasterDown:
    """Name a master of a cluster that does not answer.  Its streams are not read.

    Attributes:
        label: `host:port/db`.
        reason: the error of the connection.
        slots: the numbers of its slots.
    """

    label: str
    reason: str
    slots: frozenset[int]


@dataclass(frozen=True, slots=True)
class PendingPage:
    """A page of one group's pending entries, by id; pages of a group follow each other by id."""

    stream: bytes
    group: bytes
    snapshot_ms: int
    rows: tuple[PendingRow, ...]


@dataclass(frozen=True, slots=True)
class GroupDone:
    """One group was read.  `snapshot_ms` is the server's time at its first page.

    `consumers` are of that instant too: an owner that appeared while later pages were read may be
    missing among them.  `last_delivered_id` was read just before, with all groups of the stream.
    `pending_count` is how many rows the group's pages had.
    """

    stream: bytes
    group: bytes
    snapshot_ms: int
    last_delivered_id: StreamId
    consumers: tuple[ConsumerRow, ...]
    pending_count: int


@dataclass(frozen=True, slots=True)
class GroupGone:
    """The group was destroyed while it was read: its pages must be discarded."""

    stream: bytes
    group: bytes


@dataclass(frozen=True, slots=True)
class EntryPage:
    """A page of a stream's entries, by id; a stream's pages follow each other by id.

    Its payloads have about so many bytes at most as the reading allows for one reply, and one entry
    more: what was read at once may come as several pages.
    """

    stream: bytes
    rows: tuple[EntryRow, ...]


@dataclass(frozen=True, slots=True)
class StreamDone:
    """One stream was read.

    The entries yielded are exactly the stream's entries from `complete_from` to `complete_to` (both
    included): the one range that holds every pending id of the groups read, and the span that was
    asked for besides, if there was one; null, and no entries, where there is neither.  `read_ms` is
    the server's time before the stream was read, which is after all of its pending entries.
    `entries_added` is how many entries the stream ever got; null: the server does not say (Redis
    before 7.0).  `closing` holds the stream's counters, read after its last entry; None if the
    reader does not have them.
    """

    stream: bytes
    length: int
    last_generated_id: StreamId
    complete_from: StreamId | None
    complete_to: StreamId | None
    read_ms: int
    group_count: int
    pending_count: int
    entry_count: int
    entries_added: int | None = None
    closing: StreamCounters | None = None


@dataclass(frozen=True, slots=True)
class StreamGone:
    """The stream vanished while it was read: all that was yielded for it must be discarded."""

    stream: bytes


@dataclass(frozen=True, slots=True)
class Counts:
    """How much was read.  `vanished` counts streams and groups; what is discarded with them is not.

    `commands` are those sent, the ones around a transaction included.
    """

    streams: int = 0
    groups: int = 0
    pending: int = 0
    entries: int = 0
    commands: int = 0
    vanished: int = 0


@dataclass(frozen=True, slots=True)
class SourceDone:
    """Everything was read, and the server is still the one that it was; always the last batch."""

    counts: Counts


Batch = (
    SourceOpened
    | MasterDown
    | PendingPage
    | GroupDone
    | GroupGone
    | EntryPage
    | StreamDone
    | StreamGone
    | SourceDone
)
