"""Clusters of real servers: read, written back, with slots that move and masters that fail."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence

import pytest

from claimlib import cli, process
from claimlib.cli import doctor_command as doctor
from claimlib.cli.options import ServerOptions
from claimlib.commands.check import check
from claimlib.commands.snapshot import SnapshotRequest, Spans, snapshot
from claimlib.errors import PermissionDeniedError, SourceMismatchError, SourceUnreachableError
from claimlib.live import writing
from claimlib.live.batches import Batch, PendingPage, StreamDone, StreamGone
from claimlib.live.cluster import Servers, open_servers
from claimlib.live.reader import read_source
from claimlib.live.reading import ServerReading
from claimlib.runs import Phase
from claimlib.runs.mirror_rows import TABLES_WRITTEN
from claimlib.store.tables import Store
from tests.delta.server_groups import (
    FAST,
    in_store,
    mirror,
    outcomes,
    owners,
    stall,
    state,
    sweep,
    write,
)
from tests.live.clusters import (
    Node,
    another_master,
    close_slot,
    cluster,
    move,
    move_at_once,
    move_key,
    open_slot,
    stream_on,
    until,
)
from tests.live.readings import LEAST_RIGHTS, Read, read

IDS = [f"{n}-0" for n in range(1, 4)]
STREAMS = [stream_on(number) for number in range(3)]
"""The streams of the three masters; their slots do not move."""
ADDED = "+cluster|nodes"


@pytest.fixture(scope="module")
def started() -> Iterator[tuple[Node, ...]]:
    users = [
        " ".join([name, "on", ">sesame", *LEAST_RIGHTS, *more])
        for name, more in {"reader": [ADDED], "other": []}.items()
    ]
    with cluster(users=users) as nodes:
        yield nodes


@pytest.fixture
def nodes(started: tuple[Node, ...]) -> tuple[Node, ...]:
    """Start three masters.  Each has one stream, whose entries bob has had for an hour."""
    fill(started)
    return started


def fill(nodes: Sequence[Node]) -> None:
    for node, stream in zip(nodes, STREAMS, strict=False):
        node.client.flushall()
        stall(node.client, stream, IDS)


_numbers = iter(range(1, 1000))


def stream_to_move(source: Node, nodes: Sequence[Node]) -> str:
    """Return a new stream of a master; its slot has not moved before."""
    stream = stream_on(nodes.index(source), nth=next(_numbers))
    stall(source.client, stream, IDS)
    return stream


def opened(node: Node, **options: object) -> Servers:
    return open_servers(node.server.url, **{"max_commands_per_second": None} | options)


def in_order(servers: Servers, nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes in the order in which they are searched."""
    ports = [source.address.port for source in servers.nodes]
    return sorted(nodes, key=lambda node: ports.index(node.server.port))


def read_acting(
    servers: Servers, is_moment: Callable[[Batch], bool], act: Callable[[], None], **options: object
) -> tuple[Read, list[Batch]]:
    """Read, and act once after a batch."""
    result, batches = Read(), []
    for batch in read_source(servers, **options):
        result.take(batch)
        batches.append(batch)
        if act is not None and is_moment(batch):
            act()
            act = None
    assert act is None, "the moment never came"
    return result, batches


def is_of(stream: str) -> Callable[[Batch], bool]:
    return lambda batch: getattr(batch, "stream", None) == stream.encode()


def ids_read(result: Read, stream: str) -> list[str]:
    return [str(row.id) for row in result.pending[stream.encode(), b"w"]]


# --- reading


def test_any_node_is_the_whole_cluster(nodes):
    run_ids = {node.client.info()["run_id"] for node in nodes}
    for node in nodes:
        with opened(node) as servers:
            result = read(servers)
        assert set(result.opened.run_id.split()) == run_ids
        for owner, stream in zip(nodes, STREAMS, strict=True):
            pending = {
                str(row.id): (row.consumer.decode(), row.delivery_time_ms, row.delivery_count)
                for row in result.pending[stream.encode(), b"w"]
            }
            assert pending == state(owner.client, stream)


def test_one_named_stream_and_one_that_is_not_there(nodes):
    with opened(nodes[0]) as servers:
        for stream in STREAMS:
            assert set(read(servers, stream_glob=stream).streams) == {stream.encode()}
        nothing = read(servers, stream_glob="none")
    assert (nothing.streams, nothing.gone) == ({}, [])


@pytest.mark.parametrize("move", [move, move_at_once])
def test_a_stream_that_moves_to_a_master_that_was_searched_already_is_read(nodes, move):
    with opened(nodes[0]) as servers:
        first, second, third = in_order(servers, nodes)
        stream = stream_to_move(third, nodes)
        result, _ = read_acting(
            servers,
            is_of(STREAMS[nodes.index(second)]),
            lambda: move(third, first, stream),
        )
    assert ids_read(result, stream) == IDS
    assert set(result.streams) == {name.encode() for name in [*STREAMS, stream]}
    assert result.gone == []


@pytest.mark.parametrize("move", [move, move_at_once])
def test_a_stream_that_moves_to_a_master_that_is_searched_later_is_read_once(nodes, move):
    with opened(nodes[0]) as servers:
        first, second, third = in_order(servers, nodes)
        stream = stream_to_move(first, nodes)
        result, batches = read_acting(
            servers,
            is_of(STREAMS[nodes.index(second)]),
            lambda: move(first, third, stream),
        )
    assert ids_read(result, stream) == IDS
    assert sum(isinstance(b, StreamDone) and is_of(stream)(b) for b in batches) == 1


@pytest.mark.parametrize("move", [move, move_at_once])
def test_a_stream_that_moves_while_it_is_read_is_read_again(nodes, move):
    stream = stream_to_move(nodes[0], nodes)

    def page(batch: Batch) -> bool:
        return isinstance(batch, PendingPage) and is_of(stream)(batch)

    with opened(nodes[1]) as servers:
        result, batches = read_acting(
            servers, page, lambda: move(nodes[0], nodes[1], stream), pending_page=1
        )
    assert [type(b) for b in batches if is_of(stream)(b)].count(StreamGone) == 1
    assert ids_read(result, stream) == IDS
    assert (result.counts.streams, result.counts.vanished) == (4, 0)


def test_a_stream_in_a_slot_that_is_being_moved_is_refused_by_name(nodes):
    stream = stream_to_move(nodes[0], nodes)
    open_slot(nodes[0], nodes[1], stream)
    with opened(nodes[2]) as servers:
        assert ids_read(read(servers), stream) == IDS
        move_key(nodes[0], nodes[1], stream)
        for glob in ("*", stream):
            with pytest.raises(SourceUnreachableError, match=f"does not serve key {stream}"):
                read(servers, stream_glob=glob)
    close_slot(nodes[0], nodes[1], stream)
    with opened(nodes[2]) as servers:
        assert ids_read(read(servers), stream) == IDS


def test_slots_that_keep_moving_are_not_read_for_ever(nodes):
    moving = [stream_to_move(nodes[0], nodes) for _ in range(10)]
    with opened(nodes[0]) as servers:
        slot_map = servers.slot_map

        def move_one():
            move(nodes[0], nodes[1], moving.pop())
            return slot_map()

        servers.slot_map = move_one
        with pytest.raises(SourceUnreachableError, match=r"slots of the cluster of .* keep moving"):
            read(servers)


def test_a_slot_that_another_node_takes_over_is_an_error_that_names_it(nodes):
    stream = stream_to_move(nodes[0], nodes)
    with opened(nodes[0]) as servers, another_master(nodes) as added:
        move(nodes[0], added, stream)
        with pytest.raises(SourceUnreachableError, match=f"served by .*:{added.server.port}"):
            read(servers)
        move(added, nodes[0], stream)


def test_a_key_that_is_on_a_master_without_slots_is_not_missed(nodes):
    stream = stream_to_move(nodes[0], nodes)
    with another_master(nodes) as added:
        open_slot(nodes[0], added, stream)
        move_key(nodes[0], added, stream)
        with opened(nodes[1]) as servers:
            assert len(servers.nodes) == 4
            with pytest.raises(SourceUnreachableError, match=f"does not serve key {stream}"):
                read(servers)
        close_slot(nodes[0], added, stream)
        move(added, nodes[0], stream)


def test_a_key_that_moves_between_two_searches_of_a_moving_slot_is_not_missed(nodes):
    with opened(nodes[0]) as servers:
        first, second, third = in_order(servers, nodes)
        stream = stream_to_move(third, nodes)
        open_slot(third, first, stream)
        with pytest.raises(SourceUnreachableError, match=f"does not serve key {stream}"):
            read_acting(
                servers,
                is_of(STREAMS[nodes.index(second)]),
                lambda: move_key(third, first, stream),
            )
    close_slot(third, first, stream)


# --- rights


def test_the_right_that_a_cluster_takes_besides(nodes):
    login = {"username": "reader", "password": "sesame"}
    with opened(nodes[0], **login) as servers:
        assert read(servers).counts.streams == 3
    with pytest.raises(PermissionDeniedError, match=r"grant \+cluster\|nodes"):
        opened(nodes[0], **login | {"username": "other"})


def test_doctor_describes_each_master_and_tries_its_rights(nodes, monkeypatch):
    nodes[1].ask("ACL", "SETUSER", "reader", "-xpending")
    monkeypatch.setenv("REDIS_PASSWORD", "sesame")
    url = nodes[0].server.url.replace("//", "//reader@")
    checks = list(doctor._server(url, ServerOptions(), writeback=False))
    nodes[1].ask("ACL", "SETUSER", "reader", "+xpending")
    described = [check.result for check in checks if check.name == "server"]
    assert len(described) == 3
    assert all(", cluster, master, 5,4" in text and ", 1 key" in text for text in described)
    (lacking,) = [check for check in checks if not check.is_ok]
    assert lacking.name == "+xpending"
    assert lacking.result.startswith(f"127.0.0.1:{nodes[1].server.port}/0: not granted")
    assert sum(ADDED in check.result for check in checks if check.name == "rights") == 3


# --- writing back


def claims(stream: str, latest_ms: int) -> Iterator[writing.EntryBatch]:
    """Yield a batch of one entry for each of the ids."""
    bob, alice = writing.PendingState(b"bob", 1), writing.PendingState(b"alice", 2)
    for id_ in IDS:
        yield writing.FencedBatch(stream.encode(), b"w", [id_], bob, latest_ms, alice)


@pytest.fixture
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "BATCHES_PER_PIPELINE", 1)
    monkeypatch.setattr("claimlib.commands.writeback.IDS_PER_BATCH", 1)


@pytest.mark.usefixtures("_small_batches")
def test_a_batch_follows_its_stream_to_another_master(nodes):
    first, second, third = nodes
    stream = stream_to_move(first, nodes)
    latest_ms = max(at_ms for _, at_ms, _ in state(first.client, stream).values())
    with opened(third) as servers:
        written = writing.write_entries(servers, claims(stream, latest_ms))
        assert next(written)[0].outcome == "moved"
        move(first, second, stream)
        assert next(written)[0].outcome == "moved"
        open_slot(second, third, stream)
        move_key(second, third, stream)
        with pytest.raises(SourceUnreachableError, match=f"does not serve key {stream}.* again"):
            list(written)
    close_slot(second, third, stream)
    told = state(third.client, stream)
    assert owners(told) == {"1-0": ("alice", 2), "2-0": ("alice", 2), "3-0": ("bob", 1)}
    with opened(third) as servers:
        again = writing.write_entries(servers, claims(stream, latest_ms))
        assert [entry.outcome for outcomes in again for entry in outcomes] == ["moved"] * 3
    assert {id_: state(third.client, stream)[id_] for id_ in IDS[:2]} == {
        id_: told[id_] for id_ in IDS[:2]
    }


def test_a_snapshot_and_a_writeback_are_those_of_all_masters(nodes, store):
    moving = stream_to_move(nodes[0], nodes)
    reading = ServerReading(nodes[0].server.url, **FAST)
    acts = [lambda: move(nodes[0], nodes[1], moving)]

    def read_while_it_moves(spans: Spans) -> Iterator[Batch]:
        for batch in reading(spans):
            yield batch
            if acts and isinstance(batch, PendingPage) and is_of(moving)(batch):
                acts.pop()()

    def check() -> None:
        for owner, stream in zip((*nodes, nodes[1]), (*STREAMS, moving), strict=True):
            assert in_store(store, stream) == state(owner.client, stream)

    snapshot(store, SnapshotRequest(reading.label), read_while_it_moves)
    assert not acts
    check()
    sweep(store)
    with another_master(nodes) as added:
        with pytest.raises(SourceMismatchError, match=f"127.0.0.1:{added.server.port}/0 is the"):
            write(store, nodes[0].server)
        with pytest.raises(SourceMismatchError, match="nothing proves"):
            mirror(store, nodes[1].server)
    assert set(owners(state(nodes[0].client, STREAMS[0])).values()) == {("bob", 1)}
    assert outcomes(write(store, nodes[1].server)) == {"moved": 12}
    check()
    for owner, stream in zip(nodes, STREAMS, strict=True):
        assert set(owners(state(owner.client, stream)).values()) == {("alice", 2)}


# --- masters that fail


def test_a_master_that_is_down_is_named():
    with cluster() as nodes:
        fill(nodes)
        named = f"127.0.0.1:{nodes[2].server.port}/0 cannot be reached"
        with opened(nodes[0]) as servers, pytest.raises(SourceUnreachableError, match=named):
            read_acting(servers, is_of(STREAMS[0]), nodes[2].stop)
        with pytest.raises(SourceUnreachableError, match=named):
            opened(nodes[0])
        until(lambda: nodes[0].says("cluster_state:fail"))
        with pytest.raises(SourceUnreachableError, match=named):
            opened(nodes[0])
        # By default a cluster without a master answers nothing.
        with (
            opened(nodes[0], needs_all_masters=False) as servers,
            pytest.raises(SourceUnreachableError, match=f"The cluster is down.*; {named}"),
        ):
            read(servers)


def rows_of(store: Store, stream: str) -> dict[str, list[str]]:
    """Return the rows of a stream, by table."""
    return {
        table: sorted(map(str, store.relation(table).where(f"stream = '{stream}'").collect()))
        for table in TABLES_WRITTEN
    }


def last_server(store: Store) -> tuple[str, str]:
    row = store.relation("runs").order_by("run_seq DESC").first()
    assert row is not None
    return row["server_run_id"], row["replication_id"]


def test_a_snapshot_leaves_the_streams_of_a_master_that_is_down(store, monkeypatch, capsys):
    def take(*words: str) -> tuple[int, str]:
        url = nodes[0].server.url
        line = ["claimlib", "snapshot", url, store.where, "--max-removed-share", "1", *words]
        monkeypatch.setattr(sys, "argv", line)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, capsys.readouterr().err

    with cluster(cluster_require_full_coverage="no") as nodes:
        fill(nodes)
        first, second, third = STREAMS
        mirror(store, nodes[0].server)
        before, server = rows_of(store, third), last_server(store)
        assert all(before.values())
        nodes[0].client.xack(first, "w", "1-0")
        nodes[1].client.delete(second)
        label = f"127.0.0.1:{nodes[2].server.port}/0"
        nodes[2].stop()

        code, said = take("--run-id", "partial")
        assert code == process.SOME_REFUSED
        assert f"left as they were: 5,462 slots: {label} cannot be reached" in said
        assert rows_of(store, third) == before
        assert in_store(store, first) == state(nodes[0].client, first)
        assert not any(rows_of(store, second).values())
        run = store.relation("runs").where("run_id = 'partial'").first()
        assert run is not None
        counts = {name: run["counts"].get(name) for name in LEFT}
        assert counts == {"master_down": 1, "stream_left": 1, "stream_removed": 1}
        assert "server_restarted" not in run["counts"]
        assert last_server(store) == server  # so a promoted replica of this master is proven later
        assert rows_of_kinds(store, run["run_seq"]) == {("stream_left", third, label)}
        assert not check(store, replay=True)
        again = take("--run-id", "partial")
        assert (again[0], again[1].splitlines()[-1]) == (code, said.splitlines()[-1])

        code, said = take("--stream", third)
        assert (code, f"{label} cannot be reached" in said) == (75, True)
        nodes[1].stop()
        code, said = take()  # the rest may not know of a failover
        assert (code, "cannot be reached" in said) == (75, True)
        assert rows_of(store, third) == before


LEFT = ("master_down", "stream_left", "stream_removed")


def rows_of_kinds(store: Store, run_seq: int) -> set[tuple[str, str, str]]:
    rows = store.relation("journal").where(f"run_seq = {run_seq} AND kind = 'stream_left'")
    return {(row["kind"], row["stream"], row["source"]) for row in rows.collect()}


@pytest.mark.usefixtures("_small_batches")
def test_a_failover_in_the_middle_of_a_writeback(store):
    with cluster(replicas=1) as nodes:
        failing, other, _, replica = nodes
        fill(nodes)
        assert failing.client.wait(1, 5000) == 1
        mirror(store, other.server)
        sweep(store)
        acts = [failing.stop]

        def fail(phase: Phase, _detail: str) -> None:
            if phase == Phase.SEND and acts:
                acts.pop()()

        named = f"127.0.0.1:{failing.server.port}/0 .* repeat the command"
        with pytest.raises(SourceUnreachableError, match=named):
            write(store, other.server, progress=fail)
        until(lambda: replica.client.info("replication")["role"] == "master")
        until(lambda: other.says("cluster_state:ok"))
        assert outcomes(write(store, other.server)) == {"moved": 9}
        mirror(store, replica.server)  # by another node, and each master is proven
        for owner, stream in zip((replica, *nodes[1:3]), STREAMS, strict=True):
            assert set(owners(state(owner.client, stream)).values()) == {("alice", 2)}
            assert in_store(store, stream) == state(owner.client, stream)
