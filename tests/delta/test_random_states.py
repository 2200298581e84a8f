"""A run over random states of hundreds of groups leaves in the tables what the reference says."""

from __future__ import annotations

from tests.batches import BRANCHES
from tests.delta.one_run import GROUPS


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
