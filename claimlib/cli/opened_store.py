"""Open the session and the store of a command."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from claimlib import process, terminal
from claimlib.cli.common import Common
from claimlib.config.sections import Engine
from claimlib.config.settings import Config
from claimlib.errors import (
    DamagedTableError,
    InputError,
    RequestError,
    StorageError,
    StoreNotFoundError,
)
from claimlib.places import (
    check_no_secret,
    check_place,
    check_storage,
    check_writable,
    local_folder,
)
from claimlib.session import (
    SHORT_LIVED,
    has_catalog,
    has_session,
    may_use_other_file_system,
    reads_paths_as_local_folders,
    starts_jvm,
)
from claimlib.session.settings_file import is_set_by_user

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from claimlib.runs import Phase, Progress
    from claimlib.store.definitions import Definitions
    from claimlib.store.tables import Store


@contextmanager
def opened_store(
    store: str,
    settings: Config,
    common: Common,
    *,
    writes: bool = False,
    inputs: Collection[str] = (),
    look: Look | None = None,
) -> Iterator[tuple[Store, Progress]]:
    """Yield the store, and the callback that shows progress.

    The callback shows nothing with --quiet.  Spark starts only when it is needed, because its start
    is slow.

    Args:
        writes: True if the command writes to the store.
        inputs: the places of the tables that the user gives to the command.
        look: raises an error if the request has a mistyped name, for example of an unknown group.
            So the user does not wait for Spark first.  It is called only if Spark will start, and
            if this process can read the store, too.  So the command must repeat the check.

    Raises:
        InputError: one of `inputs` does not exist.
        RequestError: the settings demand the embedded engine, but it cannot work on the store or
            cannot read one of the tables.
    """
    check_local_store(store, settings, writes=writes)
    for place in inputs:
        _check_input(place, settings)
    with _starting(settings, common) as (start, progress):

        def tell(phase: Phase, detail: str) -> None:
            process.set_state_text(partial(_state, phase, detail))
            progress(phase, detail)

        opened = _opened(store, settings, start, writes=writes, look=look)
        opened.lock.wait_ms = settings.lock.wait_ms
        yield opened, tell


Look = Callable[["Store"], object]
"""A function that raises an error if a request does not fit the store."""


def _check_input(place: str, settings: Config) -> None:
    """Raise an error before Spark starts if a table cannot be read."""
    from claimlib.engine.embedded_inputs import open_files
    from claimlib.engine.inputs import NOT_IN_CATALOG, NOTHING_THERE, is_name, is_path, unreadable

    master, conf = settings.spark.master, settings.spark.conf
    if reads_paths_as_local_folders(master, conf):
        if is_name(place) and not has_catalog(conf):
            raise unreadable(place, NOT_IN_CATALOG)
        if is_path(place) and not os.path.exists(place):  # noqa: PTH110 - Path.exists() raises if a folder is unreadable
            raise unreadable(place, NOTHING_THERE)
    if settings.execution.engine is Engine.EMBEDDED:
        # This raises RequestError if only Spark can read the table.  The command reports the other
        # faults of the table (InputError), after the errors of its own request.
        with suppress(InputError):
            open_files(place)


def _opened(
    store: str, settings: Config, start: _Once, *, writes: bool, look: Look | None
) -> Store:
    from claimlib.store.opening import find_embedded, open_store

    engine = settings.execution.engine
    uses_spark = engine is Engine.SPARK
    if uses_spark and look is None:
        return open_store(start(), store)
    if reads_paths_as_local_folders(settings.spark.master, settings.spark.conf):
        # If Spark is chosen, only `look` uses this store, so it need not accept writes.
        embedded = find_embedded(start, store, writes=writes and not uses_spark)
        if embedded is not None and not uses_spark:
            return embedded
        if embedded is not None and look is not None:
            with suppress(DamagedTableError):  # Spark may read what this process cannot
                look(embedded)
    _refuse_embedded(store, engine)
    return open_store(start(), store)


def _refuse_embedded(store: str, engine: Engine) -> None:
    if engine is Engine.EMBEDDED:
        raise RequestError(
            f"the embedded engine cannot work on {local_folder(store) or store}: the store must be"
            " a folder of this machine. No constraint, column or feature may have been added to its"
            " tables. The process must have no Spark session, and no variable or setting of another"
            " Spark, such as SPARK_HOME. Use --engine auto or --engine spark",
            option="engine",
        )


@contextmanager
def locked(
    command: str, store: str, settings: Config, progress: Progress, *, is_repair: bool = True
) -> Iterator[None]:
    """Hold `creation.repair_lock` of a store.  The settings limit the time to wait for the lock.

    Args:
        is_repair: False if only missing tables are created.  A complete store is not locked then.
    """
    from claimlib.runs import Phase
    from claimlib.store.creation import repair_lock

    folder = _folder_here(store, settings)
    lock = repair_lock(folder, is_repair=is_repair, wait_ms=settings.lock.wait_ms)
    with lock.held_for(command, partial(progress, Phase.LOCK)):
        yield


@contextmanager
def definitions_of(
    store: str, settings: Config, common: Common
) -> Iterator[tuple[Definitions, Progress]]:
    """Yield the definitions of a store's tables, and the callback that shows progress.

    Spark starts only if it is needed.
    """
    with _starting(settings, common, SHORT_LIVED) as (start, progress):
        yield _definitions(store, settings, start), progress


# The beginning of the settings that give properties to new tables.
_DEFAULTS = "spark.databricks.delta.properties.defaults."


def _definitions(store: str, settings: Config, start: _Once) -> Definitions:
    from claimlib.store.definitions import FolderDefinitions, SparkDefinitions

    engine, conf = settings.execution.engine, settings.spark.conf
    is_folder = reads_paths_as_local_folders(settings.spark.master, conf)
    if engine is not Engine.SPARK and is_folder and not any(map(_has_defaults, conf)):
        in_folder = FolderDefinitions.find(start, store)
        if in_folder is not None:
            return in_folder
    _refuse_embedded(store, engine)
    return SparkDefinitions(start(), store)


def _has_defaults(key: str) -> bool:
    return key.startswith(_DEFAULTS)


@contextmanager
def _starting(
    settings: Config, common: Common, java_options: str = ""
) -> Iterator[tuple[_Once, Progress]]:
    from claimlib.cli.progress import shown

    start = partial(session_of, settings, debug=common.debug, java_options=java_options)
    if not common.quiet:
        terminal.say(*_without_effect(settings.spark.conf))
    with shown(start, quiet=common.quiet, verbose=common.verbose) as (start_shown, progress):
        yield _Once(start_shown), progress


def _without_effect(conf: Mapping[str, str]) -> Iterator[str]:
    """Yield a remark if memory is set for a JVM that another program has started."""
    memory = conf.get("spark.driver.memory")
    if memory and (has_session() or not starts_jvm()):
        yield (
            "spark.driver.memory has no effect, because Spark is running already: set it where"
            f" Spark is started (spark-submit --driver-memory {memory})"
        )


class _Once:
    """Open the session at the first call, and return it at each call, from any thread."""

    def __init__(self, start: Callable[[], SparkSession]) -> None:
        self._start = start
        self._lock = Lock()
        self._spark: SparkSession | None = None

    def __call__(self) -> SparkSession:
        with self._lock:
            if self._spark is None:
                self._spark = self._start()
                process.catch_signals()  # pyspark has replaced the handlers
            return self._spark


def check_new_store(store: str, settings: Config) -> None:
    """Raise an error before Spark starts if no store can be created at a place.

    Raises:
        RequestError: the place is missing, contains a secret, or is not a storage location.
        StorageError: the place is on this machine, and no folder can be created there.
    """
    folder = _folder_here(store, settings)
    if folder is None:
        return
    with _os_errors_named(folder):
        above = next(path for path in (folder, *folder.parents) if path.exists())
        if not above.is_dir():
            raise StorageError(f"{above} is a file, but a store is a folder: give another location")
        check_writable(folder, _tables())


def check_local_store(store: str, settings: Config, *, writes: bool = False) -> None:
    """Raise an error before Spark starts if a store does not exist.

    Args:
        writes: True if the command writes to the store.

    Raises:
        RequestError: the place is missing, contains a secret, or is not a storage location.
        StorageError: the store is a folder of this machine, and the process has no permission to
            read it, or to write to it.
        StoreNotFoundError: the place is on this machine, and contains no table.
    """
    folder = _folder_here(store, settings)
    if folder is None:
        return
    with _os_errors_named(folder):
        # A glob would ignore a folder that this process has no permission to read.
        if folder.is_dir() and any((child / "_delta_log").is_dir() for child in folder.iterdir()):
            if writes:
                check_writable(folder, _tables())
            return
        raise StoreNotFoundError(_why_no_store(folder), where=str(folder))


def _tables() -> Collection[str]:
    from claimlib.schema import TABLES

    return TABLES


def _folder_here(store: str, settings: Config) -> Path | None:
    """Return the local folder that the place of a store refers to.

    The result is None if only Spark can resolve the place.
    """
    check_place(store, "STORE")
    check_no_secret(store, "STORE")
    check_storage(store, "STORE")
    # In another environment, a path may belong to another file system.
    return None if may_use_other_file_system(settings.spark.conf) else local_folder(store)


@contextmanager
def _os_errors_named(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # a path with a null character is a ValueError
        why = getattr(error, "strerror", None) or str(error)
        raise StorageError(
            f"{folder} cannot be read ({why}): change its permissions, or give another location"
        ) from error


def _why_no_store(folder: Path) -> str:
    above = next(path for path in (folder, *folder.parents) if path.exists())
    if not above.is_dir():
        return f"{above} is a file, but a store is a folder: give another location"
    if (folder / "_delta_log").is_dir():
        return (
            f"{folder} is a single table, and a store is the folder that contains the tables: did"
            f" you mean {folder.parent}?"
        )
    return (
        f"no store at {folder}: check the location, or create it with: claimlib init"
        f" {shlex.quote(str(folder))}"
    )


def _state(phase: Phase, detail: str) -> str:
    """Return the state of the store after an interruption in this phase.

    While a decision is being written, `runs.protocol` sets the text (`process.set_state_text`).
    """
    from claimlib.runs import CLAIMS_SENT, DRY_RUN, NOTHING_DECIDED, Phase

    undecided = (Phase.LOCK, Phase.RECOVER, Phase.BEGIN, Phase.READ, Phase.DECIDE)
    if phase in undecided or detail.startswith(DRY_RUN):
        return NOTHING_DECIDED
    if phase == Phase.SEND:
        return f"{NOTHING_DECIDED}; {CLAIMS_SENT}"
    run = " ".join(detail.split()[:2])  # the detail begins with "run NUMBER"
    return (
        f"the decision of {run} was written: the same command with its --run-id, or the next run,"
        " finishes it"
    )


_WAREHOUSE = "spark.sql.warehouse.dir"
_WAREHOUSE_SETTINGS = (_WAREHOUSE, "spark.sql.catalogImplementation")


def session_of(settings: Config, *, debug: bool, java_options: str = "") -> SparkSession:
    """Return the session that the settings request.

    Args:
        java_options: the options of the JVM, if this call starts one.  They are
            `session.SHORT_LIVED` if a command's work does not grow with the store.
    """
    from claimlib.session import open_session

    chosen = settings.spark.model_dump()
    is_chosen = not chosen["conf"].keys().isdisjoint(_WAREHOUSE_SETTINGS)
    if starts_jvm() and not is_chosen and not is_set_by_user(*_WAREHOUSE_SETTINGS):
        # Spark creates this folder at once, by default in the working directory.  No table stays
        # there, because the catalog ends with the process.
        chosen["conf"][_WAREHOUSE] = tempfile.gettempdir()
    spark = open_session(**chosen, java_options=java_options, muted=not debug)
    if not debug:
        terminal.pyspark_logs_nothing()
    return spark
