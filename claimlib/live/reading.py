"""State how a snapshot reads a server or a cluster: its address, the user, and the pace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from claimlib.live.access import ServerAccess
from claimlib.live.batches import Batch
from claimlib.live.reader import read_source
from claimlib.semantics.ids import StreamId


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReading(ServerAccess):
    """State how to read a server.  Each call reads it from the start, over new connections.

    Attributes:
        stream_glob, group_glob: the streams and groups that are read.
        fields: True to read the payloads of pending entries, too.

    Examples:
        >>> ServerReading("redis://localhost:6379/0", max_commands_per_second=100).label
        'localhost:6379/0'
    """

    stream_glob: str = "*"
    group_glob: str = "*"
    fields: bool = True

    def __call__(
        self, also_spans: Mapping[bytes, tuple[StreamId, StreamId]] | None = None
    ) -> Iterator[Batch]:
        """Yield all batches, as `batches` describes them.  For `also_spans` see `read_source`."""
        with self.open() as servers:
            yield from read_source(
                servers,
                stream_glob=self.stream_glob,
                group_glob=self.group_glob,
                fields=self.fields,
                also_spans=also_spans,
            )
