"""A connection to a server that gives its replies as it sends them, errors word for word."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import hiredis

from claimlib.testing.server_process import Server

_CHUNK = 1 << 16


class Wire:
    """Sends commands and reads their replies: lists, bytes, integers and null; an error is
    `{"err": message}`, as in the recorded vectors."""

    def __init__(self, server: Server) -> None:
        self._socket = socket.create_connection((server.host, server.port))
        self._reader = hiredis.Reader(replyError=lambda message: {"err": message})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def ask(self, *commands: Sequence[bytes]) -> list[Any]:
        """The replies to some commands, all of which are sent before the first reply is read."""
        self.send(*commands)
        return [self._reply() for _ in commands]

    def send(self, *commands: Sequence[bytes]) -> None:
        """Sends commands whose replies nobody waits for."""
        self._socket.sendall(b"".join(map(_packed, commands)))

    def _reply(self) -> Any:
        while (reply := self._reader.gets()) is False:
            chunk = self._socket.recv(_CHUNK)
            assert chunk, "the server has closed the connection"
            self._reader.feed(chunk)
        return reply


def _packed(command: Sequence[bytes]) -> bytes:
    words = [b"$%d\r\n%b\r\n" % (len(word), word) for word in command]
    return b"*%d\r\n%b" % (len(words), b"".join(words))
