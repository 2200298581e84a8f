"""Compare the counters of a stream on a real server with those of the model in
tests/unit/test_stream_life.py."""

from __future__ import annotations

import random

from claimlib.live.replies import stream_counters
from tests.seeds import new_seed
from tests.unit.test_stream_life import Server

STEPS = ("add", "add", "delete", "trim", "recreate", "dump", "restore")
LIVES, STEPS_PER_LIFE = 60, 25


def test_counters_are_those_of_the_model_at_each_step_of_random_lives(client, pytestconfig):
    chance = random.Random(new_seed(pytestconfig))
    for _ in range(LIVES):
        play(client, chance)


def play(client, chance):
    model, dump = Server(), None
    _recreate(client)
    for _ in range(STEPS_PER_LIFE):
        name, number = chance.choice(STEPS), chance.randint(1, 6)
        before = model.life
        model.play((name, number))
        if name == "add":
            for id_ in sorted(model.life.ids - before.ids):
                client.xadd("s", {"f": "v"}, id=f"{id_}-0")
        elif name == "delete":
            for id_ in before.ids - model.life.ids:
                client.xdel("s", f"{id_}-0")
        elif name == "trim":
            client.xtrim("s", maxlen=number, approximate=False)
        elif name == "recreate":
            _recreate(client)
        elif name == "dump":
            dump = client.dump("s")
        elif dump is not None:
            client.restore("s", 0, dump, replace=True)
        told = client.execute_command("XINFO", "STREAM", "s")
        assert stream_counters(_flat(told)) == model.life.counters(), (name, before, model.life)


def _recreate(client):
    client.delete("s")
    client.xgroup_create("s", "g", mkstream=True)


def _flat(told):
    """The reply as servers send it; redis-py makes a dictionary of it, and takes ids apart."""
    if not isinstance(told, dict):
        return told
    return [part for name, value in told.items() for part in (name.encode(), value)]
