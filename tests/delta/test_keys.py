"""What rows are known by: names where hashes collide; rows that nothing tells apart, or judges."""

from __future__ import annotations

import json
from collections import Counter, defaultdict

from pyspark.sql import functions as F

from claimlib import scan
from claimlib.commands.xautoclaim import SweepRequest, _decide, xautoclaim
from claimlib.ids import MAX_ID, MIN_ID, StreamId, to_bigint
from claimlib.model import AutoclaimRequest, Consumer, Group, PendingEntry
from claimlib.plans.keys import KeyMode, group_key, shared_keys, stream_key
from claimlib.runs import begin_reading
from claimlib.testing.tables import read_groups, write_keyspace
from claimlib.words import Stream

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
            PendingEntry(one, owners[n % len(owners)], NOW_MS - (9 if one in fresh else 60_000), 1)
            for n, one in enumerate(ids)
        ),
        consumers=(Consumer(b"alice", 5, None),),
    )


def stream(dangling, **groups):
    """A stream that has the ids 1-0 … 6-0, but one."""
    ids = [one for one in IDS if one.ms != dangling]
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


def test_names_take_over_where_two_names_share_a_hash_and_decide_what_hashes_decide(store):
    write_keyspace(store, RUNNING_TOGETHER, NOW_MS)
    by_hashes = _decide(begin_reading(store), SweepRequest(REQUEST), None, refuse_duplicates=False)
    assert by_hashes.key_mode is KeyMode.HASHES
    decided = set(map(as_text, by_hashes.rows.collect()))

    write_keyspace(store, ALIKE, NOW_MS)
    xautoclaim(store, SweepRequest(REQUEST))

    journal = store.read("journal")
    (run,) = journal.where("kind = 'run'").collect()
    assert json.loads(run["inputs"])["key_mode"] == KeyMode.NAMES
    colliding = F.col("stream").isin([name.decode() for name in COLLIDING])
    by_names = journal.where(~colliding).select(by_hashes.rows.columns).collect()
    assert set(map(as_text, by_names)) == decided
    assert Counter(row["kind"] for row in by_names) == {
        "claimed": 20,
        "deleted": 5,
        "swept": 5,
        "consumer": 5,
    }
    assert read_groups(store) == reference(RUNNING_TOGETHER | ALIKE)
    purged = store.read("tombstones").where(colliding).collect()
    assert {(row["stream"].encode(), row["id_ms"]) for row in purged} == set(
        zip(COLLIDING, (3, 4), strict=True)
    )


def as_text(row):
    return str(sorted(row.asDict().items()))


def test_a_key_that_two_names_share_is_found_and_no_other(spark):
    names = [*(name.decode() for name in COLLIDING), "orders:eu-west-1", "a", "ab"]
    frame = spark.createDataFrame([(name, "g") for name in names], "stream STRING, name STRING")
    named = frame.withColumn("consumer_group", F.col("name"))
    hashes = KeyMode.HASHES
    keyed = named.select(F.lit("stream"), stream_key(hashes), "stream").union(
        named.select(F.lit("group"), group_key(hashes), group_key(KeyMode.NAMES))
    )
    other = keyed.limit(1).select(F.lit("elsewhere"), *keyed.columns[1:2], F.lit("another"))

    found = shared_keys(keyed.union(other).toDF("of", "key", "name")).collect()

    assert sorted((row["of"], row["names"]) for row in found) == [("group", 2), ("stream", 2)]


# ---- rows that refuse their group ----

EDGE = StreamId(2**63, 2**64 - 1)
SOUND = {
    b"sound": stream(3, g=pel(b"dead", None)),
    b"sound:no such group pending": stream(2, g=pel(b"dead")),
    b"sound:proven from the start on": stream(2, g=pel(b"dead")),
    b"sound:nothing pending": Stream({}, {b"g": pel(b"dead", ids=())}),
}
# Rows like these are told apart by nothing; the rule leaves them alone, and so does the run.
SOUND_TWICE = {b"sound:twice but fresh": stream(2, g=pel(b"dead", fresh=[StreamId(3, 0)]))}
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
UNPROVEN = "no proof of absence: {} pending ids lie outside the range that streams calls complete"
NEGATIVE = "1 rows of pending have a negative delivery_time_ms or delivery_count"
TWICE = "two rows of one key: pending has {} ids more than once, the first is {}"
REASONS = {
    ("twice", "g"): TWICE.format(2, "4-0"),
    ("twice at the edge", "g"): TWICE.format(1, EDGE),
    ("unproven", "g"): UNPROVEN.format(5),
    ("proven in part", "g"): UNPROVEN.format(1),
    ("no stream row", "g"): UNPROVEN.format(5),
    ("negative time", "g"): NEGATIVE,
    ("negative count", "g"): NEGATIVE,
    ("no instant", "g"): "no instant: groups.snapshot_ms is null or negative; give one with --now",
    ("sound:no such group pending", "ghost"): "unknown group: it is not in the table groups",
}


class Gathered:
    """Takes what is written to a store, so that each table is appended to once."""

    def __init__(self):
        self.tables = defaultdict(list)

    def rows(self, table, values, columns):
        del table
        return [dict(zip(columns, value, strict=True)) for value in values]

    def append(self, table, rows):
        self.tables[table] += rows

    def write(self, store):
        for table, rows in self.tables.items():
            columns = list(rows[0])
            values = [tuple(row[column] for column in columns) for row in rows]
            store.append(table, store.rows(table, values, columns))


def gathered():
    """The groups of `SOUND`, `SOUND_TWICE` and `REFUSED`, with what is wrong with them."""
    to_write = Gathered()
    for name, state in (SOUND | SOUND_TWICE | REFUSED).items():
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


def test_a_group_with_rows_that_cannot_be_judged_is_refused_with_its_reason_and_left_as_it_is(
    store,
):
    to_write = gathered()
    to_write.write(store)
    before = state_of(store, "pending")

    reply = xautoclaim(store, SweepRequest(REQUEST))

    shown = {(row["stream"], row["consumer_group"]): row for row in reply.groups.collect()}
    assert {names: row["reason"] for names, row in shown.items() if row["reason"]} == REASONS
    assert {names for names, row in shown.items() if row["status"] == "refused"} == set(REASONS)
    swept = {(name.decode(), "g") for name in SOUND | SOUND_TWICE} | {("twice", "h")}
    assert {names for names, row in shown.items() if row["status"] == "swept"} == swept
    after = state_of(store, "pending")
    assert {names: after[names] for names in REASONS} == {names: before[names] for names in REASONS}
    expected = reference(SOUND | SOUND_TWICE | {b"twice": REFUSED[b"twice"]})
    for stream_name, group_name in swept:
        group = expected[stream_name.encode()][group_name.encode()]
        assert set(after[stream_name, group_name]) == set(map(as_row, group.pending))
    assert len(after["sound:twice but fresh", "g"]) == 6
    assert set(state_of(store, "tombstones")) == swept - {("sound:nothing pending", "g")}
    seen = state_of(store, "consumers", "seen_time_ms").items()
    assert {names for names, rows in seen if rows == [(NOW_MS,)]} == swept


PENDING = ("id_ms", "id_seq", "consumer", "delivery_time_ms", "delivery_count")


def as_row(entry):
    owner = None if entry.consumer is None else entry.consumer.decode()
    ids = (to_bigint(entry.id.ms), to_bigint(entry.id.seq))
    return (*ids, owner, entry.delivery_time_ms, entry.delivery_count)


def state_of(store, table, *columns):
    """Per group the rows of a table, sorted; a row as a tuple.  A group without rows has none."""
    found = defaultdict(list)
    rows = store.read(table).select("stream", "consumer_group", *(columns or PENDING)).collect()
    for row in sorted(rows, key=str):
        found[row[0], row[1]].append(tuple(row[2:]))
    return found
