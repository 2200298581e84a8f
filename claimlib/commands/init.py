"""Create a store, or give the source of a store another name."""

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
    """State that the source of a store has another name.

    Attributes:
        before, now: the names.
        last: the last snapshot.  The ids of its server can show that it is the same server.
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
    """Create the tables of a store that do not exist, or rename the source that snapshots read.

    The history of a renamed store stays.  Its next snapshot is of the new name.

    Args:
        source: what the store mirrors.  If snapshots have filled the store, this is the new address
            of their server, as a URL or as `host:port/db`.
        buckets, accept_replaced: see `creation.create`.

    Returns:
        The store, and its renaming, or None if the name is as before.

    Raises:
        RequestError: see `creation.create`.  Also if the address is not valid.
        StoreExistsError: a store with other buckets exists.  Also if the store has another source,
            which is no server that a snapshot has read.
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
    name = source_label(source if is_server_url(source) else f"redis://{source}")
    creation = create(
        definitions, buckets=buckets, accept_replaced=accept_replaced, source_of=source_of
    )
    before = current_name(creation.store, last)
    if before is None or before == name:
        return creation, None
    # A run that is decided and not finished also belongs to the old name.
    after = load_known_runs(creation.store).last_seq
    definitions.change("streams", source_properties(name, after))
    return replace(creation, store=checked(definitions)), Renamed(before, name, last)


def _last_snapshot(definitions: Definitions) -> LastSnapshot | None:
    """Return the last snapshot of a store, or None if no snapshot has filled it."""
    present = definitions.properties()
    if not {"streams", "runs"} <= present.keys():
        return None
    check_versions(definitions.where, present)
    return last_snapshot(definitions.handle(present).relation("runs"))
