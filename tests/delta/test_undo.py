"""Undo: what a run changed comes back, unless something has changed it since."""

from __future__ import annotations

import json
import random
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
from claimlib.runs import Phase, RunRow
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import AutoclaimRequest, ClaimRequest
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.own_rows import delete, update
from tests.delta.pels import CLAIMED, DELETED, IDS, NOW_MS, keyspace

SEEDS = pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 20))]
)
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
    elif kind == "retire":
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


@SEEDS
def test_an_undo_restores_every_row_and_its_own_undo_does_the_run_again(
    store: Store, seed: int
) -> None:
    draw = random.Random(seed)
    write_keyspace(store, keyspace(b"s", b"t"), NOW_MS)
    for _ in range(3):
        before = state(store)
        number = random_run(store, draw)
        after = state(store)
        undone = undo(store, str(number))
        assert state(store) == before
        assert undone.counts["kept"] == 0
        again = undo(store, str(undone.run_seq))
        assert state(store) == after
        assert again.counts["kept"] == 0


@SEEDS
def test_an_undo_of_an_earlier_run_changes_what_nobody_has_changed_since(
    store: Store, seed: int
) -> None:
    draw = random.Random(seed)
    write_keyspace(store, keyspace(b"s", b"t"), NOW_MS)
    states, numbers = [pending_states(store)], []
    for _ in range(4):
        numbers.append(random_run(store, draw))
        states.append(pending_states(store))
    chosen = draw.randrange(4)
    before, after, *later = states[chosen:]
    now = states[-1]
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    # If a later run claims an entry again for the same owner, only the row's run_seq changes.
    put_back = {key for key in changed if all(then.get(key) == after.get(key) for then in later)}
    expected = {key: value[:-1] for key, value in now.items() if key not in put_back}
    expected |= {key: before[key][:-1] for key in put_back if key in before}
    done = undo(store, str(numbers[chosen]))
    assert {key: value[:-1] for key, value in pending_states(store).items()} == expected
    assert done.counts["kept"] == len(changed - put_back)


def pending_states(store: Store) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Return owner, delivery time, delivery count and last run of each pending entry."""
    key = ("stream", "consumer_group", "id_ms", "id_seq")
    names = ("consumer", "delivery_time_ms", "delivery_count", "run_seq")
    rows = store.relation("pending").collect()
    return {tuple(row[name] for name in key): tuple(row[name] for name in names) for row in rows}


def test_what_has_changed_since_is_kept_and_named(store: Store) -> None:
    write_keyspace(store, keyspace(b"s", b"t"), NOW_MS)
    swept = sweep(store)
    later = sweep_one(store, b"t", IDS[0])
    update(store, "pending", "stream = 's' AND id_ms = 3", consumer="'own'")
    delete(store, "pending", "stream = 's' AND id_ms = 5")
    before = state(store)
    undone = undo(store, str(swept))
    kept = {(row["stream"], row["id"]) for row in undone.kept.collect()}
    assert kept == {("s", "3-0"), ("s", "5-0"), ("t", "1-0")}
    assert (undone.counts["restored"], undone.counts["returned"]) == (7, 2)
    after = {(row[0], row[2]): row for row in state(store)["pending"]}
    assert after["s", 3][4] == "own"
    assert ("s", 5) not in after
    assert after["t", 1][4] == "carol"
    assert {after[key][4] for key in after if key not in {("s", 3), ("t", 1)}} == {"dead"}
    assert state(store)["tombstones"] == []
    undo(store, str(undone.run_seq))
    assert state(store) == before
    undo(store, str(later))
    assert {row[4] for row in state(store)["pending"] if row[:3] == ("t", "g", 1)} == {"alice"}


def sweep_one(store: Store, stream: bytes, stream_id: StreamId) -> int:
    """Claim one entry for another consumer."""
    request = ClaimRequest(b"carol", 0, (stream_id,))
    done = xclaim(store, [NamedClaim(stream, b"g", request)]).run_seq
    assert done is not None
    return done


def test_an_undo_is_repeatable_and_a_dry_run_writes_nothing(store: Store) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    swept = str(sweep(store))
    before = state(store)
    shown = undo(store, swept, dry_run=True)
    assert (shown.run_seq, shown.run_id, state(store)) == (None, None, before)
    done, again = (undo(store, swept, run_id="u") for _ in range(2))
    assert (done.is_repeat, again.is_repeat) == (False, True)
    assert shown.counts == done.counts == again.counts
    assert done.counts["restored"] == CLAIMED
    assert done.counts["returned"] == DELETED
    assert shown.groups.collect() == done.groups.collect() == again.groups.collect()
    with pytest.raises(RequestError, match=r"undone by run 2 \(undo:u\).*claimlib undo .* 2"):
        undo(store, swept)
    with pytest.raises(RequestError, match="already undone by run 2"):
        undo(store, swept, dry_run=True)


def test_a_run_that_only_a_source_can_replace_is_not_undone(store: Store) -> None:
    with pytest.raises(RequestError, match="has no finished run 1"):
        undo(store, "1")


@pytest.mark.parametrize("at", [Phase.APPLY, Phase.VERIFY, Phase.RECORD, Phase.FINISH])
def test_an_undo_that_was_killed_is_finished_by_the_next_run(store: Store, at: Phase) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    before = state(store)
    swept = str(sweep(store, cursor="nightly"))

    def killed(phase: Phase, detail: str) -> None:
        del detail
        if phase is at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        undo(store, swept, run_id="u", progress=killed)
    done = undo(store, swept, run_id="u")
    assert done.counts["restored"] == CLAIMED
    assert state(store) == before


def test_a_run_that_was_done_again_is_undone_by_the_undo_of_its_redo(store: Store) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    swept = str(sweep(store))
    before = state(store)
    first = undo(store, swept)
    second = undo(store, str(first.run_seq))
    with pytest.raises(RequestError, match=r"done again by run 3.*claimlib undo .* 3"):
        undo(store, swept)
    with pytest.raises(RequestError, match=r"done again|already undone by run 3"):
        undo(store, str(first.run_seq))
    undone = undo(store, str(second.run_seq))
    assert (undone.counts["restored"], undone.counts["kept"]) == (CLAIMED, 0)
    assert state(store) != before


def test_an_entry_that_came_back_to_the_same_state_was_changed_all_the_same(store: Store) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    first = str(sweep(store))
    for name in (b"carol", b"alice"):
        words = ClaimRequest(name, 0, (IDS[0],), justid=True)
        xclaim(store, [NamedClaim(b"s", b"g", words)])
    undone = undo(store, first)
    assert [row["id"] for row in undone.kept.collect()] == ["1-0"]


def test_an_owner_that_was_retired_since_comes_back_with_its_entries(store: Store) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    first = str(sweep(store))
    retire(store, Retirement(b"s", b"g", b"dead", (b"alice",)))
    undone = undo(store, first)
    assert undone.counts["restored"] == CLAIMED
    owners = {row["consumer"] for row in store.relation("pending").collect()}
    known = {row["consumer"] for row in store.relation("consumers").collect()}
    assert "dead" in owners
    assert owners <= known


def test_a_run_whose_journal_lacks_earlier_values_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    values = RunRow.values

    def of_an_earlier_version(row: RunRow) -> dict[str, object]:
        made = values(row)
        inputs = json.loads(str(made["inputs"]))
        del inputs["has_previous"]
        return {**made, "inputs": json.dumps(inputs)}

    monkeypatch.setattr(RunRow, "values", of_an_earlier_version)
    swept = str(sweep(store))
    before = state(store)
    with pytest.raises(RequestError, match="an earlier version of claimlib did it"):
        undo(store, swept)
    assert state(store) == before


def test_the_name_of_a_run_id_stands_for_the_same_run_in_a_repeat(store: Store) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    request = SweepRequest(AutoclaimRequest(b"alice", 1000))
    xautoclaim(store, request, run_id="nightly")
    undo(store, "nightly", run_id="nightly")
    assert undo(store, "nightly", run_id="nightly").is_repeat


def test_a_consumer_that_keeps_an_entry_is_not_removed(store: Store) -> None:
    write_keyspace(store, keyspace(b"s"), NOW_MS)
    swept = str(sweep(store))

    def taken(phase: Phase, detail: str) -> None:
        del detail
        if phase is Phase.APPLY:
            update(store, "pending", "id_ms = 3", delivery_count="9")

    undone = undo(store, swept, progress=taken)
    assert (undone.counts["restored"], undone.counts["lost"]) == (CLAIMED, 1)
    known = {row["consumer"] for row in store.relation("consumers").collect()}
    assert known == {"alice", "dead"}
