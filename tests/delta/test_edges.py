"""Names of any bytes and ids of the whole unsigned range, through the tables and back."""

from __future__ import annotations

from collections import defaultdict
from itertools import product

from claimlib import scan
from claimlib.commands.xautoclaim import xautoclaim
from claimlib.ids import MAX_ID, MIN_ID, StreamId, parse_id
from claimlib.model import AutoclaimRequest, Consumer, Group, PendingEntry
from claimlib.names import unspell
from claimlib.testing.tables import read_groups, write_keyspace
from claimlib.words import Stream
from tests.request_table import request_table

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
                consumers=tuple(Consumer(one, 5, None) for one in sorted([name, b"dead"])),
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


def test_names_and_ids_at_the_edges_are_written_swept_and_read_back_as_they_are(store, spark):
    write_keyspace(store, KEYSPACE, NOW_MS)
    assert read_groups(store) == {stream: state.groups for stream, state in KEYSPACE.items()}

    reply = xautoclaim(store, request_table(spark, REQUESTS))

    expected = {
        (stream, group): scan.xautoclaim(
            KEYSPACE[stream].groups[group], request, NOW_MS, KEYSPACE[stream].entries
        )
        for (stream, group), request in REQUESTS.items()
    }
    after = read_groups(store)
    for (stream, group), (state, _) in expected.items():
        assert after[stream][group] == state, (stream[:20], group[:20])
    claimed, deleted = shown(reply.claimed, "fields"), shown(reply.deleted)
    for (stream, group), (_, answer) in expected.items():
        assert claimed.pop((stream, group), {}) == {
            str(stream_id): (pairs(KEYSPACE[stream].entries[stream_id]),)
            for stream_id in answer.claimed
        }
        assert deleted.pop((stream, group), {}) == {str(one): () for one in answer.deleted}
    assert (claimed, deleted) == ({}, {})


def test_the_cases_claim_delete_and_leave_at_every_edge():
    kinds = defaultdict(set)
    for (stream, group), request in REQUESTS.items():
        state, found = KEYSPACE[stream].groups[group], KEYSPACE[stream].entries
        _, answer = scan.xautoclaim(state, request, NOW_MS, found)
        for entry in state.pending:
            kinds[entry.id].add(
                "before the start"
                if entry.id < request.start
                else "claimed"
                if entry.id in answer.claimed
                else "deleted"
                if entry.id in answer.deleted
                else "left"
            )
    everything = {"claimed", "deleted", "left", "before the start"}
    assert [kinds[stream_id] for stream_id in IDS] == [everything] * (len(IDS) - 1) + [
        everything - {"before the start"}
    ]


def pairs(fields):
    return list(zip(fields[::2], fields[1::2], strict=True))


def shown(rows, *columns):
    """Per group the ids of a reply's frame, with some of its columns."""
    found = defaultdict(dict)
    for row in rows.select("stream", "consumer_group", "id", *columns).collect():
        found[unspell(row[0]), unspell(row[1])][row[2]] = tuple(row[3:])
    return found
