"""Where a server is, read from a URL without ever repeating a secret that stands in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path
from urllib.parse import unquote

from claimlib.errors import RequestError
from claimlib.places import shown_path
from claimlib.semantics.names import is_utf8

DEFAULT_PORT = 6379
PASSWORD_VARIABLE = "REDIS_PASSWORD"  # noqa: S105  # the variable's name, not a password

_SCHEMES = {"redis": False, "rediss": True}
_FORM = "redis://[USER@]HOST[:PORT][/DB], or rediss:// for TLS"
_MOST_DB = 2**31 - 1
# `urlsplit` drops line breaks and what stands beside brackets, each Python in its own way.
_URL = re.compile(
    r"(?P<scheme>[a-z]+)://"
    r"(?:(?P<user>[^/?#]*)@)?"
    r"(?:\[(?P<literal>[^/?#\[\]]*)\]|(?P<name>[^/?#:\[\]]*))"
    r"(?::(?P<port>[^/?#]*))?(?:/(?P<db>[^?#]*))?(?P<rest>[?#].*)?",
    re.IGNORECASE,
)
_UNUSABLE = re.compile("[\\s\\0-\\x1f\\x7f\\ud800-\\udfff]")


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


def is_server_url(text: str) -> bool:
    """Whether a text begins as the URL of a server does, so that it is no place of a store."""
    scheme, is_url, _ = text.partition("://")
    return bool(is_url) and scheme.lower() in _SCHEMES


def parse_address(url: str) -> Address:
    """The address in a URL `redis://[USER@]HOST[:PORT][/DB]`; `rediss` means TLS.

    Messages never repeat the URL: a password may stand in it, at its place or by a slip.

    Raises:
        RequestError: Not such a URL, or one with a password in it.
    """
    parts = None if _UNUSABLE.search(url) else _URL.fullmatch(url)
    if parts is None or parts["scheme"].lower() not in _SCHEMES:
        raise RequestError(f"the server's URL must be {_FORM}")
    if ":" in (parts["user"] or ""):
        raise RequestError(
            "a password in the server's URL can be read by everyone who lists processes: take it "
            f"out, and set the environment variable {PASSWORD_VARIABLE} or give --password-file"
        )
    if parts["rest"]:
        raise RequestError(f"nothing may follow the database in the server's URL: {_FORM}")
    return Address(
        host=_host(parts["literal"], parts["name"]),
        port=_port(parts["port"]),
        db=_database(parts["db"]),
        tls=_SCHEMES[parts["scheme"].lower()],
        username=_username(parts["user"]),
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
        RequestError: The file cannot be read, or is empty, or REDIS_PASSWORD is not UTF-8.
    """
    if password_file is None:
        password = environ.get(PASSWORD_VARIABLE) or None
        if password is not None and not is_utf8(password):
            raise RequestError(
                f"the environment variable {PASSWORD_VARIABLE} is not UTF-8 text: set it again "
                "with the password in UTF-8"
            )
        return password
    password_file = shown_path(password_file)
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


def _host(literal: str | None, name: str | None) -> str:
    """A name that a resolver can be asked for, or the IPv6 address in brackets."""
    try:
        if literal is not None:
            IPv6Address(literal)
            address, percent, zone = literal.partition("%")
            return address.lower() + percent + zone  # an interface's name has upper and lower case
        if name:
            name.encode("idna")
            return name.lower()
    except ValueError:
        pass
    raise RequestError(f"the server's URL has no host: {_FORM}")


def _port(text: str | None) -> int:
    port = _number(text) if text else DEFAULT_PORT
    if port is None or not 1 <= port <= 65535:
        raise RequestError(f"the port in the server's URL must be 1 to 65535: {_FORM}")
    return port


def _database(text: str | None) -> int:
    db = _number(text) if text else 0
    if db is None or db > _MOST_DB:
        raise RequestError(f"the database in the server's URL must be a number: {_FORM}")
    return db


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch("[0-9]{1,10}", text) else None


def _username(text: str | None) -> str | None:
    try:
        return unquote(text or "", errors="strict") or None
    except UnicodeDecodeError:
        raise RequestError(f"the user in the server's URL is not UTF-8: {_FORM}") from None
