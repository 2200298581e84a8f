"""What rows are known by: names that share a hash, and rows that nothing tells apart, or judges."""

from __future__ import annotations

import shutil
from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace

import pytest

from claimlib.commands.retire import Retirement, retire
from claimlib.commands.snapshot import snapshot
from claimlib.commands.xack import NamedAck, xack
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.commands.xclaim import NamedClaim, xclaim
from claimlib.errors import HashCollisionError
from claimlib.plans.survey import NO_PROOF, NO_PROOF_REMEDY, NO_SNAPSHOT_TIME
from claimlib.semantics import scan
from claimlib.semantics.ids import MAX_ID, MIN_ID, StreamId, to_bigint
from claimlib.semantics.model import AutoclaimRequest, ClaimRequest, Consumer, Group, PendingEntry
from claimlib.semantics.names import spell
from claimlib.semantics.words import Stream
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta import snapshots
from tests.delta.gathered import Gathered

NOW_MS = 1_750_000_000_000
IDS = tuple(StreamId(ms, 0) for ms in range(1, 7))
REQUEST = AutoclaimRequest(b"alice", 1000, StreamId(2, 0))
# Two names with one xxhash64: the hash takes eight bytes at a time by steps that can be undone.
COLLIDING = (b"orFNuqCPexYgjABe", b"orders:eu-west-1")
# Two groups of the stream `s` with one.
COLLIDING_GROUPS = (b"OQgnAIgwam8rIhvo", b"workers:eu-west1")


def pel(*owners, ids=IDS, fresh=()):
    """The ids pending, the owners in turn, all idle for a minute but the fresh ones."""
    return Group(
        last_delivered_id=MAX_ID,
        pending=tuple(
            PendingEntry(id_, owners[n % len(owners)], NOW_MS - (9 if id_ in fresh else 60_000), 1)
            for n, id_ in enumerate(ids)
        ),
        consumers=(Consumer(b"alice", 5, None),),
    )


def stream(dangling, **groups):
    """A stream that has the ids 1-0 … 6-0, but one."""
    ids = [id_ for id_ in IDS if id_.ms != dangling]
    return Stream(dict.fromkeys(ids, (b"n", b"v")), {k.encode(): v for k, v in groups.items()})


def reference(keyspace):
    return {
        key: {
            name: scan.xautoclaim(group, REQUEST, NOW_MS, state.entries)[0]
            for name, group in state.groups.items()
        }
        for key, state in keyspace.items()
    }


# ---- names that share a hash ----

SHARING = {
    "streams": (COLLIDING, {name: stream(3, g=pel(b"x")) for name in COLLIDING}),
    "groups": (
        tuple(b"s / " + name for name in COLLIDING_GROUPS),
        {b"s": stream(3, **{name.decode(): pel(b"x") for name in COLLIDING_GROUPS})},
    ),
    "consumers": (COLLIDING, {b"s": stream(3, g=pel(*COLLIDING))}),
}


@pytest.mark.parametrize("kind", SHARING)
def test_names_that_share_a_hash_refuse_each_command_that_would_decide_by_it(store, kind):
    names, keyspace = SHARING[kind]
    write_keyspace(store, keyspace, NOW_MS)
    before = state_of(store, "pending")
    ((key, state), *_) = keyspace.items()
    ((group, pending), *_) = state.groups.items()
    owner = pending.pending[0].consumer
    claim = ClaimRequest(b"alice", 0, IDS, justid=True)
    page = replace(REQUEST, count=1)
    for command, request in [
        (xautoclaim, SweepRequest(REQUEST)),
        (xautoclaim, SweepRequest(page)),
        (xclaim, [NamedClaim(key, group, claim)]),
        (xack, [NamedAck(key, group, IDS)]),
        (retire, Retirement(key, group, owner, (b"alice",))),
    ]:
        assert_refused(names, kind, command, store, request)
    assert store.relation("journal").is_empty()
    assert state_of(store, "pending") == before


def test_a_snapshot_is_refused_if_names_of_its_source_and_the_store_share_a_hash(store):
    def read(*streams):
        return store, snapshots.ANY, lambda _: snapshots.source(*streams)

    def batches(name, group=b"g"):
        return snapshots.stream(name, {1: b"x"}, {1}, NOW_MS, group=group)

    both = [batches(name) for name in COLLIDING]
    assert_refused(COLLIDING, "streams", snapshot, *read(*both))
    snapshot(*read(both[0]))
    assert_refused(COLLIDING, "streams", snapshot, *read(both[1]))
    snapshot(*read(batches(b"s", COLLIDING_GROUPS[0])))
    assert_refused(
        SHARING["groups"][0], "groups", snapshot, *read(batches(b"s", COLLIDING_GROUPS[1]))
    )
    assert snapshots.owners(store) == {(b"s", 1): b"x"}
    assert store.relation("entry_landing").is_empty(), "what was read in vain is not kept"


def assert_refused(names, kind, command, *request):
    with pytest.raises(HashCollisionError) as error:
        command(*request)
    assert error.value.names == [name.decode() for name in names]
    said = "the {} '{}' and '{}' have the same 64-bit hash".format(kind, *error.value.names)
    assert error.value.message.startswith(said)


# As text these names run into each other, unless something keeps them apart.
RUNNING_TOGETHER = {
    b"a": stream(2, bc=pel(b"", None, b"=")),
    b"ab": stream(3, c=pel(None, b"=="), bc=pel(b"x")),
    b"abc": stream(4, **{"": pel(b"")}),
    b"1:a": stream(5, bc=pel(b"\xff")),
}
# ---- rows that refuse their group ----

EDGE = StreamId(2**63, 2**64 - 1)
SOUND = {
    b"sound": stream(3, g=pel(b"dead", None)),
    b"sound:no such group pending": stream(2, g=pel(b"dead")),
    b"sound:proven from the start on": stream(2, g=pel(b"dead")),
    b"sound:twice but fresh": stream(2, g=pel(b"dead", fresh=[StreamId(3, 0)])),
    b"sound:nothing pending": Stream({}, {b"g": pel(b"dead", ids=())}),
}
REFUSED = {
    b"twice": stream(2, g=pel(b"dead"), h=pel(b"dead")),
    b"twice at the edge": stream(2, g=pel(b"dead", ids=(StreamId(2, 0), EDGE))),
    b"unproven": stream(2, g=pel(b"dead")),
    b"proven in part": stream(2, g=pel(b"dead")),
    b"no stream row": stream(2, g=pel(b"dead")),
    b"negative time": stream(2, g=pel(b"dead")),
    b"negative count": stream(2, g=pel(b"dead")),
    b"no instant": stream(2, g=pel(b"dead")),
}
UNPROVEN = f"{NO_PROOF}: {{}}. {NO_PROOF_REMEDY}"
NEGATIVE = "rows of pending with a negative delivery_time_ms or delivery_count: 1"
TWICE = "duplicate key: ids that occur more than once in pending: {}, the first is {}"
REASONS = {
    ("twice", "g"): TWICE.format(2, "4-0"),
    ("twice at the edge", "g"): TWICE.format(1, EDGE),
    ("unproven", "g"): UNPROVEN.format(5),
    ("proven in part", "g"): UNPROVEN.format(1),
    ("no stream row", "g"): UNPROVEN.format(5),
    ("negative time", "g"): NEGATIVE,
    ("negative count", "g"): NEGATIVE,
    ("no instant", "g"): NO_SNAPSHOT_TIME,
    ("sound:no such group pending", "ghost"): (
        "NOGROUP No such key 'sound:no such group pending' or consumer group 'ghost'"
        " (it is not in the table groups)"
    ),
}


SWEPT = {
    *((spell(key), spell(g)) for key, state in RUNNING_TOGETHER.items() for g in state.groups),
    *((key.decode(), "g") for key in SOUND),
    ("twice", "h"),
}


def gathered():
    """The groups of `RUNNING_TOGETHER`, `SOUND` and `REFUSED`, with what is wrong with them."""
    to_write = Gathered()
    for name, state in (RUNNING_TOGETHER | SOUND | REFUSED).items():
        proven = {
            b"unproven": None,
            b"proven in part": (MIN_ID, StreamId(5, 9)),
            b"sound:proven from the start on": (REQUEST.start, MAX_ID),
            b"sound:nothing pending": None,
        }.get(name, (MIN_ID, MAX_ID))
        instant = None if name == b"no instant" else NOW_MS
        write_keyspace(to_write, {name: state}, instant, proven)
    tables = to_write.tables
    tables["streams"] = [row for row in tables["streams"] if row["stream"] != "no stream row"]
    tables["entries"] *= 2
    pending = tables["pending"]
    pending += [
        *(like(pending, "twice", 4), like(pending, "twice", 5)),
        like(pending, "twice at the edge", EDGE.ms),
        like(pending, "sound:twice but fresh", 3),
        like(pending, "sound", 2, stream="sound:no such group pending", consumer_group="ghost"),
        like(pending, "negative time", 2, id_seq=7, delivery_time_ms=-1),
        like(pending, "negative count", 2, id_seq=7, delivery_count=-1),
    ]
    return to_write


def like(pending, stream_name, ms, **changes):
    """A row like that of one id, with changes."""
    (row,) = (
        row
        for row in pending
        if (row["stream"], row["consumer_group"], row["id_ms"]) == (stream_name, "g", to_bigint(ms))
    )
    return row | changes


@pytest.fixture(scope="module")
def swept(open_store, empty_store, tmp_path_factory):
    """All groups above in one store, swept by a run."""
    where = shutil.copytree(empty_store, tmp_path_factory.mktemp("keys") / "store")
    store = open_store(where)
    gathered().write(store)
    before = state_of(store, "pending")
    reply = xautoclaim(store, SweepRequest(REQUEST))
    after = state_of(store, "pending")
    return SimpleNamespace(store=store, before=before, after=after, reply=reply)


def after(swept, stream_name, group_name):
    return set(swept.after[spell(stream_name), spell(group_name)])


def test_a_group_with_rows_that_cannot_be_judged_is_refused_and_says_why(swept):
    rows = swept.reply.groups.collect()
    refused = {
        (row["stream"], row["consumer_group"]): row["reason"]
        for row in rows
        if row["status"] == "refused"
    }
    assert refused == REASONS
    assert {
        (row["stream"], row["consumer_group"]) for row in rows if row["status"] == "swept"
    } == SWEPT
    assert {row["reason"] for row in rows if row["status"] == "swept"} == {None}
    counts = swept.reply.counts
    assert (counts["refused"], counts["swept"]) == (len(REASONS), len(SWEPT))


def test_a_refused_group_stays_as_it_is(swept):
    for names in REASONS:
        assert swept.after[names] == swept.before[names] != []
    changed = set(state_of(swept.store, "tombstones")) | seen_now(swept.store)
    assert not changed & set(REASONS)


def test_the_groups_beside_refused_ones_are_swept(swept):
    expected = reference(RUNNING_TOGETHER | SOUND | {b"twice": REFUSED[b"twice"]})
    expected[b"twice"].pop(b"g")
    for stream_name, groups in expected.items():
        for group_name, group in groups.items():
            assert after(swept, stream_name, group_name) == set(map(as_row, group.pending))
    assert seen_now(swept.store) == SWEPT


def test_two_rows_of_one_key_refuse_nothing_where_they_are_left_alone(swept):
    twice = (to_bigint(3), 0, "dead", NOW_MS - 9, 1)
    assert swept.after["sound:twice but fresh", "g"].count(twice) == 2


PENDING = ("id_ms", "id_seq", "consumer", "delivery_time_ms", "delivery_count")


def as_row(entry):
    owner = None if entry.consumer is None else spell(entry.consumer)
    ids = (to_bigint(entry.id.ms), to_bigint(entry.id.seq))
    return (*ids, owner, entry.delivery_time_ms, entry.delivery_count)


def seen_now(store):
    """The groups in which the caller was seen by the run."""
    seen = state_of(store, "consumers", "consumer", "seen_time_ms")
    return {names for names, rows in seen.items() if ("alice", NOW_MS) in rows}


def state_of(store, table, *columns):
    """Per group the rows of a table, sorted; a row as a tuple.  A group without rows has none."""
    by_group = defaultdict(list)
    wanted = columns or PENDING
    rows = store.relation(table).select("stream", "consumer_group", *wanted).collect()
    for row in sorted(rows, key=str):
        by_group[row["stream"], row["consumer_group"]].append(tuple(row[name] for name in wanted))
    return by_group
