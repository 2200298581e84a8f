"""A keyspace in which XCLAIMs meet all that can become of an id, what others do to it between the
decision and the change, and what is to come of both; with the random batch beside it.

Each stream is a story of its own: one run over all of them costs what a run over one does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from claimlib.commands.xclaim import NamedClaim
from claimlib.plans.survey import NO_PROOF, NO_PROOF_REMEDY, NO_SNAPSHOT_TIME
from claimlib.semantics.ids import MAX_ID, MAX_U64, MIN_ID, StreamId, to_bigint
from claimlib.semantics.model import ClaimRequest, Consumer, Group, IdleRule, PendingEntry, Profile
from claimlib.semantics.names import spell
from claimlib.semantics.words import Keyspace, Stream
from claimlib.store.tables import Store
from tests.claim_batches import Batch, random_batch
from tests.delta.gathered import Gathered
from tests.delta.own_rows import delete, update
from tests.delta.pels import NOW_MS
from tests.delta.reading import query
from tests.writing import append_rows

MINUTE_MS = 60_000
ALICE, BOB, DEAD = b"alice", b"bob", b"dead"
IDS = tuple(StreamId(ms, 0) for ms in range(1, 9))
ID_1, ID_2, ID_3, ID_4, ID_5, ID_6, ID_7, ID_8 = IDS
GONE = ID_4  # no longer in the streams, and pending
FREE = (ID_7, ID_8)  # in the streams, and not pending
EDGE = StreamId(2**63, MAX_U64)


def entry(
    stream_id: StreamId, owner: bytes | None = DEAD, idle_ms: int = MINUTE_MS
) -> PendingEntry:
    return PendingEntry(stream_id, owner, NOW_MS - idle_ms, 1)


PEL = Group(
    last_delivered_id=StreamId(2**63, 5),
    pending=tuple(entry(stream_id) for stream_id in IDS if stream_id not in FREE),
    consumers=(Consumer(BOB, 5, 4), Consumer(DEAD, NOW_MS - MINUTE_MS, None)),
)
ENTRIES = {stream_id: (b"field", b"%d" % stream_id.ms) for stream_id in IDS if stream_id != GONE}
SOUND = Stream(ENTRIES, {b"g": PEL})


def claim(*ids: StreamId, consumer: bytes = ALICE, min_idle_ms: int = 1000, **others: Any):
    return ClaimRequest(consumer, min_idle_ms, ids, **others)


# ---- what is done as it was decided ----

DONE: Mapping[bytes, Sequence[ClaimRequest]] = {
    b"all": [
        claim(ID_3, ID_1, GONE, GONE, ID_7),
        claim(ID_7, ID_1, consumer=BOB, min_idle_ms=0, force=True, retrycount=9),
        claim(ID_1, ID_2, ID_5, idle_ms=5000, justid=True),
        claim(ID_2, ID_8, force=True, justid=True),
    ],
    b"lastid above": [claim(last_id=StreamId(2**63, 6)), claim(last_id=StreamId(2**63, 7))],
    b"lastid below": [claim(ID_1, last_id=StreamId(2**63 - 1, MAX_U64))],
    b"no ids": [claim(), claim(consumer=b"new")],
    b"no ids, 7.0": [claim(profile=Profile.REDIS_7_0)],
    b"7.0": [claim(ID_1, ID_7, force=True, consumer=BOB, profile=Profile.REDIS_7_0)],
    b"equal, documented": [claim(ID_1, min_idle_ms=MINUTE_MS)],
    b"equal, server": [claim(ID_1, min_idle_ms=MINUTE_MS, idle_rule=IdleRule.SERVER)],
    b"nobody asks": [],
    b"outside, and of no account": [claim(ID_1, EDGE, MAX_ID)],
}
PROVEN = (MIN_ID, StreamId(8, 0))

# ---- what somebody else does first ----

LOST = b"lost"
LOST_7_0 = b"lost, 7.0"
FORESTALLED = {
    LOST: [
        claim(ID_1, ID_2, ID_3, consumer=BOB),
        claim(ID_1, GONE, ID_7, ID_8, min_idle_ms=0, force=True),
    ],
    LOST_7_0: [claim(ID_1, consumer=b"new", profile=Profile.REDIS_7_0)],
}


def interfere(store: Store) -> None:
    """What others do: they acknowledge 1-0 and 4-0, take 2-0, and get 7-0 delivered."""
    in_both = f"stream IN ('{LOST.decode()}', '{LOST_7_0.decode()}')"
    delete(store, "pending", f"{in_both} AND id_ms IN (1, 4)")
    update(store, "pending", f"{in_both} AND id_ms = 2", consumer="'eve'")
    seven = (LOST.decode(), "g", ID_7.ms, ID_7.seq, "eve", NOW_MS + 7, 1, 0)
    append_rows(store, "pending", store.rows("pending", [seven], PENDING))


PENDING = (
    *("stream", "consumer_group", "id_ms", "id_seq", "consumer"),
    *("delivery_time_ms", "delivery_count", "run_seq"),
)

# ---- what is refused ----

REFUSED: Mapping[bytes, Sequence[ClaimRequest]] = {
    b"unknown": [claim(ID_1)],
    b"no instant": [claim(ID_1), claim()],
    b"instant before 1970": [claim(ID_1, idle_ms=2**63 - 1)],
    b"negative time": [claim(ID_1, ID_2)],
    b"negative count": [claim(ID_1, ID_2)],
    b"twice": [claim(ID_1, ID_6)],
    b"unproven and pending": [claim(ID_1, ID_6, ID_7)],
    b"unproven and forced": [claim(ID_7, ID_8, ID_7, force=True)],
    b"two rows in groups": [claim(ID_1)],
    b"two rows in streams": [claim(ID_1)],
}
UNPROVEN = f"{NO_PROOF}: {{}}. {NO_PROOF_REMEDY}"
NEGATIVE = "rows of pending with a negative delivery_time_ms or delivery_count: 1"
TWO_ROWS = "duplicate key in {}: delete all rows of the key but one"
REASONS = {
    b"unknown": (
        "NOGROUP No such key 'unknown' or consumer group 'g' (it is not in the table groups)"
    ),
    b"no instant": NO_SNAPSHOT_TIME,
    b"instant before 1970": NO_SNAPSHOT_TIME,
    b"negative time": NEGATIVE,
    b"negative count": NEGATIVE,
    b"twice": "duplicate key: ids that occur more than once in pending: 1, the first is 6-0",
    b"unproven and pending": UNPROVEN.format(1),
    b"unproven and forced": UNPROVEN.format(2),
    b"two rows in groups": TWO_ROWS.format("groups"),
    b"two rows in streams": TWO_ROWS.format("streams"),
}
# The same rows are there, and nobody asks for them: these are done.
SPARED = {
    b"negative time, elsewhere": [claim(ID_1)],
    b"twice, elsewhere": [claim(ID_1)],
    b"unproven, elsewhere": [claim(ID_1), claim(ID_7)],
}

# ---- all of it ----

EXTRA = 20  # streams of the random batch


def everything() -> Batch:
    """All stories and the random batch; what only the tables can hold, `write` adds."""
    stories = {**DONE, **FORESTALLED, **REFUSED, **SPARED}
    drawn = random_batch(EXTRA, seed=20)
    in_turn = [
        (turn, NamedClaim(stream, b"g", request))
        for stream, claims in stories.items()
        for turn, request in enumerate(claims)
    ]
    in_turn += list(enumerate(named for _, named in sorted(drawn.requests.items())))
    in_turn.sort(key=lambda numbered: numbered[0])
    keyspace: Keyspace = dict.fromkeys(stories, SOUND) | {b"unknown": Stream(ENTRIES, {})}
    instants = dict.fromkeys(stories, NOW_MS) | {b"no instant": None, b"instant before 1970": -5}
    unproven = {stream: (MIN_ID, ID_5) for stream in stories if stream.startswith(b"unproven")}
    return Batch(
        keyspace | drawn.keyspace,
        instants | drawn.instants,
        dict.fromkeys(stories, PROVEN) | unproven | drawn.proven,
        {number: named for number, (_, named) in enumerate(in_turn, start=1)},
        f"stories, and {drawn.name}",
    )


def write(store: Store, batch: Batch) -> None:
    """The batch, and rows that no server would have: negative ones, and 6-0, a group and a stream
    twice."""
    gathered = Gathered()
    batch.write(gathered)
    pending = gathered.tables["pending"]
    for row in pending:
        if row["id_ms"] == ID_2.ms and row["stream"].startswith("negative"):
            row["delivery_count" if "count" in row["stream"] else "delivery_time_ms"] = -1
    pending += [
        {**row, "consumer": "eve"}
        for row in pending
        if row["id_ms"] == ID_6.ms and row["stream"].startswith("twice")
    ]
    for table in ("groups", "streams"):
        rows = gathered.tables[table]
        rows += [dict(row) for row in rows if row["stream"] == f"two rows in {table}"]
    gathered.write(store)


# ---- tables as they are, and as they should be ----

Rows = dict[str, list[tuple[object, ...]]]
"""Rows of a table by stream, sorted, without it."""

COLUMNS = {
    "pending": PENDING[1:],
    "consumers": ("consumer_group", "consumer", "seen_time_ms", "active_time_ms", "run_seq"),
    "groups": ("consumer_group", "last_delivered_ms", "last_delivered_seq", "run_seq"),
    "tombstones": (
        *("consumer_group", "id_ms", "id_seq", "consumer", "delivery_time_ms", "delivery_count"),
        *("purged_at_ms", "run_seq"),
    ),
}


def rows_of(where: str, table: str) -> Rows:
    """What delta-rs reads of a table."""
    by_stream: Rows = defaultdict(list)
    for row in query(where, table, f"SELECT stream, {', '.join(COLUMNS[table])} FROM t"):
        by_stream[row["stream"]].append(tuple(row.values())[1:])
    return {stream: sorted(rows, key=str) for stream, rows in by_stream.items()}


def contents(where: str) -> dict[str, Rows]:
    return {table: rows_of(where, table) for table in COLUMNS}


def as_rows(stream: Stream, after: Mapping[bytes, Group], touched: set[object]) -> dict[str, list]:
    """The rows of a stream's groups: what is touched, or differs from the stream as it was, bears
    the number of the first run."""
    rows: dict[str, list] = {table: [] for table in COLUMNS}
    for name, group in after.items():
        before, spelled = stream.groups[name], spell(name)
        raised = int(group.last_delivered_id != before.last_delivered_id)
        rows["groups"].append((spelled, *_bits(group.last_delivered_id), raised))
        rows["pending"] += [
            (spelled, *_state(entry), int((name, entry.id) in touched)) for entry in group.pending
        ]
        rows["consumers"] += [
            (spelled, *_seen(consumer), int(consumer not in before.consumers))
            for consumer in group.consumers
        ]
    return {table: sorted(of_table, key=str) for table, of_table in rows.items()}


def _bits(stream_id: StreamId) -> tuple[int, int]:
    return to_bigint(stream_id.ms), to_bigint(stream_id.seq)


def _state(entry: PendingEntry) -> tuple[object, ...]:
    owner = None if entry.consumer is None else spell(entry.consumer)
    return (*_bits(entry.id), owner, entry.delivery_time_ms, entry.delivery_count)


def _seen(consumer: Consumer) -> tuple[object, ...]:
    return spell(consumer.name), consumer.seen_time_ms, consumer.active_time_ms
