"""State how to reach a server: its address, its user's password, and the pace of commands."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from claimlib.errors import ClaimlibError
from claimlib.live.batches import SourceOpened
from claimlib.live.cluster import Servers, open_servers
from claimlib.live.connection import (
    DEFAULT_COMMANDS_PER_SECOND,
    read_password,
    source_label,
)


class _Password:
    """Hold the password, and never show it.

    The file is read once, because it may be a pipe, as in `<(pass show redis)`.  A pipe is empty
    when it is opened again.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        # The tuple shows that the file was read, because the password itself may be None.
        self._known: tuple[str | None] | None = None

    def __call__(self) -> str | None:
        if self._known is None:
            self._known = (read_password(self._file, os.environ),)
        return self._known[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAccess:
    """State how to reach one server.

    Attributes:
        url: `redis://[USER@]HOST[:PORT][/DB]` names a server, or any node of a cluster.  `rediss://`
            means TLS.  `redis+sentinel://[USER@]HOST[:PORT]/MASTER[/DB]` names a master by a
            sentinel.
        max_commands_per_second: the most commands per second to each server, see `live.pacer`.
        max_latency_ms: the longest time to an answer.  A writeback pauses while the server answers
            more slowly.  None means no limit.
        password_file: the file with the password.  The first connection reads it, once.  None means
            the environment variable REDIS_PASSWORD, if it is set.
        ca_file: certificates to trust for TLS besides the system's.  None means only the system's.
        needs_all_masters: False to go on without masters of a cluster that do not answer.  A
            snapshot then leaves their streams as they are.

    Examples:
        >>> ServerAccess("redis://localhost:6379/0").label
        'localhost:6379/0'
    """

    url: str = field(kw_only=False)
    max_commands_per_second: float = DEFAULT_COMMANDS_PER_SECOND
    max_latency_ms: int | None = None
    password_file: Path | None = None
    ca_file: Path | None = None
    needs_all_masters: bool = True
    _password: _Password = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Make all connections use one password."""
        object.__setattr__(self, "_password", _Password(self.password_file))

    @property
    def label(self) -> str:
        """Return the server as `host:port/db`."""
        return source_label(self.url)

    def check(self) -> SourceOpened:
        """Connect, log in, and return the ids of the server, or of the masters of a cluster.

        It is called before Spark starts, because Spark starts slowly.

        Raises:
            SourceError: the server cannot be reached, or refuses the login.
        """
        with self.open() as servers:
            return servers.ids

    def open(self) -> Servers:
        """Connect to the server, or to all masters of its cluster, and log in.

        Raises:
            SourceError: see `check`.
        """
        try:
            return open_servers(
                self.url,
                needs_all_masters=self.needs_all_masters,
                password=self._password(),
                ca_file=self.ca_file,
                max_commands_per_second=self.max_commands_per_second,
            )
        except ClaimlibError as error:
            # A server that does not know AUTH repeats the password in its error.  A traceback would
            # show the server's error as the cause.
            raise error from None
