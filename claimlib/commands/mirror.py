"""Decide a snapshot or an import, which makes a store the mirror of one source.

Both stage the rows that they read.  This module compares the staged rows with the store, checks the
differences, and builds a decision.  The decision names every row that it changes or removes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from claimlib.commands.preconditions import groups_like, refuse_shared_hashes
from claimlib.commands.removal_guard import SourceState, check_removals
from claimlib.commands.run_commands import UNDO, WRITEBACK
from claimlib.commands.runs import claiming_undos
from claimlib.engine.changes import lacking
from claimlib.engine.relation import Relation, Rows, union_by_name
from claimlib.errors import (
    EmptySourceError,
    ForeignRunSeqError,
    LostRaceError,
    NameSpellingError,
    StoreBusyError,
    VerificationError,
    VersionExpiredError,
)
from claimlib.live.batches import MasterDown
from claimlib.live.cluster import slot_of
from claimlib.local_rows import arrow_table
from claimlib.plans import differences
from claimlib.plans.differences import Comparison, Digest, Scope
from claimlib.plans.journal_rows import JOURNAL_ROW
from claimlib.plans.keys import GROUP, IS_SHARED, named_keys
from claimlib.runs import Begun, Decision, FinishedRun
from claimlib.runs.journal import ServerIdentity, Staged, rows_of
from claimlib.runs.mirror_rows import (
    NEW,
    REMOVED_KINDS,
    SMALL_TABLES,
    TABLES_WRITTEN,
    digests_of,
    discard_landing,
    entries_in_scope,
    in_bucket,
    staged_entries,
    staged_pending,
    without_streams,
)
from claimlib.schema import TABLES, Kind, quote_text
from claimlib.semantics.ids import to_bigint
from claimlib.semantics.model import RemovalLimits
from claimlib.semantics.names import unspell
from claimlib.semantics.stream_life import StreamCounters
from claimlib.store.tables import Store
from claimlib.terminal import number_of

SNAPSHOT, IMPORT = "snapshot", "import"
"""Name the command that reads a server, and the command that reads given tables."""
CLAIMS_REPLACED = "claims_replaced"
"""Name the count of claims of the store that a snapshot or an import replaced."""
UNEXPLAINED = "removed_unexplained"
"""Name the count of removed rows that the source does not explain."""
REPLACED = "another stream of the same name was there at the last snapshot"
"""State the reason in the journal row of a stream that was deleted and created again."""
OTHER_SERVER = ("server_restarted", "replication_changed")
"""Name the counts that are 1 if the server's run id, or its replication id, has changed."""


@dataclass(frozen=True, slots=True)
class Landing:
    """Hold what was read from a source and staged under a uuid.

    Attributes:
        source: the name of the source.
        scope: the requested streams and groups.
        small: by table (groups, consumers, streams), one journal row per row that was read.
        rows: the numbers of rows of pending and of entries that the reader returned.  None if the
            reader did not count them.
        server: the ids of the server process.  They are None if the source consists of tables.
        counts: other counts of the report.
        would_explain: see `SourceState`.
        closing: see `SourceState`.
        down: the masters of a cluster that did not answer.
        left: journal rows with the stored streams of these masters, which do not change.  None if
            all masters answered.
    """

    uuid: str
    source: str
    scope: Scope
    small: Mapping[str, Relation]
    rows: tuple[int, int] | None = None
    server: ServerIdentity = field(default_factory=ServerIdentity)
    counts: Mapping[str, int] = field(default_factory=dict)
    would_explain: Mapping[str, str] = field(default_factory=dict)
    closing: Mapping[str, StreamCounters] = field(default_factory=dict)
    down: tuple[MasterDown, ...] = ()
    left: Relation | None = None

    def stored(self, begun: Begun, table: str) -> Relation:
        """Return rows of a table that include all that the staged rows may change."""
        rows = begun.relation(table)
        if table not in SMALL_TABLES:
            rows = in_bucket(begun.store, rows, self.scope)
        return without_streams(rows, self.left)


def decide(begun: Begun, landing: Landing, limits: RemovalLimits) -> Decision:
    """Return the decision that makes a store equal to the staged rows.

    The decision has one journal row for every row that it replaces, fills or removes.

    Raises:
        EmptySourceError, GuardError: the source would remove too much.  The staged rows are
            deleted.
        VerificationError: the reader returned other numbers of rows than were staged.
        ForeignRunSeqError: rows of the store have run numbers that its runs have not reached.
        HashCollisionError: two names of the source and the store share a hash.
    """
    with discarded_on_error(begun.store, landing.uuid):
        if landing.down:
            landing = replace(landing, left=_left_streams(begun, landing))
        return _decide(begun, landing, limits)


def _left_streams(begun: Begun, landing: Landing) -> Relation:
    """Return one journal row per stored stream of a master that did not answer."""
    masters = {slot: master.label for master in landing.down for slot in master.slots}
    tables = (begun.relation(table).distinct("stream") for table in TABLES_WRITTEN)
    stored = union_by_name(list(tables), {"stream": "STRING"})
    requested = stored.where(landing.scope.has_stream()).distinct("stream").collect()
    names = sorted(row["stream"] for row in requested)
    owners = ((name, _master_of(name, masters)) for name in names)
    rows = [(str(Kind.STREAM_LEFT), name, master) for name, master in owners if master is not None]
    return begun.store.rows("journal", rows, ["kind", "stream", "source"])


def _master_of(name: str, masters: Mapping[int, str]) -> str | None:
    """Return the label of the stream's master if that master is down, else None.

    A name with an invalid spelling belongs to no master.
    """
    try:
        return masters.get(slot_of(unspell(name)))
    except NameSpellingError:
        return None


def _masters_down(begun: Begun, landing: Landing) -> Relation:
    """Return one journal row per master that did not answer."""
    rows = [
        (str(Kind.MASTER_DOWN), master.label, f"{len(master.slots):,} slots: {master.reason}")
        for master in landing.down
    ]
    return begun.store.rows("journal", rows, ["kind", "source", "reason"])


@contextmanager
def discarded_on_error(store: Store, uuid: str) -> Iterator[None]:
    """Delete staged rows if their decision fails, because no other decision names them.

    They stay if a version has expired, because the run then decides again.
    """
    try:
        yield
    except VersionExpiredError:
        raise  # the run decides again, with the same staged rows
    except Exception:
        # Spark itself may be the cause.  Then this fails too, and the first error is raised.
        with suppress(Exception):
            discard_landing(store, uuid)
        raise


@contextmanager
def discarded_if_lost(store: Store, command: str, discard: Callable[[], None]) -> Iterator[None]:
    """Delete what a run has staged if other runs overtook it.

    The run no longer holds the lock, so the lock is taken again.  If another process still holds it
    after `Store.lock.wait_ms`, the staged rows stay.  They have no effect, because no decision
    names them.

    Args:
        discard: deletes the staged rows.
    """
    try:
        yield
    except LostRaceError:
        with suppress(StoreBusyError), store.lock.held_for(command):
            discard()
        raise


def _decide(begun: Begun, landing: Landing, limits: RemovalLimits) -> Decision:
    pending, entries = digests_of(begun.store, landing.uuid)
    begun.tell_detail(f"{pending.rows:,} pending, {number_of(entries.rows, 'entry', 'entries')}")
    if landing.rows is not None and landing.rows != (pending.rows, entries.rows):
        read_pending, read_entries = landing.rows
        raise VerificationError(
            f"{landing.source}: {read_pending:,} pending entries and {read_entries:,} stream"
            f" entries were read, but {pending.rows:,} and {entries.rows:,} arrived in the staging"
            " tables of the store. Nothing was changed; try again",
            source=landing.source,
        )
    survey = _survey(begun, landing)
    _check_hashes(begun, landing)
    staged = {"pending": pending, "entries": entries}
    changes = {
        table: changes_of(begun, landing)
        if survey.stored[table]
        else _Changes(stored=0, new=staged[table].rows, after=staged[table])
        for table, changes_of in _CHANGES.items()
    }
    _refuse_foreign_run_seq(begun, survey, changes)
    _refuse_empty(begun, landing, survey, changes, limits)
    with_removals = {
        table: change.by_key
        for table, change in changes.items()
        if change.removed and change.by_key is not None
    }
    # If the source is empty, `_refuse_empty` has allowed it.  Then any share may be removed.
    limit = limits.max_removed_share if any(survey.staged.values()) else 1
    removals = check_removals(begun, _source_state(landing), with_removals, limit)
    streams = _with_replaced(landing.small["streams"], removals.replaced_streams, begun.store)
    rows = union_by_name(
        [
            *({**landing.small, "streams": streams}).values(),
            *(
                _removed_rows(begun, landing, table)
                for table in SMALL_TABLES
                if survey.stored[table]
            ),
            *(change.rows for change in changes.values() if change.rows is not None),
            *([] if landing.left is None else [_masters_down(begun, landing), landing.left]),
        ],
        JOURNAL_ROW,
    )
    return Decision(
        rows,
        staged=Staged(
            landing.uuid,
            versions=begun.store.pin(("pel_snapshots", "entry_landing")).versions,
            pending=pending,
            entries=entries,
            small=survey.staged,
            pending_after=changes["pending"].after,
            entries_after=changes["entries"].after,
        ),
        source=landing.source,
        server=landing.server,
        counts={
            **landing.counts,
            **{NEW[table]: change.new for table, change in changes.items()},
            **({CLAIMS_REPLACED: claims} if (claims := changes["pending"].claims) else {}),
            **({UNEXPLAINED: removals.unexplained} if removals.unexplained else {}),
        },
    )


@dataclass(frozen=True, slots=True)
class _Survey:
    """Hold the numbers of rows that were read, and of rows that the store has, by table.

    Attributes:
        staged: the number of rows of the small tables that were read.
        stored: the number of rows in scope that the store has in the small tables.  For pending and
            entries it is 1 if a bucket of the scope has rows, else 0.
        last_run_seq: the largest run number in the stored rows of each small table.  None if there
            are no rows.
    """

    staged: Mapping[str, int]
    stored: Mapping[str, int]
    last_run_seq: Mapping[str, int | None]


def _survey(begun: Begun, landing: Landing) -> _Survey:
    """Count the rows, by one query."""
    stored = {
        table: landing.stored(begun, table).where(_in_scope(landing.scope, table))
        for table in SMALL_TABLES
    }
    for table in ("pending", "entries"):
        stored[table] = landing.stored(begun, table).limit(1)
    sides = {
        "staged": {table: rows.select("0L AS run_seq") for table, rows in landing.small.items()},
        "stored": stored,
    }
    parts = [
        rows.select(f"'{side}' AS side", f"'{table}' AS of", "run_seq")
        for side, tables in sides.items()
        for table, rows in tables.items()
    ]
    counted = union_by_name(parts, {"side": "STRING", "of": "STRING", "run_seq": "BIGINT"}).sql(
        "SELECT side, of, count(*) AS n, max(run_seq) AS last FROM {this} AS this GROUP BY side, of"
    )
    rows = counted.collect()
    numbers = Counter({(row["side"], row["of"]): row["n"] for row in rows})
    last = {row["of"]: row["last"] for row in rows if row["side"] == "stored"}
    return _Survey(
        staged={table: numbers["staged", table] for table in landing.small},
        stored={table: numbers["stored", table] for table in stored},
        last_run_seq={table: last.get(table) for table in SMALL_TABLES},
    )


# ------------------------------------------------------------------- changes


@dataclass(frozen=True, slots=True)
class _Changes:
    """Hold what the staged rows change in one table.

    Attributes:
        stored: the number of rows in scope that the store has.
        new: the number of rows that are added.
        after: the digest of the rows after the change.
        last_run_seq: the largest run number in the stored rows.  None if there are no rows.
        by_key: sums of the differences, see `Comparison.by_key`.  None if the store has no rows.
        removed: the number of rows that are removed.
        claims: the number of changed rows that a run of the store had claimed.  A claim does not
            count if a writeback made it on the server, or if an undo reversed it.
        rows: the journal rows of the changes.  None if only rows are added.
    """

    stored: int
    new: int
    after: Digest
    last_run_seq: int | None = None
    by_key: Relation | None = None
    removed: int = 0
    claims: int = 0
    rows: Relation | None = None


def _pending_changes(begun: Begun, landing: Landing) -> _Changes:
    rows = staged_pending(begun.store, landing.uuid)
    # An undo of an undo makes the claims again, so it counts as a claim.
    claims_again = ", ".join(map(str, claiming_undos(begun))) or "0"
    claims = begun.relation("runs").where(
        f"command NOT IN ('{SNAPSHOT}', '{IMPORT}', '{WRITEBACK}', '{UNDO}')"
        f" OR run_seq IN ({claims_again})"
    )
    stored = landing.stored(begun, "pending").where(landing.scope.has_group())
    with_claims = stored.sql(
        "SELECT * FROM {this} AS this LEFT JOIN"
        " (SELECT run_seq, true AS is_claim FROM {claims} AS claims) AS claims USING (run_seq)",
        claims=claims,
    )
    return _changes(differences.PENDING, rows, with_claims)


def _entry_changes(begun: Begun, landing: Landing) -> _Changes:
    entries = landing.stored(begun, "entries")
    rows = staged_entries(begun.store, landing.uuid)
    stored = entries_in_scope(entries, _bounds(begun.store, landing), landing.scope)
    return _changes(differences.ENTRIES, rows, differences.with_known_absence(stored))


def _bounds(store: Store, landing: Landing) -> Relation:
    """Return one row per stream that was read, with its `differences.BOUNDS`."""
    firsts = [
        (name, to_bigint(counters.first_id.ms), to_bigint(counters.first_id.seq))
        for name, counters in landing.closing.items()
        if counters.first_id is not None
    ]
    first = Relation(store.engine, Rows(arrow_table(firsts, _FIRST_IDS)))
    return landing.small["streams"].sql(
        f"SELECT stream, {', '.join(differences.BOUNDS)} FROM {{this}} AS this"
        " LEFT JOIN {first} AS first USING (stream)",
        first=first,
    )


_FIRST_IDS = pa.schema(
    [("stream", pa.string()), ("first_ms", pa.int64()), ("first_seq", pa.int64())]
)
_CHANGES = {"pending": _pending_changes, "entries": _entry_changes}


def _changes(table: Comparison, rows: Relation, stored: Relation) -> _Changes:
    """Return the changes that the staged rows make to the stored ones."""
    # Used twice.  Spark does not keep many rows, but joins them again, to save memory.
    compared = table.compared(rows, stored).kept()
    by_key = table.by_key(compared).fetched()
    sums = by_key.arrow()

    def total(name: str) -> int:
        return pc.sum(sums[name]).as_py() or 0

    after = (pc.struct_field(sums["after"], name) for name in ("rows", "high", "low"))
    changed, removed = total("changed"), total("removed")
    return _Changes(
        stored=total("stored"),
        new=total("new"),
        after=Digest(*(pc.sum(column).as_py() or 0 for column in after)),
        last_run_seq=pc.max(sums["last_run_seq"]).as_py(),
        by_key=by_key,
        removed=removed,
        claims=total("claims"),
        rows=table.journal_rows(compared) if changed or removed else None,
    )


def _removed_rows(begun: Begun, landing: Landing, table: str) -> Relation:
    """Return one journal row per row of a small table that the source no longer has."""
    stored = landing.stored(begun, table).where(_in_scope(landing.scope, table))
    gone = lacking(table, stored, landing.small[table])
    return gone.select(
        f"'{REMOVED_KINDS[table]}' AS kind",
        *TABLES[table].key,
        *(f"{name} AS {journal_name}" for name, journal_name in SMALL_TABLES[table].items()),
    )


def _in_scope(scope: Scope, table: str) -> str:
    """Return the SQL condition for the rows of a small table that are in the scope."""
    return scope.has_whole_stream() if table == "streams" else scope.has_group()


# ------------------------------------------------------------------- refusals


def _refuse_empty(
    begun: Begun,
    landing: Landing,
    survey: _Survey,
    changes: Mapping[str, _Changes],
    limits: RemovalLimits,
) -> None:
    """Raise EmptySourceError if the source is empty, unless the limits allow it.

    An empty source is refused if the store has rows.  It is also refused if the request has globs
    and all masters answered, because the globs may be wrong.
    """
    if limits.allow_empty or survey.staged["groups"] or survey.staged["streams"]:
        return
    stored = [table for table, change in changes.items() if change.stored]
    stored += [table for table in ("groups", "streams") if survey.stored[table]]
    if stored:
        raise EmptySourceError(
            f"{landing.source} has no stream and no group that matches the request, but the store"
            f" {begun.store.where} has such rows ({', '.join(stored)}), which would all be"
            " removed: was the server restarted or flushed? Nothing was changed. If the removal is"
            f" intended, run the command again with --allow-empty {_FOR_RESCUE}",
            source=landing.source,
            tables=stored,
        )
    globs = (landing.scope.stream_glob, landing.scope.group_glob)
    if globs != ("*", "*") and landing.left is None:
        known_groups = groups_like(begun.relation("groups"), [" / ".join(globs)])
        raise EmptySourceError(
            f"{landing.source} has no stream and no group that matches {' / '.join(globs)} (stream"
            f" / group), and neither has the store: {known_groups}. Nothing was changed. If no"
            f" match is acceptable, use --allow-empty {_FOR_RESCUE}",
            source=landing.source,
            tables=[],
        )


_FOR_RESCUE = "(for claimlib rescue: CLAIMLIB_MIRROR__ALLOW_EMPTY=true)"


def _source_state(landing: Landing) -> SourceState:
    return SourceState(
        name=landing.source,
        scope=landing.scope,
        groups=landing.small["groups"],
        streams=landing.small["streams"],
        closing=landing.closing,
        server=landing.server,
        would_explain=landing.would_explain,
    )


def _with_replaced(streams: Relation, replaced: tuple[str, ...], store: Store) -> Relation:
    """Return the journal rows of streams.

    A stream that replaced another one gets `REPLACED` as its reason.
    """
    if not replaced:
        return streams
    named = store.rows("journal", [(name, REPLACED) for name in replaced], ["stream", "reason"])
    return streams.sql(
        "SELECT * FROM {this} AS this LEFT JOIN {named} AS named USING (stream)", named=named
    )


@dataclass(frozen=True, slots=True)
class NamedStreams:
    """Hold the names of the streams that a run removed or found replaced.

    Attributes:
        removed, replaced: sorted names as in the tables, at most `MOST_NAMED`.
        replaced_count: the number of replaced streams.
    """

    removed: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    replaced_count: int = 0


MOST_NAMED = 20


def named_streams(store: Store, finished: FinishedRun) -> NamedStreams:
    """Return the streams that a finished snapshot or import removed or found replaced."""
    counts = finished.counts
    if not counts.get(Kind.STREAM_REMOVED) and not counts.get(UNEXPLAINED):
        return NamedStreams()
    rows = rows_of(store, finished.run_seq, Kind.STREAM_REMOVED, Kind.STREAM)
    removed = rows.where(f"kind = '{Kind.STREAM_REMOVED}'").select("stream")
    is_replaced = f"kind = '{Kind.STREAM}' AND reason = {quote_text(REPLACED)}"
    replaced = rows.where(is_replaced).select("stream")
    return NamedStreams(
        removed=_first_names(removed),
        replaced=_first_names(replaced),
        replaced_count=replaced.count(),
    )


def _first_names(streams: Relation) -> tuple[str, ...]:
    rows = streams.order_by("stream").limit(MOST_NAMED).collect()
    return tuple(row["stream"] for row in rows)


def _refuse_foreign_run_seq(begun: Begun, survey: _Survey, changes: Mapping[str, _Changes]) -> None:
    """Raise ForeignRunSeqError if rows have run numbers that no run of this store has.

    No run of this store would change such rows.
    """
    last = {table: change.last_run_seq for table, change in changes.items()}
    last |= {table: survey.last_run_seq[table] for table in SMALL_TABLES}
    for table, run_seq in last.items():
        if (run_seq or 0) >= begun.run_seq:
            raise ForeignRunSeqError(
                f"{table} has rows with run_seq {run_seq}, but the last run of this"
                f" store is {begun.run_seq - 1}: the rows were copied from another store, and no"
                f" run would change them. To repair them, run: {repairing_sql(begun, table)}",
                table=table,
                run_seq=run_seq,
            )


def repairing_sql(begun: Begun, table: str) -> str:
    """Return the statement that sets run numbers of another store to 0.

    The number 0 marks rows that no run of this store wrote.
    """
    identifier = begun.store.identifier(table)
    return f"UPDATE {identifier} SET run_seq = 0 WHERE run_seq >= {begun.run_seq}"


def _check_hashes(begun: Begun, landing: Landing) -> None:
    """Raise HashCollisionError if two names of the source and the store share a hash.

    Streams that share a hash are in one bucket, so other buckets are not read.
    """
    pending, entries = (
        in_bucket(begun.store, begun.relation(table), landing.scope)
        for table in ("pending", "entries")
    )
    groups, streams = (
        [landing.small[table], begun.relation(table)] for table in ("groups", "streams")
    )
    named = named_keys(
        pending,
        pending.limit(0),  # a snapshot compares no owners
        union_by_name(groups, dict.fromkeys(GROUP, "STRING")),
        union_by_name([*streams, entries], {"stream": "STRING"}),
    )
    refuse_shared_hashes(named.where(IS_SHARED).collect())
