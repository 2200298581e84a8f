"""With the kernel's rule broken, the comparison of a sweep on Spark with the reference fails.

The kernel runs in Python workers, which import claimlib themselves: what a test replaces in this
process does not reach them.  So the kernel travels by value here, its functions with all that they
refer to, instead of by name; and with it the broken rules.
"""

from __future__ import annotations

import re
from functools import partial

import pytest
from pyspark import cloudpickle

from claimlib.commands.xclaim import xclaim
from claimlib.plans import kernel
from tests import claim_batches
from tests.batches import BRANCHES, random_batch
from tests.broken_rules import BROKEN, broken_rules
from tests.spark.claims_literal import (
    assert_claimed_as_the_reference,
    decided_by,
    store_of,
    table_of,
)
from tests.spark.literal import (
    LiteralStore,
    assert_swept_as_the_reference,
    decide,
    differences,
    literal_store,
)


@pytest.fixture
def _kernel_by_value():
    cloudpickle.register_pickle_by_value(kernel)
    yield
    cloudpickle.unregister_pickle_by_value(kernel)


@pytest.mark.usefixtures("_kernel_by_value")
@pytest.mark.long
def test_the_comparison_fails_for_each_broken_rule_and_for_no_other_reason(spark, monkeypatch):
    batch = random_batch(200, seed=1)
    assert set(BRANCHES) - set(batch.branches()) == set()
    store = literal_store(spark, batch)
    assert not differences(batch, decide(store, batch))
    for how in BROKEN:
        with monkeypatch.context() as patch:
            patch.setattr(kernel, "rules", broken_rules(how))
            differing = differences(batch, decide(store, batch))
        print(f"{how}: {len(differing)} of {len(batch.requests)} groups differ")
        assert differing, how


@pytest.mark.long
@pytest.mark.usefixtures("_kernel_by_value")
def test_of_a_sweep_with_a_broken_rule_an_example_of_two_entries_at_most_is_printed(
    spark, monkeypatch
):
    monkeypatch.setattr(kernel, "rules", broken_rules("equality is left (> for >=)"))
    with pytest.raises(AssertionError) as raised:
        assert_swept_as_the_reference(spark, random_batch(60, seed=1))
    shown = example_of(str(raised.value))
    assert shown["pending"].count("PendingEntry(") == 1
    assert "idle_rule=<IdleRule.SERVER: 'server'>" in shown["request"]
    assert "start=StreamId(ms=0, seq=0), count=None, justid=False" in shown["request"]
    assert (
        "guards=Guards(max_claims=None, max_deleted_share=None, only_from=None" in shown["request"]
    )
    assert shown["the reference says"] != shown["the tables say"]


@pytest.mark.long
@pytest.mark.usefixtures("_kernel_by_value")
def test_of_claims_with_a_broken_rule_an_example_of_two_entries_at_most_is_printed(
    spark, monkeypatch
):
    monkeypatch.setattr(kernel, "rules", broken_rules("equality is left (> for >=)"))
    batch = claim_batches.random_batch(100, seed=1)
    new_store = partial(LiteralStore, spark)
    store = store_of(new_store, batch)
    rows = decided_by(xclaim, store, table_of(store.engine, batch)).rows.collect()
    with pytest.raises(AssertionError) as raised:
        assert_claimed_as_the_reference(new_store, batch, rows)
    shown = example_of(str(raised.value))
    assert shown["pending"].count("PendingEntry(") == 1
    (request,) = (text for name, text in shown.items() if name.startswith("request "))
    assert request.count("StreamId(") == 1
    assert "idle_rule=<IdleRule.SERVER: 'server'>" in request
    assert shown["the reference says"] != shown["the tables say"]


def example_of(message: str) -> dict[str, str]:
    """The lines of a printed example, by what they are about."""
    print(message)
    first, *lines = message.splitlines()
    assert re.fullmatch(
        r"[0-9,]+ groups differ from the reference; the smallest such group that [1-8] rounds of"
        " Spark found:",
        first,
    )
    return dict(line.strip().split(": ", 1) for line in lines)
