"""Define the batches of rows that a source yields.  They cannot be changed.

Names and values are bytes as the server holds them.  Ids are unsigned (`ids.StreamId`).  Times are
milliseconds since the epoch on the server's clock.

The batches come in this order.  Batches of different streams never mix:

    before all else:          SourceOpened, MasterDown*
    for each matching stream:
      for each matching group:  PendingPage*  then  GroupDone | GroupGone
      then                      EntryPage*    then  StreamDone | StreamGone
    and after the last stream:  SourceDone

Pages count only if a `Done` follows.  `GroupGone` voids the group's pages.  `StreamGone` voids all
batches that were yielded for the stream, including the `GroupDone` of its groups.  In a cluster,
`StreamGone` is also yielded if the stream moves to another node.  Then the stream is read again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from claimlib.semantics.ids import StreamId
from claimlib.semantics.stream_life import StreamCounters

Fields = tuple[tuple[bytes, bytes], ...]


class PendingRow(NamedTuple):
    """Hold one pending entry of one group, as it was when its page was read.

    A delivery time can be in the future, if the server's clock was set back.  The row then has the
    time of the page instead, because servers never report an idle time below 0.

    Attributes:
        consumer: None for an entry without an owner.
    """

    id: StreamId
    consumer: bytes | None
    delivery_time_ms: int
    delivery_count: int


class ConsumerRow(NamedTuple):
    """Hold one consumer of one group.

    Attributes:
        active_time_ms: None for a consumer that never got an entry.  Redis before 7.2 does not
            report this time, so it is None for every consumer of such a server.
    """

    name: bytes
    seen_time_ms: int
    active_time_ms: int | None


class EntryRow(NamedTuple):
    """Hold one entry of a stream.

    Only payloads of pending entries are read, and none if the reading has `fields=False`.

    Attributes:
        fields: in their order, with repeated names.  None if the payload was not read.
    """

    id: StreamId
    fields: Fields | None


@dataclass(frozen=True, slots=True)
class SourceOpened:
    """State which server is read.  This is always the first batch.

    Attributes:
        run_id: the id of the server's process.  A restart changes it.
        replication_id: the id of the history of the data.  A replica has the id of its master.  A
            failover changes it.  A restart or some time without replicas may change it.
        former_replication_id: the replication id before the last change.  In a promoted replica, it
            is the id of the former master.

    All are None if the user lacks the right to INFO.  For a cluster, each has the ids of all
    masters, in the same order and separated by spaces.  If a master has no former replication id, a
    `-` takes its place.
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
    """Hold a page of one group's pending entries, in the order of their ids.

    The pages of a group follow each other in the same order.
    """

    stream: bytes
    group: bytes
    snapshot_ms: int
    rows: tuple[PendingRow, ...]


@dataclass(frozen=True, slots=True)
class GroupDone:
    """Report that one group was read.

    Attributes:
        snapshot_ms: the server's time at the group's first page.
        last_delivered_id: the last delivered id of the group.  It was read shortly before
            `snapshot_ms`, together with those of all other groups of the stream.
        consumers: the consumers at `snapshot_ms`.  An owner that appeared while later pages were
            read may be missing.
        pending_count: the number of rows of the group's pages.
    """

    stream: bytes
    group: bytes
    snapshot_ms: int
    last_delivered_id: StreamId
    consumers: tuple[ConsumerRow, ...]
    pending_count: int


@dataclass(frozen=True, slots=True)
class GroupGone:
    """Report that the group was destroyed while it was read.  Its pages must be discarded."""

    stream: bytes
    group: bytes


@dataclass(frozen=True, slots=True)
class EntryPage:
    """Hold a page of a stream's entries, in the order of their ids.

    The pages of a stream follow each other in the same order.  A page ends at the latest with the
    entry whose payload reaches the limit of bytes for one reply.
    """

    stream: bytes
    rows: tuple[EntryRow, ...]


@dataclass(frozen=True, slots=True)
class StreamDone:
    """Report that one stream was read.

    The entries that were yielded are exactly the entries of the stream from `complete_from` to
    `complete_to`.  This range contains every pending id of the groups that were read.  It also
    contains the span that the caller requested, if any.

    Attributes:
        complete_from: the first id of the range.  None if there is no range.  Then no entries were
            yielded.
        complete_to: the last id of the range.  None if there is no range.
        read_ms: the server's time after all pending entries of the stream were read, and before the
            entries were read.
        entries_added: the number of entries that the stream ever got.  None if the server does not
            report it (Redis before 7.0).
        closing: the stream's counters, read after its last entry.  None if the reader does not have
            them.
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
    """Report that the stream vanished while it was read.

    All that was yielded for it must be discarded.
    """

    stream: bytes


@dataclass(frozen=True, slots=True)
class Counts:
    """Hold the numbers of streams, groups and rows that were read, without discarded ones.

    Attributes:
        commands: the number of commands that were sent, including MULTI and EXEC.
        vanished: the number of streams and groups that vanished.
    """

    streams: int = 0
    groups: int = 0
    pending: int = 0
    entries: int = 0
    commands: int = 0
    vanished: int = 0


@dataclass(frozen=True, slots=True)
class SourceDone:
    """Report that everything was read, and that the server is still the same.

    This is always the last batch.
    """

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
