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
from tests.delta.pels import NOW_MS
from tests.delta.reading import query

MINUTE_MS = 60_000
ALICE, BOB, DEAD = b"alice", b"bob", b"dead"
IDS = tuple(StreamId(ms, 0) for ms in range(1, 9))
ONE, TWO, THREE, FOUR, FIVE, SIX, SEVEN, EIGHT = IDS
GONE = FOUR  # no longer in the streams, and pending
FREE = (SEVEN, EIGHT)  # in the streams, and not pending
EDGE = StreamId(2**63, MAX_U64)


def entry(one: StreamId, owner: bytes | None = DEAD, idle_ms: int = MINUTE_MS) -> PendingEntry:
    return PendingEntry(one, owner, NOW_MS - idle_ms, 1)


PEL = Group(
    last_delivered_id=StreamId(2**63, 5),
    pending=tuple(entry(one) for one in IDS if one not in FREE),
    consumers=(Consumer(BOB, 5, 4), Consumer(DEAD, NOW_MS - MINUTE_MS, None)),
)
ENTRIES = {one: (b"field", b"%d" % one.ms) for one in IDS if one != GONE}
SOUND = Stream(ENTRIES, {b"g": PEL})


def claim(*ids: StreamId, consumer: bytes = ALICE, min_idle_ms: int = 1000, **others: Any):
    return ClaimRequest(consumer, min_idle_ms, ids, **others)


# ---- what is done as it was decided ----

DONE: Mapping[bytes, Sequence[ClaimRequest]] = {
    b"all": [
        claim(THREE, ONE, GONE, GONE, SEVEN),
        claim(SEVEN, ONE, consumer=BOB, min_idle_ms=0, force=True, retrycount=9),
        claim(ONE, TWO, FIVE, idle_ms=5000, justid=True),
        claim(TWO, EIGHT, force=True, justid=True),
    ],
    b"lastid above": [claim(last_id=StreamId(2**63, 6)), claim(last_id=StreamId(2**63, 7))],
    b"lastid below": [claim(ONE, last_id=StreamId(2**63 - 1, MAX_U64))],
    b"no ids": [claim(), claim(consumer=b"new")],
    b"no ids, 7.0": [claim(profile=Profile.REDIS_7_0)],
    b"7.0": [claim(ONE, SEVEN, force=True, consumer=BOB, profile=Profile.REDIS_7_0)],
    b"equal, documented": [claim(ONE, min_idle_ms=MINUTE_MS)],
    b"equal, server": [claim(ONE, min_idle_ms=MINUTE_MS, idle_rule=IdleRule.SERVER)],
    b"nobody asks": [],
    b"outside, and of no account": [claim(ONE, EDGE, MAX_ID)],
}
PROVEN = (MIN_ID, StreamId(8, 0))

# ---- what somebody else does first ----

LOST = b"lost"
LOST_7_0 = b"lost, 7.0"
FORESTALLED = {
    LOST: [
        claim(ONE, TWO, THREE, consumer=BOB),
        claim(ONE, GONE, SEVEN, EIGHT, min_idle_ms=0, force=True),
    ],
    LOST_7_0: [claim(ONE, consumer=b"new", profile=Profile.REDIS_7_0)],
}


def interfere(store: Store) -> None:
    """What others do: they acknowledge 1-0 and 4-0, take 2-0, and get 7-0 delivered."""
    pending = store.identifier("pending")
    in_both = f"stream IN ('{LOST.decode()}', '{LOST_7_0.decode()}')"
    store.spark.sql(f"DELETE FROM {pending} WHERE {in_both} AND id_ms IN (1, 4)")
    store.spark.sql(f"UPDATE {pending} SET consumer = 'eve' WHERE {in_both} AND id_ms = 2")
    seven = (LOST.decode(), "g", SEVEN.ms, SEVEN.seq, "eve", NOW_MS + 7, 1, 0)
    store.append("pending", store.rows("pending", [seven], PENDING), are_few=True)


PENDING = (
    *("stream", "consumer_group", "id_ms", "id_seq", "consumer"),
    *("delivery_time_ms", "delivery_count", "run_seq"),
)

# ---- what is refused ----

REFUSED: Mapping[bytes, Sequence[ClaimRequest]] = {
    b"unknown": [claim(ONE)],
    b"no instant": [claim(ONE), claim()],
    b"instant before 1970": [claim(ONE, idle_ms=2**63 - 1)],
    b"negative time": [claim(ONE, TWO)],
    b"negative count": [claim(ONE, TWO)],
    b"twice": [claim(ONE, SIX)],
    b"unproven and pending": [claim(ONE, SIX, SEVEN)],
    b"unproven and forced": [claim(SEVEN, EIGHT, SEVEN, force=True)],
    b"two rows in groups": [claim(ONE)],
    b"two rows in streams": [claim(ONE)],
}
UNPROVEN = f"no proof of absence: {NO_PROOF}: {{}}. {NO_PROOF_REMEDY}"
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
    b"negative time, elsewhere": [claim(ONE)],
    b"twice, elsewhere": [claim(ONE)],
    b"unproven, elsewhere": [claim(ONE), claim(SEVEN)],
}

# ---- all of it ----

EXTRA = 20  # streams of the random batch


def everything() -> Batch:
    """All stories and the random batch; what only the tables can hold, `write` adds."""
    stories = {**DONE, **FORESTALLED, **REFUSED, **SPARED}
    drawn = random_batch(EXTRA, seed=20)
    asked = [
        (turn, NamedClaim(stream, b"g", one))
        for stream, claims in stories.items()
        for turn, one in enumerate(claims)
    ]
    asked += list(enumerate(one for _, one in sorted(drawn.requests.items())))
    asked.sort(key=lambda one: one[0])
    keyspace: Keyspace = dict.fromkeys(stories, SOUND) | {b"unknown": Stream(ENTRIES, {})}
    instants = dict.fromkeys(stories, NOW_MS) | {b"no instant": None, b"instant before 1970": -5}
    unproven = {stream: (MIN_ID, FIVE) for stream in stories if stream.startswith(b"unproven")}
    return Batch(
        keyspace | drawn.keyspace,
        instants | drawn.instants,
        dict.fromkeys(stories, PROVEN) | unproven | drawn.proven,
        {number: one for number, (_, one) in enumerate(asked, start=1)},
        f"stories, and {drawn.name}",
    )


def write(store: Store, batch: Batch) -> None:
    """The batch, and rows that no server would have: negative ones, and 6-0, a group and a stream
    twice."""
    gathered = Gathered()
    batch.write(gathered)
    pending = gathered.tables["pending"]
    for row in pending:
        if row["id_ms"] == TWO.ms and row["stream"].startswith("negative"):
            row["delivery_count" if "count" in row["stream"] else "delivery_time_ms"] = -1
    pending += [
        {**row, "consumer": "eve"}
        for row in pending
        if row["id_ms"] == SIX.ms and row["stream"].startswith("twice")
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
    found: Rows = defaultdict(list)
    for row in query(where, table, f"SELECT stream, {', '.join(COLUMNS[table])} FROM t"):
        found[row["stream"]].append(tuple(row.values())[1:])
    return {stream: sorted(rows, key=str) for stream, rows in found.items()}


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
            (spelled, *_state(one), int((name, one.id) in touched)) for one in group.pending
        ]
        rows["consumers"] += [
            (spelled, *_seen(one), int(one not in before.consumers)) for one in group.consumers
        ]
    return {table: sorted(found, key=str) for table, found in rows.items()}


def _bits(one: StreamId) -> tuple[int, int]:
    return to_bigint(one.ms), to_bigint(one.seq)


def _state(one: PendingEntry) -> tuple[object, ...]:
    owner = None if one.consumer is None else spell(one.consumer)
    return (*_bits(one.id), owner, one.delivery_time_ms, one.delivery_count)


def _seen(one: Consumer) -> tuple[object, ...]:
    return spell(one.name), one.seen_time_ms, one.active_time_ms
