"""With the kernel's rule broken, the comparison of a sweep on Spark with the reference fails.

The kernel runs in Python workers, which import claimlib themselves: what a test replaces in this
process does not reach them.  So the kernel travels by value here, its functions with all that they
refer to, instead of by name; and with it the broken rules.
"""

from __future__ import annotations

import pytest
from pyspark import cloudpickle

from claimlib import kernel
from tests.batches import BRANCHES, random_batch
from tests.broken_rules import BROKEN, broken_rules
from tests.spark.literal import decide, differences, literal_store


@pytest.fixture
def _kernel_by_value():
    cloudpickle.register_pickle_by_value(kernel)
    yield
    cloudpickle.unregister_pickle_by_value(kernel)


@pytest.mark.long  # `unit/test_kernel` does it without Spark
@pytest.mark.usefixtures("_kernel_by_value")
def test_the_comparison_fails_for_each_broken_rule_and_for_no_other_reason(spark, monkeypatch):
    batch = random_batch(200, seed=1)
    assert set(BRANCHES) - set(batch.branches()) == set()
    store = literal_store(spark, batch)
    assert not differences(batch, decide(store, batch))
    for how in BROKEN:
        with monkeypatch.context() as patch:
            patch.setattr(kernel, "rules", broken_rules(how))
            found = differences(batch, decide(store, batch))
        print(f"{how}: {len(found)} of {len(batch.requests)} groups differ")
        assert found, how
