import ast
import shutil
import subprocess
import sys

import pytest

import claimlib
from tests.modules import (
    PACKAGE,
    file_of,
    files_of,
    imported,
    imported_of_claimlib,
    is_of_claimlib,
    table_of_modules,
)

# Each row imports only from the rows above it.
ROWS, PURE_ROWS = table_of_modules()
MODULES = [module for row in ROWS for module in row]
PURE = [path for row in ROWS[:PURE_ROWS] for module in row for path in files_of(module)]


def imported_from_below(module, rows):
    """Return the files of a module with each module that they import from its own row or below."""
    row = next(at for at, modules in enumerate(rows) if module in modules)
    allowed = {module, *(above for modules in rows[:row] for above in modules)}
    return {
        (str(path.relative_to(PACKAGE)), name)
        for path in files_of(module)
        for name in imported_of_claimlib(path)
        if name.partition(".")[0] not in allowed
    }


def reached(paths):
    """Return the modules of claimlib that files import, directly or through others."""
    modules = set()
    todo = list(paths)
    while todo:
        new = imported_of_claimlib(todo.pop()) - modules
        modules |= new
        todo += [file_of(module) for module in new]
    return modules


def test_the_table_has_each_module_and_package_once():
    there = {
        path.stem
        for path in PACKAGE.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    assert sorted(MODULES) == sorted(there - {"__init__"})


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_from_the_rows_above_it_and_from_within(module):
    assert imported_from_below(module, ROWS) == set()


def test_an_import_from_a_row_below_is_noticed():
    upside_down = {
        module: {name for _, name in imported_from_below(module, ROWS[::-1])} for module in MODULES
    }
    assert "semantics.rules" in upside_down["plans"]
    assert {"plans.keys", "store.tables"} <= upside_down["runs"]


@pytest.mark.parametrize("path", PURE, ids=lambda path: path.stem)
def test_a_pure_module_imports_nothing_but_the_standard_library(path):
    foreign = {name.partition(".")[0] for name in imported(path) if not is_of_claimlib(name)}
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
    ("cli/spark_tasks.py", "sparkContext"): "what a classic session tells of its tasks",
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
