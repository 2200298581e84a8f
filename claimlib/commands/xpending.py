"""Apply XPENDING to a store.

It shows an overview of all groups, or one group as the server's command does.  Nothing is written.
All tables are read as they were at one moment: now, or the end of a run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from claimlib.commands.mirror import IMPORT, SNAPSHOT
from claimlib.commands.preconditions import (
    bounds_of_rows,
    check_ms,
    groups_like,
    nothing_matches,
    refuse_unknown_consumer,
)
from claimlib.commands.reply import with_fields
from claimlib.commands.runs import find_run
from claimlib.engine.relation import DESCENDING, IdBounds, Record, Relation
from claimlib.errors import InstantError, RequestError
from claimlib.plans import xpending_plan as plan
from claimlib.plans.differences import EVERYTHING, Scope
from claimlib.plans.keys import GROUP, ID_ORDER, bigint_intervals, is_group
from claimlib.runs import FinishedRun, RunRow, pinned, unfinished_error
from claimlib.runs.mirror_rows import in_bucket
from claimlib.runs.rollforward import NOT_ABANDONED, find_finished_by_run_id
from claimlib.schema import BUCKET_SQL
from claimlib.semantics.ids import MAX_ID, MIN_ID, StreamId, from_bigint
from claimlib.semantics.model import PendingRange, PendingSummary
from claimlib.semantics.names import spell, unspell
from claimlib.semantics.words import no_group
from claimlib.store.guards import accepted_now
from claimlib.store.tables import Store
from claimlib.terminal import one_line
from claimlib.times import parse_instant_ms

TABLES = ("pending", "groups", "consumers")
TABLES_OF_PAYLOADS = (*TABLES, "entries")
"""List the tables that `xpending` reads to show payloads."""
_DEFAULT_TABLES = (*TABLES, "cursors")
DEFAULT_STALLED_MS = 15 * 60_000
_DATE = re.compile(r"[0-9]{4}-")  # the beginning of a time, as in 2026-01-31
_ALL = PendingRange(MIN_ID, MAX_ID, 0)


@dataclass(frozen=True, slots=True)
class Reading:
    """Hold a store at the versions of one moment.

    Attributes:
        last_seq: the number of the last applied run, or 0 if there is none.
        run_seq: the number of the run that left these versions.  None if they are the newest.
        unfinished: the runs that are decided, but not finished.  If there are any, the versions are
            those before these runs.
        replaced: by name of a table, the rows that are read in place of the table.
    """

    store: Store
    versions: dict[str, int]
    last_seq: int
    run_seq: int | None = None
    unfinished: tuple[RunRow, ...] = ()
    replaced: Mapping[str, Relation] = field(default_factory=dict, repr=False, compare=False)

    def read(self, table: str) -> Relation:
        """Return a table at that moment."""
        rows = self.replaced.get(table)
        return self.store.relation(table, self.versions[table]) if rows is None else rows

    def with_tables(self, **tables: Relation) -> Reading:
        """Return a reading of the same moment with other rows in place of some tables."""
        return replace(self, replaced={**self.replaced, **tables})

    def read_in(self, scope: Scope, table: str) -> Relation:
        """Return the rows of the groups of a scope in a table that has groups."""
        rows = self.read(table).where(scope.has_group())
        if table == "pending":  # if the scope is one stream, only its bucket is read
            return in_bucket(self.store, rows, scope)
        return rows


def read_store(
    store: Store, as_of: str | None = None, tables: Collection[str] = _DEFAULT_TABLES
) -> Reading:
    """Return the store as it is now, or as a finished run left it.

    While a run is unfinished, the tables may have only a part of its changes.  So the store as it
    was before this run is returned.

    Args:
        as_of: a run (its number, command:run_id, or run id alone).  Or a time (ISO 8601), which
            means the last run that had finished by then.  None means now.
        tables: the names of the tables that will be read.  The default is enough for the functions
            of this module except `with_payloads`, and for `describe`.

    Raises:
        UnfinishedRunError: a run is unfinished, and `init` accepted replaced tables since it began.
        RequestError: no such run exists, no run had finished at the given time, or `init` accepted
            replaced tables after the run.
        SchemaError: tables were replaced, and not accepted.

    Examples:
        >>> now = read_store(open_store("./store"))
        >>> now.read("pending").count()
        140
    """
    if as_of is None:
        begun, unfinished = pinned(store, tables)
        if unfinished:
            return _before_unfinished(store, unfinished)
        return Reading(store, dict(begun.pins.versions), begun.run_seq - 1)
    pinned(store, tables)  # refuses tables that were replaced
    run = _run_as_of(store, as_of)
    after = accepted_now(store).after
    if run.run_seq <= after:
        raise RequestError(
            f"{store.where} cannot be read as run {run.run_seq} left it: tables have gone back"
            f" after run {after}, and were accepted by claimlib init. Name a later run, or leave"
            " --as-of out",
            as_of=as_of,
        )
    return Reading(store, dict(run.output_versions), run.run_seq, run.run_seq)


def refuse_unknown(
    at: Reading,
    scope: Scope,
    key: tuple[bytes, bytes] | None = None,
    consumer: bytes | None = None,
) -> None:
    """Raise RequestError if a store has no such group or consumer.

    Without this check, a typing error would look like an empty result.  The message names similar
    groups or consumers.

    Args:
        at: a reading with `TABLES`, see `read_store`.
        scope: the globs of the streams and groups.
        key: the names of one stream and group, which replace the scope.  None to use the scope.
        consumer: the name of a consumer of these groups.  None to check no consumer.
    """
    if key is None:
        rows = {table: at.read_in(scope, table) for table in TABLES}
    else:
        names = is_group(*map(spell, key))
        rows = {table: at.read(table).where(names) for table in TABLES}
        bucket = at.store.bucket_of(spell(key[0]))
        rows["pending"] = rows["pending"].within(IdBounds.of_buckets([bucket]))
    is_limited = key is not None or scope != EVERYTHING
    if is_limited and all(rows[table].is_empty() for table in ("groups", "consumers", "pending")):
        groups = at.read("groups")
        if key is not None:
            known = groups_like(groups, [" / ".join(map(spell, key))])
            raise RequestError(f"{no_group(*key).message}; {known}")
        globs = [f"{scope.stream_glob} / {scope.group_glob}"]
        raise RequestError(nothing_matches(at.store.where, groups, globs), globs=globs)
    if consumer is not None:
        place = "no consumer group has a consumer"
        if key is not None:
            place = f"{one_line(' / '.join(map(spell, key)))} has no consumer"
        elif scope != EVERYTHING:
            place = "no consumer group that the globs match has a consumer"
        refuse_unknown_consumer(rows["consumers"], rows["pending"], spell(consumer), place)


def _before_unfinished(store: Store, unfinished: Sequence[RunRow]) -> Reading:
    """Return the store as the first unfinished run found it."""
    first = unfinished[0]
    if first.run_seq <= accepted_now(store).after:
        raise unfinished_error(first)
    seq = first.run_seq - 1
    return Reading(store, dict(first.pins.versions), seq, seq, unfinished=tuple(unfinished))


def _run_as_of(store: Store, as_of: str) -> FinishedRun:
    """Return the run that a user names directly, or by a time (see `read_store`)."""
    if not _DATE.match(as_of):
        return find_run(store, as_of)
    try:
        instant_ms = parse_instant_ms(as_of)
    except InstantError:
        if not find_finished_by_run_id(store, as_of):  # a run id may begin with a date
            raise
        return find_run(store, as_of)
    ended = store.relation("runs").where(f"ended_ms <= {instant_ms:d}L")
    (last,) = ended.select("max(run_seq) AS run_seq").collect()
    if last["run_seq"] is None:
        raise RequestError(
            f"no run of {store.where} had finished by {as_of}: claimlib runs"
            f" {shlex.quote(store.where)} lists the runs",
            as_of=as_of,
        )
    return find_run(store, str(last["run_seq"]))


def pending_overview(
    at: Reading,
    *,
    scope: Scope = EVERYTHING,
    stalled_ms: int = DEFAULT_STALLED_MS,
    now_ms: int | None = None,
    changed: Relation | None = None,
    shows_server: bool = False,
) -> Relation:
    """Return one row per group, with the numbers of its pending and stalled entries and of owners.

    The rows are in memory, so the pending entries are read only once.  Columns: stream,
    consumer_group, is_known, snapshot_ms, now_ms, pending, stalled, oldest_idle_ms,
    oldest_delivery_time_ms, highest_delivery_count, delivered_5_plus, delivered_10_plus, owners,
    idle_owners, unknown_owners and changed_by_runs.  A time or number is None if it is unknown.

    - is_known is false if the table `groups` lacks the group.
    - now_ms is the time for which the idle times are computed.
    - owners is the number of consumers that own entries.
    - unknown_owners is the number of owners that the table `consumers` lacks.

    Args:
        scope: the globs of the streams and groups.
        stalled_ms: how long an entry must have been idle to count as stalled.  An owner that has
            not been active for this long counts as idle.
        now_ms: the time for all groups, ms since the epoch.  None means the time of each group's
            snapshot.
        changed: one row per group with changes, as `plans.server_view_plan.number_by_group` returns
            them.  None if the store mirrors no server.  Only the command line gives it.
        shows_server: True if the reading has the pending entries of the server, see
            `server_view.as_on_server`.

    Examples:
        >>> groups = pending_overview(read_store(open_store("./store")), stalled_ms=900_000)
        >>> groups.where("stream = 'emails'").select("pending", "stalled", "owners").collect()
        [{'pending': 20, 'stalled': 4, 'owners': 2}]
    """
    check_ms(stalled_ms=stalled_ms, now_ms=now_ms)
    pending, groups, consumers = (at.read_in(scope, table) for table in TABLES)
    entries = plan.idle_entries(pending, groups, now_ms)
    return plan.overview(
        plan.owners(entries, stalled_ms),
        groups,
        consumers,
        stalled_ms,
        now_ms,
        changed,
        shows_server=shows_server,
    ).fetched()


def pending_summary(at: Reading, stream: bytes, group: bytes) -> PendingSummary:
    """Return the reply of `XPENDING key group`.

    One row per owner passes through this process.

    Raises:
        ReplyError: there is no such group (NOGROUP).

    Examples:
        >>> pending_summary(read_store(open_store("./store")), b"emails", b"workers").consumers
        ((b'alice', 5), (b'bob', 15))
    """
    rows = plan.shares(_of_group(at, stream, group, None)).collect()
    if not rows:
        return PendingSummary(0, None, None, ())
    pending_by_owner = {
        unspell(row["consumer"]): row["pending"] for row in rows if row["consumer"] is not None
    }
    low, high = min(_id(row, "low") for row in rows), max(_id(row, "high") for row in rows)
    total = sum(row["pending"] for row in rows)
    return PendingSummary(total, low, high, tuple(sorted(pending_by_owner.items())))


def _id(row: Record, end: str) -> StreamId:
    return StreamId(from_bigint(row[f"{end}_ms"]), from_bigint(row[f"{end}_seq"]))


def pending_range(
    at: Reading, stream: bytes, group: bytes, query: PendingRange, *, now_ms: int | None = None
) -> Relation:
    """Return the reply of `XPENDING key group start end count`, one row per pending entry by id.

    Columns: stream, consumer_group, id_ms, id_seq, consumer, idle_ms, delivery_time_ms,
    delivery_count.  idle_ms is None if the group has no snapshot time and `now_ms` is None.

    Raises:
        ReplyError: there is no such group (NOGROUP).
        RequestError: the query has a minimum idle time, and the idle times are unknown.
    """
    check_ms(now_ms=now_ms)
    return plan.in_range(_of_group(at, stream, group, now_ms, query), query)


@dataclass(frozen=True, slots=True)
class MatchingEntries:
    """Hold all pending entries that a query matches, even if fewer are shown.

    Attributes:
        rows: one row per entry with the columns of `pending_range`, in no order.
        total: the number of these entries.
        groups: the number of their groups.
        order: the order in which the entries are shown, see `engine.relation.Query`.
        without_idle_time: the number of further entries that a minimum idle time excludes because
            their group has no snapshot time.
        most_bytes: the number of bytes that are shown of each name and value of a payload.  None if
            `rows` has no payloads.
    """

    rows: Relation
    total: int
    groups: int = 1
    order: Sequence[str] = ID_ORDER
    without_idle_time: int = 0
    most_bytes: int | None = None


def matching_entries(
    at: Reading,
    stream: bytes,
    group: bytes,
    query: PendingRange,
    *,
    now_ms: int | None = None,
    min_deliveries: int = 0,
) -> MatchingEntries:
    """Return the entries of a group in the range of a query, regardless of its count, by id.

    Args:
        min_deliveries: how often an entry must have been delivered.

    Raises:
        ReplyError: there is no such group (NOGROUP).
        RequestError: the query has a minimum idle time, and the idle times are unknown.
    """
    check_ms(now_ms=now_ms)
    rows = plan.matching(_of_group(at, stream, group, now_ms, query), query, min_deliveries)
    return MatchingEntries(rows, rows.count())


def pending_entries(
    at: Reading,
    scope: Scope = EVERYTHING,
    query: PendingRange = _ALL,
    *,
    now_ms: int | None = None,
    min_deliveries: int = 0,
) -> MatchingEntries:
    """Return the entries of all groups of a scope in the range of a query, regardless of its count.

    The entries with the longest idle time come first.  With `min_deliveries`, the entries that were
    delivered most often come first.

    Args:
        query: the range of ids, the minimum idle time and the consumer.
        now_ms: the time for all groups, ms since the epoch.  None means the time of each group's
            snapshot.
        min_deliveries: how often an entry must have been delivered.
    """
    check_ms(now_ms=now_ms)
    pending, groups = (at.read_in(scope, table) for table in ("pending", "groups"))
    entries = plan.idle_entries(pending, groups, now_ms)
    rows = plan.matching(entries, query, min_deliveries)
    (numbers,) = plan.numbers(rows).collect()
    without_idle_time = 0
    if query.min_idle_ms and now_ms is None:
        others = plan.matching(entries, replace(query, min_idle_ms=None), min_deliveries)
        without_idle_time = others.where("idle_ms IS NULL").count()
    worst = [f"idle_ms{DESCENDING}", f"delivery_count{DESCENDING}"]
    if min_deliveries:
        worst.reverse()
    order = (*worst, *GROUP, *ID_ORDER)
    return MatchingEntries(rows, numbers["entries"], numbers["groups"], order, without_idle_time)


def with_payloads(
    at: Reading, entries: MatchingEntries, limit: int | None, most_bytes: int
) -> MatchingEntries:
    """Return the first entries with their payloads.

    No other payloads are read.  The rows have `payload` and `fields`, see
    `commands.reply.Reply.claimed`.  In `fields`, each name and value is cut to `most_bytes`.
    `payload_bytes` is the size of the whole payload, or None if there is no payload.

    Args:
        at: a reading with `TABLES_OF_PAYLOADS`, see `read_store`.
        limit: the number of entries.  None means all.
    """
    first = entries.rows
    if limit is not None and limit < entries.total:
        first = first.order_by(*entries.order).limit(limit)
    first = first.kept()
    bucket = BUCKET_SQL.format(buckets=at.store.buckets)
    bounds = bounds_of_rows(first.select("id_ms", f"{bucket} AS bucket"))
    stored = at.read("entries").within(bounds)
    of_first = stored.sql(
        "SELECT this.* FROM {this} AS this"
        " LEFT SEMI JOIN {first} AS first USING (stream, id_ms, id_seq)",
        first=first,
    )
    rows = with_fields(first.select("*", "false AS justid"), of_first)
    return replace(entries, rows=plan.with_short_fields(rows, most_bytes), most_bytes=most_bytes)


def stale(groups: Relation, at_ms: int, most_ms: int) -> Relation:
    """Return the groups of an overview whose last snapshot is unknown or too old.

    A snapshot is too old if its age at `at_ms` is greater than `most_ms`.
    """
    return groups.where(f"coalesce({at_ms:d}L - snapshot_ms > {most_ms:d}L, true)")


def last_mirrored(at: Reading) -> Record | None:
    """Return the last snapshot or import that had finished by the moment of a reading, or None.

    Columns: began_ms (the time at which the run began, or None if unknown) and run_seq.  If a store
    has no groups, only this record shows that snapshots are taken.
    """
    done = at.store.relation("runs").where(
        f"command IN ('{SNAPSHOT}', '{IMPORT}') AND {NOT_ABANDONED}"
    )
    if at.run_seq is not None:
        done = done.where(f"run_seq <= {at.run_seq:d}L")
    return done.select("began_ms", "run_seq").order_by(f"run_seq{DESCENDING}").first()


def stalled(groups: Relation) -> tuple[int, int]:
    """Return the number of stalled entries of an overview, and the number of their groups."""
    (totals,) = groups.select(
        "sum(stalled) AS entries", "count_if(stalled > 0) AS of_groups"
    ).collect()
    return totals["entries"] or 0, totals["of_groups"]


def without_idle_times(groups: Relation) -> int:
    """Return the number of groups of an overview whose pending entries have unknown idle times."""
    return groups.where("pending > 0 AND stalled IS NULL").count()


def _of_group(
    at: Reading, stream: bytes, group: bytes, now_ms: int | None, query: PendingRange = _ALL
) -> Relation:
    """Return `idle_entries` of one group, from the files that may have ids in the query's range.

    Raises:
        ReplyError: there is no such group (NOGROUP).
        RequestError: the query has a minimum idle time, and the idle times are unknown.
    """
    names = is_group(spell(stream), spell(group))
    intervals = bigint_intervals(query.start.ms, query.end.ms)
    bucket = at.store.bucket_of(spell(stream))
    bounds = IdBounds(tuple((bucket, low, high) for low, high in intervals))
    groups = at.read("groups").where(names)
    pending = at.read("pending").within(bounds).where(names)
    if groups.is_empty() and pending.is_empty():
        raise no_group(stream, group)
    if query.min_idle_ms and now_ms is None and groups.where("snapshot_ms IS NOT NULL").is_empty():
        raise RequestError(
            f"{spell(stream)} / {spell(group)} has no snapshot time, so the idle times of its"
            " entries are unknown: set the time with --now",
            option="now",
        )
    return plan.idle_entries(pending, groups, now_ms)
