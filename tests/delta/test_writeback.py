"""A run is written back to a real server, whatever other clients and processes do meanwhile."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from claimlib.commands.retire import Retirement, retire
from claimlib.commands.runs import find_run
from claimlib.commands.server_view import only_in_store
from claimlib.commands.writeback import DEFAULT_MAX_AGE_MS
from claimlib.commands.xclaim import NamedClaim, xclaim
from claimlib.errors import (
    GuardError,
    NotAMirrorError,
    RequestError,
    SourceMismatchError,
    SourceUnreachableError,
)
from claimlib.live import writing
from claimlib.live.connection import Source
from claimlib.runs import Phase
from claimlib.runs.journal import rows_of
from claimlib.schema import Kind
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import ClaimRequest, Guards
from claimlib.store.tables import Store
from claimlib.testing.server import Server, valkey_server
from tests.delta.own_rows import delete, update
from tests.delta.server_groups import (
    GROUP,
    HOUR_MS,
    in_store,
    mirror,
    outcomes,
    owners,
    stall,
    state,
    sweep,
    write,
)

IDS = [f"{n}-0" for n in range(1, 7)]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with valkey_server() as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    with server.client() as connected:
        connected.flushall()
        yield connected


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("claimlib.commands.writeback.IDS_PER_BATCH", 2)
    monkeypatch.setattr(writing, "_BATCHES_PER_PIPELINE", 1)


def swept(store: Store, server: Server, client: redis.Redis, ids: list[str] = IDS) -> None:
    """Bob's entries are alice's in the store, and still bob's on the server."""
    stall(client, "s", ids)
    mirror(store, server)
    sweep(store)


# ------------------------------------------------------------------- what it does


def fill(client: redis.Redis) -> None:
    stall(client, "a", [f"{n}-{n}" for n in range(1, 30)])
    stall(client, "a", [f"{n}-0" for n in range(100, 140)], owner="carl", idle_ms=60_000)
    stall(client, "b", [f"{n}-0" for n in range(1, 30)], owner="alice", count=7)
    client.xdel("a", "3-3", "5-5", "101-0")
    client.xack("a", GROUP, "6-6")


@pytest.mark.parametrize("options", [{}, {"justid": True}])
def test_the_server_then_has_what_its_own_xautoclaim_would_have_given_it(
    server, client, store, options
):
    fill(client)
    mirror(store, server)
    sweep(store, **options)
    reply = write(store, server)
    with valkey_server() as other, other.client() as twin:
        fill(twin)
        for stream in ("a", "b"):
            words = (stream, GROUP, "alice", HOUR_MS // 4, "0-0", "COUNT", 1000)
            twin.execute_command("XAUTOCLAIM", *words, *(["JUSTID"] if options else []))
            assert owners(state(client, stream)) == owners(state(twin, stream))
    assert outcomes(reply) == {"moved": 55, "acknowledged": 3}
    # The store follows the server to the millisecond, and knows that it does.
    assert {stream: in_store(store, stream) for stream in "ab"} == {
        stream: state(client, stream) for stream in "ab"
    }
    run = find_run(store, "writeback:w")
    assert only_in_store(store, run.run_seq, run.counts) == {"claimed": 0, "deleted": 0}


def test_a_consumer_that_receives_nothing_is_not_created(server, client, store):
    swept(store, server, client)
    client.xack("s", GROUP, *IDS)
    assert outcomes(write(store, server)) == {"gone": 6}
    assert [row["name"] for row in client.xinfo_consumers("s", GROUP)] == [b"bob"]


def test_parked_entries_go_to_the_parking_consumer_with_their_counts(server, client, store):
    stall(client, "s", ["1-0"], count=9)
    stall(client, "s", ["2-0"])
    mirror(store, server)
    sweep(store, guards=Guards(max_deliveries=5, parking_consumer=b"park"))
    write(store, server)
    assert owners(state(client, "s")) == {"1-0": ("park", 9), "2-0": ("alice", 2)}


def test_a_consumer_of_the_store_was_active_when_the_server_claimed(server, client, store):
    swept(store, server, client)
    write(store, server)
    ((_, claimed_ms, _), *_) = state(client, "s").values()
    (row,) = store.relation("consumers").where("consumer = 'alice'").collect()
    assert (row["seen_time_ms"], row["active_time_ms"]) == (claimed_ms, claimed_ms)


def retired(store: Store, run_id: str = "r") -> None:
    to = (b"alice", b"carl")
    retire(store, Retirement(b"s", GROUP.encode(), b"bob", to), run_id=run_id)


@pytest.fixture
def team(server: Server, client: redis.Redis, store: Store) -> None:
    """Bob has six entries, whatever their idle time, and two colleagues."""
    stall(client, "s", IDS, idle_ms=5)
    for name in ("alice", "carl"):
        client.xgroup_createconsumer("s", GROUP, name)
    mirror(store, server)


def test_a_retired_consumer_is_removed_once_it_has_nothing(server, client, store, team):
    retired(store)
    reply = write(store, server)
    assert outcomes(reply) == {"moved": 6}
    assert (reply.counts["consumers_removed"], reply.counts["consumers_kept"]) == (1, 0)
    assert {row["name"] for row in client.xinfo_consumers("s", GROUP)} == {b"alice", b"carl"}
    assert owners(state(client, "s")) == {
        id_: (("alice", "carl")[n % 2], 1) for n, id_ in enumerate(IDS)
    }


def test_a_retired_consumer_that_has_received_entries_stays(server, client, store, team):
    retired(store)
    client.xadd("s", {"n": 1}, id="9-0")
    client.xreadgroup(GROUP, "bob", {"s": ">"})
    reply = write(store, server)
    assert (reply.counts["consumers_removed"], reply.counts["consumers_kept"]) == (0, 1)
    assert owners(state(client, "s"))["9-0"] == ("bob", 1)


def test_an_xclaim_is_carried_and_a_forced_entry_is_not(server, client, store):
    stall(client, "s", IDS)
    client.xack("s", GROUP, "2-0")
    mirror(store, server)
    ids = (StreamId(1, 0), StreamId(2, 0))
    claim = ClaimRequest(b"alice", 1000, ids, retrycount=40, force=True)
    xclaim(store, [NamedClaim(b"s", GROUP.encode(), claim)], run_id="r")
    assert outcomes(write(store, server)) == {"moved": 1, "gone": 1}
    assert owners(state(client, "s")) == {
        "1-0": ("alice", 40),
        **dict.fromkeys(IDS[2:], ("bob", 1)),
    }


def test_names_of_any_bytes(server, client, store):
    stream, consumer = b"odd \xff\n", "ra\u00efs"
    stall(client, stream, IDS, owner="b\x00b")
    mirror(store, server)
    sweep(store, consumer)
    assert outcomes(write(store, server)) == {"moved": 6}
    assert set(owners(state(client, stream)).values()) == {(consumer, 2)}


# ------------------------------------------------------------------- other clients


class Traffic:
    """What other clients do to one stream, at random."""

    def __init__(self, client: redis.Redis, stream: str, draw: random.Random) -> None:
        self.client, self.stream, self.draw = client, stream, draw

    def act(self) -> None:
        id_ = self.draw.choice(IDS)
        owner = self.draw.choice(["bob", "carl", "alice", "dave"])
        claim = ("XCLAIM", self.stream, GROUP, owner, 0, id_)
        act = self.draw.choice(
            [
                lambda: self.client.xack(self.stream, GROUP, id_),
                lambda: self.client.execute_command(*claim),
                lambda: self.client.xclaim(self.stream, GROUP, owner, 0, [id_], justid=True),
                # As a consumer that says that it is still alive, of an entry of its own.
                self._keep_own,
                lambda: self.client.xdel(self.stream, id_),
                self._read_new,
                lambda: self.client.xautoclaim(self.stream, GROUP, owner, HOUR_MS // 4, count=1),
                lambda: self.client.xgroup_delconsumer(self.stream, GROUP, owner),
            ]
        )
        act()

    def _keep_own(self) -> None:
        for id_, (owner, _) in list(owners(state(self.client, self.stream)).items())[:2]:
            self.client.xclaim(self.stream, GROUP, owner, 0, [id_], justid=True)

    def _read_new(self) -> None:
        self.client.xadd(self.stream, {"n": 1})
        self.client.xreadgroup(GROUP, "dave", {self.stream: ">"})


def present(client: redis.Redis, stream: str) -> set[str]:
    return {id_.decode() for id_, _ in client.xrange(stream)}


@pytest.mark.parametrize("min_idle_ms", [0, HOUR_MS // 4])
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_that_another_client_touched_since_is_changed(
    server, client, store, min_idle_ms, seed
):
    draw = random.Random(seed)
    streams = [f"s{n}" for n in range(40)]
    for stream in streams:
        stall(client, stream, IDS[:3], idle_ms=draw.choice([5, HOUR_MS]))
        stall(client, stream, IDS[3:], owner="carl", idle_ms=draw.choice([5, HOUR_MS]))
        client.xdel(stream, draw.choice(IDS))
    read, existing = {}, {}
    mirror(store, server)
    for stream in streams:
        read[stream], existing[stream] = state(client, stream), present(client, stream)
    sweep(store, min_idle_ms=min_idle_ms)
    decided = {stream: in_store(store, stream) for stream in streams}
    for stream in streams:
        traffic = Traffic(client, stream, draw)
        for _ in range(draw.randrange(6)):
            traffic.act()
    client.xgroup_destroy("s0", GROUP)
    client.xgroup_create("s0", GROUP, id="$")
    client.delete("s1")
    client.set("s2", "no stream")
    client.delete("s2")
    client.set("s2", "no stream")
    streams.remove("s2")
    before = {stream: state(client, stream) for stream in streams}
    left = {stream: present(client, stream) for stream in streams}

    reply = write(store, server)

    expected = dict.fromkeys(("moved", "acknowledged", "touched", "gone"), 0)
    for stream in streams:
        after = state(client, stream)
        assert {*after} <= {*before[stream]}, "an acknowledged entry has come back"
        for id_, was in read[stream].items():
            now = before[stream].get(id_)
            goal = decided[stream].get(id_)
            if goal == was:  # the sweep left it alone
                assert after.get(id_) == now
                continue
            wanted = None if goal is None else (goal[0], goal[2])
            is_there = id_ in left[stream]
            if now is None:
                outcome = "gone"
            elif goal is None:
                outcome = "touched" if is_there else "acknowledged"
            elif now == was and is_there:
                outcome = "moved"
                assert (after[id_][0], after[id_][2]) == wanted
                assert after[id_][1] >= was[1]
            elif now != was and (now[0], now[2]) == wanted:
                outcome = "moved"  # another client has done the same
                assert after[id_] == now
            else:
                outcome = "touched"
                assert after[id_] == now
            expected[outcome] += 1
            kept = in_store(store, stream).get(id_) if outcome in {"moved", "touched"} else None
            if outcome == "moved":
                assert kept == after[id_]
            if outcome == "touched":
                assert kept == goal
            if outcome == "acknowledged":
                assert id_ not in after
        unknown = before[stream].keys() - read[stream].keys()
        assert {id_: after[id_] for id_ in unknown} == {id_: before[stream][id_] for id_ in unknown}
    expected["gone"] += sum(decided["s2"].get(id_) != was for id_, was in read["s2"].items())
    assert {name: n for name, n in expected.items() if n} == outcomes(reply)
    assert expected["touched"] > 10
    assert expected["gone"] > 10


def test_an_entry_that_its_owner_claimed_again_is_touched_although_owner_and_count_are_the_same(
    server, client, store
):
    swept(store, server, client)
    client.xclaim("s", GROUP, "bob", 0, ["1-0"], justid=True)
    assert outcomes(write(store, server)) == {"moved": 5, "touched": 1}
    assert owners(state(client, "s"))["1-0"] == ("bob", 1)


def test_a_row_that_another_writer_changed_in_the_store_is_not_sent(server, client, store):
    swept(store, server, client)
    update(store, "pending", "id_ms = 1", consumer="'own'")
    delete(store, "pending", "id_ms = 2")
    assert outcomes(write(store, server)) == {"moved": 4, "touched": 2}
    assert owners(state(client, "s"))["1-0"] == ("bob", 1)
    assert owners(state(client, "s"))["2-0"] == ("bob", 1)


def test_a_later_run_of_the_same_entries_is_written_from_what_the_server_has(server, client, store):
    swept(store, server, client)
    claim = ClaimRequest(b"carl", 0, (StreamId(1, 0),))
    xclaim(store, [NamedClaim(b"s", GROUP.encode(), claim)], run_id="later")
    assert outcomes(write(store, server, "later", "first")) == {"moved": 1}
    assert outcomes(write(store, server, "r", "second")) == {"moved": 5, "touched": 1}
    assert owners(state(client, "s")) == {
        "1-0": ("carl", 3),
        **dict.fromkeys(IDS[1:], ("alice", 2)),
    }
    assert in_store(store, "s") == state(client, "s")


# ------------------------------------------------------------------- kills and repeats


class Killed(Exception):
    """The process ended here."""


def killing(at: int) -> Callable[[Phase, str], None]:
    """A progress callback that raises when it is called for the n-th time."""
    calls = iter(range(1, at + 1))

    def tell(phase: Phase, detail: str) -> None:
        if next(calls, None) == at:
            raise Killed(f"{phase} · {detail}")

    return tell


def test_killed_at_each_step_it_comes_to_the_same_end_and_claims_nothing_twice(
    server, client, store, small_batches
):
    swept(store, server, client)
    client.xclaim("s", GROUP, "carl", 0, ["6-0"], justid=True)
    client.xack("s", GROUP, "5-0")
    phases = []
    for at in range(1, 100):
        try:
            reply = write(store, server, progress=killing(at))
        except Killed as killed:
            phases.append(str(killed).partition(" ")[0])
            continue
        break
    assert phases.count(Phase.SEND) == 3
    assert {Phase.BEGIN, Phase.DECIDE, Phase.APPLY, Phase.VERIFY, Phase.FINISH} <= {*phases}
    assert outcomes(reply) == {"moved": 4, "touched": 1, "gone": 1}
    assert owners(state(client, "s")) == {
        **dict.fromkeys(IDS[:4], ("alice", 2)),
        "6-0": ("carl", 1),
    }
    kept = in_store(store, "s")
    assert {id_: kept[id_] for id_ in IDS[:4]} == {id_: state(client, "s")[id_] for id_ in IDS[:4]}
    eval_calls = client.info("commandstats")["cmdstat_xclaim"]["calls"]
    assert eval_calls >= 2


@pytest.mark.parametrize("is_sent", [False, True])
def test_killed_while_it_waits_for_a_reply(
    server, client, store, small_batches, monkeypatch, is_sent
):
    swept(store, server, client)
    before = state(client, "s")
    pipeline, calls = Source.pipeline, []

    def second_fails(self: Source, commands: list) -> list:
        calls.append(commands)
        if len(calls) == 2:
            if is_sent:
                pipeline(self, commands)
            raise Killed
        return pipeline(self, commands)

    monkeypatch.setattr(Source, "pipeline", second_fails)
    with pytest.raises(Killed):
        write(store, server)
    claimed = {id_ for id_, was in before.items() if state(client, "s")[id_] != was}
    assert len(claimed) == (4 if is_sent else 2)
    first = {id_: state(client, "s")[id_] for id_ in claimed}
    assert outcomes(write(store, server)) == {"moved": 6}
    assert {id_: state(client, "s")[id_] for id_ in claimed} == first  # not claimed again
    assert set(owners(state(client, "s")).values()) == {("alice", 2)}
    assert in_store(store, "s") == state(client, "s")


def test_killed_between_the_claims_and_the_journal(server, client, store, monkeypatch):
    swept(store, server, client)
    append = type(store.writer).append

    def fails(self, table, *words, **options):
        if table == "journal":
            raise Killed
        return append(self, table, *words, **options)

    with monkeypatch.context() as patch:
        patch.setattr(type(store.writer), "append", fails)
        with pytest.raises(Killed):
            write(store, server)
    claimed = state(client, "s")
    assert set(owners(claimed).values()) == {("alice", 2)}
    # Any run id recognizes them, because the run that claimed them is not known.
    assert outcomes(write(store, server, run_id="other")) == {"moved": 6}
    assert state(client, "s") == claimed == in_store(store, "s")


def test_a_connection_that_breaks_in_the_middle_says_how_far_it_came(
    server, client, store, small_batches
):
    swept(store, server, client)

    def cut(phase: Phase, _detail: str) -> None:
        if phase == Phase.SEND:
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    with pytest.raises(SourceUnreachableError, match=r"answered for 2 of 6 entries: repeat"):
        write(store, server, progress=cut)
    assert rows_of(store, 3, Kind.RUN).is_empty()
    assert outcomes(write(store, server)) == {"moved": 6}
    assert set(owners(state(client, "s")).values()) == {("alice", 2)}


def test_a_repeat_gives_the_same_reply_and_sends_nothing(server, client, store):
    swept(store, server, client)
    first = write(store, server)
    client.config_resetstat()
    again = write(store, server)
    assert (again.is_repeat, again.counts) == (True, first.counts)
    assert again.groups.collect() == first.groups.collect()
    assert "cmdstat_eval" not in client.info("commandstats")


def test_a_dry_run_counts_and_sends_no_write(server, client, store):
    fill(client)
    mirror(store, server)
    sweep(store)
    before = {stream: state(client, stream) for stream in "ab"}
    client.config_resetstat()
    reply = write(store, server, run_id=None, dry_run=True)
    assert sorted(map(tuple, (row.values() for row in reply.groups.collect()))) == [
        ("a", GROUP, 26, 3),
        ("b", GROUP, 29, 0),
    ]
    assert reply.counts == {"decided": 58}
    assert "cmdstat_eval" not in client.info("commandstats")
    assert {stream: state(client, stream) for stream in "ab"} == before


def test_twenty_thousand_entries_take_seconds(server, client, store):
    ids = [f"{n}-0" for n in range(1, 5001)]
    streams = ["a", "b", "c", "d"]
    for stream in streams:
        stall(client, stream, ids)
    mirror(store, server)
    sweep(store)
    began = time.process_time()
    assert outcomes(write(store, server)) == {"moved": 20_000}
    assert time.process_time() - began < 10
    assert all(in_store(store, stream) == state(client, stream) for stream in streams)


# ------------------------------------------------------------------- refusals


def refused(store: Store, server: Server, *words: str, **options: object) -> str:
    """The message of a refusal, which sends nothing and decides nothing."""
    runs = store.relation("journal").where(f"kind = '{Kind.RUN}'").count()
    with server.client() as client:
        client.config_resetstat()
        with pytest.raises((RequestError, GuardError, NotAMirrorError, SourceMismatchError)) as why:
            write(store, server, *words, **options)
        assert "cmdstat_eval" not in client.info("commandstats")
    assert store.relation("journal").where(f"kind = '{Kind.RUN}'").count() == runs
    return f"{why.type.__name__}: {why.value.message}"


def test_a_run_is_written_back_once(server, client, store):
    swept(store, server, client)
    write(store, server)
    message = refused(store, server, run_id="w2")
    assert message.startswith(
        "RequestError: run xautoclaim:r was already written back by run 3 (writeback:w). Nothing"
    )


def test_runs_that_cannot_be_written_back(server, client, store):
    swept(store, server, client)
    sweep(store)
    assert "only xautoclaim, xclaim and retire runs can" in refused(store, server, "1")
    assert "has no finished run nothing" in refused(store, server, "nothing")
    claim = ClaimRequest(b"carl", 24 * HOUR_MS, (StreamId(1, 0),))
    xclaim(store, [NamedClaim(b"s", GROUP.encode(), claim)], run_id="none")
    assert "xclaim:none has nothing to write back" in refused(store, server, "none")


def test_a_run_that_is_not_finished(server, client, store):
    stall(client, "s", IDS)
    mirror(store, server)

    def stop(phase: Phase, _detail: str) -> None:
        if phase == Phase.APPLY:
            raise Killed

    with pytest.raises(Killed):
        sweep_told(store, stop)
    assert "(xautoclaim:r is unfinished: the next run finishes it)" in refused(store, server)


def sweep_told(store: Store, progress: Callable[[Phase, str], None]) -> None:
    from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
    from claimlib.semantics.model import AutoclaimRequest

    request = SweepRequest(AutoclaimRequest(b"alice", 1000))
    xautoclaim(store, request, run_id="r", progress=progress)


def test_a_snapshot_that_is_too_old_or_was_replaced(server, client, store):
    swept(store, server, client)
    time.sleep(0.01)
    message = refused(store, server, max_age_ms=1)
    assert "GuardError: the snapshot of s / w is " in message
    assert "more than --max-age 1ms. Nothing was sent. Take a new snapshot" in message
    mirror(store, server)
    assert (
        "GuardError: run 3 has read s / w from the server after run xautoclaim:r, and replaced"
        in refused(store, server, max_age_ms=DEFAULT_MAX_AGE_MS)
    )


def test_a_snapshot_of_other_streams_since_does_not_matter(server, client, store):
    from claimlib.commands.snapshot import SnapshotRequest, snapshot
    from claimlib.live.reading import ServerReading

    swept(store, server, client)
    stall(client, "other", IDS)
    reading = ServerReading(server.url, stream_glob="other")
    snapshot(store, SnapshotRequest(reading.label, stream_glob="other"), reading)
    assert outcomes(write(store, server)) == {"moved": 6}


def test_another_server_and_another_database(server, client, store):
    swept(store, server, client)
    with valkey_server() as other:
        with other.client() as twin:
            stall(twin, "s", IDS)
        message = refused(store, other)
        assert message.startswith("SourceMismatchError: nothing proves that 127.0.0.1:")
        with other.client() as twin:
            assert set(owners(state(twin, "s")).values()) == {("bob", 1)}
    in_other_database = Server(server.host, server.port, server.pid)
    object.__setattr__(in_other_database, "__class__", _Database1)
    assert refused(store, in_other_database).startswith("SourceMismatchError")


class _Database1(Server):
    """Database 1 of a server."""

    __slots__ = ()

    @property
    def url(self) -> str:
        return super().url[:-1] + "1"


def test_a_server_that_was_restarted_under_the_same_address(store, tmp_path: Path):
    with valkey_server() as first, first.client() as client:
        swept(store, first, client)
        port = first.port
    with valkey_server(config={"port": str(port)}) as second:
        again = Server(second.host, second.port, second.pid)
        assert refused(store, again).startswith("SourceMismatchError")


def test_a_replica_and_a_node_of_a_cluster(server, client, store):
    swept(store, server, client)
    at_once = {"repl-diskless-sync-delay": "0", "replicaof": f"{server.host} {server.port}"}
    with valkey_server(config=at_once) as replica, replica.client() as copy:
        deadline = time.monotonic() + 20
        while copy.info("replication")["master_link_status"] != "up":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert "is a replica, which takes no writes" in refused(store, replica)
    with valkey_server(config={"cluster-enabled": "yes"}) as node:
        assert "is a node of a cluster" in refused(store, node)


def test_a_store_that_mirrors_no_server(server, store):
    from tests.delta.own_rows import append, entry_row, pending_row

    append(store, "pending", pending_row("s", 1))
    append(store, "entries", entry_row("s", 1))
    group = {"stream": "s", "consumer_group": "g", "last_delivered_ms": 9}
    append(store, "groups", {**group, "last_delivered_seq": 0, "snapshot_ms": 9, "run_seq": 0})
    claim = ClaimRequest(b"carl", 0, (StreamId(1, 0),))
    proof = {"complete_from_ms": 0, "complete_from_seq": 0, "complete_to_ms": 9}
    append(store, "streams", {"stream": "s", **proof, "complete_to_seq": 0, "run_seq": 0})
    xclaim(store, [NamedClaim(b"s", b"g", claim)], run_id="r")
    assert refused(store, server).startswith("NotAMirrorError")


def test_a_clock_behind_the_snapshot(server, client, store):
    swept(store, server, client)
    update(store, "groups", "true", snapshot_ms=f"snapshot_ms + {HOUR_MS}")
    assert "is 59m" in (message := refused(store, server)) and "behind the snapshot" in message
