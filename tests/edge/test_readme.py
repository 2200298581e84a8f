"""What the README shows works: its commands, its Python, and what it says of tables and rooms."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from claimlib.cli.asking import app
from claimlib.commands.check import check
from claimlib.model import Profile
from claimlib.plans.given import PARTS
from claimlib.runs.journal import Kind
from claimlib.schema import TABLES
from claimlib.store import Store
from claimlib.testing.server import valkey_server
from tests.live.figures import REPORT, with_figures

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_commands_and_the_python_of_the_readme_run_one_after_the_other(
    spark: SparkSession, empty_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    commands, imports = blocks("sh")
    with valkey_server() as server:
        client = server.client()
        for number in range(10):
            client.xadd("orders:eu", {"n": number}, id=f"{number + 1}-0")
        client.xgroup_create("orders:eu", "workers", id="0")
        client.xreadgroup("workers", "bob", {"orders:eu": ">"}, count=10)
        client.xclaim("orders:eu", "workers", "bob", 0, [f"{n}-0" for n in range(1, 8)], time=1)
        client.xdel("orders:eu", "2-0")
        client.close()
        outputs = [
            run_command(line.replace("redis://localhost:6379/0", server.url))
            for line in commands.splitlines()
        ]
    assert '"id": "1-0"' in outputs[-1]
    assert "snapshot" in outputs[-2]
    sweep, claim, append, read = blocks("python")
    assert spark is not None  # the session that open_session finds
    shown: dict[str, object] = {}
    exec(sweep, shown)
    exec(read, shown)
    assert shown["reply"].counts["swept"] == 1
    shutil.copytree(empty_store, "own")
    exec(append, {})
    own = Store.open(spark, "own")
    assert [own.read(table).count() for table in PARTS] == [1] * len(PARTS)
    assert check(own) == ()
    write_lake(tmp_path / "lake")
    (map_file,) = blocks("toml")
    (tmp_path / "map.toml").write_text(map_file, encoding="utf-8")
    exec(claim, shown)
    assert [row["status"] for row in shown["reply"].ids.collect()] == ["claimed"]
    outputs = [run_command(line) for line in imports.splitlines()]
    assert re.search("asked: entries_complete +true", outputs[1])
    assert "nothing found" in outputs[2]


def write_lake(where: Path) -> None:
    """Tables as the section on one's own tables has them: one entry is still pending, one new."""
    group = {"stream": ["orders:eu"], "consumer_group": ["workers"]}
    instant = datetime(2026, 1, 1, 1, tzinfo=UTC)
    pending = {"stream_name": ["orders:eu"] * 2, "consumer_group": ["workers"] * 2}
    tables = {
        "entries": {"stream": ["orders:eu"] * 2, "entry_id": ["2-0", "3-0"]},
        "pending": {
            **pending,
            "entry_id": ["2-0", "3-0"],
            "consumer": ["bob", "bob"],
            "delivered_at": [instant - timedelta(hours=1)] * 2,
            "delivery_count": [1, 1],
        },
        "groups": {**group, "last_id": ["3-0"], "snapshot_ms": [instant]},
    }
    for name, columns in tables.items():
        write_deltalake(str(where / name), pa.table(columns))


def test_the_readme_says_which_columns_a_pipeline_of_one_s_own_must_write() -> None:
    (section,) = re.findall(r"### Your own tables\n(.*?)\n### ", README, re.DOTALL)
    for name in PARTS:
        ((must, may),) = re.findall(rf"^\| `{name}` \| (.*) \| (.*) \|$", section, re.MULTILINE)
        written = TABLES[name].written
        assert set(must.split(", ")) == {one.name for one in written if not one.nullable}
        assert set(may.split(", ")) == {one.name for one in written if one.nullable}


def run_command(line: str) -> str:
    program, *arguments = shlex.split(line)
    assert program == "claimlib"
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, (line, result.output, result.exception)
    return result.stdout


def test_the_readme_names_every_table_with_its_key_and_every_kind_of_journal_row() -> None:
    (store,) = re.findall(r"## The store\n(.*?)\n### The journal", README, re.DOTALL)
    for table in TABLES.values():
        (line,) = re.findall(rf"^\| `{table.name}` \|.*$", store, re.MULTILINE)
        names = [n for n in table.key if n != "id_seq"]
        shown = ", ".join("id" if n == "id_ms" else n for n in names)
        assert line.endswith(f"| {shown} |" if shown else "| |"), line
    for kind in Kind:
        assert f"`{kind}`" in README


def test_the_readme_names_every_room() -> None:
    rooms = {
        path.stem
        for path in (ROOT / "claimlib").iterdir()
        if path.name not in {"__init__.py", "__pycache__", "py.typed"}
    }
    assert {room for room in rooms if f"`{room}`" not in README} == set()


def test_the_readme_says_of_the_long_tests_what_they_counted() -> None:
    report = json.loads(REPORT.read_text(encoding="utf-8"))
    assert set(report) == set(Profile)
    assert with_figures(README, report) == README, "run: python -m tests.live.figures"


def test_the_readme_names_every_command_and_every_target_that_it_speaks_of_exists() -> None:
    for command in app.registered_commands:
        assert f"claimlib {command.callback.__name__.rstrip('_')} " in README
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`?make ([a-z-]+)`?", README)):
        assert f"\n{target}:" in makefile
