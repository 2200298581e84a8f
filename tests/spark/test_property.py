"""Random states of hundreds of groups: a sweep on Spark does what the reference does."""

from __future__ import annotations

import shutil
from collections import Counter
from itertools import count

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

from claimlib.commands.xautoclaim import xautoclaim
from claimlib.names import unspell
from claimlib.store import Store
from claimlib.testing.tables import read_groups, write_keyspace
from tests.batches import BRANCHES, Batch, batches
from tests.request_table import request_table
from tests.spark.literal import decide, differences, literal_store

GROUPS = 200
LEAST = 20  # of each branch of the rule

costly = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def show(reached: Counter[str]) -> None:
    print(*(f"{reached[name]:6} {name}" for name in BRANCHES), sep="\n")


@pytest.mark.timeout(900)  # what Hypothesis may take to shrink a batch, once one differs
def test_a_sweep_decides_about_hundreds_of_groups_as_the_reference_does(spark):
    reached: Counter[str] = Counter()

    @settings(costly, max_examples=3)
    @given(batch=batches(GROUPS))
    def compare(batch: Batch) -> None:
        assume(batch.entries)
        assert len(batch.requests) >= GROUPS
        reached.update(batch.branches())
        rows = decide(literal_store(spark, batch), batch)
        assert not "\n".join(differences(batch, rows))

    compare()
    show(reached)
    assert [name for name in BRANCHES if reached[name] < LEAST] == []


def test_a_run_leaves_hundreds_of_groups_in_the_tables_as_the_reference_does(
    spark, empty_store, tmp_path
):
    number = count()

    @settings(costly, max_examples=1, database=None, phases=[Phase.generate])
    @given(batch=batches(GROUPS))
    def compare(batch: Batch) -> None:
        assume(batch.entries)
        assert [name for name in BRANCHES if not batch.branches()[name]] == []
        where = shutil.copytree(empty_store, tmp_path / str(next(number)))
        compare_run(Store.open(spark, str(where)), batch)

    compare()


def compare_run(store: Store, batch: Batch) -> None:
    write_keyspace(store, batch.keyspace, batch.instants)

    reply = xautoclaim(store, request_table(store.spark, batch.requests))

    expected = {names: case.expected() for names, case in batch.cases().items()}
    after = read_groups(store)
    assert len(after) * 2 == len(expected) >= GROUPS
    for (stream, group), (state, _) in expected.items():
        assert after[stream][group] == state, batch.cases()[stream, group]
    assert ids_of(reply.claimed) == {
        (*names, str(one)) for names, (_, answer) in expected.items() for one in answer.claimed
    }
    assert ids_of(reply.deleted) == {
        (*names, str(one)) for names, (_, answer) in expected.items() for one in answer.deleted
    }
    assert {name: reply.counts[name] for name in ("swept", "refused", "lost", "gone")} == {
        "swept": len(expected),
        "refused": 0,
        "lost": 0,
        "gone": 0,
    }


def ids_of(rows):
    return {
        (unspell(row["stream"]), unspell(row["consumer_group"]), row["id"])
        for row in rows.select("stream", "consumer_group", "id").collect()
    }
