"""What a snapshot and an import have in common: each makes a store the mirror of one source.

Both stage what they read; here that is compared with the store, judged, and turned into a decision
that names every row that it changes or removes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from claimlib.commands.preconditions import groups_like, refuse_shared_hashes
from claimlib.commands.removal_guard import SourceState, check_removals
from claimlib.engine.relation import Relation, Rows, union_by_name
from claimlib.engine.spark import frame_of
from claimlib.errors import (
    EmptySourceError,
    ForeignRunSeqError,
    NotAMirrorError,
    SourceMismatchError,
    VerificationError,
    VersionExpiredError,
)
from claimlib.local_rows import arrow_table
from claimlib.plans import differences
from claimlib.plans.differences import Comparison, Digest, Scope
from claimlib.plans.journal_rows import union_rows
from claimlib.plans.keys import GROUP, IS_SHARED, IdBounds, named_keys
from claimlib.plans.requests import PROVEN_RANGE
from claimlib.runs import Begun, Decision, Finished, pinned
from claimlib.runs.journal import ServerIdentity, Staged, rows_of
from claimlib.runs.mirror import (
    NEW,
    REMOVED_KINDS,
    SMALL_TABLES,
    digests_of,
    discard_landing,
    entries_in_scope,
    staged_entries,
    staged_pending,
)
from claimlib.runs.rollforward import ABANDONED
from claimlib.schema import TABLES, Kind, quote_text
from claimlib.semantics.ids import to_bigint
from claimlib.semantics.model import RemovalLimits
from claimlib.semantics.names import literal_name, spell
from claimlib.semantics.stream_life import StreamCounters
from claimlib.store.tables import FEW_ROWS, Store
from claimlib.terminal import number_of

SNAPSHOT, IMPORT = "snapshot", "import"
"""The command that reads a server, and the one that reads given tables."""
CLAIMS_REPLACED = "claims_replaced"
"""What a snapshot's or an import's report counts of claims that the store had made."""
UNEXPLAINED = "removed_unexplained"
"""The name of the count of removed rows that the source does not explain."""
REPLACED = "another stream of the same name was there at the last snapshot"
"""The reason in the journal row of a stream that was deleted and created again."""
OTHER_SERVER = ("server_restarted", "replication_changed")
"""What a snapshot counts (1) where the server's run id, or its replication id, is another one."""


@dataclass(frozen=True, slots=True)
class Landing:
    """What was read of a source, staged under a uuid.

    Attributes:
        source: what the store mirrors.
        scope: what was requested.
        small: by table (groups, consumers, streams) its journal rows, one per row that was read.
        rows: how many rows of pending and of entries the reader handed over; null: not counted.
        server: of which server process; nothing is known of tables.
        counts: what else the report counts.
        would_explain: see `SourceState`.
        closing: see `SourceState`.
    """

    uuid: str
    source: str
    scope: Scope
    small: Mapping[str, DataFrame]
    rows: tuple[int, int] | None = None
    server: ServerIdentity = field(default_factory=ServerIdentity)
    counts: Mapping[str, int] = field(default_factory=dict)
    would_explain: Mapping[str, str] = field(default_factory=dict)
    closing: Mapping[str, StreamCounters] = field(default_factory=dict)


def decide(begun: Begun, landing: Landing, limits: RemovalLimits) -> Decision:
    """The decision that brings a store to what was staged: every row that it replaces, fills or
    removes is one of its journal rows.

    Raises:
        EmptySourceError, GuardError: the source would take away too much; the landing is deleted.
        VerificationError: what was staged is not what the reader handed over.
        ForeignRunSeqError: rows of the store bear run numbers that its runs have not reached.
        HashCollisionError: two names of the source and the store share a hash.
    """
    with discarded_on_error(begun.store, landing.uuid):
        return _decide(begun, landing, limits)


@contextmanager
def discarded_on_error(store: Store, uuid: str) -> Iterator[None]:
    """Delete a landing, if what makes a decision of it fails: nobody will name it any more."""
    try:
        yield
    except VersionExpiredError:
        raise  # the run decides again, of the same landing
    except Exception:
        # Spark itself may be the cause: then this fails too, and the cause is what is to be told.
        with suppress(Exception):
            discard_landing(store, uuid)
        raise


def _decide(begun: Begun, landing: Landing, limits: RemovalLimits) -> Decision:
    pending, entries = digests_of(begun.store, landing.uuid)
    begun.tell_size(f"{pending.rows:,} pending, {number_of(entries.rows, 'entry', 'entries')}")
    if landing.rows is not None and landing.rows != (pending.rows, entries.rows):
        of_pending, of_entries = landing.rows
        raise VerificationError(
            f"{landing.source}: {of_pending:,} pending entries and {of_entries:,} stream entries"
            f" were read, but {pending.rows:,} and {entries.rows:,} arrived in the staging tables"
            " of the store. Nothing was changed; try again",
            source=landing.source,
        )
    survey = _surveyed(begun, landing)
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
    due = {
        table: change.by_key
        for table, change in changes.items()
        if change.removed and change.by_key is not None
    }
    # An empty source was allowed, if there is nothing: then any share is.
    limit = limits.max_removed_share if any(survey.staged.values()) else 1
    removals = check_removals(begun, _source_state(landing), due, limit)
    streams = _with_replaced(landing.small["streams"], removals.replaced_streams, begun.store)
    rows = union_rows(
        [
            *({**landing.small, "streams": streams}).values(),
            *(_removed(begun, landing, table) for table in SMALL_TABLES if survey.stored[table]),
            *(change.rows for change in changes.values() if change.rows is not None),
        ]
    )
    if all(map(begun.store.is_small, _CHANGES)):
        rows = begun.store.few_or_all(rows, FEW_ROWS)
    return Decision(
        begun.store.relation_of(rows),
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
    """What a landing and a store have, by table.

    Attributes:
        staged: rows of the small tables that were read.
        stored: rows of the store: of the small tables those in scope; of pending and entries 1
            where a bucket that may have some has any, else 0.
        last_run_seq: of the small tables' stored rows the largest run number; null: there are none.
    """

    staged: Mapping[str, int]
    stored: Mapping[str, int]
    last_run_seq: Mapping[str, int | None]


def _surveyed(begun: Begun, landing: Landing) -> _Survey:
    """One query."""
    stored = {
        table: begun.read(table).where(_in_scope(landing.scope, table)) for table in SMALL_TABLES
    }
    lies_in = landing.scope.lies_in(begun.store.buckets)
    stored |= {table: begun.read(table).where(lies_in).limit(1) for table in ("pending", "entries")}
    no_number = F.lit(None).cast("BIGINT")
    parts = [
        *(_marked(frame, "staged", table, no_number) for table, frame in landing.small.items()),
        *(_marked(rows, "stored", table, F.col("run_seq")) for table, rows in stored.items()),
    ]
    counted = (F.count("*").alias("n"), F.max("run_seq").alias("last"))
    rows = reduce(DataFrame.union, parts).groupBy("side", "table").agg(*counted).collect()
    numbers = Counter({(row["side"], row["table"]): row["n"] for row in rows})
    last = {row["table"]: row["last"] for row in rows if row["side"] == "stored"}
    return _Survey(
        staged={table: numbers["staged", table] for table in landing.small},
        stored={table: numbers["stored", table] for table in stored},
        last_run_seq={table: last.get(table) for table in SMALL_TABLES},
    )


def _marked(rows: DataFrame, side: str, table: str, run_seq: Column) -> DataFrame:
    return rows.select(
        F.lit(side).alias("side"), F.lit(table).alias("table"), run_seq.alias("run_seq")
    )


# ------------------------------------------------------------------- what changes


@dataclass(frozen=True, slots=True)
class _Changes:
    """What a landing changes in one table.

    Attributes:
        stored: how many rows in scope the store has.
        after: what it will hold.
        last_run_seq: the largest run number in the stored rows; null: there is none.
        by_key: sums of what differs, see `Comparison.by_key`; null: the store has nothing.
        removed: how many rows are removed.
        claims: of the rows that change, those that a run of the store had claimed.
        rows: journal rows; null: there are none.
    """

    stored: int
    new: int
    after: Digest
    last_run_seq: int | None = None
    by_key: DataFrame | None = None
    removed: int = 0
    claims: int = 0
    rows: DataFrame | None = None


def _pending_changes(begun: Begun, landing: Landing) -> _Changes:
    in_scope = landing.scope.lies_in(begun.store.buckets) & landing.scope.has_group()
    rows = staged_pending(begun.store, landing.uuid)
    claims = begun.read("runs").where(~F.col("command").isin(SNAPSHOT, IMPORT))
    of_claims = F.broadcast(claims.select("run_seq", F.lit(True).alias("is_claim")))
    stored = begun.read("pending").where(in_scope).join(of_claims, on="run_seq", how="left")
    return _changes(begun, differences.PENDING, rows, stored)


def _entry_changes(begun: Begun, landing: Landing) -> _Changes:
    lies_in = begun.read("entries").where(landing.scope.lies_in(begun.store.buckets))
    rows = staged_entries(begun.store, landing.uuid)
    bounds = _bounds(begun.store, landing)
    stored = entries_in_scope(lies_in, bounds, landing.scope, *differences.BOUNDS)
    known = differences.with_known_absence(stored)
    return _changes(begun, differences.ENTRIES, rows, known)


def _bounds(store: Store, landing: Landing) -> DataFrame:
    """Return one row per stream that was read, with its `differences.BOUNDS`."""
    firsts = [
        (name, to_bigint(counters.first_id.ms), to_bigint(counters.first_id.seq))
        for name, counters in landing.closing.items()
        if counters.first_id is not None
    ]
    first = frame_of(Relation(store.engine, Rows(arrow_table(firsts, _FIRST_IDS))))
    read = landing.small["streams"].select("stream", *PROVEN_RANGE)
    return read.join(first, on="stream", how="left")


_FIRST_IDS = pa.schema(
    [("stream", pa.string()), ("first_ms", pa.int64()), ("first_seq", pa.int64())]
)
_CHANGES = {"pending": _pending_changes, "entries": _entry_changes}


def _changes(begun: Begun, table: Comparison, rows: DataFrame, stored: DataFrame) -> _Changes:
    """What the staged rows change of the stored ones."""
    compared = table.compared(rows, stored)
    if begun.store.is_held(rows) and begun.store.is_small(table.name):
        # It is used three times; of many rows a join that is done again is cheaper than the memory.
        compared = begun.store.held(compared)
    by_key, sums = begun.store.fetched(table.by_key(compared))

    def total(name: str) -> int:
        return pc.sum(sums[name]).as_py() or 0

    after = (pc.struct_field(sums["after"], name) for name in differences.DIGEST)
    changed, removed = total(table.changed), total("removed")
    return _Changes(
        stored=total("stored"),
        new=total("new"),
        after=Digest(*(pc.sum(column).as_py() or 0 for column in after)),
        last_run_seq=pc.max(sums["last_run_seq"]).as_py(),
        by_key=by_key,
        removed=removed,
        claims=total("claims") if "claims" in sums.column_names else 0,
        rows=table.journal_rows(compared) if changed or removed else None,
    )


def _removed(begun: Begun, landing: Landing, table: str) -> DataFrame:
    """The journal's rows about rows of a small table that the source no longer has."""
    key = list(TABLES[table].key)
    columns = SMALL_TABLES[table].items()
    stored = begun.read(table).where(_in_scope(landing.scope, table))
    gone = stored.join(landing.small[table], on=key, how="left_anti")
    return gone.select(
        F.lit(str(REMOVED_KINDS[table])).alias("kind"),
        *key,
        *(F.col(name).alias(said) for name, said in columns),
    )


def _in_scope(scope: Scope, table: str) -> Column:
    """Which rows of a small table the source speaks of."""
    return scope.has_whole_stream() if table == "streams" else scope.has_group()


# ------------------------------------------------------------------- what is not believed


def _refuse_empty(
    begun: Begun,
    landing: Landing,
    survey: _Survey,
    changes: Mapping[str, _Changes],
    limits: RemovalLimits,
) -> None:
    """Refuse a source that has nothing: where the store has something, or for globs."""
    if limits.allow_empty or survey.staged["groups"] or survey.staged["streams"]:
        return
    stored = [table for table, change in changes.items() if change.stored]
    stored += [table for table in ("groups", "streams") if survey.stored[table]]
    if stored:
        raise EmptySourceError(
            f"{landing.source} has no stream and no group that matches the request, but the store"
            f" {begun.store.where} has such rows ({', '.join(stored)}), which would all be"
            " removed: was the server restarted or flushed? Nothing was changed. If the removal is"
            " intended, run the command again with --allow-empty",
            source=landing.source,
            tables=stored,
        )
    globs = (landing.scope.stream_glob, landing.scope.group_glob)
    if globs != ("*", "*"):
        there = groups_like(begun.relation("groups"), [" / ".join(globs)])
        raise EmptySourceError(
            f"{landing.source} has no stream and no group that matches {' / '.join(globs)} (stream"
            f" / group), and neither has the store: {there}. Nothing was changed; use"
            " --allow-empty if no match is acceptable",
            source=landing.source,
            tables=[],
        )


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


def _with_replaced(streams: DataFrame, replaced: tuple[str, ...], store: Store) -> DataFrame:
    """Return the journal rows of streams.

    A stream that replaced another one gets `REPLACED` as its reason.
    """
    if not replaced:
        return streams
    named = store.rows("journal", [(name, REPLACED) for name in replaced], ["stream", "reason"])
    return store.held(streams.join(frame_of(named), on="stream", how="left"))


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


def named_streams(store: Store, finished: Finished) -> NamedStreams:
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
    """Refuse rows that no run of this store can have written: none of its runs may change them."""
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
    """The statement that makes rows of another store's run numbers rows from outside."""
    identifier = begun.store.identifier(table)
    return f"UPDATE {identifier} SET run_seq = 0 WHERE run_seq >= {begun.run_seq}"


# ------------------------------------------------------------------- which source


Mirrored = frozenset[tuple[str, str | None]]
"""What a store mirrors: sources, each with the command that read it (null: a stream says so)."""


def mirrored(begun: Begun) -> Mirrored:
    """What a store mirrors; empty: nothing.  One query."""
    # The finished runs know it still where no stream is left.
    rows = begun.relation("streams").sql(
        "SELECT source, CAST(NULL AS STRING) AS command FROM {this} AS this"
        " WHERE source IS NOT NULL UNION SELECT source, command FROM {runs} AS runs"
        f" WHERE source IS NOT NULL AND counts['{ABANDONED}'] IS NULL",
        runs=begun.relation("runs"),
    )
    return frozenset((row["source"], row["command"]) for row in rows.collect())


def source_of(store: Store) -> str | None:
    """The name of what a store mirrors; null: nothing so far."""
    begun, _ = pinned(store, ("streams", "runs"))
    return store.declared_source or min((name for name, _ in mirrored(begun)), default=None)


def check_source(
    begun: Begun, kept: Mirrored, source: str, foreign_command: str | None = None
) -> None:
    """Refuse a source that is not the one that the store mirrors.

    Args:
        foreign_command: who read with it has read another source, also under this name; null:
            there is no such command.

    Raises:
        SourceMismatchError: naming both.
    """
    others = [
        (name, command)
        for name, command in kept
        if name != source or (command is not None and command == foreign_command)
    ]
    declared = begun.store.declared_source
    if not others and declared in {None, source}:
        return
    name, command = min(others, key=lambda other: other[1] or "") if others else (declared, None)
    how = f" (by claimlib {command})" if command else ""
    raise SourceMismatchError(
        f"the store {begun.store.where} is filled from {name}{how}, not from {source}: a store has"
        " one source;"
        " create another store for this one",
        kept=name,
        requested=source,
    )


def refuse_own_rows(begun: Begun, kept: Mirrored) -> None:
    """Refuse to make a store the mirror of a server that has rows and mirrors nothing: they are
    somebody's own, and the first snapshot would remove them.

    Raises:
        NotAMirrorError: naming the tables that have rows, and what to do.
    """
    if kept or begun.store.declared_source is not None:
        return
    tables = ("pending", "entries", "groups", "consumers", "streams")
    ones = (begun.read(name).limit(1).select(F.lit(name).alias("table")) for name in tables)
    filled = [row["table"] for row in reduce(DataFrame.union, ones).collect()]
    if filled:
        raise NotAMirrorError(
            f"the store {begun.store.where} has rows ({', '.join(filled)}) and mirrors no server:"
            " a snapshot would replace them with the server's data. Create another store for the"
            " snapshot (claimlib init), or delete these rows first",
            where=begun.store.where,
            tables=filled,
        )


def _runs_not_abandoned(begun: Begun) -> DataFrame:
    """The runs that did not have to be given up: these may have read anything."""
    return begun.read("runs").where(F.col("counts")[ABANDONED].isNull())


def last_server(begun: Begun) -> ServerIdentity:
    """The server process that the last snapshot read; all null where there was none."""
    row = (
        _runs_not_abandoned(begun)
        .where(F.col("command") == SNAPSHOT)
        .orderBy(F.col("run_seq").desc())
        .select("server_run_id", "replication_id")
        .first()
    )
    return ServerIdentity() if row is None else ServerIdentity(*row)


def server_of(begun: Begun) -> str | None:
    """The server that the store mirrors: one that a snapshot has read; null: none."""
    snapshots = f"command = '{SNAPSHOT}' AND counts['{ABANDONED}'] IS NULL"
    run = begun.relation("runs").where(snapshots).select("request").first()
    return None if run is None else str(json.loads(run["request"])["source"])


def _check_hashes(begun: Begun, landing: Landing) -> None:
    """Raise HashCollisionError if two names of the source and the store share a hash.  Streams that
    share one lie in one bucket, so those of other buckets need not be looked at."""
    pending, entries = begun.relation("pending"), begun.relation("entries")
    name = literal_name(landing.scope.stream_glob)
    if name is not None:
        bucket = begun.store.bucket_of(spell(name))
        of_stream = IdBounds(((bucket, -(2**63), 2**63 - 1),))
        pending, entries = pending.within(of_stream), entries.within(of_stream)
    groups, streams = (
        [begun.store.relation_of(landing.small[table]), begun.relation(table)]
        for table in ("groups", "streams")
    )
    named = named_keys(
        pending,
        pending.limit(0),  # a snapshot compares no owners
        union_by_name(groups, dict.fromkeys(GROUP, "STRING")),
        union_by_name([*streams, entries], {"stream": "STRING"}),
    )
    refuse_shared_hashes(named.where(IS_SHARED).collect())
