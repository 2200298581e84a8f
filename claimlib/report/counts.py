"""Explain each count that a run reports."""

from __future__ import annotations

from collections.abc import Mapping

from claimlib.commands.maintain import OLDEST_SOURCE, RUNS_DELETED
from claimlib.commands.mirror import CLAIMS_REPLACED, UNEXPLAINED
from claimlib.commands.undo import CONSUMERS, CURSORS, GROUPS
from claimlib.plans.writeback_plan import CONSUMERS_KEPT, CONSUMERS_REMOVED, DECIDED
from claimlib.runs.journal import ServerProof
from claimlib.runs.maintenance import (
    BYTES_REMOVED,
    COMPACTED,
    FILES_REMOVED,
    ROWS_DELETED,
    THROUGH,
    count_of,
)
from claimlib.runs.mirror_rows import NEW
from claimlib.runs.rollforward import ABANDONED
from claimlib.schema import TABLES, Kind

_OF_TABLES = {
    "files_before": "files of this table before the run",
    "bytes_before": "size of these files in bytes before the run",
    "files_after": "files of this table after the run",
    "bytes_after": "size of these files in bytes after the run",
    COMPACTED: "small files that the compaction replaced",
    ROWS_DELETED: "rows that the run decided to delete",
    FILES_REMOVED: "files of earlier versions that were deleted",
    BYTES_REMOVED: "size of the deleted files in bytes",
}
MEANINGS: Mapping[str, str] = {
    # decisions about entries
    Kind.CLAIMED: "entries given to another consumer, as decided",
    Kind.FORCED: "entries made pending by --force",
    Kind.SUPERSEDED: "claims replaced by a later request of the run",
    Kind.DELETED: "pending entries removed, because their stream entry is gone",
    Kind.ACKED: "entries acknowledged",
    Kind.LEFT: "ids left alone, because not idle for long enough",
    Kind.NOT_PENDING: "ids that were not pending",
    "lost": "decided entries whose row another writer changed first",
    Kind.GONE: "decided entries no longer pending: removed by this run, a writer or a client",
    # entries of a run that were written back to the server
    DECIDED: "entries of the run that was written back",
    Kind.MOVED: "entries claimed on the server",
    Kind.ACKNOWLEDGED: "entries acknowledged on the server",
    Kind.TOUCHED: "entries left alone, because another client changed them since the snapshot",
    CONSUMERS_REMOVED: "consumers removed on the server",
    CONSUMERS_KEPT: "consumers that received entries and stay on the server",
    "delivered_later": "entries delivered after the time of the run",
    "spared": "entries idle for long enough, left alone by a guard",
    "parked": "claimed entries given to the parking consumer",
    # entries, consumers, cursors and groups of a run that was undone
    Kind.RESTORED: "claimed entries given back to their earlier owners",
    Kind.RETURNED: "deleted or acknowledged entries made pending again",
    Kind.WITHDRAWN: "entries no longer pending, as before the run that was undone",
    Kind.KEPT: "entries left alone, because they changed after the run that was undone",
    CONSUMERS: "consumers as before the run that was undone",
    CURSORS: "cursors as before the run that was undone",
    GROUPS: "groups whose last delivered id is as before the run that was undone",
    # tables that `maintain` compacted and cleaned
    Kind.EXPIRED: "readings whose staged rows were deleted",
    RUNS_DELETED: "runs whose journal rows were deleted",
    THROUGH: "the last run whose journal rows were deleted",
    OLDEST_SOURCE: "the run from which on all journal rows stay",
    # groups and requests
    Kind.SWEPT: "groups swept",
    Kind.REFUSED: "groups or requests refused",
    Kind.CURSOR: "groups whose cursor was set",
    Kind.REQUESTED: "requests carried out",
    "without_request": "groups that match no request of the policy",
    Kind.RETIRED: "consumers removed",
    "not_idle": "consumers that match and stay, because they were not idle for long enough",
    ABANDONED: "1: the run was abandoned",
    # rows read by a snapshot or an import
    "streams": "streams read",
    "groups": "groups read",
    "pending_read": "pending entries read",
    "entries_read": "stream entries read",
    "commands": "commands sent to the server",
    "vanished": "streams or groups deleted while they were read",
    "server_restarted": "1: the server's process has changed",
    "replication_changed": "1: the server's replication id has changed",
    ServerProof.RUN_ID: "1: the run_id showed that it is the same server",
    ServerProof.REPLICATION_ID: "1: the replication id showed that it is the same server",
    "groups_without_instant": "groups without a snapshot time",
    "streams_without_proof": "streams whose entries are not known to be complete",
    # rows changed by a snapshot or an import
    NEW["pending"]: "pending entries added",
    NEW["entries"]: "stream entries added",
    "pending_written": "pending entries added or changed",
    Kind.PENDING_REPLACED: "pending entries changed",
    Kind.PENDING_REMOVED: "pending entries removed",
    Kind.ENTRY_FILLED: "payloads added or changed",
    Kind.ENTRY_REMOVED: "stream entries removed",
    Kind.GROUP_REMOVED: "groups removed",
    Kind.CONSUMER_REMOVED: "consumers removed",
    Kind.STREAM_REMOVED: "streams removed",
    Kind.MASTER_DOWN: "masters of the cluster that did not answer",
    Kind.STREAM_LEFT: "streams left as they were, because their master did not answer",
    CLAIMS_REPLACED: "claims of this store overwritten",
    UNEXPLAINED: "rows removed without an explanation",
    "pending_missing": "pending rows read, but removed since by another writer",
    "pending_extra": "pending rows added since by another writer",
    "entries_missing": "entries read, but removed since by another writer",
    "entries_extra": "entries added since by another writer",
    **{count_of(table, name): meaning for table in TABLES for name, meaning in _OF_TABLES.items()},
}
"""A line of explanation for each count, by its name."""
