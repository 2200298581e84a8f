"""Random states of hundreds of groups: a sweep on Spark decides what the reference decides.

The plan runs on literal frames; `delta/test_one_run` runs the whole protocol on a store.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

from claimlib.commands import xautoclaim
from claimlib.ids import MAX_ID, StreamId
from claimlib.model import AutoclaimRequest, Consumer, Group, Guards, PendingEntry
from claimlib.plans.keys import KeyMode
from claimlib.words import Stream
from tests.batches import BRANCHES, CALLER, NOW_MS, OTHER, Batch, batches
from tests.spark.literal import decide, differences, literal_store

GROUPS = 200
LEAST = 20  # of each branch of the rule


@pytest.mark.timeout(900)  # what Hypothesis may take to shrink a batch, once one differs
def test_a_sweep_decides_about_hundreds_of_groups_as_the_reference_does(spark):
    reached: Counter[str] = Counter()

    @settings(
        max_examples=8,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(batch=batches(GROUPS))
    def compare(batch: Batch) -> None:
        assume(batch.entries)
        assert len(batch.requests) >= GROUPS
        reached.update(batch.branches())
        rows = decide(literal_store(spark, batch), batch)
        assert not "\n".join(differences(batch, rows))

    compare()
    print(*(f"{reached[name]:6} {name}" for name in BRANCHES), sep="\n")
    assert [name for name in BRANCHES if reached[name] < LEAST] == []


def test_with_names_for_keys_it_decides_the_same(spark, monkeypatch):
    monkeypatch.setattr(xautoclaim, "key_mode", lambda *_: KeyMode.NAMES)

    @settings(max_examples=1, deadline=None, phases=[Phase.generate])
    @given(batch=batches(60))
    def compare(batch: Batch) -> None:
        assume(batch.entries)
        rows = decide(literal_store(spark, batch), batch)
        assert not "\n".join(differences(batch, rows))

    compare()


def test_a_consumer_with_two_rows_doubles_no_entry(spark):
    entry = PendingEntry(StreamId(1, 0), OTHER, 0, 1)
    group = Group(MAX_ID, (entry,), (Consumer(OTHER, 5, None),))
    request = AutoclaimRequest(CALLER, 0, guards=Guards(only_consumers_idle_ms=1))
    stream = Stream({entry.id: (b"n", b"v")}, {b"g": group})
    batch = Batch({b"s": stream}, {b"s": NOW_MS}, {(b"s", b"g"): request})
    store = literal_store(spark, batch)
    twice = store.read_at("consumers", 0)
    store.append("consumers", twice.union(twice))
    assert [row["kind"] for row in decide(store, batch) if row["id_ms"]] == ["claimed"]
