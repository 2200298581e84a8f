"""A Redis 7.0 to test against: the one on PATH, or Debian's package, unpacked and not installed, so
that no service is started."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

_PACKAGES = ("redis-server", "redis-tools", "libatomic1", "libjemalloc2", "liblzf1")
_WHAT_TO_DO = (
    "put a redis-server of version 7.0 on PATH (Debian 12, Ubuntu 24.04:"
    " sudo apt-get update && sudo apt-get install redis-server)"
)


class NoRedisError(Exception):
    """There is no Redis 7.0, and it could not be had; the message says what to do."""


def redis_server(folder: Path) -> Path:
    """The program: what is on PATH, if it is a Redis 7.0, else Debian's, unpacked into `folder`."""
    on_path = shutil.which("redis-server")
    if on_path is not None and _is_7_0(Path(on_path)):
        return Path(on_path)
    program = _unpacked(folder)
    if not _is_7_0(program):
        raise NoRedisError(f"this system's package is another version: {_WHAT_TO_DO}")
    return program


def _is_7_0(program: Path) -> bool:
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return re.search(r"\bv=7\.0\.", told.stdout) is not None


def _unpacked(folder: Path) -> Path:
    """A program that runs the unpacked one with the libraries unpacked beside it."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise NoRedisError(f"no Redis 7.0 was found, and there is no apt-get: {_WHAT_TO_DO}")
    download = ["apt-get", "download", "-q", *_PACKAGES]
    if not _runs(download, folder):
        _runs(["apt-get", "update", "-q"], folder)
        if not _runs(download, folder):
            raise NoRedisError(f"apt-get download failed: {_WHAT_TO_DO}")
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, folder], check=True)
    libraries = {str(path.parent) for path in folder.glob("usr/lib/**/*.so.*")}
    program = folder / "redis-server"
    program.write_text(
        f'#!/bin/sh\nLD_LIBRARY_PATH="{os.pathsep.join(sorted(libraries))}"'
        f' exec "{folder}/usr/bin/redis-server" "$@"\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    return program


def _runs(command: list[str], folder: Path) -> bool:
    told = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    print(told.stdout, told.stderr)
    return told.returncode == 0
