"""Where a server is, read from a URL without ever repeating a secret that stands in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from claimlib.errors import RequestError

DEFAULT_PORT = 6379
PASSWORD_VARIABLE = "REDIS_PASSWORD"  # noqa: S105  # the variable's name, not a password

_SCHEMES = {"redis": False, "rediss": True}
_FORM = "redis://[USER@]HOST[:PORT][/DB], or rediss:// for TLS"


@dataclass(frozen=True, slots=True)
class Address:
    """One database of one server.  `username` is null for the server's default user."""

    host: str
    port: int
    db: int
    tls: bool
    username: str | None

    @property
    def label(self) -> str:
        """`host:port/db`: what the server is called in tables, reports and messages."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}/{self.db}"


def parse_address(url: str) -> Address:
    """The address in a URL `redis://[USER@]HOST[:PORT][/DB]`; `rediss` means TLS.

    Messages never repeat the URL: a password may stand in it, at its place or by a slip.

    Raises:
        RequestError: Not such a URL, or one with a password in it.
    """
    parts = _split(url)
    if parts.scheme not in _SCHEMES:
        raise RequestError(f"the server's URL must be {_FORM}")
    if parts.password is not None:
        raise RequestError(
            "a password in the server's URL can be read by everyone who lists processes: take it "
            f"out, and set the environment variable {PASSWORD_VARIABLE} or give --password-file"
        )
    if parts.query or parts.fragment:
        raise RequestError(f"nothing may follow the database in the server's URL: {_FORM}")
    if not parts.hostname:
        raise RequestError(f"the server's URL names no host: {_FORM}")
    return Address(
        host=parts.hostname,
        port=_port(parts),
        db=_database(parts),
        tls=_SCHEMES[parts.scheme],
        username=unquote(parts.username) if parts.username else None,
    )


def source_label(url: str) -> str:
    """`host:port/db` of a URL, without connecting.

    Raises:
        RequestError: See `parse_address`.
    """
    return parse_address(url).label


def read_password(password_file: Path | None, environ: Mapping[str, str]) -> str | None:
    """The password: from the file if one is given, else from REDIS_PASSWORD, else null.

    One line break at the file's end is not part of the password.

    Raises:
        RequestError: The file cannot be read, or is empty.
    """
    if password_file is None:
        return environ.get(PASSWORD_VARIABLE) or None
    try:
        text = password_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise RequestError(
            f"the password file {password_file} cannot be read ({reason}): give a text file that "
            "holds nothing but the password",
            password_file=str(password_file),
        ) from None  # a decoding error carries the file's bytes
    password = text.removesuffix("\n").removesuffix("\r")
    if not password:
        raise RequestError(
            f"the password file {password_file} is empty: it must hold the password",
            password_file=str(password_file),
        )
    return password


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        raise RequestError(f"the server's URL must be {_FORM}") from None


def _port(parts: SplitResult) -> int:
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise RequestError(f"the port in the server's URL must be 1 to 65535: {_FORM}")
    return port or DEFAULT_PORT


def _database(parts: SplitResult) -> int:
    text = parts.path.removeprefix("/")
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()):
        raise RequestError(f"the database in the server's URL must be a number: {_FORM}")
    return int(text)
