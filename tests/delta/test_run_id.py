"""An empty run id is refused by whatever writes to a store, and nothing is written."""

from __future__ import annotations

from itertools import product

import pytest

from claimlib.commands.imports import ImportRequest, import_tables
from claimlib.commands.retire import Retirement, retire
from claimlib.commands.snapshot import snapshot
from claimlib.commands.xack import NamedAck, xack
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.commands.xclaim import NamedClaim, xclaim
from claimlib.errors import RequestError
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import ClaimRequest
from claimlib.store.tables import Store
from tests.delta.pels import NOW_MS, REQUEST
from tests.delta.snapshots import ALL, source, stream

IDS = (StreamId(1, 0),)
NAMES = (b"s", b"g")
COMMANDS = {
    "xautoclaim": lambda store, run_id: xautoclaim(store, SweepRequest(REQUEST), run_id=run_id),
    "xclaim": lambda store, run_id: xclaim(
        store, [NamedClaim(*NAMES, ClaimRequest(b"c", 0, IDS))], run_id=run_id
    ),
    "xack": lambda store, run_id: xack(store, [NamedAck(*NAMES, IDS)], run_id=run_id),
    "retire": lambda store, run_id: retire(
        store, Retirement(*NAMES, b"bob", (b"alice",)), run_id=run_id
    ),
    "snapshot": lambda store, run_id: snapshot(
        store, ALL, lambda _: source(stream(b"s", {1: b"a"}, {1}, NOW_MS)), run_id=run_id
    ),
    "import": lambda store, run_id: import_tables(
        store, ImportRequest(entries="./no", pending="./no"), run_id=run_id
    ),
}


def test_a_run_that_is_named_by_nothing_is_refused_and_leaves_the_store_as_it_is(
    store: Store,
) -> None:
    before = store.pin().versions
    for command, run_id in product(COMMANDS.values(), ("", " \t\n")):
        with pytest.raises(
            RequestError, match=r"the run id is empty .* leave --run-id out"
        ) as raised:
            command(store, run_id)
        assert raised.value.option == "run_id"
    assert store.pin().versions == before
