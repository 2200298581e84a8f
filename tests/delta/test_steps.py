"""A command that is killed at any of its steps, and repeated, leaves what one that was never killed
leaves."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from claimlib.commands.check import check
from claimlib.schema import ENTRIES_ID_PROPERTY, TABLE_ID_PROPERTY, TABLES
from claimlib.store.tables import Store
from tests.delta.steps import COMMANDS, base_of, opened, run

# Before the decision, at it, and at each kind of table behind it.
KILLED_AT = {
    "init": "rename journal",
    "upgrade": "link journal",
    "snapshot": "commit entries",
    "import": "commit journal",
    "xautoclaim": "commit runs",
    "xclaim": "commit groups",
    "xack": "commit pending",
    "retire": "commit consumers",
    "undo": "commit tombstones",
    "maintain": "vacuum journal",
    "reset-cursor": "write runs",
    "abandon": "commit streams",
}
# What each process sets for itself.
DIFFERS = {
    "journal": {"attempt", "inputs"},
    "runs": {"phase_ms", "began_ms", "ended_ms", "input_versions", "output_versions"},
}
OF_A_TABLE = {TABLE_ID_PROPERTY, ENTRIES_ID_PROPERTY}

Tables = dict[str, tuple[object, list[str]]]


def contents(store: Store) -> Tables:
    """Return the definition and the sorted rows of each table.

    A staged reading is named by its run.  Staged rows that no run needs are omitted: the next
    snapshot deletes those of finished runs, and the next `maintain` those of no run.
    """
    decided = store.relation("journal").where("kind = 'run'").collect()
    runs = {row["landing"]: f"run {row['run_seq']}" for row in decided if row["landing"]}

    needed: dict[str, Collection[str]] = {"pel_snapshots": runs, "entry_landing": ()}

    def named(table: str, row: dict[str, Any]) -> str:
        differs = DIFFERS.get(table, set())
        if row.get("command") == "maintain":
            differs = differs | {"counts"}  # each process counts the files that it has compacted
        kept = {name: value for name, value in row.items() if name not in differs}
        if "landing" in kept:
            kept["landing"] = runs.get(kept["landing"])
        return repr(kept)

    tables: Tables = {}
    for table in TABLES:
        local = store.logs.readable(table)
        properties = {key: of for key, of in local.properties.items() if key not in OF_A_TABLE}
        rows = [
            named(table, row)
            for row in store.relation(table).collect()
            if table not in needed or row["landing"] in needed[table]
        ]
        tables[table] = (local.struct, properties), sorted(rows)
    return tables


@dataclass(frozen=True)
class Case:
    """A command, the store on which it is run, and what it leaves there.

    Attributes:
        steps: its steps, in the order in which they began.
        took_s: how long the process took that was not killed.
    """

    command: str
    base: Path
    steps: list[str]
    took_s: float
    unkilled: Tables

    def copy(self) -> Path:
        """Return the folder of a copy of the store."""
        return shutil.copytree(self.base, self.base.with_name(f"{self.command} killed"))

    def check_finished(self, where: Path) -> None:
        """Repeat the command, and compare each table with that of the other store."""
        COMMANDS[self.command](where)
        tables = contents(opened(where))
        for table in TABLES:
            assert tables[table] == self.unkilled[table], table
        shutil.rmtree(where)


CaseOf = Callable[[str], Case]


@pytest.fixture(scope="module")
def case_of(tmp_path_factory: pytest.TempPathFactory) -> CaseOf:
    """Return a function that makes a case, once."""
    cases: dict[str, Case] = {}

    def case_of(command: str) -> Case:
        if command not in cases:
            base = base_of(command, tmp_path_factory.mktemp(command))
            where = shutil.copytree(base, base.with_name(f"{command} unkilled"))
            began = time.monotonic()
            ended = run(command, where)
            took_s = time.monotonic() - began
            assert ended.code == 0, ended.said
            tables = contents(opened(where))
            cases[command] = Case(command, base, ended.steps, took_s, tables)
        return cases[command]

    return case_of


@pytest.mark.parametrize("command", KILLED_AT)
def test_a_command_that_was_killed_is_completed_by_its_repeat(
    case_of: CaseOf, command: str
) -> None:
    case = case_of(command)
    where = case.copy()
    assert run(command, where, KILLED_AT[command]).is_killed, case.steps
    case.check_finished(where)


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_was_killed_at_any_step_is_completed_by_its_repeat(
    case_of: CaseOf, command: str
) -> None:
    case = case_of(command)
    for step in case.steps:
        where = case.copy()
        assert run(command, where, step).is_killed, step
        case.check_finished(where)


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_completed_though_each_of_its_processes_was_killed_one_step_later(
    case_of: CaseOf, command: str
) -> None:
    case = case_of(command)
    where = case.copy()
    killed = [step for step in case.steps if run(command, where, step).is_killed]
    assert len(killed) > 1
    COMMANDS[command](where)
    problems = check(opened(where), replay=True)
    assert [problem for problem in problems if problem.is_difference] == []
    case.check_finished(where)


@pytest.mark.long
@pytest.mark.parametrize("command", ["snapshot", "xautoclaim", "maintain"])
def test_a_command_that_was_killed_at_any_moment_is_completed_by_its_repeat(
    case_of: CaseOf, command: str
) -> None:
    case, draw = case_of(command), random.Random(command)
    for _ in range(10):
        where = case.copy()
        for _ in range(2):
            run(command, where, killed_after_s=draw.uniform(0, case.took_s))
        case.check_finished(where)
