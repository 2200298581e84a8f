"""Whole sequences of steps on a Redis 7.0, whose clock does not stand still: the reference follows
each of them by that server's profile, at the instants right before and right after each command."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from claimlib.semantics.model import Profile
from claimlib.testing.server_process import valkey_server
from tests.live.figures import record
from tests.live.followed import follow_all, version_of
from tests.live.redis_7_0 import redis_server
from tests.live.test_stream_life import LIVES, play
from tests.live.wire import Wire
from tests.seeds import new_seed

pytestmark = pytest.mark.long

SEQUENCES = 6_000


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    """A connection to a Redis 7.0."""
    program = redis_server(tmp_path_factory.mktemp("redis"))
    with valkey_server(binary=program) as server, Wire(server) as opened:
        yield opened


@pytest.mark.timeout(1800)
def test_the_reference_follows_six_thousand_sequences_as_redis_7_0_plays_them(
    wire: Wire, pytestconfig: pytest.Config
):
    drawn_by = new_seed(pytestconfig)
    version = version_of(wire, b"redis_version")
    assert version.startswith("7.0.")
    started = time.monotonic()
    tally = follow_all(wire, SEQUENCES, drawn_by, Profile.REDIS_7_0)
    print(tally.table())
    assert tally.missed() == []
    record(f"Redis {version}", drawn_by, tally, {"reference": time.monotonic() - started})


def test_counters_of_streams_on_redis_7_0_are_those_of_the_model(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
):
    program = redis_server(tmp_path_factory.mktemp("redis"))
    chance = random.Random(new_seed(pytestconfig))
    with valkey_server(binary=program) as server, server.client() as client:
        for _ in range(LIVES):
            play(client, chance)
