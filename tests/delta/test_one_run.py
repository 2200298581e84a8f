"""One run over all that can be swept together leaves in the tables what the reference says.

Names and ids at the edges, and random states of hundreds of groups: a run costs seconds, a stream
more costs nothing.
"""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from claimlib.semantics import scan
from tests.batches import BRANCHES
from tests.delta.edge_cases import IDS, KEYSPACE, NOW_MS, REQUESTS
from tests.delta.one_run import GROUPS, OneRun, sweep_everything
from tests.delta.own_rows import Opener


@pytest.fixture(scope="module")
def one_run(
    open_store: Opener, empty_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> OneRun:
    where = shutil.copytree(empty_store, tmp_path_factory.mktemp("one") / "store")
    return sweep_everything(open_store(where))


# ---- names of any bytes, ids of the whole unsigned range ----


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
        assert list(claimed.values()) == [
            (pairs(entries[stream_id]),) for stream_id in answer.claimed
        ]


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


# ---- random states ----


def test_a_run_leaves_hundreds_of_groups_in_the_tables_as_the_reference_does(one_run):
    reached = one_run.batch.branches()
    print(*(f"{reached[name]:6} {name}" for name in BRANCHES), sep="\n")
    assert [name for name in BRANCHES if not reached[name]] == []
    cases = one_run.batch.cases()
    assert len(cases) >= GROUPS
    requested = one_run.requests.keys()
    assert (one_run.claimed.keys() | one_run.deleted.keys()) <= requested, "nobody else is touched"
    assert {stream: set(groups) for stream, groups in one_run.after.items()} == {
        stream: set(groups) for stream, groups in one_run.before.items()
    }
    for (stream, group), case in cases.items():
        state, answer = case.expected()
        assert one_run.after[stream][group] == state, case
        assert tuple(one_run.claimed.get((stream, group), ())) == answer.claimed, case
        assert tuple(one_run.deleted.get((stream, group), ())) == answer.deleted, case


def test_the_report_counts_what_was_done(one_run):
    looked_at = [
        (entry, one_run.instants[stream])
        for (stream, group), request in one_run.requests.items()
        for entry in _looked_at(one_run.before[stream][group].pending, request)
    ]
    cases = one_run.batch.cases()
    refused = {names for names, case in cases.items() if case.refusal is not None}
    accepted = {
        names: request for names, request in one_run.requests.items() if names not in refused
    }
    guarded = Counter(
        branch.split(",")[0]
        for names, case in cases.items()
        if names not in refused
        for branch in case.branches_of_guards()
    )
    assert refused
    assert one_run.counts == {
        **dict.fromkeys(one_run.counts, 0),
        "claimed": sum(map(len, one_run.claimed.values())),
        "deleted": sum(map(len, one_run.deleted.values())),
        "swept": len(accepted),
        "refused": len(refused),
        "cursor": sum(request.count is not None for request in accepted.values()),
        "spared": guarded["spared"],
        "parked": guarded["parked"],
        "delivered_later": sum(entry.delivery_time_ms > instant for entry, instant in looked_at),
    }


def _looked_at(pending, request):
    """All of the PEL; of a page, its rows."""
    if request.count is None:
        return pending
    behind = [entry for entry in pending if entry.id >= request.start]
    return behind[: 10 * request.count + 1]
