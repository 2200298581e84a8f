"""Streams whose names and ids are at the edges: any bytes, and the whole unsigned range."""

from __future__ import annotations

from itertools import product

from claimlib.semantics.ids import MAX_ID, MIN_ID, StreamId, parse_id
from claimlib.semantics.model import AutoclaimRequest, Consumer, Group, PendingEntry
from claimlib.semantics.words import Stream

NOW_MS = 1_750_000_000_000
MIN_IDLE_MS = 1000
EDGES = (2**53, 2**63 - 1, 2**63, 2**64 - 1)
IDS = [StreamId(ms, seq) for ms, seq in product(EDGES, EDGES)]
NAMES = [
    b"",
    b"\xff\xfe",
    b"\\",
    b"\\xff",
    b"back\\slash\\",
    b"new\nline\r\n",
    b"quo'te\"`",
    b"n" * 1000,
    b"n" * 999 + b"\xff",
    b"nul\x00",
    b"\xed\xa0\x80",
    b"{pending} %s *[a]",
    "日本😀\u2028".encode(),
]
BY_ID = b"by id"


def pel(owners, starts_fresh=0):
    """All the edge ids pending: the owners in turn, each third one fresh."""
    return tuple(
        PendingEntry(
            stream_id,
            owners[number % len(owners)],
            NOW_MS - (10 if (number + starts_fresh) % 3 == 0 else 60_000),
            number,
        )
        for number, stream_id in enumerate(IDS)
    )


def entries(dangling):
    """The edge ids that a stream still has, with awkward fields, in an order that is not sorted."""
    return {
        stream_id: (b"z", str(stream_id).encode("ascii"), b"", b"\xff\x00\\", b"a\n", b"")
        for number, stream_id in enumerate(IDS)
        if number % 4 != dangling
    }


# Each name is a stream's, its group's, an owner's and the caller's.
NAMED = {
    name: Stream(
        entries(dangling=number % 4),
        {
            name: Group(
                last_delivered_id=IDS[number],
                pending=pel([name, b"dead", None], starts_fresh=number),
                consumers=tuple(Consumer(owner, 5, None) for owner in sorted([name, b"dead"])),
            )
        },
    )
    for number, name in enumerate(NAMES)
}
# Each edge id is where one group's sweep starts.
STARTS = {
    str(stream_id).encode("ascii"): Group(MAX_ID, pel([b"dead"], number), ())
    for number, stream_id in enumerate(IDS)
}
KEYSPACE = {**NAMED, BY_ID: Stream(entries(dangling=2), STARTS)}
REQUESTS = {
    **{(name, name): AutoclaimRequest(name, MIN_IDLE_MS, MIN_ID) for name in NAMES},
    **{
        (BY_ID, group): AutoclaimRequest(b"alice", MIN_IDLE_MS, parse_id(group)) for group in STARTS
    },
}
