"""Random histories of a store: what a server, consumers and others do to it between two sweeps.

A server of three streams, each with a group; `id n` was delivered at 1000 + n ms, so at an instant
of 61_000 + n it has been idle for a minute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from claimlib.commands.snapshot import snapshot
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.commands.xclaim import NamedClaim, xclaim
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import AutoclaimRequest, ClaimRequest
from claimlib.store.tables import Store
from tests.delta.own_rows import append, entry_row
from tests.delta.snapshots import ANY, source, stream

STREAMS = (b"a", b"b", b"c")
IDS = range(1, 41)
MINUTE_MS = 60_000
SWEEP = SweepRequest(AutoclaimRequest(b"reclaimer", MINUTE_MS))


@dataclass
class Server:
    """Who owns which id, and which ids the streams have."""

    pending: dict[bytes, dict[int, bytes]] = field(default_factory=dict)
    entries: dict[bytes, set[int]] = field(default_factory=dict)

    @classmethod
    def new(cls) -> Server:
        """Half of the ids are pending; two of each stream are gone."""
        pending = {name: {n: b"dead" for n in IDS if n <= 20} for name in STREAMS}
        return cls(pending, {name: set(IDS) - {3, 17} for name in STREAMS})

    def bring(self, store: Store, at_ms: int) -> None:
        """A snapshot."""
        batches = [stream(s, self.pending[s], self.entries[s], at_ms) for s in STREAMS]
        snapshot(store, ANY, lambda _: source(*batches))


@dataclass
class History:
    """A store with its server, and what happens to them.

    Attributes:
        done: the steps, by name.
        is_provable: whether the next sweep finds a base.
    """

    store: Store
    server: Server
    random: Random
    now_ms: int = 61_000
    done: list[str] = field(default_factory=list)
    is_provable: bool = True

    def step(self) -> None:
        """Something happens."""
        steps: tuple[Callable[[], None], ...] = (
            *(self.deleted, self.deleted, self.back_again, self.served, self.served),
            *(self.acknowledged, self.forced, self.compacted, self.by_others),
        )
        chosen = self.random.choice(steps)
        self.done.append(chosen.__name__)
        chosen()

    def sweep(self) -> None:
        """A real sweep, some ids later: the base of the next one."""
        self.done.append("sweep")
        self.now_ms += self.random.choice((0, 1, 7))
        xautoclaim(self.store, SWEEP, now_ms=self.now_ms, incremental=True)
        self.is_provable = True

    def deleted(self) -> None:
        """Entries leave the table, pending or not."""
        name, ids = self._some(3)
        self._delete(name, ids)

    def back_again(self) -> None:
        """An entry is deleted and added again."""
        name, ids = self._some(1)
        self._delete(name, ids)
        append(self.store, "entries", entry_row(name.decode(), *ids))

    def served(self) -> None:
        """The server has gone on: others own what is pending, entries came and went."""
        name, ids = self._some(4)
        acked, delivered, taken, gone = ids
        pending, entries = self.server.pending[name], self.server.entries[name]
        pending.pop(acked, None)
        pending[delivered] = b"live"
        pending[taken] = b"live"
        entries.discard(gone)
        entries.add(delivered)
        self.server.bring(self.store, self.now_ms)

    def acknowledged(self) -> None:
        """Consumers are done with ids."""
        name, ids = self._some(2)
        for n in ids:
            self.server.pending[name].pop(n, None)
        self.server.bring(self.store, self.now_ms)

    def forced(self) -> None:
        """Ids become pending, or somebody else's."""
        name, ids = self._some(2)
        claim = ClaimRequest(b"eve", 0, tuple(StreamId(n, 0) for n in ids), force=True)
        xclaim(self.store, [NamedClaim(name, b"g", claim)], now_ms=self.now_ms)

    def compacted(self) -> None:
        """Files are rewritten; no row changes."""
        for table in ("pending", "entries"):
            self.store.spark.sql(f"OPTIMIZE {self.store.identifier(table)}")

    def by_others(self) -> None:
        """Somebody changes rows of the table by hand."""
        name, _ = self._some(1)
        owned = f"WHERE stream = '{name.decode()}'"
        self.store.execute("pending", f"UPDATE {{table}} SET delivery_count = 9 {owned}")
        self.is_provable = False

    def _some(self, n: int) -> tuple[bytes, list[int]]:
        return self.random.choice(STREAMS), self.random.sample(IDS, n)

    def _delete(self, name: bytes, ids: list[int]) -> None:
        self.store.execute(
            "entries",
            f"DELETE FROM {{table}} WHERE stream = '{name.decode()}' AND id_ms IN"
            f" ({', '.join(map(str, ids))})",
        )
