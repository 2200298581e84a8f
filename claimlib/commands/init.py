"""Create a store, or rename the source of a store."""

from __future__ import annotations

from dataclasses import dataclass, replace

from claimlib.commands.sources import LastSnapshot, current_name, last_snapshot, source_of
from claimlib.live.address import is_server_url, source_label
from claimlib.runs.known import load_known_runs
from claimlib.schema import source_properties
from claimlib.store.checks import check_versions
from claimlib.store.creation import Creation, create
from claimlib.store.definitions import Definitions
from claimlib.store.opening import checked


@dataclass(frozen=True, slots=True)
class Renamed:
    """Describe how the source of a store was renamed.

    Attributes:
        before, now: the former name and the new name.
        last: the last snapshot, with the ids of the server that it read.
    """

    before: str
    now: str
    last: LastSnapshot


def init(
    definitions: Definitions,
    *,
    buckets: int | None = None,
    source: str | None = None,
    accept_replaced: bool = False,
) -> tuple[Creation, Renamed | None]:
    """Create the missing tables of a store, and rename its source if the name is new.

    Only the source of a store that snapshots have filled can be renamed.  The history stays.

    Args:
        source: the name of the source that the store mirrors.  If snapshots have filled the store,
            this is the new address of their server, as a URL or as `host:port/db`.
        buckets, accept_replaced: see `creation.create`.

    Returns:
        The store, and the renaming of its source.  The latter is None if the name did not change.

    Raises:
        RequestError: see `creation.create`.  Or the address is not valid.
        StoreExistsError: the store exists with another number of buckets.  Or it has another
            source, which cannot be renamed, because no snapshot has filled the store.
        Other errors: see `creation.create`.
    """
    last = None if source is None else _last_snapshot(definitions)
    if source is None or last is None:
        name = source_label(source) if source is not None and is_server_url(source) else source
        return create(
            definitions,
            buckets=buckets,
            source=name,
            accept_replaced=accept_replaced,
            source_of=source_of,
        ), None
    new_name = source_label(source if is_server_url(source) else f"redis://{source}")
    creation = create(
        definitions, buckets=buckets, accept_replaced=accept_replaced, source_of=source_of
    )
    before = current_name(creation.store, last)
    if before is None or before == new_name:
        return creation, None
    # A run that is decided but not finished also belongs to the old name.
    after = load_known_runs(creation.store).last_seq
    definitions.change("streams", source_properties(new_name, after))
    return replace(creation, store=checked(definitions)), Renamed(before, new_name, last)


def _last_snapshot(definitions: Definitions) -> LastSnapshot | None:
    """Return the last snapshot of a store, or None if no snapshot has filled it."""
    present = definitions.properties()
    if not {"streams", "runs"} <= present.keys():
        return None
    check_versions(definitions.where, present)
    return last_snapshot(definitions.handle(present).relation("runs"))
