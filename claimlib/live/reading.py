"""One server, to be read for a snapshot: where it is, who reads it, and how fast."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from claimlib.errors import ClaimlibError
from claimlib.live.batches import Batch, SourceOpened
from claimlib.live.connection import Source, open_source, read_password, source_label
from claimlib.live.reader import read_source
from claimlib.semantics.ids import StreamId


class _Password:
    """The password, which nothing shows.  It is read once: a pipe, as of `<(pass show redis)`, is
    empty when it is opened again."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._read: tuple[str | None] | None = None

    def __call__(self) -> str | None:
        if self._read is None:
            self._read = (read_password(self._file, os.environ),)
        return self._read[0]


@dataclass(frozen=True, slots=True)
class ServerReading:
    """How to read one server; calling it reads it from the start, over a connection of its own.

    Attributes:
        url: `redis://[USER@]HOST[:PORT][/DB]`, `rediss://` for TLS.
        stream_glob, group_glob: which streams and groups are read.
        fields: whether the payload of pending entries is read too.
        max_commands_per_second: how fast; see `live.pacer`.
        password_file: null: the environment variable REDIS_PASSWORD, if it is set.  Read once,
            by the first connection.
        ca_file: certificates to trust for TLS besides the system's; null: none.

    Examples:
        >>> ServerReading("redis://localhost:6379/0", max_commands_per_second=100).label
        'localhost:6379/0'
    """

    url: str
    stream_glob: str = "*"
    group_glob: str = "*"
    fields: bool = True
    max_commands_per_second: float = 500
    password_file: Path | None = None
    ca_file: Path | None = None
    _password: _Password = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """All connections have one password."""
        object.__setattr__(self, "_password", _Password(self.password_file))

    @property
    def label(self) -> str:
        """The server as `host:port/db`."""
        return source_label(self.url)

    def check(self) -> SourceOpened:
        """Connect, log in, and return the ids of the server.

        Called before Spark starts, because Spark takes ten seconds to start.

        Raises:
            SourceError: the server cannot be reached, or does not let us in.
        """
        with self._connect() as source:
            return source.server.ids

    def __call__(
        self, also_spans: Mapping[bytes, tuple[StreamId, StreamId]] | None = None
    ) -> Iterator[Batch]:
        """All batches, as `batches` describes them; `also_spans` as in `read_source`."""
        with self._connect() as source:
            yield from read_source(
                source,
                stream_glob=self.stream_glob,
                group_glob=self.group_glob,
                fields=self.fields,
                also_spans=also_spans,
            )

    def _connect(self) -> Source:
        try:
            return open_source(
                self.url,
                password=self._password(),
                ca_file=self.ca_file,
                max_commands_per_second=self.max_commands_per_second,
            )
        except ClaimlibError as error:
            # A server that does not know AUTH says so with its arguments; a traceback shows causes.
            raise error from None
