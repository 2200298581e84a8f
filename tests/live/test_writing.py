"""The scripts that write to a server, on a real server."""

import pytest
import redis

from claimlib.errors import PermissionDeniedError, SourceError
from claimlib.live import writing
from claimlib.live.connection import connect
from claimlib.live.replies import time_ms
from claimlib.live.rights import WRITEBACK_RIGHTS, tried_rights
from claimlib.live.writing import (
    Deletions,
    FencedBatch,
    Outcome,
    PendingState,
    Written,
    remove_consumer,
    write_entries,
)
from tests.live.readings import add, deliver, rights_in, without

LEAST_RIGHTS = rights_in(writing.__doc__, "writer")
NEEDED = {right for right in LEAST_RIGHTS if right != "-@all"}
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def server(each_server):
    return each_server


@pytest.fixture
def group(client):
    """bob has entries 1-0 … 4-0, which were idle for an hour."""
    add(client, b"s", "1-0", "2-0", "3-0", "4-0")
    client.xgroup_create("s", "g", id="0")
    deliver(client, b"s", b"g", b"bob", 4)
    ids = [f"{n}-0" for n in range(1, 5)]
    client.xclaim("s", "g", "bob", 0, ids, idle=HOUR_MS, retrycount=1)
    return client


def now_ms(client):
    seconds, microseconds = client.time()
    return seconds * 1000 + microseconds // 1000


def fence(client):
    """The latest delivery time of a snapshot at this moment."""
    return now_ms(client) - 1


def batch_of(latest_ms, ids, owner, count, goal, stream=b"s"):
    expected = None if owner is None else PendingState(owner, count)
    return FencedBatch(stream, b"g", ids, expected, latest_ms, goal)


def claims(latest_ms, *ids, owner=b"bob", count=1, goal=2, consumer=b"alice", stream=b"s"):
    return batch_of(latest_ms, ids, owner, count, PendingState(consumer, goal), stream)


def acks(latest_ms, *ids, owner=b"bob", count=1, stream=b"s"):
    return batch_of(latest_ms, ids, owner, count, None, stream)


def written(source, *batches):
    """Return the outcomes of the entries of each batch."""
    return [outcomes for batch in batches for outcomes in write_entries(source, [batch])]


def kinds(source, batch):
    return [entry.outcome for entry in written(source, batch)[0]]


def rows(client):
    found_rows = client.xpending_range("s", "g", "-", "+", 1000)
    return {
        row["message_id"].decode(): (row["consumer"].decode(), row["times_delivered"])
        for row in found_rows
    }


def delivery_times(client):
    at_ms = now_ms(client)
    found_rows = client.xpending_range("s", "g", "-", "+", 100)
    return [at_ms - row["time_since_delivered"] for row in found_rows]


def test_what_was_delivered_up_to_the_fence_is_claimed_at_the_time_of_the_server(source, group):
    before = now_ms(group)
    (outcomes,) = written(source, claims(before - HOUR_MS // 2, "1-0", "2-0"))
    after = now_ms(group)
    assert {entry.outcome for entry in outcomes} == {Outcome.MOVED}
    assert all(before <= entry.delivery_time_ms <= after for entry in outcomes)
    assert rows(group)["1-0"] == ("alice", 2)


@pytest.mark.parametrize(
    ("late_by_ms", "outcome"), [(0, Outcome.MOVED), (1, Outcome.TOUCHED), (2, Outcome.TOUCHED)]
)
def test_the_fence_is_exact_to_the_millisecond(source, group, late_by_ms, outcome):
    # The clock goes on within a script of Redis 7.0, so an entry may seem to be delivered later.
    is_late = group.info("server")["redis_version"].startswith("7.0")
    accepted = {outcome, Outcome.TOUCHED} if is_late else {outcome}
    delivered = now_ms(group) - 1000
    group.xclaim("s", "g", "bob", 0, ["1-0"], time=delivered, retrycount=1, justid=True)
    (actual,) = kinds(source, claims(delivered - late_by_ms, "1-0"))
    assert actual in accepted


@pytest.mark.parametrize("other", [{"owner": b"carl"}, {"count": 3}, {"owner": None}])
def test_another_owner_or_count_than_expected_is_left_alone(source, group, other):
    before = rows(group)
    assert kinds(source, claims(fence(group), "1-0", **other)) == [Outcome.TOUCHED]
    assert rows(group) == before


def test_an_entry_that_the_stream_lacks_is_gone_as_xclaim_removes_it(source, group):
    group.xdel("s", "1-0")
    assert kinds(source, claims(fence(group), "1-0", "2-0")) == [Outcome.GONE, Outcome.MOVED]
    assert rows(group).keys() == {"2-0", "3-0", "4-0"}


@pytest.mark.parametrize("step", [1, 2, 7, 60])
def test_entries_between_those_of_a_batch_are_left_alone(source, client, step):
    """However many of the owner's and of other consumers' entries lie between."""
    ids = [f"{n}-0" for n in range(1, 241)]
    add(client, b"s", *ids)
    client.xgroup_create("s", "g", id="0")
    deliver(client, b"s", b"g", b"bob", len(ids))
    client.xclaim("s", "g", "bob", 0, ids, idle=HOUR_MS, retrycount=1)
    wanted = ids[5::step]
    client.xclaim("s", "g", "carl", 0, ids[7::5])
    client.xack("s", "g", *ids[9::11])
    before = rows(client)
    outcomes = kinds(source, claims(fence(client), *wanted))
    after = rows(client)
    assert {id_: owner for id_, owner in after.items() if id_ not in wanted} == {
        id_: owner for id_, owner in before.items() if id_ not in wanted
    }
    expected = {None: Outcome.GONE, "bob": Outcome.MOVED, "carl": Outcome.TOUCHED}
    assert outcomes == [expected[before.get(id_, (None,))[0]] for id_ in wanted]
    moved = {id_ for id_, now in after.items() if now == ("alice", 2)}
    assert moved == {id_ for id_ in wanted if before.get(id_) == ("bob", 1)}


def test_what_is_not_pending_does_not_come_back_and_creates_no_consumer(source, group):
    group.xack("s", "g", "1-0")
    assert kinds(source, claims(fence(group), "1-0", "9-9")) == [Outcome.GONE] * 2
    assert "1-0" not in rows(group)
    assert [row["name"] for row in group.xinfo_consumers("s", "g")] == [b"bob"]


def test_a_repeat_recognizes_its_own_claims_and_leaves_their_delivery_time(source, group):
    batch = claims(fence(group), "1-0", "2-0")
    assert kinds(source, batch) == [Outcome.MOVED] * 2
    first = delivery_times(group)
    again = written(source, batch)[0]
    assert [entry.outcome for entry in again] == [Outcome.MOVED] * 2
    # On Redis 7.0 the clock goes on between the commands of a script.
    assert delivery_times(group) == pytest.approx(first, abs=50)
    assert [entry.delivery_time_ms for entry in again] == pytest.approx(first[:2], abs=50)
    assert rows(group)["1-0"] == ("alice", 2)


def test_a_claim_from_oneself_is_made_once(source, group):
    batch = claims(fence(group), "1-0", consumer=b"bob", goal=1)
    assert kinds(source, batch) == [Outcome.MOVED]
    first = delivery_times(group)
    assert first[0] > now_ms(group) - HOUR_MS // 2
    assert kinds(source, batch) == [Outcome.MOVED]
    assert delivery_times(group) == pytest.approx(first, abs=50)


def test_a_clock_before_the_fence_is_an_error(source, group):
    with pytest.raises(SourceError, match="the clock of the server is behind"):
        written(source, claims(now_ms(group) + HOUR_MS, "1-0"))
    assert rows(group)["1-0"] == ("bob", 1)


def test_only_what_the_stream_lacks_is_acknowledged(source, group):
    group.xdel("s", "1-0", "3-0")
    group.xack("s", "g", "3-0")
    assert kinds(source, Deletions(b"s", b"g", ["1-0", "2-0", "3-0"])) == [
        Outcome.ACKNOWLEDGED,
        Outcome.TOUCHED,
        Outcome.GONE,
    ]
    assert rows(group).keys() == {"2-0", "4-0"}


def test_entries_are_acknowledged_if_the_server_has_them_as_expected(source, group):
    group.xclaim("s", "g", "bob", 0, ["2-0"], justid=True)  # delivered behind the fence
    batch = acks(now_ms(group) - HOUR_MS // 2, "1-0", "2-0", "9-9")
    assert kinds(source, batch) == [Outcome.ACKNOWLEDGED, Outcome.TOUCHED, Outcome.GONE]
    assert kinds(source, batch) == [Outcome.GONE, Outcome.TOUCHED, Outcome.GONE]
    for other in ({"owner": b"carl"}, {"count": 3}, {"owner": None}):
        assert kinds(source, acks(fence(group), "3-0", **other)) == [Outcome.TOUCHED]
    assert rows(group).keys() == {"2-0", "3-0", "4-0"}


def test_a_group_that_is_not_there_has_nothing_pending_and_others_go_on(source, group):
    group.set("text", "no stream")
    fence_ms = fence(group)
    batches = [
        claims(fence_ms, "1-0", stream=b"none"),
        claims(fence_ms, "1-0", stream=b"text"),
        Deletions(b"none", b"g", ["1-0"]),
        acks(fence_ms, "1-0", stream=b"none"),
        claims(fence_ms, "1-0"),
    ]
    (outcomes,) = write_entries(source, [batches[0]])
    assert outcomes == [Written(Outcome.GONE)]
    assert [kinds(source, batch) for batch in batches] == [
        *[[Outcome.GONE]] * 4,
        [Outcome.MOVED],
    ]


def test_a_consumer_is_removed_if_it_has_nothing(source, group):
    assert not remove_consumer(source, b"s", b"g", b"bob")
    assert len(rows(group)) == 4
    group.xack("s", "g", *rows(group))
    for _ in range(2):  # a repeat finds none
        assert remove_consumer(source, b"s", b"g", b"bob")
    assert group.xinfo_consumers("s", "g") == []
    assert remove_consumer(source, b"none", b"g", b"bob")


# ------------------------------------------------------------------- rights


def do_all(source, group):
    """All that a writeback sends."""
    group.xdel("s", "2-0")
    fence_ms = time_ms(source.call("TIME"))
    batches = [claims(fence_ms - 1, "1-0"), Deletions(b"s", b"g", ["2-0"])]
    (outcomes,) = write_entries(source, batches)
    assert [entry.outcome for entry in outcomes] == [Outcome.MOVED, Outcome.ACKNOWLEDGED]
    group.xgroup_createconsumer("s", "g", "carl")
    assert remove_consumer(source, b"s", b"g", b"carl")


def test_the_documented_rights_suffice(open_here, group, user):
    source = open_here(**user(*LEAST_RIGHTS))
    assert source.server.run_id is not None
    do_all(source, group)


@pytest.mark.parametrize("right", sorted(NEEDED))
def test_without_any_of_them_it_fails(open_here, group, user, right):
    login = user(*without(LEAST_RIGHTS, right))
    if right == "+info":
        assert open_here(**login).server.run_id is None  # so nothing proves which server it is
        return
    with pytest.raises(PermissionDeniedError):
        do_all(open_here(**login), group)


def tried(server, login):
    with connect(server.url, **login) as source:
        return {
            right.rule: denied is None
            for right, denied in tried_rights(source, 0, WRITEBACK_RIGHTS)
        }


@pytest.mark.parametrize("right", [None, *sorted(NEEDED)])
def test_each_right_that_is_missing_is_named(server, group, user, right):
    rights = LEAST_RIGHTS if right is None else without(LEAST_RIGHTS, right)
    before = rows(group)
    assert tried(server, user(*rights)) == {rule: rule != right for rule in NEEDED}
    assert rows(group) == before
    assert group.dbsize() == 1


def test_keys_that_may_only_be_read_are_not_enough(server, user):
    rights = without(LEAST_RIGHTS, "~*")
    assert tried(server, user(*rights, "%R~*"))["~*"] is False


def test_a_replica_says_so(client, open_here):
    source = open_here()
    client.config_set("replica-read-only", "yes")
    client.replicaof("127.0.0.1", 1)
    try:
        with pytest.raises(redis.exceptions.ReadOnlyError):
            client.set("a", 1)
        message = "is a replica, which takes no writes: give the address of its master"
        with pytest.raises(Exception, match=message):
            source.call("XACK", "s", "g", "1-0")
    finally:
        client.replicaof("NO", "ONE")
