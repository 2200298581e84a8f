"""A real Valkey server for the tests of this folder, emptied before each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import redis

from claimlib.live.connection import Source, open_source
from claimlib.testing.server import Server, valkey_server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with valkey_server() as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    """Another client of the server, which may do anything."""
    with server.client() as connected:
        connected.flushall()
        connected.execute_command("ACL LOG", "RESET")
        yield connected


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
