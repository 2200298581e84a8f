"""Carry out runs: recover, begin, decide, apply, verify, finish.

A run is atomic, because its decision is ONE commit to the journal.  All later steps follow from the
rows of that commit, and a repeated step changes nothing.  If a run ended after its decision, the
next run finishes it.  If a run ended before its decision, it decided nothing.
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
