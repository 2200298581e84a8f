"""The finished runs of a store: list them, find one by the name that people give it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyspark.sql import functions as F

from claimlib.errors import RequestError
from claimlib.runs import Finished
from claimlib.runs.journal import run_rows
from claimlib.runs.rollforward import find_finished, find_finished_seq
from claimlib.store import Store


@dataclass(frozen=True, slots=True)
class RunList:
    """The newest finished runs, newest first, how many there are in all, and the keys of runs that
    are decided and not finished: the next run finishes them."""

    runs: tuple[Finished, ...]
    total: int
    unfinished: tuple[str, ...]


def list_runs(store: Store, limit: int) -> RunList:
    """The newest `limit` finished runs, and what is not finished."""
    runs = store.read("runs")
    newest = runs.orderBy(F.col("run_seq").desc()).limit(limit).collect()
    last = newest[0]["run_seq"] if newest else 0
    unfinished = tuple(row.key for row in run_rows(store, last))
    return RunList(tuple(Finished.of(row) for row in newest), runs.count(), unfinished)


def find_run(store: Store, name: str) -> Finished:
    """A finished run by its number (`7`) or its key (`xautoclaim:nightly-1`).

    Raises:
        RequestError: the name is neither, or there is no finished run of that name.
    """
    command, is_key, run_id = name.partition(":")
    if is_key:
        found = find_finished(store, command, run_id)
    elif re.fullmatch("[0-9]{1,18}", name):  # a run_seq is a BIGINT
        found = find_finished_seq(store, int(name))
    else:
        raise RequestError(
            f"{name!r} names no run: give its number, as in 7, or command:run_id", run=name
        )
    if found is None:
        raise RequestError(
            f"{store.where} has no finished run {name}: claimlib runs {store.where} lists them",
            run=name,
        )
    return found
