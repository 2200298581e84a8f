from collections import Counter
from operator import attrgetter
from pathlib import Path

import pytest

from claimlib.testing.vectors import KEY, Answer, by_reference, steps

FOLDER = Path(__file__).parents[1] / "vectors"
STEPS = [step for name in ("named", "random") for step in steps(FOLDER / f"{name}.json")]


@pytest.mark.parametrize("step", STEPS, ids=attrgetter("name"))
def test_the_reference_answers_as_the_server_did(step):
    assert by_reference(step) == Answer(step.reply, step.after[KEY].groups)


def test_all_recorded_steps_ran():
    commands = Counter(step.command[0].decode() for step in STEPS)
    assert commands == {"XAUTOCLAIM": 277, "XCLAIM": 167, "XPENDING": 59, "XACK": 5}
    errors = Counter(step.command[0].decode() for step in STEPS if step.error)
    assert errors == {"XAUTOCLAIM": 17, "XCLAIM": 15, "XPENDING": 7, "XACK": 1}


def test_many_steps_start_where_another_step_ended():
    assert sum(step.number > 1 for step in STEPS) == 256
