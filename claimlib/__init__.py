"""Apply the semantics of Redis' XAUTOCLAIM to Delta tables.

Import the public API from here: `from claimlib import open_store, xautoclaim`.  Each name is
imported when it is first used.  So this package can be imported with the standard library alone.
`claimlib.errors`, `claimlib.times` and `claimlib.semantics` also need nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from claimlib.commands.advise import Advice, GroupAdvice, advise
    from claimlib.commands.bulk_reply import BulkReply
    from claimlib.commands.check import Problem, check
    from claimlib.commands.describe import Description, describe
    from claimlib.commands.entry import EntryHistory, consumer_history, entry_history
    from claimlib.commands.imports import ImportReply, ImportRequest, import_tables
    from claimlib.commands.maintain import MaintainReply, maintain
    from claimlib.commands.mirror import NamedStreams
    from claimlib.commands.reply import Reply
    from claimlib.commands.report_period import PeriodReport, period_report
    from claimlib.commands.report_run import RunReport, dry_run_report, run_report
    from claimlib.commands.rescue import RescueReply, rescue
    from claimlib.commands.reset_cursor import reset_cursor
    from claimlib.commands.retire import Retirement, retire
    from claimlib.commands.runs import EntryFilter, RunList, abandon, find_run, list_runs
    from claimlib.commands.series import claims_by_min_idle, compare_min_idles, pending_over_time
    from claimlib.commands.server_commands import ServerCommands, server_commands
    from claimlib.commands.sharing import Sharing
    from claimlib.commands.snapshot import SnapshotReply, SnapshotRequest, snapshot
    from claimlib.commands.stores import init, open_store, upgrade
    from claimlib.commands.sweep_request import Policy, SweepRequest
    from claimlib.commands.undo import UndoReply, undo
    from claimlib.commands.upgrade import Upgrade
    from claimlib.commands.writeback import WritebackReply, writeback
    from claimlib.commands.xack import NamedAck, xack
    from claimlib.commands.xautoclaim import explain, xautoclaim
    from claimlib.commands.xclaim import NamedClaim, xclaim
    from claimlib.commands.xpending import (
        MatchingEntries,
        Reading,
        pending_entries,
        pending_overview,
        pending_range,
        pending_summary,
        read_store,
    )
    from claimlib.config.import_map import load_import_map
    from claimlib.engine.relation import Relation
    from claimlib.engine.spark import frame_of
    from claimlib.errors import (
        AuthenticationFailedError,
        ClaimlibError,
        CommitConflictError,
        ConfigError,
        DamagedTableError,
        DuplicateRowsError,
        DurationError,
        EmptySourceError,
        ForeignRunSeqError,
        GlobError,
        GuardError,
        HashCollisionError,
        IdError,
        InputError,
        InstantError,
        IntervalError,
        LineageError,
        LostRaceError,
        MissingExtraError,
        MissingRowsError,
        NameSpellingError,
        NotAMirrorError,
        PermissionDeniedError,
        ReplyError,
        RequestError,
        RunAbandonedError,
        RunError,
        RunKeyConflictError,
        SchemaError,
        SchemaVersionError,
        SourceError,
        SourceMismatchError,
        SourceUnreachableError,
        SparkEndedError,
        SparkMemoryError,
        SparkUnreachableError,
        StateError,
        StorageError,
        StoreBusyError,
        StoreError,
        StoreExistsError,
        StoreIncompleteError,
        StoreNotFoundError,
        StoreUnreachableError,
        UnfinishedRunError,
        UnsafeLocationError,
        UnsupportedTableError,
        VerificationError,
        VersionExpiredError,
        WorkerError,
        WrongTypeError,
    )
    from claimlib.live.access import ServerAccess
    from claimlib.live.data_source import register_redis_sources
    from claimlib.live.reading import ServerReading
    from claimlib.plans.differences import Scope
    from claimlib.plans.input_tables_plan import TableMap
    from claimlib.runs.rollforward import FinishedRun, Phase, Progress
    from claimlib.semantics.ids import (
        MAX_ID,
        MIN_ID,
        StreamId,
        parse_id,
        parse_range_end,
        parse_range_start,
    )
    from claimlib.semantics.model import (
        AutoclaimRequest,
        ClaimRequest,
        Guards,
        IdleRule,
        PendingRange,
        PendingSummary,
        Profile,
        RemovalLimits,
    )
    from claimlib.session import open_session
    from claimlib.store.tables import Store
    from claimlib.times import (
        format_duration_ms,
        format_instant_ms,
        parse_duration_ms,
        parse_instant_ms,
    )

__version__ = "0.1.0"

__all__ = [
    "MAX_ID",
    "MIN_ID",
    "Advice",
    "AuthenticationFailedError",
    "AutoclaimRequest",
    "BulkReply",
    "ClaimRequest",
    "ClaimlibError",
    "CommitConflictError",
    "ConfigError",
    "DamagedTableError",
    "Description",
    "DuplicateRowsError",
    "DurationError",
    "EmptySourceError",
    "EntryFilter",
    "EntryHistory",
    "FinishedRun",
    "ForeignRunSeqError",
    "GlobError",
    "GroupAdvice",
    "GuardError",
    "Guards",
    "HashCollisionError",
    "IdError",
    "IdleRule",
    "ImportReply",
    "ImportRequest",
    "InputError",
    "InstantError",
    "IntervalError",
    "LineageError",
    "LostRaceError",
    "MaintainReply",
    "MatchingEntries",
    "MissingExtraError",
    "MissingRowsError",
    "NameSpellingError",
    "NamedAck",
    "NamedClaim",
    "NamedStreams",
    "NotAMirrorError",
    "PendingRange",
    "PendingSummary",
    "PeriodReport",
    "PermissionDeniedError",
    "Phase",
    "Policy",
    "Problem",
    "Profile",
    "Progress",
    "Reading",
    "Relation",
    "RemovalLimits",
    "Reply",
    "ReplyError",
    "RequestError",
    "RescueReply",
    "Retirement",
    "RunAbandonedError",
    "RunError",
    "RunKeyConflictError",
    "RunList",
    "RunReport",
    "SchemaError",
    "SchemaVersionError",
    "Scope",
    "ServerAccess",
    "ServerCommands",
    "ServerReading",
    "Sharing",
    "SnapshotReply",
    "SnapshotRequest",
    "SourceError",
    "SourceMismatchError",
    "SourceUnreachableError",
    "SparkEndedError",
    "SparkMemoryError",
    "SparkUnreachableError",
    "StateError",
    "StorageError",
    "Store",
    "StoreBusyError",
    "StoreError",
    "StoreExistsError",
    "StoreIncompleteError",
    "StoreNotFoundError",
    "StoreUnreachableError",
    "StreamId",
    "SweepRequest",
    "TableMap",
    "UndoReply",
    "UnfinishedRunError",
    "UnsafeLocationError",
    "UnsupportedTableError",
    "Upgrade",
    "VerificationError",
    "VersionExpiredError",
    "WorkerError",
    "WritebackReply",
    "WrongTypeError",
    "__version__",
    "abandon",
    "advise",
    "check",
    "claims_by_min_idle",
    "compare_min_idles",
    "consumer_history",
    "describe",
    "dry_run_report",
    "entry_history",
    "explain",
    "find_run",
    "format_duration_ms",
    "format_instant_ms",
    "frame_of",
    "import_tables",
    "init",
    "list_runs",
    "load_import_map",
    "maintain",
    "open_session",
    "open_store",
    "parse_duration_ms",
    "parse_id",
    "parse_instant_ms",
    "parse_range_end",
    "parse_range_start",
    "pending_entries",
    "pending_over_time",
    "pending_overview",
    "pending_range",
    "pending_summary",
    "period_report",
    "read_store",
    "register_redis_sources",
    "rescue",
    "reset_cursor",
    "retire",
    "run_report",
    "server_commands",
    "snapshot",
    "undo",
    "upgrade",
    "writeback",
    "xack",
    "xautoclaim",
    "xclaim",
]

# The public names of each module.  A test compares them with the imports above.
_NAMES_BY_MODULE = {
    "claimlib.commands.advise": "Advice GroupAdvice advise",
    "claimlib.commands.bulk_reply": "BulkReply",
    "claimlib.commands.check": "Problem check",
    "claimlib.commands.describe": "Description describe",
    "claimlib.commands.entry": "EntryHistory consumer_history entry_history",
    "claimlib.commands.imports": "ImportReply ImportRequest import_tables",
    "claimlib.commands.maintain": "MaintainReply maintain",
    "claimlib.commands.mirror": "NamedStreams",
    "claimlib.commands.report_period": "PeriodReport period_report",
    "claimlib.commands.reply": "Reply",
    "claimlib.commands.rescue": "RescueReply rescue",
    "claimlib.commands.reset_cursor": "reset_cursor",
    "claimlib.commands.retire": "Retirement retire",
    "claimlib.commands.report_run": "RunReport dry_run_report run_report",
    "claimlib.commands.runs": "EntryFilter RunList abandon find_run list_runs",
    "claimlib.commands.series": "claims_by_min_idle compare_min_idles pending_over_time",
    "claimlib.commands.server_commands": "ServerCommands server_commands",
    "claimlib.commands.sharing": "Sharing",
    "claimlib.commands.snapshot": "SnapshotReply SnapshotRequest snapshot",
    "claimlib.commands.stores": "init open_store upgrade",
    "claimlib.commands.sweep_request": "Policy SweepRequest",
    "claimlib.commands.undo": "UndoReply undo",
    "claimlib.commands.upgrade": "Upgrade",
    "claimlib.commands.writeback": "WritebackReply writeback",
    "claimlib.commands.xack": "NamedAck xack",
    "claimlib.commands.xautoclaim": "explain xautoclaim",
    "claimlib.commands.xclaim": "NamedClaim xclaim",
    "claimlib.commands.xpending": (
        "MatchingEntries Reading pending_entries pending_overview pending_range pending_summary "
        "read_store"
    ),
    "claimlib.config.import_map": "load_import_map",
    "claimlib.engine.relation": "Relation",
    "claimlib.engine.spark": "frame_of",
    "claimlib.errors": (
        "AuthenticationFailedError ClaimlibError CommitConflictError ConfigError "
        "DamagedTableError DuplicateRowsError DurationError EmptySourceError ForeignRunSeqError "
        "GlobError GuardError HashCollisionError IdError InputError InstantError IntervalError "
        "LineageError LostRaceError MissingExtraError MissingRowsError NameSpellingError "
        "NotAMirrorError PermissionDeniedError ReplyError RequestError RunAbandonedError RunError "
        "RunKeyConflictError SchemaError SchemaVersionError SourceError SourceMismatchError "
        "SourceUnreachableError SparkEndedError SparkMemoryError SparkUnreachableError StateError "
        "StorageError StoreBusyError StoreError StoreExistsError StoreIncompleteError "
        "StoreNotFoundError StoreUnreachableError UnfinishedRunError UnsafeLocationError "
        "UnsupportedTableError VerificationError VersionExpiredError WorkerError WrongTypeError"
    ),
    "claimlib.live.access": "ServerAccess",
    "claimlib.live.data_source": "register_redis_sources",
    "claimlib.live.reading": "ServerReading",
    "claimlib.plans.differences": "Scope",
    "claimlib.plans.input_tables_plan": "TableMap",
    "claimlib.runs.rollforward": "FinishedRun Phase Progress",
    "claimlib.semantics.ids": "MAX_ID MIN_ID StreamId parse_id parse_range_end parse_range_start",
    "claimlib.semantics.model": (
        "AutoclaimRequest ClaimRequest Guards IdleRule PendingRange PendingSummary Profile "
        "RemovalLimits"
    ),
    "claimlib.session": "open_session",
    "claimlib.store.tables": "Store",
    "claimlib.times": "format_duration_ms format_instant_ms parse_duration_ms parse_instant_ms",
}
_HOMES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}


if not TYPE_CHECKING:  # because of `__getattr__`, a type checker would accept every name

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used (PEP 562)."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Return the public names, including those that are not imported yet."""
    return sorted(__all__)
