"""Whole sequences of steps against a real server: the reference follows each of them, and one run
repeats steps of every command and every branch, each on the state that the server had before it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from claimlib.testing.server_process import valkey_server
from claimlib.testing.vectors import Step
from tests.live.figures import record
from tests.live.followed import Tally, follow_all, version_of
from tests.live.wire import Wire
from tests.seeds import new_seed

if TYPE_CHECKING:
    from claimlib.store.tables import Store

SEQUENCES = 2_000
SEED = 4  # the long form makes one up; --hypothesis-seed repeats it
LONG_SEQUENCES = 20_000
# How often the tables reach each branch.  An XPENDING in the tables is a query of its own.
IN_TABLES = {"XAUTOCLAIM": 3, "XCLAIM": 3, "XPENDING": 1, "XACK": 3}
LONG_IN_TABLES = {"XAUTOCLAIM": 100, "XCLAIM": 100, "XPENDING": 3, "XACK": 100}


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    """A connection to a server that restores dumps without looking at their sums."""
    with valkey_server(config={"enable-debug-command": "local"}) as server, Wire(server) as opened:
        opened.ask((b"DEBUG", b"SET-SKIP-CHECKSUM-VALIDATION", b"1"))
        yield opened


@pytest.mark.timeout(900)  # what Hypothesis may take to shrink a sequence, once one differs
def test_reference_and_tables_follow_two_thousand_sequences_step_by_step(wire: Wire, store: Store):
    tally = follow_all(wire, SEQUENCES, SEED, in_tables=covered(IN_TABLES))
    print(tally.table())
    assert tally.missed() == []
    repeat_in_tables(store, tally)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_reference_and_tables_follow_twenty_thousand_sequences_step_by_step(
    wire: Wire, spark_store: Store, pytestconfig: pytest.Config
):
    drawn_by = new_seed(pytestconfig)
    started = time.monotonic()
    tally = follow_all(wire, LONG_SEQUENCES, drawn_by, in_tables=covered(LONG_IN_TABLES))
    followed = time.monotonic()
    print(tally.table())
    assert tally.missed() == []
    repeat_in_tables(spark_store, tally)
    seconds = {"reference": followed - started, "tables": time.monotonic() - followed}
    record(f"Valkey {version_of(wire, b'valkey_version')}", drawn_by, tally, seconds)


def covered(in_tables: dict[str, int]) -> dict[str, int]:
    """Without the commands that the tables do not have yet."""
    from claimlib.testing.vector_check import COVERED

    return {command: number for command, number in in_tables.items() if command in COVERED}


def repeat_in_tables(store: Store, tally: Tally) -> None:
    """Each step on its own, as a stream of one store."""
    from claimlib.testing.vector_check import check

    steps: list[Step] = tally.steps
    print(f"{len(steps)} steps in tables")
    verdict = check(store, steps)
    assert "\n".join(verdict.failed) == ""
    assert (verdict.passed, verdict.not_covered) == (2 * len(steps), {})
