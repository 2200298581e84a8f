"""A snapshot: the store becomes what a server says, in one run.

Pages are landed as they are read, under a uuid of their own; one journal commit names that landing
and so decides; the roll-forward writes the differences.  What was landed and never named counts for
nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql import functions as F

from claimlib.commands.landing import Landing
from claimlib.commands.mirroring import SNAPSHOT, check_source, key_mode
from claimlib.names import glob_pattern
from claimlib.plans.journal_rows import union_rows
from claimlib.runs import Begun, Decision, Phase, Progress, run
from claimlib.source import Batch
from claimlib.store import Store

COMMAND = SNAPSHOT


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """What is read of which server.

    Attributes:
        source: the server as host:port/db, without credentials.
        stream_glob, group_glob: Redis' globs; what they do not match is left as it is in the store.
        fields: whether the payload of pending entries is read too.
    """

    source: str
    stream_glob: str = "*"
    group_glob: str = "*"
    fields: bool = True

    def __post_init__(self) -> None:
        """Refuse a glob before anything is read."""
        glob_pattern(self.stream_glob)
        glob_pattern(self.group_glob)

    def as_json(self) -> dict[str, object]:
        """What is kept with the run."""
        return {
            "source": self.source,
            "stream_glob": self.stream_glob,
            "group_glob": self.group_glob,
            "fields": self.fields,
        }


@dataclass(frozen=True, slots=True)
class SnapshotReply:
    """What a snapshot did.

    Attributes:
        counts: streams, groups, pending_read, entries_read, commands, vanished (streams and groups
            that went away while they were read), pending_written (new and changed rows).
    """

    run_id: str
    run_seq: int
    source: str
    counts: Mapping[str, int]


def snapshot(
    store: Store,
    request: SnapshotRequest,
    read: Callable[[], Iterable[Batch]],
    *,
    run_id: str | None = None,
    progress: Progress | None = None,
) -> SnapshotReply:
    """Bring a store to what a server says about its streams, groups, consumers and PELs.

    Correct while the server goes on working: each pending row was pending when its page was read,
    and each id judged absent was absent when its stream was read, which is after the PELs.

    Args:
        request: which server, and which of its streams and groups.
        read: reads the server from the start, as `source` describes; called again only if a newer
            snapshot got in between.
        run_id: the key of the run together with the command; the same key again changes nothing.
        progress: told each phase, and how far the reading is.

    Raises:
        SourceMismatchError: the store mirrors another source.
        SourceError: the server cannot be read.
    """
    reader = _Reader(store, request, read, progress)
    finished = run(
        store,
        command=COMMAND,
        request=request.as_json(),
        decide=reader.decide,
        run_id=run_id,
        progress=progress,
    )
    return SnapshotReply(finished.run_id, finished.run_seq, request.source, finished.counts)


@dataclass
class _Reader:
    """The decide function of a snapshot; what it has landed it keeps when it lost to a claim."""

    store: Store
    request: SnapshotRequest
    read: Callable[[], Iterable[Batch]]
    progress: Progress | None
    landing: Landing | None = None

    def decide(self, begun: Begun) -> Decision:
        check_source(begun, self.request.source)
        if self.landing is None or self._is_outdated(begun, self.landing):
            self.landing = self._land()
        frames = self.landing.journal_rows(self.request.source)
        return Decision(
            union_rows(frames.values()),
            key_mode=key_mode(begun, frames["group"], frames["stream"]),
            landed=self.landing.landed,
            source=self.request.source,
            counts=self.landing.counts,
        )

    def _land(self) -> Landing:
        all_groups = self.request.group_glob == "*"
        landing = Landing(self.store, uuid.uuid4().hex, all_groups=all_groups)
        for batch in self.read():
            landing.add(batch)
            if self.progress is not None:
                self.progress(Phase.READ, landing.so_far())
        landing.finish()
        return landing

    def _is_outdated(self, begun: Begun, landing: Landing) -> bool:
        """Whether a snapshot taken after ours was read is in the store by now."""
        newest = begun.read("groups").agg(F.max("snapshot_ms").alias("ms")).first()
        return newest is not None and (newest["ms"] or 0) > landing.first_ms
