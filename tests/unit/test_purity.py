import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "claimlib"
README = (PACKAGE.parent / "README.md").read_text(encoding="utf-8")
_DIVIDER = "*above: standard library only*"


def table_of_rooms():
    """The rows of the README's table of rooms, from the top: the modules of each; and how many of
    them stand above the divider."""
    (table,) = re.findall(
        r"^\| module \| room \|\n\|---\|---\|\n((?:\|.*\n)+)", README, re.MULTILINE
    )
    lines = table.splitlines()
    (divider,) = (at for at, line in enumerate(lines) if _DIVIDER in line)
    names = [re.findall("`([a-z_]+)`", line.split("|")[1]) for line in lines]
    assert all(row for at, row in enumerate(names) if at != divider)
    return [row for row in names if row], divider


# Each row imports only from the rows above it.
ROWS, PURE_ROWS = table_of_rooms()
ROOMS = [room for row in ROWS for room in row]
PURE = [room for row in ROWS[:PURE_ROWS] for room in row]


def imported(path):
    """Every module that a file imports, wherever in the file; relative imports are not ours."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own(path):
    """The modules of claimlib that a file imports, without `claimlib.`: `scan`, `plans.keys`."""
    names = {name.removeprefix("claimlib.") for name in imported(path) if is_own(name)}
    return {name for name in names if file_of(name) is not None}


def is_own(name):
    return name.partition(".")[0] == "claimlib"


def file_of(module):
    path = PACKAGE.joinpath(*module.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def files_of(room):
    """The file of a module, or all of a package."""
    return sorted((PACKAGE / room).rglob("*.py")) or [PACKAGE / f"{room}.py"]


def strangers(room, rows):
    """What a room imports that stands neither above it nor within it."""
    row = next(at for at, rooms in enumerate(rows) if room in rooms)
    allowed = {room, *(one for rooms in rows[:row] for one in rooms)}
    return {
        (str(path.relative_to(PACKAGE)), name)
        for path in files_of(room)
        for name in own(path)
        if name.partition(".")[0] not in allowed
    }


def reached(paths):
    """The modules of claimlib that files import, directly or through others."""
    found = set()
    todo = list(paths)
    while todo:
        new = own(todo.pop()) - found
        found |= new
        todo += [file_of(module) for module in new]
    return found


def test_the_table_has_each_module_and_package_once():
    there = {
        path.stem
        for path in PACKAGE.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    assert sorted(ROOMS) == sorted(there - {"__init__"})


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_from_the_rows_above_it_and_from_within(room):
    assert strangers(room, ROWS) == set()


def test_the_walk_of_rooms_sees_what_is_imported_from_a_row_below():
    upside_down = {room: {name for _, name in strangers(room, ROWS[::-1])} for room in ROOMS}
    assert "rules" in upside_down["kernel"]
    assert {"plans.keys", "store"} <= upside_down["runs"]


@pytest.mark.parametrize("module", PURE)
def test_a_pure_module_imports_nothing_but_the_standard_library(module):
    foreign = {
        name.partition(".")[0] for name in imported(PACKAGE / f"{module}.py") if not is_own(name)
    }
    assert foreign <= sys.stdlib_module_names


def test_the_package_itself_imports_nothing_that_is_not_pure():
    path = PACKAGE / "__init__.py"
    foreign = {name.partition(".")[0] for name in imported(path) if not is_own(name)}
    assert foreign <= sys.stdlib_module_names
    assert reached([path]) <= set(PURE)


def test_the_pure_modules_import_with_nothing_installed(tmp_path):
    (tmp_path / "claimlib").mkdir()
    for module in ("__init__", *PURE):
        shutil.copy(PACKAGE / f"{module}.py", tmp_path / "claimlib")
    program = (
        "import sys, importlib\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "for module in sys.argv[2:]:\n"
        "    print(importlib.import_module('claimlib.' + module).__file__)\n"
        "foreign = {name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names\n"
        "print(sorted(foreign - {'__main__'}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, tmp_path, *PURE],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    files = [str(tmp_path / "claimlib" / f"{module}.py") for module in PURE]
    assert done.stdout.splitlines() == [*files, "['claimlib']"]


@pytest.mark.parametrize("room", ["kernel", "plans"])
def test_kernel_and_plans_never_reach_the_reference(room):
    paths = files_of(room)
    assert all(path.is_file() for path in paths)
    assert "rules" in reached(paths)
    assert not reached(paths) & {"scan", "words"}


def test_the_walk_sees_every_way_to_import(tmp_path):
    path = tmp_path / "some.py"
    for line in (
        "from claimlib import scan",
        "import claimlib.scan",
        "from claimlib.scan import xautoclaim",
        "def f():\n    from claimlib import words",
        "import claimlib.words as w",
    ):
        path.write_text(line, encoding="utf-8")
        assert "scan" in reached([path])
