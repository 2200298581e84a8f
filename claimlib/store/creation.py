"""Create the tables of a store, or complete a store that lacks some."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from claimlib import schema
from claimlib.schema import TABLES, Kind
from claimlib.store.checks import (
    append_only_error,
    buckets_of,
    check_columns,
    check_options,
    check_same,
    check_versions,
    other_entries_error,
)
from claimlib.store.definitions import Definitions
from claimlib.store.local import Condition
from claimlib.store.location import Location
from claimlib.store.lock import WriteLock
from claimlib.store.lookups import find, newest_run
from claimlib.store.opening import checked
from claimlib.store.replaced_tables import PROVING, Accepted, Seen, error_of, find_replaced
from claimlib.store.tables import Store


@dataclass(frozen=True, slots=True)
class Creation:
    """State the result of `create`.

    Attributes:
        store: the store.
        was_there: True if all tables of the store existed before.
        has_lost_proofs: True if the completeness ranges were invalidated, because the table
            `entries` or `streams` was lost or replaced.
        newly_accepted: the tables that were lost, or replaced by an earlier version, and are
            accepted now.
        created: the tables that were created in a store whose other tables already existed.  Empty
            if the whole store is new.
    """

    store: Store
    was_there: bool
    has_lost_proofs: bool = False
    newly_accepted: tuple[str, ...] = ()
    created: tuple[str, ...] = ()


def init_sql(where: str, *, buckets: int, source: str | None = None) -> list[str]:
    """Return the statements that create a store, for users who run such statements themselves.

    Args:
        where: a folder or `catalog.schema`.
        buckets: the number of partitions of entries, pending and journal.
        source: the source that the store mirrors.  None if a snapshot will name it.

    Raises:
        RequestError: see `check_options`.
    """
    check_options(buckets, source)
    location = Location.parse(where)
    return [
        schema.create_sql(TABLES[name], location.identifier(name), properties)
        for name, properties in schema.properties_of_new(buckets, source).items()
    ]


def create(
    definitions: Definitions,
    *,
    buckets: int | None = None,
    source: str | None = None,
    accept_replaced: bool = False,
    source_of: Callable[[Store], str | None] = lambda store: store.declared_source,
) -> Creation:
    """Create the tables of a store that do not exist, and open it.

    If the store is complete, nothing is changed.  If its creation was interrupted, or if it has
    lost a table, the missing tables are created.  The completeness ranges are invalidated if
    `entries` was lost or replaced, or if an older `streams` is accepted.  Then sweeps refuse the
    groups until the next snapshot or import.

    Args:
        buckets: the number of partitions of entries, pending and journal, which cannot be changed
            later.  None means the number that existing tables have.  If there are none, it means
            `schema.DEFAULT_BUCKETS`.
        source: the source that the store mirrors.  None if a snapshot will name it.
        accept_replaced: True if runs are to use replaced tables (`find_replaced`) as they are now.
            If False, replaced tables are refused.
        source_of: returns the source of a store's rows, for the message of StoreExistsError.

    Raises:
        StoreNotFoundError, UnsafeLocationError, StorageError: see `Definitions`.
        StoreExistsError: the store exists, with other buckets or another source.  It is not
            changed.
        SchemaVersionError: the store exists, with another schema version.  It is not changed.
        SchemaError: tables were replaced, but `accept_replaced` is False.  Or existing tables have
            other columns, or different numbers of buckets.  Or completeness ranges must be
            invalidated, but `streams` is append-only.
        CommitConflictError: another writer changed `streams` meanwhile.
        RequestError: a store cannot have this number of buckets.  Or the name of the source is
            empty, or contains credentials.
    """
    check_options(buckets, source)
    definitions.check()
    with repair_lock(definitions.folder, is_repair=accept_replaced).held_for("init"):
        return _created(definitions, buckets, source, source_of, accept_replaced=accept_replaced)


def repair_lock(
    folder: Path | None, *, is_repair: bool = True, wait_ms: int | None = None
) -> WriteLock:
    """Return the lock to hold while a command changes the tables of a store.

    The lock does nothing if there is no store yet.

    Args:
        folder: the store's folder.  None if the store is elsewhere.  Such a store is not locked.
        is_repair: False if only missing tables are created.  Then a complete store is not locked.
        wait_ms: see `WriteLock`.
    """
    logs = [] if folder is None else [folder / name / "_delta_log" for name in TABLES]
    log_exists = [log.is_dir() for log in logs]
    is_locked = any(log_exists) and (is_repair or not all(log_exists))
    return WriteLock(folder if is_locked else None, wait_ms)


def _created(
    definitions: Definitions,
    buckets: int | None,
    source: str | None,
    source_of: Callable[[Store], str | None],
    *,
    accept_replaced: bool,
) -> Creation:
    where, present = definitions.where, definitions.properties()
    check_versions(where, present)

    def filled_from() -> str | None:
        return source_of(definitions.handle(present)) if len(present) == len(TABLES) else None

    check_same(where, present, buckets, source, filled_from)
    requested_buckets = buckets
    buckets = buckets or buckets_of(where, present) or schema.DEFAULT_BUCKETS
    review = _Review(Accepted())
    if present:
        check_columns(definitions.structs(present), tables=present)
        # Proofs are invalidated before tables are created.  So a process that is killed in between
        # leaves no wrong proofs.
        review = _review_tables(definitions, present, buckets, accept_replaced=accept_replaced)
    new = schema.properties_of_new(buckets, source, review.accepted.properties())
    if "streams" not in present:
        definitions.create({"streams": new["streams"]})
        # If another process has created `streams` first, the options of that process apply.
        created = definitions.properties(["streams"])
        check_same(where, created, requested_buckets, source, filled_from)
        entries_id = created["streams"][schema.ENTRIES_ID_PROPERTY]
        buckets = buckets_of(where, created) or buckets
        new = schema.properties_of_new(buckets, entries_id=entries_id)
    missing = {name: new[name] for name in TABLES if name not in {*present, "streams"}}
    if missing:
        definitions.create(missing)
    has_lost_proofs_since = bind_proofs(definitions)
    return Creation(
        checked(definitions),
        was_there=len(present) == len(TABLES),
        has_lost_proofs=review.has_lost_proofs or has_lost_proofs_since,
        newly_accepted=review.newly_accepted,
        created=tuple(name for name in TABLES if name not in present) if present else (),
    )


# ------------------------------------------------------------------- replaced and lost tables


@dataclass(frozen=True, slots=True)
class _Review:
    """State the result of `_review_tables`, see `Creation`.

    Attributes:
        accepted: the tables that are accepted after the review.
    """

    accepted: Accepted
    has_lost_proofs: bool = False
    newly_accepted: tuple[str, ...] = ()


def _review_tables(
    definitions: Definitions,
    present: Mapping[str, Mapping[str, str]],
    buckets: int,
    *,
    accept_replaced: bool,
) -> _Review:
    """Refuse replaced tables, or accept them as they are.

    A lost table is accepted at the version that it will have when it is created.  If `entries` or
    `streams` was replaced or lost, the proofs are invalidated.

    Args:
        present: the properties of the tables that exist.  The other tables were lost.
        accept_replaced: see `create`.

    Raises:
        SchemaError: tables were replaced, but `accept_replaced` is False.  The message names the
            tables, and nothing was changed.  Or the proofs must be invalidated, but `streams` is
            append-only.
        CommitConflictError: another writer changed `streams` meanwhile.
    """
    # A store needs these properties, even if `streams` was lost.
    if_lost = {schema.BUCKETS_PROPERTY: str(buckets), schema.TABLE_ID_PROPERTY: ""}
    store = definitions.handle({"streams": if_lost, **present})
    runs = _versions_seen(store, present)
    older = find_replaced(_versions(store, present), runs, store.accepted)
    has_other_entries = not schema.ranges_match_entries(present)
    if not accept_replaced:
        _refuse_replaced(store, present, older, has_other_entries=has_other_entries)
    has_lost_proofs = has_other_entries or not PROVING.isdisjoint(older)
    if has_lost_proofs and "streams" in present:
        invalidate_proofs(store, present["streams"])
    review = _Review(store.accepted, has_lost_proofs)
    if not older:
        return review
    # The versions of all tables are stored, because a run that began earlier may have pinned an
    # earlier version of any table.
    accepted = Accepted(max(run.run_seq for run in runs), _versions(store, present))
    if "streams" in present:
        definitions.change("streams", accepted.properties())
    return replace(review, accepted=accepted, newly_accepted=tuple(older))


def _versions(store: Store, present: Collection[str]) -> dict[str, int]:
    """Return the versions of all tables.  A lost table has 0, the version of its creation."""
    return {**dict.fromkeys(TABLES, 0), **store.pin(present).versions}


def _refuse_replaced(
    store: Store, present: Collection[str], older: Mapping[str, str], *, has_other_entries: bool
) -> None:
    replaced = {table: versions for table, versions in older.items() if table in present}
    if replaced:
        raise error_of(store.where, replaced)
    # Two processes may have created tables at once.  So another `entries` is refused only if a
    # stream has a proof, because without proofs no entry counts as deleted.
    if not ("entries" in present and has_other_entries):
        return
    if not store.relation("streams").where("complete_from_ms IS NOT NULL").is_empty():
        raise other_entries_error(store.where)


def _versions_seen(store: Store, present: Collection[str]) -> list[Seen]:
    """Return the versions that the newest finished run and all unfinished runs have seen."""
    newest, _ = newest_run(store) if "runs" in present else (None, False)
    finished = 0 if newest is None else newest.run_seq
    later = Condition("run_seq", finished, is_above=True)
    is_run = Condition("kind", str(Kind.RUN))
    unfinished = find(store, "journal", is_run, later) if "journal" in present else []
    runs = [Seen(row["run_seq"], json.loads(row["inputs"])["versions"]) for row in unfinished]
    return runs if newest is None else [*runs, newest]


def bind_proofs(definitions: Definitions) -> bool:
    """Set the property of `streams` that names the `entries` that its proofs are about.

    The property is missing or wrong if one of the two tables is new, or if the store is older than
    the property.

    Returns: True if the proofs were invalidated first, because another process has created
        `entries` again meanwhile.

    Raises:
        SchemaError, CommitConflictError: see `invalidate_proofs`.
    """
    present = definitions.properties(("streams", "entries"))
    entries_id = present.get("entries", {}).get(schema.TABLE_ID_PROPERTY)
    of_streams = present.get("streams", {})
    if entries_id is None or of_streams.get(schema.ENTRIES_ID_PROPERTY) == entries_id:
        return False
    has_other_entries = not schema.ranges_match_entries(present)
    if has_other_entries:
        invalidate_proofs(definitions.handle(present), of_streams)
    definitions.change("streams", {schema.ENTRIES_ID_PROPERTY: entries_id})
    return has_other_entries


def invalidate_proofs(store: Store, of_streams: Mapping[str, str]) -> None:
    """Invalidate the completeness ranges of all streams.

    The ranges describe tables that no longer exist.  With a new `entries`, all entries would count
    as deleted.

    Args:
        of_streams: the properties of `streams`.

    Raises:
        SchemaError: `streams` is append-only.
        CommitConflictError: another writer changed `streams` meanwhile.
    """
    if schema.is_append_only(of_streams):
        raise append_only_error(store.where, "streams")
    store.writer.update("streams", schema.NO_COMPLETENESS_RANGE, "true")
