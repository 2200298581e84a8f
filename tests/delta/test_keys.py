"""What rows are known by: names where hashes collide; rows that nothing tells apart, or judges."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from types import SimpleNamespace

import pytest
from pyspark.sql import functions as F

from claimlib.commands.sweep_decision import decide
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.plans.keys import GROUP_KEY, STREAM_KEY, KeyMode, shared_keys
from claimlib.plans.survey import NO_PROOF, NO_PROOF_REMEDY, NO_SNAPSHOT_TIME
from claimlib.runs import begin_reading
from claimlib.semantics import scan
from claimlib.semantics.ids import MAX_ID, MIN_ID, StreamId, to_bigint
from claimlib.semantics.model import AutoclaimRequest, Consumer, Group, PendingEntry
from claimlib.semantics.names import spell
from claimlib.semantics.words import Stream
from claimlib.store.tables import Store
from claimlib.testing.tables import write_keyspace
from tests.delta.gathered import Gathered

NOW_MS = 1_750_000_000_000
IDS = tuple(StreamId(ms, 0) for ms in range(1, 7))
REQUEST = AutoclaimRequest(b"alice", 1000, StreamId(2, 0))
# Two names with one xxhash64: the hash takes eight bytes at a time by steps that can be undone.
COLLIDING = (b"orders:eu-west-1", b"orFNuqCPexYgjABe")


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


# ---- names instead of hashes ----

# As text these names run into each other, unless something keeps them apart.
RUNNING_TOGETHER = {
    b"a": stream(2, bc=pel(b"", None, b"=")),
    b"ab": stream(3, c=pel(None, b"=="), bc=pel(b"x")),
    b"abc": stream(4, **{"": pel(b"")}),
    b"1:a": stream(5, bc=pel(b"\xff")),
}
ALIKE = {
    COLLIDING[0]: stream(3, g=pel(*COLLIDING, None)),
    COLLIDING[1]: stream(4, g=pel(*COLLIDING[::-1])),
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
UNPROVEN = f"no proof of absence: {NO_PROOF}: {{}}. {NO_PROOF_REMEDY}"
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
    *(
        (spell(key), spell(g))
        for key, state in (RUNNING_TOGETHER | ALIKE).items()
        for g in state.groups
    ),
    *((key.decode(), "g") for key in SOUND),
    ("twice", "h"),
}
SHARED = "stream IN ('{}', '{}')".format(*(name.decode() for name in COLLIDING))


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


def test_a_key_that_two_names_share_is_found_and_no_other(spark):
    names = [*(name.decode() for name in COLLIDING), "orders:eu-west-1", "a", "ab"]
    frame = spark.createDataFrame([(name, "g") for name in names], "stream STRING, name STRING")
    named = frame.withColumn("consumer_group", F.col("name"))
    hashes = KeyMode.HASHES
    keyed = named.selectExpr("'stream'", STREAM_KEY[hashes], "stream").union(
        named.selectExpr("'group'", GROUP_KEY[hashes], GROUP_KEY[KeyMode.NAMES])
    )
    other = keyed.limit(1).select(F.lit("elsewhere"), *keyed.columns[1:2], F.lit("another"))

    shared = shared_keys(keyed.union(other).toDF("of", "key", "name")).collect()

    assert sorted(row["of"] for row in shared) == ["group", "stream"]


@pytest.fixture(scope="module")
def swept(spark, empty_store, tmp_path_factory):
    """All groups above in one store: decided by hashes, and then, with two names that share one,
    swept by a run."""
    where = shutil.copytree(empty_store, tmp_path_factory.mktemp("keys") / "store")
    store = Store.open(spark, str(where))
    gathered().write(store)
    by_hashes = decide(begin_reading(store), [SweepRequest(REQUEST)], None, refuse_duplicates=True)
    assert by_hashes.key_mode is KeyMode.HASHES
    decided = by_hashes.rows.collect()
    write_keyspace(store, ALIKE, NOW_MS)
    before = state_of(store, "pending")
    reply = xautoclaim(store, SweepRequest(REQUEST))
    return SimpleNamespace(
        store=store, decided=decided, before=before, after=state_of(store, "pending"), reply=reply
    )


def test_names_take_over_where_two_names_share_a_hash_and_decide_what_hashes_decide(swept):
    journal = swept.store.read("journal")
    (run,) = journal.where("kind = 'run'").collect()
    assert json.loads(run["inputs"])["key_mode"] == KeyMode.NAMES
    others = journal.where(f"kind != 'run' AND NOT {SHARED}")
    by_names = others.select(*swept.decided[0].asDict()).collect()
    assert set(map(as_text, by_names)) == set(map(as_text, swept.decided))
    assert {row["kind"] for row in by_names} == {
        *("claimed", "deleted", "swept", "refused", "consumer"),
    }


def test_streams_groups_and_owners_that_share_a_hash_are_kept_apart(swept):
    expected = reference(RUNNING_TOGETHER | ALIKE)
    for stream_name, groups in expected.items():
        for group_name, group in groups.items():
            assert after(swept, stream_name, group_name) == set(map(as_row, group.pending))
    purged = swept.store.read("tombstones").where(SHARED).collect()
    assert sorted((row["stream"].encode(), row["id_ms"]) for row in purged) == sorted(
        zip(COLLIDING, (3, 4), strict=True)
    )


def after(swept, stream_name, group_name):
    return set(swept.after[spell(stream_name), spell(group_name)])


def test_a_group_with_rows_that_cannot_be_judged_is_refused_and_says_why(swept):
    rows = swept.reply.groups.collect()
    refused = {tuple(row[:2]): row["reason"] for row in rows if row["status"] == "refused"}
    assert refused == REASONS
    assert {tuple(row[:2]) for row in rows if row["status"] == "swept"} == SWEPT
    assert {row["reason"] for row in rows if row["status"] == "swept"} == {None}
    counts = swept.reply.counts
    assert (counts["refused"], counts["swept"]) == (len(REASONS), len(SWEPT))


def test_a_refused_group_stays_as_it_is(swept):
    for names in REASONS:
        assert swept.after[names] == swept.before[names] != []
    changed = set(state_of(swept.store, "tombstones")) | seen_now(swept.store)
    assert not changed & set(REASONS)


def test_the_groups_beside_refused_ones_are_swept(swept):
    expected = reference(SOUND | {b"twice": REFUSED[b"twice"]})
    expected[b"twice"].pop(b"g")
    for stream_name, groups in expected.items():
        for group_name, group in groups.items():
            assert after(swept, stream_name, group_name) == set(map(as_row, group.pending))
    assert seen_now(swept.store) == SWEPT


def test_two_rows_of_one_key_refuse_nothing_where_they_are_left_alone(swept):
    twice = (to_bigint(3), 0, "dead", NOW_MS - 9, 1)
    assert swept.after["sound:twice but fresh", "g"].count(twice) == 2


PENDING = ("id_ms", "id_seq", "consumer", "delivery_time_ms", "delivery_count")


def as_text(row):
    return str(sorted(row.asDict().items()))


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
    rows = store.read(table).select("stream", "consumer_group", *(columns or PENDING)).collect()
    for row in sorted(rows, key=str):
        by_group[row[0], row[1]].append(tuple(row[2:]))
    return by_group
