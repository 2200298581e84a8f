"""A sweep in a process of its own that stops for good at a phase: `killed_run.py STORE PHASE FILE`.

It tells by the file that it is there; who started it kills it.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from pels import REQUEST

from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.runs import Phase
from claimlib.session import open_session
from claimlib.store import Store


def main(where: str, stop_at: str, told: str) -> None:
    def stop(phase: Phase, detail: str) -> None:
        if phase == stop_at:
            Path(told).write_text(detail, encoding="utf-8")
            signal.pause()

    spark = open_session(master="local[1]", driver_memory="1g", shuffle_partitions=1, muted=True)
    xautoclaim(Store.open(spark, where), SweepRequest(REQUEST), run_id="killed", progress=stop)


if __name__ == "__main__":
    main(*sys.argv[1:])
