from collections import Counter
from operator import attrgetter

import pytest

from claimlib import words
from claimlib.errors import ReplyError
from claimlib.model import IdleRule, Profile
from tests.unit.vector_cases import FILES, steps

STEPS = [step for file in FILES for step in steps(file, "XAUTOCLAIM")]


def as_text(reply):
    """A reply with its byte strings as text, as the vectors hold it."""
    return reply.decode("ascii") if isinstance(reply, bytes) else [as_text(item) for item in reply]


def answer(step):
    """Reply and state after, as a server gives them; an error leaves the state as it was."""
    try:
        after, reply = words.xautoclaim(
            step.before, step.command, step.now_ms, IdleRule.SERVER, Profile.REDIS_7_2
        )
    except ReplyError as error:
        return {"err": error.message}, step.before
    return as_text(reply), after


@pytest.mark.parametrize("step", STEPS, ids=attrgetter("name"))
def test_the_reference_answers_as_the_server_did(step):
    assert answer(step) == (step.reply, step.after)


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
