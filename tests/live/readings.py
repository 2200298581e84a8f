"""What tests of the reader share: streams, rights to read them by, and what was read."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

from claimlib.live import connection
from claimlib.live.batches import (
    Counts,
    EntryPage,
    GroupDone,
    GroupGone,
    PendingPage,
    SourceDone,
    SourceOpened,
    StreamDone,
    StreamGone,
)
from claimlib.live.reader import read_source


def rights_in(text, user):
    """The rights of a user that a text states."""
    return re.search(rf"{user} on >PASSWORD (.+?)\n\n", text, re.DOTALL)[1].split()


LEAST_RIGHTS = rights_in(connection.__doc__, "reader")


def without(rights, right):
    assert right in rights
    return [other for other in rights if other != right]


@dataclass
class Read:
    """What a reading gave, with nothing void in it."""

    pending: dict = field(default_factory=lambda: defaultdict(list))
    groups: dict = field(default_factory=dict)
    entries: dict = field(default_factory=lambda: defaultdict(list))
    streams: dict = field(default_factory=dict)
    gone: list = field(default_factory=list)
    counts: Counts | None = None
    opened: SourceOpened | None = None

    def take(self, batch):
        assert self.counts is None, "the counts are the last batch"
        assert (self.opened is None) == isinstance(batch, SourceOpened), "first of all"
        match batch:
            case SourceOpened():
                self.opened = batch
            case PendingPage():
                assert batch.rows
                self.pending[batch.stream, batch.group] += batch.rows
            case GroupDone():
                self.groups[batch.stream, batch.group] = batch
            case EntryPage():
                assert batch.rows
                self.entries[batch.stream] += batch.rows
            case StreamDone():
                self.streams[batch.stream] = batch
            case GroupGone() | StreamGone():
                self._void(batch)
            case SourceDone():
                self.counts = batch.counts
        return self

    def _void(self, batch):
        if isinstance(batch, GroupGone):
            self.pending.pop((batch.stream, batch.group), None)
            self.gone.append((batch.stream, batch.group))
            return
        for table in (self.pending, self.groups):
            for key in [key for key in table if key[0] == batch.stream]:
                del table[key]
        self.entries.pop(batch.stream, None)
        self.gone.append(batch.stream)


def read(source, **options):
    result = Read()
    for batch in read_source(source, **options):
        result.take(batch)
    return result


def drive(source, act, **options):
    """Reads while `act(batch)` is called at each batch; returns what was read."""
    result = Read()
    for batch in read_source(source, **options):
        result.take(batch)
        act(batch)
    return result


def once(condition, action):
    """Acts at the first batch for which the condition holds."""
    left = [action]

    def act(batch):
        if left and condition(batch):
            left.pop()()

    return act


def add(client, stream, *ids, **fields):
    for id_ in ids:
        client.xadd(stream, fields or {"n": id_}, id=id_)


def deliver(client, stream, group, consumer, count):
    reply = client.execute_command(
        "XREADGROUP", "GROUP", group, consumer, "COUNT", count, "STREAMS", stream, ">"
    )
    assert reply, "nothing was delivered"


def stream_with_group(client, stream=b"s", group=b"g", n=10, delivered=None, consumer=b"c"):
    """Entries 1-0 … n-0, of which the first so many (null: all) are pending."""
    add(client, stream, *[f"{i}-0" for i in range(1, n + 1)])
    client.xgroup_create(stream, group, id="0")
    if delivered != 0:
        deliver(client, stream, group, consumer, delivered or n)


def ids_of(rows):
    return [str(row.id) for row in rows]
