"""Open the servers of one URL: a single server, a master that a sentinel names, or a cluster.

Each key of a cluster belongs to one of 16,384 slots.  Each slot belongs to one master.  Every
master is asked for its view of the nodes (CLUSTER NODES), because only a master itself shows the
slots that it is moving.  If two nodes claim a slot, the node with the greater epoch has it.

The masters are those that the cluster had when it was opened.  Their ids are compared with those of
the last snapshot.  A slot without a master is an error, and so is a slot that moves to a node that
was not such a master.  Otherwise the streams of the slot would count as removed.

A snapshot can leave out masters that do not answer, on three conditions:

- More than half of the masters answer, because fewer may not know of a failover.
- No slot is moving.  A key of a moving slot may be on a master that does not answer, although
  another master has the slot.
- These masters have the same slots as when the cluster was opened.

Source: the cluster specification of Redis and Valkey, and their documents of CLUSTER NODES,
CLUSTER SETSLOT and SENTINEL GET-MASTER-ADDR-BY-NAME.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import astuple, replace
from itertools import chain
from typing import NamedTuple, Self, Unpack

from claimlib.errors import AuthenticationFailedError, RequestError, SourceUnreachableError
from claimlib.live.address import Address, parse_address
from claimlib.live.batches import MasterDown, SourceOpened
from claimlib.live.connection import ConnectOptions, Source, connect, open_source
from claimlib.live.replies import parsing_reply
from claimlib.live.server import CLUSTER, SlotMap

_SLOTS = 16_384
_UNKNOWN = "-"


class Cluster:
    """Hold the masters of a cluster.

    Attributes:
        label: the node by which the cluster was opened.
    """

    def __init__(
        self,
        label: str,
        sources: Mapping[str, Source],
        opened: ExitStack,
        errors: Mapping[str, SourceUnreachableError] | None = None,
    ) -> None:
        """Hold the masters by their ids, and the errors of those that do not answer."""
        self.label = label
        self._sources = sources
        self._opened = opened
        self._errors = errors or {}
        self._by_slot: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._opened.close()

    @property
    def nodes(self) -> tuple[Source, ...]:
        """Return the masters that answer."""
        return tuple(self._sources.values())

    @property
    def down(self) -> tuple[MasterDown, ...]:
        """Return the masters with slots that do not answer."""
        return tuple(
            MasterDown(str(error.fields["source"]), error.message, slots)
            for id_, error in self._errors.items()
            if (slots := self._slots_of(id_))
        )

    def _slots_of(self, id_: str) -> frozenset[int]:
        return frozenset(slot for slot, owner in enumerate(self._by_slot) if owner == id_)

    @property
    def commands_sent(self) -> int:
        """Return the number of commands that were sent to all masters."""
        return sum(source.commands_sent for source in self.nodes)

    @property
    def ids(self) -> SourceOpened:
        """Return the ids of the masters, see `SourceOpened`."""
        each = [source.ids for source in self.nodes]
        if any(ids.run_id is None or ids.replication_id is None for ids in each):
            return SourceOpened(None, None)
        columns = zip(*sorted(map(astuple, each)), strict=True)
        return SourceOpened(*(" ".join(id_ or _UNKNOWN for id_ in ids) for ids in columns))

    @property
    def slots(self) -> dict[Source, int]:
        """Return the number of slots of each master."""
        return {source: self._by_slot.count(id_) for id_, source in self._sources.items()}

    def slot_map(self) -> SlotMap:
        """Ask the masters for their slots, and keep the answer for `source_of`.

        Raises:
            SourceUnreachableError: a slot has no master, or its master was not opened.  Also if a
                master does not answer, and it is not certain which streams it has.
            SourceError: see `Source.call`.
        """
        views = [node for source in self.nodes for node in _nodes(source)]
        owners: dict[int, _Node] = {}
        for node in sorted(views, key=lambda node: node.epoch):
            owners.update(dict.fromkeys(node.slots(), node))
        known = self._sources.keys() | self._errors.keys()
        for slot in range(_SLOTS):
            if slot not in owners or owners[slot].id not in known:
                raise self._slot_error(slot, owners.get(slot))
        before, by_slot = self._by_slot, [owners[slot].id for slot in range(_SLOTS)]
        self._by_slot = by_slot
        nodes = frozenset((node.id, node.epoch, node.ranges) for node in views)
        slot_map = SlotMap(nodes, is_moving=any(node.is_moving for node in views))
        if self._errors:
            self._check_certain(before or by_slot, is_moving=slot_map.is_moving)
        return slot_map

    def _check_certain(self, before: Sequence[str], *, is_moving: bool) -> None:
        """Raise the error of a master that does not answer, unless its slots are surely unchanged.

        Args:
            before: the owners of the slots when the cluster was opened.
        """
        masters = set(self._by_slot)
        lacks_majority = 2 * len(masters & self._errors.keys()) >= len(masters)
        has_changed = any(
            old != new and {old, new} & self._errors.keys()
            for old, new in zip(before, self._by_slot, strict=True)
        )
        if is_moving or lacks_majority or has_changed:
            raise next(iter(self._errors.values()))

    def source_of(self, stream: bytes) -> Source:
        """Return the master that has the slot of a stream.

        Raises:
            SourceUnreachableError: this master does not answer.
        """
        id_ = self._by_slot[slot_of(stream)]
        if id_ in self._errors:
            raise self._errors[id_]
        return self._sources[id_]

    def _slot_error(self, slot: int, owner: _Node | None) -> SourceUnreachableError:
        reason = (
            "has no master"
            if owner is None
            else f"is now served by {owner.host}:{owner.port}, which was not a master before"
        )
        return SourceUnreachableError(
            f"slot {slot} of the cluster of {self.label} {reason}: try again", source=self.label
        )


def slot_of(stream: bytes) -> int:
    """Return the slot of a stream, from 0."""
    from redis.crc import key_slot

    return key_slot(stream)


Servers = Source | Cluster
"""One server that has all streams, or a cluster, in which each master has some of them."""


def open_servers(
    url: str, *, needs_all_masters: bool = True, **options: Unpack[ConnectOptions]
) -> Servers:
    """Open the server of a URL, or all masters if the server is a node of a cluster.

    Args:
        url: a URL for `connect`, or the URL of a sentinel (`address.parse_address`).
        needs_all_masters: False to open a cluster even if some masters do not answer
            (`Cluster.down`).
        options: the options of `connect`.  The pace applies to each master.

    Raises:
        SourceUnreachableError: see `open_source`, `Cluster.slot_map` and `master_address`.
        Other errors: see `open_source`.
    """
    address = master_address(url, **options)
    source = open_source(address.url, **options)
    if source.server.mode == CLUSTER:
        return _opened_cluster(source, options, needs_all_masters=needs_all_masters)
    if source.server.is_replica and parse_address(url).master is not None:
        source.close()
        raise SourceUnreachableError(
            f"{source.label} is a replica, and {address.label} names it as the master: a failover"
            " is under way; try again",
            source=source.label,
        )
    return source


def master_address(url: str, **options: Unpack[ConnectOptions]) -> Address:
    """Return the address in a URL, or the address of the master that a sentinel names.

    The password is sent to the sentinel only if it requires one.

    Raises:
        RequestError: the sentinel does not know the master.
        Other errors: see `connect`.
    """
    address = parse_address(url)
    if address.master is None:
        return address
    command = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", address.master)
    without_login = options | {"username": None, "password": None}
    try:
        with connect(replace(address, username=None).url, **without_login) as sentinel:
            reply = sentinel.call(*command)
    except AuthenticationFailedError:
        with connect(url, **options) as sentinel:
            reply = sentinel.call(*command)
    if reply is None:
        raise RequestError(
            f"the sentinel {address.label} knows no master {address.master}: check the name",
            source=address.label,
        )
    with parsing_reply(address.label, command[1]):
        host, port = reply
        return address.at(host.decode(), int(port))


def _opened_cluster(seed: Source, options: ConnectOptions, *, needs_all_masters: bool) -> Cluster:
    """Open all masters of a cluster.  If this fails, close all connections.

    Args:
        seed: the node of the URL.
    """
    with ExitStack() as opened:
        opened.enter_context(seed)
        sources, errors = {}, {}
        for node in _nodes(seed):
            if node.is_self and not seed.server.is_replica:
                sources[node.id] = seed
            elif node.may_have_keys:
                host = node.hostname if seed.address.tls and node.hostname else node.host
                address = seed.address.at(host, node.port)
                try:
                    sources[node.id] = opened.enter_context(open_source(address.url, **options))
                except SourceUnreachableError as error:
                    if needs_all_masters:
                        raise
                    errors[node.id] = error
        cluster = Cluster(seed.label, sources, opened.pop_all(), errors)
        opened.push(cluster)  # closes the cluster if `slot_map` fails
        cluster.slot_map()
        opened.pop_all()
    return cluster


class _Node(NamedTuple):
    """Hold a line of CLUSTER NODES.

    Attributes:
        host: the IP address of the node.  Empty if the node does not know it.
        hostname: the host's name.  Empty if unknown.
        ranges: the slots, such as `5` and `0-99`.  Slots that are being moved are in brackets.
    """

    id: str
    host: str
    port: int
    hostname: str
    flags: frozenset[str]
    epoch: int
    ranges: tuple[str, ...]

    @classmethod
    def of(cls, line: str) -> Self:
        """Parse a line: id, address, flags, master, two times, epoch, state of the link, slots."""
        id_, address, flags, _, _, _, epoch, _, *ranges = line.split()
        place, _, rest = address.partition("@")
        host, _, port = place.rpartition(":")
        _, hostname, *_ = [*rest.split(","), ""]
        return cls(
            id_, host, int(port), hostname, frozenset(flags.split(",")), int(epoch), tuple(ranges)
        )

    @property
    def is_self(self) -> bool:
        return "myself" in self.flags

    @property
    def may_have_keys(self) -> bool:
        """Return True for a node with slots, and for a master without slots that has not failed.

        A master without slots counts, because keys may be moved to it.
        """
        return bool(self.ranges) or self.flags == {"master"}

    @property
    def is_moving(self) -> bool:
        return any(range_.startswith("[") for range_ in self.ranges)

    def slots(self) -> chain[int]:
        """Return the numbers of the slots that the node has."""
        ends = (r.partition("-") for r in self.ranges if not r.startswith("["))
        return chain.from_iterable(
            range(int(first), int(last or first) + 1) for first, _, last in ends
        )


def _nodes(source: Source) -> list[_Node]:
    """Return a server's view of the nodes of its cluster."""
    text = source.call("CLUSTER", "NODES")
    with parsing_reply(source.label, "CLUSTER NODES"):
        return [_Node.of(line) for line in text.decode().splitlines()]
