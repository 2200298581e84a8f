import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "claimlib"
# Each row imports only from the rows above it.
ROWS = [("errors",), ("ids", "names", "times"), ("model",), ("rules",), ("scan",), ("words",)]
PURE = [module for row in ROWS for module in row]


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


def reached(paths):
    """The modules of claimlib that files import, directly or through others."""
    found = set()
    todo = list(paths)
    while todo:
        new = own(todo.pop()) - found
        found |= new
        todo += [file_of(module) for module in new]
    return found


@pytest.mark.parametrize("module", PURE)
def test_a_pure_module_imports_the_standard_library_and_the_rows_above_it(module):
    row = next(index for index, modules in enumerate(ROWS) if module in modules)
    above = {name for modules in ROWS[:row] for name in modules}
    path = PACKAGE / f"{module}.py"
    foreign = {name.partition(".")[0] for name in imported(path) if not is_own(name)}
    assert foreign <= sys.stdlib_module_names
    assert own(path) <= above


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


def kernel_files():
    return [PACKAGE / "kernel.py"]


def plans_files():
    return sorted((PACKAGE / "plans").glob("**/*.py"))


@pytest.mark.parametrize("files", [kernel_files, plans_files])
def test_kernel_and_plans_never_reach_the_reference(files):
    paths = files()
    assert paths
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
