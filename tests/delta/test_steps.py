"""Kill each command at any step, or take its storage away, and repeat the command.

Each table must then equal that of a command that was not interrupted.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from claimlib.commands.check import check
from claimlib.schema import ENTRIES_ID_PROPERTY, TABLE_ID_PROPERTY, TABLES
from claimlib.store.tables import Store
from tests.delta.steps import (
    COMMANDS,
    allow_no_file,
    base_of,
    fill,
    lose_data,
    lose_rights,
    opened,
    run,
    small_disk,
)

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

    def copy(self, folder: Path | None = None) -> Path:
        """Return the folder of a copy of the store.

        Args:
            folder: where to copy it; None means beside the store.
        """
        return shutil.copytree(self.base, (folder or self.base.parent) / f"{self.command} copy")

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


# ------------------------------------------------------------------- storage

# One step of each kind.  A command that only renames or links is not in need of room.
REFUSED_AT = [
    ("init", "define journal"),
    ("upgrade", "define pending"),
    ("snapshot", "write pel_snapshots"),
    ("xautoclaim", "write journal"),
    ("xautoclaim", "commit journal"),
    ("xautoclaim", "write tombstones"),
    ("xautoclaim", "commit runs"),
    ("maintain", "clean journal"),
    ("maintain", "rewrite journal"),
]
FULL = "a disk is full ("
DENIED = "a permission is missing ("


def check_refused(case: Case, where: Path, step: str, act: Callable[[], None], why: str) -> None:
    """Check the message of a command whose storage refuses each write after a step begins."""
    ended = run(case.command, where, step, act)
    if step == case.steps[-1] and ended.code == 0:
        return  # it writes nothing after that
    (line,) = ended.said.splitlines()
    assert re.match(r"claimlib: error: version \d+ of the table \w+ could not be written", line), (
        line
    )
    assert why in line
    assert line.endswith(", and run the same command again")
    assert ended.code == 4


@pytest.mark.parametrize(("command", "step"), REFUSED_AT)
def test_a_full_disk_is_named_with_the_table_and_the_repeat_completes_the_command(
    case_of: CaseOf, command: str, step: str
) -> None:
    case = case_of(command)
    where = case.copy()
    check_refused(case, where, step, allow_no_file, FULL)
    case.check_finished(where)


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_at_any_step_is_named_and_the_repeat_completes_the_command(
    case_of: CaseOf, command: str
) -> None:
    case = case_of(command)
    for step in case.steps:
        where = case.copy()
        check_refused(case, where, step, allow_no_file, FULL)
        case.check_finished(where)


@pytest.mark.long
@pytest.mark.parametrize("command", ["init", "snapshot", "xautoclaim", "maintain"])
def test_a_small_disk_that_is_full_from_any_step_on_is_named(
    case_of: CaseOf, tmp_path: Path, command: str
) -> None:
    case = case_of(command)
    with small_disk(tmp_path):
        for step in case.steps:
            where = case.copy(tmp_path)
            check_refused(case, where, step, partial(fill, tmp_path), FULL)
            (tmp_path / "filler").unlink()
            case.check_finished(where)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(
    ("command", "step"), [("xautoclaim", "write pending"), ("xautoclaim", "commit journal")]
)
def test_a_permission_that_is_lost_during_a_run_is_named(
    case_of: CaseOf, command: str, step: str
) -> None:
    case = case_of(command)
    with TemporaryDirectory() as folder:  # the temporary folders of pytest are for one user only
        Path(folder).chmod(0o755)
        where = case.copy(Path(folder))
        check_refused(case, where, step, lose_rights, DENIED)
        case.check_finished(where)


def test_a_data_file_that_is_lost_during_a_run_is_named_and_the_repeat_completes_the_command(
    case_of: CaseOf,
) -> None:
    case = case_of("xautoclaim")
    where = case.copy()
    kept = where.with_name("kept")
    for path in (where / "pending").rglob("*.parquet"):
        file = kept / path.relative_to(where)
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, file)
    ended = run(case.command, where, "write pending", partial(lose_data, where / "pending"))
    assert ended.code == 4
    assert re.search(r"version \d+ of the table pending cannot be read, because", ended.said)
    assert "is missing: restore it from a backup" in ended.said
    shutil.copytree(kept, where, dirs_exist_ok=True)
    case.check_finished(where)
