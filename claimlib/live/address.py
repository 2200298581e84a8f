"""Parse the address of a server from its URL, and never repeat a secret that the URL contains."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv6Address
from pathlib import Path
from typing import Self
from urllib.parse import quote, unquote

from claimlib.errors import RequestError
from claimlib.places import shown_path
from claimlib.semantics.names import is_utf8

DEFAULT_PORT = 6379
DEFAULT_SENTINEL_PORT = 26379
PASSWORD_VARIABLE = "REDIS_PASSWORD"  # noqa: S105  # the variable's name, not a password

_SCHEMES = {"redis": False, "rediss": True}
"""By scheme, True if the server uses TLS."""
_SENTINEL = "+sentinel"
_FORM = (
    "redis://[USER@]HOST[:PORT][/DB], or redis+sentinel://[USER@]HOST[:PORT]/MASTER[/DB]; rediss"
    " for TLS"
)
_MOST_DB = 2**31 - 1
# `urlsplit` is not used, because it drops line breaks and characters beside brackets, and Python
# versions differ in this.
_URL = re.compile(
    r"(?P<scheme>rediss?)(?P<sentinel>\+sentinel)?://"
    r"(?:(?P<user>[^/?#]*)@)?"
    r"(?:\[(?P<ipv6>[^/?#\[\]]*)\]|(?P<name>[^/?#:\[\]]*))"
    r"(?::(?P<port>[^/?#]*))?(?:/(?P<path>[^?#]*))?(?P<rest>[?#].*)?",
    re.IGNORECASE,
)
_MASTER = re.compile(r"[A-Za-z0-9._-]+")  # the names that sentinels allow
# Spaces, control characters and surrogates.
_UNUSABLE = re.compile("[\\s\\0-\\x1f\\x7f\\ud800-\\udfff]")


@dataclass(frozen=True, slots=True)
class Address:
    """Hold the address of one database of one server.

    Attributes:
        username: None for the server's default user.
        master: the name of a master, if host and port are those of a sentinel.  Otherwise None.
    """

    host: str
    port: int
    db: int
    tls: bool
    username: str | None
    master: str | None = None

    @property
    def label(self) -> str:
        """Return `host:port/db`, the name of the server in tables, reports and messages.

        For a sentinel it is `host:port/master/db`.
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        return "/".join([f"{host}:{self.port}", *filter(None, [self.master]), str(self.db)])

    @property
    def url(self) -> str:
        """Return the URL of the address."""
        scheme = ("rediss" if self.tls else "redis") + (_SENTINEL if self.master else "")
        user = "" if self.username is None else f"{quote(self.username, safe='')}@"
        return f"{scheme}://{user}{self.label}"

    def at(self, host: str, port: int) -> Self:
        """Return the address of another server with the same database and user."""
        return replace(self, host=host, port=port, master=None)


def is_server_url(text: str) -> bool:
    """Return True if a text begins like the URL of a server.  A store cannot have such a place."""
    scheme, is_url, _ = text.partition("://")
    return bool(is_url) and scheme.lower().removesuffix(_SENTINEL) in _SCHEMES


def parse_address(url: str) -> Address:
    """Return the address in a URL `redis://[USER@]HOST[:PORT][/DB]`.  `rediss` means TLS.

    `redis+sentinel://[USER@]HOST[:PORT]/MASTER[/DB]` names a master by a sentinel.

    Messages never repeat the URL, because it may contain a password.

    Raises:
        RequestError: the URL has another form, or it contains a password.
    """
    parts = None if _UNUSABLE.search(url) else _URL.fullmatch(url)
    if parts is None:
        raise RequestError(f"the server's URL must be {_FORM}")
    if ":" in (parts["user"] or ""):
        raise RequestError(
            "a password in the server's URL can be read by everyone who lists processes: take it "
            f"out, and set the environment variable {PASSWORD_VARIABLE} or give --password-file"
        )
    if parts["rest"]:
        raise RequestError(f"nothing may follow the database in the server's URL: {_FORM}")
    master, db = _master_and_database(parts["path"] or "", is_sentinel=bool(parts["sentinel"]))
    return Address(
        host=_host(parts["ipv6"], parts["name"]),
        port=_port(parts["port"], DEFAULT_PORT if master is None else DEFAULT_SENTINEL_PORT),
        db=_database(db),
        tls=_SCHEMES[parts["scheme"].lower()],
        username=_username(parts["user"]),
        master=master,
    )


def _master_and_database(path: str, *, is_sentinel: bool) -> tuple[str | None, str]:
    if not is_sentinel:
        return None, path
    master, _, db = path.partition("/")
    if not _MASTER.fullmatch(master):
        raise RequestError(f"the sentinel's URL has no name of a master: {_FORM}")
    return master, db


def source_label(url: str) -> str:
    """Return `host:port/db` of a URL, without connecting.

    Raises:
        RequestError: see `parse_address`.
    """
    return parse_address(url).label


def read_password(password_file: Path | None, environ: Mapping[str, str]) -> str | None:
    """Return the password from the file if one is given, otherwise from REDIS_PASSWORD.

    The result is None if no file is given and REDIS_PASSWORD is empty or not set.  One line break
    at the file's end is not part of the password.

    Raises:
        RequestError: the file cannot be read, or is empty, or REDIS_PASSWORD is not UTF-8.
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
        ) from None  # a decoding error contains the file's bytes
    password = text.removesuffix("\n").removesuffix("\r")
    if not password:
        raise RequestError(
            f"the password file {password_file} is empty: it must hold the password",
            password_file=str(password_file),
        )
    return password


def _host(ipv6: str | None, name: str | None) -> str:
    """Return the host in a URL, in lower case.

    Args:
        ipv6: the IPv6 address that the URL has in brackets, or None.
        name: the host without brackets, or None.
    """
    try:
        if ipv6 is not None:
            IPv6Address(ipv6)
            address, percent, zone = ipv6.partition("%")
            return address.lower() + percent + zone  # in a zone, upper and lower case differ
        if name:
            name.encode("idna")
            return name.lower()
    except ValueError:
        pass
    raise RequestError(f"the server's URL has no host: {_FORM}")


def _port(text: str | None, default: int) -> int:
    port = _number(text) if text else default
    if port is None or not 1 <= port <= 65535:
        raise RequestError(f"the port in the server's URL must be 1 to 65535: {_FORM}")
    return port


def _database(text: str) -> int:
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
