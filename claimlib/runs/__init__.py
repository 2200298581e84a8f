"""The protocol of a run, whatever it decides: recover, begin, decide, apply, verify, finish.

A run is atomic: its decision is ONE commit to the journal, and all else follows from the rows of
that commit, by steps that change nothing when they are done again.  A run that died anywhere behind
its decision is rolled forward by whoever runs next; one that died before it has decided nothing.
"""

from claimlib.runs.journal import RunRow
from claimlib.runs.protocol import (
    CLAIMS_SENT,
    DRY_RUN,
    NOTHING_DECIDED,
    Begun,
    Decide,
    Decision,
    begin_dry_run,
    pinned,
    run,
    silent,
    unfinished_error,
)
from claimlib.runs.rollforward import FinishedRun, Phase, Progress

__all__ = [
    "CLAIMS_SENT",
    "DRY_RUN",
    "NOTHING_DECIDED",
    "Begun",
    "Decide",
    "Decision",
    "FinishedRun",
    "Phase",
    "Progress",
    "RunRow",
    "begin_dry_run",
    "pinned",
    "run",
    "silent",
    "unfinished_error",
]
