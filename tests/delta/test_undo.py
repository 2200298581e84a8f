"""Undo: what a run changed comes back, unless something has changed it since."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from claimlib.commands.reset_cursor import reset_cursor
from claimlib.commands.retire import Retirement, retire
from claimlib.commands.sweep_request import SweepRequest
from claimlib.commands.undo import undo
from claimlib.commands.xack import NamedAck, xack
from claimlib.commands.xautoclaim import xautoclaim
from claimlib.commands.xclaim import NamedClaim, xclaim
from claimlib.errors import RequestError
from claimlib.plans.differences import Scope
from claimlib.runs.journal import decided_by
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import AutoclaimRequest, ClaimRequest
from claimlib.store.tables import Store
from claimlib.testing.tables import write_keyspace
from tests.delta.own_rows import delete, update
from tests.delta.pels import GONE, IDS, NOW_MS, keyspace

STATE = ("pending", "consumers", "cursors", "groups", "tombstones")


def state(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of the tables without the numbers of the runs that wrote them."""
    return {
        table: sorted(
            (
                tuple(value for name, value in row.items() if name != "run_seq")
                for row in store.relation(table).collect()
            ),
            key=repr,
        )
        for table in STATE
    }


def sweep(
    store: Store,
    consumer: bytes = b"alice",
    min_idle_ms: int = 1000,
    count: int | None = None,
    cursor: str | None = None,
) -> int:
    """Sweep all groups, or claim a page of each, and return the number of the run."""
    request = SweepRequest(AutoclaimRequest(consumer, min_idle_ms, count=count), cursor=cursor)
    done = xautoclaim(store, request).run_seq
    assert done is not None
    return done


def random_run(store: Store, draw: random.Random) -> int:
    """Do a run of any kind, and return its number."""
    stream = draw.choice([b"s", b"t"])
    some = tuple(sorted(draw.sample(IDS, 4)))
    consumers = sorted(
        row["consumer"] for row in store.relation("consumers").distinct("consumer").collect()
    )
    kind = draw.choice(["sweep", "page", "claim", "force", "ack", "retire", "reset"])
    name = draw.choice([b"alice", b"bob", b"carol"])
    if kind == "sweep":
        return sweep(store, name, draw.choice([0, 1000]))
    if kind == "page":
        return sweep(store, name, draw.choice([0, 1000]), count=3, cursor="nightly")
    if kind in {"claim", "force"}:
        is_forced = kind == "force"
        words = ClaimRequest(
            name,
            draw.choice([0, 1000]),
            some,
            force=is_forced,
            justid=draw.random() < 0.5,
            last_id=StreamId(draw.randrange(15, 30), 0) if is_forced else None,
        )
        done = xclaim(store, [NamedClaim(stream, b"g", words)])
    elif kind == "ack":
        done = xack(store, [NamedAck(stream, b"g", some)])
    elif kind == "retire" and len(consumers) > 1:
        of_group = store.relation("consumers").where(f"stream = '{stream.decode()}'").collect()
        names = sorted(row["consumer"] for row in of_group)
        if len(names) < 2:
            return sweep(store, name)
        gone, to = draw.sample(names, 2)
        done = retire(store, Retirement(stream, b"g", gone.encode(), (to.encode(),)))
    elif kind == "reset" and not store.relation("cursors").is_empty():
        return reset_cursor(store, "nightly", Scope(), to=StreamId(draw.randrange(1, 9), 0)).run_seq
    else:
        return sweep(store, name)
    assert done.run_seq is not None
    return done.run_seq


@pytest.mark.parametrize("seed", range(6))
def test_an_undo_restores_every_row_and_its_own_undo_does_the_run_again(
    store: Store, seed: int
) -> None:
    draw = random.Random(seed)
    write_keyspace(store, keyspace(b"s", b"t"), NOW_MS)
    for _ in range(6):
        before = state(store)
        number = random_run(store, draw)
        after = state(store)
        undone = undo(store, str(number))
        assert state(store) == before
        assert undone.counts["kept"] == 0
        again = undo(store, str(undone.run_seq))
        assert state(store) == after
        assert again.counts["kept"] == 0
