"""What a real server answered, through the tables: every recorded step that a sweep must repeat."""

from __future__ import annotations

from collections import Counter

from claimlib.ids import MIN_ID
from tests.delta.vector_sweeps import END, STEPS, SWEEPS
from tests.unit.vector_cases import KEY


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
