"""A cluster of real servers on the loopback, and what administrators do to its slots."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import redis
from redis.crc import key_slot

from claimlib.testing.server_process import Server, valkey_server

SLOTS = 16_384
WITHIN_S = 30
_CONFIG = {
    "cluster-enabled": "yes",
    "cluster-node-timeout": "500",
    "cluster-replica-validity-factor": "0",
    "cluster-allow-replica-migration": "no",
    "repl-diskless-sync-delay": "0",
}


def until(condition: Callable[[], Any]) -> Any:
    """Ask until the condition holds, and return its value."""
    deadline = time.monotonic() + WITHIN_S
    while not (value := condition()):
        assert time.monotonic() < deadline, "it never came to that"
    return value


@dataclass(frozen=True)
class Node:
    """Hold a node of a cluster, a client of it, and its id in the cluster."""

    server: Server
    client: redis.Redis
    id: str
    bus_port: int
    _stop: ExitStack

    def ask(self, *words: object) -> Any:
        return self.client.execute_command(*words)

    def says(self, text: str) -> bool:
        return text.encode() in self.ask("CLUSTER", "INFO")

    def stop(self) -> None:
        self._stop.close()


@contextmanager
def cluster(
    masters: int = 3, replicas: int = 0, users: Sequence[str] = (), **config: str
) -> Iterator[tuple[Node, ...]]:
    """Start masters, among which the slots are split, and replicas of the first one.

    Args:
        config: parameters of the servers, with underscores.
    """
    with ExitStack() as started:
        nodes = tuple(_node(started, users, config) for _ in range(masters + replicas))
        for number, node in enumerate(nodes[:masters]):
            first, end = (SLOTS * n // masters for n in (number, number + 1))
            node.ask("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
        for number, node in enumerate(nodes):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            _meet(nodes[0], node)
        until(lambda: all(node.says(f"cluster_known_nodes:{len(nodes)}") for node in nodes))
        for node in nodes[masters:]:
            until(lambda n=node: nodes[0].id.encode() in n.ask("CLUSTER", "NODES"))
            node.ask("CLUSTER", "REPLICATE", nodes[0].id)
            until(lambda n=node: n.client.info("replication").get("master_link_status") == "up")
        until(lambda: all(node.says("cluster_state:ok") for node in nodes))
        yield nodes


def _meet(node: Node, other: Node) -> None:
    if node is not other:
        node.ask("CLUSTER", "MEET", other.server.host, other.server.port, other.bus_port)


def _node(
    started: ExitStack, users: Sequence[str] = (), config: Mapping[str, str] = MappingProxyType({})
) -> Node:
    stop = started.enter_context(ExitStack())
    parameters = _CONFIG | {name.replace("_", "-"): value for name, value in config.items()}
    server = stop.enter_context(valkey_server(config=parameters, users=users))
    client = stop.enter_context(server.client())
    id_ = client.execute_command("CLUSTER", "MYID").decode()
    bus_port = int(client.config_get("cluster-port")["cluster-port"])
    return Node(server, client, id_, bus_port, stop)


@contextmanager
def another_master(nodes: Sequence[Node]) -> Iterator[Node]:
    """Add a master without slots."""
    with ExitStack() as started:
        node = _node(started)
        _meet(nodes[0], node)
        known = f"cluster_known_nodes:{len(nodes) + 1}"
        until(lambda: all(each.says(known) for each in (*nodes, node)))
        until(lambda: node.says("cluster_state:ok"))
        yield node
    for each in nodes:
        each.ask("CLUSTER", "FORGET", node.id)


def stream_on(number: int, masters: int = 3, nth: int = 0) -> str:
    """Return a name whose slot the master with this number had at first."""
    names = (f"s{n}" for n in range(10_000))
    own = (name for name in names if key_slot(name.encode()) * masters // SLOTS == number)
    return [next(own) for _ in range(nth + 1)][-1]


def open_slot(source: Node, target: Node, stream: str) -> None:
    """Begin to move the slot of a stream."""
    slot = key_slot(stream.encode())
    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)


def move_key(source: Node, target: Node, stream: str) -> None:
    source.ask("MIGRATE", target.server.host, target.server.port, stream, 0, 5000)


def close_slot(source: Node, target: Node, stream: str) -> None:
    """End the move of a slot."""
    for node in (target, source):
        node.ask("CLUSTER", "SETSLOT", key_slot(stream.encode()), "NODE", target.id)


def move(source: Node, target: Node, stream: str) -> None:
    """Move a slot with one stream."""
    open_slot(source, target, stream)
    move_key(source, target, stream)
    close_slot(source, target, stream)


def move_at_once(source: Node, target: Node, stream: str) -> None:
    """Move a slot by the command of Valkey 9, which shows no key on two masters."""
    slot = key_slot(stream.encode())
    source.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", target.id)
    until(lambda: source.ask("CLUSTER", "COUNTKEYSINSLOT", slot) == 0)
    until(lambda: target.ask("CLUSTER", "COUNTKEYSINSLOT", slot) == 1)
