"""Checks the wheel and the source archive of a release, before a person publishes them.

`make release` runs it.  It needs no network, and writes only into the folder of the packages.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import claimlib
from tests.edge.documents import ALL_DOCUMENTS, text_of

ROOT = Path(__file__).parents[1]
COMMANDS = (("--version",), ("init", "./store"), ("xpending", "./store"), ("check", "./store"))


def main(folder: Path) -> int:
    """Check the packages in a folder; the exit code."""
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    problems = [*_missing_in_wheel(wheel), *_missing_in_source(source), *_unready()]
    problems += _failures(wheel, folder.resolve())
    print(*(f"{file.name}: {file.stat().st_size:,} bytes" for file in (wheel, source)), sep="\n")
    print(*problems or ["The packages are sound. Nothing was published."], sep="\n")
    return int(bool(problems))


def _missing_in_wheel(wheel: Path) -> Iterator[str]:
    """Yield the files of the package that the wheel lacks."""
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    for path in (ROOT / "claimlib").rglob("*"):
        name = path.relative_to(ROOT).as_posix()
        if path.is_file() and "__pycache__" not in path.parts and name not in packed:
            yield f"{wheel.name} lacks {name}"


def _missing_in_source(source: Path) -> Iterator[str]:
    """Yield the documents that the source archive lacks."""
    with tarfile.open(source) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    documents = {page for page in ALL_DOCUMENTS if not page.startswith("changes/")}
    for name in sorted({*documents, "LICENSE", "pyproject.toml"} - packed):
        yield f"{source.name} lacks {name}"


def _unready() -> Iterator[str]:
    """Yield what a release of this version lacks."""
    version = claimlib.__version__
    if not re.search(rf"^## {re.escape(version)}\b", text_of("CHANGELOG.md"), re.MULTILINE):
        yield f"CHANGELOG.md has no section {version}"
    waiting = sorted(path.name for path in (ROOT / "changes").glob("+*.md"))
    if waiting:
        yield f"changes/ has entries that CHANGELOG.md lacks: {', '.join(waiting)}"


def _failures(wheel: Path, folder: Path) -> Iterator[str]:
    """Install the wheel alone, run commands, and yield those that fail.

    The packages that it needs come from this environment, whose claimlib is not visible: a path in
    PYTHONPATH does not bring what is installed as editable.
    """
    environment = folder / "environment"
    python = environment / "bin" / "python"
    uv = ("uv", "--quiet", "--offline")
    subprocess.run((*uv, "venv", "--python", sys.executable, str(environment)), check=True)
    installing = (*uv, "pip", "install", "--no-deps", "--no-index", "--python", str(python))
    subprocess.run((*installing, str(wheel)), check=True)
    # Before those of this environment, which has a claimlib, too.
    own = next(environment.glob("lib/python*/site-packages"))
    paths = os.pathsep.join([str(own), sysconfig.get_path("purelib")])
    settings = os.environ | {"PYTHONPATH": paths}
    where = "import claimlib; print(claimlib.__file__)"
    for words in (
        (str(python), "-c", where),
        *((str(python.with_name("claimlib")), *command) for command in COMMANDS),
    ):
        done = subprocess.run(
            words, cwd=folder, env=settings, check=False, capture_output=True, text=True
        )
        print(done.stdout, end="")
        if done.returncode:
            yield f"{' '.join(words)} ended with {done.returncode}: {done.stderr.strip()}"
        elif words[-1] == where and not done.stdout.startswith(str(own)):
            yield f"claimlib was imported from {done.stdout.strip()}, not from the wheel"
        elif words[-1] == "--version" and f"claimlib {claimlib.__version__}" not in done.stdout:
            yield f"--version says {done.stdout.strip()}"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
