"""Help to test code that uses claimlib: start a server, and write tables from plain values."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from claimlib.testing.keyspace_rows import read_groups, request_table, write_keyspace
    from claimlib.testing.server_process import Server, valkey_server

__all__ = ["Server", "read_groups", "request_table", "valkey_server", "write_keyspace"]

_SERVER = ("Server", "valkey_server")


if not TYPE_CHECKING:  # a type checker would then accept every name

    def __getattr__(name: str) -> object:
        """Import a name when it is first used, because a test without a store needs no Spark."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = "server_process" if name in _SERVER else "keyspace_rows"
        return getattr(import_module(f"{__name__}.{module}"), name)
