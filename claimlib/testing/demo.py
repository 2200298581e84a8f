"""`make demo`: stalled work on a real server, one Spark run, and the proof that both agree.

Tells the story by the commands that a user would type.  All but spark-submit run in this process,
so that they share one Spark session; the job itself runs as it would in production.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from claimlib import exits
from claimlib.errors import ClaimlibError, RequestError
from claimlib.testing import workload
from claimlib.testing.oracle import ServerAnswer, autoclaim_all
from claimlib.testing.server import Server, valkey_server

if TYPE_CHECKING:
    from claimlib.testing.proof import Proof

_ROOT = Path(__file__).resolve().parents[2]
_JOB = _ROOT / "jobs" / "xautoclaim.py"
_CONFIG = _ROOT / "conf" / "local.toml"
_SPARK = _ROOT / "conf" / "spark-defaults.conf"
_BIN = Path(sys.executable).parent
_MARK = "made-by-claimlib-demo"
_CONSUMER = "reclaimer"
_RUN_ID = "demo-1"
_SHOWN_DIFFERENCES = 10


def main() -> None:
    """Play the demo and end the process: 0, or 1 if server and store differ in anything."""
    parser = argparse.ArgumentParser(prog="claimlib.testing.demo", description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=Path("demo-store"), help="where it leaves its two stores"
    )
    parser.add_argument(
        "--entries", type=int, default=workload.ENTRIES, help="how many stream entries"
    )
    asked = parser.parse_args()
    sys.exit(exits.ending(lambda: _play(asked.folder, asked.entries)))


def _play(folder: Path, entries: int) -> int:
    for needed in (_JOB, _CONFIG, _SPARK):
        if not needed.is_file():
            raise RequestError(f"{needed} is missing: run the demo from a clone of the project")
    first, second = _emptied(folder)
    story = _Story()
    with valkey_server() as server:
        with story.step("Work stalls on a real server"):
            stalled = workload.drive(server, entries=entries)
            story.tell(_of_workload(server, stalled))
        with story.step("A Spark session for this process; alone, each command starts its own"):
            _open_session()
        with story.step("A store, and a snapshot of the server"):
            story.claimlib("init", str(first))
            story.claimlib("snapshot", server.url, str(first))
        with story.step("The job: one Spark run over all groups"):
            story.submit(first)
        with story.step("The proof: all clients stopped, a second store takes a snapshot"):
            _check_alone(server)
            story.claimlib("init", str(second))
            story.claimlib("snapshot", server.url, str(second))
        with story.step("The server runs its own XAUTOCLAIM loops, in one Lua script"):
            answer = _server_answer(server, stalled.sweep_ms)
            story.tell(_of_answer(answer))
    with story.step("The job on the second store, at the server's instant and by its idle rule"):
        story.claimlib(*_sweep_words(second, answer))
    with story.step("Every fact of the two end states is compared"):
        proof = _prove(second, answer)
        story.show_proof(proof)
    story.show_seconds()
    story.verdict(proof)
    story.tell(_next(first))
    return exits.DONE if proof.holds else exits.OUR_FAULT


# ------------------------------------------------------------ what is told


@dataclass
class _Story:
    """What is printed, and how long each step took."""

    console: Console = field(default_factory=lambda: Console(highlight=False))
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        self.console.rule(Text(f"{len(self.seconds) + 1}. {title}", "bold"), align="left")
        since = time.monotonic()
        yield
        self.seconds[title] = time.monotonic() - since
        self.console.print(Text(f"({self.seconds[title]:.1f} s)\n", "dim"))

    def tell(self, text: str) -> None:
        self.console.print(Text(text))

    def claimlib(self, *words: str) -> None:
        """One command of the command line, in this process."""
        from claimlib.cli.app import app

        self._show_command(["claimlib", *words])
        code = app(list(words), standalone_mode=False)
        if code:
            raise ClaimlibError(f"claimlib {words[0]} ended with exit code {code}", code=code)

    def submit(self, store: Path) -> None:
        """The job, by spark-submit; what Spark says of itself is shown only if it fails."""
        job = [_shown(_JOB), str(store), "--config", _shown(_CONFIG), "--run-id", _RUN_ID]
        words = ["spark-submit", "--properties-file", _shown(_SPARK), *job]
        self._show_command(words)
        environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
        with tempfile.TemporaryFile() as log:
            command = [str(_BIN / words[0]), *words[1:]]
            code = subprocess.run(command, env=environment, stderr=log, check=False).returncode
            if code:
                log.seek(0)
                sys.stderr.write(log.read().decode(errors="replace"))
                raise ClaimlibError(f"spark-submit ended with exit code {code}", code=code)

    def _show_command(self, words: list[str]) -> None:
        self.console.print(Text(f"$ {shlex.join(words)}", "bold cyan"), soft_wrap=True)
        sys.stdout.flush()

    def show_proof(self, proof: Proof) -> None:
        table = Table("what", box=None)
        for heading in ("compared", "different"):
            table.add_column(heading, justify="right")
        for what, compared in proof.compared.items():
            different = sum(one.what == what for one in proof.differences)
            table.add_row(what, f"{compared:,}", f"{different:,}")
        table.add_section()
        total = sum(proof.compared.values())
        table.add_row("total", f"{total:,}", f"{len(proof.differences):,}")
        self.console.print(table)
        counted = ", ".join(f"{outcome} in {count}" for outcome, count in proof.groups.items())
        self.tell(f"Groups with something {counted}.")

    def show_seconds(self) -> None:
        table = Table("step", box=None)
        table.add_column("seconds", justify="right")
        for title, seconds in self.seconds.items():
            table.add_row(title, f"{seconds:.1f}")
        table.add_row("total", f"{sum(self.seconds.values()):.1f}")
        self.console.print(table)

    def verdict(self, proof: Proof) -> None:
        for line in (*proof.shortfalls, *map(str, proof.differences[:_SHOWN_DIFFERENCES])):
            self.console.print(Text(line, "red"))
        hidden = len(proof.differences) - _SHOWN_DIFFERENCES
        if hidden > 0:
            self.tell(f"… and {hidden:,} more differences")
        total = sum(proof.compared.values())
        said = (
            f"PROVED: {total:,} facts compared, server and store agree on every one."
            if proof.holds
            else f"FAILED: {total:,} facts compared, {len(proof.differences):,} differ."
        )
        self.console.print(Text(f"\n{said}\n", "bold green" if proof.holds else "bold red"))


def _of_workload(server: Server, stalled: workload.Workload) -> str:
    return (
        f"Valkey at {server.url}: {stalled.added:,} entries in {stalled.streams} streams, read by"
        f" {stalled.groups} groups with {stalled.consumers} consumers.\n"
        f"{stalled.delivered:,} deliveries, {stalled.acknowledged:,} acknowledged;"
        f" {stalled.died} consumers died with the rest in their hands, or failed at it.\n"
        f"{stalled.deleted:,} entries were deleted (XDEL), {stalled.trimmed:,} trimmed (XTRIM)."
    )


def _of_answer(answer: ServerAnswer) -> str:
    groups = answer.groups.values()
    claimed, deleted = (
        sum(len(ids) for ids in found)
        for found in ((one.reply.claimed for one in groups), (one.reply.deleted for one in groups))
    )
    return (
        f"{sum(one.calls for one in groups)} calls for {len(groups)} groups at {answer.now_ms}"
        f" (TIME), min-idle {answer.min_idle_ms} ms: {claimed:,} claimed, {deleted:,} deleted,"
        f" {sum(one.left for one in groups):,} left alone.\n"
        f"{answer.at_boundary:,} entries were idle for exactly that long."
    )


def _next(store: Path) -> str:
    claimlib = _shown(_BIN / "claimlib")
    return f"""What to look at next:

  {claimlib} runs {store}
  {claimlib} runs {store} xautoclaim:{_RUN_ID} --claimed
  {claimlib} xautoclaim {store} --consumer somebody --min-idle 1h --dry-run

The tables without Spark (DuckDB on delta-rs), here what was purged:

  {_shown(_BIN / "python")} -c "import deltalake, duckdb
  tombstones = deltalake.DeltaTable('{store}/tombstones').to_pyarrow_table()
  duckdb.sql('SELECT stream, consumer_group, consumer, count(*) AS purged,
              max(delivery_count) AS most_deliveries FROM tombstones GROUP BY ALL').show()"

Then README.md: the tables, the commands, and why it is built this way.
"""


def _shown(path: Path) -> str:
    """A path of the project, as short as it can be from here."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


# ------------------------------------------------------------ what is done


def _emptied(folder: Path) -> tuple[Path, Path]:
    """Places for two stores, in a folder that is ours; those of an earlier demo go."""
    mark = folder / _MARK
    if mark.is_file():
        shutil.rmtree(folder)
    if folder.exists():
        raise RequestError(
            f"{folder} is there already, and no demo made it: give another --folder",
            folder=str(folder),
        )
    folder.mkdir(parents=True)
    mark.touch()
    return folder / "first", folder / "second"


def _open_session() -> None:
    from claimlib.session import open_session

    open_session(driver_memory="2g", app_name="claimlib demo", muted=True)


def _check_alone(server: Server) -> None:
    with closing(server.client()) as client:
        connected = client.info("clients")["connected_clients"]
    if connected != 1:
        raise ClaimlibError(f"{connected - 1} other clients are still connected", clients=connected)


def _server_answer(server: Server, idle_since_ms: int) -> ServerAnswer:
    with closing(server.client()) as client:
        return autoclaim_all(client, consumer=_CONSUMER.encode(), idle_since_ms=idle_since_ms)


def _sweep_words(store: Path, answer: ServerAnswer) -> list[str]:
    return [
        *("xautoclaim", str(store), "--consumer", _CONSUMER, "--run-id", _RUN_ID),
        *("--min-idle", f"{answer.min_idle_ms}ms", "--idle-rule", "server"),
        *("--now", str(answer.now_ms), "--limit", "3"),
    ]


def _prove(where: Path, answer: ServerAnswer) -> Proof:
    from claimlib.commands.runs import find_run
    from claimlib.session import open_session
    from claimlib.store import Store
    from claimlib.testing.proof import prove

    store = Store.open(open_session(), str(where))
    return prove(answer, store, find_run(store, f"xautoclaim:{_RUN_ID}"))


if __name__ == "__main__":
    main()
