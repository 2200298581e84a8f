"""Several consumers share what a sweep claims, evenly and repeatably."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import cycle

import pytest

from claimlib.commands.sharing import Sharing
from claimlib.commands.undo import undo
from claimlib.commands.xautoclaim import SweepRequest, explain, xautoclaim
from claimlib.commands.xclaim import NamedClaim, xclaim
from claimlib.errors import RequestError, RunKeyConflictError
from claimlib.semantics import scan
from claimlib.semantics.ids import MIN_ID, StreamId
from claimlib.semantics.model import AutoclaimRequest, ClaimRequest, Consumer, Guards, PendingEntry
from claimlib.semantics.words import Stream
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import read_groups, write_keyspace
from tests.delta.pels import CLAIMED, ENTRIES, IDS, NOW_MS, PEL, REQUEST, keyspace
from tests.limits import set_limits

NAMES = (b"carol", b"alice", b"\xffbob")
SHARED = SweepRequest(replace(REQUEST, consumer=NAMES[0]), stream_glob="[st]", others=NAMES[1:])
LIVE = SweepRequest(replace(REQUEST, consumer=b""), active_within_ms=5000)


def owners(group):
    return {entry.id: entry.consumer for entry in group.pending}


def reply_rows(reply):
    """Return the consumer of each entry."""
    names = ("stream", "id", "consumer", "delivery_count")
    return sorted(tuple(row[name] for name in names) for row in reply.claimed.collect())


def shared_by(names, request=REQUEST):
    """The group after a sweep whose claims are dealt out by hand."""
    group, reply = scan.xautoclaim(PEL, request, NOW_MS, ENTRIES)
    turns = dict(zip(reply.claimed, cycle(names), strict=False))
    return replace(
        group,
        pending=tuple(
            replace(entry, consumer=turns.get(entry.id, entry.consumer)) for entry in group.pending
        ),
    )


def test_named_consumers_get_the_claimed_entries_of_each_group_in_turn_and_only_once(
    store: Store,
) -> None:
    write_keyspace(store, keyspace(b"s", b"t", b"other"), NOW_MS)
    shown = xautoclaim(store, SHARED, dry_run=True)
    reply = xautoclaim(store, SHARED, run_id="r")
    assert reply.counts == shown.counts
    expected = shared_by(NAMES)
    groups = read_groups(store)
    for stream in (b"s", b"t"):
        assert groups[stream][b"g"].pending == expected.pending
        got = Counter(owners(groups[stream][b"g"]).values())
        assert [got[name] for name in NAMES] == [2, 2, 1]
        assert {consumer.name for consumer in groups[stream][b"g"].consumers} == {b"dead", *NAMES}
    assert groups[b"other"][b"g"] == PEL
    version = store.version("journal")
    assert xautoclaim(store, SHARED, run_id="r").counts == reply.counts
    assert store.version("journal") == version
    with pytest.raises(RunKeyConflictError, match="consumers was"):
        xautoclaim(store, replace(SHARED, others=NAMES[:0:-1]), run_id="r")


def test_who_receives_nothing_is_not_created_and_nobody_is_seen(store: Store) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    many = tuple(b"%02d" % number for number in range(CLAIMED + 2))
    xautoclaim(store, replace(SHARED, others=many))
    consumers = read_groups(store)[b"s"][b"g"].consumers
    assert consumers == (
        *(Consumer(name, NOW_MS, NOW_MS) for name in many[: CLAIMED - 1]),
        Consumer(b"carol", NOW_MS, NOW_MS),
        *PEL.consumers,
    )


def test_what_is_parked_or_deleted_takes_no_turn(store: Store) -> None:
    pending = tuple(
        replace(entry, delivery_count=7) if entry.id == IDS[2] else entry for entry in PEL.pending
    )
    write_keyspace(store, {b"s": Stream(ENTRIES, {b"g": replace(PEL, pending=pending)})}, NOW_MS)
    guards = Guards(max_deliveries=7, parking_consumer=b"parked")
    xautoclaim(store, replace(SHARED, autoclaim=replace(SHARED.autoclaim, guards=guards)))
    after = owners(read_groups(store)[b"s"][b"g"])
    claimed = [IDS[0], IDS[4], IDS[6], IDS[8]]
    assert [after[stream_id] for stream_id in claimed] == [*NAMES, NAMES[0]]
    assert after[IDS[2]] == b"parked"


def group_with(*consumers: Consumer, loads=()):
    """The group of `pels`, with other consumers, and what they have pending and fresh."""
    fresh = tuple(
        PendingEntry(StreamId(20 + n, 0), name, NOW_MS, 1) for n, name in enumerate(loads)
    )
    known = sorted((*PEL.consumers, *consumers), key=lambda consumer: consumer.name)
    entries = ENTRIES | {entry.id: (b"f", b"v") for entry in fresh}
    group = replace(PEL, last_delivered_id=StreamId(99, 0), consumers=tuple(known))
    return Stream(entries, {b"g": replace(group, pending=(*PEL.pending, *fresh))})


BUSY, EMPTY, TIED = (Consumer(name, NOW_MS, NOW_MS - 5000) for name in (b"a", b"b", b"c"))
LATE, NEVER = Consumer(b"d", NOW_MS, NOW_MS - 5001), Consumer(b"e", NOW_MS, None)


def test_live_consumers_get_them_the_emptiest_first_and_a_group_without_any_is_named(
    store: Store,
) -> None:
    streams = {
        b"s": group_with(BUSY, EMPTY, TIED, LATE, NEVER, loads=(b"a",)),
        b"inactive": group_with(LATE, NEVER),
        b"empty": Stream({}, {b"g": replace(PEL, pending=(), consumers=(NEVER,))}),
    }
    write_keyspace(store, streams, NOW_MS)
    reply = xautoclaim(store, LIVE)
    groups = read_groups(store)
    after = owners(groups[b"s"][b"g"])
    claimed = [IDS[n] for n in (0, 2, 4, 6, 8)]
    assert [after[stream_id] for stream_id in claimed] == [b"b", b"c", b"a", b"b", b"c"]
    assert groups[b"inactive"][b"g"] == streams[b"inactive"].groups[b"g"]
    assert (reply.counts["refused"], reply.counts["swept"]) == (1, 2)
    (refused,) = reply.groups.where("status = 'refused'").collect()
    assert refused["stream"] == "inactive"
    assert refused["reason"].startswith(
        "no live consumer: none of the group received an entry in the 5000 ms before its snapshot"
    )
    (run,) = store.relation("runs").collect()
    request = json.loads(run["request"])
    assert (request["active_within_ms"], "consumer" in request) == (5000, False)


@pytest.mark.parametrize("request_", [SHARED, LIVE])
def test_the_rows_are_the_same_if_partitions_are_decided_one_by_one(
    store: Store, request_: SweepRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = {name: group_with(BUSY, EMPTY, TIED, loads=(b"a",)) for name in (b"s", b"t", b"u")}
    write_keyspace(store, streams, NOW_MS)
    at_once = xautoclaim(store, request_, dry_run=True)
    rows = [reply_rows(at_once)]
    set_limits(monkeypatch, partition_rows=0)
    set_limits(monkeypatch, embedded_rows=0)
    rows.append(reply_rows(xautoclaim(store, request_)))
    assert rows[0] == rows[1]
    assert len(rows[0]) >= 2 * CLAIMED


def test_now_decides_who_is_live(store: Store) -> None:
    write_keyspace(store, {b"s": group_with(BUSY, LATE)}, NOW_MS)
    assert xautoclaim(store, LIVE, now_ms=NOW_MS + 1, dry_run=True).counts["refused"] == 1
    earlier = xautoclaim(store, LIVE, now_ms=NOW_MS - 1, dry_run=True).claimed.collect()
    assert {row["consumer"] for row in earlier} == {"a", "d"}


def test_the_parking_consumer_shares_nothing(store: Store) -> None:
    write_keyspace(store, {b"s": group_with(BUSY, EMPTY)}, NOW_MS)
    guards = Guards(max_deliveries=9, parking_consumer=b"b")
    reply = xautoclaim(store, replace(LIVE, autoclaim=replace(LIVE.autoclaim, guards=guards)))
    assert {row["consumer"] for row in reply.claimed.collect()} == {"a"}


def test_one_policy_may_have_requests_of_each_kind(store: Store) -> None:
    write_keyspace(store, keyspace(b"s", b"x") | {b"y": group_with(BUSY)}, NOW_MS)
    alone = SweepRequest(replace(REQUEST, consumer=b"zoe"), stream_glob="x")
    policy = [SHARED, alone, LIVE]
    explained = explain(store, policy).select("stream", "consumer", "consumers", "active_within_ms")
    assert [tuple(row.values()) for row in explained.order_by("stream").collect()] == [
        ("s", None, ["carol", "alice", r"\xffbob"], None),
        ("x", "zoe", None, None),
        ("y", None, None, 5000),
    ]
    xautoclaim(store, policy)
    groups = read_groups(store)
    assert groups[b"s"][b"g"].pending == shared_by(NAMES).pending
    assert groups[b"x"][b"g"] == scan.xautoclaim(PEL, alone.autoclaim, NOW_MS, ENTRIES)[0]
    assert {*owners(groups[b"y"][b"g"]).values()} == {b"dead", b"a"}


def test_pages_share_as_well(store: Store) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    page = replace(SHARED, autoclaim=replace(SHARED.autoclaim, count=3), cursor="c", resume=True)
    got = []
    for _ in range(2):
        rows = xautoclaim(store, page).claimed.order_by("id_ms").collect()
        got.append([(row["id"], row["consumer"]) for row in rows])
    assert got == [
        [("1-0", "carol"), ("3-0", "alice")],
        [("5-0", "carol"), ("7-0", "alice"), ("9-0", r"\xffbob")],
    ]


def test_one_consumer_is_stored_as_ever() -> None:
    assert SweepRequest(REQUEST).as_json() == {
        "stream_glob": "*",
        "group_glob": "*",
        "start": str(MIN_ID),
        "consumer": "alice",
        "min_idle_ms": 1000,
        "justid": False,
        "idle_rule": "documented",
        "profile": "redis-7.2",
    }


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"others": (b"b", b"b")}, "--consumer names b twice"),
        ({"others": (b"a",)}, "--consumer names a twice"),
        ({"active_within_ms": 1}, "--consumer and --assign both choose"),
    ],
)
def test_a_consumer_is_named_once_and_not_beside_the_live_ones(request_, said) -> None:
    with pytest.raises(RequestError, match=said):
        SweepRequest(AutoclaimRequest(b"a", 1), **request_)


def test_the_parking_consumer_and_a_time_that_is_none_are_refused() -> None:
    guards = Guards(max_deliveries=1, parking_consumer=b"b")
    with pytest.raises(RequestError, match="must be different consumers"):
        SweepRequest(AutoclaimRequest(b"a", 1, guards=guards), others=(b"b",))
    with pytest.raises(RequestError, match="--assign live needs a time of 1 ms or more"):
        SweepRequest(AutoclaimRequest(b"", 1), active_within_ms=0)


# --- claims by id


def claim_of(stream: bytes, **options: object) -> NamedClaim:
    """Return an XCLAIM of all ids, the last one first."""
    return NamedClaim(stream, b"g", ClaimRequest(b"", 1000, IDS[::-1], **options))


def test_named_consumers_get_the_entries_that_an_xclaim_claims_in_turn_and_only_once(
    store: Store,
) -> None:
    write_keyspace(store, keyspace(b"s", b"t", b"other"), NOW_MS)
    wanted = [claim_of(b"t"), claim_of(b"s")]
    shown = xclaim(store, wanted, sharing=Sharing(NAMES), dry_run=True)
    reply = xclaim(store, wanted, sharing=Sharing(NAMES), run_id="r")
    assert shown.counts["claimed"] == reply.counts["claimed"] == 2 * CLAIMED
    groups = read_groups(store)
    for stream in (b"s", b"t"):
        assert groups[stream][b"g"].pending == shared_by(NAMES).pending
        names = {consumer.name for consumer in groups[stream][b"g"].consumers}
        assert names == {b"dead", *NAMES}
    assert groups[b"other"][b"g"] == PEL
    assert {row["consumer"] for row in reply.requests.collect()} == {None}
    assert xclaim(store, wanted, sharing=Sharing(NAMES), run_id="r").is_repeat
    for other in (None, Sharing(NAMES[:2]), Sharing(active_within_ms=1)):
        with pytest.raises(RunKeyConflictError):
            xclaim(store, wanted, sharing=other, run_id="r")
    undo(store, "xclaim:r")
    assert read_groups(store)[b"s"][b"g"] == PEL


def test_an_xclaim_with_a_last_id_has_one_consumer(store: Store) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    with pytest.raises(RequestError, match="no consumer shares the entries"):
        Sharing()
    assert SweepRequest(AutoclaimRequest(b"", 1)).consumers == (b"",)  # a name as any other
    with pytest.raises(RequestError, match="--lastid cannot be combined with several consumers"):
        xclaim(store, [claim_of(b"s", last_id=IDS[0])], sharing=Sharing(NAMES))


def test_an_xclaim_creates_only_consumers_that_receive_an_entry(store: Store) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    many = tuple(b"%02d" % number for number in range(CLAIMED + 2))
    xclaim(store, [claim_of(b"s")], sharing=Sharing(many))
    names = [consumer.name for consumer in read_groups(store)[b"s"][b"g"].consumers]
    assert names == [*many[:CLAIMED], b"dead"]


def test_all_claims_of_one_id_have_the_consumer_that_receives_the_entry(store: Store) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    repeated = (StreamId(0, 1), IDS[4], IDS[4], IDS[4])
    claim = NamedClaim(b"s", b"g", ClaimRequest(b"", 0, repeated))
    reply = xclaim(store, [claim], sharing=Sharing((b"a", b"b")))
    rows = reply.ids.where("consumer IS NOT NULL").collect()
    assert [(row["id"], row["consumer"]) for row in rows] == [("5-0", "a")] * 3
    group = read_groups(store)[b"s"][b"g"]
    assert owners(group)[IDS[4]] == b"a"
    assert {consumer.name for consumer in group.consumers} == {b"a", b"dead"}


def test_forced_entries_and_others_take_turns_together(store: Store) -> None:
    few = replace(PEL, pending=PEL.pending[:3])
    write_keyspace(store, {b"s": Stream(ENTRIES, {b"g": few})}, NOW_MS)
    xclaim(store, [claim_of(b"s", force=True)], sharing=Sharing(NAMES))
    after = owners(read_groups(store)[b"s"][b"g"])
    got = [after[IDS[n]] for n in (0, 2, 4, 5, 6, 7, 8, 9)]
    assert got == [*NAMES, *NAMES, *NAMES[:2]]


def test_an_xclaim_finds_live_consumers_and_refuses_groups_without_any(store: Store) -> None:
    streams = {
        b"s": group_with(BUSY, EMPTY, TIED, LATE, NEVER, loads=(b"a",)),
        b"inactive": group_with(LATE, NEVER),
    }
    write_keyspace(store, streams, NOW_MS)
    wanted = [claim_of(b"inactive"), claim_of(b"s")]
    reply = xclaim(store, wanted, sharing=Sharing(active_within_ms=5000), run_id="r")
    after = owners(read_groups(store)[b"s"][b"g"])
    assert [after[IDS[n]] for n in (0, 2, 4, 6, 8)] == [b"b", b"c", b"a", b"b", b"c"]
    (refused,) = reply.requests.where("status = 'refused'").collect()
    assert (refused["stream"], refused["reason"][:16]) == ("inactive", "no live consumer")
    assert read_groups(store)[b"inactive"][b"g"] == streams[b"inactive"].groups[b"g"]
    undo(store, "xclaim:r")
    assert read_groups(store)[b"s"][b"g"] == streams[b"s"].groups[b"g"]
