"""Redis XAUTOCLAIM semantics over Delta tables.

The public face: `from claimlib import Store, open_session, xautoclaim`.  Each name is imported when
it is first used, so importing this package needs the standard library only; so do
`claimlib.errors`, `claimlib.times` and `claimlib.semantics`.  XPENDING is
`claimlib.commands.xpending`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from claimlib.commands.check import check
    from claimlib.commands.imports import ImportRequest, import_tables
    from claimlib.commands.retire import Retirement, retire
    from claimlib.commands.snapshot import SnapshotRequest, snapshot
    from claimlib.commands.writeback import writeback
    from claimlib.commands.xack import NamedAck, xack
    from claimlib.commands.xautoclaim import SweepRequest, explain, xautoclaim
    from claimlib.commands.xclaim import NamedClaim, xclaim
    from claimlib.engine.spark import frame_of
    from claimlib.live.access import ServerAccess
    from claimlib.live.reading import ServerReading
    from claimlib.semantics.ids import StreamId, parse_id
    from claimlib.semantics.model import (
        AutoclaimRequest,
        ClaimRequest,
        Guards,
        IdleRule,
        PendingRange,
        Profile,
        RemovalLimits,
    )
    from claimlib.session import open_session
    from claimlib.store.tables import Store

__version__ = "0.1.0"

__all__ = [
    "AutoclaimRequest",
    "ClaimRequest",
    "Guards",
    "IdleRule",
    "ImportRequest",
    "NamedAck",
    "NamedClaim",
    "PendingRange",
    "Profile",
    "RemovalLimits",
    "Retirement",
    "ServerAccess",
    "ServerReading",
    "SnapshotRequest",
    "Store",
    "StreamId",
    "SweepRequest",
    "__version__",
    "check",
    "explain",
    "frame_of",
    "import_tables",
    "open_session",
    "parse_id",
    "retire",
    "snapshot",
    "writeback",
    "xack",
    "xautoclaim",
    "xclaim",
]

_HOMES = {
    "AutoclaimRequest": "claimlib.semantics.model",
    "ClaimRequest": "claimlib.semantics.model",
    "Guards": "claimlib.semantics.model",
    "IdleRule": "claimlib.semantics.model",
    "ImportRequest": "claimlib.commands.imports",
    "NamedAck": "claimlib.commands.xack",
    "NamedClaim": "claimlib.commands.xclaim",
    "PendingRange": "claimlib.semantics.model",
    "Profile": "claimlib.semantics.model",
    "RemovalLimits": "claimlib.semantics.model",
    "Retirement": "claimlib.commands.retire",
    "ServerAccess": "claimlib.live.access",
    "ServerReading": "claimlib.live.reading",
    "SnapshotRequest": "claimlib.commands.snapshot",
    "Store": "claimlib.store.tables",
    "StreamId": "claimlib.semantics.ids",
    "SweepRequest": "claimlib.commands.xautoclaim",
    "check": "claimlib.commands.check",
    "explain": "claimlib.commands.xautoclaim",
    "frame_of": "claimlib.engine.spark",
    "import_tables": "claimlib.commands.imports",
    "open_session": "claimlib.session",
    "parse_id": "claimlib.semantics.ids",
    "retire": "claimlib.commands.retire",
    "snapshot": "claimlib.commands.snapshot",
    "writeback": "claimlib.commands.writeback",
    "xack": "claimlib.commands.xack",
    "xautoclaim": "claimlib.commands.xautoclaim",
    "xclaim": "claimlib.commands.xclaim",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """What there is, imported or not yet."""
    return sorted(__all__)
