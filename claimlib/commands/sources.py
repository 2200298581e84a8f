"""Find the source of a store and its name, and check which server may fill the store.

A source has one current name.  It is the name that the last snapshot used, or the name that `init`
has given since.  A snapshot under another name needs a proof that it reads the same server.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from claimlib.commands.mirror import IMPORT, SNAPSHOT
from claimlib.engine.relation import DESCENDING, Relation, union_by_name
from claimlib.errors import NotAMirrorError, SourceMismatchError
from claimlib.runs import Begun, pinned
from claimlib.runs.journal import ServerIdentity, ServerProof
from claimlib.runs.rollforward import NOT_ABANDONED
from claimlib.store.tables import Store

Mirrored = frozenset[tuple[str, str | None]]
"""Type the sources of a store, each with the command that read it.

The command is None if a row of `streams` names the source.
"""


def mirrored(begun: Begun) -> Mirrored:
    """Return the sources that filled a store, by one query.  Empty if no source did."""
    # Even if no stream is left, the finished runs name the source.
    of_streams = begun.relation("streams").select("source", "NULL AS command")
    of_runs = begun.relation("runs").where(NOT_ABANDONED)
    both = union_by_name([of_streams, of_runs], {"source": "STRING", "command": "STRING"})
    rows = both.where("source IS NOT NULL").distinct().collect()
    return frozenset((row["source"], row["command"]) for row in rows)


@dataclass(frozen=True, slots=True)
class LastSnapshot:
    """Hold the source that the last finished snapshot read, and the ids of its server."""

    run_seq: int
    source: str
    server: ServerIdentity


def last_snapshot(runs: Relation) -> LastSnapshot | None:
    """Return the last finished snapshot among rows of `runs`, or None if there is none."""
    snapshots = runs.where(f"command = '{SNAPSHOT}' AND {NOT_ABANDONED}")
    row = snapshots.order_by(f"run_seq{DESCENDING}").first()
    if row is None:
        return None
    server = ServerIdentity(row["server_run_id"], row["replication_id"])
    return LastSnapshot(row["run_seq"], row["source"], server)


def current_name(store: Store, last: LastSnapshot | None) -> str | None:
    """Return the current name of a store's source.

    The result is None if neither `init` nor a snapshot named the source.

    Args:
        last: the last snapshot of the store.
    """
    declared = store.declared_source
    if last is None or (declared is not None and last.run_seq <= store.declared_after):
        return declared
    return last.source


def source_of(store: Store) -> str | None:
    """Return the current name of the source that a store mirrors, or None if it mirrors none."""
    begun, _ = pinned(store, ("streams", "runs"))
    current = current_name(store, last_snapshot(begun.relation("runs")))
    return current or min((name for name, _ in mirrored(begun)), default=None)


def server_of(begun: Begun) -> str | None:
    """Return the name of the server that fills a store, or None if there was no snapshot."""
    last = last_snapshot(begun.relation("runs"))
    return None if last is None else current_name(begun.store, last)


def check_source(
    begun: Begun, kept: Mirrored, source: str, foreign_command: str | None = None
) -> None:
    """Raise SourceMismatchError if a source is not the one that the store mirrors.

    Args:
        kept: the sources of the store, see `mirrored`.
        foreign_command: a command whose sources do not match, even if they have the same name.
            None if there is no such command.

    Raises:
        SourceMismatchError: the message names both sources.
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
        " one source; create another store for this one",
        kept=name,
        requested=source,
    )


def expected_snapshot(begun: Begun, source: str) -> LastSnapshot | None:
    """Return the snapshot whose server must be the one read now, or None if any server may be read.

    Raises:
        SourceMismatchError: another source fills the store, see `_snapshot_to_match`.
        NotAMirrorError: the store has rows, but mirrors no source.
    """
    kept = mirrored(begun)
    last = _snapshot_to_match(begun, kept, source)
    _refuse_own_rows(begun, kept)
    return last


def refuse_other_server(begun: Begun, source: str, server: ServerIdentity) -> None:
    """Raise an error if the store must not be filled from a server.

    Raises:
        SourceMismatchError: see `expected_snapshot` and `check_same_server`.
        NotAMirrorError: see `expected_snapshot`.
    """
    last = expected_snapshot(begun, source)
    if last is not None:
        check_same_server(begun, last, source, server)


def refuse_import(begun: Begun) -> None:
    """Raise SourceMismatchError if a server fills the store."""
    source = begun.store.declared_source or IMPORT
    check_source(begun, mirrored(begun), source, foreign_command=SNAPSHOT)


def _snapshot_to_match(begun: Begun, kept: Mirrored, source: str) -> LastSnapshot | None:
    """Return the snapshot whose server must be the one read now, or None if any server may be read.

    Under the current name of its source, a store accepts any server, because a restart changes the
    ids of a server.

    Raises:
        SourceMismatchError: imports fill the store, or the name is that of another database.  Or no
            snapshot has filled the store so far, and its source has another name.
    """
    last = last_snapshot(begun.relation("runs"))
    if last is None or any(command == IMPORT for _, command in kept):
        check_source(begun, kept, source, foreign_command=IMPORT)
        return None
    current = current_name(begun.store, last)
    if source == current:
        return None
    if not is_same_database(source, last.source):
        raise SourceMismatchError(
            f"the store {begun.store.where} is filled from {current}, not from {source}, which is"
            " another database: a store has one source."
            f" {_remedy(begun.store, source, 'the data were moved there')}",
            kept=current,
            requested=source,
        )
    return last


def is_same_database(source: str, other: str) -> bool:
    """Return True if two names `host:port/db` have the same database number.

    The ids of a server do not show this, because all of its databases share them.
    """
    return source.rpartition("/")[2] == other.rpartition("/")[2]


def check_same_server(
    begun: Begun, last: LastSnapshot, source: str, server: ServerIdentity
) -> ServerProof:
    """Return the proof that a server is the one that the last snapshot read.

    Raises:
        SourceMismatchError: there is no proof.  The message names both sources and the compared
            ids.
    """
    proof = server.proof_of(last.server)
    if proof is None:
        current = current_name(begun.store, last)
        raise SourceMismatchError(
            f"the store {begun.store.where} is filled from {current}, and nothing proves that"
            f" {source} is the same server: {_compared(last.server, server)}. Nothing was changed."
            f" {_remedy(begun.store, source, 'it is the same, for example after a restart')}",
            kept=current,
            requested=source,
        )
    return proof


def _compared(before: ServerIdentity, now: ServerIdentity) -> str:
    if now == ServerIdentity():
        return "it tells neither its run_id nor its replication id (grant the user +info)"
    pairs = {
        "run_id": (now.run_id, before.run_id),
        "replication id": (now.replication_id, before.replication_id),
    }
    return ", ".join(
        f"its {name} is {_shortened(own)} (at the last snapshot: {_shortened(last)})"
        for name, (own, last) in pairs.items()
    )


def _shortened(ids: str | None) -> str:
    """Return the beginnings of ids.  A cluster has one id per master, separated by spaces."""
    return "unknown" if ids is None else " ".join(f"{id_[:8]}…" for id_ in ids.split())


def _remedy(store: Store, source: str, condition: str) -> str:
    return (
        f"If {condition}, run: claimlib init"
        f" {shlex.quote(store.where)} --source {shlex.quote(source)}. Otherwise create another"
        " store for it"
    )


def _refuse_own_rows(begun: Begun, kept: Mirrored) -> None:
    """Raise NotAMirrorError if a store has rows, but mirrors no source.

    The first snapshot would remove these rows.

    Raises:
        NotAMirrorError: the message names the tables that have rows, and what to do.
    """
    if kept or begun.store.declared_source is not None:
        return
    tables = ("pending", "entries", "groups", "consumers", "streams")
    firsts = [begun.relation(name).limit(1).select(f"'{name}' AS of") for name in tables]
    filled = [row["of"] for row in union_by_name(firsts, {"of": "STRING"}).collect()]
    if filled:
        raise NotAMirrorError(
            f"the store {begun.store.where} has rows ({', '.join(filled)}) and mirrors no server:"
            " a snapshot would replace them with the server's data. Create another store for the"
            " snapshot (claimlib init), or delete these rows first",
            where=begun.store.where,
            tables=filled,
        )
