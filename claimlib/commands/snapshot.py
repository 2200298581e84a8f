"""Take a snapshot, which makes a store equal to a server, in one run.

Pages are staged under a uuid as they are read.  The decision is one journal commit, which names the
staged rows.  The roll-forward writes the differences.  Staged rows that no decision names have no
effect.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from claimlib.commands.mirror import (
    OTHER_SERVER,
    SNAPSHOT,
    Landing,
    NamedStreams,
    decide,
    discarded_if_lost,
    discarded_on_error,
    named_streams,
)
from claimlib.commands.sources import (
    LastSnapshot,
    check_same_server,
    expected_snapshot,
    last_snapshot,
)
from claimlib.commands.staging import PageWriter
from claimlib.live.batches import Batch, SourceOpened
from claimlib.plans.differences import Scope, left_alone
from claimlib.plans.keys import sortable_as_id
from claimlib.runs import Begun, Decision, FinishedRun, Phase, Progress, run, silent
from claimlib.runs.journal import ServerIdentity, ServerProof, rows_of
from claimlib.runs.maintenance import COMMAND as MAINTAIN
from claimlib.runs.mirror_rows import CHANGED, discard_landing, in_bucket
from claimlib.schema import Kind
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import RemovalLimits
from claimlib.semantics.names import glob_pattern, unspell
from claimlib.store.guards import check_changeable
from claimlib.store.tables import Store

COMMAND = SNAPSHOT


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """State which server is read, and what is read from it.

    Attributes:
        source: the server as host:port/db, without credentials.
        stream_glob, group_glob: Redis' globs.  Streams and groups that do not match stay as they
            are in the store.
        fields: True if the payloads of pending entries are read, too.
        limits: how many rows of the store the snapshot may remove.

    Examples:
        >>> server = ServerReading("redis://localhost:6379/0")
        >>> SnapshotRequest(server.label, stream_glob="orders:*").source
        'localhost:6379/0'
    """

    source: str
    stream_glob: str = "*"
    group_glob: str = "*"
    fields: bool = True
    limits: RemovalLimits = field(default_factory=RemovalLimits)

    def __post_init__(self) -> None:
        """Raise an error if a glob is not valid, before anything is read."""
        glob_pattern(self.stream_glob)
        glob_pattern(self.group_glob)

    def as_json(self) -> dict[str, object]:
        """Return the JSON values that are stored with the run."""
        return {
            "source": self.source,
            "stream_glob": self.stream_glob,
            "group_glob": self.group_glob,
            "fields": self.fields,
            **self.limits.as_json(),
        }


@dataclass(frozen=True, slots=True)
class SnapshotReply:
    """Hold the result of a snapshot.

    Attributes:
        is_repeat: True if an earlier call with the same run id did the snapshot.
        counts: numbers of rows and of other things.
            streams, groups: the streams and groups that were read.
            pending_read, entries_read: the rows that were read.
            commands: the commands that were sent to the server.
            vanished: streams and groups that were deleted while they were read.
            pending_written: new and changed rows.
            pending_new, pending_replaced, pending_removed, entries_new, entry_filled,
            entry_removed, group_removed, consumer_removed, stream_removed: rows, as decided.
            lost: the number of these rows that another writer changed first.
            claims_replaced: the replaced rows that a run of the store had given to another
            consumer.  Missing if there are none.  Claims that were written back or undone do not
            count.  If the server lost written-back claims, `replication_changed` shows it.
            server_restarted: 1 if the server's run id has changed since the last snapshot.
            replication_changed: 1 if its replication id has changed since the last snapshot.
            removed_unexplained: removed rows of pending and entries whose removal the server does
            not explain.  Missing if there are none.
            same_run_id, same_replication_id: 1 if this id proved that a server with another name is
            the one that was read before.
            master_down: masters that did not answer.
            stream_left: streams of these masters, which stay as they are in the store.
        streams: the streams that were removed, or replaced by others of the same name.
        former_source: the name of the server at the previous snapshot.  None unless a proof was
            needed that this is the same server.
        masters_down: the number of slots and the error of each master of the cluster that did not
            answer.  The streams of these masters are as they were at their last snapshot.
    """

    run_id: str
    run_seq: int
    is_repeat: bool
    source: str
    counts: Mapping[str, int]
    streams: NamedStreams = field(default_factory=NamedStreams)
    former_source: str | None = None
    masters_down: tuple[str, ...] = ()


Spans = Mapping[bytes, tuple[StreamId, StreamId]]
"""Map streams to the first and the last of the ids that a reader must also read."""
Read = Callable[[Spans], Iterable[Batch]]


def snapshot(
    store: Store,
    request: SnapshotRequest,
    read: Read,
    *,
    run_id: str | None = None,
    progress: Progress | None = None,
) -> SnapshotReply:
    """Make a store equal to the streams, groups, consumers and PELs of a server.

    The result is correct even if clients use the server meanwhile.  Each pending row was pending
    when its page was read.  Each id that is found absent was absent when its stream was read.  A
    stream is read after its PELs.

    Args:
        request: the server, and which of its streams and groups are read.
        read: reads the server from the start, as `live.batches` describes.  It is called again only
            if a newer snapshot was decided first, or the staged rows may have been deleted.
        run_id: identifies the run, together with the command.  A repeat with the same run id
            changes nothing.
        progress: called as each phase begins, and as the reading advances.

    Raises:
        SourceMismatchError: the store mirrors another source.  If only the name of the source
            differs, the server's ids decide (see `sources.check_same_server`).
        NotAMirrorError: the store has rows, but mirrors no source.
        EmptySourceError, GuardError: the snapshot would remove more than the limits allow.
        SourceError: the server cannot be read.
    """
    reader = _Reader(store, request, read, progress)
    with discarded_if_lost(store, COMMAND, reader.discard):
        finished = run(
            store,
            command=COMMAND,
            request=request.as_json(),
            decide=reader.decide,
            run_id=run_id,
            progress=progress,
        )
    return SnapshotReply(
        run_id=finished.run_id,
        run_seq=finished.run_seq,
        is_repeat=finished.is_repeat,
        source=request.source,
        counts=finished.counts,
        former_source=_former_source(store, finished),
        streams=named_streams(store, finished),
        masters_down=_masters_down(store, finished),
    )


def _masters_down(store: Store, finished: FinishedRun) -> tuple[str, ...]:
    if not finished.counts.get(Kind.MASTER_DOWN):
        return ()
    rows = rows_of(store, finished.run_seq, Kind.MASTER_DOWN).order_by("source").collect()
    return tuple(row["reason"] for row in rows)


def _former_source(store: Store, finished: FinishedRun) -> str | None:
    """Return the source of the previous snapshot, or None if no proof was needed."""
    if not any(finished.counts.get(proof) for proof in ServerProof):
        return None
    previous = last_snapshot(store.relation("runs").where(f"run_seq < {finished.run_seq:d}L"))
    return None if previous is None else previous.source


@dataclass
class _Reader:
    """Read a server, and decide a snapshot.

    If another run is decided first, `decide` is called again.  It then uses the rows that are
    already staged, so that the server need not be read again.

    Attributes:
        landing: the staged rows.  None if there are none.
        first_ms: the earliest snapshot time of the groups that were read.
        staged_seq: the number of the run that the rows were staged for.
    """

    store: Store
    request: SnapshotRequest
    read: Read
    progress: Progress | None
    landing: Landing | None = None
    first_ms: int = 0
    staged_seq: int = 0

    def decide(self, begun: Begun) -> Decision:
        last = expected_snapshot(begun, self.request.source)
        check_changeable(begun.store, CHANGED)
        if self.landing is not None and self._is_outdated(begun):
            self.discard()
        if self.landing is None:
            self.staged_seq = begun.run_seq
            self.landing = self._stage(begun, last)
        return decide(begun, self.landing, self.request.limits)

    def discard(self) -> None:
        """Delete the staged rows, because no decision will name them."""
        if self.landing is not None:
            discard_landing(self.store, self.landing.uuid)
            self.landing = None

    def _stage(self, begun: Begun, last: LastSnapshot | None) -> Landing:
        scope = Scope(self.request.stream_glob, self.request.group_glob)
        pages = PageWriter(self.store, uuid.uuid4().hex, self.request.source, scope)
        tell = self.progress or silent
        tell(Phase.READ, "the server")
        with discarded_on_error(self.store, pages.uuid):
            for batch in self.read(_spans(begun, scope)):
                pages.add(batch)
                # This batch is the first one, so a wrong server is refused before rows are staged.
                if isinstance(batch, SourceOpened):
                    self._proof_count(begun, last, pages.server)
                tell(Phase.READ, pages.so_far())
            proof_count = self._proof_count(begun, last, pages.server)
            landing = pages.finish()
        self.first_ms = pages.first_ms
        previous = last_snapshot(begun.relation("runs"))
        previous_server = ServerIdentity() if previous is None else previous.server
        server = landing.server.with_missing(previous_server, len(landing.down))
        counts = {**landing.counts, **_changed_ids(previous_server, server), **proof_count}
        return replace(landing, counts=counts, server=server)

    def _proof_count(
        self, begun: Begun, last: LastSnapshot | None, server: ServerIdentity
    ) -> dict[str, int]:
        """Return the count that names the proof that the server is the expected one.

        The result is empty if any server may be read.

        Args:
            last: see `sources.expected_snapshot`.

        Raises:
            SourceMismatchError: there is no proof.
        """
        if last is None:
            return {}
        return {str(check_same_server(begun, last, self.request.source, server)): 1}

    def _is_outdated(self, begun: Begun) -> bool:
        """Return True if the staged rows cannot be used.

        Either the store has a newer snapshot, or `maintain` may have deleted them.
        """
        maintained = f"command = '{MAINTAIN}' AND run_seq >= {self.staged_seq:d}L"
        if not begun.relation("runs").where(maintained).is_empty():
            return True
        groups = begun.relation("groups")
        (newest,) = groups.sql("SELECT max(snapshot_ms) AS ms FROM {this} AS this").collect()
        return (newest["ms"] or 0) > self.first_ms


def _spans(begun: Begun, scope: Scope) -> Spans:
    """Return the first and the last pending id of the groups that are not read, by stream.

    Only streams that are read count.  The entries in between, and the proof that they are complete,
    must stay in the store.
    """
    if scope.group_glob == "*":
        return {}
    pending = in_bucket(begun.store, begun.relation("pending"), scope)
    return {
        unspell(row["stream"]): (sortable_as_id(row["low"]), sortable_as_id(row["high"]))
        for row in left_alone(pending, scope).collect()
    }


def _changed_ids(last: ServerIdentity, server: ServerIdentity) -> dict[str, int]:
    """Return a count of 1 for each id of the server that has changed since the last snapshot.

    The ids are the run id and the replication id.  An unknown id does not count as changed.
    """
    pairs = ({last.run_id, server.run_id}, {last.replication_id, server.replication_id})
    compared = zip(OTHER_SERVER, pairs, strict=True)
    return {name: 1 for name, ids in compared if None not in ids and len(ids) > 1}
