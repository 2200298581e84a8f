"""A policy: each group gets the first request whose globs match it."""

from __future__ import annotations

from collections import Counter

import pytest

from claimlib.commands.xautoclaim import SweepRequest, explain, xautoclaim
from claimlib.errors import RequestError
from claimlib.semantics.model import AutoclaimRequest
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta.pels import CLAIMED, NOW_MS, REQUEST, keyspace

PAGE = AutoclaimRequest(b"pager", REQUEST.min_idle_ms, count=2)
POLICY = [
    SweepRequest(PAGE, stream_glob="a*", cursor="c", resume=True),
    SweepRequest(REQUEST, stream_glob="[ab]*"),
]


def test_each_group_gets_the_first_request_that_matches_and_the_others_are_left_alone(
    store: Store,
) -> None:
    write_keyspace(store, keyspace(b"a", b"b", b"c"), NOW_MS)
    explained = explain(store, POLICY).select("stream", "request", "consumer", "count").collect()
    assert sorted(tuple(row.values()) for row in explained) == [
        ("a", 1, "pager", 2),
        ("b", 2, "alice", None),
        ("c", None, None, None),
    ]
    assert store.read("journal").isEmpty()

    reply = xautoclaim(store, POLICY)

    owners = Counter((row["stream"], row["consumer"]) for row in reply.claimed.collect())
    assert owners == {("a", "pager"): 2, ("b", "alice"): CLAIMED}
    shown = {row["stream"]: row for row in reply.groups.collect()}
    assert set(shown) == {"a", "b"}
    assert (shown["a"]["pending_before"], shown["a"]["pending_after"]) == (None, None)
    assert (shown["b"]["pending_before"], shown["b"]["pending_after"]) == (10, 9)
    assert (shown["a"]["next_id"], shown["b"]["next_id"]) == ("4-0", None)


@pytest.mark.parametrize(
    "request_", [AutoclaimRequest(b"c", 1), [AutoclaimRequest(b"c", 1)], "c"], ids=repr
)
def test_what_is_no_sweep_request_is_refused_with_a_remedy(store, request_):
    with pytest.raises(RequestError, match="must be a SweepRequest or a list of Sweep"):
        xautoclaim(store, request_)
