"""The wheel, installed without the lock into clean environments, works outside of the clone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from claimlib.testing.server import valkey_server

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    run(ROOT, "uv", "build", "--wheel", "--out-dir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


def run(folder, *words, **variables):
    """What a command says; it must end with 0."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SPARK", "PYSPARK"))}
    done = subprocess.run(
        list(map(str, words)),
        cwd=folder,
        env=kept | variables,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-4000:])
    return done.stdout


def environment(folder, wheel, extras):
    """The folder of the commands of an environment that has nothing but the wheel and extras."""
    run(folder, "uv", "venv", "--python", sys.executable, folder / "venv")
    python = folder / "venv/bin/python"
    run(
        folder, "uv", "pip", "install", "--python", python, f"claimlib[{extras}] @ {wheel.as_uri()}"
    )
    return python.parent


@pytest.fixture(scope="module")
def commands(wheel, tmp_path_factory):
    """The commands of an environment with the extras that the README names."""
    return environment(tmp_path_factory.mktemp("extras"), wheel, "spark,redis,cli,demo")


# The demo starts `claimlib` as people do; here one process, and so one JVM, runs several commands.
COMMANDS = """
import sys
from claimlib.cli import main
for words in {commands!r}:
    sys.argv = ["claimlib", *words]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
"""


def test_with_its_extras_the_wheel_takes_a_snapshot_and_sweeps_it(commands, tmp_path):
    with valkey_server() as server:
        with server.client() as client:
            client.xadd("orders", {"n": 1}, id="1-0")
            client.xgroup_create("orders", "workers", id="0")
            client.xreadgroup("workers", "bob", {"orders": ">"})
        sweep = ("--consumer", "carol", "--min-idle", "0ms", "--idle-rule", "server")
        words = [
            ("init", "./store"),
            ("snapshot", server.url, "./store"),
            ("xautoclaim", "./store", *sweep, "--output", "json"),
        ]
        said = run(tmp_path, commands / "python", "-c", COMMANDS.format(commands=words))
    assert '"claimed": 1' in said
    assert not (tmp_path / "spark-warehouse").exists()
    assert "Usage: claimlib" in run(tmp_path, commands / "python", "-m", "claimlib", "--help")


def test_the_demo_proves_in_any_folder_that_server_and_store_agree(commands, tmp_path):
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    said = run(tmp_path, commands / "claimlib", "demo", "--entries", "600", PATH=path)
    assert "PROVED: server and store agree" in said
    assert {one.name for one in (tmp_path / "demo-store").iterdir()} >= {"first", "second"}


def test_the_command_line_alone_has_help_and_version(wheel, tmp_path):
    commands = environment(tmp_path, wheel, "cli")
    assert "Commands:" in run(tmp_path, commands / "claimlib", "--help")
    assert "Spark not installed" in run(tmp_path, commands / "claimlib", "--version")
    core = run(tmp_path, commands / "python", "-c", "import claimlib; print(claimlib.__version__)")
    assert core.strip()
