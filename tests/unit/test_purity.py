import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import claimlib

PACKAGE = Path(__file__).parents[2] / "claimlib"
MAP = (PACKAGE.parent / "docs" / "development.md").read_text(encoding="utf-8")
_DIVIDER = "*above: standard library only*"


def table_of_rooms():
    """The rows of the table of rooms in the documents, from the top: the modules of each; and how
    many of them stand above the divider."""
    (table,) = re.findall(r"^\| module \| room \|\n\|---\|---\|\n((?:\|.*\n)+)", MAP, re.MULTILINE)
    lines = table.splitlines()
    (divider,) = (at for at, line in enumerate(lines) if _DIVIDER in line)
    names = [re.findall("`([a-z_]+)`", line.split("|")[1]) for line in lines]
    assert all(row for at, row in enumerate(names) if at != divider)
    return [row for row in names if row], divider


# Each row imports only from the rows above it.
ROWS, PURE_ROWS = table_of_rooms()
ROOMS = [room for row in ROWS for room in row]


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


PURE = [path for row in ROWS[:PURE_ROWS] for room in row for path in files_of(room)]


def strangers(room, rows):
    """What a room imports that stands neither above it nor within it."""
    row = next(at for at, rooms in enumerate(rows) if room in rooms)
    allowed = {room, *(above for rooms in rows[:row] for above in rooms)}
    return {
        (str(path.relative_to(PACKAGE)), name)
        for path in files_of(room)
        for name in own(path)
        if name.partition(".")[0] not in allowed
    }


def reached(paths):
    """The modules of claimlib that files import, directly or through others."""
    modules = set()
    todo = list(paths)
    while todo:
        new = own(todo.pop()) - modules
        modules |= new
        todo += [file_of(module) for module in new]
    return modules


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
    assert "semantics.rules" in upside_down["plans"]
    assert {"plans.keys", "store.tables"} <= upside_down["runs"]


@pytest.mark.parametrize("path", PURE, ids=lambda path: path.stem)
def test_a_pure_module_imports_nothing_but_the_standard_library(path):
    foreign = {name.partition(".")[0] for name in imported(path) if not is_own(name)}
    assert foreign <= sys.stdlib_module_names


def run_isolated(program, *words):
    """A Python without any installed package."""
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_importing_the_package_imports_no_other_module_of_it():
    done = run_isolated(
        "import sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "import claimlib\n"
        "print([name for name in sys.modules if name.startswith('claimlib')])\n",
        PACKAGE.parent,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "['claimlib']\n", "")


@pytest.mark.parametrize("name", sorted(claimlib.__all__))
def test_each_public_name_is_there(name):
    assert getattr(claimlib, name) is not None
    assert name in dir(claimlib)


def test_a_name_that_the_package_lacks_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'xfoo'"):
        _ = claimlib.xfoo


def test_the_pure_modules_import_with_nothing_installed(tmp_path):
    for path in (PACKAGE / "__init__.py", *PURE):
        there = tmp_path / "claimlib" / path.relative_to(PACKAGE)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, there)
    names = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in PURE]
    done = run_isolated(
        "import sys, importlib\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "for module in sys.argv[2:]:\n"
        "    importlib.import_module(module)\n"
        "foreign = {name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names\n"
        "print(sorted(foreign - {'__main__'}))\n",
        tmp_path,
        *names,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "['claimlib']\n", "")


def test_kernel_and_plans_never_reach_the_reference():
    paths = files_of("plans")
    assert all(path.is_file() for path in paths)
    assert "semantics.rules" in reached(paths)
    assert not reached(paths) & {"semantics.scan", "semantics.words"}


def test_the_walk_sees_every_way_to_import(tmp_path):
    path = tmp_path / "some.py"
    for line in (
        "from claimlib.semantics import scan",
        "import claimlib.semantics.scan",
        "from claimlib.semantics.scan import xautoclaim",
        "def f():\n    from claimlib.semantics import words",
        "import claimlib.semantics.words as w",
    ):
        path.write_text(line, encoding="utf-8")
        assert "semantics.scan" in reached([path])


# Serverless compute, and Spark Connect, have no SparkContext, no RDD and no JVM object; they let
# six settings be set, and do not persist frames.
_CLASSIC_ONLY = {"sparkContext", "_jvm", "_jsc", "rdd", "cache", "persist", "checkpoint"}
_MAY = {
    ("cli/tasks.py", "sparkContext"): "what a classic session tells of its tasks",
    ("session/__init__.py", "_jvm"): "how our own JVM ends",
    ("session/__init__.py", "sparkContext"): "the Python of local workers, of our own session",
    ("testing/__main__.py", "conf.set"): "the vectors' own session",
}


def classic_only(path):
    """What a file asks of a session, or of a frame, that serverless compute lacks."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            if node.attr in _CLASSIC_ONLY:
                yield node.attr
            elif node.attr == "set" and getattr(node.value, "attr", "") == "conf":
                yield "conf.set"


def test_nothing_asks_for_what_serverless_compute_lacks():
    uses = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in PACKAGE.rglob("*.py")
        for name in classic_only(path)
    }
    assert uses == set(_MAY)


def test_the_walk_sees_what_serverless_compute_lacks(tmp_path):
    path = tmp_path / "some.py"
    for line, name in (
        ("frame.cache().count()", "cache"),
        ("x = spark.sparkContext.defaultParallelism", "sparkContext"),
        ("frame.rdd.map(f)", "rdd"),
        ("spark.conf.set('a', 'b')", "conf.set"),
    ):
        path.write_text(line, encoding="utf-8")
        assert list(classic_only(path)) == [name]


def test_rows_of_the_driver_become_frames_in_one_place_which_keeps_to_the_most_bytes():
    files = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "createDataFrame"
    }
    assert files == {"local_rows.py"}
