"""Random states of many groups, several XCLAIMs each: Spark decides what the reference decides,
request after request; and so for XACK and retirement.

What decides are the commands themselves, on literal frames; `delta/test_xclaim` runs the whole
protocol on a store.  Of groups that differ the smallest example is printed (see `tests/shrinking`).
"""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import functions as F

from claimlib.commands.retire import Retirement, retire
from claimlib.commands.xack import xack
from claimlib.commands.xclaim import xclaim
from claimlib.semantics import scan
from claimlib.semantics.ids import MAX_ID, MAX_U64, StreamId
from claimlib.semantics.model import ClaimRequest, Consumer, Group, PendingEntry
from claimlib.semantics.words import Stream
from claimlib.testing.tables import write_keyspace
from tests.claim_batches import (
    BRANCHES,
    NOW_MS,
    YOU,
    Batch,
    Case,
    random_batch,
)
from tests.spark.claims_literal import (
    applied,
    asked_acks,
    assert_acked_as_the_reference,
    assert_claimed_as_the_reference,
    by_kind,
    decided_by,
    empty_store,
    store_of,
    table_of,
)

STREAMS = 400
LEAST = 20  # of each branch of the rule


# ---- XCLAIM ----


def test_all_claims_of_a_run_do_what_the_reference_does_one_after_the_other(spark):
    """Nothing is random: by seed 1 the 400 streams, with two groups each, their entries and
    requests, are always the same."""
    batch = random_batch(STREAMS, seed=1)
    decision = decided_by(xclaim, store_of(spark, batch), table_of(spark, batch))
    assert_claimed_as_the_reference(spark, batch, decision.rows.collect())
    reached = batch.branches()
    print(*(f"{reached[name]:6} {name}" for name in BRANCHES), sep="\n")
    assert set(reached) <= set(BRANCHES)
    assert [name for name in BRANCHES if reached[name] < LEAST] == []


@pytest.fixture(scope="module")
def batch() -> Batch:
    """Always the same 100 streams."""
    return random_batch(100, seed=2)


def test_order_of_rows_and_a_negative_min_idle_make_no_difference(spark, batch):
    """Nothing is random: by seed 2 the 100 streams are always the same, and so is the order in
    which the rows are shuffled."""
    store, table = store_of(spark, batch), table_of(spark, batch)
    rows = decided_by(xclaim, store, table).rows.collect()
    assert_claimed_as_the_reference(spark, batch, rows)

    negative = F.when(F.col("min_idle_ms") == 0, -(2**63)).otherwise(F.col("min_idle_ms"))
    shuffled = table.orderBy(F.xxhash64("request")).repartition(5)
    other = decided_by(xclaim, store, shuffled.withColumn("min_idle_ms", negative))

    assert without_words(other.rows.collect()) == without_words(rows)


def without_words(rows):
    """The rows without the request as it was written."""
    return sorted(str(row.asDict() | {"request": None}) for row in rows)


# ---- XACK ----


def test_acks_take_off_each_id_once_whoever_owns_it_and_whether_or_not_the_stream_has_it(
    spark, batch
):
    """Nothing is random: by seed 2 the 100 streams, and the ids that are asked for in each, are
    always the same."""
    decision = decided_by(xack, store_of(spark, batch), asked_acks(batch))
    assert_acked_as_the_reference(spark, batch, decision)
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
    spark, estate, number
):
    recipients = RECIPIENTS[:number]
    store = empty_store(spark)
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
