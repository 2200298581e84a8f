"""Names of any bytes and ids of the whole unsigned range, through the tables and back."""

from __future__ import annotations

from collections import defaultdict

import pytest

from claimlib import scan
from tests.delta.edge_cases import IDS, KEYSPACE, NOW_MS, REQUESTS


@pytest.fixture(scope="module")
def expected():
    """The state and the reply of each group, as the reference gives them."""
    return {
        (stream, group): scan.xautoclaim(
            KEYSPACE[stream].groups[group], request, NOW_MS, KEYSPACE[stream].entries
        )
        for (stream, group), request in REQUESTS.items()
    }


def test_names_and_ids_at_the_edges_are_read_back_as_they_were_written(one_run):
    for stream, state in KEYSPACE.items():
        assert one_run.before[stream] == state.groups, stream[:20]


def test_names_and_ids_at_the_edges_are_swept_like_any_other(one_run, expected):
    for (stream, group), (state, answer) in expected.items():
        assert one_run.after[stream][group] == state, (stream[:20], group[:20])
        claimed = one_run.claimed.get((stream, group), {})
        assert list(claimed) == list(answer.claimed)
        assert list(one_run.deleted.get((stream, group), {})) == list(answer.deleted)
        entries = KEYSPACE[stream].entries
        assert list(claimed.values()) == [(pairs(entries[one]),) for one in answer.claimed]


def pairs(fields):
    return list(zip(fields[::2], fields[1::2], strict=True))


def test_each_id_at_the_edges_is_claimed_deleted_left_and_before_the_start_somewhere(expected):
    kinds = defaultdict(set)
    for (stream, group), (_, answer) in expected.items():
        start = REQUESTS[stream, group].start
        for entry in KEYSPACE[stream].groups[group].pending:
            examined = "left" if entry.id >= start else "before the start"
            known = {
                **dict.fromkeys(answer.claimed, "claimed"),
                **dict.fromkeys(answer.deleted, "deleted"),
            }
            kinds[entry.id].add(known.get(entry.id, examined))
    everything = {"claimed", "deleted", "left", "before the start"}
    *others, last = (kinds[stream_id] for stream_id in IDS)
    assert others == [everything] * 15
    assert last == everything - {"before the start"}
