"""What the README and the pages in docs/ show works, and what they list is all that there is."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from claimlib.plans.bulk_plan import CLAIM_COLUMNS
from claimlib.plans.input_tables_plan import PARTS
from claimlib.plans.requests import REQUEST_COLUMNS
from claimlib.schema import TABLES, Kind
from claimlib.semantics.model import Profile
from claimlib.testing.server_process import Server, valkey_server
from tests.edge.command_reference import FILE
from tests.edge.commands import COMMANDS
from tests.edge.documents import (
    DOCUMENTS,
    PAGES,
    PLAYED,
    ROOT,
    Example,
    examples_of,
    rows,
    section,
    text_of,
)
from tests.live.figures import DOCUMENT, REPORT, with_figures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_BYTES = 12_000
MS = 1_767_225_600_000
SERVER = "redis://localhost:6379/0"  # as the documents name it
RUN = {"sh", "python", "toml"}
# What differs from one run to the next: instants, and durations.
_VARIABLE = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z|\b(?:\d+(?:ms|[wdhms]))+\b")
Command = Callable[..., Any]  # how it ended, and what it wrote


@pytest.mark.timeout(2400)
def test_the_examples_of_all_documents_run_one_after_the_other(
    spark: SparkSession,
    claimlib: Command,
    job: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert spark is not None  # the session that each command and open_session find
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUN_ID", "scheduled-1")
    (tmp_path / "conf").symlink_to(ROOT / "conf")
    write_lake(tmp_path / "lake")
    write_tables_of(tmp_path, PLAYED)
    (tmp_path / "stuck.txt").write_text(f"{MS}-2\n{MS}-3\n", encoding="utf-8")
    with stalled_server() as server:
        play = Play(claimlib, job, server)
        for document in PLAYED:
            play.document(document)
    assert play.printed >= 2


class Play:
    """Runs examples; each document's Python has names of its own."""

    def __init__(self, claimlib: Command, job: Command, server: Server) -> None:
        self.printed = 0
        self._claimlib, self._job, self._server = claimlib, job, server
        self._empty, self._init = Path("empty").absolute(), None

    def document(self, name: str) -> None:
        names: dict[str, Any] = {}
        before = None
        for example in examples_of(name):
            where = f"{example.document}:{example.line}"
            said = None
            if example.language == "sh":
                said = [self._command(line, where) for line in example.commands()][-1]
            elif example.language == "python":
                exec(compile(self._with_server(example.text), where, "exec"), names)
            elif example.language == "text" and before is not None:
                self._compare(example, before)
            before = said

    def _command(self, line: str, where: str) -> Any:
        program, *words = shlex.split(os.path.expandvars(self._with_server(line)))
        if program == "claimlib":
            said = self._claimlib(*words) if words[0] != "init" else self._made(*words)
        elif program == "spark-submit":
            option, settings, script, *words = words
            assert (option, Path(settings).is_file()) == ("--properties-file", True)
            said = self._job(Path(script).stem, *words)
        else:
            assert program in {"make", "pip"}, f"{where}: {line}"
            return None
        assert said.code == 0, (where, line, said)
        return said

    def _with_server(self, text: str) -> str:
        return text.replace(SERVER, self._server.url)

    def _made(self, *words: str) -> Any:
        """A new store; from the second on it is a copy of the first, which is faster."""
        where = Path(words[1])
        if self._empty.exists() and not where.exists():
            shutil.copytree(self._empty, where)
            return self._init
        said = self._claimlib(*words)
        if not self._empty.exists():
            self._init = said
            shutil.copytree(where, self._empty)
        return said

    def _compare(self, example: Example, said: Any) -> None:
        printed = [constant(line) for line in said.out.splitlines()]
        for line in example.text.splitlines():
            assert line == "…" or constant(line) in printed, (example.line, line, said.out)
        self.printed += 1


def constant(line: str) -> str:
    return " ".join(re.sub(r"-+", "-", _VARIABLE.sub("*", line)).split())


@contextmanager
def stalled_server() -> Iterator[Server]:
    """Ten entries that bob got; seven of them he left lying for hours, and one of these is gone."""
    with valkey_server() as server:
        client = server.client()
        for number in range(10):
            client.xadd("orders:eu", {"n": number}, id=f"{MS}-{number}")
        client.xgroup_create("orders:eu", "workers", id="0")
        client.xreadgroup("workers", "bob", {"orders:eu": ">"}, count=10)
        left = [f"{MS}-{number}" for number in range(7)]
        client.xclaim("orders:eu", "workers", "bob", 0, left, idle=12_000_000)
        client.xdel("orders:eu", f"{MS}-1")
        client.close()
        yield server


def write_tables_of(folder: Path, documents: tuple[str, ...]) -> None:
    """Every `toml` example, under the name that it gives itself."""
    for document in documents:
        for example in examples_of(document):
            if example.language == "toml":
                (name,) = re.findall(r"\A# (\S+\.toml)\n", example.text)
                (folder / name).write_text(example.text, encoding="utf-8")


def write_lake(where: Path) -> None:
    """Somebody's own tables, as the documents' map has them, and requests of XCLAIM."""
    group = {"stream": ["orders:eu"], "consumer_group": ["workers"]}
    instant = datetime(2026, 1, 1, 1, tzinfo=UTC)
    ids = [f"{MS}-0", f"{MS}-1"]
    tables: dict[str, dict[str, list[Any]]] = {
        "entries": {"stream": ["orders:eu"] * 2, "entry_id": ids},
        "pending": {
            "stream_name": ["orders:eu"] * 2,
            "consumer_group": ["workers"] * 2,
            "entry_id": ids,
            "consumer": ["bob", "bob"],
            "delivered_at": [instant - timedelta(hours=1)] * 2,
            "delivery_count": [1, 1],
        },
        "groups": {**group, "last_id": [ids[-1]], "taken_at": [instant]},
        "claims": {
            **group,
            "request": [1],
            "consumer": ["alice"],
            "min_idle_ms": [0],
            "ids": [[f"{MS}-4", f"{MS}-5"]],
            "force": [False],
            "justid": [True],
            "idle_rule": ["documented"],
            "profile": ["redis-7.2"],
        },
    }
    for name, columns in tables.items():
        write_deltalake(str(where / name), pa.table(columns))


# ------------------------------------------------------------------- examples and links


def test_only_documents_that_are_played_have_examples_that_run() -> None:
    assert set(PLAYED) <= set(DOCUMENTS)
    known = RUN | {"text"}
    languages = {name: {example.language for example in examples_of(name)} for name in DOCUMENTS}
    assert {name for name, used in languages.items() if used & RUN} <= set(PLAYED)
    assert {name: used - known for name, used in languages.items() if used - known} == {}


def test_the_readme_is_short_and_leads_to_every_page() -> None:
    assert len(text_of("README.md").encode()) <= MOST_BYTES
    linked = set(re.findall(r"\]\(([\w/-]+\.md)", text_of("README.md")))
    assert linked == {*PAGES, "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_and_target_that_is_named_is_there(document: str) -> None:
    text = text_of(document)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"\bmake ([a-z]+(?:-[a-z]+)*)`", text):
        assert f"\n{target}:" in makefile, target
    for name in re.findall(r"`((?:claimlib|conf|docs|jobs|notebooks|tests)/[\w./]+)`", text):
        assert name in {"jobs/COMMAND.py", "conf/policy.toml"} or (ROOT / name).exists(), name
    for module in re.findall(r"python -m ([a-z_.]+)", text):
        path = ROOT.joinpath(*module.split("."))
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module


def test_what_pip_is_told_to_install_are_extras() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (extras,) = re.findall(r"pip install 'PATH\[(.*)\]'", text_of("README.md"))
    assert all(f"\n{extra} = [" in project for extra in extras.split(","))


def test_no_text_tells_pip_to_install_claimlib_from_an_index() -> None:
    """The project publishes no package there, so the name may become another project's."""
    files = [
        path
        for folder in ("claimlib", "conf", "docs", "jobs", "notebooks")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".md", ".toml", ".conf"}
    ]
    for path in (ROOT / "README.md", ROOT / "databricks.yml", *files):
        named = re.findall(r"pip install (?:-\S+ )*['\"]?claimlib\b", path.read_text("utf-8"))
        assert not named, path


# ------------------------------------------------------------------- what is listed


def test_the_page_of_commands_is_what_the_commands_say() -> None:
    """In a process of its own: commands are listed as their modules were imported, which is another
    order where a test has imported some of them first."""
    program = "from tests.edge.command_reference import reference; print(reference(), end='')"
    words = [sys.executable, "-c", program]
    said = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, encoding="utf-8")
    written = FILE.read_text(encoding="utf-8")
    assert written == said.stdout, "run: python -m tests.edge.command_reference"


def test_the_readme_names_every_command() -> None:
    assert {name for name in COMMANDS if f"claimlib {name}`" not in text_of("README.md")} == {
        "init",
        "abandon",
        "upgrade",
    }
    assert "claimlib init " in text_of("README.md")
    assert "claimlib abandon " in text_of("docs/runs.md")
    assert "claimlib upgrade " in text_of("docs/upgrading.md")


def test_a_pipeline_is_told_which_columns_it_must_write() -> None:
    told = {row[0]: row[1:] for row in rows(section("docs/own-tables.md", "## Append"))}
    assert set(told) == {f"`{name}`" for name in PARTS}
    for name in PARTS:
        must, may = told[f"`{name}`"]
        written = TABLES[name].written
        assert set(must.split(", ")) == {column.name for column in written if not column.nullable}
        assert set(may.split(", ")) == {column.name for column in written if column.nullable}


def test_an_import_is_told_which_columns_it_reads() -> None:
    table = section("docs/own-tables.md", "## Import").partition("\n### ")[0]
    told = dict(rows(table))
    for name, parts in PARTS.items():
        must, _, may = told[f"`--{name}`"].partition("; optional: ")
        assert names_in(must) == [key for key, part in parts.items() if not part.optional]
        assert names_in(may) == [key for key, part in parts.items() if part.optional]


@pytest.mark.parametrize(
    ("document", "heading", "columns"),
    [
        ("docs/sweeps.md", "## One request per group", REQUEST_COLUMNS),
        ("docs/by-id.md", "## XCLAIM", CLAIM_COLUMNS),
    ],
)
def test_a_table_of_requests_is_described_column_by_column(
    document: str, heading: str, columns: dict[str, str]
) -> None:
    told: dict[str, str] = {}
    for row in rows(section(document, heading)):
        names, types = names_in(row[0]), row[1].replace("`", "").split(", ")
        if len(row) == 3:
            told |= zip(names, types * (len(names) if len(types) == 1 else 1), strict=True)
    assert told == dict(columns)


def test_every_table_is_named_with_its_key_and_every_kind_of_journal_row() -> None:
    tables = {row[0]: row[-1] for row in rows(text_of("docs/tables.md").split("\n## ")[0])}
    assert set(tables) == {f"`{name}`" for name in TABLES}
    for table in TABLES.values():
        names = [name for name in table.key if name != "id_seq"]
        shown = ", ".join("id" if name == "id_ms" else name for name in names)
        assert tables[f"`{table.name}`"] == shown
    kinds = [names_in(row[0]) for row in rows(section("docs/tables.md", "## The journal"))]
    assert sorted(kind for row in kinds for kind in row) == sorted(Kind)


def names_in(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def test_the_figures_are_those_that_the_long_tests_counted() -> None:
    report = json.loads(REPORT.read_text(encoding="utf-8"))
    document = DOCUMENT.read_text(encoding="utf-8")
    assert set(report) == set(Profile)
    assert with_figures(document, report) == document, "run: python -m tests.live.figures"
