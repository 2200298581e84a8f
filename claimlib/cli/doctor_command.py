"""Define the command that checks this machine, a store and a server: doctor.

Each check is printed as a line as soon as its result is known.  The quick checks come first, so
that a fault of Java is shown before Spark starts.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from claimlib import __version__, process, terminal
from claimlib.cli.app import command
from claimlib.cli.common import SparkOptions
from claimlib.cli.opened_store import session_of
from claimlib.cli.options import DebugOption, ServerOptions, argument
from claimlib.config.sections import Option
from claimlib.config.settings import Config
from claimlib.errors import (
    ClaimlibError,
    ConfigError,
    PermissionDeniedError,
    RequestError,
    StoreError,
    install_command,
)
from claimlib.live.address import is_server_url
from claimlib.places import check_writable, local_folder
from claimlib.session import CLASS_ARCHIVE, LOCAL_SETTINGS, SHORT_LIVED, check_java
from claimlib.terminal import number_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from claimlib.live.address import Address
    from claimlib.live.connection import ConnectOptions, Source

_PACKAGES = {
    "spark": ("pyspark", "delta-spark", "deltalake", "pandas", "pyarrow", "pydantic-settings"),
    "redis": ("redis",),
}
_LEAST_FREE_BYTES = 2 * 2**30
_MOST_CLOCK_SKEW_MS = 1000
_DELTA_SETTINGS = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")
_NO_TABLE = "/claimlib/there is no table here"
_ERRORS_WITHOUT_DELTA = (
    "[TABLE_OR_VIEW_NOT_FOUND]",  # without its extension, Spark looks for a table `DETAIL`
    "[DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG]",  # without its catalog
    "Cannot find catalog plugin class",  # without its jar
)


@dataclass(frozen=True, slots=True)
class Check:
    """Hold one line of the output: the name of a check, its result, and True if it succeeded."""

    name: str
    result: str
    is_ok: bool = True


@command("doctor ./store redis://localhost:6379/0")
def doctor(
    store: Annotated[str | None, argument("STORE", "Also check this store.")] = None,
    url: Annotated[
        str | None, argument("URL", "Also check this server: redis://[USER@]HOST[:PORT][/DB].")
    ] = None,
    *,
    server: ServerOptions,
    writeback: Annotated[
        bool,
        Option(
            "Check the rights on the server that claimlib writeback needs, instead of those of a"
            " snapshot."
        ),
    ] = False,
    spark: SparkOptions,
    debug: DebugOption = False,
) -> None:
    """Check the installation, and optionally a store and a server.

    Checks Java, packages, disk space and Spark and, if they are given, a store, and a server with
    the rights of its user. If the server belongs to a cluster, checks each master. Each line says
    ok, or what to do. Changes nothing; exits with code 4 if something must be done.
    """
    if store is not None and url is None and is_server_url(store):
        store, url = None, store
    if url is None and server != ServerOptions():
        raise RequestError("--password-file and --ca-file are for a server: give its URL too")
    if url is None and writeback:
        raise RequestError("--writeback checks rights on a server: give its URL too")
    checked = None if url is None else _server(url, server, writeback=writeback)
    failed = 0
    for check in _checks(spark.settings(), store, checked, debug=debug):
        failed += not check.is_ok
        state = "ok" if check.is_ok else "TO DO"
        terminal.out(f"{state:<6} {check.name:<16} {check.result}", at_once=True)
    if failed:
        failures = number_of(failed, "check needs", "checks need")
        terminal.say(f"{failures} attention: see the lines marked TO DO")
        raise typer.Exit(process.INPUT_REFUSED)


def _checks(
    settings: Config, store: str | None, server: Iterator[Check] | None, *, debug: bool
) -> Iterator[Check]:
    yield Check("claimlib", f"{__version__}, Python {platform.python_version()}")
    for extra, names in _PACKAGES.items():
        yield from (_package(name, extra) for name in names)
    yield _guarded("Java", _java)
    yield _class_archive(CLASS_ARCHIVE)
    folders = {Path(tempfile.gettempdir()): "temporary files"}
    if store is not None and (folder := local_folder(store)) is not None:
        # The folder of the store may not exist yet.
        folders[next(path for path in (folder, *folder.parents) if path.exists())] = "store"
        yield _guarded("permissions", partial(_permissions, folder))
    yield from (_disk(folder, what) for folder, what in folders.items())
    if server is not None:
        yield from server
    yield from _spark(settings, store, debug=debug)


def _guarded(name: str, look: Callable[[], str]) -> Check:
    """Return a check with the result of `look`, or with the message of its ClaimlibError."""
    try:
        return Check(name, look())
    except Exception as raised:
        error = process.translated(raised)
        if not isinstance(error, ClaimlibError):
            raise
        return Check(name, error.message, is_ok=False)


def _package(name: str, extra: str) -> Check:
    try:
        return Check(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        return Check(name, f"is missing: {install_command(extra)}", is_ok=False)


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return f"{check_java()} (from {f'JAVA_HOME={home}' if home else 'PATH'})"


def _class_archive(path: Path) -> Check:
    """Return the check of the class archive, which is optional.  It lets Spark start sooner."""
    if path.is_file():
        result = f"{path}, {path.stat().st_size // 1024**2} MB"
    else:
        result = (
            "missing: Spark starts in 11 to 13 s. It starts in 8 to 9 s after"
            " python -m claimlib.session.class_archive (once, half a minute, 190 MB)"
        )
    return Check("class archive", result)


def _permissions(folder: Path) -> str:
    from claimlib.schema import TABLES

    check_writable(folder, TABLES)
    return f"this user may write to {folder}"


def _disk(folder: Path, what: str) -> Check:
    free = shutil.disk_usage(folder).free
    if free < _LEAST_FREE_BYTES:
        result = f"{free / 2**30:.1f} GiB free for {what} in {folder}: make room"
        return Check("disk", result, is_ok=False)
    return Check("disk", f"{free / 2**30:.0f} GiB free for {what} in {folder}")


def _server(url: str, server: ServerOptions, *, writeback: bool) -> Iterator[Check]:
    from claimlib.live.cluster import master_address, open_servers
    from claimlib.live.connection import read_password

    modes: dict[Address, str | None] = {}
    try:
        password = read_password(server.password_file, os.environ)
        options: ConnectOptions = {"password": password, "ca_file": server.ca_file}
        address = master_address(url, **options)
        modes = {address: None}
        with open_servers(url, **options) as servers:
            modes = {source.address: source.server.mode for source in servers.nodes}
            checks = [
                check for source, slots in servers.slots.items() for check in _node(source, slots)
            ]
    except ClaimlibError as error:
        yield Check("server", error.message, is_ok=False)
        # A server that denies a permission has answered, so the rights can be checked.
        if not isinstance(error, PermissionDeniedError):
            return
    else:
        yield from checks
    try:
        for address, mode in modes.items():
            yield from _rights(address, mode, options, writeback=writeback)
    except ClaimlibError as error:
        yield Check("rights", error.message, is_ok=False)


def _node(source: Source, slots: int) -> Iterator[Check]:
    """Yield a line that describes a server, and one about its clock."""
    from claimlib.live.server import CLUSTER, key_count

    state = source.server
    what = f"{source.label}, {state.mode or 'one server'}, {state.role}"
    if state.mode == CLUSTER:
        keys = key_count(source)
        split = "" if keys is None else f", {number_of(keys, 'key')}"
        what += f", {number_of(slots, 'slot')}{split}"
    yield Check("server", what)
    yield _clock(source.call("TIME"))


def _rights(
    address: Address, mode: str | None, options: ConnectOptions, *, writeback: bool
) -> Iterator[Check]:
    """Yield a line for each right that the user lacks, and one that lists the granted rights."""
    from claimlib.live.connection import connect
    from claimlib.live.rights import SNAPSHOT_RIGHTS, WRITEBACK_RIGHTS, tried_rights
    from claimlib.live.server import CLUSTER

    on_node = f"{address.label}: " if mode == CLUSTER else ""
    needed = WRITEBACK_RIGHTS if writeback else SNAPSHOT_RIGHTS
    granted = []
    with connect(address.url, **options) as source:
        for right, denied in tried_rights(source, address.db, needed, mode):
            if denied is None:
                granted.append(right.rule)
                continue
            # Granting a right does not help if the server does not know the command.
            remedy = f"grant {right.rule}" if "rule" in denied.fields else denied.message
            result = f"{on_node}not granted: without it, {right.without}; {remedy}"
            yield Check(right.rule, result, is_ok=not right.is_needed)
    if granted:
        yield Check("rights", f"{on_node}granted: {' '.join(granted)}")


def _clock(reply: list[bytes]) -> Check:
    skew_ms = int(reply[0]) * 1000 + int(reply[1]) // 1000 - time.time_ns() // 1_000_000
    if abs(skew_ms) > _MOST_CLOCK_SKEW_MS:
        result = (
            f"the server's clock differs from this machine's by {skew_ms:+,} ms, and idle times use"
            " the server's: synchronize both clocks (NTP)"
        )
        return Check("clock", result, is_ok=False)
    return Check("clock", f"the server's differs from this machine's by {skew_ms:+,} ms")


def _spark(settings: Config, store: str | None, *, debug: bool) -> Iterator[Check]:
    try:
        spark = session_of(settings, debug=debug, java_options=SHORT_LIVED)
    except ClaimlibError as error:
        yield Check("Spark", error.message, is_ok=False)
        return
    yield Check("Spark", spark.version)
    yield _guarded("Delta", partial(_delta, spark))
    yield _guarded("workers", partial(_workers, spark))
    if store is not None:
        yield _guarded("store", partial(_store, spark, store))


def _delta(spark: SparkSession) -> str:
    """Return a remark that the session has Delta.

    Raises:
        ConfigError: the session does not know Delta's statements, or lacks Delta's catalog.
    """
    from pyspark.errors import PySparkException

    settings = " and ".join(f"{name}={LOCAL_SETTINGS[name]}" for name in _DELTA_SETTINGS)
    # The table does not exist, so the statement always fails.  Delta raises other errors than those
    # of a session without Delta.
    try:
        spark.sql(f"DESCRIBE DETAIL delta.`{_NO_TABLE}`").collect()
    except Exception as error:
        if any(text in str(error) for text in _ERRORS_WITHOUT_DELTA):
            raise ConfigError(
                "the Spark session has no Delta: start it with Delta's jar (spark.jars.packages),"
                f" {settings}"
            ) from error
        if not isinstance(error, PySparkException):
            raise
    return "the session has it"


def _workers(spark: SparkSession) -> str:
    """Return the Python version of Spark's workers.

    Raises:
        ConfigError: the version is not that of this process.  The kernel needs the same one.
    """
    from claimlib.plans.kernel import worker_python

    frame = spark.range(1).mapInPandas(worker_python, "python STRING")
    row = frame.first()
    version = row["python"] if row is not None else ""
    own = ".".join(map(str, sys.version_info[:2]))
    if not version.startswith(f"{own}."):
        raise ConfigError(
            f"Spark's workers run Python {version}, but this is Python {own}: set PYSPARK_PYTHON"
            " to the same Python"
        )
    return f"Python {version}"


def _store(spark: SparkSession, where: str) -> str:
    from claimlib.commands.runs import list_runs
    from claimlib.commands.sources import source_of
    from claimlib.store.tables import Store

    store = Store.open(spark, where)
    listed = list_runs(store, 1)
    if listed.unfinished:
        raise StoreError(
            f"{store.where}: not finished: {', '.join(listed.unfinished)}. What was decided was"
            " written, and the next run finishes it"
        )
    mirrored = source_of(store)
    source = "no source so far" if mirrored is None else f"source {mirrored}"
    runs, buckets = number_of(listed.total, "run"), number_of(store.buckets, "bucket")
    return f"{store.where}: {runs}, {buckets}, {source}"
