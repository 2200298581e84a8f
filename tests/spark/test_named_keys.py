"""Whether two names share a hash is found wherever they stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from claimlib.commands.preconditions import refuse_shared_hashes
from claimlib.engine.relation import Executor, Relation, Rows
from claimlib.errors import HashCollisionError
from claimlib.plans.keys import IS_SHARED, named_keys, owners_of_keys
from tests.delta.test_keys import COLLIDING, COLLIDING_GROUPS

NAME, OTHER = BOTH = [name.decode() for name in COLLIDING]
GROUP, OTHER_GROUP = (name.decode() for name in COLLIDING_GROUPS)
NOBODY = "XehWxTNOyXJSKHc7"  # its hash is that of null
GROUPS = ("stream", "consumer_group")


@dataclass(frozen=True)
class Named:
    """Which names a store has: of groups with pending entries, of owners, of known groups, and of
    streams with entries."""

    groups: list[tuple[str, str]] = field(default_factory=lambda: [("s", "g")])
    consumers: list[str | None] = field(default_factory=lambda: ["c", None])
    known: list[tuple[str, str]] = field(default_factory=lambda: [("s", "g")])
    streams: list[str] = field(default_factory=lambda: ["s", "s"])

    def keys(self, engine: Executor) -> Relation:
        groups, known = (
            rows(engine, {name: [names[n] for names in listed] for n, name in enumerate(GROUPS)})
            for listed in (self.groups, self.known)
        )
        owners = rows(engine, {"consumer": self.consumers})
        return named_keys(groups, owners, known, rows(engine, {"stream": self.streams}))


def rows(engine: Executor, columns: Mapping[str, Sequence[str | None]]) -> Relation:
    values = {name: pa.array(column, pa.string()) for name, column in columns.items()}
    return Relation(engine, Rows(pa.table(values)))


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


@pytest.mark.parametrize("name", SHARED)
def test_names_that_share_a_hash_are_found_wherever_they_stand(engine, name):
    names, named = SHARED[name]
    with pytest.raises(HashCollisionError) as error:
        refuse_shared_hashes(named.keys(engine).where(IS_SHARED).collect())
    assert error.value.names == names


@pytest.mark.parametrize("name", APART)
def test_names_that_share_no_hash_are_not_refused(engine, name):
    assert APART[name].keys(engine).where(IS_SHARED).collect() == []


def test_each_owner_has_its_name(engine):
    named = Named(
        groups=[("s", "g"), ("s", "h"), ("unknown", "g")],
        consumers=["c", None, "c", ""],
        known=[("s", "g"), ("s", "h"), ("idle", "g")],
    )
    owners = [row["from_consumer"] for row in owners_of_keys(named.keys(engine)).collect()]
    assert sorted(owners, key=repr) == ["", "c", None]
