"""Random states of many groups, several XCLAIMs each: both engines decide what the reference
decides, request after request; and so for XACK and retirement.

What decides are the commands themselves, on rows in memory; `delta/test_xclaim` runs the whole
protocol on a store.  Of groups that differ the smallest example is printed (see `tests/shrinking`).
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from claimlib.commands.retire import Retirement, retire
from claimlib.commands.xack import xack
from claimlib.commands.xclaim import xclaim
from claimlib.plans.keys import bigint_sql
from claimlib.semantics import scan
from claimlib.semantics.ids import MAX_ID, MAX_U64, StreamId
from claimlib.semantics.model import ClaimRequest, Consumer, Group, PendingEntry
from claimlib.semantics.words import Stream
from claimlib.testing.keyspace_rows import write_keyspace
from tests.claim_batches import (
    BRANCHES,
    NOW_MS,
    YOU,
    Batch,
    Case,
    random_batch,
)
from tests.seeds import new_seed
from tests.spark.claims_literal import (
    NewStore,
    applied,
    asked_acks,
    assert_acked_as_the_reference,
    assert_claimed_as_the_reference,
    by_kind,
    decided_by,
    store_of,
    table_of,
)
from tests.spark.literal import LiteralStore

STREAMS = 400
LEAST = 20  # of each branch of the rule


@pytest.fixture(params=["embedded", pytest.param("spark", marks=pytest.mark.long)])
def new_store(request) -> NewStore:
    spark = request.getfixturevalue("spark") if request.param == "spark" else None
    return partial(LiteralStore, spark, request.param)


# ---- XCLAIM ----


def test_all_claims_of_a_run_do_what_the_reference_does_one_after_the_other(new_store):
    """Nothing is random: by seed 1 the 400 streams, with two groups each, their entries and
    requests, are always the same."""
    batch = random_batch(STREAMS, seed=1)
    compared(new_store, batch)
    reached = batch.branches()
    print(*(f"{reached[name]:6} {name}" for name in BRANCHES), sep="\n")
    assert set(reached) <= set(BRANCHES)
    assert [name for name in BRANCHES if reached[name] < LEAST] == []


def compared(new_store: NewStore, batch: Batch) -> None:
    """XCLAIM decides of a batch what the reference decides."""
    store = store_of(new_store, batch)
    decision = decided_by(xclaim, store, table_of(store.engine, batch))
    assert_claimed_as_the_reference(new_store, batch, decision.rows.collect())


@pytest.mark.long
def test_so_they_do_in_thousands_of_groups_that_nobody_has_seen_before(new_store, pytestconfig):
    """All groups are drawn again in each run, by ten seeds from a made-up one on, which is printed;
    `--hypothesis-seed` gives it again."""
    first = new_seed(pytestconfig)
    for seed in range(first, first + 10):
        print(f"groups drawn by seed {seed}")
        batch = random_batch(STREAMS, seed)
        compared(new_store, batch)
        decision = decided_by(xack, store_of(new_store, batch), asked_acks(batch))
        assert_acked_as_the_reference(new_store, batch, decision.rows.collect())


@pytest.fixture(scope="module")
def batch() -> Batch:
    """Always the same 100 streams."""
    return random_batch(100, seed=2)


def test_order_of_rows_and_a_negative_min_idle_make_no_difference(new_store, batch):
    """Nothing is random: by seed 2 the 100 streams are always the same, and so is the order in
    which the rows are shuffled."""
    store = store_of(new_store, batch)
    table = table_of(store.engine, batch)
    rows = decided_by(xclaim, store, table).rows.collect()
    assert_claimed_as_the_reference(new_store, batch, rows)

    negative = f"CASE WHEN min_idle_ms = 0 THEN {bigint_sql(-(2**63))} ELSE min_idle_ms END"
    others = [name for name in table.columns if name != "min_idle_ms"]
    shuffled = table.select(*others, f"{negative} AS min_idle_ms").order_by(
        "xxhash64(CAST(request AS STRING))"
    )
    other = decided_by(xclaim, store, shuffled.fetched())

    assert without_words(other.rows.collect()) == without_words(rows)


def test_both_engines_write_the_same_rows(spark, batch):
    """Nothing is random: by seed 2 the 100 streams are always the same."""
    of_claims, of_acks = set(), set()
    for engine in ("embedded", "spark"):
        store = store_of(partial(LiteralStore, spark, engine), batch)
        claimed = decided_by(xclaim, store, table_of(store.engine, batch))
        acked = decided_by(xack, store, asked_acks(batch))
        of_claims.add(tuple(sorted(map(str, claimed.rows.collect()))))
        of_acks.add(tuple(sorted(map(str, acked.rows.collect()))))
    assert [len(of_claims), len(of_acks)] == [1, 1]
    assert min(len(rows) for rows in (*of_claims, *of_acks)) > 1000


def without_words(rows):
    """The rows without the request as it was written."""
    return sorted(str(row | {"request": None}) for row in rows)


# ---- XACK ----


def test_acks_take_off_each_id_once_whoever_owns_it_and_whether_or_not_the_stream_has_it(
    new_store, batch
):
    """Nothing is random: by seed 2 the 100 streams, and the ids that are asked for in each, are
    always the same."""
    decision = decided_by(xack, store_of(new_store, batch), asked_acks(batch))
    assert_acked_as_the_reference(new_store, batch, decision.rows.collect())
    reached = Counter(name for case in batch.cases.values() for name in branches_of_acks(case))
    assert {n for n in reached if reached[n] >= LEAST} == set(ACK_BRANCHES)


ACK_BRANCHES = ("acked", "acked again", "dangling", "nobody's", "not pending", "without proof")


def branches_of_acks(case: Case):
    if case.group is None:
        return
    pending = {entry.id: entry for entry in case.group.pending}
    seen = set()
    for stream_id in (stream_id for _, request in case.requests for stream_id in request.ids):
        if stream_id not in pending:
            yield "not pending"
        else:
            yield "acked again" if stream_id in seen else "acked"
            if stream_id not in case.entries:
                yield "dangling"
            if pending[stream_id].consumer is None:
                yield "nobody's"
            if case.now_ms is None or case.proven is None:
                yield "without proof"
        seen.add(stream_id)


# ---- retirement ----

RECIPIENTS = (b"first", YOU, b"third")
EDGES = (0, 7, 2**53 + 1, 2**63 - 1, 2**63, MAX_U64)


@pytest.fixture(scope="module")
def estate():
    """Nothing is drawn.  A stream in whose group a consumer has a hundred ids of the whole range
    pending, every third of them dangling, and others have as many; so it is in the group beside
    it."""
    ids = [StreamId(ms, seq) for ms in EDGES for seq in (*range(1, 41), 2**63, MAX_U64)]
    owners = (b"leaves", b"stays", RECIPIENTS[0], b"leaves", None)
    pending = tuple(
        PendingEntry(stream_id, owners[n % 5], NOW_MS + 5 - n, n) for n, stream_id in enumerate(ids)
    )
    names = sorted({*RECIPIENTS, b"leaves", b"stays"})
    group = Group(MAX_ID, pending, tuple(Consumer(name, 5, 4) for name in names))
    return Stream(
        {stream_id: () for n, stream_id in enumerate(ids) if n % 3}, {b"g": group, b"h": group}
    )


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_nth_entry_by_id_goes_to_recipient_n_modulo_their_number_and_nothing_is_dropped(
    new_store, estate, number
):
    recipients = RECIPIENTS[:number]
    store = new_store()
    write_keyspace(store, {b"s": estate, b"t": estate}, NOW_MS)
    rows = decided_by(retire, store, Retirement(b"s", b"g", b"leaves", recipients)).rows.collect()

    group = estate.groups[b"g"]
    owned = [entry.id for entry in group.pending if entry.consumer == b"leaves"]
    alive = [stream_id for stream_id in owned if stream_id in estate.entries]
    dangling = [stream_id for stream_id in owned if stream_id not in estate.entries]
    assert len(alive) >= LEAST * number
    assert len(dangling) >= LEAST
    expected = group
    for n, recipient in enumerate(recipients):
        ids = (*alive[n::number], *(dangling if n == 0 else ()))
        claim = ClaimRequest(recipient, 0, ids, justid=True)
        expected, reply = scan.xclaim(expected, claim, NOW_MS, estate.entries)
        assert len(reply.claimed) + len(reply.deleted) == len(ids)
    kinds = by_kind(rows)
    after, claimed, deleted = applied(group, kinds)
    assert after == expected
    assert claimed == {n + 1: tuple(alive[n::number]) for n in range(number)}
    assert deleted == {1: tuple(dangling)}
    assert [entry.delivery_count for entry in after.pending] == [
        entry.delivery_count for entry in group.pending if entry.id not in dangling
    ]
    assert not [entry for entry in after.pending if entry.consumer == b"leaves"]
    assert {(row["stream"], row["consumer_group"]) for row in rows} == {("s", "g")}
    (retired,) = kinds["retired"]
    assert retired["consumer"] == "leaves"
    at = [(row["request_number"], row["position"]) for row in kinds["claimed"] + kinds["deleted"]]
    first = len(alive[::number]) + len(dangling)
    assert sorted(at) == [
        (n + 1, position)
        for n in range(number)
        for position in range(first if n == 0 else len(alive[n::number]))
    ], "each id has a place of its own among those of its recipient"
