"""Sweeps in a process of their own that stop for good at a phase each:
`killed_run.py ENGINE FOLDER STORE=PHASE …`.

Each tells by the file STORE.told in FOLDER that it is there; who started the process kills it.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from claimlib.commands.xautoclaim import SweepRequest, xautoclaim
from claimlib.runs import Phase
from claimlib.store.opening import open_folder
from claimlib.store.tables import Store
from tests.delta.pels import REQUEST
from tests.quick_spark import quick_session


def run_until(opened: Callable[[str], Store], where: Path, stop_at: str) -> None:
    """Run to a phase and stay there; should the run come to an end, so does the process."""

    def stop(phase: Phase, detail: str) -> None:
        if phase == stop_at:
            where.with_suffix(".told").write_text(detail, encoding="utf-8")
            threading.Event().wait()

    try:
        xautoclaim(opened(str(where)), SweepRequest(REQUEST), run_id="killed", progress=stop)
    except Exception:  # noqa: BLE001 - here the process ends
        traceback.print_exc()
    os._exit(1)


def opened_by(engine: str) -> Callable[[str], Store]:
    if engine == "embedded":
        return partial(open_folder, _no_session, writes=True)
    return partial(Store.open, quick_session())


def _no_session() -> SparkSession:
    raise AssertionError("Spark is not needed")


def main(engine: str, folder: str, *stops: str) -> None:
    opened = opened_by(engine)
    threads = []
    for stop in stops:
        name, _, phase = stop.partition("=")
        threads.append(threading.Thread(target=run_until, args=(opened, Path(folder, name), phase)))
        threads[-1].start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
