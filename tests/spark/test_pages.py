"""A page's rows are found, and few others read, wherever the ids lie; nothing else counts.

Nothing is drawn: each PEL is written down.  Pages of random groups are among those of
`test_property`, which shrinks what differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from claimlib.commands import paging
from claimlib.commands.sweep_decision import decide
from claimlib.commands.xautoclaim import SweepRequest
from claimlib.engine.limits import LIMITS
from claimlib.engine.relation import Relation, Rows
from claimlib.errors import DuplicateRowsError, HashCollisionError
from claimlib.local_rows import arrow_table
from claimlib.runs import Begun
from claimlib.schema import BUCKET_SQL, TABLES
from claimlib.semantics.ids import MAX_ID, MAX_U64, MIN_ID, StreamId, from_bigint, to_bigint
from claimlib.semantics.model import AutoclaimRequest, Group, PendingEntry
from claimlib.semantics.words import Stream
from claimlib.store.tables import Pins
from claimlib.testing.keyspace_rows import request_table, write_keyspace
from tests.delta.test_keys import COLLIDING
from tests.limits import set_limits
from tests.spark.literal import LiteralStore

NOW_MS = 1_750_000_000_000


@dataclass(frozen=True)
class Pel:
    """The ids of one group, and where its page begins."""

    ids: tuple[StreamId, ...]
    start: StreamId
    count: int
    proven: tuple[int, int] | None = None

    @property
    def page_rows(self) -> int:
        return 10 * self.count + 1

    @property
    def behind(self) -> list[StreamId]:
        return [stream_id for stream_id in self.ids if stream_id >= self.start]


def ids(milliseconds: Iterable[int]) -> tuple[StreamId, ...]:
    return tuple(StreamId(ms, 0) for ms in milliseconds)


PELS = {
    "nothing pending": Pel((), MIN_ID, 1),
    "fewer than a page": Pel(ids(range(1, 9)), MIN_ID, 1),
    "dense": Pel(ids(range(NOW_MS, NOW_MS + 3000)), MIN_ID, 2, (NOW_MS, NOW_MS + 3000)),
    "dense, no proof": Pel(ids(range(NOW_MS, NOW_MS + 3000)), MIN_ID, 2),
    "from the middle": Pel(ids(range(NOW_MS, NOW_MS + 3000)), StreamId(NOW_MS + 1500, 0), 1),
    "an entry a day": Pel(ids(range(NOW_MS, NOW_MS + 86_400_000 * 300, 86_400_000)), MIN_ID, 3),
    "one ms": Pel(tuple(StreamId(7, n) for n in range(500)), MIN_ID, 1),
    "a gap, then many": Pel(ids([1, *range(NOW_MS, NOW_MS + 5000)]), MIN_ID, 1),
    "below the proof": Pel(ids(range(2000)), MIN_ID, 1, (1000, 2000)),
    "at the edges": Pel(
        ids([*range(60), *range(2**63 - 30, 2**63 + 30), *range(MAX_U64 - 40, MAX_U64 + 1)]),
        StreamId(50, 0),
        4,
    ),
    "from beyond 2^63": Pel(
        ids(range(2**63, 2**63 + 100)), StreamId(2**63 + 20, 0), 1, (2**63, MAX_U64)
    ),
}


def stream(pel: Pel) -> Stream:
    pending = tuple(PendingEntry(stream_id, b"c", NOW_MS, 1) for stream_id in pel.ids)
    return Stream({}, {b"g": Group(MAX_ID, pending, ())})


TARGETS = pa.schema(
    [
        *(("stream", pa.string()), ("consumer_group", pa.string())),
        *((name, pa.int64()) for name in ("start_ms", "start_seq", "count")),
        *((name, pa.int64()) for name in ("complete_from_ms", "complete_to_ms")),
    ]
)


def targets_of(store: LiteralStore, rows: Sequence[tuple[object, ...]]) -> Relation:
    return Relation(store.engine, Rows(arrow_table(rows, TARGETS)))


def embedded_store() -> LiteralStore:
    return LiteralStore(None, "embedded")


def all_pending(store: LiteralStore) -> Relation:
    """The rows of `pending` as a table that is to be read."""
    return store.relation("pending").where("true")


@dataclass(frozen=True)
class Located:
    """Of each page the last id_ms of its window, and the last of its rows (none: too few)."""

    windows: dict[str, int]
    ends: dict[str, StreamId]


@pytest.fixture(scope="module", params=[0, 10_000], ids=["read again", "some held"])
def located(request: pytest.FixtureRequest) -> Located:
    with pytest.MonkeyPatch.context() as patch:  # for the search alone, not for other tests
        set_limits(patch, embedded_rows=request.param)
        return _located()


def _located() -> Located:
    store = embedded_store()
    write_keyspace(store, {name.encode(): stream(pel) for name, pel in PELS.items()}, NOW_MS)
    pending = all_pending(store)
    assert pending.count() == sum(len(pel.ids) for pel in PELS.values())
    targets = targets_of(
        store,
        [
            (
                *(name, "g", to_bigint(pel.start.ms), to_bigint(pel.start.seq), pel.count),
                *(map(to_bigint, pel.proven) if pel.proven else (None, None)),
            )
            for name, pel in PELS.items()
        ],
    )
    rows = targets.select("*", f"{BUCKET_SQL.format(buckets=store.buckets)} AS bucket").collect()
    pages, _ = paging._settled(pending, [paging.Page.of(row) for row in rows])
    located = paging.locate(pending, targets, store.buckets)
    assert located is not None
    return Located(
        {page.stream: page.last_ms for page in pages},
        {
            row["stream"]: StreamId(
                from_bigint(row["page_end_ms"]), from_bigint(row["page_end_seq"])
            )
            for row in located.ends.collect()
        },
    )


@pytest.mark.parametrize("name", PELS)
def test_a_page_ends_with_the_last_of_its_rows_if_there_are_so_many(name, located):
    behind = PELS[name].behind
    last = PELS[name].page_rows - 1
    assert located.ends.get(name) == (behind[last] if last < len(behind) else None)


@pytest.mark.parametrize("name", PELS)
def test_a_window_holds_few_others_unless_one_millisecond_has_them_all(name, located):
    pel = PELS[name]
    within = [stream_id for stream_id in pel.behind if stream_id.ms <= located.windows[name]]
    assert len(within) <= 4 * pel.page_rows or within[pel.page_rows - 1].ms == within[-1].ms


def test_a_page_far_behind_its_start_takes_few_questions(monkeypatch):
    """From 0-0 to this century, where a page is a second: windows of a minute, 64 minutes, three
    days, and thirty years, then all ids; and one or two questions to narrow it."""
    set_limits(monkeypatch, embedded_rows=0)
    settled, questions, _ = settled_by_questions(monkeypatch)
    assert 101 <= settled.last_ms + 1 - NOW_MS <= 4 * 101
    assert questions <= 7


def test_where_few_rows_lie_behind_the_start_all_of_them_are_the_window(monkeypatch):
    """The first window is empty, so there is one look more, and no other."""
    settled, questions, looks = settled_by_questions(monkeypatch)
    assert (settled.last_ms, questions, looks) == (MAX_U64, 1, 2)


@pytest.mark.parametrize("few_rows", [0, LIMITS.embedded_rows], ids=["read again", "held"])
def test_pages_one_of_which_is_found_at_once_are_found_whichever_way_the_other_is(
    monkeypatch, few_rows
):
    """One of the two pages is near the end of its stream, which is all that its first window has;
    the other lies far behind its start."""
    set_limits(monkeypatch, embedded_rows=few_rows)
    store = embedded_store()
    store.buckets = 1
    near, far = (Pel(ids(range(at, at + 3000)), MIN_ID, 10) for at in (1, NOW_MS))
    write_keyspace(store, {b"near": stream(near), b"far": stream(far)}, NOW_MS)
    of_pages = [("near", "g", 2901, 0, 10, 1, 3000), ("far", "g", 0, 0, 10, 1, NOW_MS + 2999)]
    located = paging.locate(all_pending(store), targets_of(store, of_pages), store.buckets)
    assert located is not None
    assert [tuple(row.values()) for row in located.ends.collect()] == [
        ("far", "g", NOW_MS + 100, 0)
    ]


def settled_by_questions(monkeypatch):
    """The window of a page from 0-0 on, whose rows are of this century, in how many steps it was
    found, and how often rows were looked for."""
    questions, looks = [], []
    ask, look = paging._counted, Relation.within
    monkeypatch.setattr(paging, "_counted", lambda *args: questions.append(args) or ask(*args))
    pel = Pel(ids(range(NOW_MS, NOW_MS + 3000)), MIN_ID, 10)
    store = embedded_store()
    store.buckets = 1
    write_keyspace(store, {b"s": stream(pel)}, NOW_MS)
    page = paging.Page("s", "g", 0, 0, 0, MAX_U64, pel.page_rows, 0, 0).widened(60_000)
    pending = all_pending(store)

    def watched(rows, bounds):
        looks.extend([bounds] if rows is pending else [])
        return look(rows, bounds)

    monkeypatch.setattr(Relation, "within", watched)
    (settled,), _ = paging._settled(pending, [page])
    return settled, len(questions), len(looks)


def test_what_is_read_of_entries_ends_with_the_page():
    store = embedded_store()
    store.buckets = 1
    pel = Pel(ids(range(NOW_MS, NOW_MS + 3000)), MIN_ID, 10)
    write_keyspace(store, {b"s": stream(pel)}, NOW_MS)
    targets = targets_of(store, [("s", "g", 0, 0, 10, None, None)])
    for pending in (store.relation("pending"), all_pending(store)):
        located = paging.locate(pending, targets, store.buckets)
        assert located is not None
        assert located.bounds.by_bucket == ((0, 0, NOW_MS + 100),)


def one_page(store, group, proven):
    """A store with one group, and the request for a page of one entry."""
    entries = dict.fromkeys((entry.id for entry in group.pending), (b"f", b"v"))
    write_keyspace(store, {b"s": Stream(entries, {b"g": group})}, NOW_MS, proven)
    return store, SweepRequest(AutoclaimRequest(b"c", 0, count=1))


def test_what_lies_behind_the_page_neither_refuses_the_group_nor_is_counted():
    pending = tuple(PendingEntry(StreamId(n, 0), b"d", NOW_MS, 1) for n in range(1, 41))
    group = Group(MAX_ID, pending, ())
    store, request = one_page(embedded_store(), group, (MIN_ID, StreamId(14, 0)))
    begun = Begun(store, 1, Pins(dict.fromkeys(TABLES, 0), {}))
    decision = decide(begun, [request], NOW_MS - 1, refuse_duplicates=False)
    rows = {row["kind"]: row for row in decision.rows.collect()}
    assert set(rows) == {"claimed", "swept", "consumer", "cursor"}
    assert (rows["claimed"]["id_ms"], rows["cursor"]["next_ms"]) == (1, 2)
    assert rows["swept"]["at_boundary"] is None
    counts = {name: number for name, number in decision.counts.items() if number}
    assert counts == {"delivered_later": 11}


def test_a_group_whose_page_has_no_rows_is_refused_beside_one_whose_hash_it_shares():
    """Only `pending` knows the group; what it holds lies before the page, between the other's."""
    swept, other = COLLIDING
    pels = {
        name: Group(MAX_ID, tuple(PendingEntry(at, b"d", NOW_MS - 9, 1) for at in ids(numbers)), ())
        for name, numbers in ((swept, (1, 5)), (other, (2,)))
    }
    store = embedded_store()
    keyspace = {
        name: Stream({entry.id: (b"f", b"v") for entry in pel.pending}, {b"g": pel})
        for name, pel in pels.items()
    }
    write_keyspace(store, keyspace, NOW_MS)
    for table in ("groups", "streams", "entries"):
        is_known = pc.field("stream") == swept.decode()
        store._tables[table] = store._tables[table].filter(is_known)
    requests = {
        (swept, b"g"): AutoclaimRequest(b"c", 0),
        (other, b"g"): AutoclaimRequest(b"c", 0, StreamId(100, 0), count=1),
    }
    begun = Begun(store, 1, Pins(dict.fromkeys(TABLES, 0), {}))
    table = request_table(store.engine, requests)
    with pytest.raises(HashCollisionError) as error:
        decide(begun, table, NOW_MS, refuse_duplicates=False)
    assert error.value.names == [swept.decode(), other.decode()]


@pytest.mark.parametrize("engine", ["embedded", pytest.param("spark", marks=pytest.mark.long)])
def test_two_rows_of_one_id_at_the_pages_cut_both_reach_the_kernel(spark, engine):
    group = Group(MAX_ID, (PendingEntry(StreamId(1, 0), b"d", NOW_MS - 9, 1),), ())
    store, request = one_page(LiteralStore(spark, engine), group, (MIN_ID, MAX_ID))
    pending = store._tables["pending"]
    owners = pending.schema.get_field_index("consumer")
    other = pending.set_column(owners, "consumer", pa.array(["e"]))
    store._tables["pending"] = pa.concat_tables([pending, other])
    begun = Begun(store, 1, Pins(dict.fromkeys(TABLES, 0), {}))
    with pytest.raises(Exception, match=DuplicateRowsError.IN_WORKER):
        decide(begun, [request], None, refuse_duplicates=False).rows.collect()
    (row,) = decide(begun, [request], None, refuse_duplicates=True).rows.collect()
    assert (row["kind"], "duplicate key" in row["reason"]) == ("refused", True)


def test_without_a_page_among_the_requests_nothing_is_located():
    store = embedded_store()
    targets = targets_of(store, [("s", "g", 0, 0, None, None, None)])
    assert paging.locate(all_pending(store), targets, store.buckets) is None
