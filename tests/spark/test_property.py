"""Random states of hundreds of groups: a sweep on Spark decides what the reference decides.

The plan runs on literal frames; `delta/test_one_run` runs the whole protocol on a store.  Of groups
that differ the smallest example is printed (see `tests/shrinking`).
"""

from __future__ import annotations

from collections import Counter

import pytest

from claimlib.engine.relation import union_by_name
from claimlib.schema import TABLES
from claimlib.semantics.ids import MAX_ID, StreamId
from claimlib.semantics.model import AutoclaimRequest, Consumer, Group, Guards, PendingEntry
from claimlib.semantics.words import Stream
from tests.batches import BRANCHES, CALLER, NOW_MS, OTHER, Batch, random_batch
from tests.conftest import by_spark_alone
from tests.seeds import new_seed
from tests.spark.literal import assert_swept_as_the_reference, decide, literal_store
from tests.writing import append_rows

GROUPS = 1_600
LEAST = 20  # of each branch of the rule


@pytest.mark.long  # test_sweeps.py decides about two hundred by Spark
def test_a_sweep_decides_about_hundreds_of_groups_as_the_reference_does(spark):
    """Nothing is random: by seed 1 the 1,600 groups, with their entries, requests and instants,
    are always the same."""
    reached = compared(spark, seed=1)
    print(*(f"{reached[name]:6} {name}" for name in BRANCHES), sep="\n")
    assert [name for name in BRANCHES if reached[name] < LEAST] == []


@pytest.mark.long
def test_so_it_does_about_thousands_of_groups_that_nobody_has_seen_before(spark, pytestconfig):
    """All groups are drawn again in each run, by ten seeds from a made-up one on, which is printed;
    `--hypothesis-seed` gives it again."""
    first = new_seed(pytestconfig)
    for seed in range(first, first + 10):
        compared(spark, seed)


def compared(spark, seed: int) -> Counter[str]:
    """What a batch reaches, once the plan is seen to decide what the reference decides."""
    print(f"groups drawn by seed {seed}")
    batch = random_batch(GROUPS, seed)
    assert_swept_as_the_reference(spark, batch)
    return batch.branches()


@pytest.mark.long
@pytest.mark.parametrize("is_large", [False, pytest.param(True, marks=pytest.mark.long)])
def test_whether_rows_are_few_or_many_it_decides_the_same(spark, monkeypatch, is_large):
    """Nothing is random: by seed 1 the 60 groups are always the same."""
    if is_large:
        by_spark_alone(monkeypatch)
    assert_swept_as_the_reference(spark, random_batch(60, seed=1))


@pytest.mark.long
def test_a_consumer_with_two_rows_doubles_no_entry(spark):
    entry = PendingEntry(StreamId(1, 0), OTHER, 0, 1)
    group = Group(MAX_ID, (entry,), (Consumer(OTHER, 5, None),))
    request = AutoclaimRequest(CALLER, 0, guards=Guards(only_consumers_idle_ms=1))
    stream = Stream({entry.id: (b"n", b"v")}, {b"g": group})
    batch = Batch({b"s": stream}, {b"s": NOW_MS}, {(b"s", b"g"): request})
    store = literal_store(spark, batch)
    once = store.relation("consumers")
    append_rows(store, "consumers", union_by_name([once, once], TABLES["consumers"].types))
    assert [row["kind"] for row in decide(store, batch) if row["id_ms"]] == ["claimed"]
