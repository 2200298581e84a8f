"""Import a user's own tables: one run makes the store equal to them.

The tables are read as they are now, and checked.  Nothing is written unless all rows are sound.
Their rows are then staged, as in a snapshot.  One journal commit names the staged rows, and the
roll-forward writes the differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from uuid import uuid4

from claimlib.commands.input_tables import (
    Tables,
    opened_to_read,
    place_of,
    read_checked_tables,
    refuse_changed,
)
from claimlib.commands.mirror import (
    IMPORT,
    Landing,
    NamedStreams,
    decide,
    discarded_if_lost,
    discarded_on_error,
    named_streams,
)
from claimlib.commands.sources import refuse_import
from claimlib.engine.relation import Relation
from claimlib.errors import RequestError
from claimlib.plans import input_tables_plan as input_tables
from claimlib.plans.differences import Scope
from claimlib.plans.input_tables_plan import TableMap
from claimlib.plans.keys import GROUP, GROUP_SQL, bigint_sql, each_sql, unsigned_sql
from claimlib.plans.requests import PROVEN_RANGE
from claimlib.runs import Begun, Decision, Phase, Progress, run
from claimlib.runs.mirror_rows import (
    CHANGED,
    digests_of,
    discard_landing,
    staged_entries,
    staged_pending,
)
from claimlib.schema import Kind, quote_text
from claimlib.semantics.ids import MAX_U64, to_bigint
from claimlib.semantics.model import RemovalLimits
from claimlib.store.guards import check_changeable
from claimlib.store.tables import Store
from claimlib.store.threads import concurrently

COMMAND = IMPORT
_WHOLE = dict(zip(PROVEN_RANGE, (0, 0, to_bigint(MAX_U64), to_bigint(MAX_U64)), strict=True))


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """State the tables to import, and what the caller guarantees about them.

    Attributes:
        entries, pending: one table each, given as a catalog name, a folder or a file.
        groups: None means that the groups are those of `pending`.  The last delivered id is then
            the largest pending one.  There is no snapshot time, so a sweep of these groups needs
            `now_ms`.
        consumers: None means that the store's consumers stay, in groups that still exist.
        streams: states the id range in which the entries of each stream are complete.
        entries_complete: True if entries has exactly the ids that the streams have.
        limits: how many rows of the store the import may remove.  entries or pending may be empty
            only if the limits allow it.
        maps: by table, how the columns of the given table map to the columns of the store.

    Examples:
        >>> request = ImportRequest("./lake/entries", "./lake/pending", entries_complete=True)
        >>> request.groups is None
        True
    """

    entries: str
    pending: str
    groups: str | None = None
    consumers: str | None = None
    streams: str | None = None
    entries_complete: bool = False
    limits: RemovalLimits = field(default_factory=RemovalLimits)
    maps: Mapping[str, TableMap] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise RequestError if the request is inconsistent, or a place cannot be a table.

        This is checked before any table is read.
        """
        if self.streams is not None and self.entries_complete:
            raise RequestError(
                "--streams says where the entries are complete, --entries-complete that they are"
                " everywhere: give one of them",
                option="entries_complete",
            )
        places = self.places()
        for table in self.maps:
            if table not in places:
                raise RequestError(
                    f"the map has a section [{table}], but --{table} is not given: give the table,"
                    " or remove the section",
                    option=table,
                )

    def places(self) -> dict[str, str]:
        """Return the places of the given tables, by table.

        Raises:
            RequestError: see `place_of`.
        """
        places = {name: getattr(self, name) for name in input_tables.PARTS}
        return {
            name: place_of(place, f"--{name}")
            for name, place in places.items()
            if place is not None
        }

    def as_json(self, source: str) -> dict[str, object]:
        """Return the JSON values that are stored with the run."""
        return {
            "source": source,
            "stream_glob": "*",
            "group_glob": "*",
            "tables": self.places(),
            "entries_complete": self.entries_complete,
            **self.limits.as_json(),
            "map": {
                table: {
                    "columns": dict(sorted(table_map.columns.items())),
                    "id_bits": table_map.id_bits,
                }
                for table, table_map in self.maps.items()
            },
        }


@dataclass(frozen=True, slots=True)
class ImportReply:
    """Hold the result of an import.

    Attributes:
        is_repeat: True if an earlier call with the same run id did the import.
        counts: as those of a snapshot (`SnapshotReply`), and groups_without_instant (groups without
            a snapshot time) and streams_without_proof (streams whose entries are not known to be
            complete, so that a missing entry does not count as deleted).
        streams: the streams that were removed or replaced.
        payload_columns: columns of the table of entries that may hold payloads, but were not
            imported.  Empty for a repeated run, which reads no table.
    """

    run_id: str
    run_seq: int
    is_repeat: bool
    source: str
    counts: Mapping[str, int]
    streams: NamedStreams = field(default_factory=NamedStreams)
    payload_columns: tuple[str, ...] = ()


def import_tables(
    store: Store,
    request: ImportRequest,
    *,
    run_id: str | None = None,
    progress: Progress | None = None,
) -> ImportReply:
    """Update a store from your own tables, and remove the rows that they do not have.

    Args:
        request: the tables, and how they are read.
        run_id: identifies the run, together with the command.  A repeat with the same run id
            changes nothing.
        progress: called as each phase begins, and again with each new detail.

    Raises:
        SourceMismatchError: the store mirrors a server, or other tables.
        EmptySourceError, GuardError: the import would remove more than the limits allow.
        InputError: a table cannot be read, is empty, or has rows that no store can hold.
        ConfigError: a map does not fit its table.
        DuplicateRowsError: two rows of a table have the same key.
    """
    store = opened_to_read(store, request.places().values())
    source = store.declared_source or COMMAND

    staged: list[str] = []
    payload_columns: tuple[str, ...] = ()

    def decided(begun: Begun) -> Decision:
        nonlocal payload_columns
        # `run` calls this again if another run was decided first.  The decision of the earlier call
        # was not written, so nothing names the rows that it staged.
        _discard(store, staged)
        refuse_import(begun)
        check_changeable(store, CHANGED)
        if progress is not None:
            progress(Phase.READ, "the given tables")
        sound = read_checked_tables(
            store, request.places(), request.maps, allow_empty=request.limits.allow_empty
        )
        payload_columns = sound.payload_columns
        staged.append(uuid4().hex)
        with discarded_on_error(store, staged[-1]):
            _stage(store, staged[-1], sound.tables)
            if sound.digests:  # a view may have returned other rows when it was read again
                written = zip(("pending", "entries"), digests_of(store, staged[-1]), strict=True)
                refuse_changed(sound, request.places(), dict(written))
            landing = _landing(begun, staged[-1], request, source, sound.tables)
        return decide(begun, landing, request.limits)

    with discarded_if_lost(store, COMMAND, partial(_discard, store, staged)):
        finished = run(
            store,
            command=COMMAND,
            request=request.as_json(source),
            decide=decided,
            run_id=run_id,
            progress=progress,
        )
    return ImportReply(
        run_id=finished.run_id,
        run_seq=finished.run_seq,
        is_repeat=finished.is_repeat,
        source=source,
        counts=finished.counts,
        streams=named_streams(store, finished),
        payload_columns=payload_columns,
    )


def _discard(store: Store, staged: list[str]) -> None:
    while staged:
        discard_landing(store, staged.pop())


def _landing(
    begun: Begun, uuid: str, request: ImportRequest, source: str, tables: Tables
) -> Landing:
    """Return the rows that were staged under a uuid.

    The rows of the small tables become rows of the decision itself.
    """
    groups = _groups(begun.store, uuid, tables)
    streams = _streams(begun.store, uuid, request, groups, tables)
    consumers = tables.get("consumers")
    if consumers is None:
        consumers = _kept_consumers(begun, groups)
    rows = {
        "groups": groups.select(
            f"'{Kind.GROUP}' AS kind",
            *(*GROUP, "snapshot_ms AS at_ms", "last_delivered_ms", "last_delivered_seq"),
        ),
        "consumers": consumers.select(
            f"'{Kind.CONSUMER}' AS kind", *(*GROUP, "consumer", "seen_time_ms", "active_time_ms")
        ),
        "streams": streams.select(
            f"'{Kind.STREAM}' AS kind",
            *("stream", "length", "last_generated_ms", "last_generated_seq", *PROVEN_RANGE),
            *("read_ms AS at_ms", f"{quote_text(source)} AS source"),
            "CAST(NULL AS BIGINT) AS entries_added",  # only a server reports this number
        ),
    }
    small = {table: relation.fetched() for table, relation in rows.items()}
    counts = _counts(*(small[table] for table in ("groups", "streams")))
    hints = {
        removed_from: hint
        for removed_from, (needed, hint) in _HINTS.items()
        if needed not in tables
    }
    return Landing(uuid, source, Scope("*", "*"), small, counts=counts, would_explain=hints)


# Map each table to the table that explains its removed rows, and to the option for that table.
_HINTS = {
    "pending": (
        "groups",
        "--groups, with the last delivered ids, which show what was acknowledged",
    ),
    "entries": ("streams", "--streams, with the last generated ids, which show what was deleted"),
}


def _kept_consumers(begun: Begun, groups: Relation) -> Relation:
    """Return the store's own consumers of the groups that still exist.

    If a consumer has two rows, return the newest times, because the decision has one row per key.
    """
    same = " AND ".join(f"t.{name} = s.{name}" for name in GROUP)
    times = each_sql("max", "seen_time_ms", "active_time_ms")
    return begun.relation("consumers").sql(
        f"SELECT {GROUP_SQL}, consumer, {times} FROM {{this}} AS t"
        f" LEFT SEMI JOIN {{groups}} AS s ON {same} GROUP BY {GROUP_SQL}, consumer",
        groups=groups,
    )


def _stage(store: Store, uuid: str, tables: Tables) -> None:
    """Append the rows of `pending` and `entries` to the tables of staged rows.

    As in a snapshot, each pending row has the snapshot time of its group.
    """
    pending = tables["pending"]
    if "groups" in tables:
        times = tables["groups"].select(*GROUP, "snapshot_ms")
        pending = pending.sql(
            f"SELECT * FROM {{this}} AS this LEFT JOIN {{times}} AS times USING ({GROUP_SQL})",
            times=times,
        )
    due = {"pel_snapshots": pending, "entry_landing": tables["entries"]}
    landing = f"{quote_text(uuid)} AS landing"
    concurrently(
        partial(store.writer.append, table, rows.select("*", landing))
        for table, rows in due.items()
    )


def _groups(store: Store, uuid: str, inputs: Tables) -> Relation:
    """Return one row per group.

    These are the given groups, or else the groups of the staged pending rows.
    """
    if "groups" in inputs:
        return inputs["groups"]
    # `unsigned_sql` maps signed to unsigned order, and back.
    newest = f"max(struct({unsigned_sql('id_ms')} AS ms, {unsigned_sql('id_seq')} AS seq))"
    return (
        staged_pending(store, uuid)
        .sql(f"SELECT {GROUP_SQL}, {newest} AS newest FROM {{this}} AS this GROUP BY {GROUP_SQL}")
        .select(
            *GROUP,
            f"{unsigned_sql('newest.ms')} AS last_delivered_ms",
            f"{unsigned_sql('newest.seq')} AS last_delivered_seq",
            "CAST(NULL AS BIGINT) AS snapshot_ms",
        )
    )


def _streams(
    store: Store,
    uuid: str,
    request: ImportRequest,
    groups: Relation,
    inputs: Tables,
) -> Relation:
    """Return one row per stream in any of the tables.

    The columns of its completeness range are None if the range is unknown.
    """
    counted = staged_entries(store, uuid).sql(
        "SELECT stream, count(*) AS number_of_entries FROM {this} AS this GROUP BY stream"
    )
    names = counted.sql(
        "SELECT * FROM {this} AS this FULL JOIN"
        " (SELECT DISTINCT stream FROM {groups} AS groups) AS groups USING (stream)",
        groups=groups,
    )
    if "streams" in inputs:
        return names.select("stream").sql(
            "SELECT * FROM {this} AS this FULL JOIN {streams} AS streams USING (stream)",
            streams=inputs["streams"],
        )
    is_complete = request.entries_complete
    length = "coalesce(number_of_entries, 0L)" if is_complete else "CAST(NULL AS BIGINT)"
    bounds = {
        bound: bigint_sql(value) if is_complete else "NULL" for bound, value in _WHOLE.items()
    }
    unknown = dict.fromkeys(("last_generated_ms", "last_generated_seq", "read_ms"), "NULL")
    return names.select(
        *("stream", f"{length} AS length"),
        *(f"CAST({value} AS BIGINT) AS {name}" for name, value in {**bounds, **unknown}.items()),
    )


def _counts(groups: Relation, streams: Relation) -> dict[str, int]:
    return {
        "groups": groups.count(),
        "groups_without_instant": groups.where("at_ms IS NULL").count(),
        "streams": streams.count(),
        "streams_without_proof": streams.where("complete_from_ms IS NULL").count(),
    }
