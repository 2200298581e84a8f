"""One run over all that can be swept together leaves in the tables what the reference, or a real
server, says.

Recorded steps of a server, names and ids at the edges, and random states of hundreds of groups: a
run costs seconds, a stream more costs nothing.
"""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from claimlib import scan
from claimlib.ids import MIN_ID
from claimlib.store import Store
from tests.batches import BRANCHES
from tests.delta.edge_cases import IDS, KEYSPACE, NOW_MS, REQUESTS
from tests.delta.one_run import GROUPS, OneRun, sweep_everything
from tests.delta.vector_sweeps import END, STEPS, SWEEPS
from tests.unit.vector_cases import KEY


@pytest.fixture(scope="module")
def one_run(
    spark: SparkSession, empty_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> OneRun:
    where = shutil.copytree(empty_store, tmp_path_factory.mktemp("one") / "store")
    return sweep_everything(Store.open(spark, str(where)))


# ---- every recorded step that a sweep must repeat ----


def test_each_recorded_step_that_was_a_whole_sweep_is_among_them():
    assert Counter(sweep.ended_by for sweep in SWEEPS) == {
        "no limit near": 136,
        "COUNT just used up": 11,
        "budget just used up": 1,
    }
    left = [step for step in STEPS if step.error is None and step.reply[0] != END]
    assert (len(STEPS), len(SWEEPS), len(left)) == (277, 148, 112)
    assert sum(sweep.request.justid for sweep in SWEEPS) == 35
    assert sum(sweep.request.start > MIN_ID for sweep in SWEEPS) == 67


def test_the_tables_are_as_the_server_was_after_every_recorded_sweep(one_run):
    for sweep in SWEEPS:
        assert one_run.after[sweep.stream] == sweep.step.after[KEY].groups, sweep.step.name


def test_the_reply_is_what_the_server_replied_to_every_recorded_sweep(one_run):
    number = Counter()
    for sweep in SWEEPS:
        names = (sweep.stream, sweep.group)
        claimed, deleted = one_run.claimed.get(names, {}), one_run.deleted.get(names, {})
        assert [(str(one), *fields) for one, fields in claimed.items()] == sweep.claimed, names
        assert list(map(str, deleted)) == sweep.step.reply[2], sweep.step.name
        number.update(claimed=len(claimed), deleted=len(deleted))
    assert number == {"claimed": 480, "deleted": 219}


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


# ---- random states ----


def test_a_run_leaves_hundreds_of_groups_in_the_tables_as_the_reference_does(one_run):
    reached = one_run.batch.branches()
    print(*(f"{reached[name]:6} {name}" for name in BRANCHES), sep="\n")
    assert [name for name in BRANCHES if not reached[name]] == []
    cases = one_run.batch.cases()
    assert len(cases) >= GROUPS
    asked = one_run.requests.keys()
    assert (one_run.claimed.keys() | one_run.deleted.keys()) <= asked, "nobody else is touched"
    assert {stream: set(groups) for stream, groups in one_run.after.items()} == {
        stream: set(groups) for stream, groups in one_run.before.items()
    }
    for (stream, group), case in cases.items():
        state, answer = case.expected()
        assert one_run.after[stream][group] == state, case
        assert tuple(one_run.claimed.get((stream, group), ())) == answer.claimed, case
        assert tuple(one_run.deleted.get((stream, group), ())) == answer.deleted, case


def test_the_report_counts_what_was_done(one_run):
    assert one_run.counts == {
        "claimed": sum(map(len, one_run.claimed.values())),
        "deleted": sum(map(len, one_run.deleted.values())),
        "swept": len(one_run.batch.requests) + 148 + 29,
        **dict.fromkeys(("refused", "lost", "gone"), 0),
        "delivered_later": sum(
            entry.delivery_time_ms > instant
            for groups, instant in one_run.groups_at()
            for group in groups.values()
            for entry in group.pending
        ),
    }
