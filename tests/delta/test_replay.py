"""`check --replay` finds each difference from what snapshots and journal say."""

from __future__ import annotations

import random
import shutil
from contextlib import closing
from pathlib import Path

import pytest
import redis

from claimlib.commands.check import check
from claimlib.commands.undo import undo
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.semantics.model import AutoclaimRequest
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace
from claimlib.testing.server_process import Server, valkey_server
from tests.delta.own_rows import Opener, append, delete, update
from tests.delta.pels import NOW_MS, keyspace
from tests.delta.server_groups import GROUP, mirror, stall, sweep, write
from tests.delta.test_undo import random_run


def differences_of(store: Store) -> dict[tuple[str, str], tuple[int, str]]:
    """Return count and example of what only the replay finds, by table and the first words."""
    plain = set(check(store))
    return {
        (problem.table, " ".join(problem.what.split()[:5])): (problem.count, problem.example)
        for problem in check(store, replay=True)
        if problem not in plain
    }


@pytest.fixture(scope="module")
def lived_path(
    open_store: Opener, empty_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return the folder of a store with snapshots, sweeps, a writeback, undos, and a group that
    went away.
    """
    where = shutil.copytree(empty_store, tmp_path_factory.mktemp("lived") / "store")
    with valkey_server() as server, closing(server.client()) as client:
        live(open_store(where), server, client)
    return where


def live(store: Store, server: Server, client: redis.Redis) -> None:
    stall(client, "s", [f"{n}-0" for n in range(1, 8)])
    stall(client, "t", ["1-0"], owner="carl")
    client.xdel("s", "3-0")
    mirror(store, server)
    sweep(store)
    write(store, server)
    client.xack("s", GROUP, "1-0")
    client.xgroup_destroy("t", GROUP)
    mirror(store, server)
    second = random.Random(1)
    for _ in range(2):
        undo(store, str(random_sweep(store, second)))


@pytest.fixture
def lived(open_store: Opener, lived_path: Path, tmp_path: Path) -> Store:
    """A copy of that store."""
    return open_store(shutil.copytree(lived_path, tmp_path / "lived"))


def random_sweep(store: Store, draw: random.Random) -> int:
    """Claim everything for one of two consumers."""
    name = draw.choice([b"dora", b"eve"])
    done = xautoclaim(store, SweepRequest(AutoclaimRequest(name, 0))).run_seq
    assert done is not None
    return done


def test_a_store_that_only_runs_have_changed_has_no_difference(lived):
    assert differences_of(lived) == {}


def test_a_store_without_a_source_is_replayed_from_its_journal(store):
    write_keyspace(store, keyspace(b"s", b"t"), NOW_MS)
    draw = random.Random(3)
    for _ in range(3):
        random_run(store, draw)
    assert differences_of(store) == {}
    update(store, "pending", "run_seq > 0 AND stream = 's'", delivery_count="99")
    ((table, what),) = differences_of(store)
    assert (table, what) == ("pending", "entries that another writer changed,")


def test_each_change_from_outside_is_found_and_shown_by_an_example(lived):
    key = '{"stream":"s","consumer_group":"%s","id":"%s"}'
    delete(lived, "pending", "stream = 's' AND id_ms = 2")
    update(lived, "pending", "stream = 's' AND id_ms IN (5, 6)", consumer="'thief'")
    new = {"stream": "s", "consumer_group": GROUP, "id_ms": 99, "id_seq": 0, "run_seq": 0}
    state = {"consumer": "x", "delivery_time_ms": 1, "delivery_count": 1}
    append(lived, "pending", {**new, **state})
    delete(lived, "tombstones", "id_ms = 3")
    append(lived, "tombstones", {**new, **state, "purged_at_ms": 1, "run_seq": 2})
    differences = differences_of(lived)
    assert differences.pop(("tombstones", "deleted entries without a tombstone"))[0] == 1
    assert differences.pop(("tombstones", "tombstones of entries that no"))[0] == 1
    assert differences == {
        ("pending", "entries that another writer removed,"): (1, key % (GROUP, "2-0")),
        ("pending", "entries that another writer changed,"): (2, key % (GROUP, "5-0")),
        ("pending", "entries that another writer added,"): (1, key % (GROUP, "99-0")),
    }


def test_journal_rows_that_are_missing_or_too_many_are_found(lived):
    delete(lived, "journal", "kind = 'claimed' AND id_ms = 4 AND run_seq = 2")
    differences = differences_of(lived)
    assert differences["runs", "counts of runs that differ"] == (
        1,
        '{"run_seq":2,"kind":"claimed"}',
    )


def test_a_source_whose_rows_were_deleted_is_named(lived):
    delete(lived, "pel_snapshots", "id_ms = 5")
    differences = differences_of(lived)
    assert [table for table, _ in differences] == ["pel_snapshots"]
    ((number, example),) = differences.values()
    assert number == 1
    assert example.startswith("snapshot:")


def test_an_entry_that_was_deleted_twice_has_the_tombstone_of_the_deletion_that_stands(
    store, server, client
):
    stall(client, "s", ["1-0", "2-0"])
    client.xdel("s", "1-0")
    mirror(store, server)
    random_sweep(store, random.Random(1))
    mirror(store, server)  # the server still has it pending
    undo(store, str(random_sweep(store, random.Random(1))))
    assert differences_of(store) == {}
