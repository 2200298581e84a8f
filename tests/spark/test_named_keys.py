"""Whether two names share a hash is found wherever they stand, and what is added up stays whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from claimlib.commands.preconditions import refuse_shared_hashes
from claimlib.errors import HashCollisionError
from claimlib.plans.keys import IS_SHARED, named_keys, owners_of_keys
from tests.delta.test_keys import COLLIDING, COLLIDING_GROUPS

NAME, OTHER = BOTH = [name.decode() for name in COLLIDING]
GROUP, OTHER_GROUP = (name.decode() for name in COLLIDING_GROUPS)
NOBODY = "XehWxTNOyXJSKHc7"  # its hash is that of null
GROUPS = "stream STRING, consumer_group STRING, pending_before BIGINT"


@dataclass(frozen=True)
class Named:
    """Which names a store has: of groups with pending entries, of owners, of known groups, and of
    streams with entries."""

    groups: list[tuple[str, str]] = field(default_factory=lambda: [("s", "g")])
    consumers: list[str | None] = field(default_factory=lambda: ["c", None])
    known: list[tuple[str, str]] = field(default_factory=lambda: [("s", "g")])
    streams: list[str] = field(default_factory=lambda: ["s", "s"])

    def keys(self, spark: SparkSession, *, in_one_task: bool, totals: bool) -> DataFrame:
        groups = spark.createDataFrame([(*names, 2) for names in self.groups], GROUPS)
        owners = spark.createDataFrame([(owner,) for owner in self.consumers], "consumer STRING")
        known = spark.createDataFrame(self.known, "stream STRING, consumer_group STRING")
        entries = spark.createDataFrame([(stream,) for stream in self.streams], "stream STRING")
        added = [F.sum("pending_before").alias("pending_before")] if totals else []
        about = (groups, owners, known, entries, added)
        return named_keys(*about, in_one_task=in_one_task)


SHARED = {
    "two owners": (BOTH, Named(consumers=[NAME, OTHER, "c"])),
    "an owner and none": (["(no owner)", NOBODY], Named(consumers=[NOBODY, None])),
    "two groups": (
        [f"s / {GROUP}", f"s / {OTHER_GROUP}"],
        Named(groups=[("s", GROUP)], known=[("s", OTHER_GROUP)]),
    ),
    "two streams, one of which has entries alone": (
        BOTH,
        Named(groups=[(NAME, "g")], known=[(NAME, "g")], streams=[OTHER]),
    ),
    "two streams, one of which no group is known of": (
        BOTH,
        Named(groups=[(NAME, "g"), (OTHER, "g")], known=[(NAME, "g")], streams=[NAME]),
    ),
    "two known streams, of which nothing is pending": (
        BOTH,
        Named(known=[(NAME, "g"), (OTHER, "h")]),
    ),
}
APART = {
    "others": Named(),
    "an owner and a stream": Named(consumers=[NAME], streams=["s", OTHER]),
    "nothing": Named([], [], [], []),
}


def shared(spark, named):
    """The shared keys, found in each way."""
    for totals, in_one_task in product((True, False), repeat=2):
        keys = named.keys(spark, in_one_task=in_one_task, totals=totals)
        yield keys.where(IS_SHARED).collect()


@pytest.mark.parametrize("name", SHARED)
def test_names_that_share_a_hash_are_found_wherever_they_stand(spark, name):
    names, named = SHARED[name]
    for rows in shared(spark, named):
        with pytest.raises(HashCollisionError) as error:
            refuse_shared_hashes(rows)
        assert error.value.names == names


@pytest.mark.parametrize("name", APART)
def test_names_that_share_no_hash_are_not_refused(spark, name):
    assert list(shared(spark, APART[name])) == [[]] * 4


@pytest.mark.parametrize("in_one_task", [True, False], ids=["in one task", "divided"])
def test_each_owner_has_its_name_and_each_group_with_entries_its_sums(spark, in_one_task):
    named = Named(
        groups=[("s", "g"), ("s", "h"), ("unknown", "g")],
        consumers=["c", None, "c", ""],
        known=[("s", "g"), ("s", "h"), ("idle", "g")],
    )
    keys = named.keys(spark, in_one_task=in_one_task, totals=True)
    owners = [row["from_consumer"] for row in owners_of_keys(keys).collect()]
    assert sorted(owners, key=repr) == ["", "c", None]
    groups = keys.where("of = 'group'").select("stream", "consumer_group", "pending_before")
    assert sorted(map(tuple, groups.collect()), key=repr) == [
        *(("s", "g", 2), ("s", "h", 2), ("unknown", "g", 2)),
        (None, None, None),  # the group of which nothing is pending
    ]
