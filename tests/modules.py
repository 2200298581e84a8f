"""The packages and modules of claimlib: the table in ARCHITECTURE.md, the imports in the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "claimlib"
_DIVIDER = "*above: standard library only*"
_HEAD = r"^\| module \| contents \|\n\|---\|---\|\n((?:\|.*\n)+)"


def table_of_modules() -> tuple[list[list[str]], int]:
    """Return the modules of each row of the table, from the top, and the number of rows above the
    divider."""
    text = (PACKAGE.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
    (table,) = re.findall(_HEAD, text, re.MULTILINE)
    lines = table.splitlines()
    (divider,) = (at for at, line in enumerate(lines) if _DIVIDER in line)
    names = [re.findall("`([a-z_]+)`", line.split("|")[1]) for line in lines]
    assert all(row for at, row in enumerate(names) if at != divider)
    return [row for row in names if row], divider


def imported(path: Path) -> Iterator[str]:
    """Yield every module that a file imports, wherever in the file.

    A relative import is an error.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_of_claimlib(path: Path) -> set[str]:
    """Return the modules of claimlib that a file imports, without `claimlib.`: `plans.keys`."""
    names = {name.removeprefix("claimlib.") for name in imported(path) if is_of_claimlib(name)}
    return {name for name in names if file_of(name) is not None}


def is_of_claimlib(name: str) -> bool:
    return name.partition(".")[0] == "claimlib"


def file_of(module: str) -> Path | None:
    path = PACKAGE.joinpath(*module.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def files_of(module: str) -> list[Path]:
    """Return the file of a module, or all files of a package."""
    return sorted((PACKAGE / module).rglob("*.py")) or [PACKAGE / f"{module}.py"]
