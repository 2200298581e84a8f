"""Check places of tables and stores, as users give them.

Places are kept in the journal and shown, so they must not contain a secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from claimlib.errors import RequestError, StorageError

# All parts of a text that look like a URL, wherever they begin.  A typing error before a URL must
# not hide a secret in it.
_URL = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*):(?P<slashes>/{1,3})(?=(?P<host>[^/?#]*)(?P<rest>.*))",
    re.IGNORECASE | re.DOTALL,
)
# A parameter of a URL's query (?sig=…), of a connection string (password=…;) or of a Spark Connect
# address (;token=…).  It begins after one of these signs, or at the start of a connection string,
# which is a text with a semicolon before any slash.
_PARAMETER = re.compile(
    r"(?:[;?&]|^(?=[^/]*;))[^;?&=/]*"
    r"(?:password|passwd|pwd|secret|token|sig|credential|(?:access|account|api)[ _-]?key)"
    r"[^;?&=/]*=",
    re.IGNORECASE,
)
_JDBC_LOGIN = re.compile(r"\s*jdbc:[^?]*@", re.IGNORECASE)  # jdbc:oracle:thin:USER/PASSWORD@HOST
_AZURE = {"abfs", "abfss", "wasb", "wasbs"}  # container@account
S3 = {"s3", "s3a", "s3n"}
"""URL schemes of S3."""
_HOST_AND_PORT = re.compile(r"(?:\[[^\]]*\]|[^:]*)(?::[0-9]*)?")

_NAMESPACE = re.compile(r"[\w-]+\.[\w-]+")
_CATALOG_ONLY = re.compile(r"[\w-]+\.")
_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://?")

_SERVER = re.compile(r"(?:https?|rediss?)://", re.IGNORECASE)


def is_namespace(where: str) -> bool:
    """Return True if the place of a store is a schema of a catalog: `catalog.schema`."""
    return _NAMESPACE.fullmatch(where) is not None


def is_url(where: str) -> bool:
    """Return True if the place of a store begins with a scheme, as `s3a://` does."""
    return _HAS_SCHEME.match(where) is not None


def local_folder(where: str) -> Path | None:
    """Return the absolute path of a store's folder on this machine, as `shown_path` shows it.

    Return None if the place is a schema or a URL.
    """
    return None if is_namespace(where) or is_url(where) else shown_path(Path(where))


def shown_path(path: Path) -> Path:
    """Return a path as messages show it.

    The path is absolute, because a log may be read elsewhere.  Links are resolved only if the path
    has `..`, because `..` after a link is the parent of the link's target.
    """
    path = path.absolute()
    if ".." in path.parts:
        with suppress(OSError, RuntimeError, ValueError):  # the error comes when the path is opened
            return path.resolve()
    return path


def check_writable(folder: Path, tables: Iterable[str]) -> None:
    """Raise StorageError if this user cannot write to a store in a folder of this machine.

    A table is written in its folder, in its `_delta_log` and in the folders of its partitions.  A
    folder that does not exist yet is created in the nearest parent folder that exists.

    Args:
        tables: the names of the store's tables.  Other folders in the store's folder are ignored.
    """
    table_folders = [path for path in (folder / table for table in tables) if path.is_dir()]
    inner_folders = [path for table in table_folders for path in _folders_in(table)]
    for path in (folder, *table_folders, *inner_folders):
        existing = next(place for place in (path, *path.parents) if place.exists())
        if not os.access(existing, os.W_OK | os.X_OK):
            is_read_only = bool(os.statvfs(existing).f_flag & os.ST_RDONLY)
            raise StorageError(
                f"the storage of {existing} is read-only: make it writable, or give another"
                " location"
                if is_read_only
                else f"no permission to write to {existing}: change its permissions, or give"
                " another location",
                folder=str(existing),
            )


def _folders_in(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir()]
    except OSError:  # the folder cannot be read, or was just deleted: a later read reports this
        return []


def check_place(place: str, what: str) -> None:
    """Refuse a place that cannot be a folder, a URL or a schema that Spark can open.

    Args:
        what: the name of the place in the message, as in `check_no_secret`.

    Raises:
        RequestError: the place is empty, for example because a script's variable is not set.  Or
            the place is a catalog without a schema (`catalog.`), or is not UTF-8.
    """
    if not place.strip():
        raise RequestError(f"{what} is empty: give a folder, a URL, or catalog.schema")
    try:
        place.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            f"{what} is {place!a}, which is not valid UTF-8, so that Spark cannot open it:"
            " rename the folder"
        ) from error
    if _CATALOG_ONLY.fullmatch(place):
        raise RequestError(
            f"{what} is {place}, which has no schema: give catalog.schema, or ./{place} for a"
            " folder of this name"
        )


def check_storage(place: str, what: str) -> None:
    """Refuse the address of a web server or of a Redis server.

    Spark would look for tables there, and fail with an error of its own.  The message does not
    repeat the place, because it may contain a secret.

    Raises:
        RequestError: the place is such an address.
    """
    scheme = _SERVER.match(place)
    if scheme:
        raise RequestError(
            f"{what} begins with {scheme[0]}, but tables cannot be stored there: give a folder, a"
            " URL of storage (s3a://bucket/store), or a name of a catalog"
        )


def check_no_secret(place: str, what: str) -> None:
    """Refuse a place that contains a password, a key or a token.

    Such places are `s3a://KEY:SECRET@bucket`, a URL with a query, and `…;password=…`.
    `abfss://container@account` contains no secret.

    Args:
        what: the name of the place in the message, for example the option that names it.  The
            message does not repeat the place.

    Raises:
        RequestError: the place contains a secret, or text that looks like one.
    """
    if _PARAMETER.search(place) or _JDBC_LOGIN.match(place) or any(map(_has_secret, _urls(place))):
        raise RequestError(
            f"{what} contains a secret, or something that looks like one (before an @, after a ?,"
            " or in a parameter). Locations are stored and shown, so remove it, and give it to"
            " Spark as a setting (for example spark.hadoop.fs.s3a.secret.key) or through the"
            " machine's identity; a table can also be given by its name in a catalog"
        )


def _urls(text: str) -> list[re.Match[str]]:
    return list(_URL.finditer(text))


def _has_secret(url: re.Match[str]) -> bool:
    scheme, has_host = url["scheme"].lower(), url["slashes"] != "/"
    if scheme == "file":
        return False
    user, at, server = url["host"].rpartition("@")
    if at and (":" in user or (has_host and scheme not in _AZURE)):
        return True
    # In s3a://KEY:SEC/RET@bucket the slash of the secret ends the host early, so there is no @.  So
    # a colon must be followed by a port.  A bucket of S3 has no port.
    has_only_port = _HOST_AND_PORT.fullmatch(server) is not None and not (
        scheme in S3 and ":" in server
    )
    return "?" in url["rest"] or not has_only_port
