"""Play `claimlib demo`: stalled work on a server, a Spark run, and a comparison of the results.

The demo consists of commands that a user would type.  They run in this process, except
spark-submit, which runs the job as in production.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from claimlib import process, terminal
from claimlib.commands.runs import find_run
from claimlib.demo import workload
from claimlib.demo.oracle import ServerAnswer, autoclaim_all, copy_server, read_groups
from claimlib.demo.proof import Proof, differences_of_servers, prove
from claimlib.demo.story import Story, of_answer, of_workload
from claimlib.errors import ClaimlibError, RequestError
from claimlib.session import SHORT_LIVED, open_session
from claimlib.store.opening import open_folder
from claimlib.testing.server_process import Server, valkey_server

if TYPE_CHECKING:
    import redis

# The wheel contains the job and its settings.  In a clone they are in their usual folders.
_FILES = Path(__file__).resolve().with_name("files")
_ROOT = _FILES if _FILES.is_dir() else _FILES.parents[2]
_JOB = _ROOT / "jobs" / "xautoclaim.py"
_CONFIG = _ROOT / "conf" / "local.toml"
_SPARK = _ROOT / "conf" / "spark-defaults.conf"
_BIN = Path(sys.executable).parent
_MARK = "made-by-claimlib-demo"
_CONSUMER = "reclaimer"
_RUN_ID = "demo-1"


Command = Callable[[Sequence[str]], int | None]
"""Type a function that runs one claimlib command in this process.

It returns the exit code, or None for 0.
"""


def play(command: Command, folder: Path, entries: int) -> int:
    """Run the whole demo, and return the exit code: 1 if server and stores differ.

    Raises:
        RequestError: the folder exists, and no demo made it.
    """
    stores = _empty_folder(folder)
    story = Story()
    claimlib = partial(_claimlib, story, command)
    with valkey_server() as server, valkey_server() as second:
        with story.step("Work stalls on a real server"):
            stalled = workload.drive(server, entries=entries)
            story.tell(of_workload(server, stalled))
        _read_server(story, claimlib, server, stores)
        answer = _let_server_claim(story, server, second, stalled.sweep_ms)
        with _submitted(story, stores["spark"], answer) as job:
            proofs = {"embedded": _sweep_embedded(story, claimlib, stores["embedded"], answer)}
            _close_the_loop(story, claimlib, server, stores["embedded"], answer)
            with story.step("Meanwhile the job has run: its report"):
                _show(job)
                proofs["spark"] = _compare(stores["spark"], answer)
    with story.step("The end states are compared, fact by fact"):
        story.proof(proofs)
    story.times()
    story.verdict(proofs)
    story.tell(_next_steps(stores["spark"]))
    is_proved = all(proof.holds for proof in proofs.values())
    return process.DONE if is_proved else process.OUR_FAULT


def _read_server(
    story: Story, claimlib: Callable[..., None], server: Server, stores: Mapping[str, Path]
) -> None:
    """Take a snapshot of the server, and copy the store.

    Args:
        stores: the store that each engine sweeps, by the engine's name.
    """
    with story.step("All clients stopped: a store, a snapshot of the server, a copy of the store"):
        _check_no_other_clients(server)
        store, *copies = stores.values()
        claimlib("init", str(store))
        claimlib("snapshot", server.url, str(store))
        for copy in copies:
            story.command(["cp", "-r", str(store), str(copy)])
            shutil.copytree(store, copy)


def _let_server_claim(story: Story, server: Server, second: Server, sweep_ms: int) -> ServerAnswer:
    """Let a copy of the server claim, and return its answer.

    Args:
        second: an empty server.
    """
    with (
        story.step("A second server, a copy of the first, runs its own loops, in one Lua script"),
        _client(server) as original,
        _client(second) as client,
    ):
        copy_server(original, client)
        answer = autoclaim_all(client, consumer=_CONSUMER.encode(), idle_since_ms=sweep_ms)
        story.tell(of_answer(answer))
    return answer


def _claim_options(answer: ServerAnswer) -> list[str]:
    """Return the options that repeat the claim of the second server at its time."""
    options = {
        "--consumer": _CONSUMER,
        "--run-id": _RUN_ID,
        "--min-idle": f"{answer.min_idle_ms}ms",
        "--idle-rule": "server",
        "--now": str(answer.now_ms),
        "--limit": "3",
    }
    return [word for option in options.items() for word in option]


def _sweep_embedded(
    story: Story, claimlib: Callable[..., None], store: Path, answer: ServerAnswer
) -> Proof:
    """Repeat the claim of the second server on a store without Spark, and compare the results."""
    with story.step("claimlib claims with the embedded engine, at the server's time, by its rule"):
        claimlib("xautoclaim", str(store), "--engine", "embedded", *_claim_options(answer))
        return _compare(store, answer)


def _close_the_loop(
    story: Story,
    claimlib: Callable[..., None],
    server: Server,
    store: Path,
    answer: ServerAnswer,
) -> None:
    """Write the claims back to the first server, acknowledge them, and take a new snapshot.

    Raises:
        ClaimlibError: after the writeback, the first server differs from the second.  Or after the
            acknowledgements, an entry is still stalled.
    """
    path, run = str(store), f"xautoclaim:{_RUN_ID}"
    with story.step("The claims are written back to the first server"), _client(server) as client:
        claimlib("writeback", path, run, server.url, "--run-id", _RUN_ID, "--limit", "3")
        groups = read_groups(client)
        if differences := differences_of_servers(answer, groups):
            raise ClaimlibError(f"{len(differences)} entries differ, first: {differences[0]}")
        pending = sum(len(group.pending) for group in groups.values())
        story.tell(f"Both servers have the same {pending:,} pending entries, owners and counts.")
    with story.step(f"The consumer {_CONSUMER} reads its entries and acknowledges them"):
        with _client(server) as client:
            done = workload.work_off(client, groups, _CONSUMER)
        story.tell(f"XREADGROUP from id 0 and XACK, group by group: {done:,} entries.")
    with story.step("A new snapshot shows that no entry is stalled"):
        claimlib("snapshot", server.url, path)
        stalled = ["--fail-on-stalled", f"{answer.min_idle_ms}ms", "--now", str(answer.now_ms)]
        claimlib("xpending", path, *stalled, "--limit", "3")


def _empty_folder(folder: Path) -> dict[str, Path]:
    """Empty the demo's folder, and return the folder of each engine's store.

    Raises:
        RequestError: the folder exists, and no demo made it.
    """
    if (folder / _MARK).is_file():
        shutil.rmtree(folder)
    if folder.exists():
        raise RequestError(
            f"{folder} is there already, and no demo made it: give another --folder",
            folder=str(folder),
        )
    folder.mkdir(parents=True)
    (folder / _MARK).touch()
    return {engine: folder / engine for engine in ("embedded", "spark")}


def _claimlib(story: Story, command: Command, *words: str) -> None:
    """Print one command, and run it."""
    story.command(["claimlib", *words])
    code = command(words)
    if code:
        raise ClaimlibError(f"claimlib {words[0]} ended with exit code {code}", code=code)


@dataclass(frozen=True, slots=True)
class _Job:
    """Hold a running job, and the files that get its report and its log."""

    process: subprocess.Popen[bytes]
    report: IO[bytes]
    log: IO[bytes]


@contextmanager
def _submitted(story: Story, store: Path, answer: ServerAnswer) -> Iterator[_Job]:
    """Run the claim of the second server as a job, by spark-submit, in the background."""
    job = [_shown_path(_JOB), str(store), "--config", _shown_path(_CONFIG), "--engine", "spark"]
    options = ["--properties-file", _shown_path(_SPARK), "--driver-java-options", SHORT_LIVED]
    words = ["spark-submit", *options, *job, *_claim_options(answer)]
    with story.step("The job: one Spark run over all groups, in the background"):
        story.command(words)
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    with tempfile.TemporaryFile() as report, tempfile.TemporaryFile() as log:
        command = [str(_BIN / words[0]), *words[1:]]
        process = subprocess.Popen(command, env=environment, stdout=report, stderr=log)
        try:
            yield _Job(process, report, log)
        finally:
            process.kill()
            process.wait()


def _show(job: _Job) -> None:
    """Wait for the job and print its report.  Spark's own messages are shown only if it fails."""
    code = job.process.wait()
    terminal.out(_text_of(job.report))
    if code:
        terminal.err(_text_of(job.log))
        raise ClaimlibError(f"spark-submit ended with exit code {code}", code=code)


def _text_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace").rstrip("\n")


def _client(server: Server) -> closing[redis.Redis]:
    return closing(server.client())


def _check_no_other_clients(server: Server) -> None:
    """Raise an error if other clients are still connected.

    Producers and consumers must have ended, so that nothing changes between the snapshot and the
    loops.
    """
    with _client(server) as client:
        others = client.info("clients")["connected_clients"] - 1
    if others:
        raise ClaimlibError(f"{others} other clients are still connected", clients=others)


def _compare(where: Path, answer: ServerAnswer) -> Proof:
    """Compare a store after its sweep with the second server."""
    store = open_folder(open_session, str(where))
    return prove(answer, store, find_run(store, f"xautoclaim:{_RUN_ID}"))


def _next_steps(store: Path) -> str:
    claimlib, path = shlex.quote(_shown_path(_BIN / "claimlib")), shlex.quote(str(store))
    return f"""What to look at next:

  {claimlib} runs {path}
  {claimlib} runs {path} xautoclaim:{_RUN_ID} --claimed
  {claimlib} xautoclaim {path} --consumer somebody --min-idle 5m --dry-run

The tables without Spark (delta-rs); here, what was deleted:

  {shlex.join((_shown_path(_BIN / "python"), "-c", _deleted_in(store)))}

docs/tables.md says what each table holds."""


def _deleted_in(store: Path) -> str:
    """Return a line of Python that prints the number of deleted entries.

    The line needs only packages of the extra `spark`.  It has double quotes only, because the user
    types it in single quotes.
    """
    table = json.dumps(str(store / "tombstones"), ensure_ascii=False)
    query = (
        "SELECT stream, consumer_group, count(*) AS deleted FROM t"
        " GROUP BY stream, consumer_group ORDER BY stream, consumer_group"
    )
    return (
        "from deltalake import DeltaTable, QueryBuilder;"
        f' print(QueryBuilder().register("t", DeltaTable({table})).execute("{query}").read_all())'
    )


def _shown_path(path: Path) -> str:
    """Return a path as text.  A path in the working directory is relative to it."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
