"""Run each command that writes a store in a process of its own, and end it at a step.

The process is killed, or it loses its storage.  A step is a call of the embedded engine that
changes files: it writes rows, commits a version, cleans a log, or deletes old files.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import dataclass
from functools import wraps
from io import StringIO
from multiprocessing.connection import Connection
from pathlib import Path
from threading import RLock
from typing import Any

import deltalake  # noqa: F401 - loaded once, for all processes
import duckdb  # noqa: F401 - loaded once, for all processes
import pytest
from pyspark.sql import SparkSession

from claimlib.commands.imports import ImportRequest, import_tables
from claimlib.commands.maintain import maintain
from claimlib.commands.reset_cursor import reset_cursor
from claimlib.commands.retire import Retirement, retire
from claimlib.commands.runs import abandon
from claimlib.commands.snapshot import snapshot
from claimlib.commands.sweep_request import SweepRequest
from claimlib.commands.undo import undo
from claimlib.commands.upgrade import upgrade
from claimlib.commands.xack import NamedAck, xack
from claimlib.commands.xautoclaim import xautoclaim
from claimlib.commands.xclaim import NamedClaim, xclaim
from claimlib.engine.embedded import EmbeddedEngine
from claimlib.errors import RequestError
from claimlib.plans.differences import Scope
from claimlib.process import DONE, ending
from claimlib.runs import Phase
from claimlib.semantics.ids import StreamId
from claimlib.semantics.model import AutoclaimRequest, ClaimRequest
from claimlib.store import commits
from claimlib.store.creation import create
from claimlib.store.definitions import FolderDefinitions
from claimlib.store.folder_writer import FolderWriter
from claimlib.store.local import LocalTable
from claimlib.store.opening import open_folder
from claimlib.store.tables import Store
from claimlib.testing.keyspace_rows import write_keyspace
from tests.delta import given_files
from tests.delta.pels import IDS, NOW_MS, REQUEST, keyspace
from tests.delta.snapshots import ANY, source, stream

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload([__name__])

RUN_ID = "r"
PAGE = SweepRequest(
    AutoclaimRequest(b"alice", 0, count=3), stream_glob="s", cursor="nightly", resume=True
)
SOME = (*IDS[:2], *IDS[4:6])
READ = stream(b"s", {1: b"a", 2: b"b", 12: b"a"}, {1, 2, 12}, NOW_MS + 10)


# ------------------------------------------------------------------- the commands


def opened(where: Path) -> Store:
    return open_folder(no_session, str(where), writes=True)


def no_session() -> SparkSession:
    raise AssertionError("Spark is not needed")


def definitions(where: Path) -> FolderDefinitions:
    of_folder = FolderDefinitions.find(no_session, str(where))
    assert of_folder is not None
    return of_folder


def _import(where: Path) -> None:
    """Import the tables in a folder beside the store."""
    folder = where.parent / "given"
    places = {path.name: str(path) for path in folder.iterdir()}
    maps = {name: given_files.MAPS[name] for name in places}
    request = ImportRequest(**places, maps=maps, limits=ANY.limits, entries_complete=True)
    import_tables(opened(where), request, run_id=RUN_ID)


def _abandon(where: Path) -> None:
    with suppress(RequestError):  # an earlier call has ended it
        abandon(opened(where), "snapshot:cut")


def cut_off(store: Store) -> None:
    """Decide a snapshot, and stop before its first change of a table."""

    def stop(phase: Phase, _detail: str) -> None:
        if phase is Phase.APPLY:
            raise KeyboardInterrupt

    try:
        snapshot(store, ANY, lambda _: source(READ), run_id="cut", progress=stop)
    except KeyboardInterrupt:
        return
    raise AssertionError("the snapshot came to its end")


COMMANDS: dict[str, Callable[[Path], object]] = {
    "init": lambda where: create(definitions(where), buckets=2),
    "upgrade": lambda where: upgrade(definitions(where)),
    "snapshot": lambda where: snapshot(opened(where), ANY, lambda _: source(READ), run_id=RUN_ID),
    "import": _import,
    "xautoclaim": lambda where: xautoclaim(opened(where), SweepRequest(REQUEST), run_id=RUN_ID),
    "page": lambda where: xautoclaim(opened(where), PAGE, run_id=RUN_ID),
    "xclaim": lambda where: xclaim(
        opened(where),
        [NamedClaim(b"s", b"g", ClaimRequest(b"carol", 0, SOME, last_id=StreamId(30, 0)))],
        run_id=RUN_ID,
    ),
    "xack": lambda where: xack(opened(where), [NamedAck(b"s", b"g", SOME)], run_id=RUN_ID),
    "retire": lambda where: retire(
        opened(where), Retirement(b"s", b"g", b"dead", (b"alice",)), run_id=RUN_ID
    ),
    "undo": lambda where: undo(opened(where), "first", run_id=RUN_ID),
    "maintain": lambda where: maintain(opened(where), keep_history_ms=0, run_id=RUN_ID),
    "reset-cursor": lambda where: reset_cursor(
        opened(where), "nightly", Scope(), to=StreamId(2, 0), run_id=RUN_ID
    ),
    "abandon": _abandon,
}


# ------------------------------------------------------------------- the stores before


def _own(where: Path) -> None:
    """A store without a source.  Stream t was swept, and a page of stream s was claimed."""
    create(definitions(where), buckets=2)
    store = opened(where)
    write_keyspace(store, keyspace(b"s", b"t"), NOW_MS)
    xautoclaim(store, SweepRequest(REQUEST, stream_glob="t"), run_id="first")
    xautoclaim(store, PAGE, run_id="page")


def _read(where: Path) -> None:
    create(definitions(where), buckets=2)
    before = stream(b"s", {1: b"a", 2: b"a", 3: b"a"}, {1, 2, 3}, NOW_MS)
    snapshot(opened(where), ANY, lambda _: source(before), run_id="first")


def _cut(where: Path) -> None:
    _read(where)
    cut_off(opened(where))


def _imported(where: Path) -> None:
    create(definitions(where), buckets=2)
    for streams, folder in ((b"s", b"t"), "before"), ((b"s", b"u"), "given"):
        tables = given_files.of_keyspace(keyspace(*streams), NOW_MS)
        (where.parent / folder).mkdir()
        request = given_files.request(where.parent / folder, tables, entries_complete=True)
        if folder == "before":
            import_tables(opened(where), request, run_id="first")


def _old(where: Path) -> None:
    """A store of an earlier schema version."""
    with tarfile.open(Path(__file__).with_name("store_of_schema_2.tar.xz")) as archive:
        # Python before 3.11.4 has no filters.
        safe: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(where.parent, **safe)
    (where.parent / "store").rename(where)


_BASES: dict[str, Callable[[Path], None]] = {
    "init": lambda where: where.mkdir(),
    "upgrade": _old,
    "snapshot": _read,
    "import": _imported,
    "abandon": _cut,
}
_MADE: dict[Callable[[Path], None], Path] = {}


def base_of(command: str, folder: Path) -> Path:
    """Return the store on which a command is run, which this process makes once.

    Args:
        folder: where to make it.
    """
    make = _BASES.get(command, _own)
    if make not in _MADE:
        make(folder / "base")
        _MADE[make] = folder / "base"
    return _MADE[make]


# ------------------------------------------------------------------- their steps


@dataclass(frozen=True, slots=True)
class Ended:
    """Describe the end of a process.

    Attributes:
        code: its exit code; negative: the signal that killed it.
        steps: the steps that began, as `commit journal`; a second one is `commit journal 2`.
        said: what it wrote on stderr.
    """

    code: int
    steps: list[str]
    said: str

    @property
    def is_killed(self) -> bool:
        """True if the process was killed."""
        return self.code == -signal.SIGKILL


def kill() -> None:
    """End this process at once."""
    os.kill(os.getpid(), signal.SIGKILL)


def allow_no_file() -> None:
    """Have each later write of this process into a file fail, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


def fill(folder: Path) -> None:
    """Fill the disk of a folder."""
    with suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(b"0" * 2**16)


def lose_data(table: Path) -> None:
    """Delete the data files of a table."""
    for file in table.rglob("part-*.parquet"):
        file.unlink()


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a file system of 16 MB."""
    mount = ("mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder))
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.fail(
            f"no tmpfs can be mounted ({mounted.stderr.strip()}): run this test as root, in a"
            " container with --cap-add SYS_ADMIN"
        )
    try:
        yield
    finally:
        subprocess.run(("umount", "--lazy", str(folder)), check=True)


def lose_rights() -> None:
    """Go on as a user who may read the store, and not write to it."""
    os.setgroups([])
    os.setgid(_NOBODY)
    os.setuid(_NOBODY)


_NOBODY = 65534


def run(
    command: str,
    where: Path,
    step: str | None = None,
    act: Callable[[], None] = kill,
    killed_after_s: float | None = None,
) -> Ended:
    """Run a command in another process, and call a function when one of its steps begins.

    Args:
        step: the name of the step.  None means that the function is not called.
        act: the function.
        killed_after_s: the time in seconds after which the process is killed.  None means never.
    """
    receiver, sender = _PROCESSES.Pipe(duplex=False)
    process = _PROCESSES.Process(target=_run, args=(command, where, step, act, sender))
    process.start()
    sender.close()
    process.join(killed_after_s)
    process.kill()  # nothing happens if it has ended
    process.join()
    told = []
    with receiver, suppress(EOFError, OSError):  # killed as it told something
        while True:
            told.append(receiver.recv())
    steps = [name for name in told if isinstance(name, str)]
    said = "".join(line for name in told if isinstance(name, list) for line in name)
    assert isinstance(process.exitcode, int)
    return Ended(process.exitcode, steps, said)


def _run(
    command: str, where: Path, step: str | None, act: Callable[[], None], told: Connection
) -> None:
    def work() -> int:
        COMMANDS[command](where)
        return DONE

    _watch(step, act, told)
    with redirect_stderr(StringIO()) as err:
        code = ending(work)
    told.send([err.getvalue()])
    sys.exit(code)


def _watch(chosen: str | None, act: Callable[[], None], told: Connection) -> None:
    """Tell each step of this process, and do something as one begins."""
    times = Counter[str]()

    def begin(step: str) -> None:
        times[step] += 1
        name = step if times[step] == 1 else f"{step} {times[step]}"
        told.send(name)
        if name == chosen:
            act()

    watch_steps(begin)


def watch_steps(
    begin: Callable[[str], None], replace: Callable[[Any, str, Any], None] = setattr
) -> None:
    """Call a function when a step of this process begins, in one thread at a time.

    Args:
        replace: sets an attribute, as `pytest.MonkeyPatch.setattr` does until it is undone.
    """
    lock = RLock()

    def watch(owner: Any, name: str, verb: str, table_of: Callable[..., str]) -> None:
        call = getattr(owner, name)

        @wraps(call)
        def watched(*words: Any, **options: Any) -> Any:
            with lock:
                begin(f"{verb} {table_of(*words)}")
            return call(*words, **options)

        replace(owner, name, watched)

    watch(EmbeddedEngine, "write", "write", lambda _engine, _node, table, *_: table)
    watch(LocalTable, "_commit_files", "commit", lambda table, *_: table._folder.name)
    watch(LocalTable, "_committed", "rewrite", lambda table, *_: table._folder.name)
    watch(LocalTable, "clean_log", "clean", lambda table: table._folder.name)
    watch(FolderWriter, "vacuum", "vacuum", lambda _writer, table: table)
    watch(commits, "_write", "define", lambda file, _: _table_of(file))
    watch(os, "link", "link", lambda _new, file: _table_of(file))
    watch(Path, "rename", "rename", lambda _new, folder: folder.name)


def _table_of(commit: Path) -> str:
    """Return the table of a file of a log.  The folder of a new table has a name of its own."""
    return commit.parent.parent.name.removeprefix(".").partition("-")[0]
