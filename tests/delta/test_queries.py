"""How many queries a run costs: each takes Spark and Delta some 60 to 150 ms, however few rows
there are, so that a run over a small store costs what it asks, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

from claimlib.commands.xack import NamedAck, xack
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.commands.xclaim import NamedClaim, xclaim
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import AutoclaimRequest, ClaimRequest
from claimlib.store import Store
from claimlib.testing.tables import write_keyspace
from tests.delta.pels import NOW_MS, REQUEST, keyspace
from tests.delta.queries import last_query

IDS = (StreamId(1, 0), StreamId(3, 0))
PAGE = SweepRequest(AutoclaimRequest(b"bob", 1000, count=2), cursor="c", resume=True)
SWEEP = SweepRequest(AutoclaimRequest(b"carol", 1000))
LATER_MS = NOW_MS + 10**6

# By command, in this order, on a store that was swept before.  Fewer are better; who needs more
# says why here.
MOST: dict[str, tuple[int, Callable[[Store], object]]] = {
    "a dry run": (35, lambda store: xautoclaim(store, SWEEP, now_ms=LATER_MS, dry_run=True)),
    "a sweep": (70, lambda store: xautoclaim(store, SWEEP, now_ms=LATER_MS, run_id="x")),
    "the same again": (9, lambda store: xautoclaim(store, SWEEP, now_ms=LATER_MS, run_id="x")),
    "a page": (123, lambda store: xautoclaim(store, PAGE, now_ms=2 * LATER_MS)),
    "an XCLAIM": (
        76,
        lambda store: xclaim(
            store, [NamedClaim(b"s", b"g", ClaimRequest(b"dave", 0, IDS))], now_ms=3 * LATER_MS
        ),
    ),
    "an XACK": (63, lambda store: xack(store, [NamedAck(b"s", b"g", IDS)])),
}


def test_no_command_costs_more_queries_than_are_written_down_here(store: Store) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    xautoclaim(store, SweepRequest(REQUEST))
    found = {}
    for name, (_, command) in MOST.items():
        before = last_query(store.spark)
        command(store)
        found[name] = last_query(store.spark) - before
    print(found)
    assert {name: n for name, n in found.items() if n > MOST[name][0]} == {}
