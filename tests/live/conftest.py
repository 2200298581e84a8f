"""Sources on real servers, which are emptied before each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import redis

from claimlib.live.connection import Source, open_source
from claimlib.testing.server_process import Server, valkey_server
from tests.live.redis_7_0 import redis_server


@pytest.fixture
def client(client: redis.Redis) -> redis.Redis:
    """Another client of the server, whose log of refusals is empty."""
    client.execute_command("ACL LOG", "RESET")
    return client


@pytest.fixture(
    scope="module", params=["Valkey", pytest.param("Redis 7.0", marks=pytest.mark.long)]
)
def each_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server of each kind."""
    is_valkey = request.param == "Valkey"
    binary = None if is_valkey else redis_server(tmp_path_factory.mktemp("redis"))
    with valkey_server(binary=binary) as running:
        yield running


@pytest.fixture
def open_here(
    server: Server,
    client: redis.Redis,  # noqa: ARG001  # empties the server first
) -> Iterator[Callable[..., Source]]:
    """Opens sources on the server, without a limit of pace unless one is given."""
    with ExitStack() as opened:

        def open_(**options: object) -> Source:
            settings = {"max_commands_per_second": None} | options
            return opened.enter_context(open_source(server.url, **settings))

        yield open_


@pytest.fixture
def source(open_here: Callable[..., Source]) -> Source:
    return open_here()


@pytest.fixture
def user(client: redis.Redis) -> Iterator[Callable[..., dict[str, str]]]:
    """Makes a server's user with the given rights; returns what it logs in with."""
    names = []

    def make(*rights: str) -> dict[str, str]:
        name = f"user{len(names)}"
        names.append(name)
        client.execute_command("ACL", "SETUSER", name, "reset", "on", ">sesame", *rights)
        return {"username": name, "password": "sesame"}

    yield make
    for name in names:
        client.execute_command("ACL", "DELUSER", name)
