from collections import Counter
from operator import attrgetter

import pytest

from claimlib.testing.vectors import KEY, Answer, by_reference
from tests.unit.vector_cases import FILES, steps

STEPS = [step for file in FILES for step in steps(file, "XAUTOCLAIM")]


@pytest.mark.parametrize("step", STEPS, ids=attrgetter("name"))
def test_the_reference_answers_as_the_server_did(step):
    assert by_reference(step) == Answer(step.reply, step.after[KEY].groups)


def test_all_recorded_steps_ran():
    ran = Counter("error" if step.error else "reply" for step in STEPS)
    assert {file: len(list(steps(file, "XAUTOCLAIM"))) for file in FILES} == {
        "named.json": 66,
        "random.json": 211,
    }
    assert ran == {"reply": 260, "error": 17}


def test_many_steps_start_where_another_step_ended():
    behind = [step for step in STEPS if step.number > 1]
    assert len(behind) == 148
