"""The proof of `make demo`: it passes where store and server agree, and names what does not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from claimlib.commands.snapshot import SnapshotRequest, snapshot
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.demo import workload
from claimlib.demo.oracle import ServerAnswer, autoclaim_all
from claimlib.demo.proof import Difference, Subject, prove
from claimlib.live.reading import ServerReading
from claimlib.runs import FinishedRun
from claimlib.runs.rollforward import find_finished_seq
from claimlib.schema import quote_text
from claimlib.semantics.model import AutoclaimRequest, IdleRule
from claimlib.semantics.names import spell
from claimlib.store.local import Condition
from claimlib.store.tables import Store
from claimlib.testing.server_process import valkey_server
from tests.delta.own_rows import Opener

_ENTRIES = 400


@dataclass(frozen=True)
class Agreed:
    """A store after the job, and the server that did the same to itself."""

    where: Path
    answer: ServerAnswer
    run: FinishedRun


@pytest.fixture(scope="module")
def agreed(
    open_store: Opener, empty_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Agreed]:
    where = shutil.copytree(empty_store, tmp_path_factory.mktemp("agreed") / "store")
    store = open_store(where)
    with valkey_server() as server:
        stalled = workload.drive(server, entries=_ENTRIES)
        reading = ServerReading(server.url)
        snapshot(store, SnapshotRequest(reading.label), reading)
        with closing(server.client()) as client:
            answer = autoclaim_all(client, consumer=b"heir", idle_since_ms=stalled.sweep_ms)
    claim = AutoclaimRequest(b"heir", answer.min_idle_ms, idle_rule=IdleRule.SERVER)
    reply = xautoclaim(store, SweepRequest(claim), now_ms=answer.now_ms)
    run = find_finished_seq(store, reply.run_seq)
    assert run is not None
    return Agreed(where, answer, run)


@pytest.fixture
def copied(open_store: Opener, agreed: Agreed, tmp_path: Path) -> Store:
    """The store, to be changed."""
    return open_store(shutil.copytree(agreed.where, tmp_path / "store"))


def test_a_store_after_the_job_agrees_with_the_server_on_every_fact(
    open_store: Opener, agreed: Agreed
):
    proof = prove(agreed.answer, open_store(agreed.where), agreed.run)

    groups = agreed.answer.groups.values()
    pending = sum(len(group.after.pending) for group in groups)
    claimed = sum(len(group.reply.claimed) for group in groups)
    deleted = sum(len(group.reply.deleted) for group in groups)
    consumers = sum(len(group.after.consumers) for group in groups)
    assert proof.differences == ()
    assert proof.compared == {
        "pending entry": pending,
        "owner": pending,
        "delivery time": pending,
        "delivery count": pending,
        "claim": claimed,
        "claimed from, at": claimed,
        "payload": claimed,
        "deletion": deleted,
        "deleted from, at": deleted,
        "consumer": consumers,
        "seen time": consumers,
        "active time": consumers,
        "group": len(groups),
        "last delivered id": len(groups),
    }
    assert agreed.answer.at_boundary > 0
    assert min(proof.groups.values()) >= 3
    assert proof.holds


def test_one_changed_count_and_one_changed_owner_are_the_differences_that_it_names(
    copied: Store, agreed: Agreed
):
    (key, group), (other_key, other_group) = [
        (key, group) for key, group in agreed.answer.groups.items() if group.reply.claimed
    ][:2]
    counted, owned = group.after.pending[-1], other_group.after.pending[0]
    counted_subject = Subject(*map(spell, key), str(counted.id))
    owned_subject = Subject(*map(spell, other_key), str(owned.id))
    update = copied.writer.update
    update("pending", {"delivery_count": "delivery_count + 1"}, _row(counted_subject))
    update("pending", {"consumer": "'somebody else'"}, _row(owned_subject))

    proof = prove(agreed.answer, copied, agreed.run)

    assert set(proof.differences) == {
        Difference(
            "delivery count",
            counted_subject,
            server=counted.delivery_count,
            store=counted.delivery_count + 1,
        ),
        Difference(
            "owner", owned_subject, server=spell(owned.consumer or b""), store="somebody else"
        ),
    }
    assert not proof.holds


@pytest.mark.long
def test_a_pending_row_too_few_and_a_tombstone_too_many_are_one_difference_each(
    copied: Store, agreed: Agreed
):
    key, group = next(item for item in agreed.answer.groups.items() if item[1].reply.deleted)
    kept, purged = group.after.pending[0].id, group.reply.deleted[0]
    kept_subject = Subject(*map(spell, key), str(kept))
    purged_subject = Subject(*map(spell, key), str(purged))
    id_ms, id_seq = map(int, kept_subject.of.split("-"))
    of = {"stream": kept_subject.stream, "consumer_group": kept_subject.group}
    of |= {"id_ms": id_ms, "id_seq": id_seq}
    copied.writer.delete("pending", *(Condition(name, value) for name, value in of.items()))
    twice = copied.relation("tombstones").where(_row(purged_subject)).fetched()
    copied.writer.append("tombstones", twice)

    proof = prove(agreed.answer, copied, agreed.run)

    assert set(proof.differences) == {
        Difference("pending entry", kept_subject, server=1, store=None),
        Difference("deletion", purged_subject, server=1, store=2),
    }


def test_a_proof_over_too_few_groups_fails_even_where_nothing_differs(
    open_store: Opener, agreed: Agreed
):
    store = open_store(agreed.where)
    two = dict(list(agreed.answer.groups.items())[:2])

    proof = prove(replace(agreed.answer, groups=two), store, agreed.run)

    assert [message.split(" in ")[0] for message in proof.shortfalls] == [
        "entries were claimed",
        "entries were deleted",
        "entries were left alone",
    ]
    assert not replace(proof, differences=()).holds


def _row(subject: Subject) -> str:
    """Return the SQL condition for the row of one entry."""
    id_ms, id_seq = map(int, subject.of.split("-"))
    return (
        f"stream = {quote_text(subject.stream)} AND consumer_group = {quote_text(subject.group)}"
        f" AND id_ms = {id_ms} AND id_seq = {id_seq}"
    )
