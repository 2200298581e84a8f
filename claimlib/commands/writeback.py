"""Write a run back: make its claims, deletions and acknowledgements on the mirrored server.

The server is written while the writeback decides, because the outcome of each entry is part of the
decision.  A process that is killed in between leaves claims on the server that no journal row
names.  A repeat finds these claims on the server, and counts them as moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from claimlib.commands.run_commands import UNDO, WRITEBACK, WRITTEN_BACK
from claimlib.commands.runs import (
    find_run,
)
from claimlib.commands.server_view import changes_since, sources_of_groups
from claimlib.commands.sources import LastSnapshot, is_same_database
from claimlib.commands.writeback_checks import (
    check_no_newer_snapshot,
    check_unsent,
    checked_snapshot,
)
from claimlib.commands.xpending import Reading
from claimlib.engine.relation import Record, Relation, Rows, union_by_name
from claimlib.errors import (
    GuardError,
    NameSpellingError,
    RequestError,
    SourceMismatchError,
    SourceUnreachableError,
)
from claimlib.live.access import ServerAccess
from claimlib.live.cluster import Servers
from claimlib.live.connection import Source
from claimlib.live.pacer import LatencyLimit
from claimlib.live.replies import time_ms
from claimlib.live.writing import (
    IDS_PER_BATCH,
    Deletions,
    EntryBatch,
    FencedBatch,
    Outcome,
    PendingState,
    Written,
    remove_consumer,
    write_entries,
)
from claimlib.plans import previous
from claimlib.plans import writeback_plan as plan
from claimlib.plans.journal_rows import JOURNAL_ROW
from claimlib.plans.keys import GROUP, without
from claimlib.runs import (
    Begun,
    Decision,
    FinishedRun,
    Phase,
    Progress,
    begin_dry_run,
    run,
    silent,
)
from claimlib.runs.journal import ServerIdentity, rows_of
from claimlib.schema import Kind
from claimlib.semantics.names import unspell
from claimlib.store.tables import Store
from claimlib.times import format_duration_ms

COMMAND = WRITEBACK
DEFAULT_MAX_AGE_MS = 3_600_000
_NOT_SENT = Written(Outcome.TOUCHED)
_ROWS_AT_ONCE = 10_000
"""Limit the number of entries that are Python values at once, because these take much memory."""


@dataclass(frozen=True)
class WritebackReply:
    """Hold the counts of a writeback, or of its dry run.

    Attributes:
        run_seq: the number of the writeback, or None in a dry run.
        is_repeat: True if an earlier call with the same run id did the writeback.
        written: the key of the run that was written back.
        counts: numbers of entries and consumers.  A dry run has only `decided`.
            decided: the entries of the run that was written back.
            moved, acknowledged, touched, gone: the entries by outcome (`live.writing.Outcome`).
            Their sum is `decided`.
            lost: moved entries whose row in the store another writer changed first.
            consumers_removed, consumers_kept: retired consumers that the server no longer has, and
            that it still has.
    """

    run_id: str | None
    run_seq: int | None
    dry_run: bool
    is_repeat: bool
    written: str
    counts: Mapping[str, int]
    _groups: Callable[[], Relation] = field(repr=False)

    @cached_property
    def groups(self) -> Relation:
        """Return one row per group.

        Columns: stream, consumer_group, claims, removals, moved, acknowledged, touched, gone.  The
        last four are missing in a dry run.
        """
        return self._groups()


def writeback(
    store: Store,
    run_name: str,
    server: ServerAccess,
    *,
    run_id: str | None = None,
    max_age_ms: int = DEFAULT_MAX_AGE_MS,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> WritebackReply:
    """Make the claims, deletions and acknowledgements of a finished run on the server.

    Retired consumers are removed from the server, too.

    An entry that another client touched since the snapshot stays as it is, see `live.writing`.

    Args:
        run_name: the number, the key or the run id of the run, see `runs.find_run`.
        run_id: identifies the writeback, together with the command.  A repeat with the same run id
            changes nothing.
        max_age_ms: the greatest age that the snapshot of a group may have, by the server's clock.
        dry_run: True to check the run and count its entries, but write nothing.
        progress: called as each phase begins, and again with each new detail.

    Raises:
        RequestError: the run cannot be written back, it was written back before, or the server is
            a replica.
        NotAMirrorError, SourceMismatchError: the store does not mirror this server.
        GuardError: the snapshot is too old, or a newer one has replaced the changes of the run.
        SourceError: the server cannot be reached, or refuses a command.  Claims that were already
            made there stay.  A repeat recognizes them.
        RunKeyConflictError, LostRaceError: see `runs.run`.
        UnfinishedRunError: in a dry run, an earlier run is not yet applied.
    """
    finished = find_run_to_write_back(store, run_name)
    writing = _Writing(finished, server, max_age_ms, progress or silent)
    if dry_run:
        return writing.dry_run(store)
    done = run(
        store,
        command=COMMAND,
        request={"run": finished.key, "run_seq": finished.run_seq, "source": server.label},
        decide=writing.decide,
        run_id=run_id,
        progress=progress,
    )
    return _reply(store, done, finished)


def check_before_run(
    begun: Begun,
    server: ServerAccess,
    max_age_ms: int,
    chosen: Callable[[Relation], Relation],
) -> None:
    """Raise an error if a run that begins now could not be written back to a server.

    Args:
        max_age_ms: see `writeback`.
        chosen: returns the rows of the table `groups` that belong to the groups of the run.

    Raises:
        NotAMirrorError, SourceMismatchError: the store does not mirror this server.
        RequestError: the server is a replica.
        GuardError: the snapshot of a group is too old, and entries of the group are pending.
        SourceError: the server cannot be reached.
    """
    last = checked_snapshot(begun)
    # The run refuses groups without a snapshot time.
    dated = chosen(begun.relation("groups")).where("snapshot_ms IS NOT NULL")
    groups = dated.select(*GROUP, "snapshot_ms").fetched()
    with server.open() as servers:
        for source in servers.nodes:
            _check_server(begun, last, source)
        remedy = "Nothing was done. Take a new snapshot first"
        ages = _Ages(servers, _clocks(servers), max_age_ms, remedy)
        try:
            ages.check(groups)
        except (GuardError, NameSpellingError):
            # A group without pending entries may be too old or have an unusable name, because the
            # run leaves it alone.
            ages.check(_with_pending(groups, begun.relation("pending")))


def _clocks(servers: Servers) -> dict[Source, int]:
    return {source: time_ms(source.call("TIME")) for source in servers.nodes}


def _with_pending(groups: Relation, pending: Relation) -> Relation:
    return groups.sql(
        "SELECT this.* FROM {this} AS this LEFT SEMI JOIN {pending} AS pending"
        f" USING ({', '.join(GROUP)})",
        pending=pending.select(*GROUP),
    )


def find_run_to_write_back(store: Store, run_name: str) -> FinishedRun:
    """Return the finished run that is to be written back.

    Raises:
        RequestError: no finished run has this name, or runs of its command cannot be written back.
    """
    finished = find_run(store, run_name, WRITTEN_BACK)
    if finished.command not in WRITTEN_BACK:
        raise RequestError(
            f"run {finished.key} cannot be written back: only {', '.join(WRITTEN_BACK[:-1])} and"
            f" {WRITTEN_BACK[-1]} runs can",
            run=finished.key,
        )
    return finished


def _reply(store: Store, done: FinishedRun, finished: FinishedRun) -> WritebackReply:
    rows = partial(rows_of, store, done.run_seq, *plan.OUTCOMES)
    return WritebackReply(
        run_id=done.run_id,
        run_seq=done.run_seq,
        dry_run=False,
        is_repeat=done.is_repeat,
        written=finished.key,
        counts=done.counts,
        _groups=lambda: plan.written_by_group(rows()),
    )


@dataclass(frozen=True, slots=True)
class _Planned:
    """Hold the changes to send to the server.

    Attributes:
        entries: `plans.writeback_plan.entries`, in memory and in `ORDER`.
        retired: one row per consumer that the run retired.
        at_ms: the server's time before anything was sent.
    """

    entries: Relation
    retired: Sequence[Record]
    at_ms: int


@dataclass(frozen=True, slots=True)
class _Writing:
    """Send the changes of a run to the server, and build the decision from the outcomes.

    Attributes:
        finished: the run that is written back.
    """

    finished: FinishedRun
    server: ServerAccess
    max_age_ms: int
    tell: Progress

    def dry_run(self, store: Store) -> WritebackReply:
        """Return the reply of a dry run, which sends nothing."""
        begun = begin_dry_run(store, self.tell)
        with self.server.open() as servers:
            planned = self._planned(begun, servers)
        return WritebackReply(
            run_id=None,
            run_seq=None,
            dry_run=True,
            is_repeat=False,
            written=self.finished.key,
            counts={plan.DECIDED: planned.entries.count()},
            _groups=lambda: plan.planned_by_group(planned.entries),
        )

    def decide(self, begun: Begun) -> Decision:
        """Write the entries to the server, and return a decision with the outcome of each entry."""
        with self.server.open() as servers:
            planned = self._planned(begun, servers)
            written = self._send(servers, planned.entries)
            removed = [_remove(servers, row) for row in planned.retired]
        rows = plan.outcome_rows(written, planned.at_ms)
        claimed = rows.where(f"kind = '{Kind.MOVED}'").distinct(*GROUP, "consumer")
        before = previous.consumer_rows(claimed, begun.relation("consumers"))
        counts = {
            **dict.fromkeys(map(str, plan.OUTCOMES), 0),
            plan.DECIDED: written.count(),
            plan.CONSUMERS_REMOVED: removed.count(True),
            plan.CONSUMERS_KEPT: removed.count(False),
        }
        return Decision(union_by_name([rows, before], JOURNAL_ROW), counts=counts)

    def _planned(self, begun: Begun, servers: Servers) -> _Planned:
        """Check that the run may be written back, and return the changes to send."""
        last = checked_snapshot(begun)
        for source in servers.nodes:
            _check_server(begun, last, source)
        check_unsent(begun, self.finished)
        planned = self._changes_to_send(begun, servers)
        begun.tell_detail(f"{planned.entries.count():,} entries")
        return planned

    def _changes_to_send(self, begun: Begun, servers: Servers) -> _Planned:
        """Check the snapshots of the run's groups, and return the changes to send."""
        seq = self.finished.run_seq
        journal = partial(rows_of, begun.store, seq)
        decided = journal(*plan.WRITTEN)
        if self.finished.counts.get("lost"):
            decided = without(decided, journal(Kind.LOST))
        decided = decided.fetched()
        retired = journal(Kind.RETIRED).fetched()
        groups_of_run = union_by_name(
            [decided.distinct(*GROUP), retired.select(*GROUP)],
            {name: JOURNAL_ROW[name] for name in GROUP},
        ).fetched()
        clocks = _clocks(servers)
        self._check_snapshots(begun, groups_of_run, servers, clocks)
        at = Reading(begun.store, {"groups": begun.pins.versions["groups"]}, seq)
        read = sources_of_groups(at)
        if read is None:
            raise AssertionError("no snapshot, although `checked_snapshot` found one")
        pending = begun.relation("pending")
        if self.finished.command == UNDO:
            rows = plan.undone_entries(decided, pending, IDS_PER_BATCH)
        else:
            rows = plan.entries(
                decided,
                journal(*plan.JUDGED),
                begun.relation("groups"),
                pending,
                changes_since(at, read),
                IDS_PER_BATCH,
            )
        return _Planned(
            rows.order_by(*plan.ORDER).fetched(), retired.collect(), max(clocks.values())
        )

    def _check_snapshots(
        self,
        begun: Begun,
        groups_of_run: Relation,
        servers: Servers,
        clocks: Mapping[Source, int],
    ) -> None:
        """Raise GuardError if the snapshot of a group of the run is too old, or was replaced."""
        check_no_newer_snapshot(begun, self.finished, groups_of_run)
        groups = groups_of_run.sql(
            "SELECT stream, consumer_group, snapshot_ms FROM {this} AS this"
            f" LEFT JOIN {{groups}} AS g USING ({', '.join(GROUP)})",
            groups=begun.relation("groups").select(*GROUP, "snapshot_ms"),
        )
        remedy = (
            "Nothing was sent. Take a new snapshot, run the"
            f" {self.finished.command} again, and write that back"
        )
        _Ages(servers, clocks, self.max_age_ms, remedy).check(groups)

    def _send(self, servers: Servers, entries: Relation) -> Relation:
        """Send the entries, and return them with `outcome` and `moved_ms`.

        Entries that the store has changed since the run are not sent.  They count as touched.
        """
        all_rows, sent = entries.arrow(), 0
        rows = all_rows.filter(all_rows["is_current"])
        changed = all_rows.filter(pc.invert(all_rows["is_current"]))
        written = [_with_outcomes(changed, [_NOT_SENT] * changed.num_rows)]
        limit = LatencyLimit(self.server.max_latency_ms, partial(self.tell, Phase.SEND))
        try:
            limit.wait(servers.nodes)
            for first in range(0, rows.num_rows, _ROWS_AT_ONCE):
                part, outcomes_of_part = rows.slice(first, _ROWS_AT_ONCE), list[Written]()
                for outcomes in write_entries(servers, _batches(part)):
                    outcomes_of_part += outcomes
                    sent += len(outcomes)
                    self.tell(Phase.SEND, f"{sent:,} of {rows.num_rows:,} entries")
                    limit.wait(servers.nodes)
                written.append(_with_outcomes(part, outcomes_of_part))
        except SourceUnreachableError as error:
            raise SourceUnreachableError(
                f"{error.message}. The server has answered for {sent:,} of {rows.num_rows:,}"
                " entries: repeat the command, which recognizes its own claims",
                source=error.fields.get("source", self.server.label),
            ) from error
        return Relation(entries.engine, Rows(pa.concat_tables(written)))


@dataclass(frozen=True, slots=True)
class _Ages:
    """Check the ages of the snapshots of groups.

    Attributes:
        clocks: the time of each server.
        remedy: the text for messages that states what was not done, and what to do.
    """

    servers: Servers
    clocks: Mapping[Source, int]
    max_age_ms: int
    remedy: str

    def check(self, groups: Relation) -> None:
        """Raise GuardError if the snapshot of a group is too old.

        Args:
            groups: stream, consumer_group and snapshot_ms.
        """
        # For each server, only the oldest snapshot is checked.
        oldest: dict[Source, Record] = {}
        for row in groups.order_by("snapshot_ms", *GROUP).collect():
            oldest.setdefault(self.servers.source_of(unspell(row["stream"])), row)
        for source, row in oldest.items():
            self._check(source, row)

    def _check(self, source: Source, oldest: Record) -> None:
        name = f"{oldest['stream']} / {oldest['consumer_group']}"
        if oldest["snapshot_ms"] is None:
            raise GuardError(
                f"{name} has no snapshot time, so it is unknown which entries changed since."
                f" {self.remedy}",
                group=name,
            )
        age_ms = self.clocks[source] - oldest["snapshot_ms"]
        if age_ms < 0:
            raise GuardError(
                f"the clock of {source.label} is {format_duration_ms(-age_ms)} behind the"
                f" snapshot time of {name}, so it is unknown which entries changed since."
                f" {self.remedy}",
                group=name,
            )
        if age_ms > self.max_age_ms:
            raise GuardError(
                f"the snapshot of {name} is {format_duration_ms(age_ms // 1000 * 1000)} old, more"
                f" than --max-age {format_duration_ms(self.max_age_ms)}. {self.remedy}, or raise"
                " --max-age",
                group=name,
                age_ms=age_ms,
            )


_BATCH_KEY = (*GROUP, *plan.BATCH)


def _batches(rows: pa.Table) -> Iterator[EntryBatch]:
    """Yield the batches of entries, in the order of the rows.

    A batch has entries with the same `_BATCH_KEY`, at most `IDS_PER_BATCH`.
    """
    ids, first = rows["id"].to_pylist(), 0
    keys = zip(*(rows[name].to_pylist() for name in _BATCH_KEY), strict=True)
    for key, of_batch in groupby(keys):
        end = first + sum(1 for _ in of_batch)
        for start in range(first, end, IDS_PER_BATCH):
            yield _batch(*key, ids=ids[start : min(start + IDS_PER_BATCH, end)])
        first = end


def _batch(
    stream: str,
    group: str,
    is_claim: bool,
    is_ack: bool,
    consumer: str | None,
    count: int | None,
    latest_ms: int,
    server_consumer: str | None,
    server_count: int | None,
    *,
    ids: Sequence[str],
) -> EntryBatch:
    names = unspell(stream), unspell(group)
    if not (is_claim or is_ack):
        return Deletions(*names, ids)
    expected, claimed = _state(server_consumer, server_count), _state(consumer, count)
    return FencedBatch(*names, ids, expected, latest_ms, claimed)


def _state(consumer: str | None, count: int | None) -> PendingState | None:
    return None if consumer is None or count is None else PendingState(unspell(consumer), count)


def _remove(servers: Servers, row: Record) -> bool:
    """Remove a consumer from its server.  Return True if the server no longer has it."""
    stream, group, consumer = (unspell(row[name]) for name in (*GROUP, "consumer"))
    return remove_consumer(servers.source_of(stream), stream, group, consumer)


def _with_outcomes(entries: pa.Table, written: Sequence[Written]) -> pa.Table:
    outcomes = pa.array([str(entry.outcome) for entry in written], pa.string())
    moved_ms = pa.array([entry.delivery_time_ms for entry in written], pa.int64())
    return entries.append_column("outcome", outcomes).append_column("moved_ms", moved_ms)


def _check_server(begun: Begun, last: LastSnapshot, source: Source) -> None:
    """Raise an error if a server is not proven to be that of the last snapshot, or is a replica.

    Raises:
        SourceMismatchError: nothing proves that the server is the same, or the database is another.
        RequestError: the server is a replica.
    """
    server = source.server
    if server.is_replica:
        raise RequestError(
            f"{source.label} is a replica, which takes no writes: give the address of its master",
            source=source.label,
        )
    now = ServerIdentity(server.run_id, server.replication_id, server.former_replication_id)
    if not is_same_database(source.label, last.source) or now.proof_of(last.server) is None:
        raise SourceMismatchError(
            f"nothing proves that {source.label} is the server that the last snapshot of"
            f" {begun.store.where} read as {last.source}"
            f"{'' if now.run_id else ' (grant the user +info)'}: it is another one, or was"
            " restarted since. Nothing was sent. Take a new snapshot, and run the command again",
            kept=last.source,
            requested=source.label,
        )
