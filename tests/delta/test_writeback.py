"""A run is written back to a real server, whatever other clients and processes do meanwhile."""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import redis

from claimlib.commands.report_run import run_report
from claimlib.commands.retire import Retirement, retire
from claimlib.commands.runs import find_run
from claimlib.commands.server_view import only_in_store
from claimlib.commands.undo import undo
from claimlib.commands.xack import NamedAck, xack
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.commands.xclaim import NamedClaim, xclaim
from claimlib.errors import ClaimlibError, SourceMismatchError, SourceUnreachableError
from claimlib.live import writing
from claimlib.live.connection import Source
from claimlib.live.pacer import LatencyLimit
from claimlib.runs import Phase
from claimlib.runs.journal import rows_of
from claimlib.schema import Kind
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import AutoclaimRequest, ClaimRequest, Guards
from claimlib.store.tables import Store
from claimlib.testing.server_process import Server, valkey_server
from tests.delta.own_rows import Opener, append, delete, entry_row, pending_row, update
from tests.delta.server_groups import (
    GROUP,
    HOUR_MS,
    State,
    in_store,
    mirror,
    outcomes,
    owners,
    stall,
    state,
    sweep,
    write,
)
from tests.seeds import new_seed

IDS = [f"{n}-0" for n in range(1, 7)]


class KilledError(Exception):
    """The process ended here."""


@pytest.fixture(scope="module")
def swept_once(
    server: Server, open_store: Opener, empty_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, bytes]:
    """The folder of `swept`, and what the server then has."""
    where = shutil.copytree(empty_store, tmp_path_factory.mktemp("swept") / "store")
    with server.client() as client:
        client.flushall()
        stall(client, "s", [*IDS[:3], "3-5", *IDS[3:]])
        client.xack("s", GROUP, "3-5")
        store = open_store(where)
        mirror(store, server)
        sweep(store)
        return where, client.dump("s")


@pytest.fixture
def swept(
    swept_once: tuple[Path, bytes], client: redis.Redis, open_store: Opener, tmp_path: Path
) -> Store:
    """A store in which bob's entries are alice's; on the server they are still bob's."""
    where, dump = swept_once
    client.restore("s", 0, dump)
    return open_store(shutil.copytree(where, tmp_path / "swept"))


@pytest.fixture
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("claimlib.commands.writeback.IDS_PER_BATCH", 2)
    monkeypatch.setattr(writing, "BATCHES_PER_PIPELINE", 1)


# ------------------------------------------------------------------- what it does


ODD = b"odd \xff\n"
PARKING = "pa\u00efrk"


def fill(client: redis.Redis) -> None:
    stall(client, "a", [f"{n}-{n}" for n in range(1, 30)])
    stall(client, "a", [f"{n}-0" for n in range(100, 140)], owner="carl", idle_ms=60_000)
    client.xdel("a", "3-3", "5-5", "101-0")
    client.xack("a", GROUP, "6-6")
    stall(client, "b", [f"{n}-0" for n in range(1, 30)], owner="alice", count=7)
    stall(client, ODD, ["1-0"], owner="b\x00b", count=9)
    stall(client, ODD, ["2-0"])


def policy() -> list[SweepRequest]:
    """JUSTID for stream b, and for all others a parking consumer."""
    min_idle_ms = HOUR_MS // 4
    guards = Guards(max_deliveries=5, parking_consumer=PARKING.encode())
    return [
        SweepRequest(AutoclaimRequest(b"alice", min_idle_ms, justid=True), stream_glob="b"),
        SweepRequest(AutoclaimRequest(b"alice", min_idle_ms, guards=guards)),
    ]


def claim_on(client: redis.Redis, stream: str, *options: str) -> None:
    """XAUTOCLAIM by a script, because redis-py cannot read its reply with JUSTID."""
    words = (stream, GROUP, "alice", HOUR_MS // 4, "0-0", "COUNT", 1000, *options)
    client.eval("redis.call('XAUTOCLAIM', unpack(ARGV))", 0, *words)


def check_dry_run(store: Store, server: Server, client: redis.Redis) -> None:
    before = {stream: state(client, stream) for stream in "ab"}
    client.config_resetstat()
    reply = write(store, server, run_id=None, dry_run=True)
    assert sorted(tuple(row.values()) for row in reply.groups.collect()) == [
        ("a", GROUP, 26, 3),
        ("b", GROUP, 29, 0),
        ("odd \\xff\n", GROUP, 2, 0),
    ]
    assert reply.counts == {"decided": 60}
    assert "cmdstat_eval" not in client.info("commandstats")
    assert {stream: state(client, stream) for stream in "ab"} == before


def test_the_server_then_has_what_its_own_xautoclaim_would_have_given_it(server, client, store):
    fill(client)
    mirror(store, server)
    xautoclaim(store, policy(), run_id="r")
    check_dry_run(store, server, client)
    reply = write(store, server)
    with valkey_server() as other, other.client() as twin:
        fill(twin)
        claim_on(twin, "a")
        claim_on(twin, "b", "JUSTID")
        for stream in ("a", "b"):
            assert owners(state(client, stream)) == owners(state(twin, stream))
    assert owners(state(client, ODD)) == {"1-0": (PARKING, 9), "2-0": ("alice", 2)}
    assert outcomes(reply) == {"moved": 57, "acknowledged": 3}
    # The store follows the server to the millisecond, and knows that it does.
    assert {stream: in_store(store, stream) for stream in "ab"} == {
        stream: state(client, stream) for stream in "ab"
    }
    claimed_ms = state(client, "b")["1-0"][1]
    alice = store.relation("consumers").where("consumer = 'alice' AND stream = 'b'").collect()
    times = [(row["seen_time_ms"], row["active_time_ms"]) for row in alice]
    assert times == [(claimed_ms, claimed_ms)]
    run = find_run(store, "writeback:w")
    assert only_in_store(store, run.run_seq, run.counts) == dict.fromkeys(
        ("claimed", "restored", "deleted"), 0
    )


def test_a_consumer_that_receives_nothing_is_not_created(server, client, swept):
    client.xack("s", GROUP, *IDS)
    assert outcomes(write(swept, server)) == {"gone": 6}
    assert [row["name"] for row in client.xinfo_consumers("s", GROUP)] == [b"bob"]


def test_a_retired_consumer_is_removed_if_it_has_nothing_pending(server, client, store):
    stall(client, "s", IDS, idle_ms=5)
    stall(client, "s", ["7-0"], owner="dave")
    for name in ("alice", "carl"):
        client.xgroup_createconsumer("s", GROUP, name)
    mirror(store, server)
    to = (b"alice", b"carl")
    for name in (b"bob", b"dave"):
        retire(store, Retirement(b"s", GROUP.encode(), name, to), run_id=name.decode())
    client.xadd("s", {"n": 1}, id="9-0")
    client.xreadgroup(GROUP, "dave", {"s": ">"})
    removed = write(store, server, "bob", "w1")
    kept = write(store, server, "dave", "w2")
    assert (outcomes(removed), outcomes(kept)) == ({"moved": 6}, {"moved": 1})
    assert [
        (reply.counts["consumers_removed"], reply.counts["consumers_kept"])
        for reply in (removed, kept)
    ] == [(1, 0), (0, 1)]
    assert {row["name"] for row in client.xinfo_consumers("s", GROUP)} == {*to, b"dave"}
    assert owners(state(client, "s")) == {
        **{id_: (("alice", "carl")[n % 2], 1) for n, id_ in enumerate(IDS)},
        "7-0": ("alice", 1),
        "9-0": ("dave", 1),
    }


def test_a_later_run_is_written_from_what_the_server_has_and_no_entry_is_forced(
    server, client, swept
):
    ids = (StreamId(1, 0), StreamId(3, 5))
    claim = ClaimRequest(b"carl", 0, ids, retrycount=40, force=True)
    xclaim(swept, [NamedClaim(b"s", GROUP.encode(), claim)], run_id="later")
    assert outcomes(write(swept, server, "later", "first")) == {"moved": 1, "gone": 1}
    assert outcomes(write(swept, server, "r", "second")) == {"moved": 5, "touched": 1}
    on_server = state(client, "s")
    assert owners(on_server) == {
        "1-0": ("carl", 40),
        **dict.fromkeys(IDS[1:], ("alice", 2)),
    }
    assert {id_: was for id_, was in in_store(swept, "s").items() if id_ in IDS} == on_server


def test_acknowledged_entries_are_acknowledged_unless_another_client_touched_them(
    server, client, swept
):
    client.xclaim("s", GROUP, "carl", 0, ["2-0"], justid=True)
    client.xack("s", GROUP, "3-0")
    ids = tuple(StreamId(n, 0) for n in range(1, 5))
    ack = [NamedAck(b"s", GROUP.encode(), (*ids, ids[0], StreamId(9, 9)))]
    with pytest.raises(SourceMismatchError, match="Add --writeback with the URL of the server"):
        xack(swept, ack, run_id="a")
    xack(swept, ack, run_id="a", to_write_back=True)
    assert in_store(swept, "s").keys() == {"5-0", "6-0"}
    reply = write(swept, server, "xack:a")
    assert outcomes(reply) == {"acknowledged": 2, "touched": 1, "gone": 1}
    assert [tuple(row.values())[2:4] for row in reply.groups.collect()] == [(0, 4)]
    assert owners(state(client, "s")) == {
        "2-0": ("carl", 1),
        **dict.fromkeys(IDS[4:], ("bob", 1)),
    }
    run = find_run(swept, "writeback:w")
    assert only_in_store(swept, run.run_seq, run.counts) == {
        "claimed": 2,
        "restored": 0,
        "deleted": 2,
    }


@pytest.mark.usefixtures("_small_batches")
def test_groups_take_turns(server, client, store, monkeypatch):
    for stream in ("a", "b"):
        stall(client, stream, IDS[:5])
    mirror(store, server)
    sweep(store)
    monkeypatch.setattr("claimlib.commands.writeback._ROWS_AT_ONCE", 3)
    sent, pipeline = [], Source.pipeline

    def noted(self: Source, commands: list) -> list:
        sent.extend((words[3], len(words[10:])) for words in commands)
        return pipeline(self, commands)

    monkeypatch.setattr(Source, "pipeline", noted)
    assert outcomes(write(store, server)) == {"moved": 10}
    assert [stream for stream, _ in sent] == [b"a", b"b", b"b", b"a", b"b", b"a", b"b"]
    assert {number for _, number in sent} == {1, 2}
    assert all(in_store(store, stream) == state(client, stream) for stream in "ab")


# ------------------------------------------------------------------- other clients


class Traffic:
    """What other clients do to one stream, at random."""

    def __init__(self, client: redis.Redis, stream: str, draw: random.Random) -> None:
        self.client, self.stream, self.draw = client, stream, draw

    def act(self) -> None:
        id_ = self.draw.choice(IDS)
        owner = self.draw.choice(["bob", "carl", "alice", "dave"])
        place = (self.stream, GROUP)
        self.draw.choice(
            [
                lambda: self.client.xack(*place, id_),
                lambda: self.client.xclaim(*place, owner, 0, [id_]),
                lambda: self.client.xclaim(*place, owner, 0, [id_], justid=True),
                self._keep_own,
                lambda: self.client.xdel(self.stream, id_),
                self._read_new,
                lambda: self.client.xautoclaim(*place, owner, HOUR_MS // 4, count=1),
                lambda: self.client.xgroup_delconsumer(*place, owner),
            ]
        )()

    def _keep_own(self) -> None:
        """Claim again what a consumer has, as one does that is still at work."""
        for id_, (owner, _) in list(owners(state(self.client, self.stream)).items())[:2]:
            self.client.xclaim(self.stream, GROUP, owner, 0, [id_], justid=True)

    def _read_new(self) -> None:
        self.client.xadd(self.stream, {"n": 1})
        self.client.xreadgroup(GROUP, "dave", {self.stream: ">"})


@dataclass
class History:
    """One stream: what was pending when it was read, in the store after the sweep, and on the
    server before the writeback; and which ids the stream then has.
    """

    read: State
    decided: State
    before: State
    present: set[str]

    def outcome(self, id_: str) -> str | None:
        """What must become of an entry; None if the sweep left it alone."""
        was, goal, now = (part.get(id_) for part in (self.read, self.decided, self.before))
        if goal == was:
            return None
        if now is None:
            return "gone"
        if goal is None:
            return "touched" if id_ in self.present else "acknowledged"
        if now == was and id_ not in self.present:
            return "removed"  # by XCLAIM
        if now != was and (now[0], now[2]) == (goal[0], goal[2]):
            return "repeated"  # another client has done the same
        return "moved" if now == was else "touched"

    def check(self, after: State, kept: State) -> None:
        """Compare with the server and the store after the writeback."""
        moved = {id_ for id_ in self.read if self.outcome(id_) == "moved"}
        removed = {id_ for id_ in self.read if self.outcome(id_) in {"acknowledged", "removed"}}
        # Nothing else has changed, and nothing has come back.
        assert {id_: now for id_, now in after.items() if id_ not in moved} == {
            id_: now for id_, now in self.before.items() if id_ not in moved | removed
        }
        for id_ in self.read:
            match self.outcome(id_):
                case "moved" | "repeated":
                    goal = self.decided[id_]
                    assert (after[id_][0], after[id_][2]) == (goal[0], goal[2])
                    assert kept[id_] == after[id_]
                case "touched" | "gone" | "removed":
                    assert kept.get(id_) == self.decided.get(id_)


def all_in_store(store: Store) -> dict[str, State]:
    states: dict[str, State] = defaultdict(dict)
    for row in store.relation("pending").collect():
        values = (row["consumer"], row["delivery_time_ms"], row["delivery_count"])
        states[row["stream"]][f"{row['id_ms']}-{row['id_seq']}"] = values
    return states


@pytest.mark.parametrize("min_idle_ms", [0, HOUR_MS // 4])
def test_nothing_that_another_client_touched_since_is_changed(
    request, server, client, store, min_idle_ms
):
    draw = random.Random(new_seed(request.config))
    streams = [f"s{n}" for n in range(40)]
    for stream in streams:
        stall(client, stream, IDS[:3], idle_ms=draw.choice([5, HOUR_MS]))
        stall(client, stream, IDS[3:], owner="carl", idle_ms=draw.choice([5, HOUR_MS]))
        client.xdel(stream, draw.choice(IDS))
    mirror(store, server)
    read = all_in_store(store)
    sweep(store, min_idle_ms=min_idle_ms)
    decided = all_in_store(store)
    for stream in streams:
        traffic = Traffic(client, stream, draw)
        for _ in range(draw.randrange(6)):
            traffic.act()
    client.xgroup_destroy("s0", GROUP)
    client.xgroup_create("s0", GROUP, id="$")
    client.delete("s1")
    histories = {
        stream: History(
            read[stream],
            decided[stream],
            state(client, stream),
            {id_.decode() for id_, _ in client.xrange(stream)},
        )
        for stream in streams
    }
    client.set("s1", "no stream any more")

    reply = write(store, server)

    client.delete("s1")
    kept = all_in_store(store)
    for stream, history in histories.items():
        history.check(state(client, stream), kept[stream])
    expected = Counter(
        {"repeated": "moved", "removed": "gone"}.get(outcome, outcome)
        for history in histories.values()
        for outcome in map(history.outcome, history.read)
        if outcome is not None
    )
    assert dict(expected) == outcomes(reply)
    assert len(expected) == 4
    assert expected["touched"] > 3


def test_an_entry_that_its_owner_claimed_again_is_touched_although_owner_and_count_are_the_same(
    server, client, swept
):
    client.xclaim("s", GROUP, "bob", 0, ["1-0"], justid=True)
    assert outcomes(write(swept, server)) == {"moved": 5, "touched": 1}
    assert owners(state(client, "s"))["1-0"] == ("bob", 1)


def test_a_row_that_another_writer_changed_in_the_store_is_not_sent(server, client, swept):
    update(swept, "pending", "id_ms = 1", consumer="'own'")
    delete(swept, "pending", "id_ms = 2")
    assert outcomes(write(swept, server)) == {"moved": 4, "touched": 2}
    assert owners(state(client, "s"))["1-0"] == ("bob", 1)
    assert owners(state(client, "s"))["2-0"] == ("bob", 1)


# ------------------------------------------------------------------- kills and repeats


def killing(at: int) -> Callable[[Phase, str], None]:
    """A progress callback that raises when it is called for the n-th time."""
    calls = iter(range(1, at + 1))

    def tell(phase: Phase, detail: str) -> None:
        if next(calls, None) == at:
            raise KilledError(f"{phase} · {detail}")

    return tell


def at_phase(wanted: Phase) -> Callable[[Phase, str], None]:
    """A progress callback that raises when a phase begins."""

    def tell(phase: Phase, detail: str) -> None:
        if phase == wanted:
            raise KilledError(f"{phase} · {detail}")

    return tell


@pytest.mark.usefixtures("_small_batches")
def test_killed_at_each_step_it_comes_to_the_same_end_and_claims_nothing_twice(
    server, client, swept
):
    client.xclaim("s", GROUP, "carl", 0, ["6-0"], justid=True)
    client.xack("s", GROUP, "5-0")
    phases: list[str] = []
    calls = map(killing, range(1, 100))
    while not phases or phases[-1] != Phase.APPLY:  # then the decision is written
        with pytest.raises(KilledError) as killed:
            write(swept, server, progress=next(calls))
        phases.append(str(killed.value).partition(" ")[0])
    assert phases.count(Phase.SEND) == 3
    for phase in (Phase.APPLY, Phase.VERIFY, Phase.RECORD, Phase.FINISH):
        with pytest.raises(KilledError):
            write(swept, server, progress=at_phase(phase))
    assert outcomes(write(swept, server)) == {"moved": 4, "touched": 1, "gone": 1}
    on_server = state(client, "s")
    assert owners(on_server) == {
        **dict.fromkeys(IDS[:4], ("alice", 2)),
        "6-0": ("carl", 1),
    }
    assert {id_: in_store(swept, "s")[id_] for id_ in IDS[:4]} == {
        id_: on_server[id_] for id_ in IDS[:4]
    }


@pytest.mark.usefixtures("_small_batches")
@pytest.mark.parametrize("is_sent", [False, True])
def test_killed_while_it_waits_for_a_reply(server, client, swept, monkeypatch, is_sent):
    before = state(client, "s")
    pipeline, calls = Source.pipeline, []

    def second_fails(self: Source, commands: list) -> list:
        calls.append(commands)
        if len(calls) == 2:
            if is_sent:
                pipeline(self, commands)
            raise KilledError
        return pipeline(self, commands)

    monkeypatch.setattr(Source, "pipeline", second_fails)
    with pytest.raises(KilledError):
        write(swept, server)
    claimed = {id_ for id_, was in before.items() if state(client, "s")[id_] != was}
    assert len(claimed) == (4 if is_sent else 2)
    first = {id_: state(client, "s")[id_] for id_ in claimed}
    assert outcomes(write(swept, server)) == {"moved": 6}
    assert {id_: state(client, "s")[id_] for id_ in claimed} == first  # not claimed again
    assert set(owners(state(client, "s")).values()) == {("alice", 2)}
    assert in_store(swept, "s") == state(client, "s")


def test_killed_between_the_claims_and_the_journal(server, client, swept, monkeypatch):
    append = type(swept.writer).append

    def fails(self, table, *words, **options):
        if table == "journal":
            raise KilledError
        return append(self, table, *words, **options)

    with monkeypatch.context() as patch:
        patch.setattr(type(swept.writer), "append", fails)
        with pytest.raises(KilledError):
            write(swept, server)
    claimed = state(client, "s")
    assert set(owners(claimed).values()) == {("alice", 2)}
    # Any run id recognizes them, because the run that claimed them is not known.
    assert outcomes(write(swept, server, run_id="other")) == {"moved": 6}
    assert state(client, "s") == claimed == in_store(swept, "s")


@pytest.mark.usefixtures("_small_batches")
def test_a_connection_that_breaks_in_the_middle_says_how_far_it_came(server, client, swept):

    def cut(phase: Phase, _detail: str) -> None:
        if phase == Phase.SEND:
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    with pytest.raises(SourceUnreachableError, match=r"answered for 2 of 6 entries: repeat"):
        write(swept, server, progress=cut)
    assert rows_of(swept, 3, Kind.RUN).is_empty()
    assert outcomes(write(swept, server)) == {"moved": 6}
    assert set(owners(state(client, "s")).values()) == {("alice", 2)}


@pytest.mark.usefixtures("_small_batches")
def test_a_server_that_answers_slowly_is_left_in_peace(server, swept, monkeypatch):
    slept: list[float] = []
    limit = partial(LatencyLimit, sleep=slept.append)
    monkeypatch.setattr("claimlib.commands.writeback.LatencyLimit", limit)
    pipeline, told = Source.pipeline, []

    def slow(self: Source, commands: list) -> list:
        replies = pipeline(self, commands)
        self.latency_s = 60.0
        return replies

    with monkeypatch.context() as patch:
        patch.setattr(Source, "pipeline", slow)
        # Once it pauses after each pipeline, TIME is answered in time.
        write(swept, server, max_latency_ms=30_000, progress=lambda *words: told.append(words))
    paused = [detail for phase, detail in told if phase == Phase.SEND and "paused" in detail]
    assert len(paused) == len(slept) == 3
    assert "took 60000.0 ms to answer, more than --max-latency 30s" in paused[0]


@pytest.mark.usefixtures("_small_batches")
def test_a_server_that_stays_slow_is_an_error_and_the_repeat_continues(
    server, client, swept, monkeypatch
):
    monkeypatch.setattr(
        "claimlib.commands.writeback.LatencyLimit", partial(LatencyLimit, sleep=lambda _: None)
    )
    message = "for 5 minutes. The server has answered for 0 of 6 entries: repeat"
    with pytest.raises(SourceUnreachableError, match=message):
        write(swept, server, max_latency_ms=0)
    assert set(owners(state(client, "s")).values()) == {("bob", 1)}
    assert outcomes(write(swept, server, max_latency_ms=30_000)) == {"moved": 6}


def test_a_repeat_gives_the_same_reply_and_another_run_id_is_refused(server, client, swept):
    first = write(swept, server)
    client.config_resetstat()
    again = write(swept, server)
    assert (again.is_repeat, again.counts) == (True, first.counts)
    assert again.groups.collect() == first.groups.collect()
    assert "cmdstat_eval" not in client.info("commandstats")
    assert refused(swept, server, run_id="w2").startswith(
        "RequestError: run xautoclaim:r was already written back by run 3 (writeback:w). Nothing"
    )


def test_a_snapshot_does_not_count_written_back_claims_as_overwritten(server, client, swept):
    write(swept, server)
    client.xclaim("s", GROUP, "bob", 0, ["1-0", "2-0"])
    assert "claims_replaced" not in mirror(swept, server).counts
    xautoclaim(swept, SweepRequest(AutoclaimRequest(b"alice", 0)), run_id="only-in-the-store")
    client.xclaim("s", GROUP, "carl", 0, ["1-0", "2-0"])
    assert mirror(swept, server).counts["claims_replaced"] == 2


def test_a_snapshot_does_not_count_undone_claims_as_overwritten(server, client, swept):
    undo(swept, "r", run_id="undo")
    client.xclaim("s", GROUP, "carl", 0, ["1-0", "2-0"])
    assert "claims_replaced" not in mirror(swept, server).counts


def test_a_snapshot_counts_claims_that_were_undone_and_done_again(server, client, swept):
    undo(swept, "r", run_id="undo")
    undo(swept, "undo:undo", run_id="again")
    client.xclaim("s", GROUP, "carl", 0, ["1-0", "2-0"])
    assert mirror(swept, server).counts["claims_replaced"] > 0


def test_a_snapshot_does_not_count_claims_whose_third_undo_reversed_them(server, client, swept):
    for undone, run_id in (("xautoclaim:r", "one"), ("undo:one", "two"), ("undo:two", "three")):
        undo(swept, undone, run_id=run_id)
    client.xclaim("s", GROUP, "carl", 0, ["1-0", "2-0"])
    assert "claims_replaced" not in mirror(swept, server).counts


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


def refused(store: Store, server: Server, run: str = "r", **options: object) -> str:
    """The error of a refusal, which sends nothing and decides nothing."""
    decided = find_known(store)
    with server.client() as client:
        client.config_resetstat()
        with pytest.raises(ClaimlibError) as why:
            write(store, server, run, **options)
        assert "cmdstat_eval" not in client.info("commandstats")
    assert find_known(store) == decided
    return f"{why.type.__name__}: {why.value.message}"


def find_known(store: Store) -> int:
    return store.relation("journal").where(f"kind = '{Kind.RUN}'").count()


def test_of_a_run_that_changed_nothing_nothing_is_sent(server, client, swept):
    claim = ClaimRequest(b"carl", 24 * HOUR_MS, (StreamId(1, 0),))
    xclaim(swept, [NamedClaim(b"s", GROUP.encode(), claim)], run_id="none")
    before = state(client, "s")
    reply = write(swept, server, "none")
    assert (reply.counts["decided"], reply.groups.count()) == (0, 0)
    assert state(client, "s") == before


def test_runs_that_cannot_be_written_back(server, swept):
    assert "only xautoclaim, xclaim, xack, retire and undo runs can" in refused(swept, server, "1")
    assert "has no finished run nothing" in refused(swept, server, "nothing")
    claims = [NamedClaim(b"s", GROUP.encode(), ClaimRequest(b"carl", 0, (StreamId(1, 0),)))]
    with pytest.raises(KilledError):
        xclaim(swept, claims, run_id="late", progress=at_phase(Phase.APPLY))
    assert "(xclaim:late is unfinished: the next run finishes it)" in refused(swept, server, "late")


def test_a_snapshot_that_is_too_old_or_was_replaced(server, swept):
    message = refused(swept, server, max_age_ms=1)
    assert message.startswith("GuardError: the snapshot of s / w is ")
    assert "more than --max-age 1ms. Nothing was sent. Take a new snapshot" in message
    mirror(swept, server)
    assert refused(swept, server).startswith(
        "GuardError: run 3 has read s / w from the server after run xautoclaim:r, and replaced"
    )


def test_a_snapshot_of_other_streams_since_does_not_matter(server, client, swept):
    stall(client, "other", IDS)
    mirror(swept, server, stream_glob="other")
    assert outcomes(write(swept, server)) == {"moved": 6}


def test_another_server_database_or_process(server, client, swept, monkeypatch):
    with valkey_server() as other, other.client() as twin:
        twin.restore("s", 0, client.dump("s"))
        assert refused(swept, other).startswith("SourceMismatchError: nothing proves that 127")
        assert set(owners(state(twin, "s")).values()) == {("bob", 1)}
        # As after a restart: the source has this address, and the process is another one.
        monkeypatch.setattr("claimlib.live.access.source_label", lambda _: server.url[8:])
        assert refused(swept, other).startswith("SourceMismatchError: nothing proves that 127")
    message = refused(swept, server, url=f"{server.url[:-1]}1")
    assert message.startswith("SourceMismatchError: nothing proves that 127")


def test_a_replica_and_a_cluster_without_slots(server, client, swept):
    at_once = {"repl-diskless-sync-delay": "0", "replicaof": f"{server.host} {server.port}"}
    client.config_set("repl-diskless-sync-delay", 0)
    with valkey_server(config=at_once) as replica, replica.client() as copy:
        deadline = time.monotonic() + 20
        while copy.info("replication")["master_link_status"] != "up":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert "is a replica, which takes no writes" in refused(swept, replica)
    with valkey_server(config={"cluster-enabled": "yes"}) as node:
        assert "slot 0 of the cluster of 127" in refused(swept, node)


def test_a_store_that_mirrors_no_server(server, store):
    append(store, "pending", pending_row("s", 1))
    append(store, "entries", entry_row("s", 1))
    group = {"stream": "s", "consumer_group": "g", "last_delivered_ms": 9}
    append(store, "groups", {**group, "last_delivered_seq": 0, "snapshot_ms": 9, "run_seq": 0})
    proof = {"complete_from_ms": 0, "complete_from_seq": 0, "complete_to_ms": 9}
    append(store, "streams", {"stream": "s", **proof, "complete_to_seq": 0, "run_seq": 0})
    claim = ClaimRequest(b"carl", 0, (StreamId(1, 0),))
    xclaim(store, [NamedClaim(b"s", b"g", claim)], run_id="r")
    assert refused(store, server).startswith("NotAMirrorError")


def test_a_clock_behind_the_snapshot_and_a_group_without_a_snapshot_time(server, swept):
    update(swept, "groups", "true", snapshot_ms=f"snapshot_ms + {HOUR_MS}")
    message = refused(swept, server)
    assert message.startswith("GuardError: the clock of 127.0.0.1:")
    assert "behind the snapshot time of s / w" in message
    update(swept, "groups", "true", snapshot_ms="NULL")
    assert "s / w has no snapshot time" in refused(swept, server)


# ------------------------------------------------------------------- an undo


def test_an_undo_gives_entries_back_on_the_server_unless_a_client_has_them(swept, server, client):
    write(swept, server)
    assert owners(state(client, "s")) == dict.fromkeys(IDS, ("alice", 2))
    client.xack("s", GROUP, IDS[0])
    client.xclaim("s", GROUP, "carol", 0, [IDS[1]], justid=True)
    undone = undo(swept, "r", run_id="u")
    assert (undone.counts["restored"], undone.counts["kept"]) == (len(IDS), 0)
    assert {
        id_: (owner, count) for id_, (owner, _, count) in in_store(swept, "s").items()
    } == dict.fromkeys(IDS, ("bob", 1))
    reply = write(swept, server, "undo:u", "back")
    assert outcomes(reply) == {"moved": 4, "touched": 1, "gone": 1}
    given_back = dict.fromkeys(IDS[2:], ("bob", 1))
    assert owners(state(client, "s")) == given_back | {IDS[1]: ("carol", 2)}
    assert write(swept, server, "undo:u", "back").is_repeat


def test_an_undo_of_a_run_that_was_not_written_back_sends_nothing(swept, server, client):
    before = owners(state(client, "s"))
    undo(swept, "r", run_id="u")
    with pytest.raises(ClaimlibError, match="no writeback of that run is finished"):
        write(swept, server, "undo:u")
    assert owners(state(client, "s")) == before


def test_nothing_is_sent_of_a_run_that_was_undone(swept, server, client):
    before = owners(state(client, "s"))
    undo(swept, "r", run_id="u")
    with pytest.raises(ClaimlibError, match=r"run xautoclaim:r was undone by run 3 \(undo:u\)"):
        write(swept, server)
    assert owners(state(client, "s")) == before


def test_a_report_offers_a_writeback_only_if_it_would_be_accepted_and_send_something(swept, server):
    def offers(run: str) -> bool:
        return run_report(swept, run).can_be_written_back

    assert offers("xautoclaim:r")
    idle = xautoclaim(swept, SweepRequest(AutoclaimRequest(b"alice", HOUR_MS)), run_id="idle")
    assert idle.counts["claimed"] == 0
    assert not offers("xautoclaim:idle")
    undo(swept, "r", run_id="u")
    undo(swept, "undo:u", run_id="again")
    assert [offers(run) for run in ("xautoclaim:r", "undo:u", "undo:again")] == [True, False, False]
    # Bob owns no pending entries, so the run only removes the consumer.
    retire(swept, Retirement(b"s", GROUP.encode(), b"bob", (b"alice",)), run_id="gone")
    assert offers("retire:gone")
    mirror(swept, server)
    xclaim(swept, [NamedClaim(b"s", GROUP.encode(), ClaimRequest(b"eve", 0, (StreamId(1, 0),)))])
    assert not offers("xautoclaim:r")


def test_an_undo_knows_what_the_server_still_has(swept, server, client):
    xack(swept, [NamedAck(b"s", GROUP.encode(), (StreamId(1, 0),))], run_id="a", to_write_back=True)
    write(swept, server)
    write(swept, server, "xack:a", "w2")
    assert undo(swept, "xack:a", dry_run=True).is_on_server
    assert undo(swept, "r", run_id="u").is_on_server
    write(swept, server, "undo:u", "back")
    repeated = undo(swept, "r", run_id="u")
    assert repeated.is_repeat
    assert not repeated.is_on_server
    assert "1-0" not in owners(state(client, "s"))


def test_an_undo_of_an_unsent_run_is_not_on_the_server(swept):
    assert not undo(swept, "r").is_on_server


def test_an_acknowledgement_is_not_sent_if_the_entry_is_pending_again(swept, server, client):
    named = NamedAck(b"s", GROUP.encode(), (StreamId(1, 0), StreamId(2, 0)))
    xack(swept, [named], run_id="a", to_write_back=True)
    append(swept, "pending", pending_row("s", 1) | {"consumer_group": GROUP})
    reply = write(swept, server, "xack:a")
    assert reply.counts["acknowledged"] + reply.counts["touched"] == 2
    assert reply.counts["touched"] >= 1
    assert "1-0" in owners(state(client, "s"))


def test_what_a_killed_writeback_acknowledged_does_not_come_back(swept, server, client):
    named = NamedAck(b"s", GROUP.encode(), (StreamId(1, 0),))
    xack(swept, [named], run_id="a", to_write_back=True)
    client.xack("s", GROUP, "1-0")  # a writeback that was killed before its decision
    assert outcomes(write(swept, server, "xack:a")) == {"gone": 1}
    undone = undo(swept, "xack:a")
    assert (undone.counts["returned"], undone.counts["kept"]) == (0, 1)
    assert "1-0" not in in_store(swept, "s")
