"""Tests on each supported Python, with the locked and with the lowest allowed versions of packages.

`make test-versions` runs the tests without Spark and the few marked `smoke`.  A Python that is
neither on this machine nor can be downloaded is named and left out.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
FOLDER = ROOT / "build" / "versions"
TESTS = (
    ("tests/unit", "-m", "not long and not slow", "--hypothesis-profile", "quick"),
    ("tests/spark", "tests/delta", "-m", "smoke"),
)


def main() -> int:
    """Run the tests in each environment; the exit code."""
    results = {}
    for version in supported():
        python = find_python(version)
        if python is None:
            results[version] = "no such Python on this machine, and no download: left out"
            continue
        for name, packages in requirements(version):
            environment = FOLDER / version / name
            print(f"Python {version}, {name} versions", flush=True)
            install(environment, python, packages)
            results[f"{version}, {name}"] = "passed" if passes(environment) else "FAILED"
    for what, result in results.items():
        print(f"Python {what}: {result}")
    return int("FAILED" in results.values())


def supported() -> list[str]:
    """Return the versions of Python that the classifiers of the project name."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text)


def find_python(version: str) -> str | None:
    """Return a Python of this machine, one that uv has downloaded, or None."""
    installed = [str(path) for path in Path.home().glob(f".pyenv/versions/{version}.*/bin")]
    places = os.environ | {"PATH": os.pathsep.join([*installed, os.environ["PATH"]])}
    words = ("uv", "python", "find", "--no-project", version)
    for step in (None, ("uv", "python", "install", "--quiet", version)):
        if step is not None:
            subprocess.run(step, check=False, stderr=subprocess.DEVNULL)
        done = subprocess.run(words, env=places, check=False, capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.strip()
    return None


def requirements(version: str) -> Iterator[tuple[str, Path]]:
    """Yield the files of packages to install, by name: those of .venv are tested by `make test`."""
    if version != f"{sys.version_info.major}.{sys.version_info.minor}":
        yield "locked", LOCK
    lowest = FOLDER / version / "lowest.txt"
    lowest.parent.mkdir(parents=True, exist_ok=True)
    # The lowest versions for which this Python has wheels; pyspark has none for any.
    uv(
        *("pip", "compile", "pyproject.toml", "--all-extras", "--group", "dev"),
        *("--resolution", "lowest-direct", "--python-version", version),
        *("--only-binary", ":all:", "--no-binary", "pyspark", "--no-header"),
        *("--no-emit-index-url", "--output-file", str(lowest)),
    )
    yield "lowest", lowest


def install(environment: Path, python: str, packages: Path) -> None:
    """Make an environment with these packages and the project, unless it is there."""
    stamp = environment / "installed.txt"
    if stamp.is_file() and stamp.read_bytes() == packages.read_bytes():
        return
    uv("venv", "--clear", "--python", python, str(environment))
    into = ("pip", "install", "--python", str(environment / "bin" / "python"))
    uv(*into, "--requirement", str(packages))
    uv(*into, "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    stamp.write_bytes(packages.read_bytes())


def passes(environment: Path) -> bool:
    """Return True if the tests pass in an environment."""
    commands = environment / "bin"
    path = os.pathsep.join([str(commands), os.environ["PATH"]])
    return all(
        subprocess.run(
            [str(commands / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
            cwd=ROOT,
            env=os.environ | {"PATH": path},
            check=False,
        ).returncode
        == 0
        for tests in TESTS
    )


def uv(*words: str) -> None:
    """Run uv; it must succeed."""
    subprocess.run(("uv", words[0], "--quiet", *words[1:]), cwd=ROOT, check=True)


if __name__ == "__main__":
    sys.exit(main())
