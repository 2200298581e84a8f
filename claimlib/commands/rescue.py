"""Rescue stalled entries of a server: snapshot, sweep and writeback under one run id.

Each of the three is a run of its own.  A repeat with the same run id skips the runs that are done,
and continues with the first run that is not.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from claimlib.commands.reply import Reply
from claimlib.commands.snapshot import SnapshotReply, SnapshotRequest, snapshot
from claimlib.commands.writeback import DEFAULT_MAX_AGE_MS, WritebackReply, writeback
from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.commands.xpending import pending_overview, read_store, stalled
from claimlib.live.reading import ServerReading
from claimlib.plans.differences import Scope
from claimlib.runs import Progress
from claimlib.semantics.model import RemovalLimits, parse_run_id
from claimlib.store.tables import Store


@dataclass(frozen=True, slots=True)
class RescueReply:
    """Hold the result of a rescue, or of its dry run.

    Attributes:
        run_id: the run id of all three runs.
        read: the reply of the snapshot.
        swept: the reply of the sweep, or of its dry run.
        written: the reply of the writeback.  None in a dry run, or if the sweep changed nothing.
        stalled: the number of entries in the scope of the sweep that are still stalled.  An entry
            is stalled if it had been idle for the sweep's minimum idle time at the snapshot.
    """

    run_id: str
    dry_run: bool
    read: SnapshotReply
    swept: Reply
    written: WritebackReply | None
    stalled: int

    @property
    def is_repeat(self) -> bool:
        """Return True if all runs of the rescue were already done."""
        runs = (self.read, self.swept, self.written)
        return all(run.is_repeat for run in runs if run is not None)


def rescue(
    store: Store,
    reading: ServerReading,
    sweep: SweepRequest,
    *,
    run_id: str | None = None,
    max_age_ms: int = DEFAULT_MAX_AGE_MS,
    limits: RemovalLimits | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> RescueReply:
    """Take a snapshot of a server, claim stalled entries, and make the claims on the server.

    Args:
        reading: the server, and which of its streams and groups are read.
        sweep: the request of the sweep.  The caller gives it the globs of the reading.
        run_id: the run id of the snapshot, the sweep and the writeback.  None means that a run id
            is generated.
        max_age_ms: see `writeback`.
        limits: how many rows of the store the snapshot may remove.  None means the defaults.
        dry_run: True to take the snapshot, and only show the entries that would be claimed.  The
            sweep is not written to the store, and nothing is sent.
        progress: called as each phase begins, and again with each new detail.

    Raises:
        ClaimlibError: an error of `snapshot`, `xautoclaim` or `writeback`.
    """
    # A dry run takes its snapshot under a new run id.  Under the given run id, a later rescue would
    # find this snapshot done, and take none.
    run_id = uuid.uuid4().hex if run_id is None or dry_run else parse_run_id(run_id)
    request = SnapshotRequest(
        reading.label,
        reading.stream_glob,
        reading.group_glob,
        reading.fields,
        limits or RemovalLimits(),
    )
    read = snapshot(store, request, reading, run_id=run_id, progress=progress)
    swept = xautoclaim(store, sweep, run_id=run_id, dry_run=dry_run, progress=progress)
    written = None
    changed = swept.counts["claimed"] + swept.counts["deleted"] - swept.counts["lost"]
    if changed and not dry_run:
        written = writeback(
            store,
            f"xautoclaim:{run_id}",
            reading,
            run_id=run_id,
            max_age_ms=max_age_ms,
            progress=progress,
        )
    return RescueReply(run_id, dry_run, read, swept, written, _stalled(store, sweep))


def _stalled(store: Store, sweep: SweepRequest) -> int:
    """Return the number of stalled entries, see `RescueReply.stalled`."""
    groups = pending_overview(
        read_store(store),
        scope=Scope(sweep.stream_glob, sweep.group_glob),
        stalled_ms=sweep.autoclaim.min_idle_ms,
    )
    number, _ = stalled(groups)
    return number
